//! The processes of a run.

use super::{Plan, Used};
use crate::Failure;
use crate::child::Child;
use crate::clock::{Usage, cpu_ns, cpu_of_process_ns};
use crate::job::Role;
use crate::topics::{Crowd, MESSAGES, PARTS, Publisher, Subscriber, Topics};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// How long the publisher waits for all to be asleep, and for messages that are still under way.
const CALM: Duration = Duration::from_millis(300);
const PAYLOAD: [u8; 64] = [7; 64];

/// Does the part of this process, over `C`.
pub(super) fn perform<C: Topics>(child: &mut Child, plan: &Plan) -> Result<(), Failure> {
    let job = child.job().clone();
    let crowd = Crowd { subscribers: job.setup.receivers, same: plan.same };
    match job.role {
        Role::Host => {
            let _host = C::host(&job.directory, &crowd)?;
            child.host(C::about(&crowd))
        }
        Role::Sender(_) => {
            let mut publisher = C::publisher(&job.directory, &crowd)?;
            child.ready()?;
            child.wait_at_gate()?;
            let used = publish(&mut publisher, plan)?;
            child.finish()?;
            child.result(&used)
        }
        Role::Receiver(index) => {
            let subscriber = C::subscriber(&job.directory, &crowd, index)?;
            child.ready()?;
            child.wait_at_gate()?;
            let used = receive(subscriber)?;
            child.finish()?;
            child.result(&used)
        }
    }
}

fn publish(publisher: &mut impl Publisher, plan: &Plan) -> Result<Used, Failure> {
    let mut meter = Meter::new(publisher.broker());
    std::thread::sleep(CALM);
    publisher.publish(PARTS, &PAYLOAD)?;
    publisher.settle()?;
    meter.part();
    std::thread::sleep(Duration::from_nanos(plan.length_ns) + CALM);
    publisher.publish(PARTS, &PAYLOAD)?;
    publisher.settle()?;
    meter.part();
    let (began, mut published) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_nanos(plan.length_ns) {
        publisher.publish(MESSAGES, &PAYLOAD)?;
        published += 1;
        let due = Duration::from_nanos(plan.interval_ns.saturating_mul(published));
        std::thread::sleep(due.saturating_sub(began.elapsed()));
    }
    let publishing_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    std::thread::sleep(CALM);
    publisher.publish(PARTS, &PAYLOAD)?;
    publisher.settle()?;
    meter.part();
    Ok(Used { publishing_ns, ..meter.used(published)? })
}

fn receive(subscriber: impl Subscriber) -> Result<Used, Failure> {
    let mut meter = Meter::new(None);
    let mut received = 0;
    subscriber.receive(|topic| {
        if topic == PARTS {
            meter.part();
        } else {
            received += 1;
        }
        if meter.is_complete() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    meter.used(received)
}

/// What this process, and a broker, had used at the beginning of each part.
struct Meter {
    broker: Option<u32>,
    parts: Vec<Part>,
}

/// The beginning of a part.
struct Part {
    at: Instant,
    cpu_ns: Option<u64>,
    sleeps: u64,
}

impl Meter {
    fn new(broker: Option<u32>) -> Self {
        Self { broker, parts: Vec::new() }
    }

    fn part(&mut self) {
        let at = Instant::now();
        let broker = self.broker.map_or(Some(0), cpu_of_process_ns);
        let cpu_ns = broker.map(|broker| broker + cpu_ns());
        self.parts.push(Part { at, cpu_ns, sleeps: Usage::of_process().sleeps });
    }

    fn is_complete(&self) -> bool {
        self.parts.len() == 3
    }

    fn used(&self, messages: u64) -> Result<Used, Failure> {
        let [first, second, last] = &self.parts[..] else {
            return Err(Failure::new("a part of the run did not begin"));
        };
        let cpu_ns = |part: &Part| {
            part.cpu_ns.ok_or_else(|| Failure::new("cannot read the processor time of the broker"))
        };
        let length = |from: &Part, to: &Part| {
            u64::try_from(to.at.duration_since(from.at).as_nanos()).unwrap_or(u64::MAX)
        };
        Ok(Used {
            silent_ns: cpu_ns(second)?.saturating_sub(cpu_ns(first)?),
            busy_ns: cpu_ns(last)?.saturating_sub(cpu_ns(second)?),
            silent_length_ns: length(first, second),
            busy_length_ns: length(second, last),
            silent_sleeps: second.sleeps.saturating_sub(first.sleeps),
            busy_sleeps: last.sleeps.saturating_sub(second.sleeps),
            messages,
            publishing_ns: 0,
        })
    }
}
