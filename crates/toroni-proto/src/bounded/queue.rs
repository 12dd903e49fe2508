//! What waits for one client: a place in each lane of its set, and what was left out.
//!
//! ```text
//!  lane a   97 ──► 99 ──► 102           the client waits for these
//!            ▲
//!            next        gap: 41 messages, numbers 810 … 951, told before 97
//! ```
//!
//! The oldest frame of all lanes is the next one to be sent. Frames are left out from there, when it is too
//! old, when too much waits, or when the memory of all frames is full. All parts of a message are left out
//! together.

use super::frames::{Frames, Handle};
use crate::hook::mutant;
use crate::id::{MessageNumber, Number};
use crate::reassembly::Bound;
use crate::time::Monotonic;
use crate::wire::LostReason;
use crate::wire::tcp::{Gap, Reached};

/// What a client gets of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// What is new.
    Live,
    /// History, from `next` on. With `until`, nothing follows.
    Replay {
        /// Everything below was brought.
        next: Number,
        /// The end that the client asked for.
        until: Option<Number>,
        /// The number of the next message within the replay.
        message: MessageNumber,
    },
    /// Nothing more. Everything below this number was brought.
    Ended(Number),
}

/// A change that the client must be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Announce {
    /// A replay begins with this number.
    Begins(Number),
    /// The replay has ended at this number. The next message has this message number.
    Live(Number, MessageNumber),
    /// The replay has ended at this number, and nothing follows.
    Ended(Number),
}

/// Frames that were left out, and not told yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeftOut {
    pub(super) gap: Gap,
    /// The message number of what comes next.
    pub(super) message: MessageNumber,
}

/// One stream, for one client.
#[derive(Debug, Clone)]
pub(super) struct Lane {
    pub(super) mode: Mode,
    pub(super) announce: Option<Announce>,
    pub(super) left_out: Option<LeftOut>,
    next: Option<Handle>,
}

/// What waits for one client.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) lanes: Box<[Lane]>,
    bytes: u64,
    /// Messages that were left out since the client connected.
    left_out: u64,
    /// The stream of which a message was begun and not finished.
    within: Option<usize>,
}

impl Queue {
    pub(super) fn new(streams: usize) -> Self {
        let lane = Lane { mode: Mode::Live, announce: None, left_out: None, next: None };
        Self { lanes: vec![lane; streams].into(), bytes: 0, left_out: 0, within: None }
    }

    /// Empties the queue of a client that is gone.
    pub(super) fn clear(&mut self, frames: &mut Frames) {
        for lane in &mut self.lanes {
            while let Some(handle) = lane.next {
                frames.release(handle);
                lane.next = frames.next(handle);
            }
            *lane = Lane { mode: Mode::Live, announce: None, left_out: None, next: None };
        }
        self.bytes = 0;
        self.within = None;
    }

    /// Begins to count what is left out.
    pub(super) const fn restart(&mut self) {
        self.left_out = 0;
    }

    /// How many messages were left out since the client connected.
    pub(super) const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// How many bytes wait, without the frame that was begun.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a new frame.
    pub(super) fn offer(&mut self, frames: &mut Frames, stream: usize, handle: Handle) {
        let lane = &mut self.lanes[stream];
        if lane.mode != Mode::Live {
            return;
        }
        lane.next.get_or_insert(handle);
        self.bytes += frames.length(handle);
        frames.wait(handle);
    }

    /// The stream whose frame is the next to be sent, and that frame. While a message was begun, that is
    /// its next part.
    pub(super) fn oldest(&self) -> Option<(usize, Handle)> {
        if let Some(stream) = self.within {
            return self.lanes[stream].next.map(|handle| (stream, handle));
        }
        let waiting = self.lanes.iter().enumerate().filter_map(|(at, lane)| Some((at, lane.next?)));
        waiting.min_by_key(|(_, handle)| *handle)
    }

    /// Whether some parts of a message were sent, and others not.
    pub(super) const fn is_within_a_message(&self) -> bool {
        self.within.is_some()
    }

    /// Takes the next frame of a stream, which is begun now. The caller releases it when it was sent.
    pub(super) fn start(&mut self, frames: &Frames, stream: usize, handle: Handle) {
        self.bytes -= frames.length(handle);
        self.lanes[stream].next = frames.next(handle);
        self.within = frames.about(handle).opens.then_some(stream);
    }

    /// Leaves out what is older than `bound_ns`. Returns how many messages.
    pub(super) fn expire(&mut self, frames: &mut Frames, now: Monotonic, bound_ns: u64) -> u64 {
        let mut count = 0;
        while let Some((stream, handle)) = self.oldest()
            && now.since(frames.about(handle).made) > bound_ns
        {
            count += self.leave_out(frames, stream, LostReason::Budget);
        }
        count
    }

    /// Leaves out the oldest frames, until at most `most` bytes wait. Returns how many messages.
    pub(super) fn shrink(&mut self, frames: &mut Frames, most: u64) -> u64 {
        let mut count = 0;
        while self.bytes > most
            && let Some((stream, _)) = self.oldest()
        {
            count += self.leave_out(frames, stream, LostReason::Memory);
        }
        count
    }

    /// Whether this frame is the next of a stream.
    pub(super) fn waits_for(&self, handle: Handle) -> bool {
        self.lanes.iter().any(|lane| lane.next == Some(handle))
    }

    /// Leaves this frame out, because its memory is needed. Returns how many messages.
    pub(super) fn evict(&mut self, frames: &mut Frames, handle: Handle) -> u64 {
        match self.lanes.iter().position(|lane| lane.next == Some(handle)) {
            Some(stream) => self.leave_out(frames, stream, LostReason::Memory),
            None => 0,
        }
    }

    /// Leaves out the next frame of a stream, with all further parts of its last message.
    fn leave_out(&mut self, frames: &mut Frames, stream: usize, reason: LostReason) -> u64 {
        let lane = &mut self.lanes[stream];
        let Some(first) = lane.next else { return 0 };
        let about = *frames.about(first);
        // A message of which the client has some parts is lost too.
        let mut count = u64::from(about.continues);
        let mut last = about;
        let mut next = Some(first);
        while let Some(handle) = next {
            last = *frames.about(handle);
            count += last.count;
            self.bytes -= frames.length(handle);
            frames.release(handle);
            next = frames.next(handle);
            if !last.opens {
                break;
            }
        }
        lane.next = next;
        if self.within == Some(stream) {
            self.within = None;
        }
        let counted = if mutant("gap_count_off_by_one") { count.saturating_sub(1) } else { count };
        let left_out = lane.left_out.get_or_insert(LeftOut {
            gap: Gap {
                first: about.first,
                until: last.until,
                count: 0,
                bound: Bound::Exact,
                reason,
            },
            message: last.next_message(),
        });
        left_out.gap.count += counted;
        left_out.gap.until = last.until;
        left_out.message = last.next_message();
        self.left_out += count;
        count
    }

    /// Returns how far a stream is, once what was left out is reported. `end` is where it is if nothing waits.
    pub(super) fn position(&self, frames: &Frames, stream: usize, end: Reached) -> Reached {
        let lane = &self.lanes[stream];
        match (lane.mode, lane.next) {
            (Mode::Live, None) => end,
            (Mode::Live, Some(handle)) => {
                let about = frames.about(handle);
                let skips = mutant("heartbeat_skips_what_waits");
                let number = if skips { end.number } else { about.first };
                Reached { number, message: about.message }
            }
            (Mode::Replay { next, message, .. }, _) => Reached { number: next, message },
            (Mode::Ended(next), _) => Reached { number: next, message: MessageNumber::ZERO },
        }
    }

    /// Removes what waits of a stream.
    pub(super) fn remove(&mut self, frames: &mut Frames, stream: usize) {
        let lane = &mut self.lanes[stream];
        while let Some(handle) = lane.next {
            self.bytes -= frames.length(handle);
            frames.release(handle);
            lane.next = frames.next(handle);
        }
        if self.within == Some(stream) {
            self.within = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::frames::tests::about;
    use super::*;
    use crate::time::MILLISECOND;

    const LENGTH: usize = 100;

    struct Bench {
        frames: Frames,
        queue: Queue,
        number: u64,
    }

    fn bench() -> Bench {
        Bench { frames: Frames::new(10_000, 2), queue: Queue::new(2), number: 0 }
    }

    impl Bench {
        /// Adds a frame with one message, or with a part of one.
        fn push(&mut self, stream: usize, at_ms: u64, (continues, opens): (bool, bool)) -> Handle {
            let mut about = about(u32::try_from(stream).unwrap(), self.number);
            about.made = Monotonic::from_ns(at_ms * MILLISECOND);
            (about.continues, about.opens) = (continues, opens);
            about.count = u64::from(!continues);
            about.message = MessageNumber::ZERO.plus(self.number);
            if continues {
                about.message = about.message.plus(1);
            }
            if !opens {
                self.number += 1;
            }
            self.frames.make_room(LENGTH, 1).unwrap();
            let (handle, _) = self.frames.push(LENGTH, about);
            self.queue.offer(&mut self.frames, stream, handle);
            handle
        }

        fn whole(&mut self, stream: usize, at_ms: u64) -> Handle {
            self.push(stream, at_ms, (false, false))
        }

        fn expire(&mut self, at_ms: u64) -> u64 {
            let now = Monotonic::from_ns(at_ms * MILLISECOND);
            self.queue.expire(&mut self.frames, now, 50 * MILLISECOND)
        }

        fn gap(&mut self, stream: usize) -> Option<(u64, u64, u64, u64)> {
            let LeftOut { gap, message } = self.queue.lanes[stream].left_out.take()?;
            Some((gap.first.get(), gap.until.get(), gap.count, message.get()))
        }
    }

    #[test]
    fn what_is_older_than_the_bound_becomes_one_gap_with_exact_numbers() {
        let mut bench = bench();
        for at in [0, 10, 20, 80] {
            bench.whole(0, at);
        }
        assert_eq!(bench.expire(50), 0, "exactly as old as the bound");
        assert_eq!(bench.expire(65), 2);
        assert_eq!(bench.expire(90), 1);
        assert_eq!(bench.gap(0), Some((0, 3, 3, 3)));
        assert_eq!(bench.queue.bytes(), 100);
        assert_eq!(bench.queue.oldest().map(|(stream, _)| stream), Some(0));
    }

    #[test]
    fn each_stream_has_a_gap_of_its_own_and_the_oldest_frame_goes_first() {
        let mut bench = bench();
        for (stream, at) in [(1, 0), (0, 10), (1, 20), (0, 90)] {
            bench.whole(stream, at);
        }
        assert_eq!(bench.queue.oldest().map(|(stream, _)| stream), Some(1));
        assert_eq!(bench.expire(75), 3);
        assert_eq!(bench.gap(0), Some((1, 2, 1, 2)));
        assert_eq!(bench.gap(1), Some((0, 3, 2, 3)));
    }

    #[test]
    fn beyond_the_bytes_of_the_queue_the_oldest_frames_are_left_out() {
        let mut bench = bench();
        for _ in 0..5 {
            bench.whole(0, 0);
        }
        assert_eq!(bench.queue.shrink(&mut bench.frames, 500), 0);
        assert_eq!(bench.queue.shrink(&mut bench.frames, 499), 1);
        assert_eq!(bench.queue.shrink(&mut bench.frames, 250), 2);
        assert_eq!(bench.gap(0), Some((0, 3, 3, 3)));
        assert_eq!(bench.queue.bytes(), 200);
    }

    #[test]
    fn the_parts_of_a_message_are_left_out_together() {
        let mut bench = bench();
        bench.push(0, 0, (false, true));
        bench.push(0, 60, (true, true));
        bench.push(0, 60, (true, false));
        bench.whole(0, 60);
        assert_eq!(bench.expire(70), 1);
        assert_eq!(bench.gap(0), Some((0, 1, 1, 1)));
        assert_eq!(bench.queue.bytes(), 100);
    }

    #[test]
    fn a_message_of_which_some_parts_were_sent_counts_when_the_others_are_left_out() {
        let mut bench = bench();
        let first = bench.push(0, 0, (false, true));
        bench.whole(1, 0);
        bench.push(0, 0, (true, false));
        bench.queue.start(&bench.frames, 0, first);
        assert!(bench.queue.is_within_a_message());
        let next = bench.queue.oldest().map(|(stream, _)| stream);
        assert_eq!(next, Some(0), "nothing comes between the parts of a message");
        assert_eq!(bench.expire(70), 2);
        assert_eq!(bench.gap(0), Some((1, 2, 1, 2)));
        assert_eq!(bench.gap(1), Some((0, 1, 1, 1)));
        assert!(!bench.queue.is_within_a_message());
    }

    #[test]
    fn a_frame_whose_memory_is_needed_is_left_out_of_the_queues_that_wait_for_it() {
        let mut bench = bench();
        let (first, second) = (bench.whole(0, 0), bench.whole(0, 0));
        assert_eq!(bench.queue.evict(&mut bench.frames, second), 0, "it is not the next");
        assert_eq!(bench.queue.evict(&mut bench.frames, first), 1);
        assert_eq!(bench.gap(0), Some((0, 1, 1, 1)));
    }

    #[test]
    fn a_queue_that_is_emptied_waits_for_nothing() {
        let mut bench = bench();
        let first = bench.whole(0, 0);
        bench.whole(1, 0);
        bench.queue.clear(&mut bench.frames);
        assert_eq!((bench.queue.bytes(), bench.queue.oldest()), (0, None));
        assert_eq!(bench.frames.make_room(10_000, 1), Ok(()), "{first:?} is free");
    }
}
