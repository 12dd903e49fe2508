//! The processes of a run.

use super::track::Track;
use super::{Plan, Probe};
use crate::Failure;
use crate::child::Child;
use crate::clock::now_ns;
use crate::experiment::multicast;
use crate::job::Role;
use crate::registry::Work;
use crate::run_directory::RunDirectory;
use crate::transport::{About, Guarantees, Transport};
use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::{Timespec, clock_gettime};
use std::time::Duration;
use toroni::{Bus, BusConfig, Policy, Publisher, Subscriber};

const BUS: &str = "jitter";
const TOPIC: &str = "jitter/tick";
/// Bytes of a message that mean something: its number and the time at which it was sent, 8 bytes each.
pub(super) const HEAD: usize = 16;
/// After this time without a message, the missing ones are lost.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a sender waits at first: the receivers have to pass the gate, too, and to fall asleep.
const SETTLE_NS: u64 = 5_000_000;

impl Work for Plan {
    const NAME: &'static str = "jitter";
    type Sent = ();
    type Received = Track;

    fn perform<T: Transport>(&self, child: &mut Child) -> Result<(), Failure> {
        let job = child.job().clone();
        match job.role {
            Role::Host => {
                let _bus = (self.probe == Probe::Bus).then(|| host(&job.directory)).transpose()?;
                child.host(About {
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    settings: format!("{self:?}"),
                    guarantees: Guarantees { lossless: true, total_order: true, in_place: false },
                })
            }
            Role::Sender(number) => {
                let sender = Sender::open(&job.directory, self.probe)?;
                self.class.enter()?;
                child.ready()?;
                child.wait_at_gate()?;
                self.send(&sender, u64::from(number))?;
                child.finish()?;
                child.result(&())
            }
            Role::Receiver(_) => {
                let mut receiver = Receiver::open(&job.directory, self)?;
                let compared = if self.receivers > 1 { self.messages() } else { 0 };
                let mut track = Track::new(usize::try_from(compared).unwrap_or(0))?;
                self.class.enter()?;
                child.ready()?;
                child.wait_at_gate()?;
                match &mut receiver {
                    Receiver::None if self.probe == Probe::Gaps => self.watch_clock(&mut track),
                    Receiver::None => self.sleep_again(&mut track)?,
                    other => self.receive(other, &mut track)?,
                }
                child.finish()?;
                child.result(&track)
            }
        }
    }
}

impl Plan {
    /// Returns how many messages all senders together send.
    fn messages(&self) -> u64 {
        self.per_sender() * u64::from(self.senders)
    }

    fn per_sender(&self) -> u64 {
        (self.run_ns / self.interval_ns).max(1)
    }

    /// Reads the clock without pause: the time between two readings is short, unless this thread did not run.
    fn watch_clock(&self, track: &mut Track) {
        let start_ns = now_ns();
        let mut last_ns = start_ns;
        while last_ns - start_ns < self.run_ns {
            let now = now_ns();
            track.record(last_ns - start_ns, self.run_ns, now - last_ns);
            last_ns = now;
        }
    }

    /// Sleeps until one point in time after the other, and records how late it woke.
    fn sleep_again(&self, track: &mut Track) -> Result<(), Failure> {
        let start_ns = monotonic_ns();
        for number in 1..=self.per_sender() {
            let due_ns = start_ns + number * self.interval_ns;
            sleep_until(due_ns)?;
            track.record(due_ns - start_ns, self.run_ns, monotonic_ns().saturating_sub(due_ns));
        }
        Ok(())
    }

    /// Sends a message at equal intervals. It sleeps in between, because a sender that polls would take a processor from
    /// the receivers.
    fn send(&self, sender: &Sender, sender_number: u64) -> Result<(), Failure> {
        let senders = u64::from(self.senders);
        // Several senders take turns.
        let start_ns = monotonic_ns() + SETTLE_NS + self.interval_ns * sender_number / senders;
        let mut bytes = vec![0; self.bytes.max(HEAD)];
        for number in 0..self.per_sender() {
            sleep_until(start_ns + number * self.interval_ns)?;
            bytes[..8].copy_from_slice(&(number * senders + sender_number).to_le_bytes());
            bytes[8..HEAD].copy_from_slice(&now_ns().to_le_bytes());
            sender.send(&bytes)?;
        }
        Ok(())
    }

    fn receive(&self, receiver: &mut Receiver, track: &mut Track) -> Result<(), Failure> {
        let start_ns = now_ns();
        let mut buffer = vec![0; self.bytes.max(HEAD) + 1];
        let mut received = 0;
        while received < self.messages() {
            let Some((number, sent_ns, now)) = receiver.next(&mut buffer)? else { break };
            let latency_ns = now.saturating_sub(sent_ns);
            track.record(now - start_ns, self.run_ns, latency_ns);
            let arrival = usize::try_from(number).ok().and_then(|at| track.arrivals.get_mut(at));
            if let Some(arrival) = arrival {
                *arrival = latency_ns.max(1);
            }
            received += 1;
        }
        track.missing = self.messages() - received;
        Ok(())
    }
}

fn host(directory: &RunDirectory) -> Result<Bus, Failure> {
    let config = config(directory).policy(Policy::Wait { limit: None });
    config.create(BUS).map_err(Failure::of("create the bus"))
}

fn open(directory: &RunDirectory) -> Result<Bus, Failure> {
    config(directory).open_existing(BUS).map_err(Failure::of("open the bus"))
}

fn config(directory: &RunDirectory) -> BusConfig {
    BusConfig::new().directory(&directory.path).prefault(true)
}

enum Sender {
    Datagrams(multicast::Sender),
    Bus(Publisher),
}

impl Sender {
    fn open(directory: &RunDirectory, probe: Probe) -> Result<Self, Failure> {
        if probe == Probe::Bus {
            let publisher = open(directory)?.publisher(TOPIC);
            return publisher.map(Self::Bus).map_err(Failure::of("make a publisher"));
        }
        multicast::Sender::open(directory).map(Self::Datagrams)
    }

    fn send(&self, bytes: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Datagrams(sender) => sender.send(bytes),
            Self::Bus(publisher) => {
                publisher.publish(bytes).map(drop).map_err(Failure::of("publish"))
            }
        }
    }
}

enum Receiver {
    /// The run needs no messages.
    None,
    Datagrams(multicast::Receiver),
    Bus(Box<Subscriber>),
}

impl Receiver {
    fn open(directory: &RunDirectory, plan: &Plan) -> Result<Self, Failure> {
        match plan.probe {
            Probe::Gaps | Probe::Timer => Ok(Self::None),
            Probe::Datagram => {
                let receiver = multicast::Receiver::open(directory)?;
                receiver.set_patience(PATIENCE + Duration::from_nanos(plan.interval_ns))?;
                Ok(Self::Datagrams(receiver))
            }
            Probe::Bus => {
                let subscriber = open(directory)?.subscribe(TOPIC);
                subscriber.map(|it| Self::Bus(Box::new(it))).map_err(Failure::of("subscribe"))
            }
        }
    }

    /// Sleeps until the next message. Returns its number, when it was sent, and the time now; or `None` if none came.
    fn next(&mut self, buffer: &mut [u8]) -> Result<Option<(u64, u64, u64)>, Failure> {
        let (bytes, now) = match self {
            Self::None => return Ok(None),
            Self::Datagrams(socket) => {
                let Some(length) = socket.wait(buffer)? else { return Ok(None) };
                let now = now_ns();
                (&buffer[..length], now)
            }
            Self::Bus(subscriber) => {
                let message =
                    subscriber.receive_timeout(PATIENCE).map_err(Failure::of("receive"))?;
                let Some(message) = message else { return Ok(None) };
                let now = now_ns();
                let length = message.payload().len().min(buffer.len());
                buffer[..length].copy_from_slice(&message.payload()[..length]);
                (&buffer[..length], now)
            }
        };
        let word = |at: usize| {
            let bytes = bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u64::from_le_bytes).ok_or_else(|| Failure::new("a message is too short"))
        };
        Ok(Some((word(0)?, word(8)?, now)))
    }
}

/// Returns the time of the clock in which a thread can sleep, in nanoseconds.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Sleeps until that time of [`monotonic_ns`].
fn sleep_until(due_ns: u64) -> Result<(), Failure> {
    let due = Timespec {
        tv_sec: (due_ns / 1_000_000_000).cast_signed(),
        tv_nsec: (due_ns % 1_000_000_000).cast_signed(),
    };
    loop {
        match clock_nanosleep_absolute(ClockId::Monotonic, &due) {
            Err(rustix::io::Errno::INTR) => {}
            other => return other.map_err(Failure::of("sleep")),
        }
    }
}
