//! Runs a scenario: nodes, virtual time, and what the oracle must know.

mod faults;
mod hostile;
mod judge;
mod nodes;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use self::nodes::{Entry, Nothing, ReceiverNode, RepairerNode, SenderNode};
use super::fault::Kind;
use super::network::{Network, Node, Way, node, path};
use super::oracle::{Broken, Failure, Truth};
use super::scenario::Scenario;
use crate::arrivals::{self, Arrivals};
use crate::batcher::Now;
use crate::random::Random;
use crate::sender;
use crate::time::{Monotonic, SECOND, Wall};

const MONOTONIC: u64 = 1_000 * SECOND;
const WALL: u64 = 1_800_000_000 * SECOND;

/// What happened in a run, or in many.
#[derive(Debug, Default, Clone)]
pub(super) struct Summary {
    pub(super) published: u64,
    pub(super) delivered: u64,
    /// Messages that were reported as lost, exactly.
    pub(super) lost: u64,
    pub(super) repairs: u64,
    pub(super) naks: u64,
    pub(super) datagrams: u64,
    /// Required receivers that were put out, and that came back.
    pub(super) put_out: u64,
    pub(super) back: u64,
    /// Nodes that noticed another one with their id.
    pub(super) collisions: u64,
}

impl Summary {
    pub(super) fn add(&mut self, other: &Self) {
        self.published += other.published;
        self.delivered += other.delivered;
        self.lost += other.lost;
        self.repairs += other.repairs;
        self.naks += other.naks;
        self.datagrams += other.datagrams;
        self.put_out += other.put_out;
        self.back += other.back;
        self.collisions += other.collisions;
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive {
        to: Node,
        from: Node,
        leg: usize,
        bytes: Vec<u8>,
    },
    Publish {
        sender: usize,
    },
    Begin {
        fault: usize,
    },
    End {
        fault: usize,
    },
    /// A stranger, or a second node with the id of a sender, sends something.
    Foreign {
        fault: usize,
    },
    /// A node takes the next step of a change of keys: it stops, and starts again.
    Rekey {
        node: Node,
        step: usize,
        starts: bool,
    },
    /// All that goes wrong is over, with its consequences.
    Settled,
}

pub(super) struct World<'a> {
    scenario: &'a Scenario,
    now: u64,
    order: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    network: Network,
    random: Random,
    senders: Vec<SenderNode>,
    receivers: Vec<ReceiverNode>,
    repairers: Vec<RepairerNode>,
    /// By source.
    truths: Vec<BTreeMap<u32, Truth>>,
    topics: Vec<BTreeMap<(u32, u64), (u64, String)>>,
    /// The first number that a series used again, in another age of its sender.
    again_from: Vec<BTreeMap<u32, u64>>,
    /// What was published when all was over: source, series, number.
    late: Vec<(usize, u32, u64)>,
    captured: VecDeque<Vec<u8>>,
    /// What any node has sent, if a stranger records it.
    tape: Vec<Vec<u8>>,
    jumped: bool,
    last_session: u32,
    /// The second node that each fault has made.
    twins: BTreeMap<usize, usize>,
    /// What the senders have reported: when, which sender, and what.
    pub(super) reports: Vec<(u64, usize, sender::Event)>,
    summary: Summary,
}

pub(super) fn run(scenario: &Scenario) -> Result<Summary, Failure> {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        World::new(scenario).run().and_then(|world| world.judge())
    }));
    outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(Broken::Machine.because(format!("panicked: {}", text.unwrap_or_default())))
    })
}

impl<'a> World<'a> {
    pub(super) fn new(scenario: &'a Scenario) -> Self {
        let mut world = Self {
            scenario,
            now: 0,
            order: 0,
            events: BinaryHeap::new(),
            network: Network::new(scenario),
            random: Random::new(scenario.seed ^ 99),
            senders: Vec::new(),
            receivers: Vec::new(),
            repairers: (0..scenario.repairers).map(|_| RepairerNode::default()).collect(),
            truths: vec![BTreeMap::new(); scenario.publishes.len()],
            topics: vec![BTreeMap::new(); scenario.publishes.len()],
            again_from: vec![BTreeMap::new(); scenario.publishes.len()],
            late: Vec::new(),
            captured: VecDeque::new(),
            tape: Vec::new(),
            jumped: false,
            last_session: 1_000,
            twins: BTreeMap::new(),
            reports: Vec::new(),
            summary: Summary::default(),
        };
        for (at, publishes) in scenario.publishes.iter().enumerate() {
            world.senders.push(SenderNode::new(at, at, 1));
            world.start_sender(at);
            if let Some(first) = publishes.first() {
                world.at(first.at, Event::Publish { sender: at });
            }
        }
        for at in 0..scenario.receivers {
            world.receivers.push(ReceiverNode::new());
            world.receivers[at].start(scenario, at, Monotonic::from_ns(MONOTONIC), &[]);
        }
        for (at, fault) in scenario.faults.iter().enumerate() {
            world.at(fault.from, Event::Begin { fault: at });
            world.at(fault.until, Event::End { fault: at });
        }
        if scenario.rekeys {
            world.schedule_rekeys();
        }
        world.at(scenario.settled(), Event::Settled);
        world
    }

    fn at(&mut self, time: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((time, self.order, event)));
    }

    fn monotonic(&self) -> Monotonic {
        Monotonic::from_ns(MONOTONIC + self.now)
    }

    /// What the clocks of a sender show.
    fn clock(&self, sender: usize) -> Now {
        let wall = (WALL + self.now).saturating_add_signed(self.senders[sender].wall_step);
        Now { monotonic: self.monotonic(), wall: Wall::from_ns(wall) }
    }

    /// Starts a session that is later than all others.
    fn start_sender(&mut self, at: usize) {
        // Between two there is room for one of a sender that forgets: no session number is used twice.
        self.last_session += 8;
        let (session, now) = (self.last_session, self.monotonic());
        self.senders[at].start(self.scenario, session, now);
    }

    pub(super) fn run(mut self) -> Result<Self, Failure> {
        let (mut steps_here, mut steps) = (0, 0_u64);
        let end = self.scenario.end();
        loop {
            self.drain();
            let next = self.events.peek().map(|Reverse((time, ..))| *time);
            let timer = self.next_timer();
            let time = next.into_iter().chain(timer).min().unwrap_or(u64::MAX).max(self.now);
            if time > end {
                self.now = end;
                return Ok(self);
            }
            steps_here = if time > self.now { 0 } else { steps_here + 1 };
            if steps_here > 20_000 {
                return Err(Broken::Machine.because(format!("time stands still at {time}")));
            }
            steps += 1;
            self.now = time;
            if next.is_some_and(|next| next <= time)
                && let Some(Reverse((_, _, event))) = self.events.pop()
            {
                self.happen(event)?;
            }
            self.timers();
            if steps.is_multiple_of(64) {
                self.check_bounds()?;
            }
        }
    }

    /// By how much the timers of a node are late, and whether it handles them early.
    fn lateness(&self, node: Node) -> (u64, bool) {
        let (mut late, mut early) = (0, false);
        for fault in &self.scenario.faults {
            let is_it = match node {
                Node::Receiver(at) => fault.who % self.scenario.receivers == at,
                Node::Sender(at) => fault.who % self.scenario.publishes.len() == at,
                Node::Repairer(_) | Node::Stranger(_) => false,
            };
            if !is_it || self.now < fault.from || fault.until <= self.now {
                continue;
            }
            match fault.kind {
                Kind::Late { by } => late = late.max(by),
                Kind::Early => early = true,
                _ => {}
            }
        }
        (late, early)
    }

    fn sender_due(&self, at: usize) -> Option<Monotonic> {
        let node = &self.senders[at];
        let sender = node.sender.as_ref().filter(|_| node.process.runs())?;
        let ears = node.ears.as_ref().and_then(Arrivals::poll_timeout);
        let due = sender.poll_timeout().into_iter().chain(ears).min()?;
        Some(due.after(self.lateness(Node::Sender(at)).0))
    }

    fn receiver_due(&self, at: usize) -> Option<Monotonic> {
        let node = &self.receivers[at];
        let due = node.arrivals.as_ref().filter(|_| node.process.runs())?.poll_timeout()?;
        Some(due.after(self.lateness(Node::Receiver(at)).0))
    }

    fn next_timer(&self) -> Option<u64> {
        let senders = (0..self.senders.len()).filter_map(|at| self.sender_due(at));
        let receivers = (0..self.receivers.len()).filter_map(|at| self.receiver_due(at));
        senders.chain(receivers).min().map(|due| due.ns().saturating_sub(MONOTONIC))
    }

    fn timers(&mut self) {
        let monotonic = self.monotonic();
        for at in 0..self.senders.len() {
            let (due, now) = (self.sender_due(at), self.clock(at));
            let early = self.lateness(Node::Sender(at)).1;
            if let Some(due) = due
                && (due <= monotonic || early)
                && let Some(sender) = &mut self.senders[at].sender
            {
                sender.handle_timeout(now);
                if let Some(ears) = &mut self.senders[at].ears {
                    ears.handle_timeout(monotonic, &mut Nothing);
                }
                self.senders[at].process.due = true;
            }
        }
        for at in 0..self.receivers.len() {
            let early = self.lateness(Node::Receiver(at)).1;
            let due = self.receiver_due(at);
            let node = &mut self.receivers[at];
            if let Some(due) = due
                && (due <= monotonic || early)
                && let Some(arrivals) = &mut node.arrivals
            {
                node.record.now = self.now;
                arrivals.handle_timeout(monotonic, &mut node.record);
                node.process.due = true;
            }
        }
    }

    /// Puts what the nodes have to send on the network. Asks only those to which something happened: others must
    /// have a timer.
    fn drain(&mut self) {
        for at in 0..self.senders.len() {
            while core::mem::take(&mut self.senders[at].process.due) {
                self.drain_sender(at);
            }
        }
        for at in 0..self.receivers.len() {
            let now = self.monotonic();
            let receiver = &mut self.receivers[at];
            if !core::mem::take(&mut receiver.process.due) || !receiver.process.runs() {
                continue;
            }
            let Some(arrivals) = &mut receiver.arrivals else { continue };
            let mut sent = Vec::new();
            while let Some((to, bytes)) = arrivals.poll_transmit(now) {
                sent.extend(node(to).map(|to| (to, bytes.to_vec())));
            }
            for ((to, leg), bytes) in sent {
                self.send(Node::Receiver(at), to, leg, &bytes);
            }
        }
    }

    fn drain_sender(&mut self, at: usize) {
        let now = self.clock(at);
        let sending = &mut self.senders[at];
        sending.pump(self.scenario, now);
        let source = sending.source;
        let Some(sender) = sending.sender.as_mut().filter(|_| sending.process.runs()) else {
            return;
        };
        let mut sent = Vec::new();
        while let Some(bytes) = sender.poll_transmit(now) {
            sent.push(bytes.to_vec());
        }
        while let Some(event) = sender.poll_event() {
            self.reports.push((self.now, at, event));
        }
        sending.said_end &= sent.is_empty() || sender.is_ending();
        let mut asked = Vec::new();
        while let Some((to, bytes)) =
            sending.ears.as_mut().and_then(|ears| ears.poll_transmit(now.monotonic))
        {
            asked.extend(node(to).map(|to| (to, bytes.to_vec())));
        }
        // There may be room for more now.
        sending.process.due = sending.pump(self.scenario, now);
        for ((to, leg), bytes) in asked {
            self.send(Node::Sender(at), to, leg, &bytes);
        }
        for bytes in sent {
            self.capture(&bytes);
            for leg in 0..self.scenario.legs {
                for receiver in 0..self.receivers.len() {
                    self.send(Node::Sender(at), Node::Receiver(receiver), leg, &bytes);
                }
                for repairer in 0..self.repairers.len() {
                    self.send(Node::Sender(at), Node::Repairer(repairer), leg, &bytes);
                }
                for other in 0..self.senders.len() {
                    if other != at && self.senders[other].source == source {
                        self.send(Node::Sender(at), Node::Sender(other), leg, &bytes);
                    }
                }
            }
        }
    }

    fn send(&mut self, from: Node, to: Node, leg: usize, bytes: &[u8]) {
        // A stranger may have stated any address.
        let is_there = match to {
            Node::Sender(at) => at < self.senders.len(),
            Node::Receiver(at) => at < self.receivers.len(),
            Node::Repairer(at) => at < self.repairers.len(),
            Node::Stranger(_) => true,
        };
        if !is_there {
            return;
        }
        self.summary.datagrams += 1;
        self.record(bytes);
        let way = Way { from, to, leg, bytes: bytes.len() };
        for (delay, changed) in self.network.carry(self.scenario, self.now, way) {
            let mut bytes = bytes.to_vec();
            if let Some(bit) = changed {
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            self.at(self.now + delay, Event::Arrive { to, from, leg, bytes });
        }
    }

    fn happen(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Arrive { to: Node::Sender(at), from, leg, bytes } => {
                self.arrive_at_sender(at, from, leg, bytes);
            }
            Event::Arrive { to: Node::Receiver(at), from, leg, bytes } => {
                let now = self.monotonic();
                let node = &mut self.receivers[at];
                node.record.now = self.now;
                if !node.process.runs() {
                    node.process.queue(path(from, leg), bytes);
                } else if let Some(arrivals) = &mut node.arrivals {
                    let from = path(from, leg);
                    let _ = arrivals.handle_datagram(now, from, &bytes, &mut node.record);
                    node.process.due = true;
                }
            }
            Event::Arrive { to: Node::Repairer(at), bytes, .. } => {
                for bytes in self.repairers[at].handle(self.now, &bytes) {
                    self.summary.repairs += 1;
                    for receiver in 0..self.receivers.len() {
                        self.send(Node::Repairer(at), Node::Receiver(receiver), 0, &bytes);
                    }
                }
            }
            Event::Arrive { .. } => {}
            Event::Publish { sender } => self.publish(sender),
            Event::Begin { fault } => self.begin(fault),
            Event::End { fault } => self.end(fault),
            Event::Foreign { fault } => self.foreign(fault),
            Event::Rekey { node, step, starts } => self.rekey(node, step, starts),
            Event::Settled => return self.has_settled(),
        }
        Ok(())
    }

    fn arrive_at_sender(&mut self, at: usize, from: Node, leg: usize, bytes: Vec<u8>) {
        let now = self.clock(at);
        let from = path(from, leg);
        let node = &mut self.senders[at];
        if !node.process.runs() {
            return node.process.queue(from, bytes);
        }
        node.process.due = true;
        // NAK, STATUS and TOPICS_WANTED are for the stream; all else is of another node.
        if matches!(bytes.get(3), Some(3 | 5 | 7)) {
            if let Some(sender) = &mut node.sender {
                let _ = sender.handle_datagram(now, from.address, &bytes);
            }
            return;
        }
        let Some(ears) = node.ears.as_mut().filter(|_| node.sender.is_some()) else { return };
        let _ = ears.handle_datagram(now.monotonic, from, &bytes, &mut Nothing);
        while let Some(event) = ears.poll_event() {
            if let arrivals::Event::Collision { stop, .. } = event {
                self.summary.collisions += 1;
                if stop {
                    (node.sender, node.gone, node.collided) = (None, true, true);
                }
                break;
            }
        }
    }

    fn publish(&mut self, at: usize) {
        let list = &self.scenario.publishes[at];
        let node = &mut self.senders[at];
        if node.ended || node.gone {
            return;
        }
        let one = &list[node.published];
        node.published += 1;
        if let Some(next) = list.get(node.published) {
            let time = next.at.max(self.now);
            self.at(time, Event::Publish { sender: at });
        }
        self.put_on_bus(at, one.skip, one.topic, (!one.missed).then_some(one.length));
    }

    /// Publishes a message of a length, or lets the source miss one.
    fn put_on_bus(&mut self, at: usize, skip: u64, topic: usize, length: Option<usize>) {
        let now = self.clock(at);
        let node = &mut self.senders[at];
        let (source, series) = (node.source, node.series());
        let number = node.number + skip;
        node.number = number + 1;
        let topic = format!("plant/{source}/{topic}");
        let bytes = length.map(|length| content(source, series, number, length));
        let longest = self.scenario.config.message_max_bytes;
        let truth = bytes.clone().filter(|bytes| bytes.len() as u64 <= longest);
        if self.now > self.scenario.settled() && truth.is_some() {
            self.late.push((source, series, number));
        }
        self.truths[source].entry(series).or_default().insert(number, truth);
        self.topics[source].insert((series, number), (self.now, topic.clone()));
        self.summary.published += 1;
        node.bus.push(Entry { number, topic, bytes });
        node.pump(self.scenario, now);
    }
}

fn content(source: usize, series: u32, number: u64, length: usize) -> Vec<u8> {
    let mut random = Random::new(number ^ u64::from(series) << 50 ^ (source as u64) << 40);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend(random.number().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
