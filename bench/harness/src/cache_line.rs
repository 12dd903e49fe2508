//! The time that a cache line takes from one core to another.
//!
//! A hypervisor moves the processors of a virtual machine. On one and the same machine a line took 25 ns for some minutes
//! and 220 ns for others, and throughput between two processes differed three to six times with it. So each report says
//! what a line took before and after the run, and results of runs that differ in it must not be compared.

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Returns the nanoseconds from one core to another, one way: the median of 20 samples, or of those that 100 ms were
/// enough for. Returns `None` if there is only one core, threads cannot be pinned to cores, or other processes kept the cores busy.
#[must_use]
pub fn one_way_ns() -> Option<f64> {
    one_way_ns_within(Duration::from_millis(100))
}

fn one_way_ns_within(longest: Duration) -> Option<f64> {
    let allowed = sched_getaffinity(None).ok()?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    let cores = (cores.next()?, cores.next_back()?);
    let probe = Probe { cores, samples: 20, rounds: 500, longest };
    let mut samples = probe.one_way_ns().ok()?;
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied()
}

/// Describes two measurements for a report.
#[must_use]
pub fn describe(before: Option<f64>, after: Option<f64>) -> String {
    let (Some(before), Some(after)) = (before, after) else {
        return "not measured: there is one core, threads cannot be pinned to cores, or the cores were busy".to_owned();
    };
    let moved = before.max(after) > 2.0 * before.min(after);
    let warning = if moved { ": the cores moved apart or together, compare nothing" } else { "" };
    format!("{before:.0} ns from core to core before, {after:.0} ns after{warning}")
}

/// Two threads, each pinned to a core, that write the same cache line in turn.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The two cores.
    pub cores: (usize, usize),
    /// Number of samples.
    pub samples: usize,
    /// Round trips of a sample. A hundredth of that come before the first sample, as a warm-up.
    pub rounds: u32,
    /// After this time the probe stops, with the samples that it has. If other processes run on these cores, a round trip
    /// takes much longer.
    pub longest: Duration,
}

impl Probe {
    /// Returns the nanoseconds one way for each sample.
    ///
    /// # Errors
    /// If a thread cannot be pinned to its core.
    pub fn one_way_ns(&self) -> Result<Vec<f64>, Errno> {
        let line = Line(AtomicU32::new(0));
        let alone = AtomicBool::new(false);
        let (first, second) = self.cores;
        std::thread::scope(|scope| {
            let partner = scope.spawn(|| {
                let pinned = pin_to(second);
                alone.store(pinned.is_err(), Ordering::Relaxed);
                pinned.map(|()| answer(&line.0))
            });
            // In a thread of its own: the caller's thread stays as it was.
            let samples = scope.spawn(|| {
                let samples = pin_to(first).map(|()| self.ask(&line.0, &alone));
                line.0.store(STOP, Ordering::Release);
                samples
            });
            let samples = samples.join().unwrap_or(Err(Errno::CANCELED));
            partner.join().unwrap_or(Err(Errno::CANCELED)).and(samples)
        })
    }

    /// Writes odd numbers, and waits for the even number after each.
    fn ask(&self, line: &AtomicU32, alone: &AtomicBool) -> Vec<f64> {
        let started = Instant::now();
        let mut number = 0;
        let mut run = |rounds| {
            for _ in 0..rounds {
                line.store(number + 1, Ordering::Release);
                let mut tries = 0_u32;
                while line.load(Ordering::Acquire) != number + 2 {
                    // No yield: both threads must run at the same time, which is seldom enough on busy cores.
                    spin_loop();
                    tries = tries.wrapping_add(1);
                    let is_over =
                        || alone.load(Ordering::Relaxed) || started.elapsed() > self.longest;
                    if tries.is_multiple_of(1024) && is_over() {
                        return false;
                    }
                }
                number += 2;
            }
            true
        };
        let mut samples = Vec::with_capacity(self.samples);
        let mut in_time = run(self.rounds / 100);
        while in_time && samples.len() < self.samples {
            let sample = Instant::now();
            in_time = run(self.rounds);
            if in_time {
                samples.push(sample.elapsed().as_secs_f64() * 1e9 / f64::from(self.rounds) / 2.0);
            }
        }
        samples
    }
}

/// A word in a line of its own.
#[repr(align(128))]
struct Line(AtomicU32);

const STOP: u32 = u32::MAX;

fn pin_to(core: usize) -> Result<(), Errno> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set)
}

fn answer(line: &AtomicU32) {
    let mut answered = 0;
    loop {
        match line.load(Ordering::Acquire) {
            STOP => return,
            number if number == answered + 1 => {
                answered += 2;
                // The other thread may have stopped meanwhile, which must not be overwritten.
                let _ =
                    line.compare_exchange(number, answered, Ordering::Release, Ordering::Relaxed);
            }
            _ => spin_loop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_takes_some_time() {
        // In tests a core is shared with others, and the two threads may wait long until both run at the same time: no
        // upper bound.
        match one_way_ns_within(Duration::from_secs(30)) {
            Some(ns) => assert!(ns > 1.0, "{ns}"),
            None => assert_eq!(crate::machine::usable_cores(), 1),
        }
    }

    #[test]
    fn cores_that_moved_are_reported() {
        assert_eq!(describe(Some(25.2), Some(26.0)), "25 ns from core to core before, 26 ns after");
        assert!(describe(Some(25.0), Some(220.0)).ends_with("compare nothing"));
        assert!(describe(Some(220.0), Some(25.0)).ends_with("compare nothing"));
        assert!(describe(None, Some(25.0)).starts_with("not measured"));
    }
}
