//! Chance that can be repeated.

/// A generator of 64-bit numbers (SplitMix64, Steele, Lea and Flood 2014): good enough to choose
/// sizes and moments with, and the same for the same seed on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// With the seed `$TORONI_SEED`, or one from the clock; printed, so that a test that fails can be
    /// repeated.
    ///
    /// # Panics
    /// If `TORONI_SEED` is no number.
    #[must_use]
    pub fn from_environment() -> Self {
        let seed = match std::env::var("TORONI_SEED") {
            Ok(text) => text.parse().expect("TORONI_SEED is a number"),
            Err(_) => {
                let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
                u64::from(since.subsec_nanos()) ^ since.as_secs() << 30
            }
        };
        println!("TORONI_SEED={seed} repeats this choice of sizes and moments");
        Self::new(seed)
    }

    /// With this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// A number from `low` to below `high`.
    ///
    /// # Panics
    /// If there is none.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low < high, "nothing from {low} to below {high}");
        low + self.number() % (high - low)
    }

    /// An index below `length`.
    ///
    /// # Panics
    /// If `length` is 0.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.between(0, length as u64)).expect("below a length")
    }

    /// A length for a message: most are short, some are as long as `longest`.
    pub fn length(&mut self, longest: usize) -> usize {
        let bits = usize::BITS - longest.leading_zeros();
        let most = 1_usize.checked_shl(u32::try_from(self.index(bits as usize + 1)).unwrap_or(0));
        self.index(most.unwrap_or(longest).min(longest) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_lengths_reach_both_ends() {
        let numbers = |seed| {
            let mut random = Random::new(seed);
            [random.number(), random.between(5, 9), random.number()]
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
        let mut random = Random::new(1);
        let lengths: Vec<usize> = (0..20_000).map(|_| random.length(100)).collect();
        assert!(lengths.contains(&0) && lengths.contains(&100));
        assert!(lengths.iter().all(|length| *length <= 100));
    }
}
