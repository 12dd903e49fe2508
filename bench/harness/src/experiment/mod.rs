//! Published experiments, repeated beside what they were published with, each with channels of its own; and `scale`, which
//! measures this library in the same way. They ignore the transport of a job.
//!
//! - `rmp_tcp`: Figure 8 of the Toroni paper.
//! - `p2mp`, `sweep`: *Point to Multi-point IPC Comparison*, and its test of batch sizes.
//! - `fanout`: Coral Blocks' article on the fan-out of multicast and shared memory in CoralSequencer.
//! - [`bystanders`]: processor time of a message while other subscribers sleep.
//! - `jitter`: *Topics in High-Performance Messaging*, sections 20 and 21.
//! - [`connections`]: the proactor paper, section 13.
//!
//! Here is what they have in common: conditions, progress, ratios, numbers for people.

pub mod bystanders;
pub mod connections;
pub mod fanout;
pub(crate) mod jitter;
mod multicast;
pub(crate) mod p2mp;
pub(crate) mod rmp_tcp;
pub(crate) mod scale;
pub(crate) mod sweep;
mod tcp;

use crate::Failure;
use crate::machine;
use crate::process_group::Launch;
use crate::transport::{Setup, Wait};
pub(super) use toroni_process::units::{as_f64 as float, count};

/// Returns the conditions that all experiments report.
pub(super) fn conditions(repetitions: u32) -> Vec<(String, String)> {
    let mut conditions = machine::describe();
    let text = format!("{repetitions}, all ways in turn in each");
    conditions.push(("repetitions".to_owned(), text));
    conditions
}

/// Reports the progress of a workload to its observer.
pub(super) struct Steps<'a> {
    launch: &'a Launch<'a>,
    done: u64,
    total: u64,
}

impl<'a> Steps<'a> {
    /// Starts to count; `runs` is the number of runs in each repetition.
    pub(super) fn new(launch: &'a Launch<'_>, repetitions: u32, runs: usize) -> Self {
        Self { launch, done: 0, total: u64::from(repetitions) * runs as u64 }
    }

    /// Reports that the next run begins.
    pub(super) fn next(&mut self) {
        self.launch.observer.progress(self.done, self.total);
        self.done += 1;
    }
}

/// Returns the setup of a run whose work holds all other sizes.
pub(super) fn setup(senders: u16, receivers: u16, message_bytes: usize, capacity: u64) -> Setup {
    Setup {
        senders,
        receivers,
        message_bytes,
        capacity_bytes: capacity,
        wait: Wait::Blocking,
        in_place: true,
    }
}

/// Checks that such a ring exists and can hold such messages, before minutes of measuring.
pub(super) fn check_fits(message_bytes: usize, capacity_bytes: u64) -> Result<(), Failure> {
    if !capacity_bytes.is_power_of_two() || !(64 << 10..=1 << 40).contains(&capacity_bytes) {
        return Err(Failure::new(format!(
            "a ring of {capacity_bytes} bytes: use a power of two from 64 KiB to 1 TiB"
        )));
    }
    // A record takes at most half of the ring, including its header of one word.
    let most = (capacity_bytes / 2).saturating_sub(8);
    if message_bytes as u64 <= most {
        return Ok(());
    }
    Err(Failure::new(format!(
        "a message of {} does not fit a ring of {}: use {} bytes or less, or a larger ring",
        sized(message_bytes as u64),
        sized(capacity_bytes),
        count(most)
    )))
}

/// Returns the ratio of each repetition: what disturbed both runs of a repetition cancels out.
pub(super) fn ratios(times: &[f64], base: &[f64]) -> Vec<f64> {
    times.iter().zip(base).map(|(time, base)| time / base).collect()
}

/// Returns the standard deviation of a sample, or 0 for less than two values.
pub(super) fn deviation(values: &[f64]) -> f64 {
    let count = values.iter().map(|_| 1.0).sum::<f64>();
    if count < 2.0 {
        return 0.0;
    }
    let mean = values.iter().sum::<f64>() / count;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    (squares / (count - 1.0)).sqrt()
}

/// Converts nanoseconds to seconds.
pub(super) fn seconds(nanoseconds: u64) -> f64 {
    float(nanoseconds) / 1e9
}

/// Formats a number of bytes: `64 KiB`, `1,000 B`.
pub(super) fn sized(bytes: u64) -> String {
    match bytes {
        _ if bytes > 0 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", count(bytes >> 20)),
        _ if bytes > 0 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", count(bytes >> 10)),
        _ => format!("{} B", count(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!([count(7), count(1000), count(1_234_567)], ["7", "1,000", "1,234,567"]);
        assert_eq!(
            [sized(8), sized(1000), sized(1024), sized(3 << 20), sized(0)],
            ["8 B", "1,000 B", "1 KiB", "3 MiB", "0 B"]
        );
    }

    #[test]
    fn deviations_and_ratios() {
        assert!((deviation(&[2.0, 4.0, 6.0]) - 2.0).abs() < 1e-12);
        assert_eq!(deviation(&[2.0]), 0.0);
        assert_eq!(ratios(&[6.0, 9.0], &[2.0, 3.0]), [3.0, 3.0]);
    }
}
