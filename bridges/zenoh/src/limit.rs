//! Warnings of one kind are logged at most once in 10 seconds, with how many there were.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(10);

/// Decides whether to log a warning.
#[derive(Debug, Default)]
pub(crate) struct Limit(Mutex<Option<(Instant, u64)>>);

impl Limit {
    /// Returns how many warnings there were since the last one that was logged, if this one is to be logged.
    pub(crate) fn pass(&self) -> Option<u64> {
        self.pass_at(Instant::now())
    }

    fn pass_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *state {
            Some((last, held)) if now.saturating_duration_since(*last) < INTERVAL => {
                *held += 1;
                None
            }
            _ => {
                let held = state.map_or(0, |(_, held)| held);
                *state = Some((now, 0));
                Some(held + 1)
            }
        }
    }
}

/// Logs a warning, at most once in 10 seconds for each place, with a field `times`.
macro_rules! warn_rarely {
    ($($arguments:tt)+) => {{
        static LIMIT: std::sync::LazyLock<$crate::limit::Limit> =
            std::sync::LazyLock::new(Default::default);
        if let Some(times) = LIMIT.pass() {
            tracing::warn!(times, $($arguments)+);
        }
    }};
}
pub(crate) use warn_rarely;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_once_in_ten_seconds_with_the_count() {
        let (limit, now) = (Limit::default(), Instant::now());
        let at = |seconds| limit.pass_at(now + Duration::from_secs(seconds));
        assert_eq!(at(0), Some(1));
        assert_eq!((at(1), at(9)), (None, None));
        assert_eq!(at(10), Some(3));
        assert_eq!((at(11), at(20)), (None, Some(2)));
    }
}
