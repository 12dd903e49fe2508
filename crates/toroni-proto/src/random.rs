//! Random numbers that a seed repeats. A machine is given its generator when it is made, so that the
//! same inputs give the same outputs.

/// A generator of 64-bit numbers: SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom
/// number generators", 2014).
///
/// It spreads timers, and nothing secret depends on it.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Starts with this seed. The same seed gives the same numbers on every machine.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ word >> 31
    }

    /// Returns a number below `limit`, or 0 if `limit` is 0.
    ///
    /// Takes the upper half of a product (Lemire 2019) without its rejection step: the bias is below
    /// `limit` / 2⁶⁴, which no timer notices.
    pub fn below(&mut self, limit: u64) -> u64 {
        let product = u128::from(self.number()) * u128::from(limit);
        let [.., a, b, c, d, e, f, g, h] = product.to_le_bytes();
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// Returns a number from `low` to `high`, both included. If `high` is below `low`, returns
    /// `low`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        let width = high.saturating_sub(low);
        match width.checked_add(1) {
            Some(numbers) => low + self.below(numbers),
            None => self.number(),
        }
    }

    /// Returns a fraction from 0 up to, but without, 1.
    pub fn fraction(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits are what an f64 holds exactly")]
        let numerator = (self.number() >> 11) as f64;
        numerator / 9_007_199_254_740_992.0 // 2⁵³
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_reference() {
        // The first outputs of the authors' C program for the seed 1234567.
        let mut random = Random::new(1_234_567);
        let wanted = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!([(); 5].map(|()| random.number()), wanted);
    }

    #[test]
    fn ranges_reach_both_ends_and_nothing_beyond_them() {
        let mut random = Random::new(1);
        let drawn: Vec<u64> = (0..1_000).map(|_| random.between(10, 13)).collect();
        assert!((10..=13).all(|number| drawn.contains(&number)));
        assert!(drawn.iter().all(|number| (10..=13).contains(number)));
        assert_eq!(random.below(0), 0);
        assert_eq!(random.between(7, 3), 7);
        let whole = [random.between(0, u64::MAX), random.between(0, u64::MAX)];
        assert_ne!(whole[0], whole[1]);
    }

    #[test]
    fn fractions_are_spread_evenly() {
        let mut random = Random::new(2);
        let mut tenths = [0; 10];
        for _ in 0..10_000 {
            let fraction = random.fraction();
            assert!((0.0..1.0).contains(&fraction));
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "between 0 and 10"
            )]
            let tenth = (fraction * 10.0) as usize;
            tenths[tenth] += 1;
        }
        assert!(tenths.iter().all(|count| (850..1_150).contains(count)), "{tenths:?}");
    }
}
