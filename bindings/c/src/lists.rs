//! Lists that a handle owns, and the strings that their items point to.

use crate::status::{Failure, Outcome};
use std::ffi::{CString, c_char};
use std::path::Path;

/// Strings that end with 0. Their addresses stay valid as long as this list.
#[derive(Default)]
pub(crate) struct Strings(Vec<CString>);

impl Strings {
    /// Stores a string without the zeros in it, and returns its address.
    pub(crate) fn keep(&mut self, text: impl AsRef<[u8]>) -> *const c_char {
        let bytes: Vec<u8> = text.as_ref().iter().copied().filter(|byte| *byte != 0).collect();
        let text = CString::new(bytes).unwrap_or_default();
        // The bytes do not move when the vector grows.
        let pointer = text.as_ptr();
        self.0.push(text);
        pointer
    }

    pub(crate) fn keep_path(&mut self, path: &Path) -> *const c_char {
        self.keep(path.as_os_str().as_encoded_bytes())
    }
}

/// Returns the address of the item at an index.
pub(crate) fn one<T>(all: &[T], index: usize) -> Outcome<*const T> {
    let found = all.get(index).map(std::ptr::from_ref);
    found.ok_or_else(|| {
        Failure::argument(format!("index {index} is out of range: there are {}", all.len()))
    })
}
