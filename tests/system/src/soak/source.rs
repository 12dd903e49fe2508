//! The messages of one publisher.
//!
//! Most have a label: a number among all messages of the publisher, the way back to the one before it in
//! its lane, and its place in a batch. It travels as the counter of a [`Payload`], which says whether the
//! bytes are whole:
//!
//! ```text
//!  63            28 27         8 7       4 3       0
//!  +---------------+------------+---------+---------+
//!  | counter       | since      | index   | behind  |
//!  +---------------+------------+---------+---------+
//! ```
//!
//! Tiny messages have no room for that: their first byte counts, and the others follow from it, from the
//! worker and from the length.

use super::mix::{LANES, LONGEST_TINY, Lane};
use crate::payload::{self, Payload};

/// Most messages of a batch.
pub const LONGEST_BATCH: usize = 16;

const SINCE_BITS: u32 = 20;
const COUNTER_BITS: u32 = 36;

/// What a message says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    pub worker: u32,
    /// Its number among all messages of that worker, from 0.
    pub counter: u64,
    /// How much less the counter of the message before it in its lane is; 0 for the first of a lane.
    pub since: u64,
    /// Its number in its batch, from 0.
    pub index: u8,
    /// How many of its batch come after it.
    pub behind: u8,
}

/// What was read of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// It has a label.
    Labelled(Label),
    /// It is tiny: of this worker, and this is what it counts; an empty one does not say.
    Tiny(u32, Option<u8>),
}

/// The messages of one publisher, one after the other.
#[derive(Debug)]
pub struct Source {
    worker: u32,
    counter: u64,
    /// Of each lane, the counter of the last message.
    last: [Option<u64>; LANES],
    tiny: u8,
}

impl Source {
    /// Of a worker that has not published yet.
    #[must_use]
    pub fn new(worker: u32) -> Self {
        Self { worker, counter: 0, last: [None; LANES], tiny: 0 }
    }

    /// Messages published so far.
    #[must_use]
    pub fn counter(&self) -> u64 {
        self.counter
    }

    /// Writes into `bytes` the message that comes `ahead` messages after the next, all of them in one
    /// lane; one of a batch of that many, if `batch` is not 0. It may become longer than `length`, if that
    /// leaves no room for a label, and shorter if it is tiny.
    pub fn compose(
        &self,
        lane: Lane,
        ahead: usize,
        batch: usize,
        length: usize,
        bytes: &mut Vec<u8>,
    ) {
        if lane == Lane::Tiny {
            let nonce = self.tiny.wrapping_add((ahead & 0xFF).to_le_bytes()[0]);
            return compose_tiny(self.worker, nonce, length.min(LONGEST_TINY), bytes);
        }
        assert!(batch <= LONGEST_BATCH && ahead < batch.max(LONGEST_BATCH));
        let counter = self.counter + ahead as u64;
        let last = if ahead > 0 { Some(counter - 1) } else { self.last[lane.number()] };
        let since = last.map_or(0, |last| counter - last);
        assert!(counter >> COUNTER_BITS == 0 && since >> SINCE_BITS == 0, "a label has no room");
        let in_batch = if batch == 0 { 0 } else { ahead << 4 | (batch - 1 - ahead) };
        let packed = counter << (64 - COUNTER_BITS) | since << 8 | in_batch as u64;
        payload::encode(Payload { worker: self.worker, counter: packed }, length, bytes);
    }

    /// Notes that `count` messages of the lane were published.
    pub fn advance(&mut self, lane: Lane, count: usize) {
        if count == 0 {
            return;
        }
        self.counter += count as u64;
        self.last[lane.number()] = Some(self.counter - 1);
        if lane == Lane::Tiny {
            self.tiny = self.tiny.wrapping_add((count & 0xFF).to_le_bytes()[0]);
        }
    }
}

/// Reads a message of a topic of the lane, whose number is `number`.
///
/// # Errors
/// If it is not, to the bit, what a [`Source`] wrote.
pub fn read(lane: Lane, number: u32, bytes: &[u8]) -> Result<Read, String> {
    if lane == Lane::Tiny {
        let nonce = bytes.first().copied();
        let mut expected = Vec::new();
        compose_tiny(number, nonce.unwrap_or(0), bytes.len().min(LONGEST_TINY), &mut expected);
        if expected != bytes {
            return Err(format!(
                "torn: {bytes:02x?} of worker {number}, who wrote {expected:02x?}"
            ));
        }
        return Ok(Read::Tiny(number, nonce));
    }
    let Payload { worker, counter: packed } = payload::decode(bytes)?;
    let nibble = |at: u32| u8::try_from(packed >> at & 0xF).unwrap_or(0);
    let (counter, since) = (packed >> (64 - COUNTER_BITS), packed >> 8 & ((1 << SINCE_BITS) - 1));
    Ok(Read::Labelled(Label { worker, counter, since, index: nibble(4), behind: nibble(0) }))
}

fn compose_tiny(worker: u32, nonce: u8, length: usize, bytes: &mut Vec<u8>) {
    bytes.clear();
    let mut word = u64::from(worker) << 16 | u64::from(nonce) << 8 | length as u64;
    for at in 0..length {
        word = (word ^ word >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bytes.push(if at == 0 { nonce } else { (word >> 40).to_le_bytes()[0] });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_say_what_came_before() {
        let (mut source, mut bytes) = (Source::new(9), Vec::new());
        let mut next = |source: &mut Source, lane, ahead, batch| {
            source.compose(lane, ahead, batch, 60, &mut bytes);
            read(lane, 9, &bytes).unwrap()
        };
        let label = Label { worker: 9, counter: 0, since: 0, index: 0, behind: 0 };
        assert_eq!(next(&mut source, Lane::Small, 0, 0), Read::Labelled(label));
        source.advance(Lane::Small, 1);
        assert_eq!(
            next(&mut source, Lane::Large, 2, 5),
            Read::Labelled(Label { counter: 3, since: 1, index: 2, behind: 2, ..label })
        );
        source.advance(Lane::Large, 5);
        assert_eq!(next(&mut source, Lane::Tiny, 1, 0), Read::Tiny(9, Some(1)));
        source.advance(Lane::Tiny, 255);
        assert_eq!(next(&mut source, Lane::Tiny, 1, 0), Read::Tiny(9, Some(0)));
        assert_eq!(
            next(&mut source, Lane::Small, 0, 0),
            Read::Labelled(Label { counter: 261, since: 261, ..label })
        );
        assert_eq!(source.counter(), 261);
    }

    #[test]
    fn no_bit_of_a_message_may_change() {
        let source = Source::new(77);
        for (lane, lengths) in [(Lane::Tiny, 2..=16), (Lane::Many, 1..=60)] {
            for length in lengths {
                let mut bytes = Vec::new();
                source.compose(lane, 0, 0, length, &mut bytes);
                assert!(read(lane, 77, &bytes).is_ok());
                for bit in 0..bytes.len() * 8 {
                    let mut broken = bytes.clone();
                    broken[bit / 8] ^= 1 << (bit % 8);
                    // Another count is another message: its other bytes must not fit.
                    let is_noticed = read(lane, 77, &broken).is_err();
                    assert!(is_noticed || length == 2, "bit {bit} of {length} bytes in {lane:?}");
                }
            }
        }
    }
}
