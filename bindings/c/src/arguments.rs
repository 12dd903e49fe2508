//! Pointers, strings and lengths from outside: checked here, once.

use crate::status::{Failure, Outcome};
use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
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
        crate::status::catch_panics(|| {
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

/// Options that begin with their size, by which programs and library of different releases understand one another.
///
/// # Safety
/// It is `repr(C)`, begins with a `usize` that is its size, has no bytes of padding at its end, and may be all zeros.
/// A field that a release adds stands at the end, leaves no padding, and 0 is what held before.
pub(crate) unsafe trait Options: Copy {
    /// The macro of the header that makes one.
    const INIT: &'static str;
}

/// No structure of options will be larger: whoever says so has not set its size.
const LARGEST_OPTIONS: usize = 4096;

/// The options of a caller, who may know less of them than this release, or more: what it does not know is 0, and
/// what it knows more must be 0.
///
/// # Safety
/// `pointer` is null, or at as many bytes as the `usize` there says.
pub(crate) unsafe fn options<T: Options>(pointer: *const T) -> Outcome<T> {
    if pointer.is_null() {
        return Err(null("the options"));
    }
    let bytes: *const u8 = pointer.cast();
    // By itself: how much more there is, it tells.
    // SAFETY: the caller's promise.
    let size = unsafe { bytes.cast::<usize>().read_unaligned() };
    let known = size_of::<T>();
    if !(size_of::<usize>()..=LARGEST_OPTIONS).contains(&size) || size % align_of::<T>() != 0 {
        let text = format!("struct_size is {size}, which is no size of it: take {}", T::INIT);
        return Err(Failure::argument(text));
    }
    let mut options = MaybeUninit::<T>::zeroed();
    // SAFETY: as many bytes are there, and have room; the two are not the same.
    unsafe { bytes.copy_to_nonoverlapping(options.as_mut_ptr().cast(), size.min(known)) };
    for at in known..size {
        // SAFETY: as above.
        if unsafe { bytes.add(at).read() } != 0 {
            let text = format!(
                "the options of {size} bytes have something at {at}: this release knows {known}"
            );
            return Err(Failure::argument(text));
        }
    }
    // SAFETY: zeros are one, and what was copied is the caller's, of the same fields.
    Ok(unsafe { options.assume_init() })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Of this release.
    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Known {
        size: usize,
        first: u32,
        second: u32,
        third: u64,
    }

    // SAFETY: it is so.
    unsafe impl Options for Known {
        const INIT: &'static str = "KNOWN_INIT";
    }

    /// What is read of as many words as there are.
    fn read(words: &[usize]) -> Outcome<Known> {
        assert_eq!(words[0] / size_of::<usize>(), words.len());
        // SAFETY: as many as the first says.
        unsafe { options(words.as_ptr().cast()) }
    }

    #[test]
    fn options_of_older_and_newer_programs_are_understood() {
        // The first of two in a word.
        let word = usize::from_ne_bytes([3_u32.to_ne_bytes(), [0; 4]].concat().try_into().unwrap());
        let whole = Known { size: 24, first: 3, second: 0, third: 9 };
        assert_eq!(read(&[24, word, 9]).ok(), Some(whole));
        // Of a release that had no third.
        assert_eq!(read(&[16, word]).ok(), Some(Known { size: 16, third: 0, ..whole }));
        assert_eq!(read(&[8]).ok(), Some(Known { size: 8, first: 0, second: 0, third: 0 }));
        // Of one that has two more, which are not used.
        assert_eq!(read(&[40, word, 9, 0, 0]).ok(), Some(Known { size: 40, ..whole }));
        for (used, at) in [([40, word, 9, 1, 0], "at 24"), ([40, word, 9, 0, 1], "at 32")] {
            let text = read(&used).unwrap_err().text.unwrap();
            assert!(text.contains(at) && text.contains("knows 24"), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_of_options_is_told() {
        for size in [0, 7, 9, 23, 25, 4104, usize::MAX] {
            // SAFETY: nothing but the size is looked at.
            let text =
                unsafe { options::<Known>([size].as_ptr().cast()) }.unwrap_err().text.unwrap();
            assert!(text.contains(&size.to_string()) && text.contains("KNOWN_INIT"), "{text}");
        }
    }
}
