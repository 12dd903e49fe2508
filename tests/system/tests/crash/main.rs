//! Kills a real process at every named step, for each kind of lock, notifier and policy, the first time
//! it gets there, the second time, and some later time, and checks what the others see.
//!
//! Needs the feature `crash-points`: `cargo xtask crash`. With `TORONI_POINT=<name>` it walks only one
//! point. Each point meets each lock with each notifier, and each policy with some of them; with
//! `TORONI_FULL` (`cargo xtask crash --full`) with all of them.

#![cfg(feature = "crash-points")]

mod chain;
mod disk;
mod files;
mod inlet;
mod matrix;
mod participants;
mod served;
mod space;
mod survivors;
mod takeover;

use matrix::Victim;
use std::time::{Duration, Instant};
use survivors::{Case, Stalls, Who};
use system_tests::{Random, Watchdog};
use toroni::hook::CrashPoint;
use toroni::{LockKind, NotifyKind};

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
fn served_futex() {
    walk_served(NotifyKind::Futex, 0);
}

#[test]
fn served_datagram() {
    walk_served(NotifyKind::Datagram, 1);
}

#[test]
fn served_multicast() {
    walk_served(NotifyKind::Multicast { group: None }, 2);
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

#[test]
fn inlets_futex() {
    walk_inlets(NotifyKind::Futex, 0);
}

#[test]
fn inlets_datagram() {
    walk_inlets(NotifyKind::Datagram, 1);
}

#[test]
fn inlets_multicast() {
    walk_inlets(NotifyKind::Multicast { group: None }, 2);
}

/// The point that alone is walked, if the environment names one.
fn only() -> Option<String> {
    std::env::var("TORONI_POINT").ok()
}

fn walk(lock: LockKind, notify: NotifyKind) {
    let mut random = Random::from_environment();
    let points = CrashPoint::ALL.iter();
    let cases = points.flat_map(|point| matrix::cases(*point, lock, notify, &mut random));
    die(&format!("{lock:?} {notify:?}"), cases);
}

fn walk_exclusive(notify: NotifyKind) {
    let cases = matrix::exclusive_cases(notify, &mut Random::from_environment());
    die(&format!("exclusive, {notify:?}"), cases.into_iter());
}

fn walk_inlets(notify: NotifyKind, turn: usize) {
    let cases = matrix::inlet_cases(notify, turn, &mut Random::from_environment());
    die(&format!("inlets, {notify:?}"), cases.into_iter());
}

fn walk_served(notify: NotifyKind, number: usize) {
    let cases = served::cases(notify, number, &mut Random::from_environment());
    die(&format!("served, {notify:?}"), cases.into_iter());
}

fn die(what: &str, cases: impl Iterator<Item = Case>) {
    let _watchdog = Watchdog::start("crash", Duration::from_secs(3000));
    let mut stalls = Stalls::default();
    let (only, began) = (only(), Instant::now());
    let mut deaths = 0;
    for case in cases {
        if only.as_deref().is_some_and(|only| only != case.point.name()) {
            continue;
        }
        // Shown if the case fails.
        println!("{case:?}");
        die_at(&case, &mut stalls);
        deaths += 1;
    }
    println!(
        "{what}: {deaths} deaths in {:.0} s; survivors went on after {stalls}",
        began.elapsed().as_secs_f64()
    );
    stalls.assert_short();
}

/// Who passes the point decides who dies.
fn die_at(case: &Case, stalls: &mut Stalls) {
    if let Who::Inlet { losses } = case.who {
        return inlet::inlet(case, losses, stalls);
    }
    match matrix::victim_of(case.point) {
        Victim::Publisher => participants::publisher(case, stalls),
        Victim::SpaceWaiter => space::publisher_without_space(case, stalls),
        Victim::SpaceMaker => space::reader_that_makes_space(case, stalls),
        Victim::Contended => participants::contended(case, stalls),
        Victim::JoiningPublisher => participants::joining(case, "publish", stalls),
        Victim::JoiningSubscriber => participants::joining(case, "subscribe", stalls),
        Victim::Subscriber => participants::subscriber(case, stalls),
        Victim::Takeover => takeover::second_victim(case, stalls),
        Victim::Creator => files::creator(case),
        Victim::Cleaner => files::cleaner(case, stalls),
        Victim::CleanerOfSlots => files::cleaner_of_slots(case, stalls),
        Victim::Inlet => unreachable!("its cases say so"),
        Victim::Disk => unreachable!("has a walk of its own"),
    }
}
