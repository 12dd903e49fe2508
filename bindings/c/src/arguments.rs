//! Pointers, strings and lengths from outside: checked here, once.

use crate::status::{Failure, Outcome};
use std::ffi::{CStr, c_char, c_void};
use std::time::Duration;

/// `TORONI_FOREVER` of the header.
pub(crate) const FOREVER: u64 = u64::MAX;

/// The handle behind a pointer.
///
/// # Safety
/// `pointer` is null, or what callers owe for a handle holds for 'a.
pub(crate) unsafe fn handle<'a, T>(pointer: *const T, what: &str) -> Outcome<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(what))
}

/// Writes a result to where the caller wants it.
///
/// # Safety
/// `to` is null, or may be written.
pub(crate) unsafe fn put<T>(to: *mut T, what: &str, value: T) -> Outcome {
    if to.is_null() {
        return Err(null(what));
    }
    // SAFETY: not null, and so writable; it may hold anything before.
    unsafe { to.write(value) };
    Ok(())
}

/// Hands a new handle to the caller. The place for it is looked at before it is made.
///
/// # Safety
/// As [`put`].
pub(crate) unsafe fn put_handle<T>(to: *mut *mut T, make: impl FnOnce() -> Outcome<T>) -> Outcome {
    if to.is_null() {
        return Err(null("the place for the handle"));
    }
    // SAFETY: as in `put`.
    unsafe { to.write(std::ptr::null_mut()) };
    let made = Box::into_raw(Box::new(make()?));
    // SAFETY: as above.
    unsafe { to.write(made) };
    Ok(())
}

/// Closes a handle.
///
/// # Safety
/// `pointer` is null, or one of [`put_handle`] that was not closed yet.
pub(crate) unsafe fn close<T>(pointer: *mut T) {
    if !pointer.is_null() {
        crate::status::edge(|| {
            // SAFETY: made by `put_handle`, and nobody's but the caller's.
            drop(unsafe { Box::from_raw(pointer) });
            Ok(())
        });
    }
}

/// A string that must be there.
///
/// # Safety
/// As [`optional_string`].
pub(crate) unsafe fn string<'a>(pointer: *const c_char, what: &str) -> Outcome<&'a str> {
    // SAFETY: the caller's promise.
    unsafe { optional_string(pointer, what) }?.ok_or_else(|| null(what))
}

/// A string that may be left out.
///
/// # Safety
/// `pointer` is null, or at bytes that end with 0 and stay for 'a.
pub(crate) unsafe fn optional_string<'a>(
    pointer: *const c_char,
    what: &str,
) -> Outcome<Option<&'a str>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) };
    let text = text.to_str().map_err(|error| Failure::argument(format!("{what}: {error}")))?;
    Ok(Some(text))
}

/// `length` things from `pointer` on.
///
/// # Safety
/// `pointer` is null, or at as many things, which stay as they are for 'a.
pub(crate) unsafe fn slice<'a, T>(
    pointer: *const T,
    length: usize,
    what: &str,
) -> Outcome<&'a [T]> {
    if length == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(null(what));
    }
    if !pointer.is_aligned() || length > isize::MAX.unsigned_abs() / size_of::<T>().max(1) {
        return Err(Failure::argument(format!("{what}: {length} at {pointer:p} cannot be")));
    }
    // SAFETY: not null, aligned, not longer than memory; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(pointer, length) })
}

/// The bytes of a message.
///
/// # Safety
/// As [`slice`].
#[inline]
pub(crate) unsafe fn payload<'a>(pointer: *const c_void, length: usize) -> Outcome<&'a [u8]> {
    // SAFETY: the caller's promise.
    unsafe { slice(pointer.cast(), length, "the payload") }
}

/// The time limit of a call; `None` for ever.
pub(crate) fn timeout(ns: u64) -> Option<Duration> {
    (ns != FOREVER).then(|| Duration::from_nanos(ns))
}

pub(crate) fn null(what: &str) -> Failure {
    Failure::argument(format!("{what} is null"))
}
