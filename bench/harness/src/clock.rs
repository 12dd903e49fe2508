//! Clocks, the same for all processes of a machine.

use rustix::time::{ClockId, Timespec, clock_gettime};
use serde::{Deserialize, Serialize};

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

/// Returns the CPU time of another process in nanoseconds, or `None` if there is no such process.
#[must_use]
pub fn cpu_of_process_ns(pid: u32) -> Option<u64> {
    let pid = libc::pid_t::try_from(pid).ok()?;
    let mut clock: libc::clockid_t = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `clock`, and to nothing else.
    if unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) } != 0 {
        return None;
    }
    // SAFETY: the call writes to `time`, and to nothing else.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return None;
    }
    Some(nanoseconds(Timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_nsec }))
}

/// Returns how often this thread has gone to sleep: its voluntary context switches. This is one cheap system call, because
/// a receiver makes it while others still work.
#[must_use]
pub fn sleeps() -> u64 {
    Usage::of(libc::RUSAGE_THREAD).sleeps
}

/// What a process has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Time in the program, in nanoseconds.
    pub user_ns: u64,
    /// Time in the kernel for the program, in nanoseconds.
    pub system_ns: u64,
    /// How often a thread has gone to sleep: voluntary context switches.
    pub sleeps: u64,
}

impl Usage {
    /// Returns what all threads of this process have used, also those that have ended. The kernel divides their time into
    /// user and system time by samples, so the parts are exact only over many ticks.
    #[must_use]
    pub fn of_process() -> Self {
        Self::of(libc::RUSAGE_SELF)
    }

    /// Returns what was used since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            user_ns: self.user_ns.saturating_sub(before.user_ns),
            system_ns: self.system_ns.saturating_sub(before.system_ns),
            sleeps: self.sleeps.saturating_sub(before.sleeps),
        }
    }

    fn of(whose: libc::c_int) -> Self {
        // SAFETY: the struct has only integers, for which zeros are valid.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the call writes to that struct, which lives longer than the call, and to nothing else. If it fails, the
        // zeros stay.
        let _ = unsafe { libc::getrusage(whose, &raw mut usage) };
        let nanoseconds = |time: libc::timeval| {
            let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
            seconds * 1_000_000_000 + u64::try_from(time.tv_usec).unwrap_or(0) * 1000
        };
        Self {
            user_ns: nanoseconds(usage.ru_utime),
            system_ns: nanoseconds(usage.ru_stime),
            sleeps: u64::try_from(usage.ru_nvcsw).unwrap_or(0),
        }
    }
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
        let before = Usage::of_process();
        std::thread::sleep(Duration::from_millis(2));
        assert!(now_ns() - wall >= 2_000_000);
        let mut sum = 0_u64;
        while cpu_ns() == cpu {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(sleeps() > slept);
        let own = cpu_of_process_ns(std::process::id()).unwrap();
        assert!(cpu < own && own <= cpu_ns());
        assert_eq!(cpu_of_process_ns(0x7fff_fff0), None);
        let used = || Usage::of_process().since(before);
        assert!(used().sleeps > 0);
        while used().user_ns + used().system_ns == 0 {
            sum = std::hint::black_box(sum + 1);
        }
    }
}
