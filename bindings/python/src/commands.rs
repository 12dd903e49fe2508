//! The classes `Commands` and `Pending`.

use crate::blocking::{self, Detached};
use crate::buffer::Payload;
use crate::bus::configuration;
use crate::fair_mutex::FairMutex;
use crate::message::Received;
use crate::stats::instance;
use crate::{errors, settings};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use toroni::PublishError;
use toroni_sequencer::commands::{self, CommandsError, Echo, Sent};

/// Sends commands to a feed of the sequencer, which puts those of all hosts in one order. toroni.Commands("orders") opens
/// the bus orders.commands, and creates it if it does not exist. The node of this host brings commands to the order. Its
/// events are on the bus with the name of the feed: subscribe to that to read them.
///
/// The settings are those of toroni.Bus, without require. The policy is always to wait, whatever policy says. Threads may
/// share the object. Other threads of Python run while it waits. In the child of a fork, its methods raise Forked. Its
/// with statement closes it.
#[pyclass(frozen, weakref, module = "toroni")]
pub(crate) struct Commands {
    inner: Mutex<Option<Arc<Detached<commands::Commands>>>>,
    feed: String,
    series: u32,
}

/// A command that was sent and whose event is awaited; made by Commands.send_and_watch.
///
/// Until the outcome is certain, it is a subscriber of the bus of the feed, for which publishers wait. So wait for it, or
/// close it; its with statement does that. Threads may share it, and wait one at a time. In the child of a fork, its
/// methods raise Forked.
#[pyclass(frozen, weakref, module = "toroni")]
pub(crate) struct Pending {
    inner: FairMutex<commands::Pending>,
    sent: Sent,
}

#[pymethods]
impl Commands {
    #[new]
    #[pyo3(signature = (feed, **settings))]
    fn new(py: Python<'_>, feed: String, settings: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let config = configuration(py, "Commands", settings)?;
        let opened = py.detach(|| commands::Commands::open_with(config, &feed));
        let commands = opened.map_err(|error| errors::on_commands(py, &error))?;
        let series = commands.series();
        Ok(Self { inner: Mutex::new(Some(Arc::new(Detached::new(commands)))), feed, series })
    }

    /// The name of the feed, which is that of the bus of its events.
    #[getter]
    fn feed(&self) -> &str {
        &self.feed
    }

    /// The series of the bus of commands. The origins of the events of this host's commands have it.
    #[getter]
    fn series(&self) -> u32 {
        self.series
    }

    /// Whether this handle was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.lock().is_none()
    }

    /// Sends a command, and returns a toroni.Sent, by which its event is known. Only the event says that the command is
    /// part of the order. Waits while the leader cannot take more; raises Timeout after timeout seconds, and nothing was
    /// sent. Topic and payload have at most 1 MiB together; else raises TooLong.
    #[pyo3(signature = (topic, payload, timeout=None))]
    fn send<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        payload: &Bound<'py, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let payload = Payload::of(payload)?;
        let sent = self.wait(py, timeout, |commands, slice| {
            commands.send_timeout(topic, payload.as_ref(), slice)
        })?;
        of_sent(py, sent)
    }

    /// Subscribes to the events of the feed, and then sends a command as send does. Returns a toroni.Pending, which waits
    /// for the event. Raises NotFound if no node has created the bus of events yet; then nothing was sent.
    #[pyo3(signature = (topic, payload, timeout=None))]
    fn send_and_watch(
        &self,
        py: Python<'_>,
        topic: &str,
        payload: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Pending> {
        let payload = Payload::of(payload)?;
        let pending = self.wait(py, timeout, |commands, slice| {
            commands.send_and_watch_timeout(topic, payload.as_ref(), slice)
        })?;
        Ok(Pending { sent: pending.sent(), inner: FairMutex::new("pending command", pending) })
    }

    /// Returns whether a message of the feed is the event of a command of this host.
    fn is_mine(&self, message: &Bound<'_, Received>) -> bool {
        message.get().origin.is_some_and(|origin| origin.series == self.series)
    }

    /// Closes this handle. Commands that were sent stay on their way, and pending ones can still be awaited.
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
        let state = if self.closed() { ", closed" } else { "" };
        format!("<toroni.Commands of {:?}{state}>", self.feed)
    }
}

#[pymethods]
impl Pending {
    /// Which command it is, a toroni.Sent.
    #[getter]
    fn sent<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        of_sent(py, self.sent)
    }

    /// Whether this handle was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.inner.is_closed()
    }

    /// Waits until it is known what became of the command, and returns that, a toroni.Echo. Returns None after timeout
    /// seconds: the command may still become an event, and a further call continues to wait. Lost events raise nothing:
    /// they are an outcome.
    #[pyo3(signature = (timeout=None))]
    fn wait<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let deadline = blocking::deadline(settings::timeout(py, timeout)?);
        let mut slice = Duration::ZERO;
        loop {
            let Some(mut pending) = self.inner.lock(py, deadline)? else { return Ok(None) };
            let outcome = py.detach(|| pending.wait(Some(slice)));
            drop(pending);
            if let Some(echo) = outcome.map_err(|error| errors::on_receive(py, &error))? {
                return of_echo(py, echo).map(Some);
            }
            py.check_signals()?;
            let Some(next) = blocking::slice_until(deadline) else { return Ok(None) };
            slice = next;
        }
    }

    /// Stops waiting. The command stays sent.
    fn close(&self, py: Python<'_>) {
        let inner = self.inner.close();
        py.detach(|| drop(inner));
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        let state = if self.closed() { ", closed" } else { "" };
        format!("<toroni.Pending, command {}{state}>", self.sent.number)
    }
}

impl Commands {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<Detached<commands::Commands>>>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls repeatedly with a time limit, and checks for signals in between.
    fn wait<R: Send>(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        call: impl Fn(&commands::Commands, Duration) -> Result<R, CommandsError> + Sync,
    ) -> PyResult<R> {
        // The mutex is unlocked before the exception is made, as in a publisher.
        let commands = self.lock().clone();
        let commands = commands.ok_or_else(|| errors::closed(py, "commands"))?;
        let deadline = blocking::deadline(settings::timeout(py, timeout)?);
        loop {
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            let slice = left.map_or(blocking::SLICE, |left| left.min(blocking::SLICE));
            match py.detach(|| call(&commands, slice)) {
                Ok(answer) => return Ok(answer),
                Err(CommandsError::Publish(PublishError::Timeout))
                    if left.is_none_or(|left| left > slice) => {}
                Err(error) => return Err(errors::on_commands(py, &error)),
            }
            py.check_signals()?;
        }
    }
}

fn of_sent(py: Python<'_>, sent: Sent) -> PyResult<Bound<'_, PyAny>> {
    instance!(py, "Sent", { series: sent.series, number: sent.number })
}

fn of_echo(py: Python<'_>, echo: Echo) -> PyResult<Bound<'_, PyAny>> {
    let (outcome, number) = match echo {
        Echo::Event(number) => ("event", Some(number)),
        Echo::Lost => ("lost", None),
        Echo::Missed => ("missed", None),
    };
    instance!(py, "Echo", { outcome: outcome, number: number })
}
