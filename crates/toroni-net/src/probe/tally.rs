//! Tally: what became of numbered questions.

/// Counts numbers from 0 on that arrive with gaps, twice, or late.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// The least and the greatest number that came.
    span: Option<(u64, u64)>,
    /// Which of the last numbers came: bit 0 is the greatest one.
    seen: [u64; WORDS],
    came: u64,
    doubled: u64,
    reordered: u64,
}

const WORDS: usize = 16;
const BITS: u64 = 64;
/// How far back a duplicate can be distinguished from a late number.
const MEMORY: u64 = WORDS as u64 * BITS;

impl Tally {
    /// Notes that a number came. Returns whether it is new.
    pub fn record(&mut self, number: u64) -> bool {
        let Some((first, last)) = self.span else {
            self.span = Some((number, number));
            self.came = 1;
            self.seen[0] = 1;
            return true;
        };
        if number > last {
            self.shift(number - last);
            self.span = Some((first, number));
        } else {
            let back = last - number;
            if back >= MEMORY || self.bit(back) {
                // What is that old came before, or counts as lost already.
                self.doubled += 1;
                return false;
            }
            self.reordered += 1;
            self.span = Some((first.min(number), last));
        }
        let back = self.span.map_or(0, |(_, last)| last - number);
        self.set(back);
        self.came += 1;
        true
    }

    fn shift(&mut self, by: u64) {
        let mut shifted = [0; WORDS];
        for back in (0..MEMORY.saturating_sub(by)).filter(|back| self.bit(*back)) {
            let at = back + by;
            shifted[word(at)] |= 1 << (at % BITS);
        }
        self.seen = shifted;
    }

    fn bit(&self, back: u64) -> bool {
        self.seen[word(back)] & 1 << (back % BITS) != 0
    }

    fn set(&mut self, back: u64) {
        self.seen[word(back)] |= 1 << (back % BITS);
    }

    /// Returns how many came, each once.
    #[must_use]
    pub fn came(&self) -> u64 {
        self.came
    }

    /// Returns how many there were, from the first that came to the last.
    #[must_use]
    pub fn of(&self) -> u64 {
        self.span.map_or(0, |(first, last)| (last - first).saturating_add(1))
    }

    /// Returns how many did not come, of those.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.of().saturating_sub(self.came)
    }

    /// Returns how many came again.
    #[must_use]
    pub fn doubled(&self) -> u64 {
        self.doubled
    }

    /// Returns how many came after a later one.
    #[must_use]
    pub fn reordered(&self) -> u64 {
        self.reordered
    }
}

/// The word of a bit; bits are below [`MEMORY`].
fn word(bit: u64) -> usize {
    usize::try_from(bit / BITS).unwrap_or(0) % WORDS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn of(numbers: &[u64]) -> (u64, u64, u64, u64) {
        let mut tally = Tally::default();
        for number in numbers {
            tally.record(*number);
        }
        (tally.of(), tally.lost(), tally.doubled(), tally.reordered())
    }

    #[test]
    fn gaps_duplicates_and_late_ones_are_told_apart() {
        assert_eq!(of(&[]), (0, 0, 0, 0));
        assert_eq!(of(&[5, 6, 7]), (3, 0, 0, 0));
        assert_eq!(of(&[5, 9]), (5, 3, 0, 0));
        assert_eq!(of(&[5, 5, 6, 5]), (2, 0, 2, 0));
        assert_eq!(of(&[5, 7, 6, 4]), (4, 0, 0, 2));
        // What is older than the memory says nothing.
        assert_eq!(of(&[0, MEMORY + 5, 1]), (MEMORY + 6, MEMORY + 4, 1, 0));
    }

    proptest! {
        #[test]
        fn it_counts_as_a_set_does(numbers in prop::collection::vec(0..MEMORY, 1..300)) {
            let set: BTreeSet<u64> = numbers.iter().copied().collect();
            let (of, lost, doubled, _) = of(&numbers);
            let wanted = set.last().unwrap() - set.first().unwrap() + 1;
            prop_assert_eq!(of, wanted);
            prop_assert_eq!(lost, wanted - set.len() as u64);
            prop_assert_eq!(doubled, (numbers.len() - set.len()) as u64);
        }
    }
}
