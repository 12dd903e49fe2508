//! The bytes by which a receiver proves that no message is lost, doubled or out of order.
//!
//! The first bytes of each payload, at most 8, are the little-endian word
//!
//! ```text
//!   63                                          4 3       0
//!  +---------------------------------------------+---------+
//!  | number of the message, per sender: 0, 1, …  | sender  |
//!  +---------------------------------------------+---------+
//! ```
//!
//! A short payload holds only the low bytes of the word: a payload of one byte still holds 4 bits of the number. A receiver
//! compares as many bits as arrived, and takes a difference for the smallest one that these bits allow. If exactly 16
//! messages of one byte are lost in a row, the bits do not show it, but the counts at the end do: a receiver knows how
//! many messages each sender has sent.

use crate::Failure;
use serde::{Deserialize, Serialize};

/// The number of senders that a payload can distinguish.
pub const MOST_SENDERS: u16 = 1 << SENDER_BITS;

const SENDER_BITS: u32 = 4;

/// Returns the word at the front of message `number` of `sender`.
#[inline]
#[must_use]
pub fn word(sender: u16, number: u64) -> u64 {
    number << SENDER_BITS | u64::from(sender % MOST_SENDERS)
}

/// Writes as much of the word as fits to the front of `payload`.
#[inline]
pub fn stamp(payload: &mut [u8], sender: u16, number: u64) {
    let bytes = word(sender, number).to_le_bytes();
    let length = payload.len().min(8);
    payload[..length].copy_from_slice(&bytes[..length]);
}

/// The lengths of payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lengths {
    /// All payloads have this number of bytes, at least 1.
    Fixed(usize),
    /// 1 to 8 bytes in turn: message `n` has `1 + n % 8`.
    OneToEight,
}

impl Lengths {
    /// Returns the bytes of message `number`.
    #[inline]
    #[must_use]
    pub fn of(self, number: u64) -> usize {
        match self {
            Self::Fixed(length) => length,
            // At most 8.
            Self::OneToEight => 1 + usize::from(number.to_le_bytes()[0] & 7),
        }
    }

    /// Returns the bytes of the longest message.
    #[must_use]
    pub fn longest(self) -> usize {
        match self {
            Self::Fixed(length) => length,
            Self::OneToEight => 8,
        }
    }
}

/// The numbers of messages that were lost or wrong; all 0 in a sound run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Faults {
    /// Messages that never came.
    pub lost: u64,
    /// Messages that came after one that was sent later, or twice.
    pub misordered: u64,
    /// Messages of an unknown sender, or of a wrong length.
    pub alien: u64,
}

impl Faults {
    /// Returns whether there are none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            lost: self.lost + other.lost,
            misordered: self.misordered + other.misordered,
            alien: self.alien + other.alien,
        }
    }
}

/// Checks each payload that arrives.
pub struct Checker {
    lengths: Lengths,
    /// The sender of the last message, and the expected number of its next message.
    sender: usize,
    next: u64,
    /// The expected numbers of all senders except `sender`.
    others: Vec<u64>,
    received: u64,
    faults: Faults,
}

impl Checker {
    /// Makes a checker for this number of senders.
    ///
    /// # Errors
    /// If there are none, or more than [`MOST_SENDERS`].
    pub fn new(senders: u16, lengths: Lengths) -> Result<Self, Failure> {
        if senders == 0 || senders > MOST_SENDERS {
            return Err(Failure::new(format!("{senders} senders: use 1 to {MOST_SENDERS}")));
        }
        Ok(Self {
            lengths,
            sender: 0,
            next: 0,
            others: vec![0; usize::from(senders)],
            received: 0,
            faults: Faults::default(),
        })
    }

    /// Checks one message.
    #[inline]
    pub fn check(&mut self, payload: &[u8]) {
        self.received += 1;
        let (front, mask) = front(payload);
        let expected = (self.next << SENDER_BITS | self.sender as u64) & mask;
        if front != expected || payload.len() != self.lengths.of(self.next) {
            return self.check_other(front, mask, payload.len());
        }
        self.next += 1;
    }

    /// Returns the number of messages so far.
    #[inline]
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Returns the faults, if each sender has sent this number of messages.
    #[must_use]
    pub fn verdict(mut self, sent_by_each: u64) -> Faults {
        self.others[self.sender] = self.next;
        for next in &self.others {
            self.faults.lost = self.faults.lost.saturating_add(sent_by_each.saturating_sub(*next));
            // More messages than were sent.
            let more = next.saturating_sub(sent_by_each);
            self.faults.misordered = self.faults.misordered.saturating_add(more);
        }
        self.faults
    }

    /// Checks a message that has another sender than the last one, or is wrong.
    #[cold]
    fn check_other(&mut self, front: u64, mask: u64, length: usize) {
        // Never cut off: a payload has at least one byte, or it is alien.
        let sender = usize::from(front.to_le_bytes()[0] & 0xf);
        if sender >= self.others.len() || length == 0 {
            self.faults.alien += 1;
            return;
        }
        self.others[self.sender] = self.next;
        self.sender = sender;
        self.next = self.others[sender];
        let mask = mask >> SENDER_BITS;
        let ahead = (front >> SENDER_BITS).wrapping_sub(self.next) & mask;
        if ahead > mask / 2 {
            self.faults.misordered += 1;
            return;
        }
        let number = self.next.wrapping_add(ahead);
        if length != self.lengths.of(number) {
            self.faults.alien += 1;
            return;
        }
        self.faults.lost = self.faults.lost.saturating_add(ahead);
        self.next = number.wrapping_add(1);
    }
}

/// Returns the word at the front of a payload, or as much of it as the payload holds.
#[inline]
#[must_use]
pub fn word_in(payload: &[u8]) -> u64 {
    front(payload).0
}

/// Returns the first 8 bytes as a word, and a mask of the bits that the payload has.
#[inline]
fn front(payload: &[u8]) -> (u64, u64) {
    if let Some(bytes) = payload.first_chunk::<8>() {
        return (u64::from_le_bytes(*bytes), u64::MAX);
    }
    let length = payload.len();
    let mask = (1_u64 << (8 * length)) - 1;
    // Two loads that overlap: a loop over the bytes would cost more than the message.
    let word = if let (Some(low), Some(high)) =
        (payload.first_chunk::<4>(), payload.last_chunk::<4>())
    {
        u64::from(u32::from_le_bytes(*low))
            | u64::from(u32::from_le_bytes(*high)) << (8 * (length - 4))
    } else if let (Some(low), Some(high)) = (payload.first_chunk::<2>(), payload.last_chunk::<2>())
    {
        u64::from(u16::from_le_bytes(*low))
            | u64::from(u16::from_le_bytes(*high)) << (8 * (length - 2))
    } else {
        payload.first().copied().map_or(0, u64::from)
    };
    (word, mask)
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroni_testkit::order::Digest;

    const EACH: u64 = 1000;

    /// Returns messages of three senders in some order, one to five of each sender in a row.
    fn made_up(lengths: Lengths) -> Vec<Vec<u8>> {
        let mut next = [0; 3];
        let mut messages = Vec::new();
        let mut turn = 0;
        while next.iter().any(|next| *next < EACH) {
            turn += 1;
            let sender = turn % 3;
            for _ in 0..1 + turn % 5 {
                if next[sender] < EACH {
                    let mut payload = vec![0xee; lengths.of(next[sender])];
                    stamp(&mut payload, u16::try_from(sender).unwrap(), next[sender]);
                    messages.push(payload);
                    next[sender] += 1;
                }
            }
        }
        messages
    }

    fn verdict(messages: &[Vec<u8>], lengths: Lengths) -> Faults {
        let mut checker = Checker::new(3, lengths).unwrap();
        messages.iter().for_each(|message| checker.check(message));
        assert_eq!(checker.received(), messages.len() as u64);
        checker.verdict(EACH)
    }

    const ALL: [Lengths; 5] = [
        Lengths::OneToEight,
        Lengths::Fixed(1),
        Lengths::Fixed(3),
        Lengths::Fixed(8),
        Lengths::Fixed(50),
    ];

    #[test]
    fn a_sound_run_has_no_faults() {
        for lengths in ALL {
            assert!(verdict(&made_up(lengths), lengths).is_none(), "{lengths:?}");
        }
    }

    #[test]
    fn every_single_loss_is_counted_wherever_it_is() {
        for lengths in ALL {
            let whole = made_up(lengths);
            for missing in (0..whole.len()).step_by(7).chain([0, whole.len() - 1]) {
                let mut messages = whole.clone();
                messages.remove(missing);
                let faults = verdict(&messages, lengths);
                assert_eq!(
                    faults,
                    Faults { lost: 1, misordered: 0, alien: 0 },
                    "{lengths:?} without message {missing}"
                );
            }
        }
    }

    #[test]
    fn a_long_loss_is_counted_even_where_the_numbers_wrap() {
        // Sixteen messages of one sender in a row, which a payload of one byte does not show.
        for lengths in ALL {
            let mut messages = made_up(lengths);
            let mut left = 16;
            messages.retain(|message| {
                let gone = left > 0 && message[0] & 0xf == 1;
                left -= u32::from(gone);
                !gone
            });
            assert_eq!(verdict(&messages, lengths).lost, 16, "{lengths:?}");
        }
    }

    #[test]
    fn doubled_swapped_and_foreign_messages_are_counted() {
        for lengths in ALL {
            let whole = made_up(lengths);
            let mut doubled = whole.clone();
            doubled.insert(500, whole[499].clone());
            assert!(verdict(&doubled, lengths).misordered > 0, "{lengths:?}");

            let mut swapped = whole.clone();
            let same = |message: &&Vec<u8>| message[0] & 0xf == 2;
            let first = whole.iter().position(|message| same(&message)).unwrap();
            let second = first + 1 + whole[first + 1..].iter().position(|m| same(&m)).unwrap();
            swapped.swap(first, second);
            assert!(verdict(&swapped, lengths).misordered > 0, "{lengths:?}");

            let mut foreign = whole.clone();
            foreign.insert(77, vec![0x0f; lengths.of(0)]);
            foreign.insert(99, Vec::new());
            assert_eq!(verdict(&foreign, lengths).alien, 2, "{lengths:?}");
        }
        let mut longer = made_up(Lengths::Fixed(50));
        longer[30].push(0);
        assert_eq!(verdict(&longer, Lengths::Fixed(50)).alien, 1);
    }

    #[test]
    fn orders_differ_if_two_messages_change_places() {
        let messages = made_up(Lengths::Fixed(50));
        let digest = |messages: &[Vec<u8>]| {
            let mut order = Digest::default();
            messages.iter().for_each(|message| order.add(word_in(message)));
            order.value()
        };
        let mut swapped = messages.clone();
        swapped.swap(700, 701);
        assert_eq!(digest(&messages), digest(&messages.clone()));
        assert_ne!(digest(&messages), digest(&swapped));
    }

    #[test]
    fn too_many_senders_are_refused() {
        assert!(Checker::new(MOST_SENDERS, Lengths::Fixed(1)).is_ok());
        assert!(Checker::new(MOST_SENDERS + 1, Lengths::Fixed(1)).is_err());
        assert!(Checker::new(0, Lengths::Fixed(1)).is_err());
    }
}
