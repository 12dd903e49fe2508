//! Random numbers that a seed repeats.

/// The environment variable with the seed of a test, which repeats a run.
pub const SEED: &str = "TORONI_SEED";

/// The environment variable with the seed of all tests that have no other, in place of the clock. The gate takes it from
/// the commit, so that a repeated run takes the same random numbers.
pub const GATE_SEED: &str = "TORONI_GATE_SEED";

/// A generator of 64-bit numbers: SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
/// 2014). The same seed gives the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts with `$TORONI_SEED`, else with `$TORONI_GATE_SEED`, else with the clock. Prints the seed, which the test
    /// runner shows if the test fails.
    ///
    /// # Panics
    /// If one of the two is not a number.
    #[must_use]
    pub fn from_environment() -> Self {
        Self::new(seed_or_else(|| number(GATE_SEED).unwrap_or_else(clock)))
    }

    /// Starts with this seed.
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

    /// Returns a number below `limit`.
    ///
    /// # Panics
    /// If `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }

    /// Returns a number from `low` to below `high`.
    ///
    /// # Panics
    /// If there is none.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low < high, "no number from {low} to below {high}");
        low + self.below(high - low)
    }

    /// Returns an index below `length`.
    ///
    /// # Panics
    /// If `length` is 0.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("below a length")
    }

    /// Returns one of `choices`.
    ///
    /// # Panics
    /// If there is none.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.index(choices.len())]
    }

    /// Returns a length of 0 to `longest`: most are short, some are `longest`.
    pub fn length(&mut self, longest: usize) -> usize {
        let bits = usize::BITS - longest.leading_zeros();
        let most = 1_usize.checked_shl(u32::try_from(self.index(bits as usize + 1)).unwrap_or(0));
        self.index(most.unwrap_or(longest).min(longest) + 1)
    }
}

/// Returns the seed `$TORONI_SEED`, or the default. Prints it, which the test runner shows if the test fails.
///
/// # Panics
/// If `TORONI_SEED` is not a number.
#[must_use]
pub fn seed_or_else(default: impl FnOnce() -> u64) -> u64 {
    let seed = number(SEED).unwrap_or_else(default);
    println!("{SEED}={seed} repeats this run");
    seed
}

/// The number in a variable of the environment, if it is set.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

fn clock() -> u64 {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::from(since.subsec_nanos()) ^ since.as_secs() << 30
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

    /// Runs itself in processes with other environments, because threads of a process share theirs.
    #[test]
    fn the_seed_of_the_gate_counts_if_there_is_no_other() {
        if std::env::var_os("TORONI_SHOW_SEED").is_some() {
            let _ = Random::from_environment();
            return;
        }
        let printed = |variables: &[(&str, &str)]| {
            let mut test = std::process::Command::new(std::env::current_exe().unwrap());
            test.args(["--exact", "--nocapture"]);
            test.arg("random::tests::the_seed_of_the_gate_counts_if_there_is_no_other");
            test.env_remove(SEED).env_remove(GATE_SEED).env("TORONI_SHOW_SEED", "1");
            let output = test.envs(variables.iter().copied()).output().unwrap();
            let output = String::from_utf8(output.stdout).unwrap();
            let (_, seed) = output.split_once("TORONI_SEED=")?;
            Some(seed.split(' ').next().unwrap().to_owned())
        };
        assert_eq!(printed(&[(GATE_SEED, "5")]).as_deref(), Some("5"));
        assert_eq!(printed(&[(GATE_SEED, "5"), (SEED, "6")]).as_deref(), Some("6"));
        // Seeds from the clock.
        assert_ne!(printed(&[]).unwrap(), printed(&[]).unwrap());
        assert_eq!(printed(&[(GATE_SEED, "five")]), None);
    }

    #[test]
    fn the_numbers_are_those_of_the_paper() {
        // The first outputs for the seed 1234567, as in the test vectors of other implementations.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.number(), 6_457_827_717_110_365_317);
        assert_eq!(random.number(), 3_203_168_211_198_807_973);
    }
}
