//! The class `Publisher`.

use crate::blocking::{self, Detached};
use crate::buffer::{Payload, Payloads};
use crate::{errors, settings};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyRange, PyString, PyType};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use toroni::{InvalidSetting, Policy, PublishError};

/// Up to this many bytes, a message is copied without letting other threads of Python run, which would cost more than
/// the copy.
pub(crate) const SMALL: usize = 16 << 10;

/// Publishes messages on one topic of a bus; made by Bus.publisher.
///
/// A payload is any object with the buffer protocol, in one piece: bytes, bytearray, memoryview, a contiguous
/// numpy array. A buffer that holds Python objects or pointers raises BufferError: another process cannot use
/// the addresses in it. The bytes are copied once, to where subscribers read them. Threads may share a publisher.
/// Other threads of Python run while it waits, and while it copies a large message. In the child of a fork, its
/// methods raise Forked.
#[pyclass(frozen, weakref, module = "toroni")]
pub(crate) struct Publisher {
    inner: Mutex<Option<Arc<Handle>>>,
    topic: Py<PyString>,
    largest_message: u64,
}

struct Handle {
    publisher: Detached<toroni::Publisher>,
    /// The longest wait for slow subscribers that the policy allows, if it may take several calls of the library. There
    /// is one call between two checks for signals.
    limit: Option<Duration>,
}

#[pymethods]
impl Publisher {
    /// The topic.
    #[getter]
    fn topic(&self, py: Python<'_>) -> Py<PyString> {
        self.topic.clone_ref(py)
    }

    /// Size of the largest message that this publisher can publish, in bytes. With retained=True, a value may have to be
    /// shorter: it takes at most a quarter of the bytes for values, and publish raises ValueTooLong beyond that.
    #[getter]
    fn largest_message(&self) -> u64 {
        self.largest_message
    }

    /// Whether this handle was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.lock().is_none()
    }

    /// Publishes a message, and returns its sequence, which is the sequence of the message for each subscriber that
    /// receives it. Waits for other publishers, and for slow subscribers as the policy says. Raises Timeout after
    /// timeout seconds, and TooLong if the message has more than largest_message bytes. With retained=True, raises
    /// ValueTooLong or RetainedFull if the bus has no room for the value. Then nothing is published.
    #[pyo3(signature = (payload, timeout=None))]
    fn publish(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<u64> {
        let handle = self.handle(py)?;
        let payload = Payload::of(payload)?;
        let timeout = settings::timeout(py, timeout)?;
        let bytes = payload.as_ref();
        // A small message lets no other threads of Python run, if it needs no wait.
        if bytes.len() <= SMALL
            && let Some(sequence) = unless_it_waits(py, handle.publisher.try_publish(bytes))?
        {
            return Ok(sequence);
        }
        handle.wait(py, timeout, |publisher, slice| publisher.publish_within(bytes, slice))
    }

    /// Publishes a message without waiting, for event loops, and returns its sequence. Returns None if the ring is full
    /// because a subscriber is slow, or if another publisher is publishing. The first message of a bus has the sequence
    /// 0, so compare with None.
    fn try_publish(&self, py: Python<'_>, payload: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        let handle = self.handle(py)?;
        let payload = Payload::of(payload)?;
        let bytes = payload.as_ref();
        let answer = if bytes.len() <= SMALL {
            handle.publisher.try_publish(bytes)
        } else {
            py.detach(|| handle.publisher.try_publish(bytes))
        };
        unless_it_waits(py, answer)
    }

    /// Publishes messages that become visible together, all or none, one after the other. payloads is an iterable
    /// of payloads, or an array with two or more dimensions, in which each row is a message. Returns the range of their
    /// sequences. Raises TooLong if they need more than half of the ring. Waits as publish does.
    #[pyo3(signature = (payloads, timeout=None))]
    fn publish_batch(
        &self,
        py: Python<'_>,
        payloads: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyRange>> {
        let sequences = self.with_many(py, payloads, timeout, |handle, payloads, timeout| {
            handle.wait(py, timeout, |publisher, slice| publisher.publish_batch(payloads, slice))
        })?;
        range(py, &sequences)
    }

    /// Publishes many messages, each visible at once; the fastest way. payloads is what publish_batch takes. Other
    /// publishers wait until it ends or has to wait for subscribers itself. Each exception that it raises has the
    /// attribute published: the number of messages, from the front, that are published.
    #[pyo3(signature = (payloads, timeout=None))]
    fn burst(
        &self,
        py: Python<'_>,
        payloads: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let mut published = 0;
        let answer = self.with_many(py, payloads, timeout, |handle, payloads, timeout| {
            handle.wait_counting(py, timeout, &mut published, |publisher, slice, published| {
                publisher.burst(&payloads[*published..], slice).map_err(|error| {
                    *published += error.published;
                    error.source
                })
            })
        });
        answer.inspect_err(|error| errors::set_published(py, error, published))
    }

    /// Clears the value of the topic, and returns the sequence of the clear. The topic then has no value until its next
    /// message. Subscribers with retained=True receive a message that is_cleared; others notice nothing. A message without
    /// bytes is a value, and clears nothing. Waits as publish does. Raises NotRetained if this publisher was made without
    /// retained=True.
    #[pyo3(signature = (timeout=None))]
    fn clear(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<u64> {
        let handle = self.handle(py)?;
        let timeout = settings::timeout(py, timeout)?;
        handle.wait(py, timeout, |publisher, slice| publisher.clear(slice))
    }

    /// Returns a context manager for a message of length bytes that the body of the with statement writes. The body
    /// gets a writable memoryview with undefined contents. The message is published at the end of the body, unless
    /// the body raises. See toroni.Composition.
    #[pyo3(signature = (length, timeout=None))]
    fn compose(slf: &Bound<'_, Self>, length: usize, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        let py = slf.py();
        slf.get().handle(py)?;
        Ok(CLASS
            .import(py, "toroni._composition", "Composition")?
            .call1((slf.getattr("publish")?, slf, length, timeout))?
            .unbind())
    }

    /// Closes this publisher. A running call of another thread still completes. The bus stays open.
    fn close(&self) {
        let inner = self.lock().take();
        drop(inner);
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyAny>) {
        self.close();
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let topic = self.topic.bind(py).to_cow()?;
        Ok(format!(
            "<toroni.Publisher on {topic:?}{}>",
            if self.closed() { ", closed" } else { "" }
        ))
    }
}

impl Publisher {
    pub(crate) fn made(
        py: Python<'_>,
        mut publisher: toroni::Publisher,
        bus_policy: toroni::Policy,
        policy: Option<toroni::Policy>,
        retained: bool,
    ) -> PyResult<Self> {
        let policy = policy.unwrap_or(bus_policy);
        if policy != bus_policy {
            publisher = publisher
                .with_policy(policy)
                .map_err(|error| errors::invalid(py, error.to_string()))?;
        }
        // Last, because a declaration lasts: a call that raises must not leave one.
        if retained {
            let answer = py.detach(|| publisher.retained());
            publisher = answer.map_err(|error| errors::on_retain(py, &error))?;
        }
        let limit = longest_wait(policy);
        Ok(Self {
            topic: PyString::new(py, publisher.topic().as_str()).unbind(),
            largest_message: publisher.largest_message(),
            inner: Mutex::new(Some(Arc::new(Handle {
                publisher: Detached::new(publisher),
                limit,
            }))),
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Arc<Handle>>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn handle(&self, py: Python<'_>) -> PyResult<Arc<Handle>> {
        // The mutex is unlocked before the exception is made: Python may then run a finalizer, which may use this, too.
        let handle = self.lock().clone();
        handle.ok_or_else(|| errors::closed(py, "publisher"))
    }

    /// Calls a function that publishes many messages. All arguments are checked before any message is published.
    fn with_many<R>(
        &self,
        py: Python<'_>,
        payloads: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        call: impl FnOnce(&Handle, &[&[u8]], Option<Duration>) -> PyResult<R>,
    ) -> PyResult<R> {
        let handle = self.handle(py)?;
        let payloads = Payloads::of(payloads)?;
        let timeout = settings::timeout(py, timeout)?;
        payloads.with(|payloads| call(&handle, payloads, timeout))
    }
}

impl Handle {
    #[inline]
    fn wait<R: Send>(
        &self,
        py: Python<'_>,
        timeout: Option<Duration>,
        call: impl Fn(&toroni::Publisher, Duration) -> Result<R, PublishError> + Sync,
    ) -> PyResult<R> {
        self.wait_counting(py, timeout, &mut 0, |publisher, slice, _| call(publisher, slice))
    }

    fn wait_counting<R: Send>(
        &self,
        py: Python<'_>,
        timeout: Option<Duration>,
        count: &mut usize,
        call: impl Fn(&toroni::Publisher, Duration, &mut usize) -> Result<R, PublishError> + Sync,
    ) -> PyResult<R> {
        wait(py, &*self.publisher, self.limit, timeout, count, |publisher, slice, count| {
            Ok(py.detach(|| call(publisher, slice, count)))
        })
    }
}

/// Makes a `range` of sequences.
pub(crate) fn range(py: Python<'_>, sequences: &Range<u64>) -> PyResult<Py<PyRange>> {
    // Python's constructor takes each integer; `PyRange::new` takes only those of a word of the machine.
    let range = py.get_type::<PyRange>().call1((sequences.start, sequences.end))?;
    Ok(range.cast_into::<PyRange>()?.unbind())
}

/// Converts the answer of a call that does not wait: `None` if it would have to.
#[inline]
pub(crate) fn unless_it_waits<R>(
    py: Python<'_>,
    answer: Result<R, PublishError>,
) -> PyResult<Option<R>> {
    match answer {
        Ok(published) => Ok(Some(published)),
        Err(PublishError::Full | PublishError::Busy) => Ok(None),
        Err(error) => Err(errors::on_publish(py, &error)),
    }
}

/// Returns the longest wait for slow subscribers that a policy allows, if it may take several calls of the library.
pub(crate) fn longest_wait(policy: Policy) -> Option<Duration> {
    match policy {
        Policy::Wait { limit } => limit.filter(|limit| *limit > blocking::SLICE / 2),
        _ => None,
    }
}

/// What messages are published on: a publisher, or a topic of an exclusive one.
pub(crate) trait WithPolicy: Clone {
    fn with_policy(self, policy: Policy) -> Result<Self, InvalidSetting>;
}

impl WithPolicy for toroni::Publisher {
    fn with_policy(self, policy: Policy) -> Result<Self, InvalidSetting> {
        Self::with_policy(self, policy)
    }
}

/// Calls repeatedly, each time with a short timeout, and checks for signals in between. The limit of the policy would
/// start again with each call. So when the limit has expired over all calls, this continues with a publisher that does
/// not wait for subscribers.
pub(crate) fn wait<P: WithPolicy, R>(
    py: Python<'_>,
    publisher: &P,
    longest: Option<Duration>,
    timeout: Option<Duration>,
    count: &mut usize,
    mut call: impl FnMut(&P, Duration, &mut usize) -> PyResult<Result<R, PublishError>>,
) -> PyResult<R> {
    let deadline = blocking::deadline(timeout);
    let mut limit = longest.and_then(|limit| Instant::now().checked_add(limit));
    let mut not_waiting = None;
    loop {
        let slice = blocking::slice_until(deadline).unwrap_or_default();
        let before = *count;
        match call(not_waiting.as_ref().unwrap_or(publisher), slice, count)? {
            Ok(published) => return Ok(published),
            Err(PublishError::Timeout) => {
                if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                    return Err(errors::on_publish(py, &PublishError::Timeout));
                }
            }
            Err(error) => return Err(errors::on_publish(py, &error)),
        }
        py.check_signals()?;
        if *count > before {
            // In a burst, each message has its own limit.
            limit = longest.and_then(|limit| Instant::now().checked_add(limit));
            not_waiting = None;
        }
        if not_waiting.is_none() && limit.is_some_and(|limit| limit <= Instant::now()) {
            let publisher = publisher.clone().with_policy(Policy::Overwrite);
            not_waiting = Some(publisher.map_err(|error| errors::other(py, error))?);
        }
    }
}
