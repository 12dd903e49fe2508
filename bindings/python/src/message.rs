//! What a subscriber hands out.

use crate::buffer;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyType};
use std::ffi::c_int;
use std::time::{SystemTime, UNIX_EPOCH};

/// What the bus says of a message: all of it but its bytes.
///
/// receive_into returns it, with the bytes in the caller's buffer. len(received) is their number.
#[pyclass(frozen, subclass, module = "toroni")]
pub(crate) struct Received {
    pub(crate) topic: Py<PyString>,
    pub(crate) length: usize,
    pub(crate) position: u64,
    pub(crate) next_position: u64,
    pub(crate) sequence: u64,
    pub(crate) timestamp: Option<SystemTime>,
    pub(crate) to_descendants: bool,
}

#[pymethods]
impl Received {
    /// The topic it was published on.
    #[getter]
    fn topic(&self, py: Python<'_>) -> Py<PyString> {
        self.topic.clone_ref(py)
    }

    /// Its position in the stream of the bus, in bytes; a start for Bus.subscribe.
    #[getter]
    fn position(&self) -> u64 {
        self.position
    }

    /// The position of the message behind it, in bytes.
    #[getter]
    fn next_position(&self) -> u64 {
        self.next_position
    }

    /// Its number among all messages of the bus, from 0.
    #[getter]
    fn sequence(&self) -> u64 {
        self.sequence
    }

    /// When it was published, in nanoseconds since 1970 (UTC); None unless its publisher stamps messages.
    #[getter]
    fn timestamp_ns(&self) -> Option<u128> {
        Some(self.timestamp?.duration_since(UNIX_EPOCH).ok()?.as_nanos())
    }

    /// Whether it was posted to everything below its topic, too.
    #[getter]
    fn to_descendants(&self) -> bool {
        self.to_descendants
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

/// A received message: what the bus says of it, and its bytes.
///
/// message.payload are its bytes; memoryview(message), or numpy.frombuffer(message), looks at them without a
/// copy. A message stays what it is: it does not depend on the subscriber any more. pickle stores its bytes only,
/// and restores them as bytes.
#[pyclass(frozen, extends = Received, module = "toroni")]
pub(crate) struct Message {
    payload: Py<PyBytes>,
}

#[pymethods]
impl Message {
    /// Its bytes.
    #[getter]
    fn payload(&self, py: Python<'_>) -> Py<PyBytes> {
        self.payload.clone_ref(py)
    }

    /// Its bytes as text; what is not UTF-8 becomes U+FFFD.
    #[getter]
    fn text(&self, py: Python<'_>) -> String {
        String::from_utf8_lossy(self.payload.as_bytes(py)).into_owned()
    }

    fn __bytes__(&self, py: Python<'_>) -> Py<PyBytes> {
        self.payload.clone_ref(py)
    }

    /// Pickles its bytes only. What the bus says about a message belongs to the bus.
    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyType>, (Py<PyBytes>,)) {
        (py.get_type::<PyBytes>(), (self.payload.clone_ref(py),))
    }

    /// It cannot change, so a copy is the message itself.
    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    /// # Safety
    /// Python calls it, with a view to be filled.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let payload = slf.get().payload.bind(slf.py());
        // SAFETY: `view` is what Python wants to have filled.
        unsafe { buffer::lend(payload, view, flags) }
    }
}

impl Message {
    /// A message of these bytes.
    #[inline]
    pub(crate) fn made(
        py: Python<'_>,
        received: Received,
        payload: Py<PyBytes>,
    ) -> PyResult<Py<Message>> {
        Py::new(py, PyClassInitializer::from(received).add_subclass(Message { payload }))
    }
}

impl Message {
    /// Its bytes.
    pub(crate) fn bytes<'a>(&'a self, py: Python<'a>) -> &'a [u8] {
        self.payload.as_bytes(py)
    }
}

impl Received {
    pub(crate) fn copy(&self, py: Python<'_>) -> Self {
        Self { topic: self.topic.clone_ref(py), ..*self }
    }
}
