//! The policies for slow readers: whether a writer may overwrite, and if not, how long it may wait.
//!
//! These are pure decisions about times that the caller passes in (CLOCK_MONOTONIC, ns). The caller
//! does the waiting, without holding the lock.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::layout::Budget;
use crate::hook::{self, CrashPoint};
use crate::settings::Policy;
use crate::sync::{AtomicU64, Ordering};
use std::time::Duration;

/// A waiter checks again after this time at the latest, woken or not.
pub(crate) const SLICE_NS: u64 = 1_000_000;

/// The gating position found by the last scan of the reader slots, private to one publishing
/// participant. Positions only grow, so an old minimum stays valid until a reader joins, or comes
/// back after it was lapped.
#[derive(Debug)]
pub(crate) struct CachedGatingPosition {
    minimum: AtomicU64,
    joins: AtomicU64,
}

impl Default for CachedGatingPosition {
    fn default() -> Self {
        // The joins counter never starts at this value, so the first check always leads to a scan.
        Self { minimum: AtomicU64::new(0), joins: AtomicU64::new(u64::MAX) }
    }
}

impl CachedGatingPosition {
    /// Returns whether `reserved` may become `wanted` without a new scan.
    pub(crate) fn covers(&self, wanted: u64, capacity: u64, joins: u64) -> bool {
        self.joins.load(Ordering::Relaxed) == joins
            && wanted <= self.minimum.load(Ordering::Relaxed).saturating_add(capacity)
    }

    /// Stores the result of a scan. `joins` was loaded before it.
    pub(crate) fn learn(&self, minimum: u64, joins: u64) {
        self.minimum.store(minimum, Ordering::Relaxed);
        self.joins.store(joins, Ordering::Relaxed);
    }
}

/// What a writer without space does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Wait for at most this many ns, then check again.
    Wait(u64),
    /// Publish. Readers that have not read the overwritten messages lose them.
    Overwrite,
    /// Return to the caller without publishing.
    GiveUp,
}

/// The time that one publish may wait for slow readers.
#[derive(Clone, Debug)]
pub(crate) struct WaitBudget {
    policy: Policy,
    /// The caller's own limit. `Some(0)` never waits.
    give_up_after_ns: Option<u64>,
    started_ns: Option<u64>,
}

impl WaitBudget {
    pub(crate) fn new(policy: Policy, give_up_after: Option<Duration>) -> Self {
        Self { policy, give_up_after_ns: give_up_after.map(as_ns), started_ns: None }
    }

    /// Decides what to do at `now_ns`. The caller holds the writer lock, which guards `budget`.
    pub(crate) fn judge(&mut self, now_ns: u64, budget: &Budget) -> Verdict {
        let waited = now_ns.saturating_sub(*self.started_ns.get_or_insert(now_ns));
        let allowed = match self.policy {
            Policy::Overwrite => 0,
            Policy::Wait { limit: None } => SLICE_NS,
            Policy::Wait { limit: Some(limit) } => as_ns(limit).saturating_sub(waited),
            Policy::Bounded { budget: most, per } => {
                open_interval(budget, now_ns, as_ns(per));
                as_ns(most).saturating_sub(budget.spent_ns.load(Ordering::Relaxed))
            }
        };
        if allowed == 0 {
            return Verdict::Overwrite;
        }
        let left = self.give_up_after_ns.map_or(u64::MAX, |most| most.saturating_sub(waited));
        if left == 0 {
            return Verdict::GiveUp;
        }
        let slice = allowed.min(left).min(SLICE_NS);
        if matches!(self.policy, Policy::Bounded { .. }) {
            charge(budget, now_ns, slice);
        }
        Verdict::Wait(slice)
    }
}

/// Charges the time that a waiter slept beyond its slice, which can be long on a busy machine.
/// Called under the writer lock, like [`WaitBudget::judge`]. If several waiters oversleep at the
/// same time, each is charged, because the budget is an upper limit of how much all are slowed
/// down.
pub(crate) fn charge_overslept(policy: Policy, budget: &Budget, slice_ns: u64, slept_ns: u64) {
    if matches!(policy, Policy::Bounded { .. }) {
        let spent = budget.spent_ns.load(Ordering::Relaxed);
        let over = slept_ns.saturating_sub(slice_ns);
        budget.spent_ns.store(spent.saturating_add(over), Ordering::Relaxed);
    }
}

/// Opens a new interval if the last one is over, or if it is in the future because of another clock
/// or a hostile process.
fn open_interval(budget: &Budget, now_ns: u64, per_ns: u64) {
    let start = budget.interval_start_ns.load(Ordering::Relaxed);
    if now_ns.checked_sub(start).is_none_or(|passed| passed >= per_ns) {
        budget.interval_start_ns.store(now_ns, Ordering::Relaxed);
        hook::point(CrashPoint::MidBudget);
        budget.spent_ns.store(0, Ordering::Relaxed);
    }
}

/// Charges a slice that begins now, except for the time that another waiter has already been
/// charged for.
fn charge(budget: &Budget, now_ns: u64, slice_ns: u64) {
    let until = now_ns.saturating_add(slice_ns);
    let charged = budget.charged_until_ns.load(Ordering::Relaxed);
    // No waiter is charged for more than one slice ahead.
    let charged = if charged > now_ns.saturating_add(SLICE_NS) { now_ns } else { charged };
    let fresh = until.saturating_sub(charged.max(now_ns));
    let spent = budget.spent_ns.load(Ordering::Relaxed);
    budget.spent_ns.store(spent.saturating_add(fresh), Ordering::Relaxed);
    budget.charged_until_ns.store(until.max(charged), Ordering::Relaxed);
}

/// Saturates at 584 years.
pub(crate) fn as_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn wait_waits_to_its_limit_and_no_longer() {
        let budget = Budget::default();
        let mut wait_budget = WaitBudget::new(Policy::Wait { limit: Some(ms(100)) }, None);
        assert_eq!(wait_budget.judge(5 * MS, &budget), Verdict::Wait(MS));
        assert_eq!(wait_budget.judge(104 * MS + MS / 2, &budget), Verdict::Wait(MS / 2));
        assert_eq!(wait_budget.judge(105 * MS, &budget), Verdict::Overwrite);
    }

    #[test]
    fn wait_without_limit_never_overwrites() {
        let mut wait_budget = WaitBudget::new(Policy::Wait { limit: None }, None);
        let budget = Budget::default();
        assert_eq!(wait_budget.judge(0, &budget), Verdict::Wait(MS));
        assert_eq!(wait_budget.judge(u64::MAX, &budget), Verdict::Wait(MS));
    }

    #[test]
    fn the_callers_limit_may_be_shorter() {
        let budget = Budget::default();
        let policy = Policy::Wait { limit: Some(ms(100)) };
        assert_eq!(WaitBudget::new(policy, Some(ms(0))).judge(0, &budget), Verdict::GiveUp);
        let mut short = WaitBudget::new(policy, Some(ms(2)));
        assert_eq!(short.judge(0, &budget), Verdict::Wait(MS));
        assert_eq!(short.judge(2 * MS, &budget), Verdict::GiveUp);
        let mut overwriter = WaitBudget::new(Policy::Overwrite, Some(ms(0)));
        assert_eq!(overwriter.judge(0, &budget), Verdict::Overwrite, "it never gives up");
    }

    #[test]
    fn bounded_spends_its_budget_once_an_interval() {
        let budget = Budget::default();
        let policy = Policy::Bounded { budget: ms(3), per: ms(1000) };
        let mut now = 2000 * MS;
        let mut waited = 0;
        for _ in 0..5000 {
            match WaitBudget::new(policy, None).judge(now, &budget) {
                Verdict::Wait(slice) => {
                    waited += slice;
                    now += slice;
                }
                Verdict::Overwrite => now += MS,
                Verdict::GiveUp => unreachable!("the caller has no limit"),
            }
        }
        // 5,000 steps of 1 ms: five intervals.
        assert_eq!(waited, 5 * 3 * MS);
    }

    #[test]
    fn oversleeping_is_charged() {
        let budget = Budget::default();
        let policy = Policy::Bounded { budget: ms(3), per: ms(1000) };
        assert_eq!(WaitBudget::new(policy, None).judge(2000 * MS, &budget), Verdict::Wait(MS));
        charge_overslept(policy, &budget, MS, 4 * MS);
        assert_eq!(WaitBudget::new(policy, None).judge(2004 * MS, &budget), Verdict::Overwrite);
    }

    #[test]
    fn concurrent_waiters_are_charged_once() {
        let budget = Budget::default();
        let policy = Policy::Bounded { budget: ms(3), per: ms(1000) };
        let (mut one, mut two) = (WaitBudget::new(policy, None), WaitBudget::new(policy, None));
        for step in 0..3 {
            let now = 2000 * MS + step * MS;
            assert_eq!(one.judge(now, &budget), Verdict::Wait(MS));
            if step < 2 {
                assert_eq!(two.judge(now, &budget), Verdict::Wait(MS));
            }
        }
        assert_eq!(budget.spent_ns.load(Ordering::Relaxed), 3 * MS);
        assert_eq!(one.judge(2003 * MS, &budget), Verdict::Overwrite);
    }

    #[test]
    fn an_interval_in_the_future_is_replaced() {
        let budget = Budget::default();
        budget.interval_start_ns.store(u64::MAX, Ordering::Relaxed);
        budget.spent_ns.store(u64::MAX, Ordering::Relaxed);
        budget.charged_until_ns.store(u64::MAX, Ordering::Relaxed);
        let policy = Policy::Bounded { budget: ms(3), per: ms(1000) };
        assert_eq!(WaitBudget::new(policy, None).judge(7 * MS, &budget), Verdict::Wait(MS));
        assert_eq!(budget.spent_ns.load(Ordering::Relaxed), MS);
    }
}
