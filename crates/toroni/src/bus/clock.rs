//! The clocks, read here only.

use rustix::time::{ClockId, Timespec, clock_gettime};
use std::time::{Duration, SystemTime};

/// Returns CLOCK_MONOTONIC in ns: the same for all processes of this machine.
pub(super) fn monotonic_ns() -> u64 {
    ns(clock_gettime(ClockId::Monotonic))
}

/// Returns CLOCK_REALTIME in ns since 1970.
pub(super) fn realtime_ns() -> u64 {
    ns(clock_gettime(ClockId::Realtime))
}

/// Converts a time in ns since 1970; returns the epoch itself if the system cannot represent the time.
pub(super) fn from_ns(realtime_ns: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH
        .checked_add(Duration::from_nanos(realtime_ns))
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

fn ns(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}
