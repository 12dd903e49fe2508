//! Messages that were received, and values of retained topics.

use crate::stats::{instance, since_1970_ns};
use crate::{buffer, inlet};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyType};
use std::ffi::c_int;
use std::time::SystemTime;
use toroni::{Origin, RetainedMessage};

/// Everything about a received message except its bytes.
///
/// receive_into returns it, and puts the bytes into the caller's buffer. len(received) is their number.
#[pyclass(frozen, subclass, module = "toroni")]
pub(crate) struct Received {
    pub(crate) topic: Py<PyString>,
    pub(crate) length: usize,
    pub(crate) position: u64,
    pub(crate) next_position: u64,
    pub(crate) sequence: u64,
    pub(crate) timestamp: Option<SystemTime>,
    pub(crate) to_descendants: bool,
    pub(crate) origin: Option<Origin>,
    pub(crate) number: Option<u64>,
    pub(crate) is_retained: bool,
    pub(crate) is_cleared: bool,
}

#[pymethods]
impl Received {
    /// The topic that the message was published on.
    #[getter]
    fn topic(&self, py: Python<'_>) -> Py<PyString> {
        self.topic.clone_ref(py)
    }

    /// The position of the message in the stream of the bus, in bytes. Bus.subscribe takes it as start.
    #[getter]
    fn position(&self) -> u64 {
        self.position
    }

    /// The position of the next message, in bytes.
    #[getter]
    fn next_position(&self) -> u64 {
        self.next_position
    }

    /// The number of the message among all messages of the bus, from 0.
    #[getter]
    fn sequence(&self) -> u64 {
        self.sequence
    }

    /// When the message was published, in nanoseconds since 1970 (UTC). None if its publisher does not use
    /// timestamps.
    #[getter]
    fn timestamp_ns(&self) -> Option<u128> {
        self.timestamp.map(since_1970_ns)
    }

    /// Whether the message was also published to everything below its topic.
    #[getter]
    fn to_descendants(&self) -> bool {
        self.to_descendants
    }

    /// Where the message was first published, a toroni.Origin. None if it did not come from elsewhere.
    #[getter]
    fn origin<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.origin.map(|origin| inlet::of_origin(py, origin)).transpose()
    }

    /// The place of the message in an order over several buses. None if it has none.
    #[getter]
    fn number(&self) -> Option<u64> {
        self.number
    }

    /// Whether it is the value of a retained topic, and was published before the messages that the subscriber receives
    /// otherwise. Only subscribers with retained=True receive values.
    #[getter]
    fn is_retained(&self) -> bool {
        self.is_retained
    }

    /// Whether it is no message, but says that the value of its topic was cleared. Only subscribers with retained=True
    /// receive it.
    #[getter]
    fn is_cleared(&self) -> bool {
        self.is_cleared
    }

    fn __len__(&self) -> usize {
        self.length
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let this = slf.get();
        let topic = this.topic.bind(slf.py()).to_cow()?;
        let class = slf.get_type().name()?.to_string();
        Ok(format!("<{class} {topic:?}, {} bytes, sequence {}>", this.length, this.sequence))
    }
}

/// A received message with its bytes.
///
/// message.payload is a bytes object. memoryview(message) and numpy.frombuffer(message) access the bytes without a
/// copy. A message does not depend on the subscriber that received it. A pickled message is restored as its bytes.
#[pyclass(frozen, extends = Received, module = "toroni")]
pub(crate) struct Message {
    payload: Py<PyBytes>,
}

#[pymethods]
impl Message {
    /// The bytes of the message.
    #[getter]
    fn payload(&self, py: Python<'_>) -> Py<PyBytes> {
        self.payload.clone_ref(py)
    }

    /// The bytes as text. Bytes that are not UTF-8 become U+FFFD.
    #[getter]
    fn text(&self, py: Python<'_>) -> String {
        String::from_utf8_lossy(self.payload.as_bytes(py)).into_owned()
    }

    fn __bytes__(&self, py: Python<'_>) -> Py<PyBytes> {
        self.payload.clone_ref(py)
    }

    /// Pickles the bytes only: position and sequence have a meaning only on the bus.
    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyType>, (Py<PyBytes>,)) {
        (py.get_type::<PyBytes>(), (self.payload.clone_ref(py),))
    }

    /// Returns the message itself, because it cannot change.
    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    /// # Safety
    /// Python calls it with a view to be filled.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let payload = slf.get().payload.bind(slf.py());
        // SAFETY: Python passed `view` to be filled.
        unsafe { buffer::lend(payload, view, flags) }
    }
}

impl Message {
    #[inline]
    pub(crate) fn made(
        py: Python<'_>,
        received: Received,
        payload: Py<PyBytes>,
    ) -> PyResult<Py<Message>> {
        Py::new(py, PyClassInitializer::from(received).add_subclass(Message { payload }))
    }

    pub(crate) fn bytes<'a>(&'a self, py: Python<'a>) -> &'a [u8] {
        self.payload.as_bytes(py)
    }
}

impl Received {
    pub(crate) fn copy(&self, py: Python<'_>) -> Self {
        Self { topic: self.topic.clone_ref(py), ..*self }
    }
}

/// Makes an instance of the class in `python/toroni/_retained.py`.
pub(crate) fn of_retained<'py>(
    py: Python<'py>,
    message: &RetainedMessage,
) -> PyResult<Bound<'py, PyAny>> {
    instance!(py, "RetainedMessage", {
        topic: message.topic(),
        payload: PyBytes::new(py, message.payload()),
        position: message.position(),
        sequence: message.sequence(),
        to_descendants: message.to_descendants(),
        timestamp_ns: message.timestamp().map(since_1970_ns),
        origin: message.origin().map(|origin| inlet::of_origin(py, origin)).transpose()?,
        number: message.number(),
    })
}
