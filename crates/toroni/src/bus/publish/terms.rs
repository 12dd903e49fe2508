//! On which terms one call publishes: how long it may wait, and whether it keeps the lock.

use crate::error::PublishError;
use crate::ring::wait_budget::WaitBudget;
use crate::settings::{InvalidSetting, Policy};
use crate::shm::lock::LockAttempt;
use std::time::{Duration, Instant};

/// How long a call that publishes may wait for other publishers and for slow subscribers.
///
/// Functions that take a limit also take a [`Duration`], which is [`Limit::Within`].
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = std::env::temp_dir().join(format!("toroni-doc-limit-{}", std::process::id()));
/// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
/// use std::time::Duration;
/// use toroni::Limit;
///
/// let publisher = bus.publisher("plant/boiler/temperature")?;
/// publisher.publish_within(b"351.2", Duration::from_millis(5))?;
/// publisher.publish_batch(&["351.3", "351.4"], Limit::Policy)?;
/// # drop((publisher, bus));
/// # std::fs::remove_dir_all(directory)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// Waits for other publishers, and for slow subscribers as the policy of the handle says.
    #[default]
    Policy,
    /// Does not wait. If it would have to wait, the call returns [`PublishError::Full`] or [`PublishError::Busy`].
    Try,
    /// Waits as with [`Limit::Policy`], but only for this long, for publishers and subscribers together. Then the call
    /// returns [`PublishError::Timeout`].
    Within(Duration),
    /// Waits for other publishers, but for no subscriber: those that are slow lose messages, as with
    /// [`Policy::Overwrite`].
    Overwrite,
}

impl From<Duration> for Limit {
    #[inline]
    fn from(limit: Duration) -> Self {
        Self::Within(limit)
    }
}

/// How long one call may wait, for the lock and for slow subscribers, and whether it keeps the lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) policy: Policy,
    /// `Try` waits neither for the lock nor for free space; a deadline holds for both together.
    pub(super) attempt: LockAttempt,
    /// The caller is an exclusive publisher: it has the lock already, and keeps it.
    pub(super) keeps_lock: bool,
    /// The caller has declared its topic: nothing is published whose value finds no room.
    pub(super) needs_room: bool,
}

impl Terms {
    /// Returns the terms of a call that takes the lock, and gives it back. `policy` is that of its handle.
    #[inline(always)]
    pub(super) fn shared(policy: Policy, limit: Limit) -> Self {
        Self::new(policy, limit, false)
    }

    /// Returns the terms of a call of an exclusive publisher. `policy` is that of the topic.
    #[inline(always)]
    pub(super) fn exclusive(policy: Policy, limit: Limit) -> Self {
        Self::new(policy, limit, true)
    }

    #[inline(always)]
    fn new(policy: Policy, limit: Limit, keeps_lock: bool) -> Self {
        let forever = LockAttempt::Until(None);
        let (policy, attempt) = match limit {
            Limit::Policy => (policy, forever),
            Limit::Try => (policy, LockAttempt::Try),
            Limit::Within(limit) => (policy, LockAttempt::Until(Instant::now().checked_add(limit))),
            Limit::Overwrite => (Policy::Overwrite, forever),
        };
        Self { policy, attempt, keeps_lock, needs_room: false }
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
