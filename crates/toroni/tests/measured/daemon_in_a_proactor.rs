//! What the example `daemon` costs while nothing happens.

use crate::daemon::{ENGINES, Setup};
use rustix::process::Signal;
use std::time::{Duration, Instant};
use toroni::NotifyKind;
use toroni_testkit::turn;

/// The daemon wakes four times a second to poll as a safety net, and once for its own timer.
#[test]
fn it_is_idle_when_nothing_happens() {
    let _turn = turn();
    /// After this time, polls are far apart.
    const WARM: Duration = Duration::from_millis(1500);
    const ROUND: Duration = Duration::from_millis(1500);
    // Measures until one round is below the limit: on a busy machine, a process that wakes up pays
    // for what others do to the caches.
    const ROUNDS: usize = 60;
    let mut setups: Vec<_> =
        ENGINES.iter().map(|engine| Setup::new(*engine, NotifyKind::Futex)).collect();
    std::thread::sleep(WARM);
    let mut busy: Vec<_> = setups.iter().collect();
    for _ in 0..ROUNDS {
        let before: Vec<_> = busy.iter().map(|setup| ran_ns(setup.daemon.pid())).collect();
        let started = Instant::now();
        std::thread::sleep(ROUND);
        let share = |(setup, before): (&&Setup, u64)| {
            let ran_ns = ran_ns(setup.daemon.pid()) - before;
            let permille = u128::from(ran_ns) * 1000 / started.elapsed().as_nanos();
            println!("{}: {} us", setup.engine, ran_ns / 1000);
            permille
        };
        let shares: Vec<u128> = busy.iter().zip(before).map(share).collect();
        let mut shares = shares.into_iter();
        busy.retain(|_| shares.next().unwrap() >= 3);
        if busy.is_empty() {
            break;
        }
    }
    let busy: Vec<_> = busy.iter().map(|setup| setup.engine).collect();
    assert!(busy.is_empty(), "more than three thousandths of a processor: {busy:?}");
    // It still responds.
    for setup in &mut setups {
        setup.bus.publisher("hello/world").unwrap().publish("x").unwrap();
        setup.wait_for_status(|status| status.starts_with("hello 1, "));
    }
    setups.into_iter().for_each(|setup| drop(setup.end(Signal::TERM)));
}

/// Returns the processor time of all threads in ns: the first number of
/// `/proc/<pid>/task/*/schedstat`.
fn ran_ns(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let ran = tasks.map(|task| {
        let text = std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
        text.split(' ').next().unwrap().parse::<u64>().unwrap()
    });
    ran.sum()
}
