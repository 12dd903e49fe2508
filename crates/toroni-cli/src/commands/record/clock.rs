//! The times of a recording: wall clock time when the recorder starts, and from then on as the monotonic clock advances.
//!
//! The wall clock may be set at any time. Times that followed it would stand still for the time by which it was set back,
//! because log times never decrease, and a replay would wait for the time by which it was set forward.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;
use toroni_recording::format::RecordedNote;
use toroni_shell::exchange::now_ns;

/// Smaller steps are not noted: drift, or a delay between the readings of two clocks.
const LEAST_STEP: Duration = Duration::from_millis(100);
/// Two readings between which this process did not run for longer say nothing about a step.
const MOST_DELAY: Duration = Duration::from_millis(10);

/// The clock of a recording.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    /// Both clocks, when the recorder started.
    wall_ns: u64,
    monotonic_ns: u64,
    /// How far the wall clock was ahead of this one when that was last noted.
    offset_ns: i64,
}

/// Returns the monotonic clock, which includes the time for which the machine was suspended.
fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Returns both clocks, and the time between two readings of the monotonic one around that of the wall clock.
fn both_ns() -> (u64, u64, Duration) {
    let monotonic = monotonic_ns();
    let wall = now_ns();
    (wall, monotonic, Duration::from_nanos(monotonic_ns().saturating_sub(monotonic)))
}

impl Clock {
    /// Starts it at the time of the wall clock.
    pub(super) fn start() -> Self {
        let (mut wall_ns, mut monotonic_ns, mut delay) = both_ns();
        for _ in 0..10 {
            if delay <= MOST_DELAY {
                break;
            }
            (wall_ns, monotonic_ns, delay) = both_ns();
        }
        Self { wall_ns, monotonic_ns, offset_ns: 0 }
    }

    fn at(&self, monotonic_ns: u64) -> u64 {
        self.wall_ns.saturating_add(monotonic_ns.saturating_sub(self.monotonic_ns))
    }

    /// Returns the time, in nanoseconds since 1970.
    #[inline]
    pub(super) fn now_ns(&self) -> u64 {
        self.at(monotonic_ns())
    }

    /// Returns the note about a step of the wall clock since the one before.
    pub(super) fn step(&mut self) -> Option<RecordedNote> {
        let (wall, monotonic, delay) = both_ns();
        if delay > MOST_DELAY { None } else { self.step_at(wall, monotonic) }
    }

    fn step_at(&mut self, wall_ns: u64, monotonic_ns: u64) -> Option<RecordedNote> {
        let offset = i128::from(wall_ns) - i128::from(self.at(monotonic_ns));
        let offset_ns = i64::try_from(offset).ok()?;
        let step_ns = offset_ns.saturating_sub(self.offset_ns);
        if Duration::from_nanos(step_ns.unsigned_abs()) <= LEAST_STEP {
            return None;
        }
        self.offset_ns = offset_ns;
        Some(RecordedNote::ClockStep { step_ns, offset_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_noted_once_and_do_not_change_the_time() {
        const SECOND: u64 = 1_000_000_000;
        let hour = 3600 * SECOND.cast_signed();
        let mut clock = Clock { wall_ns: 1000 * SECOND, monotonic_ns: 5 * SECOND, offset_ns: 0 };
        assert_eq!(clock.at(7 * SECOND), 1002 * SECOND);
        let mut step = |wall: i64, monotonic: u64| {
            let wall = u64::try_from(wall).unwrap();
            clock.step_at(wall, monotonic * SECOND)
        };
        let start = 1000 * SECOND.cast_signed();
        let second = SECOND.cast_signed();
        assert_eq!(step(start + second + 99_000_000, 6), None);
        let forward = RecordedNote::ClockStep { step_ns: hour, offset_ns: hour };
        assert_eq!(step(start + hour + 2 * second, 7), Some(forward));
        assert_eq!(step(start + hour + 3 * second, 8), None);
        let back = RecordedNote::ClockStep { step_ns: -hour - second, offset_ns: -second };
        assert_eq!(step(start + 3 * second, 9), Some(back));
        assert_eq!(clock.at(9 * SECOND), 1004 * SECOND);
    }
}
