//! Waiting costs nothing: below 0.1 % of a processor, and no thread.

use std::time::Duration;
use system_tests::worker::Fixture;
use system_tests::{Program, TempRoot, Watchdog};
use toroni::NotifyKind;
use toroni_testkit::turn;

/// After this time a subscriber rechecks at its longest interval.
const WARM: Duration = Duration::from_millis(2500);
/// Rounds are measured until one is below the limit: on a busy machine, a process that wakes up also pays for what
/// others did to the processor's caches.
const ROUNDS: usize = 30;
const ROUND: Duration = Duration::from_millis(1500);

#[test]
fn a_subscriber_that_waits_uses_less_than_a_thousandth_of_a_processor() {
    let _turn = turn();
    let _watchdog = Watchdog::start("idle", Duration::from_secs(300));
    let notifiers =
        [NotifyKind::Futex, NotifyKind::Datagram, NotifyKind::Multicast { group: None }];
    let mut fixtures: Vec<Fixture> =
        notifiers.map(|notify| Fixture::new(|config| config.notify(notify))).into();
    let mut waiting = Vec::new();
    for (fixture, notify) in fixtures.iter_mut().zip(notifiers) {
        for how in ["block=false", "block=true", "poll=true"] {
            let options = [
                format!("warm_ms={}", WARM.as_millis()),
                format!("round_ms={}", ROUND.as_millis()),
                format!("rounds={ROUNDS}"),
                how.to_owned(),
            ];
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            waiting.push((format!("{notify:?} {how}"), fixture.start("idle", &options)));
        }
    }
    for (what, worker) in waiting {
        let said = worker.running.succeed();
        let rounds: Vec<(u64, u64)> = said.lines().filter_map(round).collect();
        let (cpu_us, wall_us) = *rounds.last().expect("a round");
        println!("{what}: {cpu_us} us of {wall_us} us in round {}", rounds.len());
        assert!(wall_us >= 1_490_000, "{what} waited {wall_us} us only");
        assert!(cpu_us * 1000 < wall_us, "{what} used {cpu_us} us of {wall_us} us\n{said}");
        assert!(said.ends_with("threads 1\n"), "{what} started a thread\n{said}");
    }
}

/// `cpu_us N wall_us N`.
fn round(line: &str) -> Option<(u64, u64)> {
    let (cpu, wall) = line.strip_prefix("cpu_us ")?.split_once(" wall_us ")?;
    Some((cpu.parse().ok()?, wall.parse().ok()?))
}

/// The program, seen from outside: what the scheduler says that it ran. Not optimised, and looking
/// whether anybody still reads its output, it uses more than the library.
#[test]
fn toroni_sub_uses_less_than_three_thousandths_of_a_processor() {
    let _turn = turn();
    let _watchdog = Watchdog::start("idle", Duration::from_secs(300));
    let root = TempRoot::new();
    let mut sub = Program::start_with_ready_fd(root.toroni(&["sub", "--create", "**"]));
    sub.wait_ready();
    std::thread::sleep(WARM);
    let mut shares = (0..ROUNDS).map(|_| {
        let (before, wall) = (ran_ns(sub.id()), std::time::Instant::now());
        std::thread::sleep(ROUND);
        let (ran_ns, wall) = (ran_ns(sub.id()) - before, wall.elapsed());
        println!("toroni sub: {} us of {} us", ran_ns / 1000, wall.as_micros());
        (ran_ns, wall.as_nanos())
    });
    assert!(shares.any(|(ran_ns, wall_ns)| u128::from(ran_ns) * 1000 < 3 * wall_ns));
}

/// Time on a processor of all threads, in ns: the first number of `/proc/<pid>/task/*/schedstat`.
fn ran_ns(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a running process");
    tasks
        .map(|task| {
            let path = task.expect("a thread").path().join("schedstat");
            let text = std::fs::read_to_string(path).expect("statistics of the scheduler");
            let first = text.split(' ').next().and_then(|number| number.parse::<u64>().ok());
            first.expect("a number")
        })
        .sum()
}
