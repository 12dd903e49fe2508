//! The classes `Inlet` and `InletTopic`.

use crate::blocking::{self, Detached};
use crate::buffer::Payload;
use crate::stats::instance;
use crate::{errors, settings};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use toroni::{Lost, LostBound, LostReason, Pattern, Policy, PublishError, StreamKey};

/// Publishes messages that were first published elsewhere, and losses of such messages; made by Bus.inlet.
///
/// It is for programs that connect buses: a bridge, a receiver of a network, a replay. It is a participant of its own.
///
/// Each message arrives once. The bus keeps the lowest number of each stream that has not arrived, even if the process
/// that brings the stream is killed. A message with a lower number is a duplicate: it is dropped and counted. So a
/// program that restarts, or a second one, may publish everything again. One inlet at a time brings a stream.
/// Another one raises Taken until the first is closed or its process has ended.
///
/// Threads may share an inlet. Other threads of Python run while it publishes. In the child of a fork, its methods
/// raise Forked. Its with statement closes it.
#[pyclass(frozen, weakref, module = "toroni")]
pub(crate) struct Inlet {
    inner: Mutex<Option<Arc<Detached<toroni::Inlet>>>>,
    /// The longest time for which the library works before this checks for signals.
    slice: Duration,
}

/// A topic of an inlet; made by Inlet.topic.
#[pyclass(frozen, weakref, module = "toroni")]
pub(crate) struct InletTopic {
    topic: toroni::InletTopic,
    name: Py<PyString>,
}

/// A message whose values have been converted from Python.
struct Converted {
    topic: Py<InletTopic>,
    parts: Vec<Payload>,
    origin: Option<toroni::Origin>,
    open_from: Option<u64>,
    number: Option<u64>,
    timestamp_ns: Option<u64>,
    to_descendants: bool,
}

#[pymethods]
impl Inlet {
    /// Whether this handle was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.lock().is_none()
    }

    /// How many messages and losses this inlet has dropped because they had arrived before.
    #[getter]
    fn duplicates(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.handle(py)?.duplicates())
    }

    /// Makes a topic to publish on, which is a path such as plant/boiler/temperature. While the topic table of the bus
    /// is less than half full, a new topic is entered there. Beyond that, the name travels with each message.
    ///
    /// With retained, the bus keeps the newest message of the topic from now on; see Bus.publisher. An inlet publishes a
    /// message even if the bus has no room for it. The value is then missing, and readers get ValueMissing.
    #[pyo3(signature = (topic, *, retained=false))]
    fn topic(&self, py: Python<'_>, topic: &str, retained: bool) -> PyResult<InletTopic> {
        let inlet = self.handle(py)?;
        let name = PyString::new(py, topic).unbind();
        let made = py.detach(|| inlet.topic(topic));
        let mut topic = made.map_err(|error| errors::on_publisher(py, &error))?;
        if retained {
            let answer = py.detach(|| inlet.retain(&mut topic));
            answer.map_err(|error| errors::on_retain(py, &error))?;
        }
        Ok(InletTopic { name, topic })
    }

    /// Claims a stream for this inlet, and returns how far it has arrived, a toroni.Arrived. Publishing does the same
    /// when it first meets a stream. Call this to learn what need not be sent again. A stream of which nothing has arrived
    /// is claimed by its first message. Waits for other publishers; raises Timeout after timeout seconds, and Taken as
    /// publish does.
    #[pyo3(signature = (source, series, stream, timeout=None))]
    fn claim<'py>(
        &self,
        py: Python<'py>,
        source: &Bound<'py, PyAny>,
        series: &Bound<'py, PyAny>,
        stream: &Bound<'py, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let source = settings::integer("source", source)?;
        let series = settings::integer("series", series)?;
        let stream = settings::integer("stream", stream)?;
        let key = StreamKey { source, series, stream };
        let timeout = settings::timeout(py, timeout)?;
        let arrived =
            self.wait(py, timeout, blocking::SLICE, |inlet, slice| inlet.claim(key, slice))?;
        instance!(py, "Arrived", { next: arrived.next, taken_over: arrived.taken_over })
    }

    /// Publishes a message on a topic, unless it has arrived before. payload is an object with the buffer protocol, or
    /// a list or tuple of them, which are written one after the other. The other arguments are the fields of
    /// toroni.Entry. Waits as Publisher.publish does. Raises Timeout after timeout seconds, Taken if another inlet
    /// brings the stream, TooManyArrivals if the bus cannot keep track of another stream, and Invalid if a number is
    /// too large or another inlet made the topic.
    #[expect(clippy::too_many_arguments, reason = "they are keyword arguments in Python")]
    #[pyo3(signature = (topic, payload, timeout=None, *, origin=None, open_from=None, number=None, timestamp_ns=None, to_descendants=false))]
    fn publish(
        &self,
        py: Python<'_>,
        topic: Py<InletTopic>,
        payload: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        origin: Option<&Bound<'_, PyAny>>,
        open_from: Option<&Bound<'_, PyAny>>,
        number: Option<&Bound<'_, PyAny>>,
        timestamp_ns: Option<&Bound<'_, PyAny>>,
        to_descendants: bool,
    ) -> PyResult<()> {
        let entry = Converted {
            topic,
            parts: parts(payload)?,
            origin: origin.map(|origin| self::origin("origin", origin)).transpose()?,
            open_from: optional("open_from", open_from)?,
            number: optional("number", number)?,
            timestamp_ns: optional("timestamp_ns", timestamp_ns)?,
            to_descendants,
        };
        self.publish_all(py, &[entry], settings::timeout(py, timeout)?, &mut 0)
    }

    /// Publishes many messages, each visible at once, on any topics. entries is an iterable of toroni.Entry. Each
    /// exception that it raises has the attribute published: the number of messages, from the front, that are published
    /// or were dropped as duplicates. Waits and raises as publish does.
    #[pyo3(signature = (entries, timeout=None))]
    fn burst(
        &self,
        py: Python<'_>,
        entries: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let mut published = 0;
        let answer = entries
            .try_iter()
            .and_then(|all| all.map(|entry| converted(&entry?)).collect::<PyResult<Vec<_>>>())
            .and_then(|entries| {
                let timeout = settings::timeout(py, timeout)?;
                self.publish_all(py, &entries, timeout, &mut published)
            });
        answer.inspect_err(|error| errors::set_published(py, error, published))
    }

    /// Reports to subscribers that messages were lost on the way here, at this place of the order. The numbers of the
    /// loss count as arrived: if all of them have arrived before, the loss is dropped as a duplicate.
    ///
    /// start: the stream, and in its number the first one that may be lost
    /// until: the number after the last one that may be lost
    /// messages: how many were lost; may be less than the difference, which also counts messages of other streams
    /// reason: "gone", "budget", "memory", "burst", "jump", "restart", "silent", "topic", "too_long", "overtaken" or
    ///     "diverged"; see toroni.Lost
    /// scope: one to 16 patterns of the topics that they may have had
    /// bound: how exact messages is: "exact" (default), "at_least" or "at_most"
    /// open_from: as in toroni.Entry
    #[expect(clippy::too_many_arguments, reason = "they are keyword arguments in Python")]
    #[pyo3(signature = (start, until, timeout=None, *, messages, reason, scope, bound="exact", open_from=None))]
    fn publish_lost(
        &self,
        py: Python<'_>,
        start: &Bound<'_, PyAny>,
        until: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        messages: &Bound<'_, PyAny>,
        reason: &str,
        scope: &Bound<'_, PyAny>,
        bound: &str,
        open_from: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let scope = settings::strings("scope", scope)?
            .into_iter()
            .map(|pattern| Pattern::new(&pattern).map_err(|error| errors::on_pattern(py, &error)));
        let reasons: Vec<_> = LostReason::ALL.iter().map(|one| (one.as_str(), *one)).collect();
        let lost = Lost {
            from: origin("start", start)?,
            until: settings::integer("until", until)?,
            messages: settings::integer("messages", messages)?,
            bound: settings::word(
                py,
                "bound",
                bound,
                &LostBound::ALL.map(|one| (one.as_str(), one)),
                "",
            )?,
            reason: settings::word(py, "reason", reason, &reasons, "")?,
            scope: scope.collect::<PyResult<_>>()?,
        };
        let open_from = optional("open_from", open_from)?;
        let timeout = settings::timeout(py, timeout)?;
        self.wait(py, timeout, self.slice, |inlet, slice| {
            inlet.publish_lost(&lost, open_from, slice)
        })
    }

    /// States how far a stream has arrived, without publishing anything: all numbers below that of next, a
    /// toroni.Origin, have arrived, or were reported. A number that is not above what the bus knows changes nothing.
    /// Waits for other publishers; raises Timeout after timeout seconds, and Taken and TooManyArrivals as publish does.
    #[pyo3(signature = (next, timeout=None))]
    fn advance(
        &self,
        py: Python<'_>,
        next: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let next = origin("next", next)?;
        let timeout = settings::timeout(py, timeout)?;
        self.wait(py, timeout, blocking::SLICE, |inlet, slice| inlet.advance(next, slice))
    }

    /// Closes this inlet, so that another one can bring its streams. A running call of another thread still completes.
    /// The bus stays open.
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

    fn __repr__(&self) -> String {
        format!("<toroni.Inlet{}>", if self.closed() { ", closed" } else { "" })
    }
}

#[pymethods]
impl InletTopic {
    /// The topic.
    #[getter]
    fn topic(&self, py: Python<'_>) -> Py<PyString> {
        self.name.clone_ref(py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let topic = self.name.bind(py).to_cow()?;
        Ok(format!("<toroni.InletTopic {topic:?}>"))
    }
}

impl Inlet {
    pub(crate) fn made(
        py: Python<'_>,
        bus: &toroni::Bus,
        bus_policy: Policy,
        policy: Option<Policy>,
    ) -> PyResult<Self> {
        let made = py.detach(|| bus.inlet());
        let mut inlet = made.map_err(|error| errors::on_publisher(py, &error))?;
        let policy = policy.unwrap_or(bus_policy);
        if policy != bus_policy {
            // An inlet that is refused is dropped.
            let made = py.detach(|| inlet.with_policy(policy));
            inlet = made.map_err(|error| errors::invalid(py, error.to_string()))?;
        }
        // The limit of the policy starts again with each call of the library. So a call takes longer than it.
        let slice = match policy {
            Policy::Wait { limit: Some(limit) } => limit.saturating_add(blocking::SLICE),
            _ => blocking::SLICE,
        };
        Ok(Self { inner: Mutex::new(Some(Arc::new(Detached::new(inlet)))), slice })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Detached<toroni::Inlet>>>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, py: Python<'_>) -> PyResult<Arc<Detached<toroni::Inlet>>> {
        // The mutex is unlocked before the exception is made, as in a publisher.
        let inlet = self.lock().clone();
        inlet.ok_or_else(|| errors::closed(py, "inlet"))
    }

    fn publish_all(
        &self,
        py: Python<'_>,
        entries: &[Converted],
        timeout: Option<Duration>,
        published: &mut usize,
    ) -> PyResult<()> {
        let parts: Vec<Vec<&[u8]>> =
            entries.iter().map(|entry| entry.parts.iter().map(AsRef::as_ref).collect()).collect();
        let entries: Vec<toroni::Entry<'_>> = entries
            .iter()
            .zip(&parts)
            .map(|(entry, parts)| toroni::Entry {
                to_descendants: entry.to_descendants,
                published_ns: entry.timestamp_ns,
                origin: entry.origin,
                open_from: entry.open_from,
                number: entry.number,
                ..toroni::Entry::new(&entry.topic.get().topic, parts)
            })
            .collect();
        self.wait(py, timeout, self.slice, |inlet, slice| {
            inlet.publish(&entries[*published..], slice).map_err(|error| {
                *published += error.published;
                error.source
            })
        })
    }

    /// Calls repeatedly, each time with a timeout of at most `longest`, and checks for signals in between.
    fn wait<R: Send>(
        &self,
        py: Python<'_>,
        timeout: Option<Duration>,
        longest: Duration,
        mut call: impl FnMut(&toroni::Inlet, Duration) -> Result<R, PublishError> + Send,
    ) -> PyResult<R> {
        let inlet = self.handle(py)?;
        let deadline = blocking::deadline(timeout);
        loop {
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            let slice = left.map_or(longest, |left| left.min(longest));
            match py.detach(|| call(&inlet, slice)) {
                Ok(answer) => return Ok(answer),
                Err(PublishError::Timeout) if left.is_none_or(|left| left > slice) => {}
                Err(error) => return Err(errors::on_publish(py, &error)),
            }
            py.check_signals()?;
        }
    }
}

/// Converts an object with the buffer protocol, or a list or tuple of them.
fn parts(payload: &Bound<'_, PyAny>) -> PyResult<Vec<Payload>> {
    if let Ok(list) = payload.cast::<PyList>() {
        return list.iter().map(|part| Payload::of(&part)).collect();
    }
    if let Ok(tuple) = payload.cast::<PyTuple>() {
        return tuple.iter().map(|part| Payload::of(&part)).collect();
    }
    Ok(vec![Payload::of(payload)?])
}

/// Converts a `toroni.Entry`.
fn converted(entry: &Bound<'_, PyAny>) -> PyResult<Converted> {
    let Ok(topic) = entry.getattr("topic").and_then(|topic| Ok(topic.cast_into::<InletTopic>()?))
    else {
        return Err(settings::wrong_type("an entry", entry, "a toroni.Entry"));
    };
    let field = |name: &str| entry.getattr(name);
    let given = |name: &str| field(name).map(|value| (!value.is_none()).then_some(value));
    let number = |name: &str| optional(name, given(name)?.as_ref());
    Ok(Converted {
        topic: topic.unbind(),
        parts: parts(&field("payload")?)?,
        origin: given("origin")?.map(|value| origin("origin", &value)).transpose()?,
        open_from: number("open_from")?,
        number: number("number")?,
        timestamp_ns: number("timestamp_ns")?,
        to_descendants: settings::flag("to_descendants", &field("to_descendants")?)?,
    })
}

fn optional(name: &str, value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<u64>> {
    value.map(|value| settings::integer(name, value)).transpose()
}

/// Converts a `toroni.Origin`, or a tuple of its four numbers.
fn origin(name: &str, value: &Bound<'_, PyAny>) -> PyResult<toroni::Origin> {
    let tuple = value.cast::<PyTuple>().ok().filter(|tuple| tuple.len() == 4);
    let tuple = tuple.ok_or_else(|| settings::wrong_type(name, value, "a toroni.Origin"))?;
    Ok(toroni::Origin {
        source: settings::integer("source", &tuple.get_item(0)?)?,
        series: settings::integer("series", &tuple.get_item(1)?)?,
        stream: settings::integer("stream", &tuple.get_item(2)?)?,
        number: settings::integer("number", &tuple.get_item(3)?)?,
    })
}

/// Makes a `toroni.Origin`.
pub(crate) fn of_origin(py: Python<'_>, origin: toroni::Origin) -> PyResult<Bound<'_, PyAny>> {
    let toroni::Origin { source, series, stream, number } = origin;
    instance!(py, "Origin", { source: source, series: series, stream: stream, number: number })
}

/// Returns the arguments of the exception `toroni.Lost`.
pub(crate) fn arguments_of_lost<'py>(
    py: Python<'py>,
    lost: &Lost,
    message: String,
) -> PyResult<Bound<'py, PyTuple>> {
    let Lost { from, until, messages, bound, reason, scope } = lost;
    let scope = PyTuple::new(py, scope.iter().map(Pattern::as_str))?;
    let (start, bound, reason) = (of_origin(py, *from)?, bound.as_str(), reason.as_str());
    (message, start, *until, *messages, bound, reason, scope).into_pyobject(py)
}
