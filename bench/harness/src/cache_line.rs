//! How far apart the cores are: the time that a cache line takes from one to the other.
//!
//! A hypervisor moves the processors of a virtual machine about. On one and the same machine a line was
//! seen to take 25 ns for some minutes and 220 ns for others, and throughput between two processes
//! differed three to six times with it. So each run says what it took before and after, and figures of
//! runs that differ in it are not compared.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Rounds of one sample, there and back.
const ROUNDS: u32 = 500;
const SAMPLES: usize = 20;
/// With other processes on the cores it takes longer, and the samples that there are have to do.
const LONGEST: Duration = Duration::from_millis(100);

/// A word in a line of its own.
#[repr(align(128))]
struct Line(AtomicU32);

/// Nanoseconds from one core to another, one way: the median of some samples. None with one core, or
/// where threads cannot be bound to cores.
#[must_use]
pub fn one_way_ns() -> Option<f64> {
    one_way_ns_within(LONGEST)
}

fn one_way_ns_within(longest: Duration) -> Option<f64> {
    let allowed = sched_getaffinity(None).ok()?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    let (here, there) = (cores.next()?, cores.next_back()?);
    let line = Line(AtomicU32::new(0));
    std::thread::scope(|scope| {
        let partner = scope.spawn(|| stay_on(there).is_some() && answer(&line.0));
        // A thread of its own, so that the caller's is not bound for ever.
        let samples = scope
            .spawn(|| if stay_on(here).is_some() { ask(&line.0, longest) } else { stop(&line.0) });
        let samples = samples.join().unwrap_or_default();
        partner.join().unwrap_or(false).then_some(samples)
    })
    .and_then(median)
}

/// What a report says of two measurements.
#[must_use]
pub fn describe(before: Option<f64>, after: Option<f64>) -> String {
    let (Some(before), Some(after)) = (before, after) else {
        return "not measured: there is one core, or threads cannot be bound to cores".to_owned();
    };
    let moved = before.max(after) > 2.0 * before.min(after);
    let warning = if moved { ": the cores moved apart or together, compare nothing" } else { "" };
    format!("{before:.0} ns from core to core before, {after:.0} ns after{warning}")
}

const STOP: u32 = u32::MAX;

fn stay_on(core: usize) -> Option<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).ok()
}

/// Odd numbers go there, the even ones after them come back.
fn ask(line: &AtomicU32, longest: Duration) -> Vec<f64> {
    let started = Instant::now();
    let mut number = 0;
    let mut samples = Vec::with_capacity(SAMPLES);
    'samples: while samples.len() < SAMPLES {
        let sample = Instant::now();
        for _ in 0..ROUNDS {
            line.store(number + 1, Ordering::Release);
            let mut looks = 0_u32;
            while line.load(Ordering::Acquire) != number + 2 {
                spin_loop();
                looks = looks.wrapping_add(1);
                if looks.is_multiple_of(1024) && started.elapsed() > longest {
                    break 'samples;
                }
            }
            number += 2;
        }
        samples.push(sample.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS) / 2.0);
    }
    line.store(STOP, Ordering::Release);
    samples
}

fn stop(line: &AtomicU32) -> Vec<f64> {
    line.store(STOP, Ordering::Release);
    Vec::new()
}

/// Always true: it was there to the end.
fn answer(line: &AtomicU32) -> bool {
    let mut answered = 0;
    loop {
        match line.load(Ordering::Acquire) {
            STOP => return true,
            number if number == answered + 1 => {
                answered += 2;
                // Who asks may have stopped meanwhile: that must not be overwritten.
                let _ =
                    line.compare_exchange(number, answered, Ordering::Release, Ordering::Relaxed);
            }
            _ => spin_loop(),
        }
    }
}

fn median(mut samples: Vec<f64>) -> Option<f64> {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_takes_some_time() {
        // A core is shared with others in tests, and the two threads may wait long until both have theirs at
        // the same time: no upper bound.
        match one_way_ns_within(Duration::from_secs(30)) {
            Some(ns) => assert!(ns > 1.0, "{ns}"),
            None => assert_eq!(crate::machine::usable_cores(), 1),
        }
    }

    #[test]
    fn cores_that_moved_are_told() {
        assert_eq!(describe(Some(25.2), Some(26.0)), "25 ns from core to core before, 26 ns after");
        assert!(describe(Some(25.0), Some(220.0)).ends_with("compare nothing"));
        assert!(describe(Some(220.0), Some(25.0)).ends_with("compare nothing"));
        assert!(describe(None, Some(25.0)).starts_with("not measured"));
    }
}
