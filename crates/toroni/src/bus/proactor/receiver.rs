//! Receiving in async code, on a proactor.

use super::waiting::{self, PendingWait, Rechecks, Waits};
use crate::bus::subscribe::Body;
use crate::bus::subscribe::waiting::SLEEPS_UNTIL_CHECK;
use crate::bus::{Message, Subscriber};
use crate::error::ReceiveError;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use toroni_proactor::{BufResult, OperationError, Pending, Proactor, WeakProactor};

/// A subscriber for async code. [`Subscribe::receiver`](super::Subscribe::receiver) makes it.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = std::env::temp_dir().join(format!("toroni-doc-receiver-{}", std::process::id()));
/// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
/// use toroni::proactor::Subscribe;
/// use toroni_proactor::Proactor;
///
/// let proactor = Proactor::from_environment()?;
/// let mut receiver = proactor.receiver(bus.subscribe("plant/**")?)?;
/// bus.publisher("plant/pump")?.publish("on")?;
/// let text = proactor.block_on(async {
///     receiver.receive().await.map(|message| message.text().into_owned())
/// });
/// assert_eq!(text.expect("not stopped")?, "on");
/// # drop((receiver, proactor, bus));
/// # std::fs::remove_dir_all(directory)?;
/// # Ok(())
/// # }
/// ```
pub struct Receiver {
    subscriber: Subscriber,
    waits: Waits,
    proactor: WeakProactor,
    /// Messages received in a row without a pause.
    in_a_row: u32,
}

/// Messages in a row before other tasks may run.
const BATCH: u32 = 32;

impl Receiver {
    pub(super) fn new(proactor: &Proactor, subscriber: Subscriber, waits: Waits) -> Self {
        Self { subscriber, waits, proactor: proactor.downgrade(), in_a_row: 0 }
    }

    /// Receives the next message as [`Subscriber::receive`] does, without blocking the thread.
    ///
    /// The call is cancel-safe: only a call that returns takes a message. If messages come without end, it
    /// lets other tasks run now and then.
    ///
    /// # Errors
    /// See [`ReceiveError`]. Returns [`ReceiveError::Os`] with `ECANCELED` if the proactor is stopping or
    /// was dropped.
    pub async fn receive(&mut self) -> Result<Message<'_>, ReceiveError> {
        if self.in_a_row >= BATCH {
            self.in_a_row = 0;
            give_way().await;
        }
        let mut in_vain = 0;
        while !self.subscriber.next(Body::Whole)? {
            if let Some(token) = self.waits.arm(&mut self.subscriber)? {
                self.in_a_row = 0;
                if self.wait(token, in_vain).await? {
                    in_vain += 1;
                    if in_vain % SLEEPS_UNTIL_CHECK == 0 {
                        self.subscriber.check_slowly()?;
                    }
                }
            }
        }
        self.in_a_row += 1;
        Ok(self.subscriber.last())
    }

    /// Returns the subscriber.
    #[must_use]
    pub fn into_subscriber(self) -> Subscriber {
        self.subscriber
    }

    /// Waits until it is woken or it is time to check. Returns true for the latter.
    async fn wait(&self, token: u32, in_vain: u32) -> Result<bool, ReceiveError> {
        let stopping = || ReceiveError::Os {
            action: "wait for a message",
            source: std::io::Error::from_raw_os_error(libc::ECANCELED),
        };
        let (mut wait, mut recheck) = {
            let proactor = self.proactor.upgrade().ok_or_else(stopping)?;
            let wait = self.waits.start_async(&proactor, &self.subscriber, token);
            let recheck =
                Rechecks::Usual.next(in_vain).map(|moment| proactor.timer_at_async(moment));
            (wait, recheck)
        };
        poll_fn(|context| {
            if let Poll::Ready(result) = wait.poll(context) {
                let result = result.map(|()| false);
                return Poll::Ready(
                    result.map_err(|error| waiting::failed(&self.subscriber, error)),
                );
            }
            match recheck.as_mut().map(|recheck| Pin::new(recheck).poll(context)) {
                Some(Poll::Ready(Ok(()))) => Poll::Ready(Ok(true)),
                Some(Poll::Ready(Err(_))) => Poll::Ready(Err(stopping())),
                // The proactor was dropped, and this is not called again.
                _ if wait.is_abandoned() => Poll::Ready(Err(stopping())),
                _ => Poll::Pending,
            }
        })
        .await
    }
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Receiver").field(&self.subscriber).finish()
    }
}

impl PendingWait {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), OperationError>> {
        match self {
            Self::Word(pending) => poll(pending, context).map(|BufResult(result, _)| result),
            Self::Descriptor(pending) => poll(pending, context),
        }
    }

    fn is_abandoned(&self) -> bool {
        match self {
            Self::Word(pending) => pending.is_abandoned(),
            Self::Descriptor(pending) => pending.is_abandoned(),
        }
    }
}

fn poll<T>(pending: &mut Pending<T>, context: &mut Context<'_>) -> Poll<T> {
    Pin::new(pending).poll(context)
}

/// Is ready at the second poll, for which it asks at once.
async fn give_way() {
    let mut gave_way = false;
    poll_fn(|context| {
        if std::mem::replace(&mut gave_way, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
