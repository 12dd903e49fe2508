//! Why somebody is held up: what the supervisor sees of those that the others wait for.

use super::{PUBLISHER, Soak, lock};
use crate::soak::figures::ROLES;
use crate::soak::stalls::{Cause, now_ns, queued_ns_in};
use std::collections::HashMap;
use std::time::Duration;

/// A stall is judged when all that may have caused it is over.
const JUDGED_AFTER_NS: u64 = 3_000_000_000;
/// Stalls of no known cause that are reported one by one.
const MOST_EXPLAINED: u32 = 50;
const CHECK_EVERY_NS: u64 = 20_000_000;

/// What the last look at the processors' queue has seen.
#[derive(Default)]
pub(super) struct QueueCheck {
    at_ns: u64,
    sequence: u64,
    /// Of each publisher, by process id: how long it had been ready and waited for a processor.
    queued_ns: HashMap<u32, u64>,
    /// And how long the policy had made it wait.
    waited: HashMap<u32, Duration>,
}

impl Soak<'_> {
    /// Whether the others wait for somebody who is ready and has no processor: the owner of the lock, or
    /// publishers, if nothing was published since the last look.
    pub(super) fn check_queues(&mut self) {
        let (now, before) = (now_ns(), self.last_check.at_ns);
        if now < before + CHECK_EVERY_NS {
            return;
        }
        let stats = self.stats();
        if stats.lock_owner.as_ref().is_some_and(|owner| owner.stopped) {
            self.told().disturbances.add(Cause::Stopped, before, now);
        }
        let owner = stats.lock_owner.and_then(|owner| owner.pid);
        let publishers = self.workers.iter().filter(|worker| worker.role == PUBLISHER);
        let queued = publishers.map(|worker| {
            let pid = worker.running.id();
            (pid, queued_ns_of(pid))
        });
        let queued_ns: HashMap<u32, u64> = queued.collect();
        let is_queued = |pid: &u32| {
            let (then, now_queued) = (self.last_check.queued_ns.get(pid), queued_ns.get(pid));
            let grown = then.zip(now_queued).map(|(then, now)| now.saturating_sub(*then));
            grown.is_some_and(|grown| grown >= (now - before) / 2)
        };
        let waited = stats.publishers.iter().flatten();
        let waited: HashMap<u32, Duration> = waited.map(|one| (one.pid, one.waited)).collect();
        let is_held = |pid: &u32| {
            let (then, now_waited) = (self.last_check.waited.get(pid), waited.get(pid));
            let grown = then.zip(now_waited).map(|(then, now)| now.saturating_sub(*then));
            grown.is_some_and(|grown| grown.as_nanos() >= u128::from((now - before) / 2))
        };
        let is_quiet = stats.sequence == self.last_check.sequence;
        if is_quiet {
            self.told().disturbances.add(Cause::Quiet, before, now);
        }
        if is_quiet && waited.keys().any(is_held) {
            self.told().disturbances.add(Cause::Policy, before, now);
        }
        if owner.is_some_and(|owner| is_queued(&owner))
            || is_quiet && queued_ns.keys().any(is_queued)
        {
            self.told().disturbances.add(Cause::OwnerQueued, before, now);
        }
        self.last_check = QueueCheck { at_ns: now, sequence: stats.sequence, queued_ns, waited };
    }

    pub(super) fn judge_stalls(&mut self, all: bool) {
        let now = now_ns();
        let mut told = lock(&self.told);
        let stalls = std::mem::take(&mut told.stalls);
        for (role, stall) in stalls {
            if all || stall.start_ns + stall.length_ns + JUDGED_AFTER_NS < now {
                let cause = told.disturbances.cause(role == PUBLISHER, &stall);
                if cause == Cause::Other && self.explained < MOST_EXPLAINED {
                    self.explained += 1;
                    let known = told.disturbances.explain(&stall);
                    println!("          a {} was held up for {known}", ROLES[role]);
                }
                self.figures.add_stall(role, cause, &stall);
            } else {
                told.stalls.push((role, stall));
            }
        }
    }
}

/// How long the only thread of a process has been ready and waited for a processor.
fn queued_ns_of(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    queued_ns_in(&text)
}
