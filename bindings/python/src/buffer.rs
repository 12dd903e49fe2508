//! Bytes of objects with Python's buffer protocol. All unsafe code of the module is here, except the function with
//! which Python requests the buffer of a message (`message.rs`).
//!
//! A buffer belongs to Python: another thread may write to it while it is copied, as with `zlib.compress` or
//! `socket.send`. The copy then mixes old and new bytes, but nothing else breaks, because this code only copies the
//! bytes and never interprets them. A view keeps the memory at its address.
//!
//! [`View::of`] refuses memory that holds Python objects or pointers. Another process cannot use such addresses,
//! and after `receive_into` Python would follow an address that came from a message.

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList, PyMemoryView, PyTuple, PyType};
use std::ffi::{CStr, c_int};

/// The bytes of a message to be published. It keeps them alive.
pub(crate) enum Payload {
    /// An immutable `bytes` object.
    Bytes(Kept<PyBytes>),
    /// Any other object with a contiguous buffer.
    Buffer(View),
}

/// A `bytes` object, and the address of its bytes.
pub(crate) struct Kept<T> {
    start: *const u8,
    length: usize,
    _object: Py<T>,
}

// SAFETY: the address and the length of immutable memory, and the object that keeps it alive, which is `Send`.
unsafe impl<T> Send for Kept<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Kept<T> {}

impl Payload {
    /// Returns the bytes of an object.
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
            // SAFETY: the bytes of an immutable object that lives as long as `self`.
            Self::Bytes(kept) => unsafe { std::slice::from_raw_parts(kept.start, kept.length) },
            Self::Buffer(view) => view.bytes(),
        }
    }
}

/// The payloads of several messages.
pub(crate) enum Payloads {
    /// One object for each message.
    Many(Vec<Payload>),
    /// An array in which each row is a message, and the number of bytes in a row.
    Rows(View, usize),
}

impl Payloads {
    /// Returns the rows of an array with two or more dimensions, or the items of any other iterable.
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
        // SAFETY: the object is alive, and the thread is attached to the interpreter.
        if unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } != 0 {
            return Self::rows(View::of(object, ffi::PyBUF_ND)?, object.py());
        }
        object.try_iter()?.map(|item| Payload::of(&item?)).collect::<PyResult<_>>().map(Self::Many)
    }

    fn rows(view: View, py: Python<'_>) -> PyResult<Self> {
        let Some(rows) = view.rows() else {
            return Err(PyBufferError::new_err(
                "a buffer with one dimension is one message: pass a list of payloads, or an array with two dimensions",
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

    /// Calls a function with the payloads as slices.
    pub(crate) fn with<R>(&self, call: impl FnOnce(&[&[u8]]) -> R) -> R {
        match self {
            Self::Many(payloads) => {
                call(&payloads.iter().map(AsRef::as_ref).collect::<Vec<&[u8]>>())
            }
            Self::Rows(view, row) => call(&view.bytes().chunks_exact(*row).collect::<Vec<&[u8]>>()),
        }
    }
}

/// A buffer of the caller that receives a message.
pub(crate) struct Target(View);

impl Target {
    /// Returns the writable buffer of an object.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        View::of(object, ffi::PyBUF_ND | ffi::PyBUF_WRITABLE).map(Self)
    }

    /// Returns the size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.bytes().len()
    }

    /// Returns the whole buffer for writing.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        let length = self.0.bytes().len();
        if length == 0 {
            return &mut [];
        }
        // SAFETY: contiguous and writable, as requested; the view keeps it alive. Other threads of Python may use it at
        // the same time: see the head of this file. `&mut self` excludes other slices of it here.
        unsafe { std::slice::from_raw_parts_mut(self.0.0.buf.cast(), length) }
    }
}

/// A view of an object's memory, contiguous in row-major order. It is boxed because some objects store pointers into
/// the view in the view itself.
pub(crate) struct View(Box<ffi::Py_buffer>);

// SAFETY: a view does not belong to a thread; the drop attaches to the interpreter to release it.
unsafe impl Send for View {}
// SAFETY: as above; its memory is only copied.
unsafe impl Sync for View {}

impl View {
    /// Requests a view of an object's memory, which must hold neither Python objects nor pointers. `flags` do not
    /// request strides, so the memory is contiguous.
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
            "the buffer holds Python objects or pointers, which mean nothing to another process: pass a buffer of numbers or bytes",
        ))
    }

    fn ask(object: &Bound<'_, PyAny>, flags: c_int) -> PyResult<Self> {
        let mut view = Box::new(ffi::Py_buffer::new());
        // SAFETY: the object is alive, the thread is attached to the interpreter, and the view may be overwritten.
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
        // SAFETY: contiguous, as requested, and kept alive by the view. For other threads of Python see the head of
        // this file.
        unsafe { std::slice::from_raw_parts(self.0.buf.cast(), length) }
    }

    /// Returns the format of an item, for a view that was requested with one. An exporter may leave it out, which
    /// means bytes.
    fn format(&self) -> &[u8] {
        if self.0.format.is_null() {
            return b"B";
        }
        // SAFETY: a C string that lives as long as the view.
        unsafe { CStr::from_ptr(self.0.format) }.to_bytes()
    }

    /// Returns whether the format may omit a part of the item. ctypes writes `B` for a union or a packed structure,
    /// and omits the fields of base classes.
    fn may_omit_fields(&self, format: &[u8]) -> bool {
        format == b"B" && self.0.itemsize != 1 || format.contains(&b'{')
    }

    /// Returns the number of rows of an array with two or more dimensions.
    fn rows(&self) -> Option<usize> {
        if self.0.ndim < 2 || self.0.shape.is_null() {
            return None;
        }
        // SAFETY: one number for each dimension, alive as long as the view.
        usize::try_from(unsafe { *self.0.shape }).ok()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: filled by its object, and released once, attached to the interpreter.
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
        ("", "pass a contiguous copy (numpy.ascontiguousarray)")
    } else {
        (", or cannot be written", "pass a bytearray, or a contiguous, writable array")
    };
    let explained = PyBufferError::new_err(format!(
        "the buffer is not in one contiguous piece{what}: {advice}"
    ));
    explained.set_cause(object.py(), Some(error));
    explained
}

/// Returns whether an object has the array interface of numpy.
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
        codes.iter().enumerate().any(|(at, code)| match code {
            b'O' | b'P' | b'&' | b'X' | b'z' => true,
            b'Z' => !matches!(codes.get(at + 1), Some(b'f' | b'd' | b'g')),
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

/// Fills a view for Python with a `bytes` object, which the view then refers to.
///
/// # Safety
/// `view` is one that Python passed to be filled.
pub(crate) unsafe fn lend(
    object: &Bound<'_, PyBytes>,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    // SAFETY: the object is alive, and the thread is attached to the interpreter; the caller guarantees `view`.
    if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), view, flags) } == 0 {
        return Ok(());
    }
    Err(PyErr::fetch(object.py()))
}
