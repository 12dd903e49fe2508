//! A machine does not allocate after it was made: a sender and a node's arrivals with loss, reordering, long
//! messages, joins, restarts, silence and new sources. The server and the clients of TCP are in `tcp.rs`.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod tcp;

use toroni_proto::arrivals::{Arrivals, Flow, Inbox};
use toroni_proto::audience::Name;
use toroni_proto::batcher::Now;
use toroni_proto::config::{Config, Order};
use toroni_proto::id::{Number, Realm, Sequence, Series, Session, Source, Stream};
use toroni_proto::legs::{Leg, Path};
use toroni_proto::past::Past;
use toroni_proto::random::Random;
use toroni_proto::reassembly::{Loss, Message};
use toroni_proto::receiver::{Me, Receiver};
use toroni_proto::sender::{Identity, Sender};
use toroni_proto::time::{MILLISECOND, Monotonic, SECOND, Wall};
use toroni_proto::wire::{
    Address, Flags, Header, Key, Keys, LegAddresses, LostReason, NodeName, Policy, Receiver as Id,
    Repairers, Start, TableName, TopicNumber,
};
use toroni_testkit::allocations::{Counting, allocations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Counts what a call of a machine allocates. What the test itself allocates does not count.
fn counted<R>(count: &mut usize, call: impl FnOnce() -> R) -> R {
    let (allocated, result) = allocations(call);
    *count += allocated;
    result
}

const KEYS: Keys = Keys { first: Key::new([7; 32]), next: None };
const LONGEST: usize = 20_000;

fn config(order: Order) -> Config {
    Config {
        window_bytes: 1 << 20,
        message_max_bytes: LONGEST as u64,
        reorder_memory_bytes: 1 << 17,
        receive_memory_bytes: 1 << 18,
        generation_ns: 100 * MILLISECOND,
        session_max_ns: 100 * MILLISECOND,
        status_ns: 20 * MILLISECOND,
        activity_ns: 400 * MILLISECOND,
        policy: Policy::Slowest,
        topics: 64,
        receivers: 4,
        sources: 2,
        order,
        ..Config::with_rate(80_000_000)
    }
}

fn header(source: u32, session: u32) -> Header {
    Header {
        flags: Flags::NONE,
        ttl: 1,
        realm: Realm(1),
        stream: Stream(1),
        source: Source(source),
        session: Session(session),
        sequence: Sequence::new(1_000_000).unwrap(),
    }
}

fn me() -> Me {
    let id = Id { source: Source(100), session: Session(1) };
    Me { id, name: Name::new(NodeName::new("receiver").unwrap()), required: true }
}

#[derive(Default)]
struct Counts {
    messages: u64,
    losses: u64,
}

impl Inbox for Counts {
    fn message(&mut self, _: Flow, message: Message<'_>) {
        self.messages += 1;
        assert_eq!(message.parts.clone().map(<[u8]>::len).sum::<usize>(), message.parts.length());
    }
    fn topic(&mut self, _: Flow, _: TopicNumber, _: TableName<'_>) {}
    fn loss(&mut self, _: Flow, _: Loss) {
        self.losses += 1;
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// The source is killed, and its next life comes at once.
    Killed,
    /// It ends in order.
    Ended,
    /// It is killed and not heard for `activity`.
    Silent,
}

struct World {
    ms: u64,
    random: Random,
    arrivals: Arrivals,
    out: Counts,
    /// How often the machines have allocated.
    count: usize,
    open_gaps: usize,
    /// What arrives at the receiver, and when.
    flying: Vec<(u64, Vec<u8>)>,
}

impl World {
    fn now(&self) -> Now {
        let ns = 1_000 * SECOND + self.ms * MILLISECOND;
        Now { monotonic: Monotonic::from_ns(ns), wall: Wall::from_ns(ns) }
    }

    fn live(&mut self, source: u32, session: u32, series: u32, begins: u64, how: How) {
        let identity = Identity {
            header: header(source, session),
            keys: Some(KEYS),
            name: NodeName::new("sender").unwrap(),
            instance: [u8::try_from(source).unwrap(); 16],
            series: Series(series),
            begins: Number::new(begins).unwrap(),
            past: Past::NONE,
            patterns: &[TableName::new("plant/**").unwrap()],
            legs: LegAddresses::NONE,
            repairers: Repairers::default(),
            listen: 0,
            required: &[NodeName::new("receiver").unwrap()],
        };
        let order = if self.random.below(2) == 0 { Order::Source } else { Order::Arrival };
        let mut sender = Sender::new(&config(order), &identity, self.now().monotonic).unwrap();
        let mut number = begins;
        let until = self.ms + 150;
        while self.ms < until {
            for _ in 0..self.random.between(1, 4) {
                self.publish(&mut sender, number);
                number += 1;
            }
            self.step(&mut sender);
        }
        if how == How::Ended {
            sender.end(self.now(), false);
            let until = self.ms + 300;
            while self.ms < until {
                self.step(&mut sender);
            }
        }
        self.open_gaps += self.arrivals.open_gaps();
        if how == How::Silent {
            drop(sender);
            for _ in 0..500 {
                self.receive(None);
            }
        }
    }

    fn publish(&mut self, sender: &mut Sender, number: u64) {
        let now = self.now();
        let topic = format!("plant/{}", self.random.below(20));
        let length = match self.random.below(20) {
            0 => self.random.between(2_000, 9_000),
            1 => LONGEST as u64 + 1,
            _ => self.random.below(400),
        };
        let payload = vec![1; usize::try_from(length).unwrap()];
        let number = Number::new(number).unwrap();
        let (lost, mark) = (self.random.below(50) == 0, sender.mark());
        let name = TableName::new(&topic).unwrap();
        counted(&mut self.count, || {
            if lost {
                let _ = sender.lost(now, 1, number.plus(1), LostReason::Overtaken);
            } else if let Ok(Some(topic)) = sender.topic(now, name) {
                let start =
                    Start { topic, number, to_descendants: false, published: None, origin: None };
                if sender.message(now, start, &payload).is_err() {
                    sender.go_back(&mark);
                }
            }
            sender.flush(now);
        });
    }

    /// A millisecond of all machines.
    fn step(&mut self, sender: &mut Sender) {
        let now = self.now();
        counted(&mut self.count, || sender.handle_timeout(now));
        loop {
            let machine = &mut *sender;
            let sent = counted(&mut self.count, move || machine.poll_transmit(now));
            let Some(bytes) = sent else { break };
            let bytes = bytes.to_vec();
            for _ in 0..self.random.between(1, 2) {
                if self.random.below(10) > 0 {
                    let delay = self.random.below(4);
                    self.flying.push((self.ms + delay, bytes.clone()));
                }
            }
        }
        while counted(&mut self.count, || sender.poll_event()).is_some() {}
        self.receive(Some(sender));
    }

    fn receive(&mut self, mut sender: Option<&mut Sender>) {
        let now = self.now();
        let (due, later) = self.flying.drain(..).partition(|(at, _)| *at <= self.ms);
        self.flying = later;
        let due: Vec<(u64, Vec<u8>)> = due;
        let Self { arrivals, out, count, .. } = self;
        counted(count, || arrivals.begin_turn(now.monotonic));
        for (_, bytes) in due {
            let leg = Leg::new(usize::from(bytes[40] & 1)).unwrap();
            let path = Path { leg, ..Path::default() };
            let _ = counted(count, || arrivals.handle_datagram(now.monotonic, path, &bytes, out));
        }
        counted(count, || arrivals.handle_timeout(now.monotonic, out));
        loop {
            let machine = &mut *arrivals;
            let sent = counted(count, move || machine.poll_transmit(now.monotonic));
            let Some((_, bytes)) = sent else { break };
            let bytes = bytes.to_vec();
            if let Some(sender) = &mut sender {
                let from = Address::default();
                let _ = counted(count, || sender.handle_datagram(now, from, &bytes));
            }
        }
        while counted(count, || arrivals.poll_event()).is_some() {}
        self.ms += 1;
    }

    /// Some lives of sources, of which two are followed at a time.
    fn round(&mut self, session: u32) {
        let number = u64::from(session) * 10_000;
        self.live(1, session, 1, number, How::Killed);
        self.live(1, session + 1, 1, number + 100, How::Killed);
        self.live(2, session, 1, number, How::Killed);
        self.live(1, session + 2, session, 0, How::Killed);
        self.live(2, session + 1, session, 0, How::Killed);
        self.live(1, session + 3, session, 5_000, How::Ended);
        self.live(2, session + 2, session, 5_000, How::Silent);
        self.live(3, session, 1, number, How::Ended);
        self.live(2, session + 4, session + 1, 0, How::Silent);
    }
}

#[test]
fn nothing_allocates_but_the_receivers_of_more_sessions_than_ever_before() {
    for (order, seed) in [(Order::Source, 1), (Order::Source, 2), (Order::Arrival, 3)] {
        let config = config(order);
        config.check_receiver().unwrap();
        let mut each = 1;
        let random = Random::new(seed);
        let made = counted(&mut each, || {
            Receiver::new(&config, me(), header(1, 1), Some(KEYS), random, Monotonic::default())
        });
        drop(made);
        let mut world = World {
            ms: 0,
            random: Random::new(seed),
            arrivals: Arrivals::new(
                &config,
                Realm(1),
                Some(KEYS),
                me(),
                [9; 16],
                Random::new(seed),
            ),
            out: Counts::default(),
            count: 0,
            open_gaps: 0,
            flying: Vec::new(),
        };
        // Both sources, and the session before of each.
        world.round(10);
        assert!(world.count > 0, "a counter that counts nothing proves nothing");
        assert!(world.count <= 4 * each, "{} and not at most 4 × {each}", world.count);
        assert_eq!(world.count % each, 0, "{each} for a receiver");
        let before = world.count;
        for round in 2..6 {
            world.round(10 * round);
        }
        assert_eq!(world.count, before, "{order:?}, seed {seed}");
        let Counts { messages, losses } = world.out;
        assert!(messages > 5_000 && losses > 50, "{messages} messages, {losses} losses");
        assert!(world.open_gaps > 10, "{} gaps when a session ended", world.open_gaps);
    }
}
