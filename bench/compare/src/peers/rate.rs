//! How many messages make a run of the wished length: transports differ by a factor of a thousand, and a
//! run that is too short measures its beginning.

use super::CAPACITY_BYTES;

/// Messages of one contender in one cell; learns from every run.
#[derive(Clone, Copy, Debug)]
pub(super) struct LearnedRate {
    seconds: f64,
    fewest: u64,
    rate: Option<f64>,
}

impl LearnedRate {
    pub(super) fn new(seconds: f64, message_bytes: usize) -> LearnedRate {
        // Twice what may be on the way, so that senders have waited for receivers.
        let bytes = u64::try_from(message_bytes).unwrap_or(u64::MAX).max(64);
        LearnedRate { seconds, fewest: (2 * CAPACITY_BYTES / bytes).max(100), rate: None }
    }

    /// For the next run.
    pub(super) fn messages(&self) -> u64 {
        let wished = self.rate.map_or(0.0, |rate| (rate * self.seconds).min(4e9));
        #[expect(clippy::cast_possible_truncation, reason = "at most 4e9")]
        #[expect(clippy::cast_sign_loss, reason = "a rate is positive")]
        let wished = wished as u64;
        wished.max(self.fewest)
    }

    /// Messages a second of a run.
    pub(super) fn learn(&mut self, rate: f64) {
        if rate.is_finite() && rate > 0.0 {
            self.rate = Some(rate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_get_as_long_as_wished_and_never_too_short() {
        let mut pace = LearnedRate::new(0.5, 8);
        let first = pace.messages();
        assert_eq!(first, 2 * CAPACITY_BYTES / 64);
        pace.learn(100e6);
        assert_eq!(pace.messages(), 50_000_000);
        pace.learn(10.0);
        assert_eq!(pace.messages(), first);
        pace.learn(f64::NAN);
        assert_eq!(pace.messages(), first);
    }
}
