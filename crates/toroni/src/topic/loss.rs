//! LOSS records: a loss on the way here, told at its place in the order of the bus.
//!
//! ```text
//!  byte 0        16          24             32      33       34         35    40
//!       +--------+-----------+--------------+-------+--------+----------+-----+-------------------------+-------+
//!       | origin | until u64 | messages u64 | bound | reason | patterns | 0   | (length u8, pattern) …  | zero  |
//!       |        |           |              | u8    | u8     | u8       |     | once for each pattern   | 0 … 7 |
//!       +--------+-----------+--------------+-------+--------+----------+-----+-------------------------+-------+
//!       |<---------------------------- length of the record: a multiple of 8 ---------------------------------->|
//! ```
//!
//! Integers are little-endian. The header of the record is [`Tag::loss`](super::frame::Tag::loss). The number in `origin`
//! is that of the first message that may be lost.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::frame::FrameError;
use super::origin::{ORIGIN_BYTES, Origin};
use super::pattern::{Pattern, PatternSet};
use std::fmt;

/// Messages that were lost on their way to this bus. A subscriber gets this report with
/// [`ReceiveError::Lost`](crate::ReceiveError::Lost).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The stream, and in `number` the first number that may be lost.
    pub from: Origin,
    /// The number after the last one that may be lost, in the same series; at least `from.number`, at most
    /// [`Origin::NUMBER_LIMIT`].
    pub until: u64,
    /// How many messages were lost. `bound` says how exact that is. It may be less than the difference of the numbers,
    /// which also count messages of other streams.
    pub messages: u64,
    /// How exact `messages` is.
    pub bound: LostBound,
    /// Why they were lost.
    pub reason: LostReason,
    /// Patterns of the topics that they may have had: 1 to [`Self::MOST_PATTERNS`]. A subscriber learns of the loss if
    /// one of its patterns and one of these could match the same topic.
    pub scope: Vec<Pattern>,
}

/// How exact a number of lost messages is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LostBound {
    /// It is exact.
    Exact = 0,
    /// There were at least as many.
    AtLeast = 1,
    /// There were at most as many.
    AtMost = 2,
}

/// Why messages were lost on the way to a bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum LostReason {
    /// The sender no longer had them.
    Gone = 1,
    /// They could not be repaired in the time that the receiver waits for repairs.
    Budget = 2,
    /// The receiver had no memory left to hold what came after them.
    Memory = 3,
    /// More of them were missing at once than the receiver keeps track of.
    Burst = 4,
    /// The sender was suddenly far ahead.
    Jump = 5,
    /// The source restarted with a new series.
    Restart = 6,
    /// The source fell silent. What it published last is unknown.
    Silent = 7,
    /// The name of their topic did not arrive.
    Topic = 8,
    /// They were too long for the network or for this bus.
    TooLong = 9,
    /// At the source, publishers overtook the program that sends the messages on.
    Overtaken = 10,
    /// The members of a replicated service disagreed about them.
    Diverged = 11,
}

impl LostReason {
    /// All reasons that this release knows, by their numbers.
    pub const ALL: &'static [Self] = &[
        Self::Gone,
        Self::Budget,
        Self::Memory,
        Self::Burst,
        Self::Jump,
        Self::Restart,
        Self::Silent,
        Self::Topic,
        Self::TooLong,
        Self::Overtaken,
        Self::Diverged,
    ];

    /// Returns its name as programs print it, such as `too_long`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::Budget => "budget",
            Self::Memory => "memory",
            Self::Burst => "burst",
            Self::Jump => "jump",
            Self::Restart => "restart",
            Self::Silent => "silent",
            Self::Topic => "topic",
            Self::TooLong => "too_long",
            Self::Overtaken => "overtaken",
            Self::Diverged => "diverged",
        }
    }

    fn explanation(self) -> &'static str {
        match self {
            Self::Gone => "their sender no longer had them",
            Self::Budget => "they could not be repaired in time",
            Self::Memory => "the receiver had no memory left to wait for them",
            Self::Burst => "too many were missing at once",
            Self::Jump => "their sender was suddenly far ahead",
            Self::Restart => "their source restarted",
            Self::Silent => "their source fell silent",
            Self::Topic => "the name of their topic did not arrive",
            Self::TooLong => "they were too long",
            Self::Overtaken => "they were overwritten at their source before they were sent",
            Self::Diverged => "the members of the service that orders them disagreed",
        }
    }
}

impl LostBound {
    /// All bounds, by their numbers.
    pub const ALL: [Self; 3] = [Self::Exact, Self::AtLeast, Self::AtMost];

    /// Returns its name as programs print it, such as `at_least`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::AtLeast => "at_least",
            Self::AtMost => "at_most",
        }
    }
}

impl Lost {
    /// The most patterns that [`Self::scope`] may have.
    pub const MOST_PATTERNS: usize = 16;
    /// The length of the longest record, without its header.
    pub(crate) const MOST_BYTES: usize =
        SCOPE_OFFSET + Self::MOST_PATTERNS * (1 + super::Topic::MAX_BYTES);

    /// Returns whether a subscriber with these patterns gets the report.
    pub(crate) fn concerns(&self, patterns: &PatternSet) -> bool {
        patterns.iter().any(|mine| self.scope.iter().any(|lost| lost.intersects(mine)))
    }

    /// Returns what follows the header of its record. Requires that the numbers and the scope are within their limits.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(256);
        bytes.extend(self.from.to_bytes());
        bytes.extend(self.until.to_le_bytes());
        bytes.extend(self.messages.to_le_bytes());
        bytes.extend([self.bound as u8, self.reason as u8]);
        bytes.push(u8::try_from(self.scope.len()).expect("at most 16 patterns"));
        bytes.resize(SCOPE_OFFSET, 0);
        for pattern in &self.scope {
            bytes.push(u8::try_from(pattern.as_str().len()).expect("at most 255 bytes"));
            bytes.extend(pattern.as_str().as_bytes());
        }
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    /// Reads what [`Self::encode`] has written, from a private copy of the record.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        let (head, mut rest) = bytes
            .split_at_checked(SCOPE_OFFSET)
            .ok_or(FrameError::Truncated { wanted: SCOPE_OFFSET, available: bytes.len() })?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| head[at..][byte]));
        let from = Origin::from_bytes(std::array::from_fn(|at| head[at]));
        let until = word(ORIGIN_BYTES);
        let (bound, reason, patterns) =
            (head[FLAGS_OFFSET], head[FLAGS_OFFSET + 1], head[FLAGS_OFFSET + 2]);
        let invalid = |what, value| FrameError::InvalidLoss { what, value };
        if !(from.number..=Origin::NUMBER_LIMIT).contains(&until) {
            return Err(invalid("last number", until));
        }
        let bound = LostBound::ALL
            .into_iter()
            .find(|known| *known as u8 == bound)
            .ok_or(invalid("bound", bound.into()))?;
        let reason = LostReason::ALL
            .iter()
            .copied()
            .find(|known| *known as u8 == reason)
            .ok_or(invalid("reason", reason.into()))?;
        if !(1..=Self::MOST_PATTERNS).contains(&usize::from(patterns)) {
            return Err(invalid("number of patterns", patterns.into()));
        }
        let mut scope = Vec::with_capacity(patterns.into());
        for index in 0..u64::from(patterns) {
            let (length, text) =
                rest.split_first().ok_or(invalid("length of a pattern's text", index))?;
            let (text, after) = text
                .split_at_checked(usize::from(*length))
                .ok_or(invalid("length of a pattern's text", (*length).into()))?;
            let text = std::str::from_utf8(text).map_err(|_| invalid("pattern", index))?;
            scope.push(Pattern::new(text).map_err(|_| invalid("pattern", index))?);
            rest = after;
        }
        if rest.len() >= 8 || rest.iter().any(|byte| *byte != 0) {
            return Err(invalid("length", bytes.len() as u64));
        }
        Ok(Self { from, until, messages: word(ORIGIN_BYTES + 8), bound, reason, scope })
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = match self.bound {
            LostBound::Exact => "",
            LostBound::AtLeast => "at least ",
            LostBound::AtMost => "at most ",
        };
        let noun = if self.messages == 1 { "message" } else { "messages" };
        let Origin { source, stream, .. } = self.from;
        write!(
            formatter,
            "{bound}{} {noun} of stream {stream} of source {source:08x} were lost on the way to this bus: {}",
            self.messages,
            self.reason.explanation()
        )
    }
}

const FLAGS_OFFSET: usize = ORIGIN_BYTES + 16;
const SCOPE_OFFSET: usize = FLAGS_OFFSET + 8;

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lost(scope: &[&str]) -> Lost {
        Lost {
            from: Origin { source: 0xA, series: 0xB, stream: 3, number: 7 },
            until: 9,
            messages: 1,
            bound: LostBound::AtMost,
            reason: LostReason::TooLong,
            scope: scope.iter().map(|text| Pattern::new(text).unwrap()).collect(),
        }
    }

    #[test]
    fn a_loss_has_the_documented_bytes() {
        let bytes = lost(&["a/**", "b"]).encode();
        assert_eq!(bytes[..16], lost(&["a"]).from.to_bytes());
        assert_eq!(bytes[16..24], [9, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[24..32], [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[32..40], [2, 9, 2, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[40..], *b"\x04a/**\x01b\0");
    }

    #[test]
    fn it_says_what_happened() {
        assert_eq!(
            lost(&["**"]).to_string(),
            "at most 1 message of stream 3 of source 0000000a were lost on the way to this bus: they were too long"
        );
    }

    #[test]
    fn it_concerns_those_whose_patterns_intersect_its_scope() {
        let loss = lost(&["plant/**", "alarm/*"]);
        let told = |pattern: &str| {
            let mut patterns = PatternSet::default();
            patterns.push(Pattern::new("elsewhere").unwrap());
            patterns.push(Pattern::new(pattern).unwrap());
            loss.concerns(&patterns)
        };
        assert!(told("plant/boiler/*") && told("*/fire") && told("**"));
        assert!(!told("plants/**") && !told("alarm") && !told("alarm/fire/1"));
        assert!(!loss.concerns(&PatternSet::default()), "it has no patterns");
    }

    #[test]
    fn every_reason_and_bound_has_a_number_and_a_name_of_its_own() {
        for (index, &reason) in LostReason::ALL.iter().enumerate() {
            assert_eq!(reason as usize, index + 1);
            assert_eq!(
                Lost::decode(&Lost { reason, ..lost(&["a"]) }.encode()).unwrap().reason,
                reason
            );
        }
        for (index, bound) in LostBound::ALL.into_iter().enumerate() {
            assert_eq!(bound as usize, index);
        }
        let mut names: Vec<_> = LostReason::ALL.iter().map(|reason| reason.as_str()).collect();
        names.extend(LostBound::ALL.map(LostBound::as_str));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), LostReason::ALL.len() + LostBound::ALL.len());
    }

    #[test]
    fn refuses_what_no_library_writes() {
        let whole = lost(&["a/**", "b"]).encode();
        let refused = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = whole.clone();
            change(&mut bytes);
            match Lost::decode(&bytes) {
                Err(FrameError::InvalidLoss { what, value }) => (what, value),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(refused(&|bytes| bytes[16] = 6), ("last number", 6));
        assert_eq!(refused(&|bytes| bytes[22] = 2), ("last number", (2 << 48) + 9));
        assert_eq!(refused(&|bytes| bytes[32] = 3), ("bound", 3));
        assert_eq!(refused(&|bytes| bytes[33] = 0), ("reason", 0));
        assert_eq!(refused(&|bytes| bytes[33] = 12), ("reason", 12));
        assert_eq!(refused(&|bytes| bytes[34] = 0), ("number of patterns", 0));
        assert_eq!(refused(&|bytes| bytes[34] = 17), ("number of patterns", 17));
        assert_eq!(refused(&|bytes| bytes[40] = 9), ("length of a pattern's text", 9));
        assert_eq!(refused(&|bytes| bytes[46] = b'+'), ("pattern", 1));
        assert_eq!(refused(&|bytes| bytes[46] = 0xFF), ("pattern", 1));
        assert_eq!(refused(&|bytes| bytes[47] = 1), ("length", 48));
        assert_eq!(refused(&|bytes| bytes.extend([0; 8])), ("length", 56));
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            source: u32,
            series: u32,
            stream: u16,
            number in 0..Origin::NUMBER_LIMIT,
            more in 0..1u64 << 40,
            messages: u64,
            bound in 0..LostBound::ALL.len(),
            reason in 0..LostReason::ALL.len(),
            scope in proptest::collection::vec("[a-z]{1,8}(/[a-z*]){0,3}(/[*][*])?|[x]{255}", 1..=16),
        ) {
            let lost = Lost {
                from: Origin { source, series, stream, number },
                until: (number + more).min(Origin::NUMBER_LIMIT),
                messages,
                bound: LostBound::ALL[bound],
                reason: LostReason::ALL[reason],
                scope: scope.iter().map(|text| Pattern::new(text).unwrap()).collect(),
            };
            let bytes = lost.encode();
            prop_assert_eq!(bytes.len() % 8, 0);
            prop_assert_eq!(Lost::decode(&bytes), Ok(lost));
            // Of any length from 0 to 7 over a multiple of 8.
            for cut in (0..bytes.len() - 7).step_by(7) {
                prop_assert!(Lost::decode(&bytes[..cut]).is_err(), "{cut}");
            }
        }

        #[test]
        fn decoding_never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..600), plausible: bool) {
            if plausible && bytes.len() >= 40 {
                bytes[16..24].copy_from_slice(&Origin::NUMBER_LIMIT.to_le_bytes());
                (bytes[32], bytes[33]) = (bytes[32] % 3, 1 + bytes[33] % 11);
                bytes[34] = 1 + bytes[34] % 16;
                for byte in &mut bytes[40..] {
                    *byte %= 24;
                }
            }
            if let Ok(lost) = Lost::decode(&bytes) {
                prop_assert_eq!(lost.encode(), bytes);
            }
        }
    }
}
