//! Runs a scenario: nodes, virtual time, and what the oracle must know.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use crate::arrivals::{Arrivals, Flow, Inbox};
use crate::audience::Name;
use crate::batcher::Now;
use crate::config::Order;
use crate::id::{Number, Realm, Sequence, Series, Session, Source, Stream};
use crate::legs::Path;
use crate::random::Random;
use crate::reassembly::{Bound, Loss, Message};
use crate::receiver::{Mark, Me};
use crate::sender::{Identity, Sender};
use crate::time::{MILLISECOND, Monotonic, SECOND, Wall};
use crate::wire::{
    Address, Flags, Header, Key, Keys, LostReason, Nak, NodeName, Range, Receiver, Repairers,
    Start, TableName, TopicNumber,
};

use super::network::{Network, Node};
use super::oracle::{self, Case, Count, Given, Truth};
use super::scenario::{FAULTS_END, Kind, Scenario};

const FIRST: u64 = (1 << 63) - 1_000_000_000;
const NUMBERS: u64 = (1 << 47) - 1_000_000;
const MONOTONIC: u64 = 1_000 * SECOND;
const WALL: u64 = 1_800_000_000 * SECOND;

#[derive(Debug, Default)]
pub(super) struct Summary {
    pub(super) delivered: u64,
    pub(super) lost: u64,
    pub(super) repairs: u64,
    pub(super) naks: u64,
    pub(super) datagrams: u64,
}

impl Summary {
    pub(super) fn add(&mut self, other: &Self) {
        self.delivered += other.delivered;
        self.lost += other.lost;
        self.repairs += other.repairs;
        self.naks += other.naks;
        self.datagrams += other.datagrams;
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive { to: Node, from: Node, bytes: Vec<u8> },
    Publish { sender: usize },
    Begin { fault: usize },
    End { fault: usize },
    Hostile { fault: usize },
}

/// A message as it stands on the bus of a sender.
struct Entry {
    number: u64,
    topic: String,
    bytes: Option<Vec<u8>>,
}

struct SenderNode {
    sender: Option<Sender>,
    session: u32,
    series: u32,
    bus: Vec<Entry>,
    cursor: usize,
    published: usize,
    number: u64,
    wall_step: u64,
    /// It has ended for good.
    ended: bool,
}

struct ReceiverNode {
    arrivals: Option<Arrivals>,
    session: u32,
    /// Since when it does not run, and what waits in its socket.
    stopped: Option<u64>,
    socket: VecDeque<(Address, Vec<u8>)>,
    record: Record,
    lives: usize,
}

/// What a receiver was given, by sender and by life without memory.
#[derive(Default)]
struct Record {
    now: u64,
    names: BTreeMap<(u32, u32, u32), String>,
    given: BTreeMap<(usize, usize), Vec<Given>>,
    life: usize,
}

impl Inbox for Record {
    fn message(&mut self, flow: Flow, message: Message<'_>) {
        let bytes = message.parts.flatten().copied().collect();
        let key = (flow.source.0, flow.session.0, message.start.topic.get());
        let given = Given::Message {
            series: flow.series.0,
            number: message.start.number.get(),
            topic: self.names.get(&key).cloned(),
            bytes,
        };
        self.given.entry((flow.source.0 as usize, self.life)).or_default().push(given);
    }

    fn topic(&mut self, flow: Flow, number: TopicNumber, name: TableName<'_>) {
        let key = (flow.source.0, flow.session.0, number.get());
        self.names.insert(key, name.as_str().to_owned());
    }

    fn loss(&mut self, flow: Flow, loss: Loss) {
        let given = Given::Loss {
            at: self.now,
            series: flow.series.0,
            count: match loss.bound {
                Bound::Exact => Count::Exact(loss.count),
                Bound::AtLeast => Count::AtLeast(loss.count),
                Bound::AtMost => Count::AtMost(loss.count),
            },
            reason: loss.reason,
            after: loss.after.map(Number::get),
            until: loss.until.map(Number::get),
        };
        self.given.entry((flow.source.0 as usize, self.life)).or_default().push(given);
    }
}

struct World<'a> {
    scenario: &'a Scenario,
    now: u64,
    order: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    network: Network,
    random: Random,
    senders: Vec<SenderNode>,
    receivers: Vec<ReceiverNode>,
    truths: Vec<BTreeMap<u32, Truth>>,
    topics: Vec<BTreeMap<(u32, u64), String>>,
    /// What was published when the faults were long over: sender, series, number.
    late: Vec<(usize, u32, u64)>,
    captured: VecDeque<Vec<u8>>,
    jumped: bool,
    summary: Summary,
}

pub(super) fn run(scenario: &Scenario) -> Result<Summary, String> {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut world = World::new(scenario);
        world.run()?;
        world.judge()
    }));
    outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panicked: {}", text.unwrap_or_default()))
    })
}

fn address(node: Node) -> Address {
    let port = match node {
        Node::Sender(at) => 200 + at,
        Node::Receiver(at) => 100 + at,
        Node::Stranger(at) => 300 + at,
    };
    Address { ip: [0; 16], port: u16::try_from(port).unwrap() }
}

fn node(address: Address) -> Node {
    let port = usize::from(address.port);
    match port {
        100..200 => Node::Receiver(port - 100),
        200..300 => Node::Sender(port - 200),
        _ => Node::Stranger(port.saturating_sub(300)),
    }
}

fn keys(scenario: &Scenario) -> Option<Keys> {
    scenario.keyed.then(|| Keys { first: Key::new([7; 32]), next: None })
}

fn content(sender: usize, series: u32, number: u64, length: usize) -> Vec<u8> {
    let mut random = Random::new(number ^ u64::from(series) << 50 ^ (sender as u64) << 40);
    (0..length).map(|_| random.number().to_le_bytes()[0]).collect()
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let mut world = Self {
            scenario,
            now: 0,
            order: 0,
            events: BinaryHeap::new(),
            network: Network::new(scenario),
            random: Random::new(scenario.seed ^ 99),
            senders: Vec::new(),
            receivers: Vec::new(),
            truths: vec![BTreeMap::new(); scenario.publishes.len()],
            topics: vec![BTreeMap::new(); scenario.publishes.len()],
            late: Vec::new(),
            captured: VecDeque::new(),
            jumped: false,
            summary: Summary::default(),
        };
        for (at, publishes) in scenario.publishes.iter().enumerate() {
            world.senders.push(SenderNode {
                sender: None,
                session: 1_000,
                series: 1,
                bus: Vec::new(),
                cursor: 0,
                published: 0,
                number: NUMBERS,
                wall_step: 0,
                ended: false,
            });
            world.start_sender(at);
            if let Some(first) = publishes.first() {
                world.at(first.at, Event::Publish { sender: at });
            }
        }
        for at in 0..scenario.receivers {
            world.receivers.push(ReceiverNode {
                arrivals: None,
                session: 5_000,
                stopped: None,
                socket: VecDeque::new(),
                record: Record::default(),
                lives: 0,
            });
            world.start_receiver(at, &[]);
        }
        for (at, fault) in scenario.faults.iter().enumerate() {
            world.at(fault.from, Event::Begin { fault: at });
            world.at(fault.until, Event::End { fault: at });
        }
        world
    }

    fn at(&mut self, time: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((time, self.order, event)));
    }

    fn clock(&self, step: u64) -> Now {
        Now {
            monotonic: Monotonic::from_ns(MONOTONIC + self.now),
            wall: Wall::from_ns(WALL + self.now + step),
        }
    }

    fn start_sender(&mut self, at: usize) {
        let now = self.clock(0).monotonic;
        let node = &mut self.senders[at];
        node.session += 1;
        let begins = node.bus.get(node.cursor).map_or(node.number, |entry| entry.number);
        let patterns = [TableName::new("plant/**").unwrap()];
        let name = format!("sender-{at}");
        let identity = Identity {
            header: Header {
                flags: Flags::NONE,
                ttl: 16,
                realm: Realm(9),
                stream: Stream(1),
                source: Source(u32::try_from(at).unwrap()),
                session: Session(node.session),
                sequence: Sequence::new(FIRST).unwrap(),
            },
            keys: keys(self.scenario),
            name: NodeName::new(&name).unwrap(),
            instance: [u8::try_from(at).unwrap(); 16],
            series: Series(node.series),
            begins: Number::new(begins).unwrap(),
            patterns: &patterns,
            repairers: Repairers::default(),
            listen: 0,
            required: &[],
        };
        node.sender = Some(Sender::new(&self.scenario.config, &identity, now).unwrap());
    }

    fn start_receiver(&mut self, at: usize, marks: &[(Source, Stream, Mark)]) {
        let node = &mut self.receivers[at];
        node.session += 1;
        let source = Source(100 + u32::try_from(at).unwrap());
        let name = format!("receiver-{at}");
        let me = Me {
            id: Receiver { source, session: Session(node.session) },
            name: Name::new(NodeName::new(&name).unwrap()),
            required: false,
        };
        let random = Random::new(self.scenario.seed ^ (at as u64) << 20 ^ u64::from(node.session));
        let mut arrivals = Arrivals::new(
            &self.scenario.config,
            Realm(9),
            keys(self.scenario),
            me,
            [100 + u8::try_from(at).unwrap(); 16],
            random,
        );
        for (source, stream, mark) in marks {
            assert!(arrivals.remember(*source, *stream, *mark));
        }
        node.arrivals = Some(arrivals);
    }

    fn end_of_run(&self) -> u64 {
        self.quiet_after() + 4 * self.scenario.config.generation_ns + 2 * SECOND
    }

    /// Whether a stranger is there whose datagrams are believed.
    fn is_forged(&self) -> bool {
        let forged = |fault: &super::scenario::Fault| fault.kind == Kind::Hostile;
        !self.scenario.keyed && self.scenario.faults.iter().any(forged)
    }

    /// What was published when the faults were long over must have arrived.
    fn has_all_late(&self, sender: usize, given: &[Given]) -> Result<(), String> {
        for (_, series, number) in self.late.iter().filter(|(one, ..)| *one == sender) {
            let is_it = |one: &Given| {
                matches!(one, Given::Message { series: in_series, number: at, .. }
                    if in_series == series && at == number)
            };
            if !given.iter().any(is_it) {
                return Err(format!("number {number} of sender {sender} did not arrive"));
            }
        }
        Ok(())
    }

    /// Until when losses may be reported.
    fn quiet_after(&self) -> u64 {
        // Without a key, a stranger may take over a stream that the network has silenced. Its sender is
        // believed again when the stranger has been silent for long.
        let regained = if self.is_forged() { 4 * SECOND } else { 0 };
        FAULTS_END + 2 * self.scenario.config.generation_ns + 500 * MILLISECOND + regained
    }

    fn run(&mut self) -> Result<(), String> {
        let (mut steps_here, mut steps) = (0, 0_u64);
        loop {
            self.drain();
            let next = self.events.peek().map(|Reverse((time, ..))| *time);
            let timer = self.next_timer();
            let time = next.into_iter().chain(timer).min().unwrap_or(u64::MAX).max(self.now);
            if time > self.end_of_run() {
                return Ok(());
            }
            steps_here = if time > self.now { 0 } else { steps_here + 1 };
            if steps_here > 20_000 {
                return Err(format!("time stands still at {time}"));
            }
            steps += 1;
            self.now = time;
            if next.is_some_and(|next| next <= time)
                && let Some(Reverse((_, _, event))) = self.events.pop()
            {
                self.happen(event);
            }
            self.timers();
            if steps.is_multiple_of(64) {
                self.check_memory()?;
            }
        }
    }

    fn check_memory(&self) -> Result<(), String> {
        for node in &self.receivers {
            if let Some(arrivals) = &node.arrivals {
                let (free, held) = arrivals.buffers();
                let config = &self.scenario.config;
                let all = config.receive_memory_bytes / config.datagram_bytes;
                if (free + held) as u64 != all {
                    return Err(format!("{free} buffers are free and {held} held, of {all}"));
                }
            }
        }
        Ok(())
    }

    fn lateness(&self, at: usize) -> u64 {
        let faults = self.scenario.faults.iter();
        let late = faults.filter_map(|fault| match fault.kind {
            Kind::Late { by }
                if fault.who % self.scenario.receivers == at
                    && fault.from <= self.now
                    && self.now < fault.until =>
            {
                Some(by)
            }
            _ => None,
        });
        late.max().unwrap_or(0)
    }

    fn next_timer(&self) -> Option<u64> {
        let senders = self.senders.iter().filter_map(|node| node.sender.as_ref()?.poll_timeout());
        let receivers =
            self.receivers.iter().enumerate().filter(|(_, node)| node.stopped.is_none());
        let receivers = receivers.filter_map(|(at, node)| {
            let due = node.arrivals.as_ref()?.poll_timeout()?;
            Some(due.after(self.lateness(at)))
        });
        senders.chain(receivers).min().map(|due| due.ns().saturating_sub(MONOTONIC))
    }

    fn timers(&mut self) {
        for at in 0..self.senders.len() {
            let now = self.clock(self.senders[at].wall_step);
            if let Some(sender) = &mut self.senders[at].sender
                && sender.poll_timeout().is_some_and(|due| due <= now.monotonic)
            {
                sender.handle_timeout(now);
            }
            self.pump(at);
        }
        for at in 0..self.receivers.len() {
            let now = self.clock(0).monotonic;
            let late = self.lateness(at);
            let node = &mut self.receivers[at];
            node.record.now = self.now;
            if node.stopped.is_none()
                && let Some(arrivals) = &mut node.arrivals
                && arrivals.poll_timeout().is_some_and(|due| due.after(late) <= now)
            {
                arrivals.handle_timeout(now, &mut node.record);
            }
        }
    }

    /// Packs what is on the bus.
    fn pump(&mut self, at: usize) {
        let now = self.clock(self.senders[at].wall_step);
        let implicit = self.scenario.config.batch_delay_ns == 0;
        let SenderNode { sender: Some(sender), bus, cursor, .. } = &mut self.senders[at] else {
            return;
        };
        if sender.is_ending() {
            return;
        }
        let before = *cursor;
        while let Some(entry) = bus.get(*cursor) {
            let number = Number::new(entry.number).unwrap();
            let packed = match &entry.bytes {
                None => sender.lost(now, 1, number.plus(1), LostReason::Overtaken),
                Some(bytes) => match sender.topic(now, TableName::new(&entry.topic).unwrap()) {
                    Ok(topic) => {
                        let start = Start {
                            topic: topic.unwrap(),
                            number,
                            to_descendants: false,
                            published: None,
                            origin: None,
                        };
                        sender.message(now, start, bytes)
                    }
                    Err(full) => Err(full),
                },
            };
            if packed.is_err() {
                break;
            }
            *cursor += 1;
        }
        if implicit && *cursor > before {
            sender.flush(now);
        }
    }

    /// Puts what the nodes have to send on the network.
    fn drain(&mut self) {
        for at in 0..self.senders.len() {
            let now = self.clock(self.senders[at].wall_step);
            let mut sent = Vec::new();
            if let Some(sender) = &mut self.senders[at].sender {
                while let Some(bytes) = sender.poll_transmit(now) {
                    sent.push(bytes.to_vec());
                }
            }
            for bytes in sent {
                self.capture(&bytes);
                for receiver in 0..self.receivers.len() {
                    self.send(Node::Sender(at), Node::Receiver(receiver), &bytes);
                }
            }
        }
        for at in 0..self.receivers.len() {
            let now = self.clock(0).monotonic;
            let node_at = &mut self.receivers[at];
            let mut sent = Vec::new();
            if node_at.stopped.is_none()
                && let Some(arrivals) = &mut node_at.arrivals
            {
                while let Some((to, bytes)) = arrivals.poll_transmit(now) {
                    sent.push((to.address, bytes.to_vec()));
                }
            }
            for (to, bytes) in sent {
                self.send(Node::Receiver(at), node(to), &bytes);
            }
        }
    }

    fn capture(&mut self, bytes: &[u8]) {
        if self.captured.len() >= 64 {
            self.captured.pop_front();
        }
        self.captured.push_back(bytes.to_vec());
    }

    fn send(&mut self, from: Node, to: Node, bytes: &[u8]) {
        self.summary.datagrams += 1;
        let copies = self.network.carry(self.scenario, self.now, from, to, bytes.len());
        for (delay, changed) in copies {
            let mut bytes = bytes.to_vec();
            if let Some(bit) = changed {
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            self.at(self.now + delay, Event::Arrive { to, from, bytes });
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { to: Node::Sender(at), from, bytes } => {
                let now = self.clock(self.senders[at].wall_step);
                if let Some(sender) = &mut self.senders[at].sender {
                    let _ = sender.handle_datagram(now, address(from), &bytes);
                }
            }
            Event::Arrive { to: Node::Receiver(at), from, bytes } => {
                let now = self.clock(0).monotonic;
                let node = &mut self.receivers[at];
                node.record.now = self.now;
                if node.stopped.is_some() {
                    if node.socket.len() < 300 {
                        node.socket.push_back((address(from), bytes));
                    }
                } else if let Some(arrivals) = &mut node.arrivals {
                    let _ = arrivals.handle_datagram(
                        now,
                        Path::single(address(from)),
                        &bytes,
                        &mut node.record,
                    );
                }
            }
            Event::Arrive { .. } => {}
            Event::Publish { sender } => self.publish(sender),
            Event::Begin { fault } => self.begin(fault),
            Event::End { fault } => self.end(fault),
            Event::Hostile { fault } => self.hostile(fault),
        }
    }

    fn publish(&mut self, at: usize) {
        let list = &self.scenario.publishes[at];
        let node = &mut self.senders[at];
        if node.ended {
            return;
        }
        let one = &list[node.published];
        node.published += 1;
        let number = node.number + one.skip;
        node.number = number + 1;
        let missed = one.missed;
        let bytes = (!missed).then(|| content(at, node.series, number, one.length));
        let topic = format!("plant/{at}/{}", one.topic);
        let too_long = one.length as u64 > self.scenario.config.message_max_bytes;
        let truth = bytes.clone().filter(|_| !too_long);
        self.truths[at].entry(node.series).or_default().insert(number, truth);
        self.topics[at].insert((node.series, number), topic.clone());
        if self.now >= FAULTS_END + 850 * MILLISECOND && bytes.is_some() && !too_long {
            self.late.push((at, node.series, number));
        }
        node.bus.push(Entry { number, topic, bytes });
        if let Some(next) = list.get(node.published) {
            let time = next.at.max(self.now);
            self.at(time, Event::Publish { sender: at });
        }
        self.pump(at);
    }

    fn begin(&mut self, fault: usize) {
        let what = self.scenario.faults[fault];
        let sender = what.who % self.senders.len();
        let receiver = what.who % self.receivers.len();
        let now = self.clock(self.senders[sender].wall_step);
        match what.kind {
            _ if self.senders[sender].ended && what.kind.is_of_a_sender() => {}
            Kind::KillSender { .. } | Kind::NewSeries => self.senders[sender].sender = None,
            Kind::EndSender => {
                let node = &mut self.senders[sender];
                if node.cursor == node.bus.len()
                    && let Some(alive) = &mut node.sender
                    && !alive.is_ending()
                {
                    alive.end(now, false);
                    node.ended = true;
                }
            }
            Kind::RestartSender => {
                let node = &mut self.senders[sender];
                if node.cursor == node.bus.len()
                    && let Some(alive) = &mut node.sender
                {
                    alive.end(now, true);
                }
            }
            Kind::Stop => {
                let since = self.now;
                self.receivers[receiver].stopped.get_or_insert(since);
            }
            Kind::ClockStep => {
                self.senders[sender].wall_step = self.random.below(7_200) * SECOND;
            }
            Kind::Hostile => self.at(self.now, Event::Hostile { fault }),
            Kind::KillReceiver { remembers } => {
                let node = &mut self.receivers[receiver];
                // By arrival, only the bus knows what came above the mark.
                let remembers = remembers && self.scenario.config.order == Order::Source;
                if let Some(arrivals) = node.arrivals.take() {
                    let marks: Vec<_> = if remembers { arrivals.marks().collect() } else { vec![] };
                    if !remembers {
                        node.lives += 1;
                        node.record.life = node.lives;
                    }
                    self.start_receiver(receiver, &marks);
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, fault: usize) {
        let what = self.scenario.faults[fault];
        let sender = what.who % self.senders.len();
        let receiver = what.who % self.receivers.len();
        match what.kind {
            Kind::KillSender { again, skip } if self.senders[sender].sender.is_none() => {
                let node = &mut self.senders[sender];
                let back = usize::try_from(again).unwrap();
                let ahead = usize::try_from(skip).unwrap();
                node.cursor = node.cursor.saturating_sub(back);
                if back == 0 {
                    node.cursor = (node.cursor + ahead).min(node.bus.len());
                }
                self.start_sender(sender);
            }
            Kind::RestartSender if !self.senders[sender].ended => {
                self.senders[sender].sender = None;
                self.start_sender(sender);
            }
            Kind::NewSeries if self.senders[sender].sender.is_none() => {
                let node = &mut self.senders[sender];
                node.series += 1;
                node.bus.clear();
                (node.cursor, node.number) = (0, 0);
                self.start_sender(sender);
            }
            Kind::Stop => {
                let node = &mut self.receivers[receiver];
                let Some(since) = node.stopped.take() else { return };
                let slept = self.now - since;
                node.record.now = self.now;
                let now = Monotonic::from_ns(MONOTONIC + self.now);
                if let Some(arrivals) = &mut node.arrivals {
                    arrivals.postpone(slept);
                    for (from, bytes) in node.socket.drain(..) {
                        let _ = arrivals.handle_datagram(
                            now,
                            Path::single(from),
                            &bytes,
                            &mut node.record,
                        );
                    }
                }
                node.socket.clear();
            }
            _ => {}
        }
    }

    /// A stranger sends something.
    fn hostile(&mut self, fault: usize) {
        let what = self.scenario.faults[fault];
        if self.now >= what.until {
            return;
        }
        let to_sender = self.random.below(2) == 0;
        let to = if to_sender {
            Node::Sender(what.who % self.senders.len())
        } else {
            Node::Receiver(what.who % self.receivers.len())
        };
        let stranger = Node::Stranger(usize::try_from(self.random.below(40)).unwrap());
        let mut bytes = match self.captured.len() {
            0 => Vec::new(),
            count => {
                let at = usize::try_from(self.random.below(count as u64)).unwrap();
                self.captured[at].clone()
            }
        };
        match self.random.below(7) {
            0 => {
                bytes = (0..self.random.below(200))
                    .map(|_| self.random.number().to_le_bytes()[0])
                    .collect()
            }
            1 => {
                let keep = usize::try_from(self.random.below(bytes.len() as u64 + 1)).unwrap();
                bytes.truncate(keep);
            }
            // The same again, unchanged.
            2 => {}
            // Another source, or another session, of any type.
            3 if bytes.len() > 32 => bytes[16 + 1] ^= 0x55,
            4 if bytes.len() > 32 => bytes[20 + 1] ^= 0x55,
            // One datagram from far ahead.
            5 if bytes.len() > 32 && !self.jumped => {
                self.jumped = true;
                bytes[24 + 3] ^= 0x20;
            }
            _ => bytes = self.forged_nak(what.who % self.senders.len()),
        }
        let delay = self.scenario.delay;
        self.at(self.now + delay, Event::Arrive { to, from: stranger, bytes });
        let pause = self.random.below(2 * MILLISECOND);
        self.at(self.now + 1 + pause, Event::Hostile { fault });
    }

    fn forged_nak(&mut self, sender: usize) -> Vec<u8> {
        let node = &self.senders[sender];
        let Some(alive) = &node.sender else { return Vec::new() };
        let sent = alive.window().unsent().get() - FIRST;
        if sent == 0 {
            return Vec::new();
        }
        let first = FIRST + self.random.below(sent);
        let count = 1 + self.random.below(FIRST + sent - first);
        let range =
            Range::new(Sequence::new(first).unwrap(), u32::try_from(count).unwrap()).unwrap();
        let header = Header {
            flags: Flags::NONE,
            ttl: 1,
            realm: Realm(9),
            stream: Stream(1),
            source: Source(u32::try_from(sender).unwrap()),
            session: Session(node.session),
            sequence: Sequence::ZERO,
        };
        let id = Receiver {
            source: Source(u32::try_from(self.random.below(1 << 16)).unwrap()),
            session: Session(1),
        };
        let mut buffer = vec![0; 200];
        let length = Nak::encode(&header, id, &[range], None, &mut buffer).unwrap();
        buffer.truncate(length);
        buffer
    }

    fn judge(mut self) -> Result<Summary, String> {
        self.check_memory()?;
        for (at, node) in self.senders.iter().enumerate() {
            let Some(sender) = &node.sender else { return Err(format!("sender {at} is gone")) };
            if !sender.is_idle() || node.cursor < node.bus.len() {
                return Err(format!("sender {at} has not sent all"));
            }
            self.summary.repairs += sender.counters().repairs;
        }
        let generation = self.scenario.config.generation_ns;
        for (receiver, node) in self.receivers.iter().enumerate() {
            let arrivals = node.arrivals.as_ref().ok_or("a receiver is gone")?;
            let (_, held) = arrivals.buffers();
            if held > 0 || arrivals.open_gaps() > 0 {
                let gaps = arrivals.open_gaps();
                return Err(format!("receiver {receiver} holds {held} buffers, {gaps} gaps"));
            }
            for (.., counters) in arrivals.counters() {
                self.summary.naks += counters.naks;
            }
            for (sender, truths) in self.truths.iter().enumerate() {
                let alive = &self.senders[sender];
                let empty = Vec::new();
                for life in 0..=node.lives {
                    let given = node.record.given.get(&(sender, life)).unwrap_or(&empty);
                    // A stranger may have taken a stream over until its end.
                    let is_last = life == node.lives && !self.is_forged();
                    let topics = |series, number| {
                        self.topics[sender].get(&(series, number)).cloned().unwrap_or_default()
                    };
                    let case = Case {
                        truths,
                        given,
                        ordered: self.scenario.config.order == Order::Source,
                        quiet_after: self.quiet_after(),
                        faultless: self.scenario.faults.is_empty() && generation > 0,
                        last_series: if is_last { alive.series } else { u32::MAX },
                        topics: &topics,
                    };
                    let (delivered, lost) = oracle::judge(&case).map_err(|error| {
                        format!("receiver {receiver}, life {life}, of sender {sender}: {error}")
                    })?;
                    self.summary.delivered += delivered;
                    self.summary.lost += lost;
                    if is_last {
                        self.has_all_late(sender, given)
                            .map_err(|error| format!("receiver {receiver}: {error}"))?;
                    }
                }
            }
        }
        Ok(self.summary)
    }
}
