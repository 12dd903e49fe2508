//! Kills a real process at every named step, for each kind of lock and notifier, the first time it
//! gets there, the second time, and some later time; and looks at what the others see.
//!
//! Needs the feature `crash-points`: `cargo xtask crash`. With `TORONI_POINT=<name>` it walks only one
//! point.

#![cfg(feature = "crash-points")]

mod files;
mod participants;
mod scene;
mod takeover;

use scene::{Case, Stalls};
use std::time::Duration;
use system_tests::{Random, Watchdog};
use toroni::crash::CrashPoint;
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

fn walk(lock: LockKind, notify: NotifyKind) {
    let _watchdog = Watchdog::start("crash", Duration::from_secs(900));
    let mut random = Random::from_environment();
    let mut stalls = Stalls::default();
    let only = std::env::var("TORONI_POINT").ok();
    let mut deaths = 0;
    for &point in CrashPoint::ALL {
        if only.as_deref().is_some_and(|only| only != point.name()) {
            continue;
        }
        for n in [1, 2, random.between(3, 20)] {
            let case = Case { point, n, lock, notify, seed: random.number() };
            // Shown if the case fails.
            println!("{case:?}");
            die_at(&case, &mut stalls);
            deaths += 1;
        }
    }
    assert!(deaths > 0, "no point of that name");
    println!("{lock:?} {notify:?}: {deaths} deaths; survivors went on after {stalls}");
    stalls.assert_short();
}

/// Who passes the point decides who dies. A point that is added to the list has to be added here.
fn die_at(case: &Case, stalls: &mut Stalls) {
    use CrashPoint as P;
    match case.point {
        P::AfterLock
        | P::AfterReserve
        | P::MidCopy
        | P::AfterEndWord
        | P::MidIndex
        | P::AfterIndex
        | P::AfterCommit
        | P::BetweenSequenceAndTail
        | P::BeforeUnlock
        | P::BeforeWake
        | P::TopicAppend
        | P::MidBurst => participants::publisher(case, stalls),
        P::WaitingForSpace => participants::publisher_without_room(case, stalls),
        P::PublisherMidClaim | P::PublisherMidLeave => {
            participants::joining(case, "publish", stalls);
        }
        P::ReaderMidClaim | P::ReaderAfterClaim | P::ReaderMidLeave => {
            participants::joining(case, "subscribe", stalls);
        }
        P::ReaderMidCopy | P::ReaderBeforeSleep | P::ReaderAwake => {
            participants::subscriber(case, stalls);
        }
        P::Takeover | P::MidRecovery => takeover::second_victim(case, stalls),
        P::MidCreation | P::BeforeRename => files::creator(case),
        P::MidClean => files::cleaner(case, stalls),
    }
}
