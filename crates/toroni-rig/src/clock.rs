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

/// How often this thread has gone to sleep so far: its voluntary context switches. 0 where the kernel
/// does not tell.
#[must_use]
pub fn sleeps() -> u64 {
    std::fs::read_to_string("/proc/thread-self/status")
        .ok()
        .and_then(|status| {
            let line =
                status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            line.and_then(|count| count.trim().parse().ok())
        })
        .unwrap_or(0)
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
