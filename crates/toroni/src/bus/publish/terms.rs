//! On which terms one call publishes: how long it may wait, and whether it keeps the lock.

use crate::error::PublishError;
use crate::ring::wait_budget::WaitBudget;
use crate::settings::{InvalidSetting, Policy};
use crate::shm::lock::LockAttempt;
use std::time::{Duration, Instant};

/// How long one call may wait, for the lock and for slow subscribers, and whether it keeps the lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) policy: Policy,
    /// `Try` waits neither for the lock nor for free space; a deadline holds for both together.
    pub(super) attempt: LockAttempt,
    /// The caller is an exclusive publisher: it has the lock already, and keeps it.
    pub(super) keeps_lock: bool,
}

impl Terms {
    /// Returns the terms of a call that takes the lock, and gives it back.
    #[inline(always)]
    pub(super) fn shared(policy: Policy, attempt: LockAttempt) -> Self {
        Self { policy, attempt, keeps_lock: false }
    }

    pub(super) fn wait_budget(&self) -> WaitBudget {
        let give_up_after = match self.attempt {
            LockAttempt::Try => Some(Duration::ZERO),
            LockAttempt::Until(None) => None,
            LockAttempt::Until(Some(deadline)) => {
                Some(deadline.saturating_duration_since(Instant::now()))
            }
        };
        WaitBudget::new(self.policy, give_up_after)
    }

    /// Returns the error of a call whose time is over; `at_once` if it was not to wait at all.
    pub(super) fn given_up(&self, at_once: PublishError) -> PublishError {
        given_up(self.attempt, at_once)
    }
}

/// Returns the error of an attempt whose time is over; `at_once` if it was not to wait at all.
pub(super) fn given_up(attempt: LockAttempt, at_once: PublishError) -> PublishError {
    if attempt == LockAttempt::Try { at_once } else { PublishError::Timeout }
}

/// Returns `policy`, the policy of one handle, unless it could wait longer than that of the bus.
pub(super) fn at_most(bus: Policy, policy: Policy) -> Result<Policy, InvalidSetting> {
    let is_shorter = match (policy, bus) {
        (Policy::Overwrite, _) => true,
        (Policy::Wait { limit: Some(mine) }, Policy::Wait { limit }) => {
            limit.is_none_or(|limit| mine <= limit)
        }
        _ => policy == bus,
    };
    if is_shorter {
        return Ok(policy);
    }
    Err(InvalidSetting {
        setting: "policy",
        value: policy.to_string(),
        rule: format!("the bus's, {bus}, or a shorter one of its kind, or overwrite"),
    })
}
