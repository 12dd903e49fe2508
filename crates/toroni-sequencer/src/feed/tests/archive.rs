//! An archive beside a log, against a list of all events.

use std::time::Duration;

use super::member::{Member, runtime};
use crate::machine::Machine;
use crate::rpc::{Fetch, Request, Room};

#[test]
fn any_event_that_the_log_has_is_found_by_its_number() {
    let runtime = runtime();
    let mut member = Member::new();
    let mut snapshot = (Machine::new(), None);
    for round in 0..300_u64 {
        member.append();
        match round % 50 {
            20 => snapshot = (member.machine.clone(), member.last),
            30 => {
                let upto = snapshot.1.expect("taken before");
                member.log.purge(upto).expect("purged");
            }
            40 => member.restart(snapshot.clone()),
            _ => {}
        }
        let from = member.random.below(member.machine.next() + 2);
        let max_bytes = u32::try_from(member.random.below(4000)).expect("short");
        let first = member.check(&runtime, from, max_bytes);
        let (purged, _) = member.log.ends();
        assert!(purged.is_some() || first == 0, "nothing was purged, and {first} is the first");
        // Sequentially, too, as a host reads that was away.
        let mut next = first;
        while next < member.machine.next() {
            let Some(events) = member.fetch(&runtime, next, 2000).events else {
                panic!("{next} is missing, and {first} the first")
            };
            member.check(&runtime, next, 2000);
            let found = events.commands().count() as u64;
            assert!(found > 0, "nothing from {next} on");
            next += found;
        }
    }
    assert!(member.machine.next() > 300);
    assert!(member.archive.first() > 0);
}

#[test]
fn a_state_that_is_damaged_or_of_another_log_is_not_believed() {
    let runtime = runtime();
    let mut member = Member::new();
    (0..200).for_each(|_| member.append());
    let states = member.log.directory().join("states");
    let files = || {
        let files = std::fs::read_dir(&states).expect("a directory");
        let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
        files.sort();
        files
    };
    let found = files();
    assert!(found.len() > 2, "{}", found.len());
    for (at, path) in found.iter().enumerate() {
        let mut bytes = std::fs::read(path).expect("readable");
        // In the log's id, in the place, in the machine; or torn.
        match at % 4 {
            0 => bytes[9] ^= 1,
            1 => bytes[24] ^= 1,
            2 => bytes[70] ^= 1,
            _ => bytes.truncate(50),
        }
        std::fs::write(path, bytes).expect("written");
    }
    std::fs::write(states.join("state.tmp"), b"torn").expect("written");
    let (machine, last) = (member.machine.clone(), member.last);
    member.restart((machine, last));
    // Backwards, so that none goes on where another one has stopped.
    for from in (0..member.machine.next()).rev() {
        assert_eq!(member.check(&runtime, from, 100), 0);
    }
    // That of the start is right. The last of the others is not read if no event comes after it.
    let left = files();
    assert!(left.len() <= 2, "damaged states are still there: {left:?}");
    assert!(found[..found.len() - 1].iter().all(|path| !left.contains(path)), "{left:?}");
}

#[test]
fn who_asks_for_the_next_event_waits_for_it() {
    let runtime = runtime();
    let mut member = Member::new();
    member.append();
    let archive = member.archive.clone();
    let next = member.machine.next();
    runtime.block_on(async {
        let wait = Duration::from_secs(4);
        let asked = tokio::spawn(async move {
            archive
                .fetch(Fetch { from: next, max_bytes: 1000, wait, series: None })
                .await
                .expect("readable")
        });
        tokio::task::yield_now().await;
        while member.machine.next() == next {
            member.append();
        }
        let events = asked.await.expect("no panic").events.expect("they follow");
        assert!(!events.is_empty());
    });
    // What is beyond the next event is nothing to wait for.
    let fetched = member.fetch(&runtime, u64::MAX, 1000);
    assert_eq!((fetched.events, fetched.now), (None, member.machine.chain()));
}

#[test]
fn a_turn_at_the_log_ends_with_the_reading_and_not_with_who_waits_for_it() {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    // The only thread that reads.
    let runtime = builder.max_blocking_threads(1).enable_all().build().expect("a runtime");
    let mut member = Member::new();
    (0..200).for_each(|_| member.append());
    let archive = &member.archive;
    let question =
        Request::Fetch(Fetch { from: 0, max_bytes: 1000, wait: Duration::ZERO, series: None });
    runtime.block_on(async {
        let (release, released) = std::sync::mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || released.recv());
        let turn = archive.turn(&question).await;
        assert!(turn.is_some(), "the first event is in memory");
        let reading = archive.answer_in(question.clone(), Room::with_turn(turn));
        // Its connection ends.
        tokio::time::timeout(Duration::from_millis(10), reading).await.expect_err("it waits");
        let other = archive.turn(&question).await;
        let third = tokio::time::timeout(Duration::from_millis(100), archive.turn(&question)).await;
        assert!(third.is_err(), "the reading that goes on has given its turn back");
        release.send(()).expect("it waits");
        let _ = busy.await.expect("no panic");
        assert!(archive.turn(&question).await.is_some());
        drop(other);
    });
}

#[test]
fn an_answer_ends_inside_a_long_entry() {
    use crate::batch::{Builder, Command, CommandId, Open, Publish};
    let runtime = runtime();
    let mut member = Member::new();
    let mut builder = Builder::new();
    let open =
        Command::Open(Open { source: 7, series: 9, session: 1, bus: [3; 16], earlier: Some(&[]) });
    builder.push(&open).expect("short");
    for number in 0..100 {
        let id = CommandId { source: 7, series: 9, number };
        let publish = Publish { id, to_descendants: false, topic: "t", payload: &[7; 1000] };
        builder.push(&Command::Publish(publish)).expect("short");
    }
    member.append_batch(builder);
    // From memory, and then from the log.
    for _ in 0..2 {
        for max_bytes in [0, 1500, 5000] {
            let mut next = 0;
            while next < 100 {
                member.check(&runtime, next, max_bytes);
                let events =
                    member.fetch(&runtime, next, max_bytes).events.expect("they are there");
                next += events.count();
            }
        }
        (0..100).for_each(|_| member.append());
    }
}
