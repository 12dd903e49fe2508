//! What happens in a run: who takes part, what is published, and what goes wrong when. All of it follows from
//! a seed, and any part of it can be left out.

use crate::config::{Config, Order};
use crate::random::Random;
use crate::time::{MICROSECOND, MILLISECOND};

pub(super) const FAULTS_END: u64 = 2_500 * MILLISECOND;

/// One thing that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    pub(super) from: u64,
    pub(super) until: u64,
    /// Which sender or receiver, modulo their number.
    pub(super) who: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Loss {
        permille: u64,
    },
    Bursts {
        permille: u64,
    },
    Duplicate {
        permille: u64,
    },
    Reorder {
        permille: u64,
    },
    Corrupt {
        permille: u64,
    },
    /// A receiver hears nothing.
    Deaf,
    /// A receiver's datagrams do not arrive.
    Mute,
    /// A sender reaches nobody.
    Partition,
    /// A receiver loses a third.
    Crybaby,
    /// A receiver does not run.
    Stop,
    /// The timers of a receiver are late.
    Late {
        by: u64,
    },
    /// The calendar of a sender jumps.
    ClockStep,
    /// A stranger sends garbage, old datagrams and forged ones.
    Hostile,
    /// A sender is killed, and comes back with the same series at `until`.
    KillSender {
        again: u64,
        skip: u64,
    },
    /// A sender ends in order, for good.
    EndSender,
    /// A sender ends in order, and comes back.
    RestartSender,
    /// A sender's bus was emptied: it comes back with another series.
    NewSeries,
    /// A receiver is killed and comes back, with or without what it had received.
    KillReceiver {
        remembers: bool,
    },
}

impl Kind {
    pub(super) fn is_of_a_sender(self) -> bool {
        matches!(self, Self::KillSender { .. } | Self::NewSeries | Self::RestartSender)
    }
}

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
    pub(super) publishes: Vec<Vec<Publish>>,
    pub(super) receivers: usize,
    pub(super) delay: u64,
    pub(super) jitter: u64,
    pub(super) faults: Vec<Fault>,
}

impl Scenario {
    pub(super) fn from_seed(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x746f_726f_6e69);
        let mut config = Config::with_rate(random.between(10, 200) * 1_000_000);
        let order = if random.below(3) == 0 { Order::Arrival } else { Order::Source };
        config.order = order;
        config.window_bytes = 1 << random.between(21, 23);
        config.message_max_bytes = 20_000;
        config.reorder_memory_bytes = 1 << random.between(17, 22);
        config.receive_memory_bytes = config.reorder_memory_bytes * random.between(1, 2);
        config.generation_ns = 200 * MILLISECOND;
        config.session_max_ns = 200 * MILLISECOND;
        config.status_ns = 100 * MILLISECOND;
        config.activity_ns = 700 * MILLISECOND;
        config.topics = 64;
        config.sources = 8;
        config.receivers = 16;
        config.batch_delay_ns = if random.below(4) == 0 { MILLISECOND } else { 0 };
        if random.below(8) == 0 {
            config.window_bytes = 300 << 10;
            config.data_rate = Some(8_000_000);
        }
        if random.below(12) == 0 {
            config.generation_ns = 0;
        }
        let senders = random.between(1, 3);
        let publishes = (0..senders).map(|_| publishes(&mut random)).collect();
        let receivers = usize::try_from(random.between(1, 4)).unwrap();
        // Without repairs, what overtakes another makes that lost.
        let jitter = random.below(200) * MICROSECOND * config.generation_ns.min(1);
        let faults = (0..random.below(7)).map(|_| fault(&mut random)).collect();
        Self {
            seed,
            keyed: random.below(4) == 0,
            publishes,
            receivers,
            delay: random.between(20, 400) * MICROSECOND,
            jitter,
            faults,
            config,
        }
    }
}

impl Scenario {
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

fn publishes(random: &mut Random) -> Vec<Publish> {
    let mut at = random.below(200 * MILLISECOND);
    let mut list = Vec::new();
    while at < FAULTS_END + 300 * MILLISECOND && list.len() < 400 {
        // Bursts, a steady flow, and pauses.
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
    // When the faults are over, everything must arrive.
    for last in 0..3 {
        let at = FAULTS_END + (900 + last * 50) * MILLISECOND;
        list.push(Publish { at, length: 100, topic: 0, skip: 0, missed: false });
    }
    list
}

fn fault(random: &mut Random) -> Fault {
    let from = random.below(2_200) * MILLISECOND;
    let until = from + random.between(1, 800) * MILLISECOND;
    let kind = match random.below(18) {
        0 | 1 => Kind::Loss { permille: random.between(1, 300) },
        2 | 3 => Kind::Bursts { permille: random.between(1, 50) },
        4 => Kind::Duplicate { permille: random.between(1, 300) },
        5 => Kind::Reorder { permille: random.between(1, 300) },
        6 => Kind::Corrupt { permille: random.between(1, 200) },
        7 => Kind::Deaf,
        8 => Kind::Mute,
        9 => Kind::Partition,
        10 => Kind::Crybaby,
        11 => Kind::Stop,
        12 => Kind::Late { by: random.below(60) * MILLISECOND },
        13 => match random.below(2) {
            0 => Kind::ClockStep,
            _ => Kind::Hostile,
        },
        14 => {
            Kind::KillSender { again: random.below(40), skip: random.below(2) * random.below(10) }
        }
        15 => Kind::EndSender,
        16 => match random.below(2) {
            0 => Kind::RestartSender,
            _ => Kind::NewSeries,
        },
        _ => Kind::KillReceiver { remembers: random.below(2) == 0 },
    };
    Fault {
        kind,
        from,
        until: until.min(FAULTS_END),
        who: usize::try_from(random.below(6)).unwrap(),
    }
}
