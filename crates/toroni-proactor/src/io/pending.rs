//! The `async` adapter: an operation as a future. Any executor will do, as long as threads handle the
//! proactor's events.

use crate::inner::Inner;
use crate::proactor::OperationId;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// An operation that is in progress, as a future.
///
/// Dropping it cancels the operation; its buffer stays with the proactor until the kernel has let go.
#[must_use = "dropping it cancels the operation"]
pub struct Pending<T> {
    shared: Arc<Mutex<Shared<T>>>,
    /// To cancel it; none if it never began.
    operation: Option<(OperationId, Arc<Inner>)>,
}

enum Shared<T> {
    /// Nobody waits yet.
    InProgress,
    /// Somebody does.
    Awaited(Waker),
    Ready(T),
    Taken,
}

impl<T: Send + 'static> Pending<T> {
    /// Starts an operation with a handler that completes the future. A start that fails completes it at
    /// once with what `refused` makes of it.
    pub(crate) fn start<R>(
        inner: &Arc<Inner>,
        start: impl FnOnce(Box<dyn FnOnce(T) + Send>) -> Result<OperationId, R>,
        refused: impl FnOnce(R) -> T,
    ) -> Self {
        let shared = Arc::new(Mutex::new(Shared::InProgress));
        let finished = Arc::clone(&shared);
        let handler = Box::new(move |value: T| {
            let mut shared = finished.lock().unwrap_or_else(PoisonError::into_inner);
            let before = std::mem::replace(&mut *shared, Shared::Ready(value));
            drop(shared);
            if let Shared::Awaited(waker) = before {
                waker.wake();
            }
        });
        match start(handler) {
            Ok(operation) => Self { shared, operation: Some((operation, Arc::clone(inner))) },
            Err(error) => {
                let shared = Arc::new(Mutex::new(Shared::Ready(refused(error))));
                Self { shared, operation: None }
            }
        }
    }
}

impl<T> Future for Pending<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let this = self.get_mut();
        let mut shared = this.shared.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *shared, Shared::Taken) {
            Shared::Ready(value) => {
                this.operation = None;
                Poll::Ready(value)
            }
            Shared::InProgress | Shared::Awaited(_) => {
                *shared = Shared::Awaited(context.waker().clone());
                Poll::Pending
            }
            Shared::Taken => panic!("a future is not polled after it was ready"),
        }
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        if let Some((operation, inner)) = self.operation.take() {
            inner.cancel(operation.key());
        }
    }
}
