//! The frames that wait for clients: made once, in fixed memory.
//!
//! ```text
//!  bytes   ┌──────────┬──────┬────────┬─────────────┬───┬─────────────────┐
//!          │ (free)   │ 97 a │  98 b  │    99 a     │   │ ← 96 (gone)     │  a frame never wraps
//!          └──────────┴──▲───┴───▲────┴──────▲──────┴───┴─────────────────┘
//!  lane a                └───────┼── next ──►┘
//!  lane b                        └─► (newest)
//! ```
//!
//! A **lane** is one stream for one set of patterns. Each frame knows the next one of its lane, and how
//! many clients still wait for it. So the queue of a client needs no memory for its frames.

use core::num::NonZeroU64;

use crate::id::{MessageNumber, Number};
use crate::time::Monotonic;

/// For this many bytes there is one entry in the index.
const BYTES_PER_ENTRY: usize = 256;

/// Names a frame. Later frames have greater handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Handle(NonZeroU64);

impl Handle {
    const FIRST: Self = Self(NonZeroU64::MIN);

    const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// What is known of a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct About {
    /// The stream and set to which it belongs.
    pub(super) lane: u32,
    /// When it was made.
    pub(super) made: Monotonic,
    /// No message in it has a number below this one.
    pub(super) first: Number,
    /// All messages in it have numbers below this one.
    pub(super) until: Number,
    /// The message number of the first message that starts in it.
    pub(super) message: MessageNumber,
    /// How many messages start in it.
    pub(super) count: u64,
    /// The greatest topic in it, plus 1.
    pub(super) topics_end: u32,
    /// It begins with a further part of a message.
    pub(super) continues: bool,
    /// It ends within a message.
    pub(super) opens: bool,
}

impl About {
    const NONE: Self = Self {
        lane: 0,
        made: Monotonic::from_ns(0),
        first: Number::ZERO,
        until: Number::ZERO,
        message: MessageNumber::ZERO,
        count: 0,
        topics_end: 0,
        continues: false,
        opens: false,
    };

    /// The message number of what comes after it.
    pub(super) const fn next_message(&self) -> MessageNumber {
        self.message.plus(self.count)
    }
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    about: About,
    /// Its first byte, counted over all laps of the ring.
    position: u64,
    length: u32,
    /// How many clients wait for it, or are receiving it.
    waiting: u32,
    next: Option<Handle>,
}

/// The frames of all lanes.
#[derive(Debug)]
pub(super) struct Frames {
    bytes: Box<[u8]>,
    index: Box<[Entry]>,
    /// The oldest frame that is there, and the one that will be made next.
    trail: Handle,
    lead: Handle,
    /// The end of the newest frame, counted over all laps of the ring.
    head: u64,
    newest: Box<[Option<Handle>]>,
}

impl Frames {
    pub(super) fn new(bytes: usize, lanes: usize) -> Self {
        let none = Entry { about: About::NONE, position: 0, length: 0, waiting: 0, next: None };
        Self {
            bytes: vec![0; bytes].into(),
            index: vec![none; (bytes / BYTES_PER_ENTRY).max(4)].into(),
            trail: Handle::FIRST,
            lead: Handle::FIRST,
            head: 0,
            newest: vec![None; lanes].into(),
        }
    }

    /// Frees the oldest frames for which no client waits, until this many bytes in this many frames have
    /// room.
    ///
    /// # Errors
    ///
    /// The oldest frame, if clients wait for it.
    pub(super) fn make_room(&mut self, bytes: usize, frames: usize) -> Result<(), Handle> {
        loop {
            let start = self.start(bytes);
            let entries = self.lead.0.get() - self.trail.0.get() + frames as u64;
            let oldest = self.entry(self.trail);
            let fits = start + bytes as u64 - oldest.position <= self.bytes.len() as u64
                && entries <= self.index.len() as u64;
            if fits || self.trail == self.lead {
                return Ok(());
            }
            if oldest.waiting > 0 {
                return Err(self.trail);
            }
            self.trail = self.trail.next();
        }
    }

    /// Appends a frame of this length, for which [`Self::make_room`] was called, and returns its memory.
    pub(super) fn push(&mut self, length: usize, about: About) -> (Handle, &mut [u8]) {
        let position = self.start(length);
        let (handle, lane) = (self.lead, about.lane as usize);
        let stored = u32::try_from(length).unwrap_or(u32::MAX);
        let entry = Entry { about, position, length: stored, waiting: 0, next: None };
        *self.entry_mut(handle) = entry;
        if let Some(before) = self.newest[lane].replace(handle)
            && before >= self.trail
        {
            self.entry_mut(before).next = Some(handle);
        }
        self.head = position + length as u64;
        self.lead = handle.next();
        let from = self.place(position);
        (handle, self.bytes.get_mut(from..from + length).unwrap_or_default())
    }

    pub(super) fn about(&self, handle: Handle) -> &About {
        &self.index[self.slot(handle)].about
    }

    pub(super) fn bytes(&self, handle: Handle) -> &[u8] {
        let entry = self.entry(handle);
        let from = self.place(entry.position);
        self.bytes.get(from..from + entry.length as usize).unwrap_or_default()
    }

    pub(super) fn length(&self, handle: Handle) -> u64 {
        self.entry(handle).length.into()
    }

    pub(super) fn next(&self, handle: Handle) -> Option<Handle> {
        self.entry(handle).next
    }

    /// Notes that another client waits for a frame.
    pub(super) fn wait(&mut self, handle: Handle) {
        self.entry_mut(handle).waiting += 1;
    }

    /// Notes that a client does not wait for a frame any more.
    pub(super) fn release(&mut self, handle: Handle) {
        let entry = self.entry_mut(handle);
        entry.waiting = entry.waiting.saturating_sub(1);
    }

    /// The place of the next frame: behind the newest, or at the beginning if it would wrap.
    fn start(&self, length: usize) -> u64 {
        let left = self.bytes.len() - self.place(self.head);
        if left < length { self.head + left as u64 } else { self.head }
    }

    fn place(&self, position: u64) -> usize {
        usize::try_from(position % self.bytes.len() as u64).unwrap_or(0)
    }

    fn slot(&self, handle: Handle) -> usize {
        usize::try_from(handle.0.get() % self.index.len() as u64).unwrap_or(0)
    }

    fn entry(&self, handle: Handle) -> Entry {
        self.index[self.slot(handle)]
    }

    fn entry_mut(&mut self, handle: Handle) -> &mut Entry {
        let slot = self.slot(handle);
        &mut self.index[slot]
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn about(lane: u32, number: u64) -> About {
        let first = Number::new(number).unwrap();
        About { lane, first, until: first.plus(1), count: 1, ..About::NONE }
    }

    #[test]
    fn frames_of_a_lane_follow_one_another_and_keep_their_bytes() {
        let mut frames = Frames::new(1_000, 2);
        let handles: Vec<Handle> = (0..3)
            .map(|number| {
                frames.make_room(300, 1).unwrap();
                let (handle, bytes) = frames.push(300, about(number % 2, number.into()));
                bytes.fill(u8::try_from(number).unwrap());
                handle
            })
            .collect();
        assert_eq!(frames.next(handles[0]), Some(handles[2]));
        assert_eq!(frames.next(handles[1]), None);
        for (number, handle) in handles.iter().enumerate() {
            assert_eq!(frames.bytes(*handle), [u8::try_from(number).unwrap(); 300]);
            assert_eq!(frames.length(*handle), 300);
        }
    }

    #[test]
    fn a_frame_for_which_a_client_waits_is_not_overwritten() {
        let mut frames = Frames::new(1_024, 1);
        let (first, _) = frames.push(300, about(0, 0));
        frames.wait(first);
        for number in 1..3 {
            frames.make_room(300, 1).unwrap();
            frames.push(300, about(0, number));
        }
        assert_eq!(
            frames.make_room(300, 1),
            Err(first),
            "124 bytes are left, and it must not wrap"
        );
        assert_eq!(frames.make_room(124, 2), Err(first), "there are 4 entries");
        assert_eq!(frames.make_room(124, 1), Ok(()));
        frames.release(first);
        assert_eq!(frames.make_room(300, 1), Ok(()));
        let (fourth, _) = frames.push(300, about(0, 3));
        assert_eq!(frames.about(fourth).first.get(), 3);
    }
}
