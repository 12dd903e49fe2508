//! How a subscriber passes over what it does not want in one step, without reading it.
//!
//! 1. After [`READ_BEFORE_LOOK`] bytes of messages for others in one call, or if it was lapped, it takes the end of the stream
//!    and looks at the bounds of the topics that it wants (`ring/bounds.rs`). If none is beyond its position, it continues at that
//!    end. It has missed nothing, so it reports no loss.
//! 2. Otherwise it reads on, and looks again when it has come as far as the highest of these bounds.
//!
//! The order matters: it loads the end of the stream, then the number of topics, then the bounds. A publisher adds a topic before
//! its first message, so every message before that end has a topic that is counted.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::column::Column;
use super::subscriber::Subscriber;
use crate::bus::views::{ring_of, table_of};
use crate::hook::mutant;
use crate::ring::bounds::{bound, settled_end, topic_of};
use crate::ring::layout::Control;
use crate::ring::reader::Cursor;
use crate::sync::Ordering;
use crate::topic::frame::Tag;

/// How many bytes for others a call reads before it looks. To look takes a cache line away from publishers, and costs about as
/// much as to read this much.
pub(super) const READ_BEFORE_LOOK: u64 = 16 << 10;

/// Where a subscriber passed over something.
#[derive(Debug, Default)]
pub(super) struct Passing {
    /// The position before which it does not look again.
    not_before: u64,
    /// Where it continued after the last lap of messages for others.
    pub(super) lapped_until: u64,
}

impl Subscriber {
    /// Passes over what is there if nothing of it is for this subscriber.
    pub(super) fn pass_over_if_due(&mut self) {
        if self.reading.cursor.position < self.passing.not_before {
            return;
        }
        let position = self.reading.cursor.position;
        self.passing.not_before = position.saturating_add(READ_BEFORE_LOOK);
        let control = self.claim.subscribing.ring.control();
        // If a commit was under way, it is over soon.
        if let Some(end) = settled_end(control).or_else(|| settled_end(control)) {
            self.pass_over(end, false);
        }
    }

    /// Returns whether a subscriber that was lapped has missed nothing that is for it. Then it continues at the end of the
    /// stream. One that holds messages has lost those.
    #[cold]
    pub(super) fn pass_over_lap(&mut self) -> bool {
        if self.progress.hold.is_some() && !mutant("held_messages_passed_over") {
            return false;
        }
        let segment = &self.claim.subscribing.ring;
        // A writer that has died in a commit, or was stopped, hides no end that the blocks index tells.
        let end = settled_end(segment.control());
        let end = end.or_else(|| Cursor::at_end(ring_of(segment)).ok());
        let passed = end.is_some_and(|end| self.pass_over(end, true));
        if passed {
            self.passing.lapped_until = self.reading.cursor.position;
            // Publishers ignore a position that was lapped.
            self.publish_position();
        }
        passed
    }

    /// Continues at an end of the stream if nothing before it is for this subscriber. Returns whether it does.
    fn pass_over(&mut self, end: Cursor, is_lapped: bool) -> bool {
        // What is in the read-ahead may be wanted.
        let position = self.reading.next().position;
        if end.position <= self.reading.cursor.position {
            return false;
        }
        let segment = &self.claim.subscribing.ring;
        // TOPIC
        let topics = table_of(segment).count.load(Ordering::Acquire) as usize;
        self.column.extend(&self.claim, &mut self.reading);
        // One that wants most topics would hardly ever pass over anything.
        if !is_lapped && self.column.wants_most() {
            return false;
        }
        let Some(highest) = highest_bound(segment.control(), &self.column, topics) else {
            return false;
        };
        if highest > position {
            self.passing.not_before = highest.max(self.passing.not_before);
            return false;
        }
        self.reading.received.read_ahead.give_up();
        self.reading.cursor = end;
        self.passing.not_before = end.position.saturating_add(READ_BEFORE_LOOK);
        true
    }
}

/// Returns the highest bound of what a subscriber wants; `None` if it wants too much to ask, or has not looked at all topics.
fn highest_bound(control: &Control, column: &Column, topics: usize) -> Option<u64> {
    let wanted = column.wanted(topics)?.iter().map(|topic| bound(control, *topic));
    wanted.chain([bound(control, topic_of(Tag::loss().raw()))]).max()
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use crate::bus::publish::Entry;
    use crate::bus::publish::testing::publish_record;
    use crate::bus::subscribe::column::MOST_WANTED;
    use crate::bus::subscribe::{Continue, Start, Subscriber};
    use crate::bus::views::ring_of;
    use crate::bus::{Bus, BusConfig, Limit};
    use crate::error::ReceiveError;
    use crate::hook::{CrashPoint, rehearsal};
    use crate::ring::bounds::topic_of;
    use crate::ring::writer::header;
    use crate::settings::Policy;
    use crate::shm::testing::TempDir;
    use crate::sync::Ordering;
    use crate::topic::frame::{Extensions, Tag, TopicId};
    use crate::topic::{Origin, Pattern};
    use std::os::unix::fs::FileExt;
    use toroni_testkit::Random;

    const CAPACITY: u64 = 64 << 10;

    fn bus(root: &TempDir, capacity: u64) -> Bus {
        let config = BusConfig::new().directory(root.path()).capacity(capacity);
        config.policy(Policy::Overwrite).create("b").unwrap()
    }

    type Receive = fn(&mut Subscriber) -> Result<Option<Vec<u8>>, ReceiveError>;

    /// All forms of a receive that do not wait.
    const FORMS: [Receive; 3] = [
        |subscriber| Ok(subscriber.try_receive()?.map(|message| message.payload().to_vec())),
        |subscriber| Ok(subscriber.borrow()?.map(|message| message.payload().to_vec())),
        |subscriber| {
            let mut one = subscriber.try_receive_in_place()?;
            let first = one.as_mut().and_then(Iterator::next);
            Ok(first.map(|message| message.payload().to_vec()))
        },
    ];

    #[test]
    fn the_topic_of_a_tag_is_where_the_frame_has_it() {
        let id = TopicId::new(77).unwrap();
        for to_descendants in [false, true] {
            let tag = Tag::message(id, to_descendants, &Extensions::default());
            assert_eq!(topic_of(tag.raw()), 77);
        }
        assert_eq!(topic_of(Tag::loss().raw()) as usize, TopicId::INLINE.index());
    }

    #[test]
    fn a_lap_of_messages_for_others_is_no_loss() {
        for receive in FORMS {
            let root = TempDir::new();
            let bus = bus(&root, CAPACITY);
            let (mine, other) = (bus.publisher("mine").unwrap(), bus.publisher("other").unwrap());
            let mut subscriber = bus.subscribe("mine").unwrap();
            for round in 0..20_u8 {
                (0..300).for_each(|_| _ = other.publish([7; 1_000]).unwrap());
                mine.publish([round]).unwrap();
                // What is in the lap.
                let told = receive(&mut subscriber);
                assert!(matches!(told, Err(ReceiveError::Lapped { .. })), "{told:?}");
                while let Some(got) = receive(&mut subscriber).unwrap() {
                    assert_eq!(got, [round]);
                }
                (0..300).for_each(|_| _ = other.publish([7; 1_000]).unwrap());
                assert_eq!(receive(&mut subscriber).unwrap(), None);
                mine.publish([round]).unwrap();
                let sequence = subscriber.sequence();
                assert_eq!(receive(&mut subscriber).unwrap(), Some(vec![round]));
                assert_eq!(sequence, 602 * u64::from(round) + 601);
            }
            assert_eq!(subscriber.stats().lapses, 20);
        }
    }

    /// It wants most topics of a small bus. And a publisher has died between two stores of a commit.
    #[test]
    fn a_lap_of_messages_for_others_is_no_loss_on_a_small_bus_or_after_a_death() {
        for fatal in [
            None,
            Some(CrashPoint::BeforeCommit),
            Some(CrashPoint::AfterCommit),
            Some(CrashPoint::BetweenSequenceAndTail),
        ] {
            let root = TempDir::new();
            let bus = bus(&root, CAPACITY);
            for topic in ["cam/1", "cam/2"] {
                bus.publisher(topic).unwrap();
            }
            let mut subscriber = bus.subscribe("cam/*").unwrap();
            let log = bus.publisher("log").unwrap();
            (0..300).for_each(|_| _ = log.publish([7; 1_000]).unwrap());
            if let Some(fatal) = fatal {
                let doomed = BusConfig::new().directory(root.path()).open("b").unwrap();
                let victim = doomed.publisher("log").unwrap();
                let dies = move |reached: &[CrashPoint]| reached.last() == Some(&fatal);
                let (_, lived) = rehearsal::act(dies, || victim.publish([7; 1_000]));
                assert!(lived.is_none(), "{fatal:?} is not on its way");
                rehearsal::bury((victim, doomed));
            }
            assert!(subscriber.try_receive().unwrap().is_none(), "{fatal:?}");
            // It has read what the dead publisher committed.
            let mut all = bus.subscriber().start(Start::Oldest).build().unwrap();
            while all.try_receive().unwrap().is_some() {}
            assert_eq!(subscriber.position(), all.position(), "{fatal:?}");
            drop(all);
            bus.publisher("cam/2").unwrap().publish("picture").unwrap();
            assert_eq!(subscriber.receive().unwrap().payload(), b"picture");
            assert_eq!(subscriber.stats().lapses, 0);
        }
    }

    #[test]
    fn one_that_wants_more_topics_than_it_asks_for_reports_a_lap_of_others() {
        for (more, is_lapped) in [(0, false), (1, true)] {
            let root = TempDir::new();
            let bus = bus(&root, CAPACITY);
            let log = bus.publisher("log").unwrap();
            for number in 0..MOST_WANTED + more {
                bus.publisher(&format!("many/{number}")).unwrap();
            }
            let mut subscriber = bus.subscribe("many/*").unwrap();
            (0..300).for_each(|_| _ = log.publish([7; 1_000]).unwrap());
            let told = subscriber.try_receive().map(|message| message.is_some());
            assert_eq!(told.is_err(), is_lapped, "{told:?}");
        }
    }

    /// Its slot is another's, because the process has closed all descriptors.
    #[test]
    fn a_new_pattern_of_one_that_has_lost_its_slot_counts() {
        let root = TempDir::new();
        let bus = bus(&root, 1 << 20);
        let [_, b, other] = ["a", "b", "other"].map(|topic| bus.publisher(topic).unwrap());
        let mut subscriber = bus.subscribe("a").unwrap();
        (0..1_000).for_each(|_| _ = other.publish([7; 100]).unwrap());
        assert!(subscriber.try_receive().unwrap().is_none());
        subscriber.claim.slot().generation.fetch_add(1, Ordering::Relaxed);
        subscriber.add_pattern("b").unwrap();
        (0..200).for_each(|_| _ = other.publish([7; 100]).unwrap());
        b.publish("b").unwrap();
        (0..200).for_each(|_| _ = other.publish([7; 100]).unwrap());
        let got = subscriber.try_receive().unwrap().map(|message| message.topic().to_owned());
        assert_eq!(got.as_deref(), Some("b"));
    }

    /// A record that would be reported if it were read.
    #[test]
    fn what_is_passed_over_is_not_read() {
        for (patterns, is_read) in [(&["mine"][..], false), (&["mine", "many/*"], true)] {
            let root = TempDir::new();
            let bus = bus(&root, 1 << 20);
            let (mine, other) = (bus.publisher("mine").unwrap(), bus.publisher("other").unwrap());
            // It wants most topics, so it asks for none.
            for number in 0..8 {
                bus.publisher(&format!("many/{number}")).unwrap();
            }
            let mut subscriber = patterns
                .iter()
                .fold(bus.subscriber(), |builder, pattern| builder.pattern(*pattern))
                .build()
                .unwrap();
            mine.publish("first").unwrap();
            for _ in 0..1_000 {
                other.publish([7; 100]).unwrap();
            }
            other.publish([0; 8]).unwrap();
            let ring = ring_of(&subscriber.claim.subscribing.ring);
            let end = ring.control.commit.0.tail.load(Ordering::Relaxed);
            let path = subscriber.claim.subscribing.ring.file().directory().path().join("ring");
            let file = std::fs::File::options().write(true).open(path).unwrap();
            let start = subscriber.claim.subscribing.ring.header().data_offset;
            file.write_all_at(&header(u32::MAX, 1).to_ne_bytes(), start + end - 16).unwrap();
            assert_eq!(subscriber.receive().unwrap().payload(), b"first");
            let next = subscriber.try_receive().map(|message| message.is_some());
            assert_eq!(next.is_err(), is_read, "{patterns:?}: {next:?}");
            mine.publish("second").unwrap();
            if !is_read {
                assert_eq!(subscriber.receive().unwrap().payload(), b"second");
            }
        }
    }

    #[test]
    fn one_that_holds_messages_and_was_lapped_learns_of_it() {
        let root = TempDir::new();
        let bus = bus(&root, CAPACITY);
        let (mine, other) = (bus.publisher("mine").unwrap(), bus.publisher("other").unwrap());
        let mut subscriber = bus.subscribe("mine").unwrap();
        let held = mine.publish("held").unwrap();
        assert_eq!(subscriber.receive().unwrap().payload(), b"held");
        subscriber.hold(held).unwrap();
        (0..300).for_each(|_| _ = other.publish([7; 1_000]).unwrap());
        assert!(matches!(subscriber.try_receive(), Err(ReceiveError::Lapped { .. })));
        assert_eq!(subscriber.held(), None);
    }

    /// A kind of a later release, small and large, on a topic and on none.
    #[test]
    fn records_of_an_unknown_kind_are_passed_over_and_counted() {
        for receive in FORMS {
            let root = TempDir::new();
            let bus = bus(&root, 1 << 20);
            let mine = bus.publisher("mine").unwrap();
            bus.publisher("other").unwrap();
            let mut subscriber = bus.subscribe("mine").unwrap();
            let mut count = 0;
            for id in
                [0, 1].map(|id| TopicId::new(id).unwrap()).into_iter().chain([TopicId::INLINE])
            {
                for kind in [2, 4, 5, 7] {
                    for length in [8, 2_000] {
                        let tag = kind | u32::try_from(id.index()).unwrap() << 8;
                        let payload = vec![0xA5; length];
                        publish_record(&bus, tag, &payload);
                        count += u64::from(id.index() != 1);
                        mine.publish("mine").unwrap();
                        assert_eq!(receive(&mut subscriber).unwrap(), Some(b"mine".to_vec()));
                    }
                }
            }
            assert_eq!(receive(&mut subscriber).unwrap(), None);
            assert_eq!(subscriber.stats().unknown, count);
            // They are no newest message.
            let builder = bus.subscriber().pattern("mine").after_loss(Continue::Newest);
            let mut newest = builder.build().unwrap();
            for _ in 0..1_500 {
                mine.publish([7; 1_000]).unwrap();
            }
            publish_record(&bus, 2 | 0xFF_FFFF << 8, &[0xA5; 8]);
            let told = receive(&mut newest);
            assert!(matches!(told, Err(ReceiveError::Lapped { .. })), "{told:?}");
            assert_eq!(receive(&mut newest).unwrap(), Some(vec![7; 1_000]));
        }
    }

    /// A subscriber of one topic among many gets what one of all topics gets of it, whatever is published how.
    #[test]
    fn what_is_wanted_is_never_passed_over() {
        for seed in 0..12 {
            let mut random = Random::new(seed);
            let root = TempDir::new();
            let config = BusConfig::new().directory(root.path()).capacity(1 << 20);
            // There is room for a few names; the others travel with their messages.
            let bus = config.topic_table_bytes(4096).create("b").unwrap();
            let names: Vec<String> = (0..120).map(|number| format!("t/{number}/x")).collect();
            let patterns = ["t/3/x", "t/7/*", "t/117/x", "late/**"];
            let builder = |patterns: &[&str]| {
                patterns.iter().fold(bus.subscriber(), |builder, pattern| builder.pattern(*pattern))
            };
            let mut all = builder(&["**"]).build().unwrap();
            let mut few = builder(&patterns).build().unwrap();
            let wants = |topic: &str, below: bool| {
                patterns.iter().any(|pattern| {
                    let pattern = Pattern::new(pattern).unwrap();
                    pattern.matches(topic) || below && pattern.matches_descendants(topic)
                })
            };
            let inlet = bus.inlet().unwrap();
            let mut number = 0;
            for round in 0..40 {
                for _ in 0..random.below(300) {
                    let topic = match random.below(50) {
                        0 => format!("late/{round}"),
                        1 => "t".to_owned(),
                        _ => random.pick(&names).clone(),
                    };
                    // Most are for others.
                    if wants(&topic, false) && random.below(8) > 0 {
                        continue;
                    }
                    let below = topic == "t" && random.below(20) == 0;
                    let publisher = bus.publisher(&topic).unwrap().to_descendants(below);
                    let payload = vec![7; 1 + random.index(400)];
                    match random.below(5) {
                        0 => {
                            _ = publisher
                                .publish_batch(&[&payload, &payload], Limit::Policy)
                                .unwrap()
                        }
                        1 => publisher.burst(&[&payload[..], &payload], Limit::Policy).unwrap(),
                        2 => {
                            let topic = inlet.topic(&topic).unwrap();
                            let parts = [&payload[..]];
                            let origin = Some(Origin { source: 1, series: 1, stream: 1, number });
                            let entry = Entry::new(&topic, &parts);
                            let entry = Entry { origin, to_descendants: below, ..entry };
                            inlet.publish(&[entry; 2], Limit::Policy).unwrap();
                            number += 1;
                        }
                        _ => _ = publisher.publish(&payload).unwrap(),
                    }
                }
                let mut expected = Vec::new();
                while let Some(message) = all.try_receive().unwrap() {
                    if wants(message.topic(), message.to_descendants()) {
                        expected.push((message.topic().to_owned(), message.sequence()));
                    }
                }
                let mut got = Vec::new();
                while let Some(message) = few.try_receive().unwrap() {
                    got.push((message.topic().to_owned(), message.sequence()));
                }
                assert_eq!(got, expected, "seed {seed}, round {round}");
                assert_eq!((few.position(), few.sequence()), (all.position(), all.sequence()));
            }
        }
    }
}
