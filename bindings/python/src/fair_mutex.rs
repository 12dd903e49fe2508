//! A mutex that threads lock in the order in which they called.
//!
//! A thread that waits for it is detached from the interpreter, and checks for signals of Python from time to time. A
//! signal handler may use the same mutex that its thread waits for, or wait for a thread that does. So a thread that
//! checks for signals keeps its place in the queue, but lets others pass meanwhile. No thread runs Python code while it
//! holds the mutex. If that happens nevertheless (in a finalizer), the thread gets an error instead of waiting for
//! itself.

use crate::{blocking, errors};
use pyo3::prelude::*;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::ThreadId;
use std::time::Instant;

/// The mutex.
pub(crate) struct FairMutex<T> {
    /// The name of the value in errors.
    what: &'static str,
    state: Mutex<State<T>>,
    released: Condvar,
    /// Whether it was closed. Set while the state is locked, so that no waiting thread misses it.
    is_closed: AtomicBool,
    /// The process that made the mutex. A thread that held it during a fork does not exist in the child.
    process: u32,
}

struct State<T> {
    /// `None` while a thread holds it, and after it was closed.
    value: Option<Box<T>>,
    holder: Option<ThreadId>,
    /// The waiting threads, in the order in which they called.
    queue: VecDeque<Waiting>,
    next_number: u64,
}

struct Waiting {
    number: u64,
    /// Whether the thread is checking for signals, so that others may pass.
    is_aside: bool,
}

/// Access to the value. Dropping it unlocks the mutex.
pub(crate) struct Guard<'a, T> {
    mutex: &'a FairMutex<T>,
    /// `Some` until it is dropped.
    value: Option<Box<T>>,
}

/// The result of trying to lock the mutex.
enum Attempt<T> {
    Locked(Box<T>),
    /// The thread is in the queue, under this number.
    Queued(u64),
    Forked,
    Closed,
    /// The thread holds the mutex already.
    Inside,
}

impl<T: Send> FairMutex<T> {
    pub(crate) fn new(what: &'static str, value: T) -> Self {
        let state = State {
            value: Some(Box::new(value)),
            holder: None,
            queue: VecDeque::new(),
            next_number: 0,
        };
        let (state, released) = (Mutex::new(state), Condvar::new());
        let is_closed = AtomicBool::new(false);
        Self { what, state, released, is_closed, process: std::process::id() }
    }

    /// Waits until this thread holds the mutex. Returns `None` if that takes longer than until `deadline`.
    pub(crate) fn lock(
        &self,
        py: Python<'_>,
        deadline: Option<Instant>,
    ) -> PyResult<Option<Guard<'_, T>>> {
        let me = std::thread::current().id();
        let number = match self.try_lock(me) {
            Attempt::Locked(value) => return Ok(Some(Guard { mutex: self, value: Some(value) })),
            Attempt::Queued(number) => number,
            Attempt::Forked => return Err(errors::forked(py)),
            Attempt::Closed => return Err(errors::closed(py, self.what)),
            Attempt::Inside => {
                let message = format!("this thread is already inside a call of the {}", self.what);
                return Err(errors::other(py, message));
            }
        };
        let answer = self.wait(py, me, number, deadline);
        if !matches!(answer, Ok(Some(_))) {
            if let Some(mut state) = self.state() {
                state.queue.retain(|waiting| waiting.number != number);
            }
            self.released.notify_all();
        }
        answer
    }

    /// Locks the mutex if no thread holds it or waits for it, or enters the queue. The caller makes the exceptions,
    /// after the state was unlocked: for a new object Python may run a finalizer, which may call this, too.
    fn try_lock(&self, me: ThreadId) -> Attempt<T> {
        let Some(mut state) = self.state() else { return Attempt::Forked };
        if self.is_closed() {
            return Attempt::Closed;
        }
        if state.is_next(None)
            && let Some(value) = state.value.take()
        {
            state.holder = Some(me);
            return Attempt::Locked(value);
        }
        if state.holder == Some(me) {
            return Attempt::Inside;
        }
        let number = state.next_number;
        state.next_number += 1;
        state.queue.push_back(Waiting { number, is_aside: false });
        Attempt::Queued(number)
    }

    fn wait(
        &self,
        py: Python<'_>,
        me: ThreadId,
        number: u64,
        deadline: Option<Instant>,
    ) -> PyResult<Option<Guard<'_, T>>> {
        loop {
            if self.is_forked() {
                return Err(errors::forked(py));
            }
            let Some(slice) = blocking::slice_until(deadline) else { return Ok(None) };
            let value = py.detach(|| {
                let is_mine = |state: &mut State<T>| {
                    self.is_closed() || (state.value.is_some() && state.is_next(Some(number)))
                };
                let state = self.state()?;
                let (mut state, _) = self
                    .released
                    .wait_timeout_while(state, slice, |state| !is_mine(state))
                    .unwrap_or_else(PoisonError::into_inner);
                if self.is_closed() || !is_mine(&mut state) {
                    return None;
                }
                state.queue.retain(|waiting| waiting.number != number);
                state.holder = Some(me);
                state.value.take()
            });
            if value.is_some() {
                return Ok(Some(Guard { mutex: self, value }));
            }
            if self.is_closed() {
                return Err(errors::closed(py, self.what));
            }
            self.stand_aside(number, true);
            let answer = py.check_signals();
            self.stand_aside(number, false);
            answer?;
        }
    }

    /// Sets whether others may pass this thread.
    fn stand_aside(&self, number: u64, is_aside: bool) {
        let Some(mut state) = self.state() else { return };
        let found = state.queue.iter_mut().find(|waiting| waiting.number == number);
        if let Some(waiting) = found {
            waiting.is_aside = is_aside;
        }
        let is_another_next = is_aside && state.value.is_some() && state.queue.len() > 1;
        drop(state);
        if is_another_next {
            self.released.notify_all();
        }
    }

    /// Closes the mutex: waiting and later calls fail. Returns the value, unless a thread holds it, which then drops it.
    pub(crate) fn close(&self) -> Option<Box<T>> {
        let state = self.state();
        self.is_closed.store(true, Ordering::Release);
        let value = state.and_then(|mut state| state.value.take());
        self.released.notify_all();
        value
    }
}

impl<T> FairMutex<T> {
    /// Whether it was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Whether this is the child of a fork.
    pub(crate) fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }

    /// Locks the state. Returns `None` in the child of a fork if a thread of the parent had locked it, because that
    /// thread never unlocks it here. Only in that case the process id is read, which is a system call.
    fn state(&self) -> Option<MutexGuard<'_, State<T>>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if self.is_forked() => None,
            Err(TryLockError::WouldBlock) => {
                Some(self.state.lock().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }
}

impl<T> State<T> {
    /// Returns whether no other thread is before this number. Every waiting thread is before `None`.
    fn is_next(&self, number: Option<u64>) -> bool {
        let first = self.queue.iter().find(|waiting| !waiting.is_aside);
        first.is_none_or(|waiting| Some(waiting.number) == number)
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_deref().expect("set until it is dropped")
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_deref_mut().expect("set until it is dropped")
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        let Some(mut state) = self.mutex.state() else { return };
        state.holder = None;
        if !self.mutex.is_closed() {
            state.value = self.value.take();
        }
        let is_awaited = !state.queue.is_empty();
        drop(state);
        if is_awaited {
            self.mutex.released.notify_all();
        }
        // If it was closed meanwhile, `value` is still set and is dropped here, after the state was unlocked.
    }
}
