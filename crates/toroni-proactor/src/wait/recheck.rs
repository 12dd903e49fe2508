//! What no notice told: a signal is lost when the user's queue of signals is full, a call when there is no
//! memory for its thread. So a leader with something to wait for looks at all operations ten times in a second.

use super::Started;
use crate::hook::recheck_interval;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How often a leader checks all operations although nothing was reported.
const RECHECK_EVERY: Duration = Duration::from_millis(100);

/// See the module. All methods but [`Recheck::on_started`] are the leader's.
pub(super) struct Recheck {
    /// The leader waits, and will not look by itself.
    waits_for_ever: AtomicBool,
    leader: Mutex<Leader>,
}

/// What belongs to the leader.
struct Leader {
    /// When it looked at everything last.
    last_recheck: Instant,
    has_started: bool,
}

impl Recheck {
    /// The first one is due after a while.
    pub(super) fn new() -> Self {
        let leader = Leader { last_recheck: Instant::now(), has_started: false };
        Self { waits_for_ever: AtomicBool::new(false), leader: Mutex::new(leader) }
    }

    /// The leader is about to wait for these.
    pub(super) fn prepare(&self, mut started: Started<'_>) {
        let mut leader = self.leader();
        leader.has_started = started.next().is_some();
        self.waits_for_ever.store(!leader.has_started, Ordering::Relaxed);
    }

    /// How long to wait: until the end of the time, or until the next look, if there is anything to look at.
    pub(super) fn limit(&self, timeout: Option<Duration>) -> Option<Duration> {
        let leader = self.leader();
        let recheck = leader
            .has_started
            .then(|| recheck_interval(RECHECK_EVERY).saturating_sub(leader.last_recheck.elapsed()));
        timeout.into_iter().chain(recheck).min()
    }

    /// After a wait: whether to look at everything now. It is, too, where something else asks for it.
    pub(super) fn is_due(&self, is_asked_for: bool) -> bool {
        let mut leader = self.leader();
        let is_due =
            is_asked_for || leader.last_recheck.elapsed() >= recheck_interval(RECHECK_EVERY);
        if is_due {
            leader.last_recheck = Instant::now();
        }
        is_due
    }

    /// An operation was started while the leader waits. Whether it has to wait anew, for no longer than it
    /// should: nobody would look for a notice that is lost.
    pub(super) fn on_started(&self) -> bool {
        self.waits_for_ever.swap(false, Ordering::Relaxed)
    }

    fn leader(&self) -> MutexGuard<'_, Leader> {
        self.leader.try_lock().expect("there is one leader")
    }
}
