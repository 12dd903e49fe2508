//! `toroni demo`: runs publishers and subscribers as real processes, kills one, and checks what arrived.
//!
//! There are two phases. In the *flood* phase all publishers publish as fast as they can. In its middle, one more
//! publisher, the *victim*, is killed with SIGKILL; no other publisher finishes before the victim is dead. In the
//! *steady* phase the survivors publish at a low rate, so that latency is the time a message takes and not the
//! time it waits in the ring.

pub(crate) mod options;
mod payload;
mod process_group;
mod protocol;
pub(crate) mod publisher;
mod report;
pub(crate) mod subscriber;
mod verdict;

use options::Demo;
use process_group::{Event, ProcessGroup, Role};
use protocol::{Instruction, Phase, Report};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use toroni::{Policy, PublishError, Publisher, admin};
use toroni_shell::failure::Failure;
use toroni_shell::location::BusLocation;
use toroni_shell::progress::Progress;
use toroni_shell::stop::{GracePeriod, Stop};

/// The smallest ring of the demo. Large messages get a larger ring.
const RING_BYTES: u64 = 4 << 20;
/// Messages per second in the steady phase, of all publishers together.
const STEADY_PER_SECOND: u64 = 2000;
/// Messages in the steady phase, of all publishers together.
const STEADY_MESSAGES: u64 = 2000;

/// Runs the demo; fails if a check does.
pub(crate) fn run(location: &BusLocation, arguments: &Demo) -> Result<(), Failure> {
    let least = payload::HEADER_BYTES;
    if usize::try_from(arguments.size).is_ok_and(|size| size < least) {
        return Err(Failure::Usage(format!(
            "--size {}: a message of the demo has at least {least} bytes",
            arguments.size
        )));
    }
    let stop = Stop::install(GracePeriod::Unlimited)?;
    let (mut bus, control) = DemoBus::create(location, arguments.size)?;
    // Declared after the bus and therefore dropped first: no process has the bus open when it is removed.
    let mut demo = Running { processes: ProcessGroup::new(), control, stop: &stop, arguments };
    let outcome = demo.run(&bus.location)?;
    drop(demo);
    bus.remove()?;

    let checks = verdict::judge(&outcome);
    let passed = checks.iter().all(|check| check.passed);
    report::print(arguments, &outcome, &checks)?;
    if passed { Ok(()) } else { Err(Failure::Failed("a check of the demo failed".to_owned())) }
}

struct Outcome {
    /// Messages that each survivor published in each phase.
    flood_published: Vec<u64>,
    steady_published: Vec<u64>,
    /// Messages that the victim reported as published before it was killed.
    victim_confirmed: u64,
    /// When the first publisher started the flood.
    started_ns: u64,
    /// What each subscriber received.
    flood: Vec<Phase>,
    steady: Vec<Phase>,
}

struct Running<'a> {
    processes: ProcessGroup,
    control: Publisher,
    stop: &'a Stop,
    arguments: &'a Demo,
}

impl Running<'_> {
    fn run(&mut self, location: &BusLocation) -> Result<Outcome, Failure> {
        let Demo { publishers, subscribers, messages, size, .. } = *self.arguments;
        // Subscribers first, so that they receive everything that is published.
        for index in 0..subscribers {
            self.processes.start(Role::Subscriber(index), index, size, location)?;
        }
        self.wait_until_ready(subscribers)?;
        for index in 0..publishers {
            self.processes.start(Role::Publisher(index), index, size, location)?;
        }
        self.processes.start(Role::Victim, publishers, size, location)?;
        self.wait_until_ready(publishers + 1)?;

        let flood_published = shares(messages, publishers);
        let steady_published = shares(STEADY_MESSAGES.min(messages), publishers);
        let (started_ns, victim_confirmed) = self.flood(&flood_published)?;
        let flood = self.end_phase(protocol::FLOOD_MARK)?;
        self.steady(&steady_published)?;
        let steady = self.end_phase(protocol::STEADY_MARK)?;
        self.processes.end(Role::Victim)?;
        Ok(Outcome {
            flood_published,
            steady_published,
            victim_confirmed,
            started_ns,
            flood,
            steady,
        })
    }

    fn wait_until_ready(&mut self, count: u16) -> Result<(), Failure> {
        for _ in 0..count {
            match self.processes.next(self.stop)? {
                Event::Reported(_, Report::Ready) => {}
                event => return Err(unexpected(&event)),
            }
        }
        Ok(())
    }

    /// Returns when the first publisher started, and how many messages the victim had confirmed.
    fn flood(&mut self, shares: &[u64]) -> Result<(u64, u64), Failure> {
        let total: u64 = shares.iter().sum();
        let report_every = (total / 100).max(1);
        for (role, share) in publishers(shares) {
            // Each publisher holds back its last quarter, at least one message, until the victim is dead.
            let hold_at = share.checked_sub((share / 4).max(1));
            self.processes
                .instruct(role, &Instruction::Flood { messages: share, report_every, hold_at })?;
        }
        self.processes.instruct(
            Role::Victim,
            &Instruction::Flood { messages: u64::MAX >> 16, report_every, hold_at: None },
        )?;

        let mut progress = Progress::new(Some(total));
        let mut sent = vec![0; shares.len()];
        let mut held = vec![false; shares.len()];
        let mut victim_confirmed = 0;
        let mut victim_alive = true;
        let mut started_ns = u64::MAX;
        let mut running = shares.len();
        while running > 0 || victim_alive {
            match self.processes.next(self.stop)? {
                Event::Reported(Role::Publisher(index), Report::Sent { messages, holding }) => {
                    sent[usize::from(index)] = messages;
                    held[usize::from(index)] |= holding;
                }
                Event::Reported(Role::Publisher(index), Report::FloodDone { started_ns: at }) => {
                    sent[usize::from(index)] = shares[usize::from(index)];
                    held[usize::from(index)] = true;
                    started_ns = started_ns.min(at);
                    running -= 1;
                }
                Event::Reported(Role::Victim, Report::Sent { messages, .. }) => {
                    victim_confirmed = messages;
                }
                Event::Ended(Role::Victim) if !victim_alive => {}
                event => return Err(unexpected(&event)),
            }
            let done: u64 = sent.iter().sum();
            progress.set(done);
            // The victim started last: give it time to publish. Kill it at the latest when all others wait for that.
            let in_the_middle = done >= total / 2 && victim_confirmed > total / 32;
            let at_the_latest = held.iter().all(|held| *held) && victim_confirmed > 0;
            if victim_alive && (in_the_middle || at_the_latest) {
                self.processes.kill(Role::Victim)?;
                victim_alive = false;
                for (role, _) in publishers(shares) {
                    self.processes.instruct(role, &Instruction::Proceed)?;
                }
            }
        }
        Ok((started_ns, victim_confirmed))
    }

    fn steady(&mut self, shares: &[u64]) -> Result<(), Failure> {
        let publishers_count = u64::try_from(shares.len()).unwrap_or(1);
        let turn_ns = 1_000_000_000 / STEADY_PER_SECOND;
        for (turn, (role, messages)) in (0..).zip(publishers(shares)) {
            let (interval_ns, offset_ns) = (turn_ns * publishers_count, turn_ns * turn);
            self.processes
                .instruct(role, &Instruction::Steady { messages, interval_ns, offset_ns })?;
        }
        let mut running = shares.len();
        while running > 0 {
            match self.processes.next(self.stop)? {
                Event::Reported(Role::Publisher(_), Report::SteadyDone) => running -= 1,
                Event::Ended(Role::Victim) => {}
                // A report from before the kill may be read late.
                Event::Reported(Role::Victim, _) => {}
                event => return Err(unexpected(&event)),
            }
        }
        Ok(())
    }

    /// Publishes the mark that ends a phase. A subscriber that receives it has received the whole phase.
    fn end_phase(&mut self, mark: &[u8]) -> Result<Vec<Phase>, Failure> {
        let deadline = Instant::now() + Duration::from_secs(60);
        while let Err(error) = self.control.publish_within(mark, Duration::from_millis(100)) {
            if !matches!(error, PublishError::Timeout) || Instant::now() >= deadline {
                return Err(error.into());
            }
            if self.stop.is_set() {
                return Err(self.stop.interrupted("interrupted"));
            }
        }
        let mut phases = Vec::new();
        while phases.len() < usize::from(self.arguments.subscribers) {
            match self.processes.next(self.stop)? {
                Event::Reported(Role::Subscriber(_), Report::Phase(phase)) => phases.push(*phase),
                Event::Reported(Role::Victim, _) | Event::Ended(Role::Victim) => {}
                // After the last phase the subscribers end one by one.
                Event::Ended(Role::Subscriber(_)) if mark == protocol::STEADY_MARK => {}
                event => return Err(unexpected(&event)),
            }
        }
        Ok(phases)
    }
}

fn unexpected(event: &Event) -> Failure {
    Failure::Failed(match event {
        Event::Ended(role) => format!("{role} ended unexpectedly"),
        Event::Reported(role, report) => format!("unexpected report from {role}: {report:?}"),
    })
}

fn publishers(shares: &[u64]) -> impl Iterator<Item = (Role, u64)> {
    (0..).map(Role::Publisher).zip(shares.iter().copied())
}

/// Splits `total` into `parts` parts that differ by at most 1.
fn shares(total: u64, parts: u16) -> Vec<u64> {
    let parts = u64::from(parts);
    (0..parts).map(|part| total / parts + u64::from(part < total % parts)).collect()
}

/// The demo's own bus. Dropping it removes the bus.
struct DemoBus {
    location: BusLocation,
    path: PathBuf,
    removed: bool,
}

impl DemoBus {
    /// Creates the bus and the demo's own publisher. Drop the publisher before the bus: it keeps the bus open.
    fn create(location: &BusLocation, size: u64) -> Result<(Self, Publisher), Failure> {
        let name = format!("demo-{}", std::process::id());
        let location = BusLocation { bus: name, dir: location.dir.clone() };
        let wanted = size.saturating_mul(8).checked_next_power_of_two().unwrap_or(u64::MAX);
        let bus = location
            .config()
            .participant_name("demo")
            .capacity(wanted.max(RING_BYTES))
            // Nothing may be lost: a publisher waits for the slowest subscriber for as long as that one lives.
            .policy(Policy::Wait { limit: None })
            .create(&location.bus)?;
        let path = bus.path().to_path_buf();
        let guard = Self { location, path, removed: false };
        let control = bus.publisher(protocol::CONTROL_TOPIC)?;
        Ok((guard, control))
    }

    fn remove(&mut self) -> Result<(), Failure> {
        self.removed = true;
        admin::clean(self.location.dir.as_deref(), Some(&self.location.bus), false)?;
        if self.path.exists() {
            return Err(Failure::Failed(format!(
                "could not remove {}, because a process has it open: `toroni info {}` shows which, \
                 `toroni clean {}` removes the bus afterwards",
                self.path.display(),
                self.location.bus,
                self.location.bus
            )));
        }
        Ok(())
    }
}

impl Drop for DemoBus {
    fn drop(&mut self) {
        if !self.removed
            && let Err(failure) = self.remove()
            && let (_, Some(text)) = failure.report()
        {
            let _ = writeln!(std::io::stderr(), "toroni: {text}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        assert_eq!(shares(10, 3), [4, 3, 3]);
        assert_eq!(shares(1, 3), [1, 0, 0]);
        assert_eq!(shares(1_000_000, 7).iter().sum::<u64>(), 1_000_000);
    }
}
