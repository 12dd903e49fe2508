//! The classes `ExclusivePublisher` and `ExclusiveTopic`.

use crate::blocking::{self, Detached};
use crate::buffer::{Payload, Payloads};
use crate::fair_mutex::FairMutex;
use crate::publisher::{SMALL, longest_wait, range, unless_it_waits, wait};
use crate::{errors, settings};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyRange, PyString};
use std::time::{Duration, Instant};
use toroni::{ExclusiveError, InvalidSetting, Limit, Policy, PublishError};

/// The only publisher of a bus, until it is closed; made by Bus.exclusive.
///
/// It keeps the writer lock, so each message costs less than that of a Publisher. It publishes on any number of topics,
/// which its method topic makes. Every other call that publishes on the bus, in this process or another one, raises
/// Exclusive at once. After close, or when the process ends, however it ends, others can publish again. Its with
/// statement closes it.
///
/// Payloads, waits and compositions are those of a Publisher. Threads may share it: it serves one thread at a time, in
/// the order in which the threads called. In the child of a fork, its methods raise Forked.
#[pyclass(frozen, weakref, module = "toroni")]
pub(crate) struct ExclusivePublisher {
    exclusive: FairMutex<Detached<toroni::Exclusive>>,
    bus_policy: Policy,
}

/// A topic of an exclusive publisher; made by ExclusivePublisher.topic. It can be used with each exclusive publisher
/// that the same Bus makes.
#[pyclass(frozen, weakref, module = "toroni")]
pub(crate) struct ExclusiveTopic {
    topic: Detached<toroni::ExclusiveTopic>,
    name: Py<PyString>,
    /// As in a publisher.
    limit: Option<Duration>,
}

#[pymethods]
impl ExclusivePublisher {
    /// Whether this handle was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.exclusive.is_closed()
    }

    /// Makes a topic to publish on, which is a path such as plant/boiler/temperature. The arguments are those of
    /// Bus.publisher.
    #[pyo3(signature = (topic, *, to_descendants=false, policy=None, retained=false))]
    fn topic(
        &self,
        py: Python<'_>,
        topic: &str,
        to_descendants: bool,
        policy: Option<&Bound<'_, PyAny>>,
        retained: bool,
    ) -> PyResult<ExclusiveTopic> {
        let policy = policy.map(|policy| settings::policy("policy", policy)).transpose()?;
        let made = self.locked(py, None, |exclusive| py.detach(move || exclusive.topic(topic)))?;
        let timeout = || errors::on_publish(py, &PublishError::Timeout);
        let made = made.ok_or_else(timeout)?;
        let mut made = made.map_err(|error| errors::on_publisher(py, &error))?;
        made = made.to_descendants(to_descendants);
        let policy = policy.unwrap_or(self.bus_policy);
        if policy != self.bus_policy {
            made =
                made.with_policy(policy).map_err(|error| errors::invalid(py, error.to_string()))?;
        }
        // Last, as in a publisher.
        if retained {
            let answer =
                self.locked(py, None, |exclusive| py.detach(move || exclusive.retained(made)))?;
            let answer = answer.ok_or_else(timeout)?;
            made = answer.map_err(|error| errors::on_retain(py, &error))?;
        }
        Ok(ExclusiveTopic {
            name: PyString::new(py, made.topic().as_str()).unbind(),
            limit: longest_wait(policy),
            topic: Detached::new(made),
        })
    }

    /// Publishes a message on a topic, and returns its sequence. Waits for slow subscribers as the policy says, and keeps
    /// the lock meanwhile. Raises Timeout after timeout seconds, and TooLong if the message has more than
    /// topic.largest_message bytes.
    #[pyo3(signature = (topic, payload, timeout=None))]
    fn publish(
        &self,
        py: Python<'_>,
        topic: &Bound<'_, ExclusiveTopic>,
        payload: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<u64> {
        let topic = topic.get();
        let payload = Payload::of(payload)?;
        let timeout = settings::timeout(py, timeout)?;
        let bytes = payload.as_ref();
        if bytes.len() <= SMALL {
            let deadline = blocking::deadline(timeout);
            let answer = self.locked(py, deadline, |exclusive| {
                exclusive.publish(&topic.topic, bytes, Limit::Try)
            })?;
            if let Some(answer) = answer
                && let Some(sequence) = unless_it_waits(py, answer)?
            {
                return Ok(sequence);
            }
        }
        self.wait(py, topic, timeout, &mut 0, |exclusive, topic, slice, _| {
            exclusive.publish(topic, bytes, slice)
        })
    }

    /// Publishes a message without waiting, for event loops, and returns its sequence. Returns None if the ring is full
    /// because a subscriber is slow, or if another thread uses this publisher. The first message of a bus has the
    /// sequence 0, so compare with None.
    fn try_publish(
        &self,
        py: Python<'_>,
        topic: &Bound<'_, ExclusiveTopic>,
        payload: &Bound<'_, PyAny>,
    ) -> PyResult<Option<u64>> {
        let topic = &topic.get().topic;
        let payload = Payload::of(payload)?;
        let bytes = payload.as_ref();
        let answer = self.locked(py, Some(Instant::now()), |exclusive| {
            if bytes.len() <= SMALL {
                exclusive.publish(topic, bytes, Limit::Try)
            } else {
                py.detach(move || exclusive.publish(topic, bytes, Limit::Try))
            }
        })?;
        answer.map_or(Ok(None), |answer| unless_it_waits(py, answer))
    }

    /// Publishes messages that become visible together, all or none, one after the other; see Publisher.publish_batch.
    #[pyo3(signature = (topic, payloads, timeout=None))]
    fn publish_batch(
        &self,
        py: Python<'_>,
        topic: &Bound<'_, ExclusiveTopic>,
        payloads: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyRange>> {
        let payloads = Payloads::of(payloads)?;
        let timeout = settings::timeout(py, timeout)?;
        let sequences = payloads.with(|payloads| {
            self.wait(py, topic.get(), timeout, &mut 0, |exclusive, topic, slice, _| {
                exclusive.publish_batch(topic, payloads, slice)
            })
        })?;
        range(py, &sequences)
    }

    /// Publishes many messages, each visible at once; the fastest way. Each exception that it raises has the attribute
    /// published; see Publisher.burst. No message of another process comes in between.
    #[pyo3(signature = (topic, payloads, timeout=None))]
    fn burst(
        &self,
        py: Python<'_>,
        topic: &Bound<'_, ExclusiveTopic>,
        payloads: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let mut published = 0;
        let answer = Payloads::of(payloads).and_then(|payloads| {
            let timeout = settings::timeout(py, timeout)?;
            payloads.with(|payloads| {
                let count = &mut published;
                self.wait(py, topic.get(), timeout, count, |exclusive, topic, slice, count| {
                    exclusive.burst(topic, &payloads[*count..], slice).map_err(|error| {
                        *count += error.published;
                        error.source
                    })
                })
            })
        });
        answer.inspect_err(|error| errors::set_published(py, error, published))
    }

    /// Clears the value of a topic, and returns the sequence of the clear; see Publisher.clear.
    #[pyo3(signature = (topic, timeout=None))]
    fn clear(
        &self,
        py: Python<'_>,
        topic: &Bound<'_, ExclusiveTopic>,
        timeout: Option<f64>,
    ) -> PyResult<u64> {
        let timeout = settings::timeout(py, timeout)?;
        self.wait(py, topic.get(), timeout, &mut 0, |exclusive, topic, slice, _| {
            exclusive.clear(topic, slice)
        })
    }

    /// Returns a context manager for a message of length bytes that the body of the with statement writes; see
    /// Publisher.compose.
    #[pyo3(signature = (topic, length, timeout=None))]
    fn compose(
        slf: &Bound<'_, Self>,
        topic: &Bound<'_, ExclusiveTopic>,
        length: usize,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        static FUNCTION: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let py = slf.py();
        if slf.get().closed() {
            return Err(errors::closed(py, WHAT));
        }
        let function = FUNCTION.get_or_try_init(py, || -> PyResult<_> {
            Ok(py.import("toroni._composition")?.getattr("exclusive")?.unbind())
        })?;
        function.call1(py, (slf, topic, length, timeout))
    }

    /// Closes this publisher, so that others can publish. A call of another thread that waits raises Closed, and the
    /// lock is given back when it does. The bus stays open.
    fn close(&self) {
        drop(self.exclusive.close());
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyAny>) {
        self.close();
    }

    fn __repr__(&self) -> String {
        format!("<toroni.ExclusivePublisher{}>", if self.closed() { ", closed" } else { "" })
    }
}

#[pymethods]
impl ExclusiveTopic {
    /// The topic.
    #[getter]
    fn topic(&self, py: Python<'_>) -> Py<PyString> {
        self.name.clone_ref(py)
    }

    /// Size of the largest message that can be published on this topic, in bytes. With retained=True, a value may have to
    /// be shorter; see Publisher.largest_message.
    #[getter]
    fn largest_message(&self) -> u64 {
        self.topic.largest_message()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let topic = self.name.bind(py).to_cow()?;
        Ok(format!("<toroni.ExclusiveTopic {topic:?}>"))
    }
}

/// What errors call it.
const WHAT: &str = "exclusive publisher";

impl ExclusivePublisher {
    /// Waits until there is no other exclusive publisher and no message is being published.
    pub(crate) fn made(
        py: Python<'_>,
        bus: &toroni::Bus,
        bus_policy: Policy,
        timeout: Option<Duration>,
        always_fenced: bool,
    ) -> PyResult<Self> {
        let deadline = blocking::deadline(timeout);
        loop {
            let slice = blocking::slice_until(deadline);
            let end = slice.and_then(|slice| Instant::now().checked_add(slice));
            let answer = py.detach(|| match slice {
                Some(slice) => bus.exclusive_timeout(slice),
                None => bus.try_exclusive(),
            });
            match answer {
                Ok(exclusive) => {
                    exclusive.set_always_fenced(always_fenced);
                    let exclusive = FairMutex::new(WHAT, Detached::new(exclusive));
                    return Ok(Self { exclusive, bus_policy });
                }
                // Before the end of the slice, this Bus itself has an exclusive publisher, and would wait for itself.
                Err(ExclusiveError::Timeout | ExclusiveError::Taken { .. })
                    if end.is_some_and(|end| end <= Instant::now()) => {}
                Err(error) => return Err(errors::on_exclusive(py, &error)),
            }
            py.check_signals()?;
        }
    }

    /// Calls a function while this thread has the publisher. Returns `None` if another thread has it until `deadline`.
    /// The function must not make exceptions, because Python may then run a finalizer, which may use this, too.
    fn locked<R>(
        &self,
        py: Python<'_>,
        deadline: Option<Instant>,
        call: impl FnOnce(&mut Detached<toroni::Exclusive>) -> R,
    ) -> PyResult<Option<R>> {
        let Some(mut guard) = self.exclusive.lock(py, deadline)? else { return Ok(None) };
        Ok(Some(call(&mut guard)))
    }

    /// Calls repeatedly, as [`wait`] says. Between two calls other threads can use the publisher.
    fn wait<R: Send>(
        &self,
        py: Python<'_>,
        topic: &ExclusiveTopic,
        timeout: Option<Duration>,
        count: &mut usize,
        call: impl Fn(
            &toroni::Exclusive,
            &toroni::ExclusiveTopic,
            Duration,
            &mut usize,
        ) -> Result<R, PublishError>
        + Sync,
    ) -> PyResult<R> {
        let (deadline, call) = (blocking::deadline(timeout), &call);
        wait(py, &*topic.topic, topic.limit, timeout, count, |topic, slice, count| {
            let answer = self.locked(py, deadline, |exclusive| {
                py.detach(move || call(exclusive, topic, slice, count))
            })?;
            Ok(answer.unwrap_or(Err(PublishError::Timeout)))
        })
    }
}

impl crate::publisher::WithPolicy for toroni::ExclusiveTopic {
    fn with_policy(self, policy: Policy) -> Result<Self, InvalidSetting> {
        Self::with_policy(self, policy)
    }
}
