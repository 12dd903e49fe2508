//! When a message is due: absolute times from the first message, so that delays do not add up.

use super::options::Speed;
use std::time::{Duration, Instant};
use toroni_shell::human::to_u64;
use toroni_shell::stop::Stop;

/// Until this time before a message is due, it sleeps. Then it polls the clock.
const POLL: Duration = Duration::from_micros(100);
/// Messages that are due within this time are published together.
pub(super) const TOGETHER: Duration = Duration::from_micros(50);
/// The longest sleep without a look at the keys.
const SLICE: Duration = Duration::from_millis(50);

/// Stands for times that cannot be represented: ten years.
const FAR: Duration = Duration::from_secs(10 * 365 * 86_400);

enum Mode {
    Times,
    Rate(f64),
    Max,
}

pub(super) struct Pace {
    mode: Mode,
    factor: f64,
    gap_limit: Option<Duration>,
    /// A recorded time, and when it is played.
    base: Option<(u64, Instant)>,
    last: (u64, Instant),
    count: u64,
}

impl Pace {
    pub(super) fn new(speed: Speed, rate: Option<f64>, gap_limit: Option<Duration>) -> Self {
        let (mode, factor) = match (rate, speed) {
            (Some(rate), _) => (Mode::Rate(rate), 1.0),
            (None, Speed::Factor(factor)) => (Mode::Times, factor),
            (None, Speed::Max) => (Mode::Max, 1.0),
        };
        Self { mode, factor, gap_limit, base: None, last: (0, Instant::now()), count: 0 }
    }

    /// Returns when a message with this recorded time is due, or `None` if at once.
    #[inline]
    pub(super) fn due(&mut self, time: u64) -> Option<Instant> {
        match self.mode {
            Mode::Max => None,
            Mode::Rate(_) => {
                self.base.get_or_insert_with(|| (0, Instant::now()));
                self.count = self.count.saturating_add(1);
                self.again(time)
            }
            Mode::Times => Some(self.due_by_time(time)),
        }
    }

    /// Returns when the message is due that [`Self::due`] was asked about last: after a delay, or at another speed.
    pub(super) fn again(&self, time: u64) -> Option<Instant> {
        let (base, start) = self.base?;
        let after = match self.mode {
            Mode::Max => return None,
            Mode::Rate(rate) => {
                let before = toroni_shell::human::as_f64(self.count.saturating_sub(1));
                Duration::try_from_secs_f64(before / rate).unwrap_or(Duration::MAX)
            }
            Mode::Times => self.played(time.saturating_sub(base)),
        };
        Some(start.checked_add(after).or_else(|| start.checked_add(FAR)).unwrap_or(start))
    }

    fn due_by_time(&mut self, time: u64) -> Instant {
        let Some(mut due) = self.again(time) else {
            let now = Instant::now();
            (self.base, self.last) = (Some((time, now)), (time, now));
            return now;
        };
        if let Some(limit) = self.gap_limit
            && due.saturating_duration_since(self.last.1) > limit
        {
            due = self.last.1.checked_add(limit).unwrap_or(due);
            self.base = Some((time, due));
        }
        self.last = (time.max(self.last.0), due.max(self.last.1));
        due
    }

    fn played(&self, nanoseconds: u64) -> Duration {
        if self.factor == 1.0 {
            return Duration::from_nanos(nanoseconds);
        }
        Duration::from_nanos(
            to_u64(toroni_shell::human::as_f64(nanoseconds) / self.factor).unwrap_or(u64::MAX),
        )
    }

    /// Continues now with a time, or with the next message: after a jump.
    pub(super) fn restart(&mut self, time: Option<u64>) {
        let now = Instant::now();
        self.base = time.map(|time| (time, now));
        self.last = (time.unwrap_or(self.last.0), now);
        self.count = 0;
    }

    /// Continues later, as if the time had stood still.
    pub(super) fn delay(&mut self, by: Duration) {
        let later = |at: Instant| at.checked_add(by).unwrap_or(at);
        self.base = self.base.map(|(time, at)| (time, later(at)));
        self.last.1 = later(self.last.1);
    }

    /// Changes the speed, from now on, while the message with this time is waited for. Without times, this does nothing.
    pub(super) fn scale(&mut self, by: f64, time: u64) {
        let now = self.now();
        self.factor = (self.factor * by).clamp(1e-3, 1e3);
        if let Some(now) = now {
            self.base = Some((now.min(time), Instant::now()));
            self.last.1 = self.again(time).unwrap_or(self.last.1);
        }
    }

    /// Returns the recorded time that is played now, if the recorded times count: between those of two messages it passes at
    /// the speed of the replay.
    pub(super) fn now(&self) -> Option<u64> {
        let (base, start) = self.base.filter(|_| matches!(self.mode, Mode::Times))?;
        let now = Instant::now();
        let recorded = |time: Duration| to_u64(time.as_secs_f64() * self.factor * 1e9);
        match start.checked_duration_since(now) {
            // A silence was shortened to what is left until then.
            Some(left) => Some(base.saturating_sub(recorded(left)?)),
            None => Some(base.saturating_add(recorded(now.saturating_duration_since(start))?)),
        }
    }

    /// Waits until a time. Returns `false` if a signal came, or if `interrupted` says so.
    pub(super) fn wait(due: Instant, stop: &Stop, mut interrupted: impl FnMut() -> bool) -> bool {
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return !stop.is_set();
            }
            if left > POLL {
                if !stop.sleep(left.saturating_sub(POLL).min(SLICE)) || interrupted() {
                    return false;
                }
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_do_not_drift() {
        let mut pace = Pace::new(Speed::Factor(2.0), None, None);
        let first = pace.due(1_000).unwrap();
        for message in 1..1000 {
            let due = pace.due(1_000 + message * 1_000).unwrap();
            assert_eq!(due - first, Duration::from_nanos(message * 500));
        }
        // One that is earlier than the one before is due at its own time, which has passed.
        assert_eq!(pace.due(3_000).unwrap() - first, Duration::from_nanos(1_000));
        assert!(Pace::new(Speed::Max, None, None).due(5).is_none());
    }

    #[test]
    fn silences_are_shortened() {
        let second: u64 = 1_000_000_000;
        let mut pace = Pace::new(Speed::Factor(1.0), None, Some(Duration::from_secs(5)));
        let first = pace.due(0).unwrap();
        let at = |pace: &mut Pace, time: u64| (pace.due(time * second).unwrap() - first).as_secs();
        assert_eq!(at(&mut pace, 4), 4);
        assert_eq!(at(&mut pace, 3604), 9);
        assert_eq!(at(&mut pace, 3605), 10);
    }

    #[test]
    fn what_is_left_of_a_silence_is_played_at_another_speed() {
        let minutes = |count: u64| count * 60_000_000_000;
        for limit in [None, Some(Duration::from_secs(1800))] {
            let mut pace = Pace::new(Speed::Factor(1.0), None, limit);
            let first = pace.due(0).unwrap();
            let whole = limit.unwrap_or(Duration::from_secs(3600));
            assert_eq!(pace.due(minutes(60)).unwrap() - first, whole);
            pace.delay(Duration::from_secs(60));
            let delayed = whole + Duration::from_secs(60);
            assert_eq!(pace.again(minutes(60)).unwrap() - first, delayed);
            // Half of it is left, but for what this test has taken.
            pace.scale(2.0, minutes(60));
            let left = pace.again(minutes(60)).unwrap() - first;
            assert!(left >= delayed / 2 - Duration::from_secs(30) && left < whole, "{left:?}");
            let later = pace.due(minutes(62)).unwrap() - pace.again(minutes(60)).unwrap();
            assert_eq!(later, Duration::from_secs(60));
        }
        let mut pace = Pace::new(Speed::Factor(1.0), Some(100.0), None);
        let first = pace.due(0).unwrap();
        assert_eq!(pace.due(0).unwrap() - first, Duration::from_millis(10));
        pace.scale(2.0, 0);
        assert_eq!(pace.again(0).unwrap() - first, Duration::from_millis(10));
    }

    #[test]
    fn a_rate_replaces_the_times() {
        let mut pace = Pace::new(Speed::Factor(1.0), Some(100.0), None);
        let first = pace.due(0).unwrap();
        assert_eq!(pace.due(77).unwrap() - first, Duration::from_millis(10));
        assert_eq!(pace.due(5).unwrap() - first, Duration::from_millis(20));
    }
}
