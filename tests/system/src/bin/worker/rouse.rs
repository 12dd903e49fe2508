//! `rouse`: publishes one message a round, when all sleeping subscribers have received those of the round before, at a
//! random moment around the one at which they fall asleep. Prints `slow ROUND CALL_US` for each call that took longer than
//! a millisecond.
//!
//! In each round it first publishes some messages that the sleeping subscribers do not receive, and which do not wake them.
//!
//! With `exclusive=true` it is the only publisher. After a few messages it leaves out the fence, if `TORONI_QUIET` says so,
//! until a subscriber goes to sleep. Prints `unfenced ROUNDS`, the number of rounds in which it had left the fence out when it published.
//!
//! `burn`: keeps a core busy until it is killed.

use crate::options::Options;
use std::fs::File;
use system_tests::Random;
use system_tests::wake::{Stamp, leaves_fence_out, now_ns};
use toroni::{Bus, Exclusive, ExclusiveTopic, Limit, Publisher};

pub(crate) fn run(options: &Options) {
    let (bus, counters) = (options.bus(), options.counters());
    let id: u32 = options.get("id");
    let threads: u32 = options.or("threads", 1);
    let rounds: u64 = options.get("rounds");
    let messages_a_round: u64 = options.get("messages_a_round");
    let spread_ns: u64 = options.or("spread_us", 60) * 1000;
    let dozers: Vec<u32> =
        options.get::<String>("dozers").split(',').map(|id| id.parse().expect("ids")).collect();
    let is_exclusive = options.or("exclusive", false);
    println!("ready");
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let publisher = Handle::new(&bus, is_exclusive);
            let (counters, dozers) = (&counters, &dozers);
            let mut random = Random::new(options.or("seed", 1_u64) ^ u64::from(thread) << 32);
            scope.spawn(move || {
                let mut unfenced = 0;
                for round in 0..rounds {
                    let taken = round * messages_a_round;
                    let mut looks = 0_u32;
                    while dozers.iter().any(|dozer| counters.count(*dozer) < taken) {
                        looks += 1;
                        if looks.is_multiple_of(64) {
                            std::thread::yield_now();
                        }
                        std::hint::spin_loop();
                    }
                    publisher.publish_without_receivers();
                    let begin_ns = now_ns() + random.between(0, spread_ns + 1);
                    while now_ns() < begin_ns {
                        std::hint::spin_loop();
                    }
                    unfenced += u64::from(publisher.has_left_fence_out());
                    let sent_ns = now_ns();
                    publisher.publish(&Stamp { round, sent_ns }.encode());
                    let call_us = (now_ns() - sent_ns) / 1000;
                    if call_us > 1000 {
                        println!("slow {round} {call_us}");
                    }
                    if thread == 0 {
                        counters.set_count(id, round + 1);
                    }
                }
                if is_exclusive {
                    println!("unfenced {unfenced}");
                }
            });
        }
    });
}

/// Publishes as the only one, or as one of many.
enum Handle {
    Shared {
        publisher: Publisher,
        unseen: Publisher,
    },
    Exclusive {
        exclusive: Exclusive,
        topic: ExclusiveTopic,
        unseen: ExclusiveTopic,
        /// The file `ring` of the bus.
        ring: File,
    },
}

impl Handle {
    fn new(bus: &Bus, is_exclusive: bool) -> Self {
        if !is_exclusive {
            let [publisher, unseen] =
                ["rouse", "unseen"].map(|topic| bus.publisher(topic).expect("a publisher"));
            return Self::Shared { publisher, unseen };
        }
        let exclusive = bus.exclusive().expect("an exclusive publisher");
        let [topic, unseen] =
            ["rouse", "unseen"].map(|topic| exclusive.topic(topic).expect("a topic"));
        let ring = File::open(bus.path().join("ring")).expect("the ring");
        Self::Exclusive { exclusive, topic, unseen, ring }
    }

    fn publish(&self, payload: &[u8]) {
        match self {
            Self::Shared { publisher, .. } => publisher.publish(payload),
            Self::Exclusive { exclusive, topic, .. } => {
                exclusive.publish(topic, payload, Limit::Policy)
            }
        }
        .expect("published");
    }

    /// Publishes messages that no subscriber receives; an exclusive publisher enough that a few more fences do not matter.
    fn publish_without_receivers(&self) {
        match self {
            Self::Shared { unseen, .. } => {
                for _ in 0..3 {
                    unseen.publish(b"unseen").expect("published");
                }
            }
            Self::Exclusive { exclusive, unseen, .. } => {
                for _ in 0..64 {
                    exclusive.publish(unseen, b"unseen", Limit::Policy).expect("published");
                }
            }
        }
    }

    fn has_left_fence_out(&self) -> bool {
        let Self::Exclusive { ring, .. } = self else { return false };
        leaves_fence_out(ring)
    }
}

pub(crate) fn burn() -> ! {
    println!("ready");
    loop {
        std::hint::spin_loop();
    }
}
