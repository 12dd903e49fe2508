//! How a subscriber passes over what it does not want in one step, without reading it.
//!
//! 1. After [`PATIENCE`] bytes of messages for others in one call, or if it was lapped, it takes the end of the stream and looks
//!    at the bounds of the topics that it wants (`ring/bounds.rs`). If none is beyond its position, it continues at that end. It
//!    has missed nothing, so it reports no loss.
//! 2. Otherwise it reads on, and looks again when it has come as far as the highest of these bounds.
//!
//! Before that it looks at the topics that are new. It has loaded the end of the stream earlier, and a process that
//! appended a message before that end had added its topic before that.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::column::Column;
use super::subscriber::Subscriber;
use crate::bus::views::table_of;
use crate::hook::mutant;
use crate::ring::bounds::{newest, settled_end, topic_of};
use crate::ring::layout::Control;
use crate::sync::Ordering;
use crate::topic::frame::Tag;

/// Reading this many bytes takes about as long as to look at the end of the stream, whose cache line publishers write.
pub(super) const PATIENCE: u64 = 16 << 10;

/// Where a subscriber looks next whether it can pass over what is there.
#[derive(Debug, Default)]
pub(super) struct Passing {
    not_before: u64,
}

impl Subscriber {
    /// Passes over what is there if nothing of it is for this subscriber.
    pub(super) fn pass_over_if_due(&mut self) {
        if self.reading.cursor.position >= self.passing.not_before {
            self.pass_over();
        }
    }

    /// Returns whether a subscriber that was lapped has missed nothing that is for it. Then it continues at the end of the
    /// stream. One that holds messages has lost those.
    #[cold]
    pub(super) fn pass_over_lap(&mut self) -> bool {
        let holds = self.progress.hold.is_some() && !mutant("held_messages_passed_over");
        let passed = !holds && self.pass_over();
        if passed {
            // Publishers ignore a position that was lapped.
            self.publish_position();
        }
        passed
    }

    #[cold]
    fn pass_over(&mut self) -> bool {
        // What is in the read-ahead is passed over, too.
        let position = self.reading.next().position;
        self.passing.not_before = position.saturating_add(PATIENCE);
        let segment = &self.claim.subscribing.ring;
        let control = segment.control();
        // If a commit was under way, it is over soon.
        let Some(end) = settled_end(control).or_else(|| settled_end(control)) else { return false };
        if end.position <= position {
            return false;
        }
        // TOPIC
        let topics = table_of(segment).count.load(Ordering::Acquire) as usize;
        self.column.extend(&self.claim, &mut self.reading);
        let Some(end_of_wanted) = newest_wanted(control, &self.column, topics) else {
            return false;
        };
        if end_of_wanted > position {
            self.passing.not_before = end_of_wanted.max(self.passing.not_before);
            return false;
        }
        self.reading.received.read_ahead.give_up();
        self.reading.cursor = end;
        true
    }
}

/// Returns the highest bound of what a subscriber wants; `None` if it wants too much to ask.
fn newest_wanted(control: &Control, column: &Column, topics: usize) -> Option<u64> {
    let wanted = column.few_wanted(topics)?.iter().map(|topic| newest(control, *topic));
    wanted.chain([newest(control, topic_of(Tag::loss().raw()))]).max()
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use crate::bus::publish::Entry;
    use crate::bus::publish::testing::publish_record;
    use crate::bus::subscribe::Subscriber;
    use crate::bus::views::ring_of;
    use crate::bus::{Bus, BusConfig, Limit};
    use crate::error::ReceiveError;
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
                for kind in [2, 4, 5, 6, 7] {
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
