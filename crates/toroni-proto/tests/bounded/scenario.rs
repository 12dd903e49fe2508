//! What happens in a run: all of it follows from a seed, and any part of it can be left out.

use crate::config::tcp::{Pace, TcpConfig};
use crate::random::Random;
use crate::time::{MILLISECOND, SECOND};

pub(super) const FAULTS_END: u64 = 2_500 * MILLISECOND;
/// The names of topics.
pub(super) const TOPICS: u64 = 40;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    pub(super) from: u64,
    pub(super) until: u64,
    /// Which client, modulo their number.
    pub(super) who: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A client takes nothing.
    Stop,
    /// Its link has another rate, in bytes a second.
    Rate(u64),
    /// Its connection breaks, and cannot be made before the end.
    Cut,
    /// It is killed, and comes back with its marks.
    Kill,
    /// The server is killed, and comes back with the same series.
    KillServer,
    /// The server is stopped: it has until the end to send what it has, and comes back later.
    StopServer,
    /// One byte changes.
    Corrupt,
    /// A host on the path takes frames of messages out.
    TakeOut,
    /// A stranger connects, and sends nothing, garbage, or a frame that a client has sent.
    Stranger,
    /// A client asks for history again.
    Replay,
}

#[derive(Debug, Clone)]
pub(super) struct Publish {
    pub(super) at: u64,
    pub(super) stream: usize,
    pub(super) length: usize,
    pub(super) topic: u64,
    /// How many numbers of the bus belong to others before this one.
    pub(super) skip: u64,
    /// The source itself missed it.
    pub(super) missed: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Peer {
    /// The topics that it wants; none: all.
    pub(super) topics: Vec<u64>,
    pub(super) rate: u64,
    pub(super) delay: u64,
    pub(super) buffer: usize,
    /// When it connects first.
    pub(super) from: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Scenario {
    pub(super) seed: u64,
    pub(super) config: TcpConfig,
    pub(super) keyed: bool,
    pub(super) streams: usize,
    pub(super) publishes: Vec<Publish>,
    pub(super) peers: Vec<Peer>,
    pub(super) faults: Vec<Fault>,
    /// How many messages of a stream can be replayed.
    pub(super) history: usize,
}

impl Scenario {
    pub(super) fn from_seed(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x7463_7062);
        let pace = if random.below(4) == 0 { Pace::Receiver } else { Pace::Source };
        let config = TcpConfig {
            pace,
            latency_bound_ns: random.between(20, 100) * MILLISECOND,
            queue_bytes: 256 << 10,
            frame_memory_bytes: 512 << random.between(10, 12),
            batch_bytes: random.between(512, 16 << 10),
            batch_delay_ns: random.below(2) * random.below(3) * MILLISECOND,
            message_max_bytes: 20_000,
            hold_limit_ns: 100 * MILLISECOND,
            stall_ns: 300 * MILLISECOND,
            hello_ns: 300 * MILLISECOND,
            heartbeat_ns: 50 * MILLISECOND,
            silence_ns: 400 * MILLISECOND,
            retry_ns: 10 * MILLISECOND,
            retry_max_ns: 100 * MILLISECOND,
            replay_rate: Some(random.between(20, 1_000) * 1_000_000),
            data_rate: None,
            clients: 8,
            sets: 4,
            topics: 32,
        };
        assert_eq!(config.check(), Ok(()));
        let streams = usize::try_from(random.between(1, 3)).unwrap();
        let publishes = publishes(&mut random, streams);
        let peers = (0..random.between(1, 4)).map(|_| peer(&mut random)).collect();
        let keyed = random.below(3) == 0;
        let mut faults: Vec<Fault> =
            (0..random.below(6)).map(|_| fault(&mut random, keyed)).collect();
        let history = usize::try_from(random.between(20, 2_000)).unwrap();
        if random.below(6) == 0 {
            faults.push(Fault { kind: Kind::StopServer, ..fault(&mut random, false) });
        }
        Self { seed, config, keyed, streams, publishes, peers, faults, history }
    }

    /// Returns what is needed to understand a failure.
    pub(super) fn describe(&self) -> String {
        format!(
            "seed {}, {:?}\nkeyed {}, {} streams, {} messages, history {}\n{:#?}\n{:#?}",
            self.seed,
            self.config,
            self.keyed,
            self.streams,
            self.publishes.len(),
            self.history,
            self.peers,
            self.faults
        )
    }

    /// Scenarios with one thing less.
    pub(super) fn smaller(&self) -> Vec<Self> {
        let mut list = Vec::new();
        let mut with = |change: &dyn Fn(&mut Self)| {
            let mut one = self.clone();
            change(&mut one);
            list.push(one);
        };
        for at in 0..self.faults.len() {
            with(&|one| {
                one.faults.remove(at);
            });
        }
        if self.peers.len() > 1 {
            for at in 0..self.peers.len() {
                with(&|one| drop(one.peers.remove(at)));
            }
        }
        let mut step = self.publishes.len() / 2;
        while step > 0 {
            for from in (0..self.publishes.len()).step_by(step) {
                let until = (from + step).min(self.publishes.len());
                with(&|one| drop(one.publishes.drain(from..until)));
            }
            step /= 4;
        }
        list
    }
}

fn publishes(random: &mut Random, streams: usize) -> Vec<Publish> {
    let heavy = random.below(4) == 0;
    let mut at = random.below(50 * MILLISECOND);
    let mut list = Vec::new();
    while at < FAULTS_END && list.len() < 1_500 {
        let (count, pause) = match random.below(10) {
            0 => (random.between(10, 100), random.below(200)),
            1 => (1, random.between(100, 400)),
            _ => (random.between(1, 6), random.between(1, 15)),
        };
        for _ in 0..count {
            let length = match random.below(12) {
                0 => random.between(1_000, 20_000),
                1 => random.between(20_001, 20_010) * random.below(2),
                _ if heavy => random.below(8_000),
                _ => random.below(600),
            };
            list.push(Publish {
                at,
                stream: usize::try_from(random.below(streams as u64)).unwrap(),
                length: usize::try_from(length).unwrap(),
                topic: random.below(6) + random.below(2) * random.below(TOPICS - 6),
                skip: if random.below(4) == 0 { random.below(3) } else { 0 },
                missed: random.below(100) == 0,
            });
        }
        at += pause * MILLISECOND + random.below(MILLISECOND);
    }
    // When the faults are over, everything must arrive.
    for last in 0..6 {
        let (at, stream) = (FAULTS_END + 1_200 * MILLISECOND, last % streams);
        list.push(Publish { at, stream, length: 100, topic: 0, skip: 0, missed: false });
    }
    list
}

fn peer(random: &mut Random) -> Peer {
    let topics = match random.below(3) {
        0 => Vec::new(),
        _ => (0..random.between(1, 3)).map(|_| random.below(8)).collect(),
    };
    Peer {
        topics,
        rate: 1_000 << random.between(7, 14),
        delay: random.below(20) * MILLISECOND,
        buffer: 1 << random.between(12, 16),
        from: random.below(2) * random.below(1_500) * MILLISECOND,
    }
}

fn fault(random: &mut Random, keyed: bool) -> Fault {
    let from = random.below(2_000) * MILLISECOND;
    let until = (from + random.between(1, 1_200) * MILLISECOND).min(FAULTS_END);
    let kind = match random.below(13) {
        0..3 => Kind::Stop,
        3..5 => Kind::Rate(random.between(2_000, 100_000)),
        5 | 6 => Kind::Cut,
        7 => Kind::Kill,
        8 => Kind::KillServer,
        9 if keyed => Kind::Corrupt,
        9 | 10 => Kind::Stranger,
        11 => Kind::TakeOut,
        _ => Kind::Replay,
    };
    Fault { kind, from, until, who: usize::try_from(random.below(4)).unwrap() }
}

pub(super) const END: u64 = FAULTS_END + 2 * SECOND;
