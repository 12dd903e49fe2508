//! What happens in a run: who takes part, what is published, and what goes wrong when. All of it follows from
//! a seed, and any part of it can be left out.

use crate::config::{Config, Order};
use crate::random::Random;
use crate::time::{MICROSECOND, MILLISECOND, SECOND};
use crate::wire::Policy;

use super::fault::{Fault, Kind};

#[derive(Debug, Clone)]
pub(super) struct Publish {
    pub(super) at: u64,
    pub(super) length: usize,
    pub(super) topic: usize,
    /// How many numbers of the bus belong to others before this one.
    pub(super) skip: u64,
    /// The source itself missed it.
    pub(super) missed: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Scenario {
    pub(super) seed: u64,
    pub(super) config: Config,
    pub(super) keyed: bool,
    /// All nodes are restarted three times, to change the key.
    pub(super) rekeys: bool,
    pub(super) publishes: Vec<Vec<Publish>>,
    pub(super) receivers: usize,
    /// How many of the receivers are required, with the policy slowest.
    pub(super) required: usize,
    /// How many interfaces each node has. Senders send each datagram over all of them.
    pub(super) legs: usize,
    /// How many repairers the streams have, which are feeds then.
    pub(super) repairers: usize,
    pub(super) delay: u64,
    pub(super) jitter: u64,
    pub(super) faults: Vec<Fault>,
    /// When the last fault is over.
    pub(super) faults_end: u64,
}

impl Scenario {
    /// Returns a scenario in which nothing is published and nothing goes wrong, with short timers.
    pub(super) fn quiet(seed: u64, data_rate: u64) -> Self {
        let config = Config {
            window_bytes: 4 << 20,
            message_max_bytes: 20_000,
            reorder_memory_bytes: 1 << 20,
            receive_memory_bytes: 2 << 20,
            generation_ns: 200 * MILLISECOND,
            session_max_ns: 200 * MILLISECOND,
            status_ns: 100 * MILLISECOND,
            activity_ns: 700 * MILLISECOND,
            hold_limit_ns: 300 * MILLISECOND,
            topics: 64,
            sources: 8,
            receivers: 16,
            ..Config::with_rate(data_rate)
        };
        Self {
            seed,
            config,
            keyed: false,
            rekeys: false,
            publishes: Vec::new(),
            receivers: 1,
            required: 0,
            legs: 1,
            repairers: 0,
            delay: 100 * MICROSECOND,
            jitter: 0,
            faults: Vec::new(),
            faults_end: 2_500 * MILLISECOND,
        }
    }

    pub(super) fn from_seed(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x746f_726f_6e69);
        let mut one = Self::quiet(seed, random.between(10, 200) * 1_000_000);
        if random.below(16) == 0 {
            one.faults_end = 12_500 * MILLISECOND;
        }
        one.keyed = random.below(4) == 0;
        one.rekeys = one.keyed && random.below(4) == 0;
        one.receivers = usize::try_from(random.between(1, 4)).unwrap();
        one.legs = if random.below(4) == 0 { 2 } else { 1 };
        let repaired = !one.keyed && random.below(6) == 0;
        one.repairers = usize::try_from(random.between(1, 3)).unwrap() * usize::from(repaired);
        one.delay = random.between(20, 400) * MICROSECOND;
        one.vary_config(&mut random);
        // Without repairs, what overtakes another makes that lost.
        one.jitter = random.below(200) * MICROSECOND * one.config.generation_ns.min(1);
        one.faults =
            (0..random.below(7)).map(|_| Fault::draw(&mut random, one.faults_end)).collect();
        let late = one.settled() + 400 * MILLISECOND;
        let senders = random.between(1, 3);
        one.publishes = (0..senders)
            .map(|_| {
                let mut list = flow(&mut random, one.faults_end + 300 * MILLISECOND);
                // When the faults are over, everything must arrive.
                let last = |at| Publish { at, length: 100, topic: 0, skip: 0, missed: false };
                list.extend((1..4).map(|count| last(late + count * 50 * MILLISECOND)));
                list
            })
            .collect();
        if one.keyed && random.below(2) == 0 {
            let from = random.below(one.faults_end / 2);
            let (kind, until) = (Kind::Recorder, one.faults_end);
            one.faults.push(Fault { kind, from, until, who: 0 });
        }
        one
    }

    /// Whether a stranger records what is sent.
    pub(super) fn is_recorded(&self) -> bool {
        self.faults.iter().any(|fault| fault.kind == Kind::Recorder)
    }

    fn vary_config(&mut self, random: &mut Random) {
        let config = &mut self.config;
        config.order = if random.below(3) == 0 { Order::Arrival } else { Order::Source };
        config.window_bytes = 1 << random.between(21, 23);
        config.reorder_memory_bytes = 1 << random.between(17, 22);
        config.receive_memory_bytes = config.reorder_memory_bytes * random.between(1, 2);
        config.batch_delay_ns = if random.below(4) == 0 { MILLISECOND } else { 0 };
        if random.below(8) == 0 {
            config.window_bytes = 300 << 10;
            config.data_rate = Some(8_000_000);
        }
        if random.below(12) == 0 {
            config.generation_ns = 0;
        }
        match random.below(10) {
            0 | 1 => {
                config.policy = Policy::Slowest;
                self.required = usize::try_from(random.below(self.receivers as u64 + 1)).unwrap();
                config.group_min = random.below(self.required as u64 + 1);
            }
            2 => {
                config.policy = Policy::Uncontrolled;
                config.data_rate = None;
                config.retransmit_rate = Some(random.between(2, 50) * 1_000_000);
            }
            _ => {}
        }
    }

    /// When everything that goes wrong is over, and its consequences too.
    pub(super) fn settled(&self) -> u64 {
        let settles = self.faults.iter().map(|fault| fault.kind.settles_ns(self.keyed));
        let changes = if self.rekeys { REKEYED } else { 0 };
        // A tail that was lost is noticed with the next SESSION, and repaired within two generations.
        let noticed = self.config.session_max_ns + 250 * MILLISECOND;
        let repaired = noticed + 2 * self.config.generation_ns;
        // Without repairs nothing waits for a name, and after many tries a receiver asks each 2 s.
        let asked = if self.config.generation_ns == 0 { 2_050 * MILLISECOND } else { 0 };
        let repaired = repaired.max(asked);
        // A source that died is reported after this time of silence.
        let repaired = repaired.max(self.config.activity_ns + 50 * MILLISECOND);
        (self.faults_end + settles.max().unwrap_or(0)).max(changes) + repaired
    }

    /// When the run ends.
    pub(super) fn end(&self) -> u64 {
        let published = self.publishes.iter().flatten().map(|one| one.at).max().unwrap_or(0);
        self.settled().max(published) + 4 * self.config.generation_ns + 2 * SECOND
    }

    /// Returns what is needed to understand a failure: messages one by one only if there are few.
    pub(super) fn describe(&self) -> String {
        let mut text = format!(
            "seed {}, {} receivers, order {:?}, keyed {}, generation {} ms, delay {} µs + {} µs\n",
            self.seed,
            self.receivers,
            self.config.order,
            self.keyed,
            self.config.generation_ns / MILLISECOND,
            self.delay / MICROSECOND,
            self.jitter / MICROSECOND,
        );
        let plain = self.config.policy == Policy::Bounded && self.legs == 1 && self.repairers == 0;
        if !plain || self.rekeys {
            text += &format!(
                "policy {:?}, {} required, group of {}, {} legs, {} repairers, key changes {}\n",
                self.config.policy,
                self.required,
                self.config.group_min,
                self.legs,
                self.repairers,
                self.rekeys,
            );
        }
        for fault in &self.faults {
            text += &format!("{fault:?}\n");
        }
        for (sender, publishes) in self.publishes.iter().enumerate() {
            text += &format!("sender {sender}: {} messages\n", publishes.len());
            for one in publishes.iter().take(12) {
                text += &format!("    {one:?}\n");
            }
        }
        text
    }
}

/// The three steps of a change of keys begin at these times.
pub(super) const REKEY_AT: [u64; 3] = [300 * MILLISECOND, 1_000 * MILLISECOND, 1_700 * MILLISECOND];
const REKEYED: u64 = 2_500 * MILLISECOND;

/// Returns a steady flow of messages of one length.
pub(super) fn steady(from: u64, until: u64, every: u64, length: usize) -> Vec<Publish> {
    let at = (from..until).step_by(usize::try_from(every).unwrap());
    at.map(|at| Publish { at, length, topic: 0, skip: 0, missed: false }).collect()
}

/// Draws bursts, a steady flow, and pauses.
fn flow(random: &mut Random, end: u64) -> Vec<Publish> {
    let mut at = random.below(200 * MILLISECOND);
    let mut list = Vec::new();
    while at < end && list.len() < 400 {
        let (count, pause) = match random.below(10) {
            0 => (random.between(10, 60), random.below(300)),
            1 => (1, random.between(100, 500)),
            _ => (random.between(1, 4), random.between(1, 20)),
        };
        for _ in 0..count {
            let length = match random.below(12) {
                0 => random.between(1_000, 6_000),
                1 => random.between(20_001, 20_010) * random.below(2),
                _ => random.below(300),
            };
            list.push(Publish {
                at,
                length: usize::try_from(length).unwrap(),
                topic: usize::try_from(random.below(6) * random.below(14)).unwrap(),
                skip: if random.below(4) == 0 { random.below(3) } else { 0 },
                missed: random.below(100) == 0,
            });
        }
        at += pause * MILLISECOND + random.below(MILLISECOND);
    }
    list
}
