//! What a receive does, step by step.
//!
//! 1. It hands out the next message of the read-ahead that is for this subscriber: small records that were
//!    copied and validated together ([`Reading::next_of_read_ahead`]). Most calls end here.
//! 2. If the read-ahead is empty, it fills it from the ring ([`Reading::fill_read_ahead`]). If the next
//!    record is long, or messages are wanted in place, it reads only that record's header
//!    ([`Cursor::peek`](crate::ring::reader::Cursor::peek)). Both validate what they read before they trust it.
//! 3. It decides whether the long record is for this subscriber, as step 1 does for small ones: the interest
//!    remembers the answer for each topic ([`Reading::is_mine`]). Other records are passed over.
//! 4. It copies the long record and validates it again, or leaves it in place ([`Reading::copy`]).
//! 5. Once a block, and when it has read all, it publishes its position, and wakes a publisher that waits
//!    for that ([`Progress`](super::progress::Progress)). Records in the read-ahead count as read.
//! 6. If there is no message, a blocking call waits ([`Subscriber::wait`]), and starts over: it polls, yields
//!    or sleeps ([`Waiting`](super::waiting::Waiting)).
//!
//! If a writer has overtaken the subscriber, step 2 or 4 finds out. The subscriber then moves to the oldest
//! message that it can still read, and the call returns [`ReceiveError::Lapped`] with the exact loss. If nothing was for it
//! since, it continues at the end of the stream, and there is no loss (`passing.rs`).
//!
//! A record may also be a loss on the way to this bus. The interest has no answer for it, so step 1 or 3 decodes
//! it (`Reading::decide`). If it concerns the subscriber, the call returns [`ReceiveError::Lost`].

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::backoff::{Step, WaitStrategy};
use super::message::Message;
use super::passing::READ_BEFORE_LOOK;
#[cfg(doc)]
use super::reading::Reading;
use super::reading::{Body, Halted};
use super::subscriber::Subscriber;
use super::waiting::SLEEPS_UNTIL_CHECK;
use crate::bus::clock;
use crate::bus::views::{READERS_TRUNCATED, RING_REWRITTEN, RING_TRUNCATED, check_whole, ring_of};
use crate::error::{Corrupt, ReceiveError};
use crate::hook::{self, CrashPoint};
use crate::ring::reader::{Interrupted, Seen};
use std::hint::black_box;
use std::io;
use std::time::Instant;

impl Subscriber {
    /// Like [`Self::next`], but only for a message of the read-ahead that has the topic and size of the last
    /// one. This common case is short enough to be inlined into the caller's loop. False does not mean that
    /// there is no message.
    #[inline(always)]
    pub(super) fn next_wanted(&mut self) -> bool {
        let wanted = self.stamp.check().is_ok() && self.reading.received.read_ahead.next_wanted();
        self.progress.counts.add_received(u64::from(wanted));
        wanted
    }

    /// Receives the next message that is for this subscriber, for [`Self::last`]. Returns false if there is
    /// none yet.
    pub(in crate::bus) fn next(&mut self, body: Body) -> Result<bool, ReceiveError> {
        self.stamp.check()?;
        if !self.reading.values.is_empty() {
            return self.next_value_or(body);
        }
        let began = self.reading.cursor.position;
        loop {
            match self.reading.next_of_read_ahead(&self.claim.subscribing.ring) {
                Ok(true) => {
                    self.progress.counts.add_received(1);
                    self.found();
                    return Ok(true);
                }
                Ok(false) => {}
                Err(halted) => self.halted(halted)?,
            }
            if let Some(found) = self.refill(body)? {
                if found {
                    self.found();
                }
                return Ok(found);
            }
            let passed = self.reading.cursor.position.wrapping_sub(began);
            if passed >= READ_BEFORE_LOOK && self.pass_over_or_end(began) {
                return Ok(false);
            }
        }
    }

    /// Ends the wait for something that is for this subscriber. What is for others does not: a subscriber that was woken for
    /// nothing, or rechecks, sleeps again without polling.
    #[inline]
    fn found(&mut self) {
        if self.waiting.backoff.is_idle() {
            self.waiting.backoff.found();
        }
    }

    /// Passes over what is there if it can, in a call that `began` at this position. Returns whether the call ends, after a whole
    /// ring of messages for others: the caller may have a deadline. A lap takes no time, and does not count.
    #[cold]
    fn pass_over_or_end(&mut self, began: u64) -> bool {
        self.pass_over_if_due();
        let began = began.max(self.passing.lapped_until);
        let passed = self.reading.cursor.position.saturating_sub(began);
        passed > self.claim.subscribing.ring.shape().capacity()
    }

    /// Fills the read-ahead, or takes a record that does not go through it. Returns whether a message was
    /// received; `None` if the read-ahead has messages, or a message for others was passed over.
    fn refill(&mut self, body: Body) -> Result<Option<bool>, ReceiveError> {
        let segment = &self.claim.subscribing.ring;
        let seen = match self.reading.fill_read_ahead(segment, body) {
            Ok(true) => None,
            Ok(false) => match self.reading.cursor.peek(ring_of(segment)) {
                Ok(Some(seen)) => Some(seen),
                Ok(None) => {
                    self.progress.caught_up(&self.claim, self.reading.cursor);
                    return Ok(Some(false));
                }
                Err(interrupted) => return self.halted(interrupted.into()).map(|()| None),
            },
            Err(halted) => return self.halted(halted).map(|()| None),
        };
        if let Some(seen) = seen {
            match self.reading.is_mine(segment, seen.tag, Some(&seen)) {
                Ok(true) if !self.reading.passes_over_kind(seen.tag) => {
                    return self.take(seen, body);
                }
                Ok(_) => self.reading.cursor.advance(&seen),
                Err(halted) => return self.halted(halted).map(|()| None),
            }
        }
        self.publish_position_if_due();
        Ok(None)
    }

    /// Copies a record out of the ring, or leaves it there, and goes past it. Returns what [`Self::refill`] does.
    fn take(&mut self, seen: Seen, body: Body) -> Result<Option<bool>, ReceiveError> {
        if let Err(interrupted) = self.reading.copy(&self.claim.subscribing.ring, &seen, body) {
            return self.halted(interrupted.into()).map(|()| None);
        }
        self.reading.cursor.advance(&seen);
        self.progress.counts.add_received(1);
        // A copy no longer needs the ring. If the message is read in place, the next call publishes the position.
        if matches!(body, Body::Whole) {
            self.publish_position_if_due();
        }
        Ok(Some(true))
    }

    /// As [`Self::next`]. If there is no message and the subscriber has a descriptor, arms the descriptor and
    /// checks once more.
    pub(in crate::bus) fn try_next(&mut self, body: Body) -> Result<bool, ReceiveError> {
        if self.next(body)? {
            return Ok(true);
        }
        self.drained(body)
    }

    #[cold]
    fn drained(&mut self, body: Body) -> Result<bool, ReceiveError> {
        if self.waiting.descriptor.is_none() {
            // If the file was truncated, this process reads zeros, which look like the end of the stream.
            self.check_files()?;
            let sequence = self.reading.cursor.sequence;
            if let Step::Pause(count) = self.waiting.backoff.empty(WaitStrategy::Spin, sequence) {
                pause(count);
            }
            self.check_bus_if_due()?;
            return Ok(false);
        }
        self.publish_position();
        self.column.extend(&self.claim, &mut self.reading);
        self.waiting.arm_descriptor(&self.claim);
        hook::point(CrashPoint::ReaderBeforeSleep);
        self.waiting.backoff.start_over();
        let found = self.next(body)?;
        if !found {
            self.check_slowly()?;
            // `next` stopped after a whole ring of messages for others. There is more, and no publisher will wake
            // this subscriber for it.
            if !self.is_drained()
                && let Some(descriptor) = &self.waiting.descriptor
            {
                descriptor.nudge();
            }
        }
        Ok(found)
    }

    /// Returns the message that was received last.
    #[inline]
    pub(in crate::bus) fn last(&self) -> Message<'_> {
        Message::new(&self.reading.received)
    }

    /// Returns whether there is nothing to receive.
    pub(in crate::bus) fn is_drained(&self) -> bool {
        self.reading.is_drained(&self.claim.subscribing.ring)
    }

    /// Publishes the position, once a block.
    #[inline]
    pub(super) fn publish_position_if_due(&mut self) {
        self.progress.publish_if_due(&self.claim, &self.reading.cursor);
    }

    pub(super) fn publish_position(&mut self) {
        self.progress.publish(&self.claim, self.reading.cursor);
    }

    /// Returns what ends the call, unless the subscriber was lapped and has missed nothing that is for it.
    #[cold]
    fn halted(&mut self, halted: Halted) -> Result<(), ReceiveError> {
        if matches!(halted, Halted::Interrupted(Interrupted::Lapped)) && self.pass_over_lap() {
            return Ok(());
        }
        self.found();
        let began = self.reading.cursor.sequence;
        let resumed = match halted {
            Halted::Lost(lost) => {
                self.progress.counts.add_loss(&lost);
                // Losses are rare, and an observer is to see what the caller sees.
                self.publish_position();
                return Err(ReceiveError::Lost(lost));
            }
            Halted::Interrupted(Interrupted::Corrupt(corrupt)) => Err(corrupt),
            Halted::Interrupted(Interrupted::Lapped) => {
                self.reading.resume(&self.claim.subscribing.ring)
            }
        };
        Err(match resumed {
            Err(corrupt) => corrupt.into(),
            Ok((lost_messages, lost_bytes)) => {
                self.progress.lapsed(&self.claim, self.reading.cursor, lost_messages);
                self.reading.gather_values(&self.claim.subscribing.ring, Some(began));
                ReceiveError::Lapped { lost_messages, lost_bytes }
            }
        })
    }

    /// Waits after a check that found nothing, as the wait strategy says.
    pub(super) fn wait(&mut self, deadline: Option<Instant>) -> Result<(), ReceiveError> {
        self.waiting.check_interruption()?;
        let (strategy, sequence) = (self.waiting.strategy, self.reading.cursor.sequence);
        match self.waiting.backoff.empty(strategy, sequence) {
            Step::Pause(count) => pause(count),
            Step::Yield => std::thread::yield_now(),
            Step::Sleep => return self.sleep(deadline),
        }
        self.check_bus_if_due()
    }

    /// Checks whether the bus still exists, if it is time, for a subscriber that polls.
    #[inline]
    fn check_bus_if_due(&mut self) -> Result<(), ReceiveError> {
        if let Some(now) = self.waiting.backoff.due_bus_check(clock::monotonic_ns) {
            self.check_slowly()?;
            self.waiting.backoff.checked_bus(now);
        }
        Ok(())
    }

    #[cold]
    fn sleep(&mut self, deadline: Option<Instant>) -> Result<(), ReceiveError> {
        self.publish_position();
        self.column.extend(&self.claim, &mut self.reading);
        let (claim, reading) = (&self.claim, &self.reading);
        let is_drained = || reading.is_drained(&claim.subscribing.ring);
        let slept = match self.waiting.sleep(claim, deadline, is_drained) {
            Ok(slept) => slept,
            Err(source) => return Err(self.wait_failed(source)),
        };
        if slept {
            hook::point(CrashPoint::ReaderAwake);
            if self.waiting.backoff.sleeps() % SLEEPS_UNTIL_CHECK == SLEEPS_UNTIL_CHECK - 1 {
                self.check_slowly()?;
            }
        }
        self.waiting.backoff.start_over();
        Ok(())
    }

    /// Arms a wait that a proactor does; see [`Waiting::arm`](super::waiting::Waiting::arm).
    #[cfg(feature = "proactor")]
    pub(in crate::bus) fn arm_wait(
        &mut self,
        by_descriptor: bool,
    ) -> Result<Option<u32>, ReceiveError> {
        self.publish_position();
        self.column.extend(&self.claim, &mut self.reading);
        let (claim, reading) = (&self.claim, &self.reading);
        let is_drained = || reading.is_drained(&claim.subscribing.ring);
        let token = self.waiting.arm(claim, by_descriptor, is_drained);
        let token = token.map_err(|source| ReceiveError::Os {
            action: "prepare to wait for a message",
            source,
        })?;
        // If the file was truncated, this process reads zeros, which look like the end of the stream.
        self.check_files()?;
        Ok(token)
    }

    /// Returns whether blocking calls wait on the descriptor.
    #[cfg(feature = "proactor")]
    pub(in crate::bus) fn sleeps_on_descriptor(&self) -> bool {
        self.waiting.by_descriptor
    }

    /// Returns the error of a wait that failed. The kernel refuses to wait on a word whose file was truncated,
    /// and may notice that before this process does, so this reads the ring first.
    #[cold]
    pub(in crate::bus) fn wait_failed(&self, source: io::Error) -> ReceiveError {
        black_box(self.is_drained());
        let failed = ReceiveError::Os { action: "wait for a message", source };
        self.check_files().err().unwrap_or(failed)
    }

    /// Returns an error if an interrupter has asked for the end of the call.
    #[inline]
    pub(in crate::bus) fn check_interruption(&self) -> Result<(), ReceiveError> {
        self.waiting.check_interruption()
    }

    /// Checks what takes system calls: now and then after a sleep, or when drained.
    pub(in crate::bus) fn check_slowly(&self) -> Result<(), ReceiveError> {
        self.stamp.check()?;
        self.check_files()?;
        let ring = &self.claim.subscribing.ring;
        check_whole([(ring.is_foreign(), RING_REWRITTEN)], self.reading.cursor.position)?;
        if ring.is_unlinked() && self.is_drained() {
            return Err(ReceiveError::Unlinked);
        }
        Ok(())
    }

    pub(in crate::bus) fn check_files(&self) -> Result<(), ReceiveError> {
        Ok(self.check_whole()?)
    }

    /// Checks that the files were not truncated.
    pub(super) fn check_whole(&self) -> Result<(), Corrupt> {
        let subscribing = &self.claim.subscribing;
        let files = [
            (subscribing.ring.was_damaged(), RING_TRUNCATED),
            (subscribing.readers.was_damaged(), READERS_TRUNCATED),
        ];
        check_whole(files, self.reading.cursor.position)
    }
}

#[inline]
fn pause(count: u32) {
    for _ in 0..count {
        crate::sync::pause();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::bus::BusConfig;
    use crate::ring::writer::header;
    use crate::settings::Policy;
    use crate::shm::testing::TempDir;
    use crate::topic::frame::{Extensions, Tag, TopicId};

    type Receive = fn(&mut Subscriber) -> Result<(), ReceiveError>;

    const FORMS: [Receive; 4] = [
        |subscriber| subscriber.receive().map(|_| ()),
        |subscriber| subscriber.try_receive().map(|_| ()),
        |subscriber| subscriber.receive_in_place().map(|_| ()),
        |subscriber| subscriber.borrow().map(|_| ()),
    ];

    /// A lapped subscriber stands on payload that looks like the header of a message. If it asked about
    /// the topic, it would remember the answer, or call the message corrupt because the topic is unknown.
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
                // Otherwise it would have lost nothing.
                wanted.publish(b"which is lost").unwrap();
                for _ in 0..70 {
                    other.publish(&payload).unwrap();
                }
                let stands_on = subscriber
                    .reading
                    .unvalidated(&subscriber.claim.subscribing.ring)
                    .map(|seen| seen.tag);
                assert_eq!(stands_on, Some(tag), "on payload");

                let told = receive(&mut subscriber);
                assert!(matches!(told, Err(ReceiveError::Lapped { .. })), "{told:?}");
                let tag = Tag::message(forged, false, &Extensions::default());
                // It may have looked at the topics that are there.
                let answer = subscriber.reading.interest.answer(tag);
                assert_eq!(answer, (forged.index() == 0).then_some(true));
                wanted.publish(b"wanted").unwrap();
                assert_eq!(subscriber.receive().unwrap().payload(), b"wanted");
            }
        }
    }
}
