//! The number of messages for a run of the wanted duration: transports differ by a factor of a thousand, and a run that is
//! too short measures only its beginning.

use super::CAPACITY_BYTES;

/// The rate of one contender in one cell, learned from every run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LearnedRate {
    seconds: f64,
    fewest: u64,
    rate: Option<f64>,
}

impl LearnedRate {
    pub(crate) fn new(seconds: f64, message_bytes: usize) -> LearnedRate {
        // Twice what may be in flight, so that senders have waited for receivers.
        let bytes = u64::try_from(message_bytes).unwrap_or(u64::MAX).max(64);
        Self::of_at_least(seconds, (2 * CAPACITY_BYTES / bytes).max(100))
    }

    /// For repetitions of something that leaves nothing in flight.
    pub(crate) fn of_at_least(seconds: f64, fewest: u64) -> LearnedRate {
        LearnedRate { seconds, fewest, rate: None }
    }

    /// Returns the number of messages for the next run.
    pub(crate) fn messages(&self) -> u64 {
        let wanted = self.rate.map_or(0.0, |rate| (rate * self.seconds).min(4e9));
        #[expect(clippy::cast_possible_truncation, reason = "at most 4e9")]
        #[expect(clippy::cast_sign_loss, reason = "a rate is positive")]
        let wanted = wanted as u64;
        wanted.max(self.fewest)
    }

    /// Learns the messages per second of a run.
    pub(crate) fn learn(&mut self, rate: f64) {
        if rate.is_finite() && rate > 0.0 {
            self.rate = Some(rate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_get_as_long_as_wanted_and_never_too_short() {
        let mut learned = LearnedRate::new(0.5, 8);
        let first = learned.messages();
        assert_eq!(first, 2 * CAPACITY_BYTES / 64);
        learned.learn(100e6);
        assert_eq!(learned.messages(), 50_000_000);
        learned.learn(10.0);
        assert_eq!(learned.messages(), first);
        learned.learn(f64::NAN);
        assert_eq!(learned.messages(), first);
    }
}
