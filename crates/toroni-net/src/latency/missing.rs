//! Missing: how many datagrams of a stream did not come when they were sent first. Latency begins with loss: what is missing
//! is repaired, and everything behind it waits.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

/// A longer step is believed only if a second datagram continues it: one that is forged must not count as a loss of many.
const JUMP: u64 = 65_536;
/// So far behind the latest one, a datagram that comes late still counts as one that came.
const REACH: u64 = 1_024;
const WORDS: usize = 16;

/// Counts what is missing.
#[derive(Clone, Debug)]
pub(super) struct Missing {
    /// All before it were sent. `None` before the first datagram of a session.
    next: Option<u64>,
    /// Of the last [`REACH`] before that, which came: one bit each.
    came: [u64; WORDS],
    /// Where a step led that was not believed yet.
    jump: Option<u64>,
    count: u64,
}

impl Missing {
    pub(super) const fn new() -> Self {
        Self { next: None, came: [0; WORDS], jump: None, count: 0 }
    }

    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// Begins again, because the source did. What was missing stays counted.
    pub(super) fn restart(&mut self) {
        (self.next, self.jump) = (None, None);
    }

    /// The datagram with this sequence came.
    pub(super) fn came(&mut self, sequence: u64) {
        if self.next.is_none() {
            self.begin(sequence);
        }
        let believed = self.jump;
        self.sent(sequence.saturating_add(1));
        if believed.is_some() && self.jump.is_none() {
            // The one that led there came, too.
            believed.into_iter().for_each(|until| self.mark(until.saturating_sub(1)));
        }
        self.mark(sequence);
    }

    /// Marks one as come that was counted as missing before.
    fn mark(&mut self, sequence: u64) {
        let Some(next) = self.next else { return };
        let (word, bit) = place(sequence);
        let is_late =
            next.checked_sub(sequence).is_some_and(|behind| (1..=REACH).contains(&behind));
        if is_late && self.came[word] & bit == 0 {
            self.came[word] |= bit;
            self.count = self.count.saturating_sub(1);
        }
    }

    /// All datagrams before this one were sent.
    pub(super) fn sent(&mut self, until: u64) {
        let Some(next) = self.next else { return self.begin(until) };
        let Some(step) = until.checked_sub(next).filter(|step| *step > 0) else { return };
        let continues =
            |jump: u64| until.checked_sub(jump).is_some_and(|more| (1..=JUMP).contains(&more));
        if step > JUMP && !self.jump.is_some_and(continues) {
            self.jump = Some(until);
            return;
        }
        for sequence in until.saturating_sub(step.min(REACH))..until {
            let (word, bit) = place(sequence);
            self.came[word] &= !bit;
        }
        self.count = self.count.saturating_add(step);
        (self.next, self.jump) = (Some(until), None);
    }

    /// What was sent before is none of this count.
    fn begin(&mut self, next: u64) {
        self.next = Some(next);
        self.came = [u64::MAX; WORDS];
    }
}

/// Returns the word and the bit of a sequence.
fn place(sequence: u64) -> (usize, u64) {
    let at = sequence % REACH;
    (usize::try_from(at / 64).unwrap_or(0), 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn after(sequences: impl IntoIterator<Item = u64>) -> u64 {
        let mut missing = Missing::new();
        sequences.into_iter().for_each(|sequence| missing.came(sequence));
        missing.count()
    }

    #[test]
    fn what_comes_late_or_twice_is_not_missing() {
        assert_eq!(after(100..200), 0);
        assert_eq!(after([5, 6, 9, 10]), 2);
        assert_eq!(after([5, 6, 9, 7, 7, 10, 10, 8]), 0);
        // What was sent before the first one does not count.
        assert_eq!(after([5, 4, 3, 6]), 0);
        // Too late to know.
        assert_eq!(after([5].into_iter().chain(7..7 + REACH).chain([6])), 1);
    }

    #[test]
    fn a_session_tells_of_the_last_ones() {
        let mut missing = Missing::new();
        missing.sent(10);
        missing.came(10);
        missing.sent(13);
        assert_eq!(missing.count(), 2);
        missing.came(12);
        assert_eq!(missing.count(), 1);
        missing.restart();
        missing.came(0);
        assert_eq!(missing.count(), 1);
    }

    #[test]
    fn a_jump_is_believed_when_it_continues() {
        let far = 1 << 60;
        let mut missing = Missing::new();
        missing.came(0);
        missing.came(far);
        missing.came(1);
        assert_eq!(missing.count(), 0);
        missing.came(far + 1);
        assert_eq!(missing.count(), 0);
        missing.came(far + 2);
        // From 2 to `far`.
        assert_eq!(missing.count(), far - 1);
        missing.came(far);
        assert_eq!(missing.count(), far - 2);
    }

    proptest! {
        #[test]
        fn it_counts_as_a_set_does(sequences in proptest::collection::vec(0_u64..900, 1..300)) {
            let set: BTreeSet<u64> =
                sequences.iter().copied().filter(|it| *it >= sequences[0]).collect();
            let last = set.last().copied().unwrap_or(0);
            let naive = last + 1 - sequences[0] - set.len() as u64;
            prop_assert_eq!(after(sequences), naive);
        }
    }
}
