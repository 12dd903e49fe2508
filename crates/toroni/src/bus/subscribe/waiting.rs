//! How a subscriber waits for the next message.
//!
//! Its backoff says how: it polls, yields, or sleeps on the futex or its descriptor. To sleep, it arms the
//! eventcount, checks the ring once more, and sleeps only if there is still nothing
//! (`notify/eventcount.rs` says why no wake-up is lost). As a safety net it wakes by itself every 50 ms, and
//! every 250 ms after a second of silence.

use super::backoff::{Backoff, WaitStrategy};
use super::claim::ReaderClaim;
use super::descriptor::Descriptor;
use super::interrupter::{Interrupter, Request};
use crate::error::{FileError, ReceiveError};
use crate::hook::{self, CrashPoint};
use crate::notify::{FutexWaiter, Waiter, sleep_unless};
use crate::settings::NotifyKind;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The publisher that should wake a subscriber may have died before it did so: after this time the
/// subscriber checks by itself.
pub(in crate::bus) const SLEEP: Duration = Duration::from_millis(50);
/// After some time without any message the subscriber checks less often: even a bare sleep of 100 ms costs
/// close to 0.1 % of a core, on an idle virtual machine.
pub(in crate::bus) const LONG_SLEEP: Duration = Duration::from_millis(250);
pub(in crate::bus) const SLEEPS_UNTIL_LONG: u32 = 20;
/// Sleeps between two checks whether the bus still exists. The check is several system calls, which would
/// double the cost of a sleep, and would come with each message for a subscriber that sleeps in between.
pub(in crate::bus) const SLEEPS_UNTIL_CHECK: u32 = 8;

/// What a subscriber waits with.
pub(super) struct Waiting {
    pub(super) backoff: Backoff,
    pub(super) strategy: WaitStrategy,
    futex: FutexWaiter,
    pub(super) descriptor: Option<Descriptor>,
    /// Whether blocking calls wait on the descriptor, which then exists, and not on the futex.
    pub(super) by_descriptor: bool,
    /// `None` until an interrupter is made.
    interruption: Option<Arc<Request>>,
    #[cfg(feature = "tokio")]
    pub(super) readiness: Option<super::stream::Readiness>,
}

impl Waiting {
    pub(super) fn new(strategy: WaitStrategy, notify: NotifyKind) -> Self {
        Self {
            backoff: Backoff::default(),
            strategy,
            futex: FutexWaiter::default(),
            descriptor: None,
            by_descriptor: notify != NotifyKind::Futex,
            interruption: None,
            #[cfg(feature = "tokio")]
            readiness: None,
        }
    }

    /// Makes the descriptor, if there is none, and arms it.
    pub(super) fn enable_descriptor(
        &mut self,
        claim: &ReaderClaim,
        is_drained: impl FnOnce() -> bool,
    ) -> Result<(), FileError> {
        if self.descriptor.is_none() {
            self.descriptor = Some(claim.subscribing.open_descriptor(claim)?);
            // A program that polls first would otherwise miss messages that came before.
            self.rearm(claim, is_drained);
        }
        Ok(())
    }

    /// Arms the descriptor, if there is one, and makes it readable if there is something to receive.
    pub(super) fn rearm(&mut self, claim: &ReaderClaim, is_drained: impl FnOnce() -> bool) {
        self.arm_descriptor(claim);
        if let Some(descriptor) = &self.descriptor
            && !is_drained()
        {
            descriptor.nudge();
        }
    }

    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor.as_ref().and_then(Waiter::fd)
    }

    pub(super) fn arm_descriptor(&mut self, claim: &ReaderClaim) {
        if let Some(descriptor) = &mut self.descriptor {
            descriptor.arm(claim.arming_slot());
        }
    }

    /// Makes a handle that ends waits.
    pub(super) fn interrupter(&mut self, claim: &ReaderClaim) -> Result<Interrupter, FileError> {
        let subscribing = &claim.subscribing;
        let sender = match &self.descriptor {
            Some(descriptor) if self.by_descriptor => {
                Some(descriptor.sender().map_err(|source| {
                    subscribing.os_error("make an interrupter for a subscriber of", source)
                })?)
            }
            _ => None,
        };
        let request = self.interruption.get_or_insert_default().clone();
        Ok(Interrupter::new(request, subscribing.clone(), claim.number(), sender))
    }

    /// Returns an error if an interrupter has asked for the end of the call.
    #[inline]
    pub(super) fn check_interruption(&self) -> Result<(), ReceiveError> {
        match &self.interruption {
            Some(request) if request.take() => Err(ReceiveError::Interrupted),
            _ => Ok(()),
        }
    }

    /// Sleeps until it is woken, until `deadline`, or until it is time to check, unless there is something
    /// to receive. Returns whether it slept.
    pub(super) fn sleep(
        &mut self,
        claim: &ReaderClaim,
        deadline: Option<Instant>,
        is_drained: impl FnOnce() -> bool,
    ) -> io::Result<bool> {
        let slice = if self.backoff.sleeps() < SLEEPS_UNTIL_LONG { SLEEP } else { LONG_SLEEP };
        let slice = hook::recheck_interval(slice);
        self.sleep_unless(claim, self.by_descriptor, || {
            is_drained().then(|| match deadline {
                None => slice,
                Some(deadline) => slice.min(deadline.saturating_duration_since(Instant::now())),
            })
        })
    }

    /// Arms a wait that is done elsewhere, as [`Self::sleep`] does before its own. Returns the value of the
    /// futex to wait with; or `None` if there is something to receive, and it must not wait.
    #[cfg(feature = "proactor")]
    pub(super) fn arm(
        &mut self,
        claim: &ReaderClaim,
        by_descriptor: bool,
        is_drained: impl FnOnce() -> bool,
    ) -> io::Result<Option<u32>> {
        let mut drained = false;
        self.sleep_unless(claim, by_descriptor, || {
            drained = is_drained();
            // The sleep itself is not here.
            None
        })?;
        Ok(drained.then(|| self.futex.token()))
    }

    fn sleep_unless(
        &mut self,
        claim: &ReaderClaim,
        by_descriptor: bool,
        recheck: impl FnOnce() -> Option<Duration>,
    ) -> io::Result<bool> {
        let waiter: &mut dyn Waiter = match &mut self.descriptor {
            Some(descriptor) if by_descriptor => descriptor,
            _ => &mut self.futex,
        };
        sleep_unless(waiter, claim.arming_slot(), || {
            hook::point(CrashPoint::ReaderBeforeSleep);
            recheck()
        })
    }
}
