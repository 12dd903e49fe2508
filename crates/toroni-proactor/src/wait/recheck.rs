//! The safety net for lost notifications: a signal is lost if the user's signal queue is full, a call if there
//! is no memory for its thread. So a leader that waits for operations checks all of them ten times a second.

use super::Started;
use crate::hook::recheck_interval;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

const RECHECK_EVERY: Duration = Duration::from_millis(100);

/// All methods but [`Recheck::on_started`] are called by the leader.
pub(super) struct Recheck {
    /// The leader waits, and will not check by itself.
    waits_for_ever: AtomicBool,
    leader: Mutex<Leader>,
}

/// The leader's data.
struct Leader {
    last_recheck: Instant,
    has_started: bool,
}

impl Recheck {
    pub(super) fn new() -> Self {
        let leader = Leader { last_recheck: Instant::now(), has_started: false };
        Self { waits_for_ever: AtomicBool::new(false), leader: Mutex::new(leader) }
    }

    /// Called before the leader waits for these operations.
    pub(super) fn prepare(&self, mut started: Started<'_>) {
        let mut leader = self.leader();
        leader.has_started = started.next().is_some();
        self.waits_for_ever.store(!leader.has_started, Ordering::Relaxed);
    }

    /// Returns how long to wait: until the timeout, or until the next recheck if there is an operation to
    /// check.
    pub(super) fn limit(&self, timeout: Option<Duration>) -> Option<Duration> {
        let leader = self.leader();
        let recheck = leader
            .has_started
            .then(|| recheck_interval(RECHECK_EVERY).saturating_sub(leader.last_recheck.elapsed()));
        timeout.into_iter().chain(recheck).min()
    }

    /// Returns, after a wait, whether to check all operations now: because it is time, or because the caller
    /// asks for it.
    pub(super) fn is_due(&self, is_asked_for: bool) -> bool {
        let mut leader = self.leader();
        let is_due =
            is_asked_for || leader.last_recheck.elapsed() >= recheck_interval(RECHECK_EVERY);
        if is_due {
            leader.last_recheck = Instant::now();
        }
        is_due
    }

    /// Called when an operation was started while the leader waits. Returns whether the leader has to wait
    /// again, with a limit: otherwise nothing would find a lost notification.
    pub(super) fn on_started(&self) -> bool {
        self.waits_for_ever.swap(false, Ordering::Relaxed)
    }

    fn leader(&self) -> MutexGuard<'_, Leader> {
        self.leader.try_lock().expect("there is one leader")
    }
}
