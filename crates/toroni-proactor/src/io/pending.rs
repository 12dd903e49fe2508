//! The `async` adapter: an operation as a future, for any executor. Threads must handle the proactor's events.

use crate::inner::Inner;
use crate::operation::{Completion, Done, Id};
use crate::proactor::OperationId;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// An operation in progress, as a future.
///
/// Dropping it cancels the operation; the buffer stays with the proactor until the kernel has released it. If
/// the proactor is dropped first, the future never becomes ready: a task that has polled it is woken, and may
/// ask whether it [is abandoned](Pending::is_abandoned).
#[must_use = "dropping it cancels the operation"]
pub struct Pending<T> {
    shared: Arc<Shared<T>>,
    /// To cancel it; `None` if it never began, or is over.
    operation: Option<(OperationId, Arc<Inner>)>,
    /// The timer that limits it.
    limit: Option<Id>,
}

/// What the future and the handler share.
struct Shared<T>(Mutex<Progress<T>>);

enum Progress<T> {
    Unawaited,
    Awaited(Waker),
    Ready(T),
    Taken,
    /// The handler will never be called.
    Abandoned,
}

impl<T> Shared<T> {
    fn progress(&self) -> MutexGuard<'_, Progress<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The handler's end.
struct Finisher<T>(Arc<Shared<T>>);

impl<T> Finisher<T> {
    fn finish(&self, value: T) {
        let before = std::mem::replace(&mut *self.0.progress(), Progress::Ready(value));
        if let Progress::Awaited(waker) = before {
            waker.wake();
        }
    }
}

impl<T> Drop for Finisher<T> {
    /// If the handler is dropped without a call, the waker must go, too: it may hold the task that holds the
    /// future, which would hold the waker. And a task of another executor would wait for ever.
    fn drop(&mut self) {
        let mut progress = self.0.progress();
        if matches!(*progress, Progress::Unawaited | Progress::Awaited(_)) {
            let before = std::mem::replace(&mut *progress, Progress::Abandoned);
            drop(progress);
            if let Progress::Awaited(waker) = before {
                waker.wake();
            }
        }
    }
}

impl<T: Send + 'static> Pending<T> {
    /// Starts an operation with a handler that completes the future. If the start fails, the future is ready at
    /// once, with the value that `refused` returns.
    pub(crate) fn start<R>(
        inner: &Arc<Inner>,
        start: impl FnOnce(Box<dyn FnOnce(T) + Send>) -> Result<OperationId, R>,
        refused: impl FnOnce(R) -> T,
    ) -> Self {
        let shared = Arc::new(Shared(Mutex::new(Progress::Unawaited)));
        let finisher = Finisher(Arc::clone(&shared));
        match start(Box::new(move |value: T| finisher.finish(value))) {
            Ok(operation) => {
                Self { shared, operation: Some((operation, Arc::clone(inner))), limit: None }
            }
            Err(error) => {
                let shared = Arc::new(Shared(Mutex::new(Progress::Ready(refused(error)))));
                Self { shared, operation: None, limit: None }
            }
        }
    }
}

impl<T> Pending<T> {
    /// Cancels the operation if it is not over within a duration. Its result is `ECANCELED` then, with its
    /// buffer, unless the operation was faster. Unlike dropping the future, this loses nothing that was read.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use toroni_proactor::{BufResult, Proactor, Stream};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let proactor = Proactor::from_environment()?;
    /// # let (ours, _theirs) = std::os::unix::net::UnixStream::pair()?;
    /// # let stream = Stream::new(&proactor, ours)?;
    /// let read = stream.read_async(vec![0; 80]).within(Duration::from_millis(10));
    /// let BufResult(result, buffer) = proactor.block_on(read).unwrap();
    /// assert!(result.unwrap_err().is_cancelled());
    /// assert_eq!(buffer.len(), 80);
    /// # Ok(())
    /// # }
    /// ```
    pub fn within(mut self, limit: Duration) -> Self {
        if let Some((operation, inner)) = &self.operation {
            let completion = Expiring { operation: operation.id(), inner: Arc::clone(inner) };
            self.forget_limit();
            // A proactor that takes no timer is stopping, and cancels the operation itself.
            self.limit = inner.timer_after(limit, Box::new(completion)).ok();
        }
        self
    }

    /// Returns whether the proactor was dropped before the operation was over.
    ///
    /// Then the handler that would deliver the result was dropped, with its buffer, and the future never
    /// becomes ready. A task that had polled it was woken.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        matches!(*self.shared.progress(), Progress::Abandoned)
    }

    fn forget_limit(&self) {
        if let (Some(limit), Some((_, inner))) = (self.limit, &self.operation) {
            inner.cancel(limit);
        }
    }
}

/// Cancels an operation when its time limit has passed.
struct Expiring {
    operation: Id,
    inner: Arc<Inner>,
}

impl Completion for Expiring {
    fn complete(self: Box<Self>, done: Done) {
        if done.outcome.result.is_ok() {
            self.inner.cancel(self.operation);
        }
    }
}

impl<T> Future for Pending<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let this = self.get_mut();
        let mut progress = this.shared.progress();
        match std::mem::replace(&mut *progress, Progress::Taken) {
            Progress::Ready(value) => {
                drop(progress);
                this.forget_limit();
                this.operation = None;
                Poll::Ready(value)
            }
            Progress::Unawaited | Progress::Awaited(_) => {
                *progress = Progress::Awaited(context.waker().clone());
                Poll::Pending
            }
            Progress::Abandoned => {
                *progress = Progress::Abandoned;
                Poll::Pending
            }
            Progress::Taken => panic!("a future is not polled after it was ready"),
        }
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        self.forget_limit();
        if let Some((operation, inner)) = self.operation.take() {
            inner.cancel(operation.id());
        }
    }
}
