//! Bytes of objects with Python's buffer protocol. All unsafe code of the module is here, and in the one
//! function by which Python asks a message for its buffer.
//!
//! A buffer belongs to Python: another thread may write to it while it is copied, as it may for
//! `zlib.compress` or `socket.send`. What is copied then is a mixture, and nothing else breaks: nobody here
//! looks at the bytes, they are copied and no more. A view keeps the memory where it is.

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
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
                "one row of bytes is one message: give a list of them, or an array of two dimensions",
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
    /// The memory of an object that allows writing, unless Python would take what is written for objects.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let view = View::of(object, ffi::PyBUF_ND | ffi::PyBUF_WRITABLE)?;
        if has_objects(object)? {
            let message = "the buffer holds objects of Python, not bytes of its own: give an array of numbers or bytes";
            return Err(PyBufferError::new_err(message));
        }
        Ok(Self(view))
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
    /// Asks an object for one. `flags` do not ask for strides, so that it is in one piece.
    fn of(object: &Bound<'_, PyAny>, flags: c_int) -> PyResult<Self> {
        let py = object.py();
        let mut view = Box::new(ffi::Py_buffer::new());
        // SAFETY: the object is alive, the interpreter attached, and the view is to be filled.
        if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *view, flags) } == 0 {
            return Ok(Self(view));
        }
        let error = PyErr::fetch(py);
        // numpy says ValueError.
        let asks_too_much = error.is_instance_of::<PyBufferError>(py)
            || error.is_instance_of::<PyValueError>(py) && has_array_interface(object);
        if !asks_too_much {
            return Err(error);
        }
        let what = if flags & ffi::PyBUF_WRITABLE == 0 { "" } else { ", or cannot be written" };
        let explained = PyBufferError::new_err(format!(
            "the bytes are not in one piece, row after row{what}: give a contiguous copy (numpy.ascontiguousarray)"
        ));
        explained.set_cause(py, Some(error));
        Err(explained)
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

    /// What it holds, if it was asked for that, and tells.
    fn format(&self) -> Option<&[u8]> {
        if self.0.format.is_null() {
            return None;
        }
        // SAFETY: a string of C, alive as the view is.
        Some(unsafe { CStr::from_ptr(self.0.format) }.to_bytes())
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

/// Whether an object is an array as numpy's are.
fn has_array_interface(object: &Bound<'_, PyAny>) -> bool {
    object.hasattr("__array_interface__").unwrap_or(false)
}

/// Whether the memory of an object with the buffer protocol holds references to others.
fn has_objects(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    // numpy has no format for some of its types, but tells for all of them.
    if has_array_interface(object)
        && let Ok(answer) = object.getattr("dtype").and_then(|dtype| dtype.getattr("hasobject"))
    {
        return answer.is_truthy();
    }
    let view = View::of(object, ffi::PyBUF_ND | ffi::PyBUF_FORMAT)?;
    Ok(view.format().is_some_and(names_objects))
}

/// Whether a format of the module `struct`, as PEP 3118 extends it, has a letter for objects. Names of fields
/// stand between colons.
fn names_objects(format: &[u8]) -> bool {
    format.split(|byte| *byte == b':').step_by(2).any(|letters| letters.contains(&b'O'))
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
