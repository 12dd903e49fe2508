//! The work of most workloads: senders send, receivers receive and check every message.

use crate::Failure;
use crate::child::Child;
use crate::clock::{cpu_ns, now_ns, sleeps};
use crate::job::{Job, Role};
use crate::registry::Work;
use crate::sequence::{self, Checker, Faults, Lengths, word_in};
use crate::summary::Latencies;
use crate::transport::{Receiver, ReceiverCounts, Sender, SenderCounts, Transport};
use serde::{Deserialize, Serialize};
use toroni_testkit::order::Digest;

/// What each sender sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// Messages of each sender.
    pub messages: u64,
    /// Their lengths; with `stamped`, at least 16 bytes.
    pub lengths: Lengths,
    /// Number of messages in a bundle, which is handed to the transport with one call. With 1, messages are sent one by
    /// one.
    pub bundle: usize,
    /// Whether messages carry the time at which they were handed over, in their bytes 8 to 16.
    pub stamped: bool,
    /// Whether receivers remember the order of all messages; see [`Received::order`].
    pub ordered: bool,
}

/// The measurements of a sender. Times are those of [`now_ns`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sent {
    /// Time before the first message.
    pub started_ns: u64,
    /// Time after the last message.
    pub ended_ns: u64,
    /// CPU time of the process since its start.
    pub cpu_ns: u64,
    /// The counters of the transport.
    pub counts: SenderCounts,
}

/// The measurements of a receiver. Times are those of [`now_ns`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Received {
    /// Number of messages.
    pub received: u64,
    /// Time at the first message.
    pub first_ns: u64,
    /// Time after the last message.
    pub last_ns: u64,
    /// How often the receiver slept before the last message.
    pub sleeps: u64,
    /// CPU time of the process since its start.
    pub cpu_ns: u64,
    /// Time from "ready" to the last message.
    pub busy_ns: u64,
    /// CPU time from "ready" to the last message.
    pub busy_cpu_ns: u64,
    /// Messages that were lost or wrong.
    pub faults: Faults,
    /// The counters of the transport.
    pub counts: ReceiverCounts,
    /// Latencies of stamped messages.
    pub latencies: Option<Latencies>,
    /// With [`Flow::ordered`], a number that is equal for receivers that saw all messages in the same order.
    pub order: Option<u64>,
}

impl Work for Flow {
    const NAME: &'static str = "flow";
    type Sent = Sent;
    type Received = Received;

    fn perform<T: Transport>(&self, child: &mut Child) -> Result<(), Failure> {
        if self.stamped && self.lengths.longest() < STAMPED_BYTES || self.lengths.longest() == 0 {
            return Err(Failure::new(format!(
                "messages of {:?} are too short for what they carry",
                self.lengths
            )));
        }
        let job = child.job().clone();
        match job.role {
            Role::Host => {
                let _host = T::host(&job.directory, &job.setup)?;
                child.host(T::about(&job.setup))
            }
            Role::Sender(index) => send::<T>(child, &job, self, index),
            Role::Receiver(index) => receive::<T>(child, &job, self, index),
        }
    }
}

/// Bytes of the number and the time.
const STAMPED_BYTES: usize = 16;
/// Number of messages between two reports of progress.
const PROGRESS_EVERY: u64 = 1 << 24;

fn send<T: Transport>(
    child: &mut Child,
    job: &Job,
    flow: &Flow,
    index: u16,
) -> Result<(), Failure> {
    let mut sender = T::sender(&job.directory, &job.setup, index)?;
    let sent = match flow.lengths {
        Lengths::OneToEight => {
            let mut bundle = Bundle::<Short>::new(flow, index, |_| Short::default());
            post(child, flow, &mut sender, &mut bundle)?
        }
        Lengths::Fixed(length) if job.setup.in_place => {
            fill(child, flow, &mut sender, index, length)?
        }
        Lengths::Fixed(length) => {
            let mut bundle = Bundle::<Vec<u8>>::new(flow, index, |_| vec![0; length]);
            post(child, flow, &mut sender, &mut bundle)?
        }
    };
    child.finish()?;
    child.result(&Sent { cpu_ns: cpu_ns(), counts: sender.counts()?, ..sent })
}

fn post<S: Sender, M: Message>(
    child: &mut Child,
    flow: &Flow,
    sender: &mut S,
    bundle: &mut Bundle<M>,
) -> Result<Sent, Failure> {
    // The first bundle is filled before the clock starts: the transport is measured, not this.
    bundle.number_from(0);
    child.ready()?;
    child.wait_at_gate()?;
    let started_ns = now_ns();
    let mut sent = 0;
    let mut progress_at = PROGRESS_EVERY;
    while sent < flow.messages {
        if sent > 0 {
            bundle.number_from(sent);
        }
        let messages = bundle.first(flow.messages - sent);
        if flow.stamped {
            let now = now_ns();
            messages.iter_mut().for_each(|message| message.stamp_time(now));
        }
        let count = messages.len() as u64;
        match messages {
            [one] => sender.send(one.as_ref())?,
            several => sender.send_all(several)?,
        }
        sent += count;
        if sent >= progress_at {
            progress_at += PROGRESS_EVERY;
            child.progress(sent)?;
        }
    }
    sender.flush()?;
    let ended_ns = now_ns();
    Ok(Sent { started_ns, ended_ns, cpu_ns: 0, counts: SenderCounts::default() })
}

/// Sends messages one by one, each written where the transport keeps it, so that a message is written only once. Only
/// the number at its front is written; the rest stays as it is.
fn fill<S: Sender>(
    child: &mut Child,
    flow: &Flow,
    sender: &mut S,
    index: u16,
    length: usize,
) -> Result<Sent, Failure> {
    child.ready()?;
    child.wait_at_gate()?;
    let started_ns = now_ns();
    let front = length.min(8);
    for number in 0..flow.messages {
        let word = sequence::word(index, number).to_le_bytes();
        sender.send_in_place(length, |slot| slot.write(0, &word[..front]))?;
        if number % PROGRESS_EVERY == PROGRESS_EVERY - 1 {
            child.progress(number)?;
        }
    }
    sender.flush()?;
    let ended_ns = now_ns();
    Ok(Sent { started_ns, ended_ns, cpu_ns: 0, counts: SenderCounts::default() })
}

fn receive<T: Transport>(
    child: &mut Child,
    job: &Job,
    flow: &Flow,
    index: u16,
) -> Result<(), Failure> {
    let mut receiver = T::receiver(&job.directory, &job.setup, index)?;
    let mut checker = Checker::new(job.setup.senders, flow.lengths)?;
    let mut order = flow.ordered.then(Digest::default);
    let expected = flow.messages * u64::from(job.setup.senders);
    let mut ages = Ages::new(if flow.stamped { expected } else { 0 })?;
    child.ready()?;

    let (ready_ns, ready_cpu_ns, ready_sleeps) = (now_ns(), cpu_ns(), sleeps());
    let mut first_ns = 0;
    // The first call is separate, so that the others need not check whether they are the first.
    receiver.wait(|payload| {
        let now = now_ns();
        if first_ns == 0 {
            first_ns = now;
        }
        if flow.stamped {
            ages.push(age_ns(payload, now));
        }
        checker.check(payload);
        if let Some(order) = &mut order {
            order.add(word_in(payload));
        }
    })?;
    match &mut order {
        _ if flow.stamped => {
            while checker.received() < expected {
                receiver.wait(|payload| {
                    ages.push(age_ns(payload, now_ns()));
                    checker.check(payload);
                })?;
            }
        }
        Some(order) => {
            while checker.received() < expected {
                receiver.wait(|payload| {
                    order.add(word_in(payload));
                    checker.check(payload);
                })?;
            }
        }
        None => {
            while checker.received() < expected {
                receiver.wait(|payload| checker.check(payload))?;
            }
        }
    }
    let last_ns = now_ns();
    let (busy_cpu_ns, sleeps) = (cpu_ns() - ready_cpu_ns, sleeps() - ready_sleeps);
    child.finish()?;
    child.result(&Received {
        received: checker.received(),
        first_ns,
        last_ns,
        sleeps,
        cpu_ns: cpu_ns(),
        busy_ns: last_ns - ready_ns,
        busy_cpu_ns,
        faults: checker.verdict(flow.messages),
        counts: receiver.counts()?,
        latencies: flow.stamped.then(|| ages.into_latencies()),
        order: order.map(Digest::value),
    })
}

/// Latencies as they come, in memory that has been touched before: the first touch of a histogram costs a page fault,
/// which would delay the next message.
struct Ages {
    ages_ns: Vec<u64>,
    latencies: Latencies,
}

/// Number of ages that are kept before they go into the histogram.
const MOST_AGES: u64 = 1 << 20;

impl Ages {
    fn new(expected: u64) -> Result<Self, Failure> {
        let capacity = usize::try_from(expected.min(MOST_AGES)).unwrap_or(0);
        // Ones, because zeros would be pages that the kernel has not made yet.
        let mut ages_ns = std::hint::black_box(vec![1; capacity]);
        ages_ns.clear();
        Ok(Self { ages_ns, latencies: Latencies::new()? })
    }

    #[inline]
    fn push(&mut self, age_ns: u64) {
        if self.ages_ns.len() == self.ages_ns.capacity() {
            self.empty();
        }
        self.ages_ns.push(age_ns);
    }

    #[cold]
    fn empty(&mut self) {
        self.ages_ns.drain(..).for_each(|age_ns| self.latencies.record(age_ns));
    }

    fn into_latencies(mut self) -> Latencies {
        self.empty();
        self.latencies
    }
}

fn age_ns(payload: &[u8], now: u64) -> u64 {
    let stamp = payload.get(8..STAMPED_BYTES).and_then(|bytes| bytes.first_chunk::<8>());
    now.saturating_sub(stamp.map_or(0, |bytes| u64::from_le_bytes(*bytes)))
}

/// A message that is reused with new numbers.
trait Message: AsRef<[u8]> {
    fn set(&mut self, length: usize, sender: u16, number: u64);
    fn stamp_time(&mut self, now: u64);
}

impl Message for Vec<u8> {
    #[inline]
    fn set(&mut self, _: usize, sender: u16, number: u64) {
        sequence::stamp(self, sender, number);
    }

    fn stamp_time(&mut self, now: u64) {
        self[8..STAMPED_BYTES].copy_from_slice(&now.to_le_bytes());
    }
}

/// A message of 1 to 8 bytes.
#[derive(Clone, Copy, Default)]
struct Short {
    bytes: [u8; 8],
    length: usize,
}

impl AsRef<[u8]> for Short {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length.min(8)]
    }
}

impl Message for Short {
    #[inline]
    fn set(&mut self, length: usize, sender: u16, number: u64) {
        self.bytes = sequence::word(sender, number).to_le_bytes();
        self.length = length;
    }

    /// Never called: `Flow::perform` refuses stamps in messages this short.
    fn stamp_time(&mut self, _: u64) {}
}

/// Messages that are handed to the transport with one call.
struct Bundle<M> {
    messages: Vec<M>,
    lengths: Lengths,
    sender: u16,
}

impl<M: Message> Bundle<M> {
    fn new(flow: &Flow, sender: u16, make: impl FnMut(usize) -> M) -> Self {
        let most = usize::try_from(flow.messages).unwrap_or(usize::MAX).max(1);
        let messages = (0..flow.bundle.clamp(1, most)).map(make).collect();
        Self { messages, lengths: flow.lengths, sender }
    }

    #[inline]
    fn number_from(&mut self, first: u64) {
        for (message, number) in self.messages.iter_mut().zip(first..) {
            message.set(self.lengths.of(number), self.sender, number);
        }
    }

    /// Returns as many messages as are still to be sent, at most all.
    fn first(&mut self, left: u64) -> &mut [M] {
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(self.messages.len());
        &mut self.messages[..count]
    }
}
