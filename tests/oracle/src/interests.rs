//! Subscribers that each want a few of several topics: a list of what happens, from a seed, and whom each message is for.

use crate::topics::matches;
use std::collections::BTreeSet;

/// The most subscribers at a time.
pub const PLACES: u8 = 6;
/// Participants that publish.
pub const PUBLISHERS: u8 = 2;
/// Topics. Not all are in the table of the bus from the beginning.
const TOPICS: u8 = 9;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A publisher publishes some messages on one topic, with one call.
    Publish {
        publisher: u8,
        topic: u8,
        way: Way,
    },
    /// A subscriber comes, in this place. If there is one already, it leaves before.
    Join {
        place: u8,
        patterns: Vec<String>,
    },
    /// It wants more.
    Add {
        place: u8,
        pattern: String,
    },
    Leave {
        place: u8,
    },
}

/// How messages are published, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    One,
    Batch(u8),
    Burst(u8),
}

/// Whom a call that publishes is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audience {
    /// The places of the subscribers that want its messages.
    pub places: BTreeSet<u8>,
    /// How many wake-ups it may cost besides one for each of them: of subscribers that may not have seen the topic, and of
    /// slots whose subscribers have left.
    pub vain: u64,
}

/// A message for a subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub sequence: u64,
    pub topic: String,
}

/// Who wants what, and what each of them must have received.
#[derive(Clone, Debug, Default)]
pub struct Interests {
    patterns: [Option<Vec<String>>; PLACES as usize],
    received: [Vec<Wanted>; PLACES as usize],
    sequence: u64,
    known: BTreeSet<u8>,
    /// Slots whose subscribers have left, and for which a publisher may not have sent its vain wake-up yet.
    left: [u64; PUBLISHERS as usize],
}

/// The name of a topic.
#[must_use]
pub fn topic_name(topic: u8) -> String {
    format!("group/{}/{topic}", topic % 3)
}

impl Way {
    #[must_use]
    pub fn messages(self) -> u8 {
        match self {
            Self::One => 1,
            Self::Batch(count) | Self::Burst(count) => count,
        }
    }
}

impl Change {
    /// A list of `count` changes, the same for the same seed. It begins with as many subscribers as there are places.
    #[must_use]
    pub fn list(seed: u64, count: usize) -> Vec<Self> {
        let mut state = seed;
        // SplitMix64, as in `operations`.
        let mut below = |limit: u8| {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut word = state;
            word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
            u8::try_from((word ^ word >> 31) % u64::from(limit)).unwrap()
        };
        let mut changes = Vec::new();
        for place in 0..PLACES {
            changes.push(Self::Join { place, patterns: patterns(&mut below) });
        }
        while changes.len() < count {
            let place = below(PLACES);
            changes.push(match below(16) {
                0 | 1 => Self::Join { place, patterns: patterns(&mut below) },
                2 | 3 => Self::Add { place, pattern: pattern(&mut below) },
                4 => Self::Leave { place },
                how => {
                    let messages = 1 + below(5);
                    let way = match how {
                        5..12 => Way::One,
                        12 | 13 => Way::Batch(messages),
                        _ => Way::Burst(messages),
                    };
                    Self::Publish { publisher: below(PUBLISHERS), topic: below(TOPICS), way }
                }
            });
        }
        changes
    }
}

fn patterns(below: &mut impl FnMut(u8) -> u8) -> Vec<String> {
    (0..=below(2)).map(|_| pattern(below)).collect()
}

fn pattern(below: &mut impl FnMut(u8) -> u8) -> String {
    match below(8) {
        0 => format!("group/{}/*", below(3)),
        _ => topic_name(below(TOPICS)),
    }
}

impl Interests {
    /// Whether there is a subscriber in a place.
    #[must_use]
    pub fn is_there(&self, place: u8) -> bool {
        self.patterns[usize::from(place)].is_some()
    }

    /// What the subscriber of a place must have received, in this order.
    #[must_use]
    pub fn received(&self, place: u8) -> &[Wanted] {
        &self.received[usize::from(place)]
    }

    /// Whether a topic is not in the table yet, so that it counts as wanted.
    #[must_use]
    pub fn is_new(&self, topic: u8) -> bool {
        !self.known.contains(&topic)
    }

    pub fn join(&mut self, place: u8, patterns: &[String]) {
        self.patterns[usize::from(place)] = Some(patterns.to_vec());
        self.received[usize::from(place)].clear();
    }

    pub fn add(&mut self, place: u8, pattern: &str) {
        self.patterns[usize::from(place)].as_mut().unwrap().push(pattern.to_owned());
    }

    pub fn leave(&mut self, place: u8) {
        if self.patterns[usize::from(place)].take().is_some() {
            self.left.iter_mut().for_each(|left| *left += 1);
        }
    }

    /// Messages are published while all that are there sleep. Returns whom they are for.
    pub fn publish(&mut self, publisher: u8, topic: u8, way: Way) -> Audience {
        let name = topic_name(topic);
        let is_new = self.known.insert(topic);
        let (mut places, mut others) = (BTreeSet::new(), 0);
        for (place, patterns) in (0..PLACES).zip(&self.patterns) {
            let Some(patterns) = patterns else { continue };
            if patterns.iter().any(|pattern| matches(pattern, &name)) {
                places.insert(place);
            } else {
                others += u64::from(is_new);
            }
        }
        for sequence in self.sequence..self.sequence + u64::from(way.messages()) {
            for place in &places {
                let wanted = Wanted { sequence, topic: name.clone() };
                self.received[usize::from(*place)].push(wanted);
            }
        }
        self.sequence += u64::from(way.messages());
        Audience { places, vain: others + self.left[usize::from(publisher)] }
    }

    /// A publisher has sent this many wake-ups that `publish` calls vain. Those of subscribers that have not seen the topic
    /// count as well, so that the bound only becomes wider than it must be.
    pub fn sent_in_vain(&mut self, publisher: u8, was_new: bool, wakes: u64) {
        if !was_new {
            let left = &mut self.left[usize::from(publisher)];
            *left = left.checked_sub(wakes).expect("not more than there may be");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_for_those_that_want_its_topic() {
        let mut interests = Interests::default();
        interests.join(0, &["group/1/*".to_owned()]);
        interests.join(3, &[topic_name(0), topic_name(4)]);
        let audience = interests.publish(0, 4, Way::Batch(2));
        assert_eq!(audience, Audience { places: BTreeSet::from([0, 3]), vain: 0 });
        assert_eq!(interests.publish(0, 0, Way::One).vain, 1, "the topic is new");
        interests.leave(0);
        interests.add(3, &topic_name(1));
        let audience = interests.publish(1, 1, Way::Burst(1));
        assert_eq!(audience, Audience { places: BTreeSet::from([3]), vain: 1 });
        interests.sent_in_vain(1, false, 1);
        assert_eq!(interests.publish(1, 1, Way::One).vain, 0);
        let sequences = |place| interests.received(place).iter().map(|one| one.sequence);
        assert_eq!(sequences(0).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(sequences(3).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    }
}
