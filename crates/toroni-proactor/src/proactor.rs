//! The public handle of a proactor.

use crate::config::{Config, Effective};
use crate::dispatcher::After;
use crate::error::{OperationError, Refused, SetupError, StartError};
use crate::inner::{Inner, Returned};
use crate::io::Pending;
use crate::operation::{Completion, Done, Id, OperationKind};
use crate::task;
use std::any::Any;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// Starts operations and calls their handlers in the threads that run it.
///
/// Clones share one proactor. Dropping the last clone cancels its operations and drops handlers that have not
/// been called, with their buffers; memory that the kernel may still write to is leaked instead of freed.
/// Streams, listeners and other handles do not keep the proactor alive; a handler that holds a clone does.
#[derive(Clone)]
pub struct Proactor {
    owner: Arc<Owner>,
}

/// Closes the proactor when the last clone is dropped.
struct Owner(Arc<Inner>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Refers to a proactor without keeping it alive.
///
/// Use it in handlers that belong to the proactor: with a [`Proactor`], they would keep it, and themselves,
/// for ever.
#[derive(Clone)]
pub struct WeakProactor {
    owner: Weak<Owner>,
}

impl WeakProactor {
    /// Returns the proactor, or `None` if it has been dropped. A handler always finds it alive.
    #[must_use]
    pub fn upgrade(&self) -> Option<Proactor> {
        Some(Proactor { owner: self.owner.upgrade()? })
    }
}

impl std::fmt::Debug for WeakProactor {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("WeakProactor")
    }
}

/// Identifies an operation or a timer, for [`Proactor::cancel`].
///
/// It may be kept for any time: when the operation is over, it identifies nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationId(Id);

impl OperationId {
    pub(crate) fn id(self) -> Id {
        self.0
    }
}

impl Proactor {
    /// Creates a proactor with the engines of a configuration, and starts the threads of its dedicated
    /// processors.
    ///
    /// # Errors
    ///
    /// If an engine of the configuration is not available, or the kernel refuses a descriptor or a thread.
    pub fn new(config: &Config) -> Result<Self, SetupError> {
        Ok(Self { owner: Arc::new(Owner(Inner::new(config)?)) })
    }

    /// Creates a proactor with the engines that `TORONI_PROACTOR` names ([`Config::from_environment`]).
    ///
    /// # Errors
    ///
    /// As [`Proactor::new`]; also if the variable contains no valid configuration.
    pub fn from_environment() -> Result<Self, SetupError> {
        Self::new(&Config::from_environment()?)
    }

    /// Returns a reference that does not keep the proactor alive.
    #[must_use]
    pub fn downgrade(&self) -> WeakProactor {
        WeakProactor { owner: Arc::downgrade(&self.owner) }
    }

    /// Returns whether one of the processors supports this kind of operation.
    #[must_use]
    pub fn supports(&self, operation: OperationKind) -> bool {
        self.effective().iter().any(|processor| processor.operations.contains(operation))
    }

    /// Returns the configuration that each processor really has, in the order of the processors.
    #[must_use]
    pub fn effective(&self) -> &[Effective] {
        self.inner().effective()
    }

    /// Handles events in this thread until it has called at least one handler, the timeout expires, or the
    /// proactor is stopped. Returns the number of handlers called.
    ///
    /// `None` waits without a limit. The timeout is checked between handlers, about once a millisecond; it does
    /// not interrupt a handler.
    pub fn handle_events(&self, timeout: Option<Duration>) -> usize {
        self.inner().handle_events(timeout, None)
    }

    /// Handles events in this thread until the proactor is stopped. Any number of threads may call this at
    /// the same time.
    pub fn run(&self) {
        while !self.inner().is_stopped() {
            self.handle_events(None);
        }
    }

    /// Drives a future in this thread, and handles events meanwhile. Other threads may run the proactor at
    /// the same time.
    ///
    /// Returns `None` if the proactor is stopped before the future is ready.
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
            if woken.flag.load(Ordering::Relaxed) {
                // It has woken itself to let others run: handle what is ready.
                self.inner().handle_events(Some(Duration::ZERO), None);
            } else {
                self.inner().handle_events(None, Some(&woken.flag));
            }
        }
    }

    /// Drives a future to its end in the threads that handle events.
    ///
    /// One thread at a time polls it, not always the same one. If it panics, it ends, and the panic propagates
    /// in that thread.
    ///
    /// In a graceful stop, the operations of the future end with `ECANCELED`, and so does each new one at once:
    /// a task that ends with its first error is over then. If the proactor is dropped, tasks that wait for its
    /// operations are dropped, too.
    ///
    /// ```
    /// # use toroni_proactor::{BufResult, Listener, Proactor, Stream};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let proactor = Proactor::from_environment()?;
    /// let listener = Listener::bind(&proactor, "127.0.0.1:0".parse()?)?;
    /// # let address = listener.local_address()?;
    /// let spawner = proactor.clone();
    /// proactor.spawn(async move {
    ///     while let Ok((stream, _)) = listener.accept_async().await {
    ///         let echo = async move {
    ///             let mut buffer = Vec::with_capacity(4096);
    ///             while let BufResult(Ok(1..), read) = stream.read_async(buffer).await {
    ///                 let BufResult(Ok(()), written) = stream.write_all_async(read).await else { return };
    ///                 buffer = written;
    ///             }
    ///         };
    ///         if spawner.spawn(echo).is_err() {
    ///             return;
    ///         }
    ///     }
    /// })?;
    /// # let client = std::thread::spawn(move || {
    /// #     use std::io::{Read, Write};
    /// #     let mut client = std::net::TcpStream::connect(address).unwrap();
    /// #     client.write_all(b"hello").unwrap();
    /// #     client.read_exact(&mut [0; 5]).unwrap();
    /// # });
    /// # let clock = proactor.clone();
    /// # proactor.spawn(async move {
    /// #     while !client.is_finished() {
    /// #         clock.timer_async(std::time::Duration::from_millis(1)).await.unwrap();
    /// #     }
    /// #     client.join().unwrap();
    /// #     clock.finish();
    /// # })?;
    /// proactor.run();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the proactor is stopping. Then the future is dropped.
    pub fn spawn<F>(&self, future: F) -> Result<(), StartError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        task::spawn(self.inner(), future)
    }

    /// Calls a handler soon, in a thread that handles events.
    ///
    /// # Errors
    ///
    /// If the proactor is stopping. The handler comes back.
    pub fn post<F: FnOnce() + Send + 'static>(&self, handler: F) -> Result<(), Refused<(), F>> {
        self.post_completion(handler, After::Posted)
    }

    /// Calls a handler after everything that is ready now.
    ///
    /// Use it for long work in parts, each of which posts the next: operations and posts that are ready get
    /// their turn first, so nothing starves.
    ///
    /// # Errors
    ///
    /// If the proactor is stopping. The handler comes back.
    pub fn post_later<F>(&self, handler: F) -> Result<(), Refused<(), F>>
    where
        F: FnOnce() + Send + 'static,
    {
        self.post_completion(handler, After::Check)
    }

    fn post_completion<F>(&self, handler: F, after: After) -> Result<(), Refused<(), F>>
    where
        F: FnOnce() + Send + 'static,
    {
        let posted = self.inner().post(Box::new(Posted(handler)), after);
        posted.map_err(|returned| take_back(returned, |Posted(handler)| ((), handler)))
    }

    /// Calls a handler when a duration has passed; with `ECANCELED` if the timer is cancelled before.
    ///
    /// # Errors
    ///
    /// If the proactor is stopping. The handler comes back.
    pub fn timer<F>(&self, after: Duration, handler: F) -> Result<OperationId, Refused<(), F>>
    where
        F: FnOnce(Result<(), OperationError>) + Send + 'static,
    {
        let started = self.inner().timer_after(after, Box::new(Timed(handler)));
        identified(started, |Timed(handler)| ((), handler))
    }

    /// Calls a handler at a point in time; with `ECANCELED` if the timer is cancelled before.
    ///
    /// # Errors
    ///
    /// If the proactor is stopping. The handler comes back.
    pub fn timer_at<F>(&self, deadline: Instant, handler: F) -> Result<OperationId, Refused<(), F>>
    where
        F: FnOnce(Result<(), OperationError>) + Send + 'static,
    {
        let started = self.inner().timer(deadline, Box::new(Timed(handler)));
        identified(started, |Timed(handler)| ((), handler))
    }

    /// Returns a future that is ready when a duration has passed: [`Proactor::timer`] as a future.
    pub fn timer_async(&self, after: Duration) -> Pending<Result<(), OperationError>> {
        Pending::start(
            self.inner(),
            |handler| self.timer(after, handler),
            |refused| Err(refused.error.of(OperationKind::Timer)),
        )
    }

    /// Returns a future that is ready at a point in time: [`Proactor::timer_at`] as a future.
    pub fn timer_at_async(&self, deadline: Instant) -> Pending<Result<(), OperationError>> {
        Pending::start(
            self.inner(),
            |handler| self.timer_at(deadline, handler),
            |refused| Err(refused.error.of(OperationKind::Timer)),
        )
    }

    /// Asks an operation or a timer to end. Returns `false` if it was already over.
    ///
    /// The handler is called in any case: with `ECANCELED`, or with the result if the operation was faster.
    pub fn cancel(&self, operation: OperationId) -> bool {
        self.inner().cancel(operation.0)
    }

    /// Returns the number of operations, timers and posts that are not over yet.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.inner().outstanding()
    }

    /// Stops at once: each thread that handles events returns when its current handler has returned.
    ///
    /// Operations and results stay as they are; [`Proactor::restart`] continues with them.
    pub fn stop(&self) {
        self.inner().stop();
    }

    /// Stops gracefully: refuses new starts, cancels all operations and timers, and lets the threads that
    /// handle events return when every handler has been called. After [`Proactor::stop`], a thread must handle
    /// events once more for that.
    ///
    /// A start that another thread is making at that moment is refused with [`StartError::Stopping`]. If its
    /// transfer has already taken place, it is accepted, and its handler is called before those threads return.
    /// A task that waits for something other than operations and timers is not waited for; if it is woken
    /// later, it continues after [`Proactor::restart`].
    pub fn finish(&self) {
        self.inner().finish();
    }

    /// Resumes work after [`Proactor::stop`] or [`Proactor::finish`].
    pub fn restart(&self) {
        self.inner().restart();
    }

    /// Returns whether the proactor was stopped, or has finished.
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

/// Returns the id of a start, or the parts of its completion if it was refused.
pub(crate) fn identified<C: Completion, B, F>(
    started: Result<Id, Returned>,
    parts: fn(C) -> (B, F),
) -> Result<OperationId, Refused<B, F>> {
    started.map(OperationId).map_err(|returned| take_back(returned, parts))
}

fn take_back<C: Completion, B, F>(
    (error, completion): Returned,
    parts: fn(C) -> (B, F),
) -> Refused<B, F> {
    let completion: Box<dyn Any> = completion;
    let completion = completion.downcast::<C>().expect("the completion that was handed over");
    let (buffer, handler) = parts(*completion);
    Refused { error, buffer, handler }
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
