//! Which topics a subscriber wants nothing of, as publishers read it before they wake a sleeper: its column of the rows in
//! `readers` (`notify/rows.rs`).
//!
//! Before the subscriber sleeps, it brings the column up to date with the topics that are new. A topic that it has not looked
//! at yet counts as wanted, and so do all topics of a new owner of the slot, which begins with zeros.
//! The column also lists the topics that may be for the subscriber. By that list it passes over the others (`passing.rs`).

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::claim::ReaderClaim;
use super::reading::Reading;
use crate::bus::views::{rows_of, table_of};
use crate::hook::{self, CrashPoint, mutant};
use crate::sync::Ordering;

/// A subscriber that wants more topics reads all messages: it would take as long to ask for each whether there are any.
pub(super) const MOST_WANTED: usize = 1024;

/// How far the column of a subscriber goes.
#[derive(Debug, Default)]
pub(super) struct Column {
    /// The topics that were looked at.
    topics: usize,
    /// Those of them on which a message may be for the subscriber, as far as there are not more than [`MOST_WANTED`].
    wanted: Vec<u32>,
}

impl Column {
    /// Looks at the topics that are new.
    #[inline]
    pub(super) fn extend(&mut self, claim: &ReaderClaim, reading: &mut Reading) {
        let ring = &claim.subscribing.ring;
        // TOPIC. Usually nothing is new.
        let count = table_of(ring).count.load(Ordering::Acquire) as usize;
        if count > self.topics {
            self.look(claim, reading, self.topics);
        }
    }

    /// Looks again at all topics: the subscriber wants more.
    #[cold]
    pub(super) fn look_again(&mut self, claim: &ReaderClaim, reading: &mut Reading) {
        if self.topics > 0 && !mutant("column_kept_with_a_new_pattern") {
            self.look(claim, reading, 0);
        }
    }

    /// Returns the topics on which a message may be for the subscriber, if it has looked at the first `count`, and they are not
    /// more than [`MOST_WANTED`].
    pub(super) fn wanted(&self, count: usize) -> Option<&[u32]> {
        let is_known = self.topics > 0 && self.topics >= count;
        (is_known && self.wanted.len() <= MOST_WANTED).then_some(&self.wanted)
    }

    /// Returns whether it wants more than half of the topics.
    pub(super) fn wants_most(&self) -> bool {
        self.wanted.len() > self.topics / 2
    }

    #[cold]
    fn look(&mut self, claim: &ReaderClaim, reading: &mut Reading, from: usize) {
        // The slot may be another subscriber's by now.
        if !claim.is_ours() {
            if !mutant("list_kept_without_a_slot") {
                (self.topics, self.wanted) = (0, Vec::new());
            }
            return;
        }
        let rows = rows_of(&claim.subscribing.readers);
        // A damaged table reports the first message of an unknown topic. Until then all are wanted.
        let is_known = reading.sync_topics(&claim.subscribing.ring).is_ok();
        let count = if is_known { reading.topics() as usize } else { self.topics };
        if from == 0 {
            self.wanted.clear();
        }
        for topic in from..count {
            // What has no row matters only as long as the list is complete.
            if topic >= rows.topics() && self.wanted.len() > MOST_WANTED {
                break;
            }
            hook::point(CrashPoint::MidColumn);
            let number = u32::try_from(topic).unwrap_or(u32::MAX);
            let (itself, below) = if is_known { reading.wants(number) } else { (true, true) };
            if (itself || below) && self.wanted.len() <= MOST_WANTED {
                self.wanted.push(number);
            }
            // The bit covers only messages on the topic itself. Those to descendants wake all.
            rows.set(topic, claim.number(), !itself);
        }
        if !claim.is_ours() {
            // The next owner cleared its column while this one wrote to it.
            (from..count).for_each(|topic| rows.set(topic, claim.number(), false));
        }
        self.topics = if is_known { reading.topics() as usize } else { 0 };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use crate::bus::subscribe::{Start, Subscriber, WaitStrategy};
    use crate::bus::{Bus, BusConfig, Limit};
    use crate::ring::layout::TRACKED_TOPICS;
    use crate::settings::{NotifyKind, Policy};
    use crate::shm::testing::TempDir;
    use crate::sync::Ordering;
    use std::thread;
    use std::time::{Duration, Instant};

    /// Far beyond what anything here takes.
    const LONG: Duration = Duration::from_secs(20);

    struct Fixture {
        bus: Bus,
        /// Never sleeps.
        observer: Subscriber,
        _root: TempDir,
    }

    impl Fixture {
        fn new(notify: NotifyKind, capacity: u64) -> Self {
            let root = TempDir::new();
            let config = BusConfig::new().directory(root.path()).notify(notify).capacity(capacity);
            let policy = Policy::Wait { limit: None };
            Self::of(config.policy(policy).max_subscribers(70).create("b").unwrap(), root)
        }

        fn of(bus: Bus, root: TempDir) -> Self {
            let observer = bus.subscriber().gating(false).build().unwrap();
            Self { bus, observer, _root: root }
        }

        fn subscriber(&self, patterns: &[&str]) -> Subscriber {
            let mut builder = self.bus.subscriber().wait(WaitStrategy::Block);
            for pattern in patterns {
                builder = builder.pattern(*pattern);
            }
            builder.build().unwrap()
        }

        fn sleeps(&self) -> u64 {
            let readers = &self.observer.claim.subscribing.readers;
            readers.control().sleeps.0.load(Ordering::Acquire)
        }

        /// How many wake-ups the publishers of this bus have sent.
        fn wakes(&self) -> u64 {
            self.bus.stats().unwrap().publishers.unwrap().iter().map(|slot| slot.wakes).sum()
        }

        /// Lets the subscriber wait for one message while `publish` runs, which publishes it as the last.
        fn while_it_sleeps(&self, subscriber: &mut Subscriber, publish: impl FnOnce()) -> Vec<u8> {
            let before = self.sleeps();
            thread::scope(|scope| {
                let sleeper = scope.spawn(|| {
                    subscriber.receive_timeout(LONG).unwrap().expect("a message").payload().to_vec()
                });
                let began = Instant::now();
                while self.sleeps() == before {
                    assert!(began.elapsed() < LONG, "it does not sleep");
                    thread::yield_now();
                }
                publish();
                sleeper.join().unwrap()
            })
        }
    }

    /// The bits of a subscriber, by topic.
    fn unwanted(subscriber: &Subscriber) -> Vec<usize> {
        let readers = &subscriber.claim.subscribing.readers;
        let (word, bit) =
            (subscriber.claim.number() as usize / 64, 1_u64 << (subscriber.claim.number() % 64));
        let rows = readers.rows().chunks_exact(2);
        rows.enumerate()
            .filter(|(_, row)| row[word].load(Ordering::Relaxed) & bit != 0)
            .map(|(topic, _)| topic)
            .collect()
    }

    #[test]
    fn what_is_for_others_wakes_no_one() {
        for notify in
            [NotifyKind::Futex, NotifyKind::Datagram, NotifyKind::Multicast { group: None }]
        {
            let fixture = Fixture::new(notify, 1 << 20);
            let (other, mine) =
                (fixture.bus.publisher("other").unwrap(), fixture.bus.publisher("mine/a").unwrap());
            let mut subscriber = fixture.subscriber(&["mine/*"]);
            let got = fixture.while_it_sleeps(&mut subscriber, || {
                // The observer has not seen the topic, and its descriptor is armed if it has one.
                other.publish("x").unwrap();
                let before = fixture.wakes();
                (0..1_000).for_each(|_| _ = other.publish("x").unwrap());
                other.publish_batch(&["x"; 10], Limit::Policy).unwrap();
                other.burst(&["x"; 10], Limit::Policy).unwrap();
                assert_eq!(fixture.wakes(), before, "{notify:?}");
                mine.publish("for it").unwrap();
                assert_eq!(fixture.wakes(), before + 1, "{notify:?}");
            });
            assert_eq!(got, b"for it");
            assert_eq!(unwanted(&subscriber), [0]);
        }
    }

    /// Messages of several topics by one call of an inlet, an exclusive publisher, and a post to descendants.
    #[test]
    fn each_way_of_publishing_wakes_those_that_it_is_for() {
        let fixture = Fixture::new(NotifyKind::Futex, 1 << 20);
        for topic in ["other", "mine/a", "mine"] {
            fixture.bus.publisher(topic).unwrap();
        }
        let mut subscriber = fixture.subscriber(&["mine/a"]);
        let descendants = fixture.bus.publisher("mine").unwrap().to_descendants(true);
        let got = fixture.while_it_sleeps(&mut subscriber, || {
            fixture.bus.publisher("mine").unwrap().publish("x").unwrap();
            descendants.publish("below").unwrap();
        });
        assert_eq!(got, b"below");
        let exclusive = fixture.bus.exclusive().unwrap();
        let topics = ["other", "mine/a"].map(|topic| exclusive.topic(topic).unwrap());
        let got = fixture.while_it_sleeps(&mut subscriber, || {
            (0..10).for_each(|_| _ = exclusive.publish(&topics[0], "x", Limit::Policy).unwrap());
            exclusive.publish(&topics[1], "of a feed", Limit::Policy).unwrap();
        });
        assert_eq!(got, b"of a feed");
        assert_eq!(unwanted(&subscriber), [0, 2]);
    }

    #[test]
    fn a_new_topic_is_for_all_until_each_has_seen_it() {
        let fixture = Fixture::new(NotifyKind::Futex, 1 << 20);
        let first = fixture.bus.publisher("first").unwrap();
        let mut subscriber = fixture.subscriber(&["late", "last"]);
        let got = fixture.while_it_sleeps(&mut subscriber, || {
            first.publish("x").unwrap();
            fixture.bus.publisher("late").unwrap().publish("late").unwrap();
        });
        assert_eq!(got, b"late");
        let got = fixture.while_it_sleeps(&mut subscriber, || {
            let new = fixture.bus.publisher("new").unwrap();
            let slept = fixture.sleeps();
            new.publish("x").unwrap();
            let began = Instant::now();
            // It was woken for nothing, and has seen the topic before it sleeps again.
            while fixture.sleeps() == slept {
                assert!(began.elapsed() < LONG, "it does not sleep again");
                thread::yield_now();
            }
            let before = fixture.wakes();
            (0..10).for_each(|_| _ = new.publish("x").unwrap());
            assert!(fixture.wakes() <= before + 1);
            fixture.bus.publisher("last").unwrap().publish("last").unwrap();
        });
        assert_eq!(got, b"last");
        assert_eq!(unwanted(&subscriber), [0, 2]);
    }

    #[test]
    fn a_new_pattern_counts_at_once() {
        let fixture = Fixture::new(NotifyKind::Futex, 1 << 20);
        let publishers = ["a", "b"].map(|topic| fixture.bus.publisher(topic).unwrap());
        let mut subscriber = fixture.subscriber(&["a"]);
        let got = fixture.while_it_sleeps(&mut subscriber, || {
            publishers[1].publish("x").unwrap();
            publishers[0].publish("a").unwrap();
        });
        assert_eq!(got, b"a");
        assert_eq!(unwanted(&subscriber), [1]);
        subscriber.add_pattern("b").unwrap();
        assert_eq!(unwanted(&subscriber), [0; 0]);
        let got = fixture.while_it_sleeps(&mut subscriber, || {
            publishers[1].publish("b").unwrap();
        });
        assert_eq!(got, b"b");
    }

    /// An event loop polls the descriptor, which was armed before the pattern came.
    #[test]
    fn a_new_pattern_makes_the_descriptor_readable_for_what_is_there() {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        for notify in
            [NotifyKind::Futex, NotifyKind::Datagram, NotifyKind::Multicast { group: None }]
        {
            let fixture = Fixture::new(notify, 1 << 20);
            let publishers = ["a", "b"].map(|topic| fixture.bus.publisher(topic).unwrap());
            let mut subscriber = fixture.subscriber(&["a"]);
            subscriber.fd().unwrap();
            assert!(subscriber.try_receive().unwrap().is_none());
            publishers[1].publish("b").unwrap();
            subscriber.add_pattern("b").unwrap();
            let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
            let mut polled = [PollFd::new(&subscriber, PollFlags::IN)];
            assert_eq!(poll(&mut polled, Some(&limit)).unwrap(), 1, "{notify:?}");
            assert_eq!(subscriber.try_receive().unwrap().unwrap().payload(), b"b");
            // And afterwards.
            assert!(subscriber.try_receive().unwrap().is_none());
            subscriber.add_pattern("c").unwrap();
            publishers[1].publish("b").unwrap();
            let mut polled = [PollFd::new(&subscriber, PollFlags::IN)];
            assert_eq!(poll(&mut polled, Some(&limit)).unwrap(), 1, "{notify:?}");
        }
    }

    #[test]
    fn the_next_owner_of_a_slot_wants_everything_at_first() {
        let fixture = Fixture::new(NotifyKind::Futex, 1 << 20);
        let publisher = fixture.bus.publisher("a").unwrap();
        let mut first = fixture.subscriber(&["b"]);
        assert!(first.receive_timeout(Duration::from_millis(1)).unwrap().is_none());
        assert_eq!(unwanted(&first), [0]);
        // Whatever an owner has left.
        for word in first.claim.subscribing.readers.rows() {
            word.store(u64::MAX, Ordering::Relaxed);
        }
        let number = first.claim.number();
        drop(first);
        let mut next = fixture.subscriber(&["a"]);
        assert_eq!(next.claim.number(), number);
        assert_eq!(unwanted(&next), [0; 0]);
        let got = fixture.while_it_sleeps(&mut next, || _ = publisher.publish("a").unwrap());
        assert_eq!(got, b"a");
    }

    /// One that sleeps because nothing is for it gates publishers all the same.
    #[test]
    fn no_publisher_waits_for_one_that_sleeps_because_nothing_is_for_it() {
        const CAPACITY: u64 = 64 << 10;
        let fixture = Fixture::new(NotifyKind::Futex, CAPACITY);
        let (other, mine) =
            (fixture.bus.publisher("other").unwrap(), fixture.bus.publisher("mine").unwrap());
        let mut subscriber = fixture.subscriber(&["mine"]);
        let got = fixture.while_it_sleeps(&mut subscriber, || {
            let (before, slept) = (fixture.wakes(), fixture.sleeps());
            (0..17).for_each(|_| _ = other.publish([7; 1_000]).unwrap());
            assert_eq!(fixture.wakes(), before + 1, "a quarter of the ring");
            let began = Instant::now();
            while fixture.sleeps() == slept {
                assert!(began.elapsed() < LONG, "it does not sleep again");
                thread::yield_now();
            }
            (0..1_000).for_each(|_| _ = other.publish([7; 1_000]).unwrap());
            mine.publish("mine").unwrap();
        });
        assert_eq!(got, b"mine");
        let stats = fixture.bus.stats().unwrap().subscribers.unwrap();
        let own = stats.iter().find(|slot| slot.slot == subscriber.claim.number()).unwrap();
        assert_eq!((own.lost_messages, own.lapses), (0, 0));
    }

    /// Topics without a row, and those without an id, are for all.
    #[test]
    fn more_topics_than_rows_wake_all() {
        let root = TempDir::new();
        let config = BusConfig::new().directory(root.path()).topic_table_bytes(1 << 20);
        let bus = config.capacity(4 << 20).create("b").unwrap();
        let fixture = Fixture::of(bus, root);
        let topics = TRACKED_TOPICS + 4;
        let publishers: Vec<_> = (0..topics)
            .map(|number| fixture.bus.publisher(&format!("t/{number}")).unwrap())
            .collect();
        let last = &publishers[topics as usize - 1];
        let mut subscriber = fixture.subscriber(&[&format!("t/{}", topics - 1)]);
        for _ in 0..2 {
            let got = fixture.while_it_sleeps(&mut subscriber, || {
                (0..10).for_each(|number| _ = publishers[number].publish("x").unwrap());
                last.publish("last").unwrap();
            });
            assert_eq!(got, b"last");
        }
        let bits = unwanted_words(&subscriber);
        assert_eq!(bits, u64::from(TRACKED_TOPICS));
        let before = fixture.wakes();
        assert!(subscriber.receive_timeout(Duration::from_millis(1)).unwrap().is_none());
        publishers[TRACKED_TOPICS as usize].publish("x").unwrap();
        assert_eq!(fixture.wakes(), before + 1);
    }

    fn unwanted_words(subscriber: &Subscriber) -> u64 {
        let words = subscriber.claim.subscribing.readers.rows().iter();
        words.map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum()
    }

    /// It polls its descriptor and blocks on the futex in turn: each is woken.
    #[test]
    fn one_program_uses_the_descriptor_and_the_futex_in_turn() {
        use rustix::event::{PollFd, PollFlags, poll};
        let fixture = Fixture::new(NotifyKind::Futex, 1 << 20);
        let publisher = fixture.bus.publisher("a").unwrap();
        let builder = fixture.bus.subscriber().pattern("a").start(Start::Latest);
        let mut subscriber = builder.wait(WaitStrategy::Block).build().unwrap();
        for round in 0..20 {
            if round % 2 == 0 {
                subscriber.fd().unwrap();
                assert!(subscriber.try_receive().unwrap().is_none());
                publisher.publish("by descriptor").unwrap();
                poll(&mut [PollFd::new(&subscriber, PollFlags::IN)], None).unwrap();
                assert_eq!(subscriber.try_receive().unwrap().unwrap().payload(), b"by descriptor");
                assert!(subscriber.try_receive().unwrap().is_none());
            }
            let got = fixture.while_it_sleeps(&mut subscriber, || {
                publisher.publish("by futex").unwrap();
            });
            assert_eq!(got, b"by futex");
        }
    }
}
