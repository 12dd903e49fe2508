//! The class `Endpoint`: a program's own end of the network. `python/toroni/net.py` makes `Direct` of it.

use crate::buffer::Payload;
use crate::fair_mutex::{FairMutex, Guard};
use crate::{blocking, errors, settings};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;
use toroni_net::direct::{Received, SendError};
use toroni_net::endpoint;
use toroni_proto::arrivals::Flow;
use toroni_proto::reassembly::Loss;
use toroni_proto::wire::{Bound as Exactness, LostReason};

/// What toroni.net.Direct uses.
#[pyclass(frozen, module = "toroni._toroni")]
pub(crate) struct Endpoint {
    inner: FairMutex<endpoint::Endpoint>,
    descriptor: i32,
}

/// What was received, copied.
enum Owned {
    Message {
        flow: Flow,
        number: u64,
        topic: String,
        payload: Vec<u8>,
        timestamp_ns: Option<u64>,
        to_descendants: bool,
    },
    Lost {
        flow: Flow,
        loss: Loss,
    },
}

impl From<Received<'_>> for Owned {
    fn from(received: Received<'_>) -> Self {
        match received {
            Received::Lost { flow, loss } => Self::Lost { flow, loss },
            Received::Message { flow, number, topic, to_descendants, published, payload } => {
                Self::Message {
                    flow,
                    number: number.get(),
                    topic: topic.to_owned(),
                    payload: payload.to_vec(),
                    timestamp_ns: published.map(|time| time.ns()),
                    to_descendants,
                }
            }
        }
    }
}

impl Owned {
    /// Returns the fields of a message, or of a loss. They differ in the first one.
    fn into_tuple(self, py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        match self {
            Self::Message { flow, number, topic, payload, timestamp_ns, to_descendants } => (
                topic,
                PyBytes::new(py, &payload),
                number,
                numbers(flow),
                timestamp_ns,
                to_descendants,
            )
                .into_pyobject(py),
            Self::Lost { flow, loss } => (
                py.None(),
                loss.count,
                bound(loss.bound),
                reason(loss.reason),
                loss.after.map_or(0, |after| after.get() + 1),
                loss.until.map(|until| until.get()),
                numbers(flow),
            )
                .into_pyobject(py),
        }
    }
}

fn numbers(flow: Flow) -> (u32, u32, u32, u16) {
    (flow.source.0, flow.session.0, flow.series.0, flow.stream.0)
}

/// The words are those of toroni.Lost.
const fn bound(bound: Exactness) -> &'static str {
    match bound {
        Exactness::Exact => "exact",
        Exactness::AtLeast => "at_least",
        Exactness::AtMost => "at_most",
    }
}

const fn reason(reason: LostReason) -> &'static str {
    match reason {
        LostReason::Gone => "gone",
        LostReason::Budget => "budget",
        LostReason::Memory => "memory",
        LostReason::Burst => "burst",
        LostReason::Jump => "jump",
        LostReason::Restart => "restart",
        LostReason::Silent => "silent",
        LostReason::Topic => "topic",
        LostReason::TooLong => "too_long",
        LostReason::Overtaken => "overtaken",
        LostReason::Diverged => "diverged",
    }
}

#[pymethods]
impl Endpoint {
    /// Opens what a configuration says, which is a text or the path of a file.
    #[new]
    #[pyo3(signature = (configuration, path))]
    fn new(py: Python<'_>, configuration: Option<String>, path: Option<PathBuf>) -> PyResult<Self> {
        let opened = py.detach(|| match (configuration, path) {
            (Some(text), _) => endpoint::Endpoint::open(&text, Path::new("")),
            (None, path) => endpoint::Endpoint::open_file(&path.unwrap_or_default()),
        });
        let opened = opened.map_err(|error| errors::on_endpoint(py, &error))?;
        let descriptor = opened.as_fd().as_raw_fd();
        Ok(Self { inner: FairMutex::new("endpoint", opened), descriptor })
    }

    #[pyo3(signature = (topic, payload, timeout))]
    fn send(
        &self,
        py: Python<'_>,
        topic: &str,
        payload: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let timeout = settings::timeout(py, timeout)?;
        let payload = Payload::of(payload)?;
        let deadline = blocking::deadline(timeout);
        let mut slice = Duration::ZERO;
        loop {
            let mut endpoint = self.lock(py)?;
            let bytes = payload.as_ref();
            let sent = py.detach(|| endpoint.send(topic, bytes, Some(slice)));
            drop(endpoint);
            match sent {
                Err(SendError::Full) => {}
                outcome => return outcome.map_err(|error| errors::on_send(py, &error)),
            }
            py.check_signals()?;
            let Some(next) = blocking::slice_until(deadline) else {
                return Err(errors::on_send(py, &SendError::Full));
            };
            slice = next;
        }
    }

    #[pyo3(signature = (timeout))]
    fn receive<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let deadline = blocking::deadline(settings::timeout(py, timeout)?);
        let mut slice = Duration::ZERO;
        loop {
            let mut endpoint = self.lock(py)?;
            let received =
                py.detach(|| endpoint.receive(Some(slice)).map(|found| found.map(Owned::from)));
            drop(endpoint);
            if let Some(found) = received.map_err(|error| errors::on_direct(py, &error))? {
                return found.into_tuple(py).map(Some);
            }
            py.check_signals()?;
            let Some(next) = blocking::slice_until(deadline) else { return Ok(None) };
            slice = next;
        }
    }

    fn turn(&self, py: Python<'_>) -> PyResult<()> {
        let mut endpoint = self.lock(py)?;
        py.detach(|| endpoint.turn()).map_err(|error| errors::on_direct(py, &error))
    }

    #[getter]
    fn streams(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.lock(py)?.streams())
    }

    #[getter]
    fn closed(&self) -> bool {
        self.inner.is_closed()
    }

    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        if self.inner.is_closed() {
            return Err(errors::closed(py, "endpoint"));
        }
        Ok(self.descriptor)
    }

    /// Ends the stream, waits for repairs, and closes the sockets.
    #[pyo3(signature = (linger))]
    fn close(&self, py: Python<'_>, linger: f64) -> PyResult<()> {
        let linger = settings::timeout(py, Some(linger))?;
        if self.inner.is_closed() {
            return Ok(());
        }
        let deadline = blocking::deadline(linger);
        // Others learn that the stream has ended, even if there is no time for repairs.
        let mut slice = Some(Duration::ZERO);
        while let Some(now) = slice {
            let mut endpoint = self.lock(py)?;
            let ended = py.detach(|| endpoint.end(now));
            drop(endpoint);
            // Whatever happened to the sockets, they are closed now.
            if ended.unwrap_or(true) {
                break;
            }
            py.check_signals()?;
            slice = blocking::slice_until(deadline);
        }
        // `None` if another thread uses it, which drops it.
        let closed = self.inner.close();
        py.detach(|| drop(closed));
        Ok(())
    }
}

impl Endpoint {
    fn lock(&self, py: Python<'_>) -> PyResult<Guard<'_, endpoint::Endpoint>> {
        let endpoint = self.inner.lock(py, None)?;
        endpoint.ok_or_else(|| errors::other(py, "could not wait for another thread"))
    }
}
