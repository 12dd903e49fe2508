//! `kill -9`, and stops, of whole groups at one instant: all publishers, all subscribers, or all of both;
//! also of those who were stopped before. Those who are left see one order with nothing missing, and the
//! next one who comes can publish at once.
//!
//! `TORONI_GROUPS` says how many groups are killed for each kind of lock.

use rustix::process::{Pid, Signal, kill_process_group};
use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};
use system_tests::worker::{BUNDLE, BUS, Fixture, Worker};
use system_tests::{Random, Watchdog, wait_until};
use toroni::{LockKind, NotifyKind, Policy};
use toroni_testkit::order::Agreement;

/// What a loaded machine keeps; the real figures are printed.
const LONGEST_STALL: Duration = Duration::from_secs(30);
const SIZE: usize = 3;

#[test]
fn groups_are_killed_with_the_lock_kind_lease() {
    kill_groups(LockKind::Lease);
}

#[test]
fn groups_are_killed_with_the_lock_kind_robust() {
    kill_groups(LockKind::Robust);
}

fn kill_groups(lock: LockKind) {
    let rounds: u64 =
        std::env::var("TORONI_GROUPS").map_or(12, |rounds| rounds.parse().expect("a number"));
    let _watchdog = Watchdog::start("groups", Duration::from_secs(300 + 10 * rounds));
    let mut random = Random::from_environment();
    let notify = [NotifyKind::Futex, NotifyKind::Datagram][random.index(2)];
    let mut fixture = Fixture::new(|config| {
        let config = config.lock(lock).policy(Policy::Wait { limit: None }).capacity(256 << 10);
        config.notify(notify).max_publishers(8).max_subscribers(8)
    });
    let mut order = Agreement::default();
    let subscribers = ["how=receive", "how=poll"]
        .map(|how| fixture.start_ready("subscribe", &[how, "wait=backoff"]));
    let (mut stalls, mut killed, mut dead) = (Vec::new(), 0, Vec::new());
    for round in 0..rounds {
        // 0: publishers, 1: subscribers, 2: both, 3: both, and the survivors have a publisher.
        let kind = round % 4;
        let stops = random.index(2) == 0;
        let survivor = (kind == 3).then(|| {
            let seed = format!("seed={}", random.number());
            fixture.start("publish", &["phase=ignored", "count=3000", "pause_us=20", &seed])
        });
        let publishers = group(&mut fixture, "publish", &mut random);
        let readers = group(&mut fixture, "subscribe", &mut random);
        wait_until("all are at work", || {
            publishers.iter().chain(&readers).all(|one| fixture.counters.count(one.id) > 0)
        });
        std::thread::sleep(Duration::from_micros(random.between(0, 3000)));
        let mut left = Vec::new();
        let doomed: Vec<Vec<Worker>> = match kind {
            0 => {
                left = readers;
                vec![publishers]
            }
            1 => {
                kill(&fixture, vec![readers], stops, &mut random, &mut order, &mut Vec::new());
                killed += SIZE;
                // Publishers may have waited for any of them.
                let before: Vec<u64> = counts(&fixture, &publishers);
                wait_until("publishers continue without the readers", || {
                    counts(&fixture, &publishers).iter().zip(&before).all(|(now, then)| now > then)
                });
                vec![publishers]
            }
            _ => vec![publishers, readers],
        };
        killed += doomed.iter().map(Vec::len).sum::<usize>();
        kill(&fixture, doomed, stops, &mut random, &mut order, &mut dead);

        // The next one who comes repairs, and publishes; and all of it arrives.
        let began = Instant::now();
        let next = fixture.start("publish", &["phase=ignored", "count=40", "longest=500"]);
        let id = next.id;
        wait_until("the next one publishes", || fixture.counters.count(id) > 0);
        stalls.push(began.elapsed());
        drop(next.running.succeed());
        if let Some(survivor) = survivor {
            drop(survivor.running.succeed());
        }
        let total = fixture.messages();
        let began = Instant::now();
        wait_until("all of it arrives", || {
            counts(&fixture, &subscribers).iter().all(|count| *count >= total)
        });
        println!(
            "round {round}, kind {kind}, stopped {stops}: {total} messages, all arrived after {:.1?}",
            began.elapsed()
        );
        drop(left);
        let _ = fixture.root.succeed(&["clean"]);
        let info = fixture.root.info(BUS);
        info.assert_no_dead(true);
        assert_eq!((info.publishers().len(), info.subscribers().len()), (0, 2), "{info:?}");
    }
    let total = fixture.stop_publishers([]);
    let seen = fixture.finish_subscribers(total, subscribers, &mut order);
    for seen in &seen {
        assert_eq!((seen.received, seen.lost), (total, 0));
    }
    assert_eq!(seen[0].of_worker, seen[1].of_worker);
    for (id, told) in dead {
        let committed = seen[0].of_worker.get(&id).copied().unwrap_or(0);
        assert!((told..=told + BUNDLE as u64).contains(&committed), "{id}: {told}, {committed}");
    }
    fixture.root.assert_clean_leaves_nothing();
    stalls.sort();
    println!(
        "{lock:?} {notify:?}: {killed} killed in {rounds} groups, {total} messages, {} windows compared; \
         the next one published after {:.1?} in the median, {:.1?} at most, from its start",
        order.compared(),
        stalls[stalls.len() / 2],
        stalls[stalls.len() - 1]
    );
    assert!(stalls.iter().all(|stall| *stall < LONGEST_STALL), "{stalls:?}");
}

fn counts(fixture: &Fixture, workers: &[Worker]) -> Vec<u64> {
    workers.iter().map(|worker| fixture.counters.count(worker.id)).collect()
}

/// A process group of its own, led by the first.
fn group(fixture: &mut Fixture, role: &str, random: &mut Random) -> Vec<Worker> {
    let mut members: Vec<Worker> = Vec::new();
    for _ in 0..SIZE {
        let leader = members.first().map_or(0, |first| first.running.id());
        let leader = i32::try_from(leader).expect("a process id");
        let seed = format!("seed={}", random.number());
        let wait = ["wait=backoff", "wait=block", "wait=yield"][random.index(3)];
        let how = ["how=receive", "how=poll", "how=borrow", "how=run"][random.index(4)];
        let options: &[&str] = match role {
            "publish" => &["phase=ignored", "longest=4000", &seed],
            _ => &[how, wait],
        };
        members.push(fixture.start_prepared(role, options, |command| {
            command.process_group(leader);
        }));
    }
    members
}

/// Kills groups, one right after the other, and reaps them. Publishers go to `dead`, with what they were
/// told to be published.
fn kill(
    fixture: &Fixture,
    groups: Vec<Vec<Worker>>,
    stops: bool,
    random: &mut Random,
    order: &mut Agreement,
    dead: &mut Vec<(u32, u64)>,
) {
    let leaders: Vec<Pid> = groups
        .iter()
        .map(|group| i32::try_from(group[0].running.id()).expect("a process id"))
        .map(|pid| Pid::from_raw(pid).expect("a process"))
        .collect();
    let signal = |signal: Signal| {
        for leader in &leaders {
            kill_process_group(*leader, signal).expect("a signal to a group of ours");
        }
    };
    if stops {
        // A process may be stopped while it holds the lock: no process publishes until it continues or is dead.
        signal(Signal::STOP);
        std::thread::sleep(Duration::from_micros(random.between(100, 20_000)));
        if random.index(2) == 0 {
            signal(Signal::CONT);
            std::thread::sleep(Duration::from_micros(random.between(0, 2000)));
        }
    }
    signal(Signal::KILL);
    for (number, group) in groups.into_iter().enumerate() {
        for worker in group {
            let id = worker.id;
            worker.kill(order);
            if number == 0 {
                dead.push((id, fixture.counters.count(id)));
            }
        }
    }
}
