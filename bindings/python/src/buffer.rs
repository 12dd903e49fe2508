//! Bytes of objects with Python's buffer protocol. All unsafe code of the module is here, and in the one
//! function by which Python asks a message for its buffer.
//!
//! A buffer belongs to Python: another thread may write to it while it is copied, as it may for
//! `zlib.compress` or `socket.send`. What is copied then is a mixture, and nothing else breaks: nobody here
//! looks at the bytes, they are copied and no more. A view keeps the memory where it is.
//!
//! [`View::of`] refuses memory that holds Python objects or pointers. Another process cannot use such addresses,
//! and after `receive_into` Python would follow an address that came from a message.

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList, PyMemoryView, PyTuple, PyType};
use std::ffi::{CStr, c_int};

/// The bytes of a message that is to be published, kept alive.
pub(crate) enum Payload {
    /// An immutable object of bytes.
    Bytes(Kept<PyBytes>),
    /// Any other, in one piece.
    Buffer(View),
}

/// An object of bytes, and where those are.
pub(crate) struct Kept<T> {
    start: *const u8,
    length: usize,
    _object: Py<T>,
}

// SAFETY: an address and a length of immutable memory, and what keeps it there, which is `Send` itself.
unsafe impl<T> Send for Kept<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Kept<T> {}

impl Payload {
    /// The bytes of an object.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast_exact::<PyBytes>() {
            let slice = bytes.as_bytes();
            return Ok(Self::Bytes(Kept {
                start: slice.as_ptr(),
                length: slice.len(),
                _object: bytes.clone().unbind(),
            }));
        }
        View::of(object, ffi::PyBUF_ND).map(Self::Buffer)
    }
}

impl AsRef<[u8]> for Payload {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match self {
            // SAFETY: the bytes of an object that is alive as long as self, and that nobody changes.
            Self::Bytes(kept) => unsafe { std::slice::from_raw_parts(kept.start, kept.length) },
            Self::Buffer(view) => view.bytes(),
        }
    }
}

/// The payloads of several messages.
pub(crate) enum Payloads {
    /// An object each.
    Many(Vec<Payload>),
    /// The rows of one array, which must be kept, with the bytes of a row.
    Rows(View, usize),
}

impl Payloads {
    /// Of an array with two or more dimensions each row is a message; of anything else each item.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(list) = object.cast::<PyList>() {
            return list
                .iter()
                .map(|item| Payload::of(&item))
                .collect::<PyResult<_>>()
                .map(Self::Many);
        }
        if let Ok(tuple) = object.cast::<PyTuple>() {
            return tuple
                .iter()
                .map(|item| Payload::of(&item))
                .collect::<PyResult<_>>()
                .map(Self::Many);
        }
        // SAFETY: asks a live object, with the interpreter attached.
        if unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } != 0 {
            return Self::rows(View::of(object, ffi::PyBUF_ND)?, object.py());
        }
        object.try_iter()?.map(|item| Payload::of(&item?)).collect::<PyResult<_>>().map(Self::Many)
    }

    fn rows(view: View, py: Python<'_>) -> PyResult<Self> {
        let Some(rows) = view.rows() else {
            return Err(PyBufferError::new_err(
                "a buffer with one dimension is one message: give a list of payloads, or an array with two dimensions",
            ));
        };
        match view.bytes().len().checked_div(rows) {
            Some(row) if row > 0 => Ok(Self::Rows(view, row)),
            _ => {
                let empty = PyBytes::new(py, b"");
                let all = (0..rows).map(|_| Payload::of(empty.as_any()));
                all.collect::<PyResult<_>>().map(Self::Many)
            }
        }
    }

    /// Calls with them as slices.
    pub(crate) fn with<R>(&self, call: impl FnOnce(&[&[u8]]) -> R) -> R {
        match self {
            Self::Many(payloads) => {
                call(&payloads.iter().map(AsRef::as_ref).collect::<Vec<&[u8]>>())
            }
            Self::Rows(view, row) => call(&view.bytes().chunks_exact(*row).collect::<Vec<&[u8]>>()),
        }
    }
}

/// Memory of the caller that is to be written.
pub(crate) struct Target(View);

impl Target {
    /// The memory of an object that allows writing.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        View::of(object, ffi::PyBUF_ND | ffi::PyBUF_WRITABLE).map(Self)
    }

    /// Bytes that fit.
    pub(crate) fn len(&self) -> usize {
        self.0.bytes().len()
    }

    /// All of it, to be written.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        let length = self.0.bytes().len();
        if length == 0 {
            return &mut [];
        }
        // SAFETY: in one piece and writable, which it was asked to be; the view keeps it there. Other threads
        // of Python may use it at the same time: see the head of this file. `&mut self` is the only one here.
        unsafe { std::slice::from_raw_parts_mut(self.0.0.buf.cast(), length) }
    }
}

/// A view of an object's memory in one piece, row after row. In a box: some objects let it point to itself.
pub(crate) struct View(Box<ffi::Py_buffer>);

// SAFETY: a view belongs to no thread; it is released where the interpreter is attached.
unsafe impl Send for View {}
// SAFETY: as above; what is behind it is only copied.
unsafe impl Sync for View {}

impl View {
    /// Asks an object for one that holds neither Python objects nor pointers. `flags` do not ask for strides, so
    /// that it is in one piece.
    fn of(object: &Bound<'_, PyAny>, flags: c_int) -> PyResult<Self> {
        let (view, has_format) = match Self::ask(object, flags | ffi::PyBUF_FORMAT) {
            Ok(view) => (view, true),
            // numpy also refuses a type for which it has no format, such as a time.
            Err(error) if is_refusal(object, &error) => {
                let view = Self::ask(object, flags).map_err(|error| explain(object, flags, error));
                (view?, false)
            }
            Err(error) => return Err(error),
        };
        let holds_pointers = if has_format {
            let format = view.format();
            names_pointers(format)
                || view.may_omit_fields(format) && ctypes_declares_pointers(object)?
        } else {
            !has_only_data(object)
        };
        if !holds_pointers {
            return Ok(view);
        }
        Err(PyBufferError::new_err(
            "the buffer holds Python objects or pointers, which mean nothing to another process: give a buffer of numbers or bytes",
        ))
    }

    fn ask(object: &Bound<'_, PyAny>, flags: c_int) -> PyResult<Self> {
        let mut view = Box::new(ffi::Py_buffer::new());
        // SAFETY: the object is alive, the interpreter attached, and the view is to be filled.
        if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *view, flags) } == 0 {
            return Ok(Self(view));
        }
        Err(PyErr::fetch(object.py()))
    }

    fn bytes(&self) -> &[u8] {
        let length = usize::try_from(self.0.len).unwrap_or(0);
        if length == 0 {
            return &[];
        }
        // SAFETY: in one piece, which it was asked to be, and kept there by the view; about other threads of
        // Python see the head of this file.
        unsafe { std::slice::from_raw_parts(self.0.buf.cast(), length) }
    }

    /// Returns the format of an item, for a view that was requested with one. An exporter may leave it out, which
    /// means bytes.
    fn format(&self) -> &[u8] {
        if self.0.format.is_null() {
            return b"B";
        }
        // SAFETY: a string of C, alive as the view is.
        unsafe { CStr::from_ptr(self.0.format) }.to_bytes()
    }

    /// Returns whether the format may omit a part of the item. ctypes writes `B` for a union or a packed structure,
    /// and omits the fields of base classes.
    fn may_omit_fields(&self, format: &[u8]) -> bool {
        format == b"B" && self.0.itemsize != 1 || format.contains(&b'{')
    }

    /// Their number, of an array with two or more dimensions.
    fn rows(&self) -> Option<usize> {
        if self.0.ndim < 2 || self.0.shape.is_null() {
            return None;
        }
        // SAFETY: as many numbers as dimensions, alive as the view is.
        usize::try_from(unsafe { *self.0.shape }).ok()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: filled by its object, released once, with the interpreter attached.
        Python::attach(|_| unsafe { ffi::PyBuffer_Release(&raw mut *self.0) });
    }
}

/// Returns whether an object has a buffer but cannot lend it in the requested form.
fn is_refusal(object: &Bound<'_, PyAny>, error: &PyErr) -> bool {
    let py = object.py();
    // numpy raises ValueError.
    error.is_instance_of::<PyBufferError>(py)
        || error.is_instance_of::<PyValueError>(py) && has_array_interface(object)
}

/// Says which form of buffer is needed, if that is why the request failed.
#[cold]
fn explain(object: &Bound<'_, PyAny>, flags: c_int, error: PyErr) -> PyErr {
    if !is_refusal(object, &error) {
        return error;
    }
    let (what, advice) = if flags & ffi::PyBUF_WRITABLE == 0 {
        ("", "give a contiguous copy (numpy.ascontiguousarray)")
    } else {
        (", or cannot be written", "give a bytearray, or a contiguous, writable array")
    };
    let explained = PyBufferError::new_err(format!(
        "the buffer is not in one contiguous piece{what}: {advice}"
    ));
    explained.set_cause(object.py(), Some(error));
    explained
}

/// Whether an object is an array as numpy's are.
fn has_array_interface(object: &Bound<'_, PyAny>) -> bool {
    object.hasattr("__array_interface__").unwrap_or(false)
}

/// Returns whether an object is an array of numpy whose type holds no Python objects.
fn has_only_data(object: &Bound<'_, PyAny>) -> bool {
    let answer = object.getattr("dtype").and_then(|dtype| dtype.getattr("hasobject"));
    answer.and_then(|has_objects| has_objects.is_truthy()).is_ok_and(|has_objects| !has_objects)
}

/// Returns whether a format of the module `struct`, as PEP 3118 and ctypes extend it, contains a Python object
/// (`O`), a pointer (`P`, `&`), a function (`X{}`) or a pointer to a string (`z`, `Z`). Before the code of a float,
/// `Z` means a complex number instead. Names of fields stand between colons.
fn names_pointers(format: &[u8]) -> bool {
    format.split(|byte| *byte == b':').step_by(2).any(|codes| {
        codes.iter().enumerate().any(|(place, code)| match code {
            b'O' | b'P' | b'&' | b'X' | b'z' => true,
            b'Z' => !matches!(codes.get(place + 1), Some(b'f' | b'd' | b'g')),
            _ => false,
        })
    })
}

/// Returns whether the exporter is a ctypes object whose type is declared with Python objects or pointers. A
/// memoryview stands for the object behind it.
fn ctypes_declares_pointers(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    static BASE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = object.py();
    let mut object = object.clone();
    while object.is_exact_instance_of::<PyMemoryView>() {
        object = object.getattr("obj")?;
    }
    let base = BASE.get_or_try_init(py, || -> PyResult<_> {
        Ok(py.import("ctypes")?.getattr("Structure")?.getattr("__base__")?.cast_into()?.unbind())
    })?;
    if !object.is_instance(base.bind(py))? {
        return Ok(false);
    }
    static DECLARES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let declares = DECLARES.import(py, "toroni._ctypes", "declares_pointers")?;
    declares.call1((object.get_type(),))?.is_truthy()
}

/// Lets Python look at an object of bytes: the view then belongs to that.
///
/// # Safety
/// `view` is one that Python wants to have filled.
pub(crate) unsafe fn lend(
    object: &Bound<'_, PyBytes>,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    // SAFETY: the object is alive, the interpreter attached; `view` is the caller's promise.
    if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), view, flags) } == 0 {
        return Ok(());
    }
    Err(PyErr::fetch(object.py()))
}
