//! How a subscriber in a proactor waits: what wakes it, and when it checks although nothing did.

use super::ServeError;
use crate::bus::Subscriber;
use crate::bus::subscribe::Subscribing;
use crate::bus::subscribe::waiting::{LONG_SLEEP, SLEEP, SLEEPS_UNTIL_LONG};
use crate::error::{FileError, ReceiveError};
use crate::hook;
use crate::notify::HeldWord;
use crate::shm::fork::Once;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use toroni_proactor::{
    BufResult, OperationError, OperationId, OperationKind, Pending, Proactor, StartError, Watch,
};

/// What it is woken by.
pub(super) enum Waits {
    /// The futex word of the subscriber's slot.
    Word,
    /// The subscriber's descriptor, of which this is a duplicate.
    Descriptor(Watch),
}

/// A wait, as a future.
pub(super) enum PendingWait {
    Word(Pending<BufResult<(), HeldWord<Subscribing>>>),
    Descriptor(Pending<Result<(), OperationError>>),
}

impl Waits {
    /// Returns what this proactor can wait for and the publishers of this bus wake.
    pub(super) fn new(
        proactor: &Proactor,
        subscriber: &mut Subscriber,
    ) -> Result<Self, ServeError> {
        if !subscriber.sleeps_on_descriptor() && proactor.supports(OperationKind::WaitWord) {
            subscriber.stamp.check().map_err(FileError::from)?;
            return Ok(Self::Word);
        }
        if !proactor.supports(OperationKind::WaitReadable) {
            return Err(StartError::Unsupported { operation: OperationKind::WaitReadable }.into());
        }
        let descriptor = subscriber.fd()?.try_clone_to_owned().map_err(|source| {
            subscriber
                .claim
                .subscribing
                .os_error("duplicate the descriptor of a subscriber of", source)
        })?;
        Ok(Self::Descriptor(Watch::new(proactor, descriptor)?))
    }

    /// Arms the subscriber, which is about to wait. Returns the value of the futex to wait with; or `None`
    /// if there is something to receive, and it must not wait.
    ///
    /// From here on no wake-up is lost, whenever the wait itself begins: publishers that commit now see
    /// that it is armed, and change the word or make the descriptor readable for good.
    pub(super) fn arm(&self, subscriber: &mut Subscriber) -> Result<Option<u32>, ReceiveError> {
        subscriber.check_interruption()?;
        subscriber.arm_wait(matches!(self, Self::Descriptor(_)))
    }

    /// Starts the wait.
    pub(super) fn start(
        &self,
        proactor: &Proactor,
        subscriber: &Subscriber,
        token: u32,
        woken: impl FnOnce(Result<(), OperationError>) + Send + 'static,
    ) -> Result<OperationId, StartError> {
        match self {
            Self::Word => proactor
                .wait_while(word_of(subscriber), token, |BufResult(result, word)| {
                    drop(word);
                    woken(result);
                })
                .map_err(StartError::from),
            Self::Descriptor(watch) => watch.readable(woken).map_err(StartError::from),
        }
    }

    /// Starts the wait as a future.
    pub(super) fn start_async(
        &self,
        proactor: &Proactor,
        subscriber: &Subscriber,
        token: u32,
    ) -> PendingWait {
        match self {
            Self::Word => PendingWait::Word(proactor.wait_while_async(word_of(subscriber), token)),
            Self::Descriptor(watch) => PendingWait::Descriptor(watch.readable_async()),
        }
    }
}

/// Turns the error of a failed wait into the caller's.
pub(super) fn failed(subscriber: &Subscriber, error: OperationError) -> ReceiveError {
    subscriber.wait_failed(io::Error::from_raw_os_error(error.errno))
}

/// When to check although nothing woke the subscriber: a publisher may have died between its commit and
/// its wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rechecks {
    /// As often as blocking calls do.
    Usual,
    /// Never, so that a wake-up that is lost is a hang.
    #[cfg(test)]
    Never,
}

impl Rechecks {
    /// Returns the moment of the next check, if this many of the last ones were in vain. It is the same
    /// for all subscribers of a process, so that a thread that serves many wakes up once for all of them.
    pub(super) fn next(self, in_vain: u32) -> Option<Instant> {
        static BEGINNING: OnceLock<Instant> = OnceLock::new();
        // By itself a `OnceLock` could be closed for ever in a child of `fork`.
        static IS_BEGUN: Once = Once::new();
        #[cfg(test)]
        if self == Self::Never {
            return None;
        }
        let period = hook::recheck_interval(if is_long(in_vain) { LONG_SLEEP } else { SLEEP });
        IS_BEGUN.call(|| _ = BEGINNING.set(Instant::now()));
        let now = Instant::now();
        let begun = BEGINNING.get().copied().unwrap_or(now);
        let since_last = now.duration_since(begun).as_nanos() % period.as_nanos();
        now.checked_add(period - Duration::from_nanos(u64::try_from(since_last).unwrap_or(0)))
    }
}

/// Returns whether checks are far apart by now.
pub(super) fn is_long(in_vain: u32) -> bool {
    in_vain >= SLEEPS_UNTIL_LONG
}

fn word_of(subscriber: &Subscriber) -> HeldWord<Subscribing> {
    let claim = &subscriber.claim;
    HeldWord::new(Arc::clone(&claim.subscribing), claim.number(), Subscribing::wake_word)
}
