//! A process that creates or removes a bus dies halfway.

use crate::survivors::{Case, Stalls, Survivors};
use std::os::unix::process::ExitStatusExt;
use system_tests::worker::{BUS, Fixture};
use system_tests::{Program, TempRoot};
use toroni::hook::CrashPoint as P;

/// A creator dies: no process finds half of a bus, and the next creator makes it.
pub(crate) fn creator(case: &Case) {
    for in_place in [false, true] {
        let mut fixture = Fixture::new(|config| case.configure(config));
        let directory = if in_place { "directory=existing" } else { "directory=new" };
        let count = format!("count={}", case.n + 2);
        let (lock, notify) = (format!("lock={:?}", case.lock), format!("notify={:?}", case.notify));
        let options = [directory, &count, &lock, &notify];
        let finished = (case.n - 1) / times_a_bus(case.point);
        let mut victim = fixture.start_doomed("create", &options, &case.crash());
        let status = victim.running.wait();
        assert_eq!(status.signal(), Some(9), "{case:?}{}", victim.running.errors());

        // Complete ones are there; of the last one, only what can be completed.
        let root = &fixture.root;
        let unfinished = format!("made-{finished}");
        for number in 0..finished {
            exchange(root, &format!("made-{number}"));
        }
        let is_visible = root.succeed(&["ls"]).contains(&unfinished);
        let has_ring = match case.point {
            P::BeforeRename | P::MidSockets => true,
            P::MidFill => !(case.n - 1).is_multiple_of(times_a_bus(case.point)),
            _ => false,
        };
        let is_there = in_place && has_ring;
        assert_eq!(is_visible, is_there, "{case:?}, {:?}", root.entries());
        if is_visible {
            let _ = root.succeed(&["info", &unfinished]);
        } else {
            let _ = root.succeed(&["create", &unfinished, "--capacity", "64KiB"]);
        }
        exchange(root, &unfinished);
        root.assert_clean_leaves_nothing();
    }
}

/// How often a creator gets to the point for one bus.
fn times_a_bus(point: P) -> u64 {
    if point == P::MidFill { 3 } else { 1 }
}

fn exchange(root: &TempRoot, bus: &str) {
    let command =
        root.toroni(&["--bus", bus, "sub", "--create", "--count", "1", "--timeout", "60"]);
    let mut subscriber = Program::start_with_ready_fd(command);
    subscriber.wait_ready();
    let _ = root.succeed(&["--bus", bus, "pub", "a/b", "whole"]);
    assert_eq!(subscriber.succeed(), "a/b\twhole\n");
}

/// A cleaner dies. The next one continues where it was, and a bus that is in use is not affected.
pub(crate) fn cleaner(case: &Case, stalls: &mut Stalls) {
    let mut survivors = Survivors::new(case);
    survivors.start_publisher();
    let buses = case.n + 1;
    for number in 0..buses {
        let name = format!("unused-{number:02}");
        drop(case.configure(survivors.fixture.root.config()).create(&name).expect("a new bus"));
    }
    let mut command = survivors.fixture.root.toroni(&["clean"]);
    command.env("TORONI_CRASH", case.crash());
    let mut victim = Program::start(command);
    let status = victim.wait();
    assert_eq!(status.signal(), Some(9), "{case:?}{}", victim.errors());

    let left = survivors.fixture.root.entries();
    let count = |what: &str| left.iter().filter(|name| name.starts_with(what)).count() as u64;
    let expected = match case.point {
        P::CleanerHasBus => (buses - (case.n - 1), 0, 1),
        _ => (buses - case.n, 1, 1),
    };
    assert_eq!((count("unused-"), count(".unused-"), count(BUS)), expected, "{left:?}");
    let _ = survivors.fixture.root.succeed(&["clean"]);
    assert_eq!(survivors.fixture.root.entries(), [BUS]);
    survivors.assert_progress(stalls);
    drop(survivors.finish());
}

/// A cleaner dies that frees slots of the dead: the next one frees the rest, and those who live keep
/// theirs.
pub(crate) fn cleaner_of_slots(case: &Case, stalls: &mut Stalls) {
    let mut survivors = Survivors::new(case);
    survivors.start_publisher();
    // All come before the first one dies: else its slot would be the next one's.
    let dead: Vec<_> =
        (0..case.n).map(|_| survivors.fixture.start_ready("subscribe", &[])).collect();
    for mut subscriber in dead {
        subscriber.running.kill();
    }
    let slots = || {
        let info = survivors.fixture.root.info(BUS);
        let is_dead = |slot: &&serde_json::Value| slot["alive"] == false;
        info.subscribers().iter().filter(is_dead).count() as u64
    };
    assert_eq!(slots(), case.n);
    let mut command = survivors.fixture.root.toroni(&["clean"]);
    command.env("TORONI_CRASH", case.crash());
    let mut victim = Program::start(command);
    let status = victim.wait();
    assert_eq!(status.signal(), Some(9), "{case:?}{}", victim.errors());
    assert_eq!(slots(), 1, "all but the last one are free");
    survivors.assert_progress(stalls);
    let _ = survivors.fixture.root.succeed(&["clean"]);
    survivors.fixture.root.info(BUS).assert_no_dead(false);
    drop(survivors.finish());
}
