//! The proactor as its users see it.

use crate::config::{Config, Effective};
use crate::dispatcher::After;
use crate::error::{OperationError, Refused, SetupError, StartError};
use crate::inner::{Inner, Returned};
use crate::io::Pending;
use crate::operation::{Completion, Done, Key, OperationKind};
use crate::task;
use std::any::Any;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
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

/// A proactor that is not kept alive: for handlers of what belongs to the proactor, which would otherwise
/// keep it, and themselves, for ever.
#[derive(Clone)]
pub struct WeakProactor {
    owner: Weak<Owner>,
}

impl WeakProactor {
    /// The proactor, if it still lives. In a handler it does.
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

    /// The same, without keeping it alive.
    #[must_use]
    pub fn downgrade(&self) -> WeakProactor {
        WeakProactor { owner: Arc::downgrade(&self.owner) }
    }

    /// Whether one of its processors does this.
    #[must_use]
    pub fn supports(&self, operation: OperationKind) -> bool {
        self.effective().iter().any(|processor| processor.operations.contains(operation))
    }

    /// What it really runs on, one for each processor.
    #[must_use]
    pub fn effective(&self) -> &[Effective] {
        self.inner().effective()
    }

    /// Lends this thread to the proactor until at least one handler has been called, the time is over, or
    /// the proactor is stopped. `None` is for ever. How many handlers were called. The time is looked at
    /// between handlers, about once in a millisecond; one that is at work is not cut short.
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
            if woken.flag.load(Ordering::Relaxed) {
                // It has woken itself, to let others run: those are here.
                self.inner().handle_events(Some(Duration::ZERO), None);
            } else {
                self.inner().handle_events(None, Some(&woken.flag));
            }
        }
    }

    /// Drives a future to its end in the threads that handle events, beside their handlers. It is polled by
    /// one thread at a time, not always by the same. One that panics is over, and its thread gets the panic.
    ///
    /// In a graceful stop its operations end with `ECANCELED`, and new ones do so at once: a task that ends
    /// with its first error is over then. If the proactor is dropped, so are its tasks that wait for
    /// operations.
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
    /// If the proactor is stopping; then the future is dropped.
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
    /// If the proactor is stopping.
    pub fn post<F: FnOnce() + Send + 'static>(&self, handler: F) -> Result<(), Refused<(), F>> {
        self.post_completion(handler, After::Posted)
    }

    /// As [`Proactor::post`], for long work that is done in parts, each of which posts the next: everything that is
    /// ready by then has its turn first, so that nothing starves.
    ///
    /// # Errors
    ///
    /// If the proactor is stopping.
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
        self.inner().post(Box::new(Posted(handler)), after).map_err(|returned| {
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
        timed(self.inner().timer_after(after, Box::new(Timed(handler))))
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
        timed(self.inner().timer(deadline, Box::new(Timed(handler))))
    }

    /// As [`Proactor::timer`], as a future: ready when the time has passed.
    pub fn timer_async(&self, after: Duration) -> Pending<Result<(), OperationError>> {
        Pending::start(
            self.inner(),
            |handler| self.timer(after, handler),
            |refused| Err(refused.error.of(OperationKind::Timer)),
        )
    }

    /// As [`Proactor::timer_at`], as a future.
    pub fn timer_at_async(&self, deadline: Instant) -> Pending<Result<(), OperationError>> {
        Pending::start(
            self.inner(),
            |handler| self.timer_at(deadline, handler),
            |refused| Err(refused.error.of(OperationKind::Timer)),
        )
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
    /// that handle events return when every handler has been called. After [`Proactor::stop`] some thread has to
    /// handle events once more for that.
    ///
    /// A start that is under way in another thread at that moment is refused with
    /// [`StartError::Stopping`], or, if its transfer took place, accepted; then its handler is called, too,
    /// before those threads return. A task that waits for something else than operations and timers is not waited
    /// for: if it is woken later, it goes on after [`Proactor::restart`].
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

fn timed<F>(started: Result<Key, Returned>) -> Result<OperationId, Refused<(), F>>
where
    F: FnOnce(Result<(), OperationError>) + Send + 'static,
{
    started.map(OperationId).map_err(|returned| {
        let (error, Timed(handler)) = take_back(returned);
        Refused { error, buffer: (), handler }
    })
}

/// What was handed to a start, after its refusal.
pub(crate) fn take_back<C: Completion>((error, completion): Returned) -> (StartError, C) {
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
