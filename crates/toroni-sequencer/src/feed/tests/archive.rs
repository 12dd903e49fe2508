//! An archive beside a log, against a list of all events.

use std::time::Duration;

use super::member::{Member, runtime};
use crate::machine::Machine;
use crate::rpc::Fetch;

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
    for from in 0..member.machine.next() {
        assert_eq!(member.check(&runtime, from, 100), 0);
    }
    // That of the start is right. The last of the others is not read if only the last event comes after it: that one is in the
    // answer to the question before.
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
            archive.fetch(Fetch { from: next, max_bytes: 1000, wait }).await.expect("readable")
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
