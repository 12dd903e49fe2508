//! The proactor as its users see it.

use crate::config::{Config, Effective};
use crate::error::{OperationError, Refused, SetupError};
use crate::inner::{Inner, Returned};
use crate::record::{Completion, Done, Key};
use std::any::Any;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// A proactor: starts operations, and calls their handlers in the threads that are lent to it.
///
/// Clones are the same proactor. When the last one is dropped, its operations are cancelled, and handlers
/// that were not called are dropped without a call, with their buffers; what the kernel may still write to
/// is not freed. Streams, listeners and so on do not keep it alive; a handler that holds a clone does.
#[derive(Clone)]
pub struct Proactor {
    owner: Arc<Owner>,
}

/// Closes when the last clone goes.
struct Owner(Arc<Inner>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Names an operation or a timer, to cancel it. It may be kept for as long as one likes: once the operation
/// is over it names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationId(Key);

impl OperationId {
    pub(crate) fn new(key: Key) -> Self {
        Self(key)
    }

    pub(crate) fn key(self) -> Key {
        self.0
    }
}

impl Proactor {
    /// A proactor on these engines.
    ///
    /// # Errors
    ///
    /// If the configuration asks for what is not there, or the kernel refuses a descriptor or a thread.
    pub fn new(config: &Config) -> Result<Self, SetupError> {
        Ok(Self { owner: Arc::new(Owner(Inner::new(config)?)) })
    }

    /// On the engines that `TORONI_PROACTOR` names: see [`Config::from_environment`].
    ///
    /// # Errors
    ///
    /// As [`Proactor::new`], or if the variable holds no configuration.
    pub fn from_environment() -> Result<Self, SetupError> {
        Self::new(&Config::from_environment()?)
    }

    /// What it really runs on, one for each processor.
    #[must_use]
    pub fn effective(&self) -> &[Effective] {
        self.inner().effective()
    }

    /// Lends this thread to the proactor until at least one handler has been called, the time is over, or
    /// the proactor is stopped. `None` is for ever. How many handlers were called.
    pub fn handle_events(&self, timeout: Option<Duration>) -> usize {
        self.inner().handle_events(timeout, None)
    }

    /// Lends this thread to the proactor until it is stopped. Any number of threads may.
    pub fn run(&self) {
        while !self.inner().is_stopped() {
            self.handle_events(None);
        }
    }

    /// Drives a future in this thread, and handles events meanwhile. Other threads may run the proactor, too.
    ///
    /// `None` if the proactor is stopped before the future is ready.
    pub fn block_on<F: Future>(&self, future: F) -> Option<F::Output> {
        let woken =
            Arc::new(Woken { flag: AtomicBool::new(true), inner: Arc::clone(self.inner()) });
        let waker = Waker::from(Arc::clone(&woken));
        let mut future = pin!(future);
        loop {
            if woken.flag.swap(false, Ordering::AcqRel)
                && let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker))
            {
                return Some(output);
            }
            if self.inner().is_stopped() {
                return None;
            }
            self.inner().handle_events(None, Some(&woken.flag));
        }
    }

    /// Calls a handler soon, in a thread that handles events.
    ///
    /// # Errors
    ///
    /// If the proactor is stopping.
    pub fn post<F: FnOnce() + Send + 'static>(&self, handler: F) -> Result<(), Refused<(), F>> {
        self.inner().post(Box::new(Posted(handler))).map_err(|returned| {
            let (error, Posted(handler)) = take_back(returned);
            Refused { error, buffer: (), handler }
        })
    }

    /// Calls a handler when a time has passed; or, if it is cancelled, with `ECANCELED`.
    ///
    /// # Errors
    ///
    /// If the proactor is stopping.
    pub fn timer<F>(&self, after: Duration, handler: F) -> Result<OperationId, Refused<(), F>>
    where
        F: FnOnce(Result<(), OperationError>) + Send + 'static,
    {
        // A moment that the clock cannot say is far enough away.
        let far = Duration::from_secs(100 * 365 * 24 * 3600);
        let now = Instant::now();
        self.timer_at(now.checked_add(after).unwrap_or(now + far), handler)
    }

    /// Calls a handler at a moment; or, if it is cancelled, with `ECANCELED`.
    ///
    /// # Errors
    ///
    /// If the proactor is stopping.
    pub fn timer_at<F>(&self, deadline: Instant, handler: F) -> Result<OperationId, Refused<(), F>>
    where
        F: FnOnce(Result<(), OperationError>) + Send + 'static,
    {
        match self.inner().timer(deadline, Box::new(Timed(handler))) {
            Ok(key) => Ok(OperationId(key)),
            Err(returned) => {
                let (error, Timed(handler)) = take_back(returned);
                Err(Refused { error, buffer: (), handler })
            }
        }
    }

    /// Asks an operation or a timer to end. Its handler is called in any case: with `ECANCELED`, or with its
    /// result if that was faster. False if it was already over.
    pub fn cancel(&self, operation: OperationId) -> bool {
        self.inner().cancel(operation.0)
    }

    /// Operations, timers and posts that are not yet over.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.inner().outstanding()
    }

    /// Stops at once: each thread that handles events returns as soon as its handler does. Operations and
    /// results stay; [`Proactor::restart`] goes on with them.
    pub fn stop(&self) {
        self.inner().stop();
    }

    /// Stops gracefully: nothing new is started, all operations and timers are cancelled, and the threads
    /// that handle events return when every handler has been called.
    pub fn finish(&self) {
        self.inner().finish();
    }

    /// Back to work after [`Proactor::stop`] or [`Proactor::finish`].
    pub fn restart(&self) {
        self.inner().restart();
    }

    /// Whether it was stopped, or has finished.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.inner().is_stopped()
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.owner.0
    }
}

impl std::fmt::Debug for Proactor {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Proactor").field("effective", &self.effective()).finish()
    }
}

/// What was handed to a start, after its refusal.
pub(crate) fn take_back<C: Completion>((error, completion): Returned) -> (crate::StartError, C) {
    let completion: Box<dyn Any> = completion;
    let completion = completion.downcast().expect("the completion that was handed over");
    (error, *completion)
}

struct Posted<F>(F);

impl<F: FnOnce() + Send + 'static> Completion for Posted<F> {
    fn complete(self: Box<Self>, _: Done) {
        (self.0)();
    }
}

struct Timed<F>(F);

impl<F: FnOnce(Result<(), OperationError>) + Send + 'static> Completion for Timed<F> {
    fn complete(self: Box<Self>, done: Done) {
        (self.0)(done.result().map(|_| ()));
    }
}

/// Wakes the thread in `block_on`.
struct Woken {
    flag: AtomicBool,
    inner: Arc<Inner>,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.flag.swap(true, Ordering::AcqRel) {
            self.inner.wake_everybody();
        }
    }
}
