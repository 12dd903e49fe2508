//! The class `Subscriber`: one subscriber for all threads of Python, one at a time.

use crate::buffer::Target;
use crate::fair_mutex::{FairMutex, Guard};
use crate::message::{Message, Received};
use crate::{blocking, errors, settings, stats};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use std::collections::HashMap;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::OnceLock;
use std::time::Duration;
use toroni::{Interrupter, ReceiveError};

/// After a message of at least this many bytes, other large ones are expected. Large messages are copied once, from the
/// ring to the object, while other threads of Python run. Small messages are read many at a time.
const LARGE: usize = 64 << 10;

/// The number of bytes that are copied in a row while other threads of Python wait, which is a fraction of a
/// millisecond. Letting them run more often would cost more than the copies: a thread that computes keeps the
/// interpreter for longer.
const MOST_IN_A_ROW: usize = 1 << 20;

/// If the subscriber lags by this many bytes, the next message may be as large, even if no large one was expected.
/// Copying it would take as long as a thread that computes keeps the interpreter.
const FAR_BEHIND: u64 = 8 << 20;

/// The largest number of topic names that are kept as Python objects.
const MOST_NAMES: usize = 4096;

/// Receives the messages of a bus that match its patterns, in the one order of the bus; made by Bus.subscribe.
///
/// for message in subscriber: and async for message in subscriber: receive one message after the other. The loop ends
/// when the subscriber is closed; the for loop raises Unlinked if the bus was removed. If the subscriber missed
/// messages, Lapped says how many; if messages from elsewhere were lost on their way to the bus, Lost says which; if
/// the bus had no room for a value, ValueMissing says of which topic. The next call continues after them. Threads may
/// share a subscriber; each message goes to one of them. Other threads of Python run while it waits. Ctrl-C ends a
/// wait within a quarter of a second. In the child of a fork, its methods raise Forked.
#[pyclass(frozen, weakref, module = "toroni")]
pub(crate) struct Subscriber {
    receiver: FairMutex<Receiver>,
    interrupter: Interrupter,
    descriptor: OnceLock<i32>,
    slot: u32,
}

/// The subscriber of the library, and the state between calls.
struct Receiver {
    subscriber: toroni::Subscriber,
    names: Names,
    expects_large: bool,
    /// All messages before this position are shorter than [`FAR_BEHIND`].
    known_until: u64,
    /// What the next call returns first: a message that did not fit into a buffer, or an error that occurred after
    /// messages that were returned.
    kept: Option<Kept>,
    /// The number of messages that were overwritten while they were copied from the ring. The library counts them as
    /// received.
    torn: u64,
}

enum Kept {
    Message(Py<Message>),
    Error(ReceiveError),
}

impl Kept {
    /// Returns whether it is a value that the subscriber asked for, or says that one is missing.
    fn is_value(&self, py: Python<'_>) -> bool {
        match self {
            Self::Message(message) => message.bind(py).as_super().get().is_retained,
            Self::Error(error) => matches!(error, ReceiveError::ValueMissing { .. }),
        }
    }
}

/// The Python objects of topic names.
#[derive(Default)]
struct Names {
    last: Option<(Box<str>, Py<PyString>)>,
    all: HashMap<Box<str>, Py<PyString>>,
}

#[pymethods]
impl Subscriber {
    /// Returns the next message. Waits for it; returns None if there is none within timeout seconds.
    #[pyo3(signature = (timeout=None))]
    fn receive(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Py<Message>>> {
        let timeout = settings::timeout(py, timeout)?;
        self.wait(py, timeout, |receiver, slice| receiver.message(py, slice))
    }

    /// Returns the next message without waiting, or None if there is none. After None, the descriptor of the
    /// subscriber, if it has one, becomes readable with the next message.
    fn try_receive(&self, py: Python<'_>) -> PyResult<Option<Py<Message>>> {
        self.lock(py)?.message(py, None)
    }

    /// Returns a list of the messages that are available, at most limit; the fastest way. Waits for the first one;
    /// the list is empty if there is none within timeout seconds.
    #[pyo3(signature = (limit=1024, timeout=None))]
    fn receive_many(
        &self,
        py: Python<'_>,
        limit: usize,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyList>> {
        let timeout = settings::timeout(py, timeout)?;
        let list = PyList::empty(py);
        if limit > 0 {
            self.wait(py, timeout, |receiver, slice| receiver.messages(&list, limit, slice))?;
        }
        Ok(list.unbind())
    }

    /// Copies the bytes of the next message to the front of buffer, once, from where their publisher wrote them, and
    /// returns the rest of the message. buffer is a writable object with the buffer protocol, in one piece; if it
    /// holds Python objects or pointers, the call raises BufferError. Waits as receive does. If the buffer is too
    /// small, TooLong says how large it must be, and the message stays the next one. The buffer may have been
    /// written to even if the call raises or returns None.
    #[pyo3(signature = (buffer, timeout=None))]
    fn receive_into(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Received>> {
        let timeout = settings::timeout(py, timeout)?;
        let mut target = Target::of(buffer)?;
        self.wait(py, timeout, |receiver, slice| receiver.message_into(py, &mut target, slice))
    }

    /// Awaits the next message without blocking the event loop. If it is cancelled, no message is lost. Only one
    /// task at a time may await a subscriber.
    fn receive_async<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        asyncio(slf.py())?.call_method1("receive", (slf,))
    }

    /// Does what receive_many does, for coroutines and without a timeout.
    #[pyo3(signature = (limit=1024))]
    fn receive_many_async<'py>(
        slf: &Bound<'py, Self>,
        limit: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        asyncio(slf.py())?.call_method1("receive_many", (slf, limit))
    }

    /// Adds a pattern. A message that matches several patterns is received once. A pattern that is added begins without the
    /// values of retained topics.
    fn add_pattern(&self, py: Python<'_>, pattern: &str) -> PyResult<()> {
        self.lock(py)?
            .subscriber
            .add_pattern(pattern)
            .map_err(|error| errors::on_subscriber(py, &error))
    }

    /// Returns a descriptor that is readable when there may be messages, for select, epoll or any event loop. Call
    /// try_receive until it returns None, then wait until the descriptor is readable, and repeat. Do not read from
    /// it. The first call makes it; closing the subscriber closes it.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        let mut receiver = self.lock(py)?;
        if let Some(descriptor) = self.descriptor.get() {
            return Ok(*descriptor);
        }
        let descriptor = receiver.subscriber.fd().map_err(|error| errors::on_file(py, &error))?;
        Ok(*self.descriptor.get_or_init(|| descriptor.as_raw_fd()))
    }

    /// Returns a duplicate of the descriptor, which the caller closes. It is made while the mutex is held, so that no
    /// other thread closes the descriptor meanwhile, and the kernel cannot give its number to something else.
    fn _duplicate(&self, py: Python<'_>) -> PyResult<i32> {
        let mut receiver = self.lock(py)?;
        let descriptor = receiver.subscriber.fd().map_err(|error| errors::on_file(py, &error))?;
        self.descriptor.get_or_init(|| descriptor.as_raw_fd());
        let duplicate = descriptor.try_clone_to_owned().map_err(|error| {
            let message = format!("cannot duplicate the subscriber's descriptor: {error}");
            errors::system(py, &error, message)
        })?;
        Ok(duplicate.into_raw_fd())
    }

    /// Position at which the subscriber continues, in bytes since the bus was created.
    #[getter]
    fn position(&self, py: Python<'_>) -> PyResult<u64> {
        let receiver = self.lock(py)?;
        match &receiver.kept {
            // A value is from before the place where it continues.
            Some(kept @ Kept::Message(message)) if !kept.is_value(py) => {
                Ok(message.bind(py).as_super().get().position)
            }
            _ => Ok(receiver.subscriber.position()),
        }
    }

    /// Whether all values that the subscriber asked for with retained=True were received: what it receives next is new.
    #[getter]
    fn is_current(&self, py: Python<'_>) -> PyResult<bool> {
        let receiver = self.lock(py)?;
        let keeps_value = receiver.kept.as_ref().is_some_and(|kept| kept.is_value(py));
        Ok(receiver.subscriber.is_current() && !keeps_value)
    }

    /// Bytes of the stream of the bus that the subscriber has not read yet.
    #[getter]
    fn lag_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.lock(py)?.subscriber.lag_bytes())
    }

    /// Makes publishers keep the messages from sequence on, which is the sequence of a message, although this subscriber
    /// reads on. Another subscriber can then still read them, with start=("sequence", n). It is for programs that must
    /// be able to send messages again until they are acknowledged.
    ///
    /// Publishers wait for what is held as for messages that the subscriber has not read: as the policy of the bus says.
    /// So a limit of the policy limits the hold too, and Policy.overwrite() ignores it. If the policy lets publishers
    /// overwrite a message that is held, the hold ends, and held is None.
    ///
    /// Another call moves the hold: forward, which lets waiting publishers continue, or back, as long as the message is
    /// in the ring. Raises Overwritten if it no longer is, and Invalid if this subscriber does not gate. If the call
    /// raises, the previous hold stays.
    fn hold(&self, py: Python<'_>, sequence: &Bound<'_, PyAny>) -> PyResult<()> {
        let sequence = settings::integer("sequence", sequence)?;
        let mut receiver = self.lock(py)?;
        let subscriber = &mut receiver.subscriber;
        // A hold that goes back may wait for the decision of a publisher.
        let answer = py.detach(|| subscriber.hold(sequence));
        drop(receiver);
        answer.map_err(|error| errors::on_hold(py, &error))
    }

    /// Ends the hold: publishers again wait only for what this subscriber has not read. Without a hold, does nothing.
    fn release_hold(&self, py: Python<'_>) -> PyResult<()> {
        let mut receiver = self.lock(py)?;
        // The library does nothing there.
        if self.receiver.is_forked() {
            drop(receiver);
            return Err(errors::forked(py));
        }
        receiver.subscriber.release_hold();
        Ok(())
    }

    /// The sequence of the hold, or None if there is none, or no longer, because a message of it was overwritten.
    #[getter]
    fn held(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        Ok(self.lock(py)?.subscriber.held())
    }

    /// Returns the counts of this subscriber, a toroni.SubscriberStats.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (counts, torn) = {
            let receiver = self.lock(py)?;
            (receiver.subscriber.stats(), receiver.torn)
        };
        let fields = PyDict::new(py);
        fields.set_item("received", counts.received.saturating_sub(torn))?;
        fields.set_item("lost_messages", counts.lost_messages.saturating_add(torn))?;
        fields.set_item("lapses", counts.lapses.saturating_add(torn))?;
        fields.set_item("losses", counts.losses)?;
        fields.set_item("lost_on_the_way", counts.lost_on_the_way)?;
        fields.set_item("stale", counts.stale)?;
        fields.set_item("unknown", counts.unknown)?;
        stats::made(py, "SubscriberStats", &fields)
    }

    /// Number of the subscriber's slot, as `toroni info` shows it.
    #[getter]
    fn slot(&self) -> u32 {
        self.slot
    }

    /// Whether this handle was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.receiver.is_closed()
    }

    /// Ends the call that waits for a message, in any thread, with Interrupted. If no call waits, it ends the next
    /// one that would; several interrupts before that count as one. No message is lost. For threads and signal
    /// handlers. It does not end an await: cancel the task instead.
    fn interrupt(&self, py: Python<'_>) -> PyResult<()> {
        if self.receiver.is_closed() {
            return Err(errors::closed(py, "subscriber"));
        }
        // This would interrupt the subscriber of the parent.
        if self.receiver.is_forked() {
            return Err(errors::forked(py));
        }
        self.interrupter.interrupt();
        Ok(())
    }

    /// Unsubscribes. A call that waits in another thread raises Closed, and a loop over messages ends.
    fn close(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let receiver = this.receiver.close();
        // In the child of a fork, this would interrupt the subscriber of the parent.
        if receiver.is_none() && !this.receiver.is_forked() {
            this.interrupter.interrupt();
        }
        py.detach(|| drop(receiver));
        if this.descriptor.get().is_some() {
            asyncio(py)?.call_method1("closing", (slf,))?;
        }
        Ok(())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(slf: &Bound<'_, Self>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        Self::close(slf)
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<Message>>> {
        match self.receive(py, None) {
            // Only this one ends the loop: a KeyboardInterrupt must be raised.
            Err(error) if errors::is_closed(py, &error) => Ok(None),
            answer => answer,
        }
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        asyncio(slf.py())?.call_method1("next_message", (slf,))
    }

    fn __repr__(&self) -> String {
        let state = if self.closed() { ", closed" } else { "" };
        format!("<toroni.Subscriber in slot {}{state}>", self.slot)
    }
}

/// The module `python/toroni/_asyncio.py`.
fn asyncio(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || py.import("toroni._asyncio").map(Bound::unbind))?;
    Ok(module.bind(py))
}

impl Subscriber {
    pub(crate) fn made(py: Python<'_>, mut subscriber: toroni::Subscriber) -> PyResult<Self> {
        let interrupter = subscriber.interrupter().map_err(|error| errors::on_file(py, &error))?;
        let slot = subscriber.slot();
        let receiver = Receiver {
            subscriber,
            names: Names::default(),
            expects_large: false,
            known_until: 0,
            kept: None,
            torn: 0,
        };
        let receiver = FairMutex::new("subscriber", receiver);
        Ok(Self { receiver, interrupter, descriptor: OnceLock::new(), slot })
    }

    fn lock(&self, py: Python<'_>) -> PyResult<Guard<'_, Receiver>> {
        let receiver = self.receiver.lock(py, None)?;
        receiver.ok_or_else(|| errors::other(py, "could not wait for another thread"))
    }

    /// Calls `receive` once without waiting, and then repeatedly with a short timeout. Between two calls it checks for
    /// signals and unlocks the mutex, so that other threads can receive.
    fn wait<R>(
        &self,
        py: Python<'_>,
        timeout: Option<Duration>,
        mut receive: impl FnMut(&mut Receiver, Option<Duration>) -> PyResult<Option<R>>,
    ) -> PyResult<Option<R>> {
        let deadline = blocking::deadline(timeout);
        let mut slice = None;
        loop {
            let Some(mut receiver) = self.receiver.lock(py, deadline)? else { return Ok(None) };
            let answer = receive(&mut receiver, slice);
            drop(receiver);
            match answer {
                Ok(Some(found)) => return Ok(Some(found)),
                // Closing the subscriber interrupts the wait.
                Ok(None) => {}
                Err(error) if self.receiver.is_closed() && errors::is_interrupted(py, &error) => {}
                Err(error) => return Err(error),
            }
            if self.receiver.is_closed() {
                return Err(errors::closed(py, "subscriber"));
            }
            py.check_signals()?;
            slice = blocking::slice_until(deadline);
            if slice.is_none() {
                return Ok(None);
            }
        }
    }
}

impl Receiver {
    /// Returns the next message. Waits for at most `slice`; `None` does not wait.
    fn message(
        &mut self,
        py: Python<'_>,
        slice: Option<Duration>,
    ) -> PyResult<Option<Py<Message>>> {
        match self.kept.take() {
            Some(Kept::Message(message)) => return Ok(Some(message)),
            Some(Kept::Error(error)) => return Err(errors::on_receive(py, &error)),
            None => {}
        }
        if self.expects_large {
            return self.message_from_ring(py, slice);
        }
        let Self { subscriber, names, known_until, .. } = self;
        let answer = match slice {
            None if is_far_behind(subscriber, known_until) => {
                py.detach(|| subscriber.try_receive())
            }
            None => subscriber.try_receive(),
            Some(slice) => py.detach(|| subscriber.receive_timeout(slice)),
        };
        match answer {
            Ok(Some(message)) => {
                self.expects_large = message.payload().len() >= LARGE;
                from_copy(py, names, &message).map(Some)
            }
            answer => nothing(py, answer),
        }
    }

    /// Does what [`Self::message`] does, with only one copy, during which other threads of Python run.
    fn message_from_ring(
        &mut self,
        py: Python<'_>,
        slice: Option<Duration>,
    ) -> PyResult<Option<Py<Message>>> {
        let Self { subscriber, names, expects_large, torn, .. } = self;
        let answer = py.detach(|| in_ring(subscriber, slice));
        let message = match answer {
            Ok(Some(message)) => message,
            answer => return nothing(py, answer),
        };
        let length = message.payload().len();
        *expects_large = length >= LARGE;
        let payload = PyBytes::new_with(py, length, |bytes| {
            py.detach(|| {
                message.payload().copy_to(0, bytes);
                message.validate()
            })
            .map_err(|error| {
                *torn += 1;
                errors::on_receive(py, &error)
            })
        })?;
        Message::made(py, facts(py, names, &message), payload.unbind()).map(Some)
    }

    /// Appends the available messages to the list, until it has `limit` items. An error after a message is kept for the
    /// next call.
    fn messages(
        &mut self,
        list: &Bound<'_, PyList>,
        limit: usize,
        slice: Option<Duration>,
    ) -> PyResult<Option<()>> {
        let py = list.py();
        let Some(first) = self.message(py, slice)? else { return Ok(None) };
        list.append(first)?;
        // Bytes that were copied since other threads could run.
        let mut copied = 0;
        while list.len() < limit && !self.expects_large {
            let subscriber = &mut self.subscriber;
            let answer = if copied < MOST_IN_A_ROW {
                subscriber.try_receive()
            } else {
                copied = 0;
                py.detach(|| subscriber.try_receive())
            };
            match answer {
                Ok(None) => break,
                Ok(Some(message)) => {
                    let length = message.payload().len();
                    copied += length;
                    self.expects_large = length >= LARGE;
                    list.append(from_copy(py, &mut self.names, &message)?)?;
                }
                Err(error) => {
                    self.kept = Some(Kept::Error(error));
                    break;
                }
            }
        }
        Ok(Some(()))
    }

    /// Copies the bytes of the next message to the front of `target`.
    fn message_into(
        &mut self,
        py: Python<'_>,
        target: &mut Target,
        slice: Option<Duration>,
    ) -> PyResult<Option<Received>> {
        match self.kept.take() {
            Some(Kept::Message(message)) => return self.kept_into(py, message, target).map(Some),
            Some(Kept::Error(error)) => return Err(errors::on_receive(py, &error)),
            None => {}
        }
        let Self { subscriber, names, kept, torn, .. } = self;
        let answer = match slice {
            None => in_ring(subscriber, slice),
            Some(_) => py.detach(|| in_ring(subscriber, slice)),
        };
        let message = match answer {
            Ok(Some(message)) => message,
            answer => return nothing(py, answer),
        };
        let length = message.payload().len();
        if length > target.len() {
            let bytes = message.payload().to_vec();
            message.validate().map_err(|error| {
                *torn += 1;
                errors::on_receive(py, &error)
            })?;
            let payload = PyBytes::new(py, &bytes).unbind();
            *kept = Some(Kept::Message(Message::made(py, facts(py, names, &message), payload)?));
            return Err(errors::too_small(py, length, target.len()));
        }
        let bytes = &mut target.bytes()[..length];
        let mut copy = || {
            message.payload().copy_to(0, bytes);
            message.validate()
        };
        let copied = if length < LARGE { copy() } else { py.detach(copy) };
        copied.map_err(|error| {
            *torn += 1;
            errors::on_receive(py, &error)
        })?;
        Ok(Some(facts(py, names, &message)))
    }

    /// Does what [`Self::message_into`] does, for a message that was kept.
    fn kept_into(
        &mut self,
        py: Python<'_>,
        message: Py<Message>,
        target: &mut Target,
    ) -> PyResult<Received> {
        let payload = message.get().bytes(py);
        let (length, limit) = (payload.len(), target.len());
        if length > limit {
            self.kept = Some(Kept::Message(message));
            return Err(errors::too_small(py, length, limit));
        }
        target.bytes()[..length].copy_from_slice(payload);
        Ok(message.bind(py).as_super().get().copy(py))
    }
}

/// Returns whether the next message may be as long as [`FAR_BEHIND`]. Reads the lag only if that is not known, because
/// publishers write to its cache line.
fn is_far_behind(subscriber: &toroni::Subscriber, known_until: &mut u64) -> bool {
    let position = subscriber.position();
    if position < *known_until {
        return false;
    }
    let lag = subscriber.lag_bytes();
    if lag < FAR_BEHIND {
        *known_until = position + lag;
    }
    lag >= FAR_BEHIND
}

/// Returns the next message in place.
fn in_ring(
    subscriber: &mut toroni::Subscriber,
    slice: Option<Duration>,
) -> Result<Option<toroni::Borrowed<'_>>, ReceiveError> {
    let run = match slice {
        None => subscriber.try_receive_in_place()?,
        Some(slice) => subscriber.receive_in_place_timeout(slice)?,
    };
    Ok(run.and_then(|mut run| run.next()))
}

/// Returns the result of a call that found no message.
fn nothing<T, R>(py: Python<'_>, answer: Result<Option<T>, ReceiveError>) -> PyResult<Option<R>> {
    match answer {
        Ok(_) => Ok(None),
        Err(error) => Err(errors::on_receive(py, &error)),
    }
}

#[inline]
fn from_copy(
    py: Python<'_>,
    names: &mut Names,
    message: &toroni::Message<'_>,
) -> PyResult<Py<Message>> {
    let payload = message.payload();
    let received = Received {
        topic: names.of(py, message.topic()),
        length: payload.len(),
        position: message.position(),
        next_position: message.next_position(),
        sequence: message.sequence(),
        timestamp: message.timestamp(),
        to_descendants: message.to_descendants(),
        origin: message.origin(),
        number: message.number(),
        is_retained: message.is_retained(),
        is_cleared: message.is_cleared(),
    };
    let payload = if payload.len() < LARGE {
        PyBytes::new(py, payload)
    } else {
        PyBytes::new_with(py, payload.len(), |bytes| {
            py.detach(|| bytes.copy_from_slice(payload));
            Ok(())
        })?
    };
    Message::made(py, received, payload.unbind())
}

/// Returns the properties of a message in place, which must have been validated.
fn facts(py: Python<'_>, names: &mut Names, message: &toroni::Borrowed<'_>) -> Received {
    Received {
        topic: names.of(py, message.topic()),
        length: message.payload().len(),
        position: message.position(),
        next_position: message.next_position(),
        sequence: message.sequence(),
        timestamp: message.timestamp(),
        to_descendants: message.to_descendants(),
        origin: message.origin(),
        number: message.number(),
        is_retained: message.is_retained(),
        is_cleared: message.is_cleared(),
    }
}

impl Names {
    #[inline]
    fn of(&mut self, py: Python<'_>, topic: &str) -> Py<PyString> {
        match &self.last {
            Some((last, name)) if **last == *topic => name.clone_ref(py),
            _ => self.find(py, topic),
        }
    }

    fn find(&mut self, py: Python<'_>, topic: &str) -> Py<PyString> {
        if self.all.len() >= MOST_NAMES {
            self.all.clear();
        }
        let name = match self.all.get(topic) {
            Some(name) => name.clone_ref(py),
            None => {
                let name = PyString::new(py, topic).unbind();
                self.all.insert(topic.into(), name.clone_ref(py));
                name
            }
        };
        self.last = Some((topic.into(), name.clone_ref(py)));
        name
    }
}

/// Returns whether a pattern matches a topic. In a pattern, * stands for one segment and ** for any number of
/// segments. With to_descendants, returns whether a subscriber with the pattern would receive a message that is
/// published to the topic and to everything below it.
#[pyfunction]
#[pyo3(signature = (pattern, topic, to_descendants=false))]
pub(crate) fn matches(
    py: Python<'_>,
    pattern: &str,
    topic: &str,
    to_descendants: bool,
) -> PyResult<bool> {
    let pattern = toroni::Pattern::new(pattern).map_err(|error| errors::on_pattern(py, &error))?;
    Ok(if to_descendants { pattern.matches_descendants(topic) } else { pattern.matches(topic) })
}
