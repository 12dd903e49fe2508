//! Subscribers in a proactor: their process dies at every step, or others die while such a one lives and waits.
//!
//! Points, locks, notifiers, policies and engines take turns, and the first time, the second time, and a later
//! one; with `TORONI_FULL` each point meets each engine each time.

use crate::matrix::{self, Victim};
use crate::survivors::Case;
use system_tests::Random;
use toroni::hook::CrashPoint;
use toroni::{LockKind, NotifyKind};

/// The configurations of the engines. The first three can wait at the futex of the bus.
const ENGINES: [&str; 5] = [
    "[[processor]]\nprovider = 'combined'",
    "[[processor]]\nprovider = 'uring'",
    "[[processor]]\nprovider = 'uring'\ntype = 'dedicated'",
    "[[processor]]\nprovider = 'select'\nwait = 'epoll'",
    "[[processor]]\nprovider = 'select'\nwait = 'linux-rt'\ntype = 'dedicated'\ninterrupt = 'signal'",
];

/// How often the matrix lets the victim get to its point: once, twice, or more often.
const TIMES: usize = 3;

/// Whether it says more about these subscribers than about others that somebody dies there.
fn concerns(point: CrashPoint) -> bool {
    match matrix::victim_of(point) {
        // They do not receive in place.
        Victim::Subscriber => point != CrashPoint::ReaderHasRun,
        Victim::Publisher | Victim::SpaceWaiter | Victim::SpaceMaker | Victim::Contended => true,
        Victim::JoiningSubscriber | Victim::Takeover => true,
        Victim::Inlet => false,
        Victim::JoiningPublisher | Victim::Creator | Victim::Cleaner | Victim::CleanerOfSlots => {
            false
        }
        Victim::Disk => false,
    }
}

/// The deaths on buses of this notifier.
pub(crate) fn cases(notify: NotifyKind, number: usize, random: &mut Random) -> Vec<Case> {
    let is_full = std::env::var_os("TORONI_FULL").is_some();
    let mut all = Vec::new();
    for &point in CrashPoint::ALL.iter().filter(|point| concerns(**point)) {
        let turn = point as usize + number;
        let locks = [LockKind::Lease, LockKind::Robust];
        let lock = if point == CrashPoint::BeforeHandOver { locks[0] } else { locks[turn % 2] };
        let (engines, times) = match is_full {
            true => (0..ENGINES.len(), 0..TIMES),
            false => (3 * turn..3 * turn + 1, turn % TIMES..turn % TIMES + 1),
        };
        for (engine, time) in engines.flat_map(|one| times.clone().map(move |time| (one, time))) {
            let cases = matrix::cases(point, lock, notify, random);
            let policies = cases.len() / TIMES;
            let chosen = cases[time * policies + (turn + engine) % policies];
            all.push(Case { engine: Some(ENGINES[engine % ENGINES.len()]), ..chosen });
        }
    }
    all
}

#[test]
fn each_engine_meets_each_way_to_die() {
    let mut random = Random::new(1);
    let notifiers =
        [NotifyKind::Futex, NotifyKind::Datagram, NotifyKind::Multicast { group: None }];
    let met: Vec<_> = notifiers
        .into_iter()
        .enumerate()
        .flat_map(|(number, notify)| cases(notify, number, &mut random))
        .map(|case| (case.engine.unwrap(), format!("{:?}", matrix::victim_of(case.point))))
        .collect();
    for group in ["Publisher", "Subscriber", "JoiningSubscriber"] {
        for engine in ENGINES {
            assert!(met.iter().any(|one| *one == (engine, group.to_owned())), "{group} {engine}");
        }
    }
}
