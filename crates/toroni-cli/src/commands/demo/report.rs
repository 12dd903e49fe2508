//! Prints the result of a demo.

use super::options::Demo;
use super::protocol::Phase;
use super::subscriber::new_histogram;
use super::verdict::Check;
use super::{Outcome, STEADY_PER_SECOND};
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::time::Duration;
use toroni_shell::failure::Failure;
use toroni_shell::human::{self, as_f64};
use toroni_shell::output::{Output, Table};

const PERCENTILES: [(&str, f64); 3] = [("p50", 50.0), ("p99", 99.0), ("p99.9", 99.9)];

/// Prints figures and checks, as text or as one JSON object.
pub(super) fn print(arguments: &Demo, outcome: &Outcome, checks: &[Check]) -> Result<(), Failure> {
    let figures = Figures::of(outcome)?;
    let mut output = Output::new()?;
    if arguments.json {
        output.json(&figures.json(arguments, outcome, checks))?;
    } else {
        figures.text(arguments, checks, &mut output)?;
    }
    output.flush()
}

struct Figures {
    /// Messages of the flood, with the victim's.
    messages: u64,
    /// How long it took until every subscriber had them.
    seconds: f64,
    victim_messages: u64,
    steady_messages: u64,
    /// The longest time that a subscriber waited for a message during the flood.
    longest_wait: Duration,
    flood: Histogram<u64>,
    steady: Histogram<u64>,
}

impl Figures {
    fn of(outcome: &Outcome) -> Result<Self, Failure> {
        let ended_ns = outcome.flood.iter().map(|phase| phase.ended_ns).max().unwrap_or(0);
        let nanoseconds = ended_ns.saturating_sub(outcome.started_ns).max(1);
        let first = outcome.flood.first();
        let longest = outcome.flood.iter().map(|phase| phase.longest_wait_ns).max().unwrap_or(0);
        Ok(Self {
            messages: first.map_or(0, |phase| phase.messages),
            seconds: Duration::from_nanos(nanoseconds).as_secs_f64(),
            victim_messages: first
                .and_then(|phase| phase.counts.get(outcome.flood_published.len()))
                .copied()
                .unwrap_or(0),
            steady_messages: outcome.steady_published.iter().sum(),
            longest_wait: Duration::from_nanos(longest),
            flood: merge(&outcome.flood)?,
            steady: merge(&outcome.steady)?,
        })
    }

    fn per_second(&self) -> f64 {
        as_f64(self.messages) / self.seconds
    }

    fn longest_wait_text(&self) -> String {
        if self.longest_wait.is_zero() {
            return "At full speed, every subscriber always had a message to read.".to_owned();
        }
        format!(
            "At full speed, the longest time a subscriber had nothing to read was {}.",
            human::duration(self.longest_wait)
        )
    }

    fn text(&self, demo: &Demo, checks: &[Check], output: &mut Output) -> Result<(), Failure> {
        let rate = self.per_second();
        let delivered = rate * f64::from(demo.subscribers);
        let size = as_f64(demo.size);
        let all = self.messages + self.steady_messages;
        output.line(&format!(
            "{} publishers and {} subscribers, each in a process of its own. Messages of {} bytes:\n\
             {:>13}  published at full speed\n\
             {:>13}  published by one more publisher until it was killed with SIGKILL\n\
             {:>13}  published at a steady rate afterwards, to measure the latency\n\
             {:>13}  in total\n",
            demo.publishers,
            demo.subscribers,
            human::count(demo.size),
            human::count(demo.messages),
            human::count(self.victim_messages),
            human::count(self.steady_messages),
            human::count(all),
        ))?;
        let mut table = Table::new(&["THROUGHPUT", ">MESSAGES", ">BYTES"]);
        for (name, rate) in [("published", rate), ("delivered", delivered)] {
            table.row(vec![
                name.to_owned(),
                human::per_second(rate),
                human::bytes_per_second(rate * size),
            ]);
        }
        output.table(&table)?;
        output.line("")?;

        let mut table = Table::new(&["LATENCY", ">P50", ">P99", ">P99.9", ">MAX"]);
        let steady = format!("at {} messages/s", human::count(STEADY_PER_SECOND));
        for (name, histogram) in [(steady.as_str(), &self.steady), ("at full speed", &self.flood)] {
            let mut row = vec![name.to_owned()];
            for (_, percentile) in PERCENTILES {
                row.push(nanoseconds(histogram.value_at_percentile(percentile)));
            }
            row.push(nanoseconds(histogram.max()));
            table.row(row);
        }
        output.table(&table)?;
        output.line(&format!(
            "Latency is the time from the call of publish until the subscriber has the message.\nAt full speed, messages spend most of it waiting in the ring.\n{}\n",
            self.longest_wait_text()
        ))?;

        for check in checks {
            let mark = if check.passed { "ok  " } else { "FAIL" };
            output.line(&format!("{mark}  {:<20} {}", check.promise, check.detail))?;
        }
        let passed = checks.iter().all(|check| check.passed);
        output.line(if passed {
            "\nPASSED: killing a publisher did not affect the other processes."
        } else {
            "\nFAILED"
        })
    }

    fn json(&self, demo: &Demo, outcome: &Outcome, checks: &[Check]) -> Value {
        json!({
            "passed": checks.iter().all(|check| check.passed),
            "checks": checks,
            "publishers": demo.publishers,
            "subscribers": demo.subscribers,
            "messages": demo.messages,
            "size": demo.size,
            "paced_messages": self.steady_messages,
            "victim_messages": self.victim_messages,
            "victim_confirmed_messages": outcome.victim_confirmed,
            "seconds": self.seconds,
            "messages_per_second": self.per_second(),
            "bytes_per_second": self.per_second() * as_f64(demo.size),
            "longest_wait_ns": u64::try_from(self.longest_wait.as_nanos()).unwrap_or(u64::MAX),
            "paced_per_second": STEADY_PER_SECOND,
            "latency_paced_ns": latencies(&self.steady),
            "latency_full_speed_ns": latencies(&self.flood),
            "hash": outcome.steady.first().map(|phase| format!("{:016x}", phase.hash)),
        })
    }
}

fn latencies(histogram: &Histogram<u64>) -> Value {
    let mut object = json!({ "count": histogram.len(), "max": histogram.max() });
    for (name, percentile) in PERCENTILES {
        object[name] = json!(histogram.value_at_percentile(percentile));
    }
    object
}

/// Merges the latencies of all subscribers.
fn merge(phases: &[Phase]) -> Result<Histogram<u64>, Failure> {
    let mut all = new_histogram()?;
    for (value, count) in phases.iter().flat_map(|phase| &phase.latencies) {
        all.saturating_record_n(*value, *count);
    }
    Ok(all)
}

fn nanoseconds(value: u64) -> String {
    human::duration(Duration::from_nanos(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_of_all_subscribers_count() {
        let phase =
            |latencies: &[(u64, u64)]| Phase { latencies: latencies.to_vec(), ..Phase::default() };
        let merged = merge(&[phase(&[(1000, 98)]), phase(&[(5000, 1), (9000, 1)])]).unwrap();
        assert_eq!(merged.len(), 100);
        assert_eq!(merged.value_at_percentile(50.0), 1000);
        assert!(merged.max() >= 9000);
    }
}
