//! `kill -9` of publishers, subscribers and inlets at random moments, under full load: the others
//! continue in one order, and nothing is torn, missing, doubled or left over.
//!
//! `TORONI_KILLS` says how many are killed for each kind of lock; `cargo xtask kill` takes 1,000.

use std::time::{Duration, Instant};
use system_tests::worker::{BUNDLE, BUS, Fixture, STREAMS, Seen, Worker, worker_of_stream};
use system_tests::{Random, Watchdog, wait_until};
use toroni::{LockKind, Policy};
use toroni_testkit::order::Agreement;

/// What a loaded machine keeps with unoptimised processes; the real figures are printed.
const LONGEST_STALL: Duration = Duration::from_secs(30);

#[test]
fn the_others_go_on_with_the_lock_kind_lease() {
    kill_many(LockKind::Lease);
}

#[test]
fn the_others_go_on_with_the_lock_kind_robust() {
    kill_many(LockKind::Robust);
}

/// Three exclusive publishers: one publishes, the others wait until they can. The one that publishes is killed, again and
/// again. The next one continues, and nothing is missing, doubled or out of order.
#[test]
fn the_next_exclusive_publisher_continues() {
    let kills = kills();
    let _watchdog = Watchdog::start("kill", Duration::from_secs(120 + kills));
    let mut random = Random::from_environment();
    let mut fixture = Fixture::new(|config| {
        let config = config.policy(Policy::Wait { limit: None }).capacity(256 << 10);
        config.max_publishers(8).max_subscribers(8)
    });
    let mut order = Agreement::default();
    let subscribers = [
        subscriber(&mut fixture, &mut random, "receive"),
        subscriber(&mut fixture, &mut random, "poll"),
    ];
    let start = |fixture: &mut Fixture, random: &mut Random| {
        let [seed, longest] = publisher_options(random);
        fixture.start("publish", &[seed, longest, "exclusive=true"])
    };
    let mut publishers: Vec<Worker> = (0..3).map(|_| start(&mut fixture, &mut random)).collect();
    let mut killed = Vec::new();
    for _ in 0..kills / 2 {
        let mut at_work = None;
        wait_until("one of them publishes", || {
            at_work = publishers.iter().position(|one| fixture.counters.count(one.id) > 0);
            at_work.is_some()
        });
        let number = at_work.expect("one");
        let others = (0..3).filter(|other| *other != number);
        for other in others {
            assert_eq!(fixture.counters.count(publishers[other].id), 0, "only one publishes");
        }
        std::thread::sleep(Duration::from_micros(random.between(0, 3000)));
        let new = start(&mut fixture, &mut random);
        let old = std::mem::replace(&mut publishers[number], new);
        let id = old.id;
        old.kill(&mut order);
        killed.push((id, fixture.counters.count(id)));
    }
    let total = fixture.stop_publishers(publishers);
    let seen = fixture.finish_subscribers(total, subscribers, &mut order);
    for seen in &seen {
        assert_eq!((seen.received, seen.lost), (total, 0));
    }
    assert_eq!(seen[0].of_worker, seen[1].of_worker);
    for (id, confirmed) in killed {
        committed(&seen[0], id, confirmed);
    }
    assert!(order.compared() > 0, "no part of the order was seen by two");
    let _ = fixture.root.succeed(&["clean"]);
    fixture.root.assert_clean_leaves_nothing();
}

fn kill_many(lock: LockKind) {
    let kills = kills();
    let _watchdog = Watchdog::start("kill", Duration::from_secs(120 + kills));
    let mut random = Random::from_environment();
    // No living subscriber loses anything: each missing message is a mistake. There are only 16 slots of each kind, so
    // a slot that does not come back would soon be missed.
    let mut fixture = Fixture::new(|config| {
        let config = config.lock(lock).policy(Policy::Wait { limit: None }).capacity(256 << 10);
        config.max_publishers(16).max_subscribers(16)
    });
    let mut order = Agreement::default();
    let subscribers = [
        subscriber(&mut fixture, &mut random, "receive"),
        subscriber(&mut fixture, &mut random, "poll"),
    ];
    let publishers = [publisher(&mut fixture, &mut random), publisher(&mut fixture, &mut random)];
    let survivors: Vec<u32> =
        subscribers.iter().chain(&publishers).map(|survivor| survivor.id).collect();

    // The same load without kills: what the machine can do.
    let mut victims: Vec<Worker> =
        (0..6).map(|number| victim(&mut fixture, &mut random, number)).collect();
    std::thread::sleep(Duration::from_secs(1));
    let control = take_stalls(&fixture, &survivors);

    let began = Instant::now();
    let messages_before = fixture.messages();
    let mut killed = Vec::new();
    // Of each source, how many messages its inlets were told to have arrived.
    let mut brought = [0; 2];
    for _ in 0..kills {
        std::thread::sleep(Duration::from_micros(random.between(0, 3000)));
        let index = random.index(victims.len());
        // Some die as they open the bus, most at work.
        if random.index(4) > 0 {
            let victim = &mut victims[index];
            wait_until("a victim is at work", || {
                let ended = victim.running.ended();
                assert!(ended.is_none(), "a victim failed{}", victim.running.errors());
                fixture.counters.count(victim.id) > 0
            });
        }
        let new = victim(&mut fixture, &mut random, index);
        let old = std::mem::replace(&mut victims[index], new);
        let id = old.id;
        old.kill(&mut order);
        note(index, id, fixture.counters.count(id), &mut killed, &mut brought);
    }
    let (time, stalls) = (began.elapsed(), take_stalls(&fixture, &survivors));
    let rate = (fixture.messages() - messages_before) as f64 / time.as_secs_f64();
    for (index, victim) in victims.into_iter().enumerate() {
        let id = victim.id;
        victim.kill(&mut order);
        note(index, id, fixture.counters.count(id), &mut killed, &mut brought);
    }
    // The last inlet of each source brings more than all before it can have brought.
    let brought = brought.map(|told| (told + BUNDLE as u64 + 50).next_multiple_of(STREAMS));
    for (index, count) in INLETS.zip(brought) {
        let [source, seed, longest, overlap] = inlet_options(&mut random, index);
        let count = format!("count={count}");
        let last = fixture.start("inlet", &[source, seed, longest, overlap, &count]);
        let said = last.running.succeed();
        let duplicates = said.trim().rsplit(' ').next().and_then(|word| word.parse::<u64>().ok());
        assert!(duplicates.expect("a number") > 0, "{said}");
    }

    // What the dead left goes, and the living stay.
    let _ = fixture.root.succeed(&["clean"]);
    let info = fixture.root.info(BUS);
    info.assert_no_dead(false);
    assert_eq!((info.publishers().len(), info.subscribers().len()), (2, 2), "{info:?}");

    let total = fixture.stop_publishers(publishers);
    let seen = fixture.finish_subscribers(total, subscribers, &mut order);
    for seen in &seen {
        assert_eq!((seen.received, seen.lost), (total, 0));
    }
    assert_eq!(seen[0].of_worker, seen[1].of_worker);
    let mut died_after_commit = 0;
    for &(id, confirmed) in &killed {
        died_after_commit += u64::from(committed(&seen[0], id, confirmed) > confirmed);
    }
    for (index, count) in INLETS.zip(brought) {
        for stream in 0..STREAMS {
            let worker = worker_of_stream(source_of(index), stream);
            assert_eq!(seen[0].of_worker.get(&worker), Some(&(count / STREAMS)), "{worker}");
        }
    }
    let compared = order.compared();
    assert!(compared > 0, "no part of the order was seen by two");

    let info = fixture.root.info(BUS);
    info.assert_no_dead(true);
    assert_eq!((info.publishers().len(), info.subscribers().len()), (0, 0), "{info:?}");
    fixture.root.assert_clean_leaves_nothing();

    println!(
        "{lock:?}: {kills} kills in {:.1} s at {rate:.0} messages/s, {total} messages; {} publishers \
         killed, {died_after_commit} of them between commit and return; {compared} windows compared",
        time.as_secs_f64(),
        killed.len(),
    );
    println!(
        "  a surviving subscriber saw no message for at most {:.1?} (without kills {:.1?}), a call of a \
         surviving publisher took at most {:.1?} (without kills {:.1?})",
        stalls.gap, control.gap, stalls.call, control.call
    );
    let longest = stalls.gap.max(stalls.call);
    assert!(longest < LONGEST_STALL, "a survivor stood still for {longest:?}");
}

/// How many processes are killed.
fn kills() -> u64 {
    std::env::var("TORONI_KILLS").map_or(100, |kills| kills.parse().expect("a number"))
}

/// Returns how many messages of a dead publisher arrived: all that the bus had confirmed to it, and at most those of the
/// call in which it died.
fn committed(seen: &Seen, id: u32, confirmed: u64) -> u64 {
    let committed = seen.of_worker.get(&id).copied().unwrap_or(0);
    assert!(
        (confirmed..=confirmed + BUNDLE as u64).contains(&committed),
        "worker {id} had {confirmed} messages confirmed, and {committed} arrived"
    );
    committed
}

/// Which victims are inlets.
const INLETS: std::ops::Range<usize> = 4..6;

fn source_of(index: usize) -> u32 {
    u32::try_from(index).expect("few victims")
}

/// Notes what a victim was told before its death.
fn note(index: usize, id: u32, told: u64, killed: &mut Vec<(u32, u64)>, brought: &mut [u64]) {
    if INLETS.contains(&index) {
        let brought = &mut brought[index - INLETS.start];
        *brought = told.max(*brought);
    } else if index.is_multiple_of(2) {
        killed.push((id, told));
    }
}

/// Two bring what comes from elsewhere, each from a source of its own. Every other one of the rest publishes.
fn victim(fixture: &mut Fixture, random: &mut Random, number: usize) -> Worker {
    if INLETS.contains(&number) {
        return fixture.start("inlet", &inlet_options(random, number));
    }
    if number.is_multiple_of(2) {
        return fixture.start("publish", &publisher_options(random));
    }
    let how = ["receive", "poll", "try", "borrow", "run"][random.index(5)];
    let (how, wait) = (format!("how={how}"), format!("wait={}", wait(random)));
    fixture.start("subscribe", &[&how, &wait])
}

fn publisher(fixture: &mut Fixture, random: &mut Random) -> Worker {
    fixture.start_ready("publish", &publisher_options(random))
}

fn publisher_options(random: &mut Random) -> [&'static str; 2] {
    let seed: &'static str = format!("seed={}", random.number()).leak();
    [seed, "longest=8000"]
}

/// It begins with messages that have arrived before.
fn inlet_options(random: &mut Random, index: usize) -> [&'static str; 4] {
    let [seed, longest] = publisher_options(random);
    [format!("source={}", source_of(index)).leak(), seed, longest, "overlap=100"]
}

fn subscriber(fixture: &mut Fixture, random: &mut Random, how: &str) -> Worker {
    let (how, wait) = (format!("how={how}"), format!("wait={}", wait(random)));
    fixture.start_ready("subscribe", &[&how, &wait])
}

fn wait(random: &mut Random) -> &'static str {
    ["backoff", "block", "yield"][random.index(3)]
}

/// The longest time that a subscriber saw no message, and that a publisher was in one call.
#[derive(Clone, Copy)]
struct Stalls {
    gap: Duration,
    call: Duration,
}

/// Of two subscribers, then two publishers.
fn take_stalls(fixture: &Fixture, workers: &[u32]) -> Stalls {
    let stalls: Vec<Duration> =
        workers.iter().map(|id| fixture.counters.longest_stall(*id)).collect();
    workers.iter().for_each(|id| fixture.counters.forget_stall(*id));
    Stalls { gap: stalls[0].max(stalls[1]), call: stalls[2].max(stalls[3]) }
}
