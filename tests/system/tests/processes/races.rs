//! Many create, open, use and leave one bus at once, cleaners remove it under them, and some of all of these
//! are killed at random. No process finds half of a bus, no bus vanishes while a process uses it, and in the end
//! nothing is left.
//!
//! `TORONI_KILLS` says how many are killed.

use std::time::Duration;
use system_tests::worker::{Fixture, Worker};
use system_tests::{Program, Random, Watchdog, wait_until};

const CREW: usize = 4;

#[test]
fn creators_and_cleaners_meet_and_are_killed() {
    let kills: u64 =
        std::env::var("TORONI_KILLS").map_or(40, |kills| kills.parse().expect("a number"));
    let _watchdog = Watchdog::start("races", Duration::from_secs(300 + kills));
    let mut random = Random::from_environment();
    let mut fixture = Fixture::new(|config| config.capacity(64 << 10));
    // Cleaners remove it, too, as no process uses it.
    let mut crew: Vec<Worker> = (0..CREW).map(|_| fixture.start("scramble", &[])).collect();
    let (mut exchanges, mut cleaners_killed, mut creators_killed) = (0, 0, 0);
    for _ in 0..kills {
        let cleaners = [0, 1].map(|_| Program::start(fixture.root.toroni(&["clean"])));
        std::thread::sleep(Duration::from_micros(random.between(0, 8000)));
        let [mut doomed, mut other] = cleaners;
        if doomed.ended().is_none() {
            // It may end by itself just now.
            doomed.signal(rustix::process::Signal::KILL);
            cleaners_killed += u64::from(!doomed.wait().success());
        }
        let index = random.index(CREW);
        if random.index(3) > 0 {
            let victim = &mut crew[index];
            wait_until("a victim is at work", || {
                let ended = victim.running.ended();
                assert!(ended.is_none(), "a creator failed{}", victim.running.errors());
                fixture.counters.count(victim.id) > 0
            });
        }
        let new = fixture.start("scramble", &[]);
        let mut old = std::mem::replace(&mut crew[index], new);
        exchanges += fixture.counters.count(old.id);
        old.running.kill();
        creators_killed += 1;
        let finished = other.finish();
        assert!(finished.status.success(), "a cleaner failed: {finished:?}");
    }
    for mut worker in crew {
        wait_until("each still exchanges messages", || {
            let ended = worker.running.ended();
            assert!(ended.is_none(), "a creator failed{}", worker.running.errors());
            fixture.counters.count(worker.id) > 0
        });
        exchanges += fixture.counters.count(worker.id);
        worker.running.kill();
    }
    println!(
        "{exchanges} times a bus was opened or made, used and left; {creators_killed} of those who did and \
         {cleaners_killed} cleaners were killed"
    );
    fixture.root.assert_clean_leaves_nothing();
}
