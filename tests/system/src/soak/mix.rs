//! The kinds of messages of a soak, their topics, and what subscribers ask for.

use std::fmt;

/// A kind of message. A publisher's messages of one lane are a chain of their own, so that a subscriber
/// that asks only for that lane notices a missing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Some bytes to a few hundred, on a topic that has the publisher's number in it.
    Small,
    /// Up to several blocks of the ring.
    Large,
    /// No byte to a few, on a topic of the worker: the table of topics fills up, and then these topics
    /// travel inline.
    Tiny,
    Tree,
    /// On one of many topics that all publishers share.
    Many,
    /// The supervisor's last words, by which blocking calls end.
    Bye,
}

/// How many lanes there are.
pub const LANES: usize = 6;
/// Topics of [`Lane::Many`].
pub const MANY: u64 = 24;
/// Longest message of [`Lane::Tiny`], in bytes: the shortest that has a label is longer.
pub const LONGEST_TINY: usize = 16;

impl Lane {
    /// All, in the order of their numbers.
    pub const ALL: [Self; LANES] =
        [Self::Small, Self::Large, Self::Tiny, Self::Tree, Self::Many, Self::Bye];

    /// Its number, from 0.
    #[must_use]
    pub fn number(self) -> usize {
        self as usize
    }

    /// The lane of this number.
    #[must_use]
    pub fn of_number(number: usize) -> Option<Self> {
        Self::ALL.get(number).copied()
    }

    fn word(self) -> &'static str {
        ["small", "large", "tiny", "tree", "many", "bye"][self.number()]
    }

    /// The topic of a message: `number` is the publisher's among those that run at a time, `chance` any
    /// number.
    #[must_use]
    pub fn topic(self, number: u32, worker: u32, chance: u64) -> String {
        let word = self.word();
        match self {
            Self::Tiny => format!("soak/{word}/{worker}"),
            Self::Many => format!("soak/{word}/{}", chance % MANY),
            _ => format!("soak/{word}/{number}"),
        }
    }

    /// The lane of a topic, and the number at its end; `None` if no publisher uses such a topic.
    #[must_use]
    pub fn of_topic(topic: &str) -> Option<(Self, u32)> {
        let (word, number) = topic.strip_prefix("soak/")?.split_once('/')?;
        let lane = Self::ALL.into_iter().find(|lane| lane.word() == word)?;
        Some((lane, number.parse().ok()?))
    }
}

/// A set of lanes: what a subscriber asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Filter {
    lanes: u8,
    patterns: &'static [&'static str],
}

impl Filter {
    pub const ALL: Self = Self { lanes: 0b11_1111, patterns: &["**"] };

    /// What subscribers ask for; each hears the supervisor's last words.
    pub const CHOICES: [Self; 8] = [
        Self::ALL,
        Self {
            lanes: 0b11_1111,
            // Some match twice: they are received once.
            patterns: &["soak/tiny/**", "soak/*/*", "soak/tree/*/leaf/*", "soak/**", "soak/bye/*"],
        },
        Self { lanes: 0b10_0101, patterns: &["soak/small/*", "soak/tiny/*", "soak/bye/**"] },
        Self { lanes: 0b10_0010, patterns: &["soak/large/**", "soak/bye/**"] },
        // Messages to descendants are not posted on the topics below.
        Self { lanes: 0b10_1000, patterns: &["soak/tree/*/leaf/*", "soak/bye/*"] },
        Self { lanes: 0b11_1000, patterns: &["soak/many/*", "soak/tree/**", "soak/bye/*"] },
        Self { lanes: 0b10_0100, patterns: &["*/tiny/*", "*/bye/*"] },
        // It passes over all that comes before.
        Self { lanes: 0b10_0000, patterns: &["soak/bye/*"] },
    ];

    /// The patterns that ask for it.
    #[must_use]
    pub fn patterns(self) -> &'static [&'static str] {
        self.patterns
    }

    /// Whether messages of this lane are asked for.
    #[must_use]
    pub fn has(self, lane: Lane) -> bool {
        self.lanes >> lane.number() & 1 == 1
    }

    #[must_use]
    pub fn is_all(self) -> bool {
        self.lanes == Self::ALL.lanes
    }

    /// The lanes in it.
    pub fn lanes(self) -> impl Iterator<Item = Lane> {
        Lane::ALL.into_iter().filter(move |lane| self.has(*lane))
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.patterns.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroni::{Pattern, Topic};

    #[test]
    fn a_topic_tells_its_lane_and_patterns_match_what_their_filter_says() {
        for lane in Lane::ALL {
            let topic = lane.topic(3, 70, 29);
            assert_eq!(Lane::of_topic(&topic).map(|(lane, _)| lane), Some(lane));
            assert_eq!(Lane::of_number(lane.number()), Some(lane));
            for filter in Filter::CHOICES {
                let name = Topic::new(&topic).unwrap();
                let matches = filter.patterns().iter().any(|pattern| {
                    let pattern = Pattern::new(pattern).unwrap();
                    if lane == Lane::Tree {
                        pattern.matches_descendants(name.as_str())
                    } else {
                        pattern.matches(name.as_str())
                    }
                });
                assert_eq!(matches, filter.has(lane), "{filter:?} and {topic}");
            }
        }
        assert_eq!(Lane::of_topic("soak/other/1"), None);
        assert_eq!(Lane::of_topic("soak/tiny/x"), None);
    }
}
