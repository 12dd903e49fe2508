//! `rouse`: publishes one message a round, when all sleeping subscribers have received those of the round before, at a
//! random moment around the one at which they fall asleep. Prints `slow ROUND CALL_US` for each call that took longer than
//! a millisecond.
//!
//! `burn`: keeps a core busy until it is killed.

use crate::options::Options;
use system_tests::Random;
use system_tests::wake::{Stamp, now_ns};

pub(crate) fn run(options: &Options) {
    let (bus, counters) = (options.bus(), options.counters());
    let id: u32 = options.get("id");
    let threads: u32 = options.or("threads", 1);
    let rounds: u64 = options.get("rounds");
    let messages_a_round: u64 = options.get("messages_a_round");
    let spread_ns: u64 = options.or("spread_us", 60) * 1000;
    let dozers: Vec<u32> =
        options.get::<String>("dozers").split(',').map(|id| id.parse().expect("ids")).collect();
    println!("ready");
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let publisher = bus.publisher("rouse").expect("a publisher");
            let (counters, dozers) = (&counters, &dozers);
            let mut random = Random::new(options.or("seed", 1_u64) ^ u64::from(thread) << 32);
            scope.spawn(move || {
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
                    let begin_ns = now_ns() + random.between(0, spread_ns + 1);
                    while now_ns() < begin_ns {
                        std::hint::spin_loop();
                    }
                    let sent_ns = now_ns();
                    publisher.publish(Stamp { round, sent_ns }.encode()).expect("published");
                    let call_us = (now_ns() - sent_ns) / 1000;
                    if call_us > 1000 {
                        println!("slow {round} {call_us}");
                    }
                    if thread == 0 {
                        counters.set_count(id, round + 1);
                    }
                }
            });
        }
    });
}

pub(crate) fn burn() -> ! {
    println!("ready");
    loop {
        std::hint::spin_loop();
    }
}
