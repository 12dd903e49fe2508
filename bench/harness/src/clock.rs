//! The clocks: all children of one machine read the same ones.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// CLOCK_MONOTONIC_RAW in nanoseconds: nobody slews it while a run lasts.
#[inline]
#[must_use]
pub fn now_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::MonotonicRaw))
}

/// CPU time that this process has used so far, in nanoseconds.
#[must_use]
pub fn cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ProcessCPUTime))
}

/// How often this thread has gone to sleep so far: its voluntary context switches. One cheap system
/// call, since a receiver asks while others still work.
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
