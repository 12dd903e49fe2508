//! Tasks: futures that the threads of a proactor drive. When a task is woken, it becomes a post, and the thread
//! that dispatches the post polls it.

use crate::dispatcher::After;
use crate::error::StartError;
use crate::inner::Inner;
use crate::operation::{Completion, Done};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// It waits to be woken.
const IDLE: u8 = 0;
/// Its post is under way.
const POSTED: u8 = 1;
/// A thread polls it.
const POLLED: u8 = 2;
/// A thread polls it, and it has been woken meanwhile.
const WOKEN: u8 = 3;

/// A future and its state. It lives as long as a waker of it.
struct Task {
    inner: Arc<Inner>,
    state: AtomicU8,
    /// `None` while it is polled, and when it is over. No thread ever waits for this lock.
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
}

/// Lets the threads that handle events drive a future to its end.
pub(crate) fn spawn(
    inner: &Arc<Inner>,
    future: impl Future<Output = ()> + Send + 'static,
) -> Result<(), StartError> {
    let task = Arc::new(Task {
        inner: Arc::clone(inner),
        state: AtomicU8::new(POSTED),
        future: Mutex::new(Some(Box::pin(future))),
    });
    inner.post(Box::new(Step(task)), After::Posted).map_err(|(error, _)| error)
}

/// One poll of a task.
struct Step(Arc<Task>);

impl Completion for Step {
    fn complete(self: Box<Self>, _: Done) {
        let Self(task) = *self;
        task.state.store(POLLED, Ordering::Release);
        let taken = task.future.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut future) = taken else { return };
        let waker = Waker::from(Arc::clone(&task));
        // A future that panics is dropped on the way: the task is over.
        if future.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Ready(()) {
            return;
        }
        *task.future.lock().unwrap_or_else(PoisonError::into_inner) = Some(future);
        let slept =
            task.state.compare_exchange(POLLED, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if !slept {
            task.state.store(POSTED, Ordering::Release);
            // It yielded, so finished operations get their turn, too.
            task.post(After::Check);
        }
    }
}

impl Task {
    fn post(self: Arc<Self>, after: After) {
        let inner = Arc::clone(&self.inner);
        // Refused only when the proactor closes, and nothing is polled any more.
        drop(inner.resume(Box::new(Step(self)), after));
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let next = |state| match state {
            IDLE => Some(POSTED),
            POLLED => Some(WOKEN),
            _ => None,
        };
        if self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, next) == Ok(IDLE) {
            self.post(After::Posted);
        }
    }
}
