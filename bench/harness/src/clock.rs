//! Clocks, the same for all processes of a machine.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Returns `CLOCK_MONOTONIC_RAW` in nanoseconds: it is not slewed during a run.
#[inline]
#[must_use]
pub fn now_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::MonotonicRaw))
}

/// Returns the CPU time of this process in nanoseconds.
#[must_use]
pub fn cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ProcessCPUTime))
}

/// Returns how often this thread has gone to sleep: its voluntary context switches. This is one cheap system call, because
/// a receiver makes it while others still work.
#[must_use]
pub fn sleeps() -> u64 {
    // SAFETY: the struct has only integers, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes to that struct, which lives longer than the call, and to nothing else.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    if result == 0 { u64::try_from(usage.ru_nvcsw).unwrap_or(0) } else { 0 }
}

fn nanoseconds(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn clocks_go_on() {
        let (wall, cpu, slept) = (now_ns(), cpu_ns(), sleeps());
        std::thread::sleep(Duration::from_millis(2));
        assert!(now_ns() - wall >= 2_000_000);
        let mut sum = 0_u64;
        while cpu_ns() == cpu {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(sleeps() > slept);
    }
}
