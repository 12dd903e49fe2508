//! Server, clients and the connections between them, in one thread and virtual time.

use super::link::Pipe;
use super::oracle::{self, Got, Sent};
use super::scenario::{END, FAULTS_END, Kind, Scenario};
use crate::arrivals::{Flow, Inbox};
use crate::audience::Name;
use crate::batcher::Now;
use crate::bounded::client::{self, Client};
use crate::bounded::server::{self, ClientId, Door, Server};
use crate::config::tcp::{Pace, TcpConfig};
use crate::id::{Number, Realm, Series, Session, Source, Stream};
use crate::past::Past;
use crate::random::Random;
use crate::reassembly::{Bound, Loss, Message};
use crate::receiver::End;
use crate::time::{MILLISECOND, Monotonic, SECOND, Wall};
use crate::wire::samples::KEYS;
use crate::wire::tcp::{self, Bye, Hello, Resume};
use crate::wire::{Keys, LostReason, NodeName, Reject, Start, TableName, TopicNumber};

const TICK: u64 = MILLISECOND;
/// Longer than any way takes.
const GOODBYE: u64 = 60 * MILLISECOND;
const REALM: Realm = Realm(7);
const SOURCE: Source = Source(0x0102_0304);
/// The longest message that a client takes, in turn: as long as those of the server, and shorter.
const LONGEST: [u64; 2] = [20_000, 8_000];

#[derive(Debug, Default, Clone)]
pub(super) struct Summary {
    pub(super) delivered: u64,
    pub(super) lost: u64,
    pub(super) left_out: u64,
    pub(super) connections: u64,
    pub(super) replayed: u64,
    pub(super) refused: u64,
    pub(super) slow: u64,
    /// Streams that have ended in order.
    pub(super) ended: u64,
    /// Frames that a host on the path has taken out.
    pub(super) taken_out: u64,
}

impl Summary {
    pub(super) fn add(&mut self, other: &Self) {
        self.delivered += other.delivered;
        self.lost += other.lost;
        self.left_out += other.left_out;
        self.connections += other.connections;
        self.replayed += other.replayed;
        self.refused += other.refused;
        self.slow += other.slow;
        self.ended += other.ended;
        self.taken_out += other.taken_out;
    }
}

/// Decides about HELLOs: each different list of patterns is a set, for clients that take messages of the same length.
#[derive(Debug, Default)]
struct Sets {
    lists: Vec<Vec<String>>,
    longest: Vec<u32>,
    most: usize,
}

impl Door for Sets {
    fn hello(&mut self, _: ClientId, hello: &Hello<'_>) -> Option<usize> {
        let list: Vec<String> = hello.patterns().map(|name| name.as_str().to_owned()).collect();
        let mut all = self.lists.iter().zip(&self.longest);
        if let Some(set) = all.position(|one| one == (&list, &hello.message_max)) {
            return Some(set);
        }
        let room = self.lists.len() < self.most;
        room.then(|| {
            self.lists.push(list);
            self.longest.push(hello.message_max);
            self.lists.len() - 1
        })
    }
}

fn matches(list: &[String], topic: u64) -> bool {
    list.iter().any(|one| one == "**" || *one == format!("t/{topic}"))
}

#[derive(Debug, Default)]
struct Out {
    streams: Vec<Vec<Got>>,
    names: std::collections::BTreeMap<(Flow2, u32), String>,
    now: u64,
    /// Streams that have ended in order since it was looked at last.
    ended: Vec<usize>,
}

type Flow2 = (u32, u16);

impl Inbox for Out {
    fn message(&mut self, flow: Flow, message: Message<'_>) {
        let key = ((flow.session.0, flow.stream.0), message.start.topic.get());
        let topic = self.names.get(&key).cloned().unwrap_or_default();
        let payload: Vec<u8> = message.parts.flatten().copied().collect();
        let number = message.start.number.get();
        let got = Got::Message { number, topic, payload, at: self.now };
        self.streams[usize::from(flow.stream.0)].push(got);
    }

    fn topic(&mut self, flow: Flow, number: TopicNumber, name: TableName<'_>) {
        let key = ((flow.session.0, flow.stream.0), number.get());
        self.names.insert(key, name.as_str().to_owned());
    }

    fn loss(&mut self, flow: Flow, loss: Loss) {
        let Loss { count, bound, .. } = loss;
        let from = loss.after.map_or(0, |after| after.get() + 1);
        let until = loss.until.unwrap().get();
        self.streams[usize::from(flow.stream.0)].push(Got::Loss { from, until, count, bound });
    }

    fn ends(&mut self, flow: Flow, end: End) {
        assert_eq!(end, End::Complete);
        self.ended.push(flow.stream.0.into());
    }
}

/// A connection between a peer, or a stranger, and the server.
#[derive(Debug)]
struct Connection {
    /// `None`: a stranger.
    peer: Option<usize>,
    client: Option<ClientId>,
    to_server: Pipe,
    to_client: Pipe,
    /// When it arrives at the server.
    at: u64,
    gone: bool,
    /// The server has closed it, and what it has sent is still on its way.
    ends: bool,
    /// What a stranger sends.
    garbage: Vec<u8>,
}

#[derive(Debug)]
struct Receiver {
    client: Client,
    out: Out,
    patterns: Vec<String>,
    /// The first number of each stream that it is due.
    first: Vec<Option<u64>>,
    killed_until: u64,
    /// What a client of its has sent, for strangers.
    said: Vec<u8>,
}

impl Receiver {
    /// Notes where each stream begins, when it was joined first.
    fn note_first(&mut self) {
        for mark in self.client.marks() {
            let stream = usize::from(mark.stream.0);
            let got = match self.out.streams[stream].first() {
                Some(Got::Message { number: from, .. } | Got::Loss { from, .. }) => *from,
                _ => mark.next.get(),
            };
            self.first[stream].get_or_insert(got);
        }
    }
}

pub(super) struct World<'a> {
    scenario: &'a Scenario,
    keys: Option<Keys>,
    random: Random,
    now: u64,
    lists: Vec<Vec<Sent>>,
    /// The next number of each bus.
    numbers: Vec<u64>,
    published: usize,
    /// How far the server has taken each list, and which sets have the next message.
    taken: Vec<(usize, usize)>,
    server: Server,
    session: u32,
    down_until: u64,
    /// When the time of a server is over that was stopped, and up to where it sends what it has.
    stops: Option<u64>,
    goal: u64,
    sets: Sets,
    receivers: Vec<Receiver>,
    connections: Vec<Connection>,
    done: Vec<bool>,
    summary: Summary,
}

fn number(value: u64) -> Number {
    Number::new(value).unwrap()
}

fn server(
    scenario: &Scenario,
    keys: Option<Keys>,
    session: u32,
    numbers: &[u64],
    now: u64,
) -> Server {
    let pattern = [TableName::new("t/*").unwrap()];
    let streams: Vec<server::Served<'_>> = (0..)
        .zip(numbers)
        .map(|(stream, next)| server::Served {
            source: SOURCE,
            session: Session(session),
            series: Series(9),
            stream: Stream(stream),
            feed: false,
            next: number(*next),
            past: Past::NONE,
            patterns: &pattern,
        })
        .collect();
    let instance = [u8::try_from(session).unwrap(); 16];
    let (realm, source) = (REALM, SOURCE);
    let identity = server::Identity { realm, keys, source, session: Session(session), instance };
    let random = Random::new(scenario.seed ^ u64::from(session));
    Server::new(&scenario.config, &identity, &streams, random, Monotonic::from_ns(now)).unwrap()
}

fn new_client(
    scenario: &Scenario,
    keys: Option<Keys>,
    (who, patterns): (usize, &[String]),
    seed: u64,
    now: u64,
) -> Client {
    let config = TcpConfig { message_max_bytes: LONGEST[who % 2], ..scenario.config.clone() };
    let identity = client::Identity {
        realm: REALM,
        keys,
        source: Source(5),
        session: Session(1),
        name: Name::new(NodeName::new("peer").unwrap()),
    };
    let patterns: Vec<TableName<'_>> =
        patterns.iter().map(|name| TableName::new(name).unwrap()).collect();
    let random = Random::new(scenario.seed ^ seed);
    Client::new(&config, &identity, &patterns, random, Monotonic::from_ns(now)).unwrap()
}

pub(super) fn run(scenario: &Scenario) -> Result<Summary, String> {
    World::new(scenario).run()
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let keys = scenario.keyed.then_some(KEYS);
        let start = 1_000 * scenario.streams as u64;
        let numbers: Vec<u64> = (0..scenario.streams).map(|at| start + at as u64).collect();
        let receivers = scenario
            .peers
            .iter()
            .enumerate()
            .map(|(at, peer)| {
                let patterns: Vec<String> = match peer.topics.is_empty() {
                    true => vec!["**".to_owned()],
                    false => peer.topics.iter().map(|topic| format!("t/{topic}")).collect(),
                };
                Receiver {
                    client: new_client(scenario, keys, (at, &patterns), at as u64, 0),
                    out: Out { streams: vec![Vec::new(); scenario.streams], ..Out::default() },
                    patterns,
                    first: vec![None; scenario.streams],
                    killed_until: peer.from,
                    said: Vec::new(),
                }
            })
            .collect();
        Self {
            scenario,
            keys,
            random: Random::new(scenario.seed ^ 0x776f_726c),
            now: 0,
            lists: vec![Vec::new(); scenario.streams],
            taken: vec![(0, 0); scenario.streams],
            published: 0,
            server: server(scenario, keys, 1, &numbers, 0),
            numbers,
            session: 1,
            down_until: 0,
            stops: None,
            goal: 0,
            sets: Sets { most: 4, ..Sets::default() },
            receivers,
            connections: Vec::new(),
            done: vec![false; scenario.faults.len()],
            summary: Summary::default(),
        }
    }

    fn now(&self) -> Now {
        Now { monotonic: Monotonic::from_ns(self.now), wall: Wall::from_ns(self.now) }
    }

    fn fault(&self, who: usize, kind: impl Fn(Kind) -> bool) -> Option<Kind> {
        let peers = self.scenario.peers.len();
        let found = self.scenario.faults.iter().find(|fault| {
            fault.who % peers == who
                && (fault.from..fault.until).contains(&self.now)
                && kind(fault.kind)
        });
        found.map(|fault| fault.kind)
    }

    fn run(mut self) -> Result<Summary, String> {
        while self.now < END {
            self.now += TICK;
            self.begin_faults();
            self.publish();
            self.links();
            if self.now >= self.down_until {
                self.serve()?;
            }
            self.receive()?;
        }
        self.judge()
    }

    /// Faults that happen once.
    fn begin_faults(&mut self) {
        for at in 0..self.scenario.faults.len() {
            let fault = self.scenario.faults[at];
            if self.done[at] || fault.from > self.now {
                continue;
            }
            self.done[at] = true;
            let who = fault.who % self.scenario.peers.len();
            match fault.kind {
                Kind::Cut => self.cut(who),
                Kind::Kill => {
                    self.cut(who);
                    let receiver = &mut self.receivers[who];
                    let marks: Vec<Resume> = receiver.client.marks().collect();
                    let seed = self.now;
                    receiver.client = new_client(
                        self.scenario,
                        self.keys,
                        (who, &receiver.patterns),
                        seed,
                        self.now,
                    );
                    for mark in marks {
                        assert!(receiver.client.remember(mark));
                    }
                    receiver.killed_until = fault.until;
                }
                Kind::KillServer => self.kill_server(fault.until),
                Kind::StopServer if self.down_until == 0 && self.stops.is_none() => {
                    self.goal = self.numbers.iter().copied().min().unwrap_or(0);
                    let until = Monotonic::from_ns(fault.until);
                    self.server.drain(self.now().monotonic, number(self.goal), until);
                    self.stops = Some(fault.until);
                }
                Kind::StopServer => {}
                Kind::Stranger => self.stranger(),
                Kind::Replay => self.ask_again(who),
                Kind::Corrupt => {
                    for one in self.connections.iter_mut().filter(|one| one.peer == Some(who)) {
                        one.to_client.corrupt(&mut self.random);
                        one.to_server.corrupt(&mut self.random);
                    }
                }
                Kind::Stop | Kind::Rate(_) | Kind::TakeOut => {}
            }
        }
        if self.stops == Some(self.now) {
            self.server.end(self.now().monotonic);
        }
        // Then it has a moment to say goodbye.
        if self.stops.is_some_and(|at| at + GOODBYE <= self.now) {
            self.kill_server(self.now + GOODBYE);
        }
        // A server that comes back takes from its bus what is new.
        if self.down_until > 0 && self.now >= self.down_until {
            self.down_until = 0;
            self.server = server(self.scenario, self.keys, self.session, &self.numbers, self.now);
            self.taken = self.lists.iter().map(|list| (list.len(), 0)).collect();
        }
    }

    fn kill_server(&mut self, until: u64) {
        self.session += 1;
        (self.down_until, self.stops) = (until, None);
        self.connections.iter_mut().for_each(|one| one.gone = true);
        self.sets.lists.clear();
        self.sets.longest.clear();
    }

    fn cut(&mut self, who: usize) {
        for one in self.connections.iter_mut().filter(|one| one.peer == Some(who)) {
            one.gone = true;
        }
    }

    fn ask_again(&mut self, who: usize) {
        let receiver = &mut self.receivers[who];
        let marks: Vec<Resume> = receiver.client.marks().collect();
        for mark in marks {
            let first = mark.next.minus(self.random.below(60));
            let stream = usize::from(mark.stream.0);
            let Some(due) = receiver.first[stream] else { continue };
            let first = first.max(number(due));
            if receiver.client.replay(mark.source, mark.stream, first, None) {
                receiver.out.streams[stream].push(Got::Asked { number: first.get() });
                self.summary.replayed += 1;
            }
        }
    }

    fn stranger(&mut self) {
        let garbage = match self.random.below(3) {
            0 => Vec::new(),
            1 => (0..200).map(|_| u8::try_from(self.random.below(256)).unwrap()).collect(),
            _ => {
                let mut said = self.receivers[0].said.clone();
                if let Some(byte) = said.last_mut() {
                    *byte ^= u8::try_from(self.random.below(2)).unwrap();
                }
                said
            }
        };
        let pipe = || Pipe::new(4_096, 1_000_000, 0);
        let (to_server, to_client) = (pipe(), pipe());
        let at = self.now;
        let (peer, client, gone) = (None, None, false);
        let ends = false;
        self.connections.push(Connection {
            peer,
            client,
            to_server,
            to_client,
            at,
            gone,
            ends,
            garbage,
        });
    }

    fn publish(&mut self) {
        while let Some(one) = self.scenario.publishes.get(self.published)
            && one.at <= self.now
        {
            self.published += 1;
            let next = &mut self.numbers[one.stream];
            *next += one.skip;
            let long = one.length as u64 > self.scenario.config.message_max_bytes;
            self.lists[one.stream].push(Sent {
                number: *next,
                topic: one.topic,
                length: one.length,
                at: self.now,
                missed: one.missed || long,
            });
            *next += 1;
        }
    }

    /// Hands the server what is new. With the pace of the receivers, it may have to wait.
    fn feed(&mut self) {
        let now = self.now();
        'streams: for stream in 0..self.lists.len() {
            while let Some(sent) = self.lists[stream].get(self.taken[stream].0) {
                while self.taken[stream].1 < self.sets.lists.len() {
                    let set = self.taken[stream].1;
                    if matches(&self.sets.lists[set], sent.topic)
                        && offer(&mut self.server, now, stream, set, sent).is_err()
                    {
                        continue 'streams;
                    }
                    self.taken[stream].1 += 1;
                }
                self.server.taken(stream, number(sent.number + 1));
                self.taken[stream] = (self.taken[stream].0 + 1, 0);
            }
        }
        if self.scenario.config.batch_delay_ns == 0 {
            self.server.flush(now);
        }
    }

    fn links(&mut self) {
        for at in 0..self.connections.len() {
            let Some(who) = self.connections[at].peer else { continue };
            let stopped = self.fault(who, |kind| kind == Kind::Stop).is_some();
            let rate = match self.fault(who, |kind| matches!(kind, Kind::Rate(_))) {
                Some(Kind::Rate(rate)) => rate,
                // Afterwards, everything must arrive in time.
                _ if self.now > FAULTS_END => 16_000_000,
                _ => self.scenario.peers[who].rate,
            };
            let one = &mut self.connections[at];
            (one.to_client.rate, one.to_server.rate) = (rate, rate);
            if self.now > FAULTS_END {
                one.to_client.capacity = 1 << 18;
            }
            one.to_client.advance(self.now, TICK, stopped);
            one.to_server.advance(self.now, TICK, stopped);
        }
        for one in self.connections.iter_mut().filter(|one| one.peer.is_none()) {
            let garbage = core::mem::take(&mut one.garbage);
            let _ = one.to_server.write(&garbage);
            one.to_server.advance(self.now, TICK, false);
            one.to_client.advance(self.now, TICK, false);
        }
    }

    fn serve(&mut self) -> Result<(), String> {
        let now = self.now();
        for at in 0..self.connections.len() {
            let one = &mut self.connections[at];
            if one.gone {
                if let Some(client) = one.client.take() {
                    self.server.disconnected(client);
                }
                continue;
            }
            if one.client.is_none() && !one.ends && one.at <= self.now {
                let nonce = [u8::try_from(self.random.below(256)).unwrap(); 16];
                one.client = self.server.accept(now.monotonic, nonce);
                if one.client.is_none() {
                    one.to_client.write(self.server.farewell());
                    one.gone = true;
                    continue;
                }
            }
            let Some(client) = one.client else { continue };
            loop {
                let length = one.to_server.read(self.server.room(client), &mut self.random);
                if length == 0 {
                    break;
                }
                self.server.received(now.monotonic, client, length, &mut self.sets);
            }
            if one.to_client.is_writable() {
                self.server.writable(client);
            }
        }
        self.close_ended();
        self.feed();
        // A server that has something to do does not wait for the next tick.
        for _ in 0..8 {
            let has_replayed = self.replay();
            self.turn()?;
            if !has_replayed {
                break;
            }
        }
        if self.server.poll_timeout().is_some_and(|due| due <= now.monotonic) {
            self.server.handle_timeout(now);
        }
        self.close_ended();
        Ok(())
    }

    fn close_ended(&mut self) {
        while let Some(server::Event::Closed { client, reason }) = self.server.poll_event() {
            self.summary.slow += u64::from(matches!(reason, Bye::Slow | Bye::Stalled));
            for one in &mut self.connections {
                if one.client == Some(client) {
                    one.client = None;
                    one.ends = reason == Bye::Ended;
                    one.gone = !one.ends;
                }
            }
        }
    }

    /// Returns whether a client wanted some.
    fn replay(&mut self) -> bool {
        let (now, mut any) = (self.now(), false);
        while let Some(wanted) = self.server.next_replay(now.monotonic) {
            any = true;
            let list = &self.lists[wanted.stream];
            // What is older than the history is gone.
            let oldest = list.len().saturating_sub(self.scenario.history);
            let begins = list.get(oldest).map_or(0, |sent| sent.number);
            if oldest > 0 && wanted.from.get() < begins {
                let until = number(begins.min(wanted.end.get()));
                let count = until.since(wanted.from);
                let (bound, reason) = (Bound::AtMost, LostReason::Gone);
                if self.server.replay_lost(now, &wanted, count, bound, until, reason).is_ok() {
                    self.server.replay_to(now, &wanted, until);
                }
                continue;
            }
            let mut whole = true;
            for sent in list {
                let inside = (wanted.from.get()..wanted.end.get()).contains(&sent.number);
                if !inside || !matches(&self.sets.lists[wanted.set], sent.topic) {
                    continue;
                }
                let topic = self.server.topic(wanted.stream, name(sent.topic).table());
                let missed = sent.missed && sent.length < 20_001;
                let result = match topic.filter(|_| !missed) {
                    None => self.server.replay_lost(
                        now,
                        &wanted,
                        1,
                        Bound::Exact,
                        number(sent.number + 1),
                        LostReason::Overtaken,
                    ),
                    Some(topic) => {
                        let start = start(sent.number, topic);
                        let payload = sent.payload(wanted.stream);
                        self.server.replay_message(now, &wanted, start, &payload)
                    }
                };
                if result.is_err() {
                    whole = false;
                    break;
                }
            }
            let reached = if whole { wanted.end } else { wanted.from };
            self.server.replay_to(now, &wanted, reached);
        }
        any
    }

    fn turn(&mut self) -> Result<(), String> {
        let now = self.now().monotonic;
        self.server.begin_turn();
        while let Some(client) = self.server.next_ready() {
            let found = self.connections.iter().position(|one| one.client == Some(client));
            let Some(place) = found else { return Err(format!("{client:?} has no connection")) };
            let peer = self.connections[place].peer;
            let is_hit = |who| self.fault(who, |kind| kind == Kind::TakeOut).is_some();
            let is_hit = peer.is_some_and(is_hit);
            let one = &mut self.connections[place];
            while let Some(bytes) = self.server.transmit(now, client) {
                // Without a key, such a host could as well change what counts them.
                let may_hit = is_hit
                    && !one.to_client.is_within_a_frame
                    && (self.keys.is_some() || is_new_data(bytes));
                if may_hit && self.random.below(3) == 0 {
                    self.summary.taken_out += 1;
                    let length = bytes.len();
                    self.server.wrote(now, client, length);
                    continue;
                }
                let length = one.to_client.write(bytes);
                self.server.wrote(now, client, length);
                if length == 0 {
                    self.server.blocked(now, client);
                    break;
                }
            }
        }
        let waited = self.server.counters().waited_max_ns;
        let bound = self.scenario.config.latency_bound_ns;
        if self.scenario.config.pace == Pace::Source && waited > bound {
            return Err(format!("a frame waited {waited} ns, beyond {bound} ns"));
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<(), String> {
        let now = Monotonic::from_ns(self.now);
        for who in 0..self.receivers.len() {
            let cut = self.fault(who, |kind| kind == Kind::Cut).is_some();
            let down = cut || self.now < self.down_until;
            let is_hit = self.fault(who, |kind| kind == Kind::TakeOut).is_some();
            let is_hit = is_hit && self.keys.is_some();
            let receiver = &mut self.receivers[who];
            if self.now < receiver.killed_until {
                continue;
            }
            receiver.out.now = self.now;
            if let Some(one) = self.connections.iter_mut().find(|one| one.peer == Some(who)) {
                loop {
                    let room = receiver.client.room();
                    let length = one.to_client.read(room, &mut self.random);
                    if length == 0 {
                        break;
                    }
                    receiver.client.received(now, length, &mut receiver.out);
                    receiver.note_first();
                }
                one.gone |= one.ends && one.to_client.is_empty();
                if one.gone {
                    receiver.client.disconnected(now);
                }
                while let Some(bytes) = receiver.client.transmit() {
                    if is_hit && !one.to_server.is_within_a_frame && self.random.below(3) == 0 {
                        self.summary.taken_out += 1;
                        let length = bytes.len();
                        receiver.client.wrote(length);
                        continue;
                    }
                    let length = one.to_server.write(bytes);
                    if receiver.said.len() < 500 {
                        receiver.said.extend_from_slice(&bytes[..length]);
                    }
                    receiver.client.wrote(length);
                    if length == 0 {
                        break;
                    }
                }
            }
            for stream in core::mem::take(&mut receiver.out.ended) {
                let Some(first) = receiver.first[stream] else { continue };
                let wants = |topic| matches(&receiver.patterns, topic);
                let (list, got) = (&self.lists[stream], &receiver.out.streams[stream]);
                let judged = oracle::check(list, stream, wants, (first, self.goal), got);
                judged.map_err(|why| format!("client {who}, stream {stream} has ended: {why}"))?;
                self.summary.ended += 1;
            }
            receiver.client.handle_timeout(now);
            while let Some(event) = receiver.client.poll_event() {
                match event {
                    client::Event::Down(_) => {
                        for one in &mut self.connections {
                            one.gone |= one.peer == Some(who);
                        }
                    }
                    client::Event::Live => self.summary.connections += 1,
                    client::Event::Connect if down => receiver.client.disconnected(now),
                    client::Event::Connect => {
                        self.connections
                            .retain(|one| one.peer != Some(who) || one.client.is_some());
                        for one in self.connections.iter_mut().filter(|one| one.peer == Some(who)) {
                            // The server has not noticed yet that the old one is gone.
                            one.peer = None;
                        }
                        let peer = &self.scenario.peers[who];
                        let pipe = || Pipe::new(peer.buffer, peer.rate, peer.delay);
                        self.connections.push(Connection {
                            peer: Some(who),
                            client: None,
                            to_server: pipe(),
                            to_client: pipe(),
                            at: self.now + peer.delay,
                            gone: false,
                            ends: false,
                            garbage: Vec::new(),
                        });
                        let nonce = [u8::try_from(self.random.below(256)).unwrap(); 16];
                        receiver.client.connected(now, nonce);
                    }
                }
            }
        }
        self.connections.retain(|one| !one.gone || one.client.is_some() || one.peer.is_some());
        Ok(())
    }

    fn judge(mut self) -> Result<Summary, String> {
        let faults = &self.scenario.faults;
        let disturbed =
            faults.iter().any(|fault| matches!(fault.kind, Kind::Corrupt | Kind::TakeOut));
        self.summary.left_out = self.server.counters().left_out;
        self.summary.refused += self.server.counters().rejects.iter().sum::<u64>();
        for (who, receiver) in self.receivers.iter().enumerate() {
            let refused: u64 = receiver.client.counters().rejects.iter().sum();
            self.summary.refused += refused;
            if refused > 0 && !disturbed {
                let reasons: Vec<Reject> = Reject::ALL
                    .into_iter()
                    .filter(|one| receiver.client.counters().rejects[one.index()] > 0)
                    .collect();
                return Err(format!("client {who} refused {reasons:?}"));
            }
            if !receiver.client.is_live() {
                let marks: Vec<Resume> = receiver.client.marks().collect();
                let numbers = &self.numbers;
                return Err(format!("client {who} is not live at the end: {marks:?} {numbers:?}"));
            }
            for stream in 0..self.lists.len() {
                let Some(first) = receiver.first[stream] else {
                    return Err(format!("client {who} never connected"));
                };
                let end = self.numbers[stream];
                let wants = |topic| matches(&receiver.patterns, topic);
                let (list, got) = (&self.lists[stream], &receiver.out.streams[stream]);
                let judged = oracle::check(list, stream, wants, (first, end), got);
                let (delivered, lost) =
                    judged.map_err(|why| format!("client {who}, stream {stream}: {why}"))?;
                self.summary.delivered += delivered;
                if self.scenario.faults.is_empty() && self.scenario.config.pace == Pace::Source {
                    self.check_age(who, list, got)?;
                }
                self.summary.lost += lost;
            }
        }
        Ok(self.summary)
    }
}

impl World<'_> {
    /// Without faults, no message is older than the bound and what it takes to transmit it.
    fn check_age(&self, who: usize, list: &[Sent], got: &[Got]) -> Result<(), String> {
        let (peer, config) = (&self.scenario.peers[who], &self.scenario.config);
        // In one delay, the link carries what its buffers hold.
        let rate = peer.rate.min(peer.buffer as u64 * SECOND / (peer.delay + 2 * TICK));
        for one in got {
            let Got::Message { number, at, .. } = one else { continue };
            let Some(sent) = list.iter().find(|sent| sent.number == *number) else { continue };
            // What is in the buffers, a long message that was begun, the message itself, and names.
            let bytes = 2 * peer.buffer as u64 + 2 * 25_000 + 2 * config.batch_bytes + 2_000;
            let transmission = bytes * SECOND / rate + peer.delay + 4 * TICK;
            let most = config.latency_bound_ns + config.batch_delay_ns + transmission;
            if at - sent.at > most {
                let age = at - sent.at;
                return Err(format!("client {who} got {number} after {age} ns, beyond {most} ns"));
            }
        }
        Ok(())
    }
}

/// Whether a frame brings messages that are new.
fn is_new_data(frame: &[u8]) -> bool {
    let [kind, flags] = [frame[4], frame[5]];
    kind == tcp::Kind::Data as u8 && flags & 1 == 0
}

fn offer(
    server: &mut Server,
    now: Now,
    stream: usize,
    set: usize,
    sent: &Sent,
) -> Result<(), server::Held> {
    let until = number(sent.number + 1);
    let topic = server.topic(stream, name(sent.topic).table());
    // One that is too long is handed in as it is.
    let missed = sent.missed && sent.length < 20_001;
    match topic.filter(|_| !missed) {
        None => server.lost(now, stream, set, 1, until, LostReason::Overtaken),
        Some(topic) => {
            let start = start(sent.number, topic);
            server.message(now, stream, set, start, &sent.payload(stream))
        }
    }
}

fn start(value: u64, topic: TopicNumber) -> Start {
    Start { topic, number: number(value), to_descendants: false, published: None, origin: None }
}

struct TopicName(String);

fn name(topic: u64) -> TopicName {
    TopicName(format!("t/{topic}"))
}

impl TopicName {
    fn table(&self) -> TableName<'_> {
        TableName::new(&self.0).unwrap()
    }
}
