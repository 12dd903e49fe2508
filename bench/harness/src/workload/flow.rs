//! Senders send, receivers receive and check: what throughput, latency and stress have in common.

use crate::Failure;
use crate::child::Child;
use crate::clock::{cpu_ns, now_ns, sleeps};
use crate::job::{Job, Role};
use crate::sequence::{self, Checker, Faults, Lengths, Order};
use crate::summary::Latencies;
use crate::transport::{Receiver, ReceiverCounts, Sender, SenderCounts, Transport};
use serde::{Deserialize, Serialize};

/// What each sender sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// Messages of each sender.
    pub messages: u64,
    /// How long they are. With `stamped`, at least 16 bytes.
    pub lengths: Lengths,
    /// How many are handed to the transport at once; 1 sends them one by one.
    pub group: usize,
    /// Whether messages carry the time at which they were handed over, in their bytes 8 to 16.
    pub stamped: bool,
}

/// What a sender measured. Times are [`now_ns`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sent {
    /// Before the first message.
    pub started_ns: u64,
    /// After the last.
    pub ended_ns: u64,
    /// CPU time of the whole process, from its start.
    pub cpu_ns: u64,
    /// What the transport counted.
    pub counts: SenderCounts,
}

/// What a receiver measured. Times are [`now_ns`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Received {
    /// Messages.
    pub received: u64,
    /// At the first message, and after the last.
    pub first_ns: u64,
    /// See `first_ns`.
    pub last_ns: u64,
    /// How often it slept until the last message.
    pub sleeps: u64,
    /// CPU time of the whole process, from its start.
    pub cpu_ns: u64,
    /// From "ready" to the last message: how long that took, and its CPU time.
    pub busy_ns: u64,
    /// See `busy_ns`.
    pub busy_cpu_ns: u64,
    /// What was wrong.
    pub faults: Faults,
    /// What the transport counted.
    pub counts: ReceiverCounts,
    /// Of stamped messages.
    pub latencies: Option<Latencies>,
    /// Of all messages, if it was to be remembered: equal for equal orders.
    #[serde(default)]
    pub order: Option<u64>,
}

pub(super) fn perform<T: Transport>(
    child: &mut Child,
    job: &Job,
    flow: &Flow,
    order: Option<Order>,
) -> Result<(), Failure> {
    if flow.stamped && flow.lengths.longest() < STAMPED_BYTES || flow.lengths.longest() == 0 {
        return Err(Failure::new(format!("{:?} is too short for what it carries", flow.lengths)));
    }
    match job.role {
        Role::Host => Ok(()),
        Role::Sender(index) => send::<T>(child, job, flow, index),
        Role::Receiver(index) => receive::<T>(child, job, flow, index, order),
    }
}

/// Number and time.
const STAMPED_BYTES: usize = 16;
/// Messages between two signs of life of a long run.
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
            let mut group = Group::<Short>::new(flow, index, |_| Short::default());
            post(child, flow, &mut sender, &mut group)?
        }
        Lengths::Fixed(length) if job.setup.in_place => {
            fill(child, flow, &mut sender, index, length)?
        }
        Lengths::Fixed(length) => {
            let mut group = Group::<Vec<u8>>::new(flow, index, |_| vec![0; length]);
            post(child, flow, &mut sender, &mut group)?
        }
    };
    child.finish()?;
    child.result(&Sent { cpu_ns: cpu_ns(), counts: sender.counts()?, ..sent })
}

fn post<S: Sender, M: Message>(
    child: &mut Child,
    flow: &Flow,
    sender: &mut S,
    group: &mut Group<M>,
) -> Result<Sent, Failure> {
    // The first group is made before the clock starts: what is measured is the transport.
    group.number_from(0);
    child.ready()?;
    child.wait_at_gate()?;
    let started_ns = now_ns();
    let mut sent = 0;
    let mut progress_at = PROGRESS_EVERY;
    while sent < flow.messages {
        if sent > 0 {
            group.number_from(sent);
        }
        let messages = group.first(flow.messages - sent);
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

/// One by one, each made where the transport keeps it: whoever can do that writes a message once. What
/// is written is the number at its front; the rest is what lies there.
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
    mut order: Option<Order>,
) -> Result<(), Failure> {
    let mut receiver = T::receiver(&job.directory, &job.setup, index)?;
    let mut checker = Checker::new(job.setup.senders, flow.lengths)?;
    let expected = flow.messages * u64::from(job.setup.senders);
    let mut ages = Ages::new(if flow.stamped { expected } else { 0 })?;
    child.ready()?;

    let (ready_ns, ready_cpu_ns, ready_sleeps) = (now_ns(), cpu_ns(), sleeps());
    let mut first_ns = 0;
    // The first call is apart, so that the others need not ask whether they are the first.
    receiver.wait(|payload| {
        let now = now_ns();
        if first_ns == 0 {
            first_ns = now;
        }
        if flow.stamped {
            ages.push(age_ns(payload, now));
        }
        checker.see(payload);
        if let Some(order) = &mut order {
            order.see(payload);
        }
    })?;
    match &mut order {
        _ if flow.stamped => {
            while checker.received() < expected {
                receiver.wait(|payload| {
                    ages.push(age_ns(payload, now_ns()));
                    checker.see(payload);
                })?;
            }
        }
        Some(order) => {
            while checker.received() < expected {
                receiver.wait(|payload| {
                    order.see(payload);
                    checker.see(payload);
                })?;
            }
        }
        None => {
            while checker.received() < expected {
                receiver.wait(|payload| checker.see(payload))?;
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
        order: order.map(Order::digest),
    })
}

/// Latencies as they come: in memory that has been touched before, since a histogram that is touched for
/// the first time costs a page fault, and the next message would pay for it.
struct Ages {
    ages_ns: Vec<u64>,
    latencies: Latencies,
}

/// Ages that are kept before they go into the histogram.
const MOST_AGES: u64 = 1 << 20;

impl Ages {
    fn new(expected: u64) -> Result<Self, Failure> {
        let capacity = usize::try_from(expected.min(MOST_AGES)).unwrap_or(0);
        // Ones, since zeros would be pages that the kernel has not made yet.
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

/// A message that is sent again and again with other numbers.
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

    /// Has no room for it; refused before.
    fn stamp_time(&mut self, _: u64) {}
}

/// Messages that are handed over together.
struct Group<M> {
    messages: Vec<M>,
    lengths: Lengths,
    sender: u16,
}

impl<M: Message> Group<M> {
    fn new(flow: &Flow, sender: u16, make: impl FnMut(usize) -> M) -> Self {
        let most = usize::try_from(flow.messages).unwrap_or(usize::MAX).max(1);
        let messages = (0..flow.group.clamp(1, most)).map(make).collect();
        Self { messages, lengths: flow.lengths, sender }
    }

    #[inline]
    fn number_from(&mut self, first: u64) {
        for (message, number) in self.messages.iter_mut().zip(first..) {
            message.set(self.lengths.of(number), self.sender, number);
        }
    }

    /// As many as are still to be sent.
    fn first(&mut self, left: u64) -> &mut [M] {
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(self.messages.len());
        &mut self.messages[..count]
    }
}
