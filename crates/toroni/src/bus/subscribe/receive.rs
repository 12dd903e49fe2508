//! The subscriber at work: the next message that is for it, its position for publishers, its waits.

use crate::bus::Subscriber;
use crate::bus::subscribe::backoff::{Step, WaitStrategy};
use crate::bus::subscribe::in_place::is_told_by_tag;
use crate::bus::subscribe::message::Message;
use crate::bus::views::{
    READERS_TRUNCATED, RING_REWRITTEN, RING_TRUNCATED, check_whole, eventcount_of, ring_of,
    table_of,
};
use crate::crash::{self, CrashPoint};
use crate::error::{Corrupt, ReceiveError};
use crate::mutant::mutant;
use crate::notify::{Waiter, futex, sleep_unless};
use crate::ring::memory::Ring;
use crate::ring::read_ahead::ReadAhead;
use crate::ring::reader::{Cursor, Interrupted, Seen};
use crate::ring::slots;
use crate::ring::waits::{self, Registered};
use crate::ring::writer::{length_of, tag_of};
use crate::settings::NotifyKind;
use crate::sync::Ordering;
use crate::topic::frame::{MAX_EXTENSIONS_BYTES, Tag, TopicId, decode};
use std::hint::black_box;
use std::io;
use std::time::{Duration, Instant};

/// Whoever should wake a subscriber may have died before it did so: it checks again after this.
pub(in crate::bus) const SLEEP: Duration = Duration::from_millis(50);
/// After some time without any message it looks less often: even a bare sleep of 100 ms costs close to
/// 0.1 % of a core by itself, on an idle virtual machine.
pub(in crate::bus) const LONG_SLEEP: Duration = Duration::from_millis(250);
pub(in crate::bus) const SLEEPS_UNTIL_LONG: u32 = 20;
/// Sleeps between two looks whether the bus still exists: the look is several system calls, which
/// would double the cost of a sleep, and would come with each message to one that sleeps in between.
pub(in crate::bus) const SLEEPS_UNTIL_CHECK: u32 = 8;

impl Subscriber {
    /// As [`Self::next`], only for a message that needs no question: the common case, which is short
    /// enough to become part of the caller's loop. False says nothing.
    #[inline(always)]
    pub(in crate::bus) fn next_wanted(&mut self) -> bool {
        let wanted = self.stamp.check().is_ok() && self.received.read_ahead.next_wanted();
        self.counts.received += u64::from(wanted);
        wanted
    }

    /// Puts the next message that is for this subscriber into `received`; false if there is none yet.
    pub(in crate::bus) fn next(&mut self, body: Body) -> Result<bool, ReceiveError> {
        self.stamp.check()?;
        self.next_mine(body)
    }

    /// As [`Self::next`]; if there is none, arms the descriptor, if there is one, and looks once more.
    pub(in crate::bus) fn try_next(&mut self, body: Body) -> Result<bool, ReceiveError> {
        if self.next(body)? {
            return Ok(true);
        }
        self.drained(body)
    }

    #[cold]
    fn drained(&mut self, body: Body) -> Result<bool, ReceiveError> {
        if self.descriptor.is_none() {
            // Where the file was, there is nothing but zeros: the end of the stream, for ever.
            self.check_files()?;
            if let Step::Pause(count) = self.backoff.empty(WaitStrategy::Spin, self.cursor.sequence)
            {
                pause(count);
            }
            if self.backoff.is_check_due() {
                self.check_slowly()?;
            }
            return Ok(false);
        }
        self.publish_position();
        self.arm_descriptor();
        crash::point(CrashPoint::ReaderBeforeSleep);
        self.backoff.start_over();
        let found = self.next(body)?;
        if !found {
            self.check_slowly()?;
            // It has passed over so much that it stopped: there is more, which nobody announces again.
            if !self.is_drained()
                && let Some(descriptor) = &self.descriptor
            {
                descriptor.nudge();
            }
        }
        Ok(found)
    }

    /// The message that was received last.
    #[inline]
    pub(in crate::bus) fn last(&self) -> Message<'_> {
        Message::new(&self.received)
    }

    /// Tells publishers, once a block, how far this subscriber has come.
    #[inline]
    pub(in crate::bus) fn count_position(&mut self) {
        if self.cursor.position >= self.publish_at {
            self.publish_position();
        }
    }

    fn next_mine(&mut self, body: Body) -> Result<bool, ReceiveError> {
        let began = self.cursor.position;
        loop {
            while let Some(tag) = self.received.read_ahead.next() {
                if self.is_mine(tag, None)? {
                    if Tag::from_raw(tag).is_plain() {
                        self.received.read_ahead.want_more();
                    }
                    self.received.in_place = false;
                    self.counts.received += 1;
                    return Ok(true);
                }
            }
            match self.refill(body)? {
                // A whole ring of messages for others, and no end of it: the caller may have a deadline.
                Refill::Again if self.has_passed_a_ring_since(began) => return Ok(false),
                Refill::Again => {}
                Refill::Message => return Ok(true),
                Refill::Nothing => return Ok(false),
            }
        }
    }

    #[inline]
    fn has_passed_a_ring_since(&self, position: u64) -> bool {
        self.cursor.position.wrapping_sub(position) > self.subscribing.ring.shape().capacity()
    }

    /// When the read-ahead has no more: fills it, or looks at a record that does not go through it.
    fn refill(&mut self, body: Body) -> Result<Refill, ReceiveError> {
        if mutant("cache_before_validation")
            && let Some(seen) = self.unvalidated()
        {
            self.is_mine(seen.tag, Some(&seen))?;
        }
        let ring = ring_of(&self.subscribing.ring);
        let filled = if let Some(next) = self.received.read_ahead.give_up() {
            // Somebody has rewritten a header that was committed; what it says now, the ring tells.
            self.cursor = next;
            Ok(false)
        } else if matches!(body, Body::Whole) {
            self.received.read_ahead.fill(&mut self.cursor, ring)
        } else {
            Ok(false)
        };
        let seen = match filled {
            Ok(true) => None,
            Ok(false) => match self.cursor.peek(ring) {
                Ok(Some(seen)) => Some(seen),
                Ok(None) => {
                    self.caught_up();
                    return Ok(Refill::Nothing);
                }
                Err(interrupted) => return Err(self.interrupted(interrupted)),
            },
            Err(interrupted) => return Err(self.interrupted(interrupted)),
        };
        if self.backoff.is_idle() {
            self.backoff.found();
        }
        if let Some(seen) = seen {
            if self.is_mine(seen.tag, Some(&seen))? {
                self.take(seen, body)?;
                return Ok(Refill::Message);
            }
            self.cursor.advance(&seen);
        }
        self.count_position();
        Ok(Refill::Again)
    }

    /// What stands at the cursor and may be anything, for a mutant.
    fn unvalidated(&self) -> Option<Seen> {
        let Cursor { position, sequence } = self.cursor;
        let word = ring_of(&self.subscribing.ring).word(position).load(Ordering::Relaxed);
        (word != 0).then(|| Seen { position, sequence, tag: tag_of(word), length: length_of(word) })
    }

    /// Copies a record out of the ring by itself, or leaves it there, and goes behind it.
    fn take(&mut self, seen: Seen, body: Body) -> Result<(), ReceiveError> {
        let ring = ring_of(&self.subscribing.ring);
        let scratch = self.received.read_ahead.set(&seen);
        let copied = match body {
            Body::Whole => self.cursor.copy(ring, &seen, scratch),
            Body::InPlace if is_told_by_tag(&seen) => Ok(()),
            Body::InPlace => self.cursor.copy_front(ring, &seen, MAX_EXTENSIONS_BYTES, scratch),
        };
        if let Err(interrupted) = copied {
            return Err(self.interrupted(interrupted));
        }
        self.received.in_place = matches!(body, Body::InPlace);
        self.cursor.advance(&seen);
        self.counts.received += 1;
        // A copy no longer needs the ring; what is read in place is counted with the next call.
        if matches!(body, Body::Whole) {
            self.count_position();
        }
        Ok(())
    }

    /// Whether a message with this tag is for this subscriber: the one that the read-ahead has handed out
    /// last, or the one `in_ring`, before the cursor.
    ///
    /// Only behind the validation: bytes of a payload, taken for a topic id, must not get into the
    /// cache.
    #[inline(always)]
    fn is_mine(&mut self, tag: u32, in_ring: Option<&Seen>) -> Result<bool, ReceiveError> {
        let tag = Tag::from_raw(tag);
        match self.interest.answer(tag.topic(), tag.is_to_descendants()) {
            Some(mine) => Ok(mine),
            None => self.decide(in_ring),
        }
    }

    /// As [`Self::is_mine`], where the cache does not tell. A message that makes no sense is passed over
    /// with the error.
    #[cold]
    fn decide(&mut self, in_ring: Option<&Seen>) -> Result<bool, ReceiveError> {
        let seen = in_ring.copied().unwrap_or_else(|| self.received.read_ahead.last());
        let answer = match Tag::from_raw(seen.tag).topic() {
            TopicId::INLINE => self.decide_inline(&seen, in_ring.is_some()),
            topic => self.decide_interned(topic, &seen),
        };
        answer.map_err(|interrupted| {
            if matches!(interrupted, Interrupted::Corrupt(_)) && in_ring.is_some() {
                self.cursor.advance(&seen);
            }
            self.interrupted(interrupted)
        })
    }

    fn decide_interned(&mut self, topic: TopicId, seen: &Seen) -> Result<bool, Interrupted> {
        let topic_cache = &mut self.received.topic_cache;
        topic_cache
            .sync(table_of(&self.subscribing.ring))
            .map_err(|error| corrupt_in(error.into(), seen))?;
        let to_descendants = Tag::from_raw(seen.tag).is_to_descendants();
        self.interest.fill(topic, to_descendants, topic_cache).ok_or_else(|| {
            corrupt_in(Corrupt { what: "topic id", value: seen.tag.into(), position: 0 }, seen)
        })
    }

    fn decide_inline(&mut self, seen: &Seen, in_ring: bool) -> Result<bool, Interrupted> {
        let read_ahead = &mut self.received.read_ahead;
        if in_ring {
            let ring = ring_of(&self.subscribing.ring);
            self.cursor.copy_front(ring, seen, MAX_EXTENSIONS_BYTES, read_ahead.set(seen))?;
        }
        let tag = Tag::from_raw(seen.tag);
        let front = read_ahead.body((seen.length as usize).min(MAX_EXTENSIONS_BYTES));
        let (extensions, _) = decode(tag, front).map_err(|error| corrupt_in(error.into(), seen))?;
        let topic = extensions.inline_topic.unwrap_or_default();
        Ok(self.interest.answer_inline(topic, tag.is_to_descendants()))
    }

    /// Touches what the first message would wait for: the names of topics, memory for messages, and the page that
    /// it comes from.
    #[cold]
    pub(in crate::bus) fn warm_up(&mut self) {
        // What is wrong with the table, the first message of a topic that is not known tells.
        let _ = self.received.topic_cache.sync(table_of(&self.subscribing.ring));
        self.received.topic_cache.reserve();
        self.received.read_ahead.reserve();
        black_box(self.is_drained());
    }

    /// Whether there is nothing to receive.
    pub(in crate::bus) fn is_drained(&self) -> bool {
        is_drained(&self.received.read_ahead, self.cursor, ring_of(&self.subscribing.ring))
    }

    /// All has been read.
    fn caught_up(&mut self) {
        if self.cursor.position != self.published {
            self.publish_position();
        } else {
            self.note_thread();
        }
    }

    /// Notes that the calling thread reads, for publishers that would wait for it.
    fn note_thread(&self) {
        if let Some(local) = &self.local {
            local.note_thread();
        }
    }

    #[cold]
    fn interrupted(&mut self, interrupted: Interrupted) -> ReceiveError {
        match interrupted {
            Interrupted::Corrupt(corrupt) => corrupt.into(),
            Interrupted::Lapped => {
                match self.cursor.resume(ring_of(&self.subscribing.ring), self.margin) {
                    Err(corrupt) => corrupt.into(),
                    Ok((lost_messages, lost_bytes)) => {
                        self.counts.lapses += 1;
                        self.counts.lost_messages += lost_messages;
                        self.publish_position();
                        ReceiveError::Lapped { lost_messages, lost_bytes }
                    }
                }
            }
        }
    }

    /// Writes position and counts to the slot, for publishers that wait for room.
    #[cold]
    fn publish_position(&mut self) {
        self.note_thread();
        let ring = ring_of(&self.subscribing.ring);
        let slot = self.claim.slot();
        let before = self.published;
        self.published = self.cursor.position;
        self.publish_at = self.cursor.position.saturating_add(ring.shape().block_bytes());
        if !self.claim.is_ours() {
            return;
        }
        slot.received.store(self.counts.received, Ordering::Relaxed);
        slot.lost_messages.store(self.counts.lost_messages, Ordering::Relaxed);
        slot.lapses.store(self.counts.lapses, Ordering::Relaxed);
        if let Some(local) = &self.local {
            local.note_position(self.cursor.position);
        }
        let waits = &ring.control.waits.0;
        let registered = waits::show(slot, self.cursor.position, waits, self.served_waits);
        // A position that was lapped gated nobody, also where this reader itself had got further and has
        // lost nothing. Publishers that looked meanwhile do not know that they have to wait for it again.
        if !ring.is_intact(before) {
            slots::bump_version(self.subscribing.readers.control());
        }
        if let Some(registered) = registered {
            self.serve_waits(registered);
        }
    }

    /// Wakes a publisher that waits for room, if this reader is the last one that it waited for. Those
    /// before would wake it in vain.
    #[cold]
    fn serve_waits(&mut self, registered: Registered) {
        self.served_waits = registered.count;
        let control = self.subscribing.readers.control();
        let ring = ring_of(&self.subscribing.ring);
        if registered.raise_space(control, ring, self.subscribing.readers.used_slots()) {
            // One at a time: it passes the wake on when it has written.
            crash::point(CrashPoint::ReaderBeforeSpaceWake);
            futex::wake_one(&control.space.0);
        }
    }

    pub(in crate::bus) fn arm_descriptor(&mut self) {
        let eventcount = eventcount_of(&self.subscribing.ring, &self.subscribing.readers);
        if let Some(descriptor) = &mut self.descriptor {
            descriptor.arm(eventcount, &self.claim.slot().arms);
        }
    }

    /// Does what the strategy says after an empty look.
    pub(in crate::bus) fn wait(&mut self, deadline: Option<Instant>) -> Result<(), ReceiveError> {
        self.check_interruption()?;
        match self.backoff.empty(self.strategy, self.cursor.sequence) {
            Step::Pause(count) => pause(count),
            Step::Yield => std::thread::yield_now(),
            Step::Sleep => return self.sleep(deadline),
        }
        if self.backoff.is_check_due() { self.check_slowly() } else { Ok(()) }
    }

    #[cold]
    fn sleep(&mut self, deadline: Option<Instant>) -> Result<(), ReceiveError> {
        self.publish_position();
        let by_descriptor = self.sleeps_on_descriptor();
        let eventcount = eventcount_of(&self.subscribing.ring, &self.subscribing.readers);
        let waiter: &mut dyn Waiter = match &mut self.descriptor {
            Some(descriptor) if by_descriptor => descriptor,
            _ => &mut self.futex,
        };
        let slice = if self.backoff.sleeps() < SLEEPS_UNTIL_LONG { SLEEP } else { LONG_SLEEP };
        let slice = crash::longest_sleep(slice);
        let (read_ahead, cursor) = (&self.received.read_ahead, self.cursor);
        let ring = ring_of(&self.subscribing.ring);
        let slept = sleep_unless(waiter, eventcount, &self.claim.slot().arms, || {
            crash::point(CrashPoint::ReaderBeforeSleep);
            is_drained(read_ahead, cursor, ring).then(|| match deadline {
                None => slice,
                Some(deadline) => slice.min(deadline.saturating_duration_since(Instant::now())),
            })
        });
        let slept = match slept {
            Ok(slept) => slept,
            Err(source) => return Err(self.wait_failed(source)),
        };
        if slept {
            crash::point(CrashPoint::ReaderAwake);
            if self.backoff.sleeps() % SLEEPS_UNTIL_CHECK == SLEEPS_UNTIL_CHECK - 1 {
                self.check_slowly()?;
            }
        }
        self.backoff.start_over();
        Ok(())
    }

    /// Announces a sleep that somebody else sleeps, as [`Self::sleep`] does before its own: the value during
    /// which to sleep at the futex, or `None` if it must not sleep, because there is something to receive.
    #[cfg(feature = "proactor")]
    pub(in crate::bus) fn arm_wait(
        &mut self,
        by_descriptor: bool,
    ) -> Result<Option<u32>, ReceiveError> {
        self.publish_position();
        let eventcount = eventcount_of(&self.subscribing.ring, &self.subscribing.readers);
        let waiter: &mut dyn Waiter = match &mut self.descriptor {
            Some(descriptor) if by_descriptor => descriptor,
            _ => &mut self.futex,
        };
        let (read_ahead, cursor) = (&self.received.read_ahead, self.cursor);
        let ring = ring_of(&self.subscribing.ring);
        let mut drained = false;
        let armed = sleep_unless(waiter, eventcount, &self.claim.slot().arms, || {
            crash::point(CrashPoint::ReaderBeforeSleep);
            drained = is_drained(read_ahead, cursor, ring);
            // The sleep itself is not here.
            None
        });
        armed.map_err(|source| ReceiveError::Os { action: "announce a sleep", source })?;
        // Where the file was, there is nothing but zeros: the end of the stream, for ever.
        self.check_files()?;
        Ok(drained.then(|| self.futex.token()))
    }

    /// What it means that a wait has failed: the kernel does not wait at a word that has lost its file. It
    /// may have met that before anybody here did, so this looks at the ring first.
    #[cold]
    pub(in crate::bus) fn wait_failed(&self, source: io::Error) -> ReceiveError {
        black_box(self.is_drained());
        let failed = ReceiveError::Os { action: "wait for a message", source };
        self.check_files().err().unwrap_or(failed)
    }

    /// Whether blocking calls wait on the descriptor, which then is there, and not on the futex.
    pub(in crate::bus) fn sleeps_on_descriptor(&self) -> bool {
        self.subscribing.ring.header().settings.notify != NotifyKind::Futex
    }

    /// What is asked now and then: after a sleep, or when drained.
    pub(in crate::bus) fn check_slowly(&self) -> Result<(), ReceiveError> {
        self.stamp.check()?;
        self.check_files()?;
        check_whole([(self.subscribing.ring.is_foreign(), RING_REWRITTEN)], self.cursor.position)?;
        if self.subscribing.ring.is_unlinked() && self.is_drained() {
            return Err(ReceiveError::Unlinked);
        }
        Ok(())
    }

    pub(in crate::bus) fn check_files(&self) -> Result<(), ReceiveError> {
        let files = [
            (self.subscribing.ring.was_damaged(), RING_TRUNCATED),
            (self.subscribing.readers.was_damaged(), READERS_TRUNCATED),
        ];
        Ok(check_whole(files, self.cursor.position)?)
    }
}

/// What came of a look beyond the read-ahead.
enum Refill {
    /// The read-ahead has messages, or one that nobody wants was passed over.
    Again,
    /// A message was received.
    Message,
    /// There is none yet.
    Nothing,
}

/// How much of a message is copied.
#[derive(Clone, Copy)]
pub(in crate::bus) enum Body {
    Whole,
    /// Nothing, or as many bytes as extensions can have, if the tag does not tell how many those are.
    InPlace,
}

fn is_drained(read_ahead: &ReadAhead, cursor: Cursor, ring: Ring<'_>) -> bool {
    read_ahead.is_empty() && matches!(cursor.peek(ring), Ok(None))
}

#[inline]
fn pause(count: u32) {
    for _ in 0..count {
        crate::sync::pause();
    }
}

fn corrupt_in(corrupt: Corrupt, seen: &Seen) -> Interrupted {
    Interrupted::Corrupt(Corrupt { position: seen.position, ..corrupt })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::bus::BusConfig;
    use crate::ring::writer::header;
    use crate::settings::Policy;
    use crate::shm::testing::TempDir;
    use crate::topic::frame::Extensions;

    type Receive = fn(&mut Subscriber) -> Result<(), ReceiveError>;

    const FORMS: [Receive; 4] = [
        |subscriber| subscriber.receive().map(|_| ()),
        |subscriber| subscriber.try_receive().map(|_| ()),
        |subscriber| subscriber.receive_in_place().map(|_| ()),
        |subscriber| subscriber.borrow().map(|_| ()),
    ];

    /// A lapped subscriber stands on payload that looks like the header of a message. Asked about its topic, the
    /// subscriber would remember the answer, or call the message corrupt because nobody knows the topic.
    #[test]
    fn a_lapped_subscriber_does_not_ask_about_what_it_has_not_validated() {
        for receive in FORMS {
            for forged in [0, 2].map(|id| TopicId::new(id).unwrap()) {
                let root = TempDir::new();
                let config = BusConfig::new().directory(root.path()).capacity(64 << 10);
                let bus = config.policy(Policy::Overwrite).open("b").unwrap();
                let (wanted, other) =
                    (bus.publisher("wanted").unwrap(), bus.publisher("other").unwrap());
                let mut subscriber = bus.subscribe("wanted").unwrap();
                let tag = Tag::message(forged, false, &Extensions::default()).raw();
                let payload = header(16, tag).to_ne_bytes().repeat(125);
                for _ in 0..70 {
                    other.publish(&payload).unwrap();
                }
                let stands_on = subscriber.unvalidated().map(|seen| seen.tag);
                assert_eq!(stands_on, Some(tag), "on payload");

                let told = receive(&mut subscriber);
                assert!(matches!(told, Err(ReceiveError::Lapped { .. })), "{told:?}");
                assert_eq!(subscriber.interest.answer(forged, false), None);
                wanted.publish(b"wanted").unwrap();
                assert_eq!(subscriber.receive().unwrap().payload(), b"wanted");
            }
        }
    }
}
