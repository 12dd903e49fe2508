//! The nodes of a run: what a sender has on its bus, and what a receiver was given.

use std::collections::BTreeMap;

use crate::arrivals::{Arrivals, Flow, Inbox, Opening};
use crate::audience::Name;
use crate::batcher::Now;
use crate::id::{Number, Realm, Sequence, Series, Session, Source, Stream};
use crate::legs::Path;
use crate::past::Past;
use crate::random::Random;
use crate::reassembly::{Bound, Loss, Message};
use crate::receiver::{End, Mark, Me};
use crate::sender::{Identity, Sender};
use crate::time::{MILLISECOND, Monotonic};
use crate::wire::{
    self, Body, Flags, Header, Key, Keys, LegAddresses, LostReason, NodeName, Receiver, Repairers,
    Rules, Start, TableName, TopicNumber,
};

use super::super::network::{Node, path};
use super::super::oracle::{Count, Given};
use super::super::scenario::Scenario;

/// The first sequence of each session, and the first number of each bus: near their ends.
pub(super) const FIRST: u64 = (1 << 63) - 1_000_000_000;
const NUMBERS: u64 = (1 << 47) - 1_000_000;
pub(super) const REALM: Realm = Realm(9);
pub(super) const STREAM: Stream = Stream(1);
/// How many datagrams wait in the socket of a process that does not run.
const SOCKET: usize = 300;

/// Sessions of a sender that was reverted as often begin here.
const AGE: u32 = 1 << 20;
/// Series with the same number in another age of their sender differ by this.
const AGED: u32 = 1_000;

/// Returns the series of a session, as the judge knows it: once its sender has gone back to a backup, it numbers other messages.
pub(super) const fn series_of(session: u32, series: u32) -> u32 {
    series + session / AGE * AGED
}

/// Returns the series as it is on the wire.
pub(super) const fn ageless(series: u32) -> u32 {
    series % AGED
}

/// A message as it stands on the bus of a sender.
pub(super) struct Entry {
    pub(super) number: u64,
    pub(super) topic: String,
    pub(super) bytes: Option<Vec<u8>>,
}

/// How much a sender had on its bus, and the last session in its state.
pub(super) struct Backup {
    pub(super) entries: usize,
    pub(super) number: u64,
    pub(super) prior: u32,
}

/// Whether a process runs, and what waits in its socket if not.
#[derive(Default)]
pub(super) struct Process {
    pub(super) stopped: Option<u64>,
    pub(super) socket: Vec<(Path, Vec<u8>)>,
    /// Something happened since it was asked last what it sends.
    pub(super) due: bool,
    /// Which step of the change of keys it has made.
    pub(super) keys: usize,
}

impl Process {
    pub(super) fn runs(&self) -> bool {
        self.stopped.is_none()
    }

    /// A datagram comes to a process that does not run.
    pub(super) fn queue(&mut self, from: Path, bytes: Vec<u8>) {
        if self.socket.len() < SOCKET {
            self.socket.push((from, bytes));
        }
    }
}

pub(super) struct SenderNode {
    pub(super) sender: Option<Sender>,
    /// What hears another node with the same id, if there may be one.
    pub(super) ears: Option<Arrivals>,
    pub(super) process: Process,
    pub(super) instance: usize,
    pub(super) source: usize,
    pub(super) session: u32,
    pub(super) series: u32,
    pub(super) bus: Vec<Entry>,
    pub(super) cursor: usize,
    pub(super) published: usize,
    pub(super) number: u64,
    /// The session before, as its state has it, if its state was not lost.
    pub(super) prior: Option<u32>,
    /// What its host had before each session.
    pub(super) backups: Vec<Backup>,
    /// How often it went back to a backup.
    pub(super) age: u32,
    /// By how many nanoseconds its calendar is wrong.
    pub(super) wall_step: i64,
    /// It has ended in order, for good.
    pub(super) ended: bool,
    /// The last session of which something was sent said that it ends.
    pub(super) said_end: bool,
    /// It was killed for good, or has stopped because of another node with its id.
    pub(super) gone: bool,
    pub(super) collided: bool,
}

impl SenderNode {
    pub(super) fn new(instance: usize, source: usize, series: u32) -> Self {
        Self {
            sender: None,
            ears: None,
            process: Process::default(),
            instance,
            source,
            session: 0,
            series,
            bus: Vec::new(),
            cursor: 0,
            published: 0,
            number: NUMBERS,
            prior: None,
            backups: Vec::new(),
            age: 0,
            wall_step: 0,
            ended: false,
            said_end: false,
            gone: false,
            collided: false,
        }
    }

    /// Whether nothing ends or restarts it any more. One that went back to a backup and is restarted again is not noticed by a receiver
    /// that has heard nothing in between: its last session is one that the receiver cannot tell from those that it remembers.
    pub(super) const fn is_final(&self) -> bool {
        self.ended || self.gone || self.age > 0
    }

    /// The series that it sends, as the judge knows it.
    pub(super) const fn series(&self) -> u32 {
        series_of(self.age * AGE, self.series)
    }

    /// Starts a session, and sends from where it is on its bus.
    pub(super) fn start(&mut self, scenario: &Scenario, session: u32, now: Monotonic) {
        let session = session % AGE + self.age * AGE;
        let past = Past {
            head: Number::new(self.number).unwrap(),
            prior: self.prior.map_or(Past::NONE.prior, Session),
        };
        // A feed has no bus, and another member may continue it.
        let past = if scenario.repairers > 0 { Past::NONE } else { past };
        let (entries, number) = (self.bus.len(), self.number);
        self.backups.extend(self.prior.map(|prior| Backup { entries, number, prior }));
        (self.session, self.prior) = (session, Some(session));
        let begins = self.bus.get(self.cursor).map_or(self.number, |entry| entry.number);
        let name = format!("sender-{}", self.source);
        let names: Vec<String> = (0..scenario.required).map(receiver_name).collect();
        let required: Vec<_> = names.iter().map(|name| NodeName::new(name).unwrap()).collect();
        let repairers: Vec<_> =
            (0..scenario.repairers).map(|at| path(Node::Repairer(at), 0).address).collect();
        let legs: Vec<_> =
            (0..scenario.legs).map(|leg| path(Node::Sender(self.instance), leg).address).collect();
        let instance = [u8::try_from(self.instance).unwrap(); 16];
        let source = Source(u32::try_from(self.source).unwrap());
        let identity = Identity {
            header: Header {
                flags: if scenario.repairers > 0 { Flags::FEED } else { Flags::NONE },
                ttl: 16,
                realm: REALM,
                stream: STREAM,
                source,
                session: Session(session),
                sequence: Sequence::new(FIRST).unwrap(),
            },
            keys: keys(scenario, self.process.keys),
            name: NodeName::new(&name).unwrap(),
            instance,
            series: Series(self.series),
            begins: Number::new(begins).unwrap(),
            past,
            patterns: &[TableName::new("plant/**").unwrap()],
            legs: LegAddresses::new(&legs).unwrap(),
            repairers: Repairers::new(&repairers).unwrap(),
            listen: 0,
            required: &required,
        };
        self.sender = Some(Sender::new(&scenario.config, &identity, now).unwrap());
        self.process.due = true;
        if scenario.has_twins() {
            let me = Me {
                id: Receiver { source, session: Session(session) },
                name: Name::new(identity.name),
                required: false,
            };
            let random = Random::new(0);
            let ears = Arrivals::new(&scenario.config, REALM, identity.keys, me, instance, random);
            self.ears = Some(ears);
        }
    }

    /// Packs what is on the bus. Returns whether it packed something.
    pub(super) fn pump(&mut self, scenario: &Scenario, now: Now) -> bool {
        let Some(sender) = &mut self.sender else { return false };
        if sender.is_ending() || !self.process.runs() {
            return false;
        }
        let before = self.cursor;
        while let Some(entry) = self.bus.get(self.cursor) {
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
            self.cursor += 1;
        }
        if self.cursor == before {
            return false;
        }
        self.process.due = true;
        if scenario.config.batch_delay_ns == 0 {
            sender.flush(now);
        }
        true
    }
}

pub(super) struct ReceiverNode {
    pub(super) arrivals: Option<Arrivals>,
    pub(super) process: Process,
    pub(super) session: u32,
    pub(super) record: Record,
}

impl ReceiverNode {
    pub(super) fn new() -> Self {
        Self {
            arrivals: None,
            process: Process::default(),
            session: 5_000,
            record: Record::default(),
        }
    }

    /// Starts it with what it remembers of each source.
    pub(super) fn start(
        &mut self,
        scenario: &Scenario,
        at: usize,
        now: Monotonic,
        marks: &[(Source, Stream, Mark)],
    ) {
        self.session += 1;
        let source = Source(100 + u32::try_from(at).unwrap());
        let name = receiver_name(at);
        let me = Me {
            id: Receiver { source, session: Session(self.session) },
            name: Name::new(NodeName::new(&name).unwrap()),
            required: at < scenario.required,
        };
        let random = Random::new(scenario.seed ^ (at as u64) << 20 ^ u64::from(self.session));
        let keys = keys(scenario, self.process.keys);
        let instance = [100 + u8::try_from(at).unwrap(); 16];
        let mut arrivals = Arrivals::new(&scenario.config, REALM, keys, me, instance, random);
        for (source, stream, mark) in marks {
            assert!(arrivals.remember(now, *source, *stream, *mark));
        }
        self.arrivals = Some(arrivals);
        self.process.socket.clear();
    }
}

/// Repairs feeds: it keeps what it hears, and sends to all what it is asked for. It may have missed some.
#[derive(Default)]
pub(super) struct RepairerNode {
    /// By source, session and sequence: when it was sent again last, and the datagram.
    heard: BTreeMap<(u32, u32, u64), (u64, Vec<u8>)>,
}

impl RepairerNode {
    /// Takes a datagram. Returns what it sends to the group.
    pub(super) fn handle(&mut self, now: u64, bytes: &[u8]) -> Vec<Vec<u8>> {
        let rules = Rules { realm: REALM, keys: None, message_max: u32::MAX };
        let Ok(datagram) = wire::parse(bytes, &rules, |_, _| Ok(())) else { return Vec::new() };
        let Header { source, session, sequence, .. } = datagram.header;
        let key = |sequence| (source.0, session.0, sequence);
        let Body::Nak(nak) = datagram.body else {
            if let Body::Data(_) = datagram.body {
                let mut again = bytes.to_vec();
                again[4] |= 1; // RETRANSMISSION
                self.heard.entry(key(sequence.get())).or_insert((0, again));
            }
            return Vec::new();
        };
        let mut sent = Vec::new();
        for range in nak.ranges.iter() {
            let asked = key(range.first().get())..key(range.end().get());
            for (_, (last, bytes)) in self.heard.range_mut(asked) {
                if *last == 0 || now - *last >= 10 * MILLISECOND {
                    *last = now;
                    sent.push(bytes.clone());
                }
            }
        }
        sent
    }
}

fn receiver_name(at: usize) -> String {
    format!("receiver-{at}")
}

/// The keys of a node after this many of the three steps of a change: see [`Keys`].
fn keys(scenario: &Scenario, steps: usize) -> Option<Keys> {
    let (old, new) = (Key::new([7; 32]), Key::new([8; 32]));
    let (first, next) = match steps {
        0 => (old, None),
        1 => (old, Some(new)),
        2 => (new, Some(old)),
        _ => (new, None),
    };
    scenario.keyed.then_some(Keys { first, next })
}

/// What a receiver was given, by source and by life without memory.
#[derive(Default)]
pub(super) struct Record {
    pub(super) now: u64,
    names: BTreeMap<(u32, u32, u32), String>,
    pub(super) given: BTreeMap<(usize, usize), Vec<Given>>,
    pub(super) life: usize,
    /// What a node will report of a source whose session has ended in order, but whose series has not, if it does not come back.
    absent: BTreeMap<(usize, usize), Given>,
}

impl Record {
    /// Returns what the receiver is given of a source in a life.
    pub(super) fn of(&self, source: usize, life: usize) -> Vec<Given> {
        let given = self.given.get(&(source, life)).cloned().unwrap_or_default();
        given.into_iter().chain(self.absent.get(&(source, life)).cloned()).collect()
    }

    fn push(&mut self, flow: Flow, given: Given) {
        self.absent.remove(&(flow.source.0 as usize, self.life));
        self.given.entry((flow.source.0 as usize, self.life)).or_default().push(given);
    }
}

impl Inbox for Record {
    fn message(&mut self, flow: Flow, message: Message<'_>) {
        let key = (flow.source.0, flow.session.0, message.start.topic.get());
        let given = Given::Message {
            at: self.now,
            series: series_of(flow.session.0, flow.series.0),
            number: message.start.number.get(),
            topic: self.names.get(&key).cloned(),
            bytes: message.parts.flatten().copied().collect(),
        };
        self.push(flow, given);
    }

    fn begins(&mut self, flow: Flow, _: &Opening) -> Option<Mark> {
        self.absent.remove(&(flow.source.0 as usize, self.life));
        None
    }

    fn ends(&mut self, flow: Flow, end: End) {
        if end == End::Complete {
            let series = series_of(flow.session.0, flow.series.0);
            let count = Count::AtLeast(0);
            let (at, reason) = (self.now, LostReason::Silent);
            let absent = Given::Loss { at, series, count, reason, after: None, until: None };
            self.absent.insert((flow.source.0 as usize, self.life), absent);
        }
    }

    fn topic(&mut self, flow: Flow, number: TopicNumber, name: TableName<'_>) {
        let key = (flow.source.0, flow.session.0, number.get());
        self.names.insert(key, name.as_str().to_owned());
    }

    fn loss(&mut self, flow: Flow, loss: Loss) {
        let given = Given::Loss {
            at: self.now,
            series: series_of(flow.session.0, flow.series.0),
            count: match loss.bound {
                Bound::Exact => Count::Exact(loss.count),
                Bound::AtLeast => Count::AtLeast(loss.count),
                Bound::AtMost => Count::AtMost(loss.count),
            },
            reason: loss.reason,
            after: loss.after.map(Number::get),
            until: loss.until.map(Number::get),
        };
        self.push(flow, given);
    }
}

/// Takes nothing.
pub(super) struct Nothing;

impl Inbox for Nothing {
    fn message(&mut self, _: Flow, _: Message<'_>) {}
    fn topic(&mut self, _: Flow, _: TopicNumber, _: TableName<'_>) {}
    fn loss(&mut self, _: Flow, _: Loss) {}
}
