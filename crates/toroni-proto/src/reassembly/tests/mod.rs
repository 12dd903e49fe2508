//! Tests of the reassembly, with datagrams that the batcher packed.

mod by_arrival;
mod in_order;
mod properties;

use std::collections::BTreeMap;

use super::*;
use crate::batcher::{Batcher, Now};
use crate::config::Config;
use crate::random::Random;
use crate::time::{Monotonic, Wall};
use crate::window::Window;
use crate::wire::Range;
use crate::wire::chunk::tests::{start, topic};
use crate::wire::samples::{self, sequence};

const DATAGRAM: usize = 512;
/// The first sequence of each test: near the greatest.
const FIRST: u64 = (1 << 63) - 1_000_000;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Message { message: u64, number: u64, bytes: Vec<u8> },
    Loss { message: u64, count: u64, reason: LostReason },
    Topic(String),
}

#[derive(Debug, Default)]
struct Recorder {
    seen: Vec<Seen>,
    /// The numbers of the messages that were delivered, and the greatest that those of a loss can have.
    numbers: BTreeMap<u64, Number>,
    /// Whether the sender contradicts itself, so that numbers mean nothing.
    contradicts: bool,
    /// Whether messages come in the order of the source.
    ordered: bool,
}

impl Deliver for Recorder {
    fn message(&mut self, message: Message<'_>) {
        let bytes = message.parts.clone().collect::<Vec<_>>().concat();
        assert_eq!(message.parts.length(), bytes.len());
        if let Some(whole) = message.parts.whole() {
            assert_eq!(whole, bytes);
        }
        let number = message.start.number.get();
        self.numbers.insert(message.message.get(), message.start.number);
        self.seen.push(Seen::Message { message: message.message.get(), number, bytes });
    }

    fn topic(&mut self, _: TopicNumber, name: TableName<'_>) {
        self.seen.push(Seen::Topic(name.as_str().to_owned()));
    }

    fn loss(&mut self, loss: Loss) {
        let before = self.numbers.range(..loss.message.get()).next_back();
        // What the source missed is reported at once, so by arrival nothing is known of what is before it.
        let counted = loss.reason != LostReason::Overtaken;
        if self.ordered || (counted && !self.contradicts) {
            assert_eq!(loss.after, before.map(|(_, number)| *number), "{loss:?}");
        }
        let Loss { message, count, reason, until, .. } = loss;
        // Message n has the number 3 n. What follows the lost ones has a number that is not below
        // `until`, and the last lost one is below it.
        if let Some(until) = until.filter(|_| !self.contradicts) {
            let last = message.get() + count - 1;
            assert!(until.get() > last * 3 && until.get() <= (last + 1) * 3, "{loss:?}");
        }
        let last = until.expect("within a session it is known").get().checked_sub(1);
        if let Some(last) = last.and_then(Number::new) {
            self.numbers.insert(message.get() + count - 1, last);
        }
        self.seen.push(Seen::Loss { message: message.get(), count, reason });
    }
}

/// A sender's datagrams, and what they say.
struct Packer {
    batcher: Batcher,
    window: Window,
    messages: u64,
}

impl Packer {
    fn new() -> Self {
        let config = Config { datagram_bytes: 512, message_max_bytes: 20_000, ..Config::default() };
        Self {
            batcher: Batcher::new(&config, samples::header(0), None, Number::ZERO),
            window: Window::new(1 << 20, DATAGRAM, sequence(FIRST)),
            messages: 0,
        }
    }

    /// A message of this length, with number and contents of its own.
    fn message(&mut self, length: usize) -> &mut Self {
        let start = start(self.messages * 3);
        let bytes = contents(self.messages, length);
        self.messages += 1;
        self.batcher.message(&mut self.window, now(), start, &bytes).unwrap();
        self
    }

    fn lost(&mut self, count: u64) -> &mut Self {
        self.messages += count;
        let until = start(self.messages * 3 - 2).number;
        self.batcher.lost(&mut self.window, now(), count, until, LostReason::Overtaken).unwrap();
        self
    }

    fn topic(&mut self, name: &str) -> &mut Self {
        let name = TableName::new(name).unwrap();
        self.batcher.topic(&mut self.window, now(), topic(3), name).unwrap();
        self
    }

    fn flush(&mut self) -> &mut Self {
        self.batcher.flush(&mut self.window, now());
        self
    }

    /// All datagrams so far.
    fn datagrams(&mut self) -> Vec<Vec<u8>> {
        self.flush();
        while self.window.next_unsent().is_some() {
            self.window.sent();
        }
        assert_eq!(self.window.trail(), sequence(FIRST), "the window holds the whole test");
        let count = self.window.lead().since(sequence(FIRST));
        (0..count).map(|at| self.window.get(sequence(FIRST + at)).unwrap().to_vec()).collect()
    }
}

fn now() -> Now {
    Now { monotonic: Monotonic::from_ns(0), wall: Wall::from_ns(0) }
}

fn contents(message: u64, length: usize) -> Vec<u8> {
    let mut random = Random::new(message);
    (0..length).map(|_| random.number().to_le_bytes()[0]).collect()
}

fn message(message: u64, length: usize) -> Seen {
    Seen::Message { message, number: message * 3, bytes: contents(message, length) }
}

fn loss(message: u64, count: u64, reason: LostReason) -> Seen {
    Seen::Loss { message, count, reason }
}

/// The calls that both ways of putting messages together have.
trait Machine {
    /// Whether messages come in the order of the source.
    const ORDERED: bool;

    fn new(first: Sequence, counted: Option<Counted>, held_max: usize) -> Self;
    fn datagram(
        &mut self,
        pool: &mut Pool,
        sequence: Sequence,
        buffer: Buffer,
        length: u16,
        out: &mut Recorder,
    ) -> Result<Arrival, Refused>;
    fn give_up(&mut self, pool: &mut Pool, range: Range, reason: LostReason, out: &mut Recorder);
    fn session(
        &mut self,
        pool: &mut Pool,
        sequence: Sequence,
        counted: Counted,
        number: Number,
        out: &mut Recorder,
    );
    fn held(&self) -> usize;
}

macro_rules! machine {
    ($name:ident, $ordered:literal) => {
        impl Machine for $name {
            const ORDERED: bool = $ordered;

            fn new(first: Sequence, counted: Option<Counted>, held_max: usize) -> Self {
                Self::new(first, counted, held_max)
            }
            fn datagram(
                &mut self,
                pool: &mut Pool,
                sequence: Sequence,
                buffer: Buffer,
                length: u16,
                out: &mut Recorder,
            ) -> Result<Arrival, Refused> {
                self.datagram(pool, sequence, buffer, length, out)
            }
            fn give_up(
                &mut self,
                pool: &mut Pool,
                range: Range,
                reason: LostReason,
                out: &mut Recorder,
            ) {
                self.give_up(pool, range, reason, out);
            }
            fn session(
                &mut self,
                pool: &mut Pool,
                sequence: Sequence,
                counted: Counted,
                number: Number,
                out: &mut Recorder,
            ) {
                self.session(pool, sequence, counted, number, out);
            }
            fn held(&self) -> usize {
                self.held()
            }
        }
    };
}

machine!(InOrder, true);
machine!(ByArrival, false);

struct Receiver<M> {
    reassembly: M,
    pool: Pool,
    out: Recorder,
    datagrams: Vec<Vec<u8>>,
}

impl<M: Machine> Receiver<M> {
    fn new(datagrams: Vec<Vec<u8>>) -> Self {
        Self::with(datagrams, Some(0), 60)
    }

    fn with(datagrams: Vec<Vec<u8>>, message: Option<u64>, held_max: usize) -> Self {
        let counted = message
            .map(|message| Counted { message: MessageNumber::new(message).unwrap(), unsure: 0 });
        Self {
            reassembly: M::new(sequence(FIRST), counted, held_max),
            pool: Pool::new(100, DATAGRAM),
            out: Recorder { ordered: M::ORDERED, ..Recorder::default() },
            datagrams,
        }
    }

    /// Receives the datagram at this place of the list.
    fn receive(&mut self, place: u64) -> Result<Arrival, Refused> {
        self.receive_as(place, sequence(FIRST + place))
    }

    /// Receives a datagram of the list with another sequence.
    fn receive_as(&mut self, place: u64, at: Sequence) -> Result<Arrival, Refused> {
        let datagram = self.datagrams[usize::try_from(place).unwrap()].clone();
        let buffer = self.pool.take().unwrap();
        self.pool.get_mut(&buffer)[..datagram.len()].copy_from_slice(&datagram);
        let length = u16::try_from(datagram.len()).unwrap();
        self.reassembly.datagram(&mut self.pool, at, buffer, length, &mut self.out)
    }

    fn receive_all(&mut self, places: &[u64]) {
        for place in places {
            self.receive(*place).unwrap();
        }
    }

    fn give_up(&mut self, place: u64, count: u32) {
        let range = Range::new(sequence(FIRST + place), count).unwrap();
        self.reassembly.give_up(&mut self.pool, range, LostReason::Budget, &mut self.out);
    }

    fn session(&mut self, place: u64, message: u64) {
        let message = MessageNumber::new(message).unwrap();
        let at = sequence(FIRST + place);
        let number = Number::new((message.get() * 3).saturating_sub(2)).unwrap();
        let counted = Counted { message, unsure: 0 };
        self.reassembly.session(&mut self.pool, at, counted, number, &mut self.out);
    }

    /// What was delivered since the last call.
    fn seen(&mut self) -> Vec<Seen> {
        assert_eq!(self.pool.free() + self.reassembly.held(), 100, "no buffer is lost");
        std::mem::take(&mut self.out.seen)
    }
}
