//! No wake-up is lost. Single messages are published to subscribers around the moment at which they fall asleep, while
//! nothing but a wake-up ends a sleep. A lost wake-up is then a hang, not a delay of 50 ms that a busy machine could
//! also cause.
//!
//! Needs the feature `crash-points`, which has the switch that turns the recheck after 50 ms off: `cargo xtask crash`.
//! `TORONI_ROUNDS` says how many messages each publisher sends in each of the settings.

#![cfg(feature = "crash-points")]

use std::process::Command;
use std::time::{Duration, Instant};
use system_tests::worker::{BUS, Fixture, Worker};
use system_tests::{Random, Watchdog};
use toroni::{LockKind, NotifyKind};

/// If there is no progress for this time, a wake-up is lost. Even a busy machine takes far less.
const HANG: Duration = Duration::from_secs(30);

/// One that waits at the futex of the bus if it can, and one that waits at the descriptor.
const ENGINES: [&str; 2] =
    ["[[processor]]\nprovider = 'combined'", "[[processor]]\nprovider = 'select'\nwait = 'epoll'"];

#[derive(Clone, Copy, Debug)]
struct Setting {
    lock: LockKind,
    notify: NotifyKind,
    /// `receive`, `poll` or `proactor`.
    how: &'static str,
    /// Of a proactor: its configuration.
    engine: &'static str,
    /// The subscribers have a descriptor, whether they wait at it or not.
    fd: bool,
    wait: &'static str,
    dozers: usize,
    /// Publishing processes, and threads of each, that share what they have answered.
    publishers: usize,
    threads: u64,
    /// The publisher is the only one, and leaves its fence out while no subscriber goes to sleep.
    exclusive: bool,
    refused: Refused,
}

/// Who is refused the system call membarrier.
#[derive(Clone, Copy, Debug, Default)]
struct Refused {
    publisher: bool,
    subscribers: bool,
}

/// A message that came late.
#[derive(Debug)]
struct Late {
    round: u64,
    latency_us: u64,
    /// How long the subscriber was ready and had no core.
    waited_us: u64,
}

#[derive(Debug, Default)]
struct Outcome {
    messages: u64,
    mean_us: f64,
    longest_us: u64,
    late: Vec<Late>,
    /// Calls of publishers that took over a millisecond: round and microseconds.
    slow: Vec<(u64, u64)>,
    /// Rounds in which an exclusive publisher had left its fence out when it published.
    unfenced: u64,
}

#[test]
fn lease_futex() {
    walk(LockKind::Lease, NotifyKind::Futex);
}

#[test]
fn lease_datagram() {
    walk(LockKind::Lease, NotifyKind::Datagram);
}

#[test]
fn lease_multicast() {
    walk(LockKind::Lease, NotifyKind::Multicast { group: None });
}

#[test]
fn robust_futex() {
    walk(LockKind::Robust, NotifyKind::Futex);
}

#[test]
fn robust_datagram() {
    walk(LockKind::Robust, NotifyKind::Datagram);
}

#[test]
fn robust_multicast() {
    walk(LockKind::Robust, NotifyKind::Multicast { group: None });
}

#[test]
fn exclusive_futex() {
    walk_exclusive(NotifyKind::Futex);
}

#[test]
fn exclusive_datagram() {
    walk_exclusive(NotifyKind::Datagram);
}

#[test]
fn exclusive_multicast() {
    walk_exclusive(NotifyKind::Multicast { group: None });
}

fn rounds() -> u64 {
    std::env::var("TORONI_ROUNDS").map_or(1000, |rounds| rounds.parse().expect("a number"))
}

fn walk(lock: LockKind, notify: NotifyKind) {
    let rounds = rounds();
    // What hangs is found by [`HANG`]; this is for all settings together, however slow the machine.
    let _watchdog = Watchdog::start("wake", Duration::from_secs(900 + rounds / 100));
    let mut random = Random::from_environment();
    let engine = ENGINES[usize::from(lock == LockKind::Robust)];
    let base = Setting {
        lock,
        notify,
        how: "receive",
        engine: "",
        fd: notify != NotifyKind::Futex,
        wait: "block",
        dozers: 1,
        publishers: 1,
        threads: 1,
        exclusive: false,
        refused: Refused::default(),
    };
    let settings = [
        base,
        Setting { wait: "backoff", dozers: 2, ..base },
        Setting { how: "poll", fd: true, dozers: 2, ..base },
        Setting { publishers: 2, dozers: 2, ..base },
        Setting { threads: 2, ..base },
        // On a bus of datagrams, one that sleeps on the futex all the same.
        Setting { fd: false, publishers: 2, threads: 2, dozers: 3, ..base },
        // In a proactor, on another engine for each lock.
        Setting { how: "proactor", engine, dozers: 2, ..base },
    ];
    let began = Instant::now();
    let (mut messages, mut late, mut longest_us) = (0, 0, 0);
    for setting in settings {
        let outcome = run(setting, rounds, 0, true, random.number());
        messages += outcome.messages;
        late += outcome.late.len();
        longest_us = longest_us.max(outcome.longest_us);
        println!(
            "{setting:?}: {} messages, {:.1} us in the mean, {:.1} ms at most, {} over 40 ms",
            outcome.messages,
            outcome.mean_us,
            outcome.longest_us as f64 / 1e3,
            outcome.late.len()
        );
    }
    println!(
        "{lock:?} {notify:?}: {messages} messages to sleepers in {:.1} s, none lost its wake-up; {late} \
         over 40 ms, {:.1} ms at most",
        began.elapsed().as_secs_f64(),
        longest_us as f64 / 1e3
    );
}

/// As [`walk`], with an exclusive publisher, and with each of both sides refused membarrier or not.
fn walk_exclusive(notify: NotifyKind) {
    // In each round the subscribers fall asleep several times.
    let rounds = rounds() / 4;
    let _watchdog = Watchdog::start("wake", Duration::from_secs(900 + rounds / 100));
    let mut random = Random::from_environment();
    for (publisher, subscribers) in [(false, false), (true, false), (false, true), (true, true)] {
        let base = Setting {
            lock: LockKind::Lease,
            notify,
            how: "receive",
            engine: "",
            fd: notify != NotifyKind::Futex,
            wait: "block",
            dozers: 1,
            publishers: 1,
            threads: 1,
            exclusive: true,
            refused: Refused { publisher, subscribers },
        };
        let settings = [
            base,
            Setting { how: "poll", fd: true, dozers: 2, ..base },
            Setting { how: "proactor", engine: ENGINES[usize::from(publisher)], ..base },
        ];
        for setting in settings {
            let outcome = run(setting, rounds, 0, true, random.number());
            println!("{setting:?}: {} of {rounds} rounds unfenced", outcome.unfenced);
            if publisher {
                assert_eq!(outcome.unfenced, 0, "{setting:?}: it is not registered");
            } else if !subscribers {
                assert_ne!(outcome.unfenced, 0, "{setting:?}: it always fences");
            }
        }
    }
}

/// On an overloaded machine, messages are late with or without the recheck. The kernel's statistics say why: the
/// subscriber, or the publisher in its call, was ready and had no core.
#[test]
#[ignore = "keeps the machine busy for a minute: cargo xtask crash --full"]
fn what_is_late_on_a_busy_machine_waited_for_a_core() {
    let _watchdog = Watchdog::start("wake", Duration::from_secs(600));
    let mut random = Random::from_environment();
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let setting = Setting {
        lock: LockKind::Lease,
        notify: NotifyKind::Futex,
        how: "receive",
        engine: "",
        fd: false,
        wait: "block",
        dozers: 4,
        publishers: 1,
        threads: 1,
        exclusive: false,
        refused: Refused::default(),
    };
    for unaided in [false, true] {
        let outcome = run(setting, (rounds() / 5).max(100), 12 * cores, unaided, random.number());
        let mut explained = 0;
        for late in &outcome.late {
            let call_us = outcome
                .slow
                .iter()
                .filter(|(round, _)| *round == late.round)
                .map(|(_, us)| *us)
                .max()
                .unwrap_or(0);
            // The kernel counts to the microsecond, a virtual machine may itself have had no core.
            explained += u64::from(late.waited_us + call_us >= late.latency_us / 2);
        }
        println!(
            "{} hogs on {cores} cores, {}: {} messages, {:.1} us in the mean, {:.1} ms at most; {} over \
             40 ms, of which {explained} are the scheduler's by its own account",
            12 * cores,
            if unaided { "no second look" } else { "a second look after 50 ms" },
            outcome.messages,
            outcome.mean_us,
            outcome.longest_us as f64 / 1e3,
            outcome.late.len()
        );
        for late in outcome.late.iter().take(5) {
            println!(
                "  round {}: {:.1} ms, of which the subscriber waited {:.1} ms for a core",
                late.round,
                late.latency_us as f64 / 1e3,
                late.waited_us as f64 / 1e3
            );
        }
    }
}

fn run(setting: Setting, rounds: u64, hogs: usize, unaided: bool, seed: u64) -> Outcome {
    let mut fixture =
        Fixture::new(|config| config.lock(setting.lock).notify(setting.notify).capacity(64 << 10));
    let a_round = setting.publishers as u64 * setting.threads;
    let messages = format!("messages={}", rounds * a_round);
    let sleep = |command: &mut Command| {
        if unaided {
            command.env("TORONI_SLEEP", "unaided");
            // At every third step, such as between the recheck and the sleep.
            command.env("TORONI_JITTER", format!("333:{seed}"));
        }
        if setting.exclusive {
            command.env("TORONI_QUIET", "1");
        }
    };
    let (how, wait) = (format!("how={}", setting.how), format!("wait={}", setting.wait));
    let (fd, engine) = (format!("fd={}", setting.fd), format!("engine={}", setting.engine));
    let refuse = format!("refuse={}", setting.refused.subscribers);
    let options = [&how, &wait, &fd, &engine, &messages, &refuse, "pattern=rouse"];
    let mut dozers: Vec<Worker> =
        (0..setting.dozers).map(|_| fixture.start_prepared("doze", &options, sleep)).collect();
    dozers.iter_mut().for_each(|dozer| drop(dozer.running.expect("ready")));
    let hogs: Vec<Worker> = (0..hogs).map(|_| fixture.start_ready("burn", &[])).collect();

    let ids: Vec<String> = dozers.iter().map(|dozer| dozer.id.to_string()).collect();
    let options = [
        format!("dozers={}", ids.join(",")),
        format!("rounds={rounds}"),
        format!("threads={}", setting.threads),
        format!("messages_a_round={a_round}"),
        format!("seed={seed}"),
        format!("exclusive={}", setting.exclusive),
        format!("refuse={}", setting.refused.publisher),
    ];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let rousers: Vec<Worker> =
        (0..setting.publishers).map(|_| fixture.start_prepared("rouse", &options, sleep)).collect();

    watch(&fixture, &mut dozers, rounds * a_round, setting);
    drop(hogs);
    let mut outcome = Outcome { messages: rounds * a_round, ..Outcome::default() };
    for dozer in dozers {
        outcome.take(&dozer.running.succeed(), setting.dozers);
    }
    for rouser in rousers {
        outcome.take(&rouser.running.succeed(), 1);
    }
    fixture.root.assert_clean_leaves_nothing();
    outcome
}

/// Until all messages have come, or none comes any more.
fn watch(fixture: &Fixture, dozers: &mut [Worker], messages: u64, setting: Setting) {
    let count = |dozers: &[Worker]| -> Vec<u64> {
        dozers.iter().map(|dozer| fixture.counters.count(dozer.id)).collect()
    };
    let (mut before, mut since) = (count(dozers), Instant::now());
    loop {
        std::thread::sleep(Duration::from_millis(5));
        let now = count(dozers);
        if now.iter().all(|count| *count >= messages) {
            return;
        }
        if now != before {
            (before, since) = (now, Instant::now());
            continue;
        }
        for dozer in dozers.iter_mut() {
            let ended = dozer.running.ended();
            assert!(ended.is_none() || fixture.counters.count(dozer.id) >= messages, "{ended:?}");
        }
        assert!(
            since.elapsed() < HANG,
            "a wake-up is lost: {setting:?}, subscribers have {now:?} of {messages} messages\n{}\n{}",
            fixture.root.succeed(&["info", BUS]),
            dropped_by_the_kernel()
        );
    }
}

/// The kernel's account of datagrams that it dropped: a wake-up by multicast that it dropped is lost by the machine, not by
/// the bus. In `/proc/net/udp` they are the last column, in `/proc/net/softnet_stat` the second, in hexadecimal.
fn dropped_by_the_kernel() -> String {
    ["/proc/net/udp", "/proc/net/softnet_stat"]
        .map(|path| format!("{path}:\n{}", std::fs::read_to_string(path).unwrap_or_default()))
        .concat()
}

impl Outcome {
    fn take(&mut self, said: &str, dozers: usize) {
        for line in said.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| words[at].parse::<u64>().expect("a number");
            match words[0] {
                "late" => self.late.push(Late {
                    round: number(1),
                    latency_us: number(2),
                    waited_us: number(3),
                }),
                "unfenced" => self.unfenced += number(1),
                "slow" => self.slow.push((number(1), number(2))),
                "mean" => {
                    self.mean_us += number(1) as f64 / 1e3 / dozers as f64;
                    self.longest_us = self.longest_us.max(number(3) / 1000);
                }
                _ => {}
            }
        }
    }
}
