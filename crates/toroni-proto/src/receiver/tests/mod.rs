//! Tests of the receiver, with datagrams of a real sender and a clock that the test moves.

mod joining;
mod losses;
mod requests;

use super::*;
use crate::batcher::Now;
use crate::config::Order;
use crate::id::{MessageNumber, Source as SourceId};
use crate::past::Past;
use crate::reassembly::{Bound, Loss, Message};
use crate::sender::{Identity, Sender};
use crate::time::{MILLISECOND, SECOND, Wall};
use crate::wire::chunk::tests::start;
use crate::wire::samples::{self, header};
use crate::wire::{
    Address, Flags, Key, LegAddresses, NodeName, Range, Repairers, Start, TableName,
};

pub(crate) const LONGEST: usize = 10_000;
pub(crate) const KEYS: Keys = Keys { first: Key::new([7; 32]), next: None };
/// The first sequence of each sender.
const FIRST: u64 = 1_000;

pub(crate) fn now(ms: u64) -> Now {
    let ns = 1_000 * SECOND + ms * MILLISECOND;
    Now { monotonic: Monotonic::from_ns(ns), wall: Wall::from_ns(ns) }
}

pub(crate) fn number(value: u64) -> Number {
    Number::new(value).unwrap()
}

pub(crate) fn config() -> Config {
    Config {
        window_bytes: 1 << 20,
        message_max_bytes: LONGEST as u64,
        reorder_memory_bytes: 1 << 17,
        receive_memory_bytes: 1 << 20,
        ..Config::with_rate(80_000_000)
    }
}

fn by_arrival() -> Config {
    Config { order: Order::Arrival, ..config() }
}

/// Who sends.
pub(crate) struct Origin {
    pub(crate) source: u32,
    pub(crate) session: u32,
    pub(crate) series: u32,
    pub(crate) begins: u64,
    pub(crate) past: Past,
    pub(crate) instance: u8,
    pub(crate) keys: Option<Keys>,
}

pub(crate) const ORIGIN: Origin = Origin {
    source: 1,
    session: 100,
    series: 1,
    begins: 40,
    past: Past::NONE,
    instance: 1,
    keys: None,
};

impl Origin {
    pub(crate) fn start(&self) -> Source {
        self.with(&config(), Flags::NONE, Repairers::default())
    }

    pub(crate) fn feed(&self, repairers: &[Address]) -> Source {
        self.with(&config(), Flags::FEED, Repairers::new(repairers).unwrap())
    }

    pub(crate) fn with(&self, config: &Config, flags: Flags, repairers: Repairers) -> Source {
        let source = SourceId(self.source);
        let identity = Identity {
            header: Header { flags, source, session: Session(self.session), ..header(FIRST) },
            keys: self.keys,
            name: NodeName::new("line-3").unwrap(),
            instance: [self.instance; 16],
            series: Series(self.series),
            begins: number(self.begins),
            past: self.past,
            patterns: &[],
            legs: LegAddresses::NONE,
            repairers,
            listen: 0,
            required: &[],
        };
        Source { sender: Sender::new(config, &identity, now(0).monotonic).unwrap() }
    }
}

pub(crate) struct Source {
    pub(crate) sender: Sender,
}

impl Source {
    /// Publishes a message in a datagram of its own. Returns what is sent now, the datagram last.
    pub(crate) fn publish(&mut self, ms: u64, number: u64, length: usize) -> Vec<Vec<u8>> {
        self.publish_on("plant/a", ms, number, length)
    }

    fn publish_on(&mut self, topic: &str, ms: u64, number: u64, length: usize) -> Vec<Vec<u8>> {
        let topic = self.sender.topic(now(ms), TableName::new(topic).unwrap()).unwrap().unwrap();
        let start = Start { topic, ..start(number) };
        self.sender.message(now(ms), start, &vec![7; length]).unwrap();
        self.sender.flush(now(ms));
        self.sent(ms)
    }

    pub(crate) fn sent(&mut self, ms: u64) -> Vec<Vec<u8>> {
        self.sender.handle_timeout(now(ms));
        let mut list = Vec::new();
        while let Some(bytes) = self.sender.poll_transmit(now(ms)) {
            list.push(bytes.to_vec());
        }
        list
    }

    /// The SESSION that is due `session_min` after the last data.
    pub(crate) fn session(&mut self, ms: u64) -> Vec<u8> {
        self.sent(ms).into_iter().find(|bytes| bytes[3] == 2).expect("a SESSION is due")
    }
}

/// As in `M40` and, for at most two messages with numbers from 41 to 44, `Budget<=2 in 41..45`.
#[derive(Default)]
pub(crate) struct Seen(pub(crate) Vec<String>);

impl Deliver for Seen {
    fn message(&mut self, message: Message<'_>) {
        self.0.push(format!("M{}", message.start.number));
    }

    fn topic(&mut self, _: TopicNumber, _: TableName<'_>) {}

    fn loss(&mut self, loss: Loss) {
        let bound = match loss.bound {
            Bound::Exact => "=",
            Bound::AtLeast => ">=",
            Bound::AtMost => "<=",
        };
        let first = loss.after.map_or(0, |after| after.get() + 1);
        let until = loss.until.map(|until| until.to_string()).unwrap_or_default();
        self.0.push(format!("{:?}{bound}{} in {first}..{until}", loss.reason, loss.count));
    }
}

/// A receiver of one session, with its buffers and what it was given.
struct Bench {
    receiver: Receiver,
    pool: Pool,
    seen: Seen,
    /// What its node knows of the series.
    mark: Option<Mark>,
}

impl Bench {
    fn new(config: &Config) -> Self {
        let id = Id { source: SourceId(9), session: Session(50) };
        let name = Name::new(NodeName::new("line-9").unwrap());
        let me = Me { id, name, required: true };
        let header = Header { source: SourceId(ORIGIN.source), session: Session(100), ..header(0) };
        let random = Random::new(1);
        let receiver = Receiver::new(config, me, header, None, random, now(0).monotonic);
        let pool = Pool::new(400, 1_408);
        Self { receiver, pool, seen: Seen::default(), mark: None }
    }

    fn hears(&mut self, ms: u64, bytes: &[u8]) {
        let (at, from) = (now(ms).monotonic, Path::default());
        let datagram = samples::parse(bytes).unwrap();
        let Body::Data(data) = datagram.body else {
            let Self { receiver, pool, seen, mark } = self;
            return receiver.control(at, from, &datagram, *mark, pool, seen);
        };
        let buffer = self.pool.take().unwrap();
        self.pool.get_mut(&buffer)[..bytes.len()].copy_from_slice(bytes);
        let arrived = Arrived {
            sequence: datagram.header.sequence,
            again: datagram.header.flags.has(Flags::RETRANSMISSION),
            trail: data.trail,
            topics_end: data.topics_end,
            buffer,
            length: u16::try_from(bytes.len()).unwrap(),
        };
        self.receiver.data(at, from, arrived, &mut self.pool, &mut self.seen);
    }

    fn hears_all(&mut self, ms: u64, list: &[Vec<u8>]) {
        list.iter().for_each(|bytes| self.hears(ms, bytes));
    }

    /// Does what is due, and returns what was given since the last call.
    fn given(&mut self, ms: u64) -> Vec<String> {
        self.receiver.handle_timeout(now(ms).monotonic, &mut self.pool, &mut self.seen);
        core::mem::take(&mut self.seen.0)
    }

    /// What it sends at a time.
    fn sent(&mut self, ms: u64) -> Vec<Vec<u8>> {
        let mut list = Vec::new();
        while let Some((_, bytes)) = self.receiver.poll_transmit(now(ms).monotonic) {
            list.push(bytes.to_vec());
        }
        list
    }

    /// When it sends datagrams of a type, of all milliseconds.
    fn times(&mut self, kind: u8, range: core::ops::Range<u64>) -> Vec<u64> {
        range
            .filter(|ms| {
                self.given(*ms);
                self.sent(*ms).iter().any(|bytes| bytes[3] == kind)
            })
            .collect()
    }
}

/// A receiver that has message 40, its SESSION and its name.
fn live(config: &Config) -> (Source, Bench) {
    let mut source = ORIGIN.with(config, Flags::NONE, Repairers::default());
    let mut bench = Bench::new(config);
    bench.hears_all(0, &source.publish(0, 40, 5));
    assert_eq!(bench.given(0), ["M40"]);
    (source, bench)
}

/// A SESSION with another policy, number of receivers or sequence than the sender's.
fn session_with(bytes: &[u8], change: impl FnOnce(&mut Header, &mut SessionInfo<'_>)) -> Vec<u8> {
    let datagram = samples::parse(bytes).unwrap();
    let (mut header, Body::Session(mut info)) = (datagram.header, datagram.body) else {
        panic!("a SESSION")
    };
    change(&mut header, &mut info);
    let mut buffer = vec![0; 1_000];
    let length = info.encode(&header, None, &mut buffer).unwrap();
    buffer.truncate(length);
    buffer
}

fn sequence_of(bytes: &[u8]) -> Sequence {
    samples::parse(bytes).unwrap().header.sequence
}
