//! A publishing process of the demo.

use super::options::DemoChild;
use super::payload::{self, Header};
use super::protocol::{Instruction, Parent, Report, now_ns};
use std::time::Duration;
use toroni::{Limit, Publisher};
use toroni_shell::failure::Failure;
use toroni_shell::location::BusLocation;

/// The size of a burst: large enough that many messages share one locking of the ring, small enough that other
/// publishers get their turn.
const BURST_MESSAGES: usize = 64;
const BURST_BYTES: usize = 64 << 10;

/// Follows the demo's instructions until it closes the stream.
pub(crate) fn run(location: &BusLocation, arguments: &DemoChild) -> Result<(), Failure> {
    let mut parent = Parent::connect();
    let bus = location
        .config()
        .participant_name(format!("demo-publisher-{}", arguments.index))
        .open_existing(&location.bus)?;
    let publisher = bus.publisher(&format!("demo/publisher/{}", arguments.index))?;
    let size = usize::try_from(arguments.size).unwrap_or(0);
    let length = (BURST_BYTES / size.max(1)).clamp(1, BURST_MESSAGES);
    let mut process = Process {
        publisher,
        index: arguments.index,
        number: 0,
        burst: vec![vec![0; size]; length],
    };

    parent.report(&Report::Ready)?;
    while let Some(instruction) = parent.instruction()? {
        match instruction {
            Instruction::Flood { messages, report_every, hold_at } => {
                process.flood(messages, report_every.max(1), hold_at, &mut parent)?;
            }
            Instruction::Steady { messages, interval_ns, offset_ns } => {
                process.steady(messages, interval_ns, offset_ns)?;
                parent.report(&Report::SteadyDone)?;
            }
            Instruction::Proceed => {}
        }
    }
    Ok(())
}

struct Process {
    publisher: Publisher,
    index: u16,
    /// Number of the next message.
    number: u64,
    burst: Vec<Vec<u8>>,
}

impl Process {
    fn flood(
        &mut self,
        messages: u64,
        report_every: u64,
        mut hold_at: Option<u64>,
        parent: &mut Parent,
    ) -> Result<(), Failure> {
        let started_ns = now_ns();
        let mut sent = 0;
        let mut next_report = 0;
        while sent < messages {
            if hold_at.is_some_and(|hold| sent >= hold) {
                parent.report(&Report::Sent { messages: sent, holding: true })?;
                if parent.instruction()?.is_none() {
                    return Ok(());
                }
                hold_at = None;
            }
            let stretch = hold_at.unwrap_or(messages).min(messages) - sent;
            sent += self.publish_burst(stretch)?;
            if sent >= next_report {
                parent.report(&Report::Sent { messages: sent, holding: false })?;
                next_report = sent + report_every;
            }
        }
        parent.report(&Report::FloodDone { started_ns })
    }

    /// Publishes a burst of at most `most` messages and returns how many. Only the first has the time in it.
    fn publish_burst(&mut self, most: u64) -> Result<u64, Failure> {
        let mut time_ns = now_ns();
        let mut count = 0;
        for message in self.burst.iter_mut().take(usize::try_from(most).unwrap_or(usize::MAX)) {
            payload::write(Header { publisher: self.index, number: self.number, time_ns }, message);
            time_ns = 0;
            self.number += 1;
            count += 1;
        }
        self.publisher.burst(&self.burst[..count], Limit::Policy)?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    fn steady(&mut self, messages: u64, interval_ns: u64, offset_ns: u64) -> Result<(), Failure> {
        let started_ns = now_ns() + offset_ns;
        for turn in 0..messages {
            let due_ns = started_ns + turn * interval_ns;
            std::thread::sleep(Duration::from_nanos(due_ns.saturating_sub(now_ns())));
            let message = &mut self.burst[0];
            payload::write(
                Header { publisher: self.index, number: self.number, time_ns: now_ns() },
                message,
            );
            self.publisher.publish(message)?;
            self.number += 1;
        }
        Ok(())
    }
}
