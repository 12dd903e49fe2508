//! Checks that messages are complete, not doubled and in order: per sender ([`Senders`]) and among all receivers
//! ([`Digest`], [`Agreement`]).

use std::collections::{BTreeMap, HashMap};

/// A sequence of numbers, condensed into one. Receivers that saw the same messages in the same order have the same
/// digest; others have, except for one case in 2⁶⁴, a different one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest(u64);

impl Digest {
    /// Adds the next number of the sequence.
    #[inline]
    pub fn add(&mut self, number: u64) {
        // An odd factor loses nothing. The rotation moves the high bits, which are mixed best, down.
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }

    /// Returns the digest.
    #[inline]
    #[must_use]
    pub fn value(self) -> u64 {
        self.0
    }
}

/// Where a message stands among those of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The first message of this sender, with any number.
    First,
    /// The expected message.
    Next,
    /// That many messages are missing before it.
    Gap(u64),
    /// It came already, or later than one that was sent after it. This many messages after it were seen.
    Late(u64),
}

/// The next message number of each sender. Senders number their messages 0, 1, 2, ….
#[derive(Clone, Debug, Default)]
pub struct Senders {
    next: HashMap<u32, u64>,
}

impl Senders {
    /// Takes a message. If it is late, the expected number stays.
    pub fn take(&mut self, sender: u32, number: u64) -> Step {
        let step = match self.expected(sender) {
            None => Step::First,
            Some(next) if number == next => Step::Next,
            Some(next) if number > next => Step::Gap(number - next),
            Some(next) => return Step::Late(next - number),
        };
        self.next.insert(sender, number + 1);
        step
    }

    /// Returns the number of the next message of a sender, if one came before.
    #[must_use]
    pub fn expected(&self, sender: u32) -> Option<u64> {
        self.next.get(&sender).copied()
    }

    /// Returns the next number of each sender: how many messages it has sent, as far as this receiver knows.
    #[must_use]
    pub fn next(&self) -> &HashMap<u32, u64> {
        &self.next
    }
}

/// Compares what several receivers saw, one window of messages at a time.
#[derive(Debug, Default)]
pub struct Agreement {
    windows: BTreeMap<u64, (u64, String)>,
    compared: u64,
}

impl Agreement {
    /// Takes the digest of a window that `receiver` saw.
    ///
    /// # Errors
    /// If another receiver saw something else. The text names both.
    pub fn take(&mut self, receiver: &str, window: u64, digest: u64) -> Result<(), String> {
        match self.windows.get(&window) {
            Some((known, other)) if *known != digest => {
                Err(format!("{receiver} and {other} saw window {window} in different orders"))
            }
            Some(_) => {
                self.compared += 1;
                Ok(())
            }
            None => {
                self.windows.insert(window, (digest, receiver.to_owned()));
                Ok(())
            }
        }
    }

    /// Returns how often a window was the same as another receiver saw it.
    #[must_use]
    pub fn compared(&self) -> u64 {
        self.compared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_differ_if_two_messages_change_places() {
        let digest = |numbers: &[u64]| {
            let mut digest = Digest::default();
            numbers.iter().for_each(|number| digest.add(*number));
            digest.value()
        };
        assert_eq!(digest(&[1, 2, 3]), digest(&[1, 2, 3]));
        assert_ne!(digest(&[1, 2, 3]), digest(&[1, 3, 2]));
        assert_ne!(digest(&[1, 2]), digest(&[1, 2, 3]));
    }

    #[test]
    fn gaps_and_late_messages_are_found_per_sender() {
        let mut senders = Senders::default();
        assert_eq!(senders.take(1, 0), Step::First);
        assert_eq!(senders.take(2, 7), Step::First);
        assert_eq!(senders.take(1, 1), Step::Next);
        assert_eq!(senders.take(2, 10), Step::Gap(2));
        assert_eq!(senders.take(2, 8), Step::Late(3));
        assert_eq!(senders.take(2, 11), Step::Next);
        assert_eq!(senders.next()[&2], 12);
    }

    #[test]
    fn receivers_that_disagree_are_named() {
        let mut agreement = Agreement::default();
        agreement.take("a", 0, 7).unwrap();
        agreement.take("b", 0, 7).unwrap();
        assert_eq!(agreement.compared(), 1);
        let error = agreement.take("c", 0, 8).unwrap_err();
        assert!(error.contains('c') && error.contains('a'), "{error}");
    }
}
