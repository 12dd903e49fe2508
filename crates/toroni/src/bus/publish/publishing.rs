//! What a publish does, step by step.
//!
//! 1. [`Publisher`](crate::Publisher) checks the length and frames the message: tag and extensions.
//! 2. `Participant::try_appender` takes the writer lock and reads the end of the stream. If that is not
//!    enough, `hold_after` continues: it waits for the lock, and recovers if a previous owner died.
//! 3. If the record reaches beyond what is reserved, [`Backpressure::make_space`] reserves more, after it has
//!    waited for slow subscribers as the policy says.
//! 4. The appender writes and commits the record (`ring/writer.rs`).
//! 5. `Participant::end_call` gives the lock back, unless the publisher is exclusive.
//! 6. [`Wake::sleepers`] wakes the subscribers that sleep, if there are any.
//!
//! Steps 2 to 6 are [`Publishing::publish`] for one commit, [`Publishing::burst`] for many under one lock.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::backpressure::Backpressure;
use super::commit::Commit;
use super::participant::{CallEnd, Held, Participant};
use super::retained::check_room;
use super::terms::Terms;
use super::topics::{TableShare, Topics};
use super::wake::{Wake, audience_of};
use crate::bus::views::values_of;
use crate::error::{PublishError, PublisherError};
use crate::hook::{self, CrashPoint};
use crate::notify::Audience;
use crate::ring::slots::Identity;
use crate::ring::writer::{Appender, Record};
use crate::settings::{LockKind, Policy};
use crate::shm::directory::BusDirectory;
use crate::shm::lock::Acquired;
use crate::shm::mapping::{MapOptions, Protection};
use crate::shm::segment::RingSegment;
use crate::sync::membarrier;
use crate::topic::{Topic, frame::TopicId};

/// What all publishers of one opened bus share.
pub(in crate::bus) struct Publishing {
    pub(super) participant: Participant,
    pub(super) backpressure: Backpressure,
    wake: Wake,
    topics: Topics,
}

/// Wakes subscribers when dropped.
pub(super) struct WakeOnDrop<'a> {
    publishing: &'a Publishing,
    keeps_lock: bool,
    /// Whom the records are for that were written.
    pub(super) audience: Audience,
}

impl<'a> WakeOnDrop<'a> {
    #[inline]
    pub(super) fn new(publishing: &'a Publishing, keeps_lock: bool, audience: Audience) -> Self {
        Self { publishing, keeps_lock, audience }
    }
}

impl Drop for WakeOnDrop<'_> {
    #[inline]
    fn drop(&mut self) {
        let audience = || self.audience;
        self.publishing.wake.sleepers(&self.publishing.participant, self.keeps_lock, audience);
    }
}

impl Publishing {
    pub(in crate::bus) fn open(
        directory: &BusDirectory,
        options: &MapOptions,
        identity: &Identity,
    ) -> Result<Self, PublisherError> {
        let ring = RingSegment::open(directory, Protection::Write, options)?;
        let header = ring.header();
        header.check_may_publish(directory.path())?;
        if header.settings.lock == LockKind::Robust {
            header.check_robust(directory.path())?;
        }
        header.check_network(directory.path())?;
        let wake = Wake::open(directory, header)?;
        Ok(Self {
            participant: Participant::open(directory, ring, identity)?,
            backpressure: Backpressure::default(),
            wake,
            topics: Topics::default(),
        })
    }

    pub(super) fn bus_policy(&self) -> Policy {
        self.participant.policy
    }

    pub(super) fn lock_kind(&self) -> LockKind {
        self.participant.ring.header().settings.lock
    }

    pub(super) fn largest_record(&self) -> u64 {
        self.participant.ring.shape().largest_record()
    }

    /// Publishes what one commit makes visible. The caller has checked its length.
    ///
    /// The slow path is a function of its own, so that the fast path keeps the appender in registers.
    #[inline(always)]
    pub(super) fn publish<C: Commit>(
        &self,
        commit: C,
        terms: &Terms,
    ) -> Result<C::Result, PublishError> {
        self.participant.check_fork()?;
        match self.participant.try_appender(commit.bytes(), commit.tag(), terms) {
            Ok(appender) => {
                let end = CallEnd { waited: false, keeps_lock: terms.keeps_lock };
                self.write_and_wake(appender, end, commit)
            }
            Err(acquired) => self.publish_otherwise(acquired, commit, terms),
        }
    }

    /// As [`Self::publish`], for a topic that the caller has declared retained.
    #[inline]
    pub(super) fn publish_declared<C: Commit>(
        &self,
        commit: C,
        terms: &Terms,
    ) -> Result<C::Result, PublishError> {
        self.participant.check_fork()?;
        let terms = Terms { needs_room: true, ..*terms };
        self.publish_otherwise(self.participant.try_lock(&terms), commit, &terms)
    }

    /// Continues [`Self::publish`] for topics that may be retained, and for all that takes longer.
    #[cold]
    fn publish_otherwise<C: Commit>(
        &self,
        acquired: Option<Acquired>,
        commit: C,
        terms: &Terms,
    ) -> Result<C::Result, PublishError> {
        match self.participant.resume(acquired, commit.bytes()) {
            Some(appender) if appender.may_retain(commit.tag()) => {
                let end = CallEnd { waited: false, keeps_lock: terms.keeps_lock };
                self.publish_value(appender, end, commit, terms.needs_room)
            }
            _ => self.publish_slowly(acquired, commit, terms),
        }
    }

    #[cold]
    fn publish_slowly<C: Commit>(
        &self,
        acquired: Option<Acquired>,
        commit: C,
        terms: &Terms,
    ) -> Result<C::Result, PublishError> {
        let mut held = self.participant.hold_after(acquired, terms)?;
        if !held.appender.fits(commit.bytes()) {
            held = self.make_space(held, commit.bytes(), terms)?;
        }
        let Held { lock, appender } = held;
        let end = lock.defer();
        if appender.may_retain(commit.tag()) {
            return self.publish_value(appender, end, commit, terms.needs_room);
        }
        self.write_and_wake(appender, end, commit)
    }

    #[inline(always)]
    pub(super) fn write_and_wake<C: Commit, const VALUES: bool>(
        &self,
        mut appender: Appender<'_, VALUES>,
        end: CallEnd,
        commit: C,
    ) -> Result<C::Result, PublishError> {
        let (messages, bytes, tag) = (commit.messages(), commit.bytes(), commit.tag());
        let result = commit.write(&mut appender, &self.participant, end)?;
        self.participant.count(messages, bytes);
        self.participant.end_call(end);
        self.wake.sleepers(&self.participant, end.keeps_lock, move || audience_of(tag));
        Ok(result)
    }

    /// Publishes records with a commit each, and holds the lock as long as they fit. An error comes with the
    /// number of records that were published.
    #[inline]
    pub(super) fn burst(
        &self,
        tag: u32,
        extensions: &[u8],
        payloads: &[&[u8]],
        terms: &Terms,
    ) -> Result<(), (usize, PublishError)> {
        let participant = &self.participant;
        participant.check_fork().map_err(|error| (0, error))?;
        // Dropped after the unlock, also on an error: what is committed by then must not wait for the next
        // message.
        let _wake = WakeOnDrop::new(self, terms.keeps_lock, audience_of(tag));
        let mut held = participant.hold(terms).map_err(|error| (0, error))?;
        let mut counted = held.end();
        let mut published = 0;
        while let Some(&payload) = payloads.get(published) {
            if terms.keeps_lock && !participant.has_kept_lock() {
                // Another publisher has taken over, and waits a moment before it writes.
                participant.count_since(&held, counted);
                return Err((published, PublishError::LeaseLost));
            }
            if extensions.is_empty() && !held.appender.may_retain(tag) {
                let count = held.appender.write_in_block(tag, &payloads[published..]);
                if count > 0 {
                    published = count.saturating_add(published);
                    continue;
                }
            }
            // At the end of a block, or of the free space.
            let record = Record { tag, extensions, payload };
            let bytes = record.bytes();
            if !held.appender.fits(bytes) {
                participant.count_since(&held, counted);
                held = match self.make_space(held, bytes, terms) {
                    Ok(held) => held,
                    Err(error) => return Err((published, error)),
                };
                counted = held.end();
            }
            // Another publisher may have declared the topic while this one waited for space.
            if held.appender.may_retain(tag) {
                let values = values_of(&participant.ring);
                if terms.needs_room
                    && let Some(values) = values
                    && let Err(error) = check_room(values, tag, bytes)
                {
                    participant.count_since(&held, counted);
                    return Err((published, error));
                }
                held.appender.append_with_values(values, |appender| appender.write(record));
            } else {
                held.appender.write(record);
            }
            hook::point(CrashPoint::MidBurst);
            published = published.saturating_add(1);
        }
        participant.count_since(&held, counted);
        Ok(())
    }

    #[cold]
    pub(super) fn make_space<'a>(
        &'a self,
        held: Held<'a>,
        bytes: u64,
        terms: &Terms,
    ) -> Result<Held<'a>, PublishError> {
        self.backpressure.make_space(&self.participant, &self.wake, held, bytes, terms)
    }

    /// Sets whether the exclusive publisher may leave out its fence while no subscriber sleeps. It stays allowed only
    /// if the kernel registers this process.
    pub(super) fn allow_no_fence(&self, allowed: bool) {
        let participant = &self.participant;
        // The mark in the ring is the parent's.
        if participant.check_fork().is_err() {
            return;
        }
        let allowed = allowed && membarrier::register().is_ok();
        participant.adaptive_fence.allow(allowed);
        if !allowed {
            self.wake.sleepers_with_fence(participant);
        }
    }

    /// Gives back the lock that an exclusive publisher has kept.
    pub(super) fn end_exclusive(&self) {
        if self.participant.check_fork().is_ok() && !hook::is_dead() {
            self.wake.sleepers_with_fence(&self.participant);
        }
        self.participant.give_up_lock();
    }

    /// Returns the id of a topic; see [`Topics::enter`].
    pub(super) fn enter(
        &self,
        topic: &Topic,
        share: TableShare,
        terms: &Terms,
    ) -> Result<Option<TopicId>, PublishError> {
        self.topics.enter(&self.participant, topic, share, terms)
    }

    /// Returns the id of a topic; see [`Topics::intern`].
    pub(super) fn intern(
        &self,
        topic: &Topic,
        share: TableShare,
        terms: &Terms,
    ) -> Result<Option<TopicId>, PublishError> {
        self.topics.intern(&self.participant, topic, share, terms)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use crate::bus::{BusConfig, Limit};
    use crate::error::PublishError;
    use crate::hook::{CrashPoint, rehearsal};
    use crate::shm::testing::TempDir;
    use crate::sync::Ordering;
    use std::os::unix::fs::FileExt;

    /// A bus that a later release created.
    #[test]
    fn who_does_not_know_a_feature_that_publishers_must_know_only_subscribes() {
        let root = TempDir::new();
        let config = BusConfig::new().directory(root.path());
        let bus = config.create("b").unwrap();
        let publisher = bus.publisher("a").unwrap();
        let mut header = bus.subscribe("**").unwrap().claim.subscribing.ring.header().clone();
        header.must_write = 2;
        let file = std::fs::File::options().write(true).open(root.path().join("b/ring")).unwrap();
        file.write_all_at(&header.encode(), 0).unwrap();
        let later = config.open("b").unwrap();
        let mut subscriber = later.subscribe("a").unwrap();
        let refused = later.publisher("a").unwrap_err();
        assert!(refused.to_string().contains("(bits 0x2)"), "{refused}");
        publisher.publish("x").unwrap();
        assert_eq!(subscriber.receive().unwrap().payload(), b"x");
    }

    /// After a reboot, the first process checks the bus, and empties it if it was not closed.
    #[test]
    fn who_does_not_know_a_feature_that_publishers_must_know_empties_nothing_after_a_reboot() {
        let root = TempDir::below("/var/tmp");
        let config = BusConfig::new().directory(root.path());
        let bus = config.create("b").unwrap();
        bus.publisher("a").unwrap().publish("x").unwrap();
        let mut header = bus.subscribe("**").unwrap().claim.subscribing.ring.header().clone();
        drop(bus);
        (header.must_write, header.kernel_context.boot_id) = (2, [7; 16]);
        let file = std::fs::File::options().write(true).open(root.path().join("b/ring")).unwrap();
        file.write_all_at(&header.encode(), 0).unwrap();
        let before = std::fs::read(root.path().join("b/ring")).unwrap();
        match config.open("b") {
            Err(refused) => assert!(refused.to_string().contains("(bits 0x2)"), "{refused}"),
            Ok(_) => return eprintln!("skipped: /var/tmp is in memory"),
        }
        assert!(std::fs::read(root.path().join("b/ring")).unwrap() == before);
    }

    /// Another publisher takes over after the tenth message. Messages without extensions are checked once a block: of 64
    /// words of payload and as many headers, the last has no room for the end of the stream.
    #[test]
    fn a_burst_of_an_exclusive_publisher_ends_where_another_one_takes_over() {
        for (timestamps, expected) in [(false, 63), (true, 10)] {
            let root = TempDir::new();
            let config = BusConfig::new().directory(root.path()).capacity(64 << 10);
            let bus = config.timestamps(timestamps).create("b").unwrap();
            let exclusive = bus.exclusive().unwrap();
            let topic = exclusive.topic("a").unwrap();
            let publishing = bus.publishing().unwrap();
            let (_, burst) = rehearsal::act(
                move |reached| {
                    let written = reached.iter().filter(|step| **step == CrashPoint::MidBurst);
                    if reached.last() == Some(&CrashPoint::MidBurst) && written.count() == 10 {
                        let lock = &publishing.participant.ring.control().commit.0.lock;
                        // Slot 1 of another process.
                        lock.store(2 << 18 | 1, Ordering::Relaxed);
                    }
                    false
                },
                || exclusive.burst(&topic, &[[7; 8]; 200], Limit::Policy),
            );
            let error = burst.unwrap().unwrap_err();
            assert!(matches!(error.source, PublishError::LeaseLost), "{error:?}");
            assert_eq!(error.published, expected, "timestamps: {timestamps}");
            let again = exclusive.burst(&topic, &[[7; 8]; 200], Limit::Policy).unwrap_err();
            assert!(matches!(again.source, PublishError::LeaseLost) && again.published == 0);
            let stats = bus.stats().unwrap();
            let counted = stats.publishers.unwrap()[0].messages;
            assert_eq!((stats.sequence, counted), (expected as u64, expected as u64));
            // It gives back nothing that is another's.
            drop((topic, exclusive));
            assert!(bus.stats().unwrap().lock_owner.is_some());
        }
    }
}
