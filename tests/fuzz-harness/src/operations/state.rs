//! A bus with its participants, and the model beside it.

use super::bridge::{Bridge, MOST_STREAMS};
use super::readers::{Reader, Wish};
use super::values::{MOST_VALUES, VALUE_BYTES};
use super::writers::Writer;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use toroni::{Bus, BusConfig, LockKind, Lost, NotifyKind, Origin};
use toroni_oracle::{
    Arrivals, By, Model, Operation, Policy, Setup, Size, Start, StreamName, Values, Work,
};

/// Publishers, inlets and subscribers at a time.
pub(super) const WRITERS: u8 = 3;
pub(super) const INLETS: u8 = 3;
const READERS: u8 = 4;
/// The smallest ring that there can be.
const SMALLEST_CAPACITY: u64 = 64 << 10;
/// Room for some of the topics: the others travel with each message.
const TABLE_BYTES: u64 = 4096;
const BUS: &str = "b";

/// What came about in a list, or in many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Messages that were published.
    pub published: u64,
    /// Messages that were received, by all subscribers together.
    pub received: u64,
    /// Calls that were refused, as they had to be.
    pub refused: u64,
    /// How often a subscriber was lapped, and how many messages it lost.
    pub lapses: u64,
    /// See `lapses`.
    pub lost: u64,
    /// How often a subscriber was lapped only by what is for others.
    pub passed_laps: u64,
    pub deaths: u64,
    /// Of the published messages, those of exclusive publishers.
    pub exclusive: u64,
    /// Of the refused calls, those that an exclusive publisher kept out.
    pub kept_out: u64,
    /// How often somebody became exclusive.
    pub reigns: u64,
    /// Of the published messages, those that inlets brought; of these, the losses.
    pub brought: u64,
    /// See `brought`.
    pub losses: u64,
    /// What inlets brought although it had arrived before, and the bus dropped.
    pub dropped: u64,
    /// Of the refused calls, those of an inlet whose series another one brings.
    pub taken: u64,
    /// Losses that subscribers were told of, by all of them together.
    pub told: u64,
    /// Values that were read; of these, those that are missing.
    pub values: u64,
    /// See `values`.
    pub missing: u64,
    /// Values that subscribers received; of these, those after a loss.
    pub joined: u64,
    /// See `joined`.
    pub healed: u64,
}

impl Tally {
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            published: self.published + other.published,
            received: self.received + other.received,
            refused: self.refused + other.refused,
            lapses: self.lapses + other.lapses,
            lost: self.lost + other.lost,
            passed_laps: self.passed_laps + other.passed_laps,
            deaths: self.deaths + other.deaths,
            exclusive: self.exclusive + other.exclusive,
            kept_out: self.kept_out + other.kept_out,
            reigns: self.reigns + other.reigns,
            brought: self.brought + other.brought,
            losses: self.losses + other.losses,
            dropped: self.dropped + other.dropped,
            taken: self.taken + other.taken,
            told: self.told + other.told,
            values: self.values + other.values,
            missing: self.missing + other.missing,
            joined: self.joined + other.joined,
            healed: self.healed + other.healed,
        }
    }
}

/// What the model does not say of a message.
#[derive(Clone, Debug, Default)]
pub(super) struct Note {
    pub(super) topic: usize,
    pub(super) to_descendants: bool,
    /// Bytes before its payload.
    pub(super) extensions: u32,
    pub(super) has_time: bool,
    /// The time, where it is not that of the operation.
    pub(super) published_ns: Option<u64>,
    pub(super) origin: Option<Origin>,
    pub(super) number: Option<u64>,
    /// It is no message, but clears the value of its topic.
    pub(super) is_cleared: bool,
    /// It is no message but this loss; then the rest says nothing.
    pub(super) loss: Option<Box<Lost>>,
}

impl Note {
    /// Bytes before the payload, without those of a topic's name.
    pub(super) fn extras(&self) -> u64 {
        8 * u64::from(self.has_time)
            + 16 * u64::from(self.origin.is_some())
            + 8 * u64::from(self.number.is_some())
    }
}

pub(super) struct State {
    pub(super) setup: Setup,
    pub(super) config: BusConfig,
    /// For subscribers and observers.
    pub(super) bus: Bus,
    pub(super) model: Model,
    pub(super) notes: Vec<Note>,
    pub(super) stamp: u64,
    pub(super) writers: Vec<Option<Writer>>,
    pub(super) readers: Vec<Option<Reader>>,
    pub(super) bridges: Vec<Option<Bridge>>,
    /// Inlets that there were.
    pub(super) next_inlet: u64,
    pub(super) arrivals: Arrivals,
    /// Calls of inlets: the clock of the streams.
    pub(super) calls: u64,
    /// Streams of which something came in any order, or that were forgotten.
    pub(super) unordered: BTreeSet<StreamName>,
    /// Streams that a dead inlet may have claimed.
    pub(super) unsure: BTreeSet<StreamName>,
    pub(super) values: Values,
    /// Bytes for values that were in no use before the operation, as far as that is known.
    pub(super) free: u64,
    /// Topics in the bus's table.
    pub(super) interned: BTreeSet<usize>,
    /// The writer that is the exclusive publisher.
    pub(super) exclusive: Option<usize>,
    /// Whether a writer died, perhaps with the lock, and no other writer has had the lock since.
    pub(super) orphaned: bool,
    pub(super) tally: Tally,
}

impl State {
    pub(super) fn new(directory: &Path, setup: &Setup) -> Self {
        let capacity = SMALLEST_CAPACITY << setup.size;
        let config = BusConfig::new()
            .directory(directory)
            .capacity(capacity)
            .topic_table_bytes(TABLE_BYTES)
            // One more for the end.
            .max_publishers(u32::from(WRITERS + 1 + INLETS + 1))
            .max_arrivals(MOST_STREAMS.into())
            .retained_topics(MOST_VALUES)
            .retained_bytes(VALUE_BYTES)
            .max_subscribers(u32::from(READERS) + 1)
            .lock(if setup.robust { LockKind::Robust } else { LockKind::Lease })
            .notify(if setup.sockets { NotifyKind::Datagram } else { NotifyKind::Futex })
            .policy(policy(setup.policy))
            .timestamps(setup.timestamps);
        let bus = config.create(BUS).unwrap();
        Self {
            setup: *setup,
            config,
            bus,
            model: Model::new(capacity),
            notes: Vec::new(),
            stamp: 0,
            writers: (0..WRITERS).map(|_| None).collect(),
            readers: (0..READERS).map(|_| None).collect(),
            bridges: (0..INLETS).map(|_| None).collect(),
            next_inlet: 0,
            arrivals: Arrivals::new(MOST_STREAMS.into()),
            calls: 0,
            unordered: BTreeSet::new(),
            unsure: BTreeSet::new(),
            values: Values::new(MOST_VALUES as usize, VALUE_BYTES),
            free: 0,
            interned: BTreeSet::new(),
            exclusive: None,
            orphaned: false,
            tally: Tally::default(),
        }
    }

    pub(super) fn open(&self, name: String) -> Bus {
        self.config.clone().participant_name(name).open_existing(BUS).unwrap()
    }

    pub(super) fn perform(&mut self, operation: &Operation) {
        match *operation {
            Operation::Write { writer, topic, work, die_at } => {
                self.write((writer % WRITERS).into(), topic, work, die_at);
            }
            Operation::Receive { reader, most, by, die_at } => {
                self.receive((reader % READERS).into(), most, by, die_at);
            }
            Operation::Subscribe {
                reader,
                start,
                patterns,
                gating,
                local_only,
                newest,
                retained,
                die_at,
            } => {
                let wish = Wish { start, patterns, gating, local_only, newest, retained };
                self.subscribe((reader % READERS).into(), wish, die_at);
            }
            Operation::Unsubscribe { reader, die_at } => {
                self.unsubscribe((reader % READERS).into(), die_at);
            }
            Operation::Close { writer, die_at } => self.close((writer % WRITERS).into(), die_at),
            Operation::Look => self.check(),
            Operation::BecomeExclusive { writer, by, die_at } => {
                self.become_exclusive((writer % WRITERS).into(), by, die_at);
            }
            Operation::GiveUp { die_at } => self.give_up(die_at),
            Operation::Bring { inlet, stream, cargo, die_at } => {
                self.bring((inlet % INLETS).into(), stream, cargo, die_at);
            }
            Operation::CloseInlet { inlet, die_at } => {
                self.close_inlet((inlet % INLETS).into(), die_at);
            }
            Operation::Retain { writer, topic, die_at } => self.retain(writer, topic, die_at),
            Operation::ReadValues => self.check_values(),
        }
    }

    /// Checks that, whatever happened, all that was committed and not lost can be read, new participants get slots, and a
    /// writer writes.
    pub(super) fn finish(mut self) -> Tally {
        self.check();
        for reader in 0..READERS {
            self.receive_all(reader.into());
        }
        // The number after the last: a participant that was not there before.
        self.writers.push(None);
        self.readers.push(None);
        self.bridges.push(None);
        let start = Start::Oldest;
        let wish = Wish {
            start,
            patterns: 0,
            gating: true,
            local_only: false,
            newest: false,
            retained: true,
        };
        self.subscribe(READERS.into(), wish, 0);
        self.receive_all(READERS.into());
        // Before and after the exclusive publisher, if there is one, gives up.
        self.write(WRITERS.into(), 0, Work::One(Size::Bytes(100)), 0);
        self.give_up(0);
        self.write(WRITERS.into(), 0, Work::One(Size::Bytes(100)), 0);
        self.write(WRITERS.into(), 7, Work::Burst(3, [Size::Bytes(9); 3]), 0);
        self.check_arrivals(INLETS.into());
        for reader in 0..=READERS {
            self.receive_all(reader.into());
        }
        self.check();
        self.tally
    }

    fn receive_all(&mut self, reader: usize) {
        while self.readers[reader].as_ref().is_some_and(|reader| !reader.is_at(&self.model)) {
            self.receive(reader, u8::MAX, By::Copy, 0);
        }
        self.receive(reader, 1, By::Copy, 0);
    }
}

fn policy(policy: Policy) -> toroni::Policy {
    let moment = Duration::from_micros(30);
    match policy {
        Policy::Overwrite => toroni::Policy::Overwrite,
        Policy::WaitBriefly => toroni::Policy::Wait { limit: Some(moment) },
        Policy::WaitForever => toroni::Policy::Wait { limit: None },
        Policy::Bounded => toroni::Policy::Bounded { budget: moment, per: 100 * moment },
    }
}
