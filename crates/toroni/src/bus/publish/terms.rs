//! How long one call may wait.

use crate::error::PublishError;
use crate::ring::wait_budget::WaitBudget;
use crate::settings::Policy;
use crate::shm::lock::LockAttempt;
use std::time::{Duration, Instant};

/// How long one call may wait, for the lock and for slow subscribers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) policy: Policy,
    /// `Try` waits neither for the lock nor for free space; a deadline holds for both together.
    pub(super) attempt: LockAttempt,
}

impl Terms {
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
        if self.attempt == LockAttempt::Try { at_once } else { PublishError::Timeout }
    }
}
