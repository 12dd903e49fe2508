//! Checks pointers, strings and lengths that come from C.

use crate::status::{Failure, Outcome};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::time::Duration;
use toroni::Limit;

/// `TORONI_NO_WAIT` of toroni.h.
const NO_WAIT: u64 = 0;
/// `TORONI_FOREVER` of toroni.h.
pub(crate) const FOREVER: u64 = u64::MAX;

/// Returns the handle that a pointer points to.
///
/// # Safety
/// `pointer` meets the requirements for handles (see the crate's documentation) for 'a.
pub(crate) unsafe fn handle<'a, T>(pointer: *const T, what: &str) -> Outcome<&'a T> {
    // SAFETY: the caller guarantees it.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(what))
}

/// Writes what `make` returns to the caller's variable, or zeros if it fails. Checks `to` before it calls `make`, which
/// may receive a message that would be lost.
///
/// # Safety
/// `to` is null or writable. All zeros are a valid `T`.
#[inline]
pub(crate) unsafe fn put<T>(to: *mut T, what: &str, make: impl FnOnce() -> Outcome<T>) -> Outcome {
    if to.is_null() {
        return Err(null(what));
    }
    // SAFETY: not null, and so writable; the caller guarantees that zeros are valid, and the old value needs no drop.
    let clear = OnFailure(|| unsafe { to.write_bytes(0, 1) });
    let made = make()?;
    std::mem::forget(clear);
    // SAFETY: as above.
    unsafe { to.write(made) };
    Ok(())
}

/// Does what [`put`] does, but only calls `make` if there is no variable.
///
/// # Safety
/// As [`put`].
#[inline]
pub(crate) unsafe fn put_optional<T>(to: *mut T, make: impl FnOnce() -> Outcome<T>) -> Outcome {
    if to.is_null() {
        return make().map(drop);
    }
    // SAFETY: the caller guarantees it. The name is not used, because the pointer is not null.
    unsafe { put(to, "", make) }
}

/// Calls its function when it is dropped, also by a panic. Storing a result beforehand would cost each message that is
/// received.
struct OnFailure<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnFailure<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Makes a handle and writes it to the caller's variable, or NULL if that fails.
///
/// # Safety
/// `to` is null or writable.
pub(crate) unsafe fn put_handle<T>(to: *mut *mut T, make: impl FnOnce() -> Outcome<T>) -> Outcome {
    // SAFETY: the caller guarantees it; zeros are a null pointer.
    unsafe { put(to, "the pointer to the handle", || Ok(Box::into_raw(Box::new(make()?)))) }
}

/// Writes a descriptor to the caller's variable, or -1 if `make` fails.
///
/// # Safety
/// `to` is null or writable.
pub(crate) unsafe fn put_fd(to: *mut c_int, make: impl FnOnce() -> Outcome<c_int>) -> Outcome {
    if to.is_null() {
        return Err(null("the pointer to the descriptor"));
    }
    // SAFETY: not null, and so writable.
    unsafe { to.write(-1) };
    let made = make()?;
    // SAFETY: as above.
    unsafe { to.write(made) };
    Ok(())
}

/// Writes a count to the caller's variable, if there is one.
///
/// # Safety
/// `to` is null or writable.
pub(crate) unsafe fn put_count(to: *mut usize, count: usize) {
    if !to.is_null() {
        // SAFETY: not null, and so writable.
        unsafe { to.write(count) };
    }
}

/// Drops a handle.
///
/// # Safety
/// `pointer` is null, or comes from [`put_handle`] and has not been closed.
pub(crate) unsafe fn close<T>(pointer: *mut T) {
    if !pointer.is_null() {
        crate::status::catch_panics(|| {
            // SAFETY: made by `put_handle`; nothing else uses it.
            drop(unsafe { Box::from_raw(pointer) });
            Ok(())
        });
    }
}

/// Returns a string. Null is an error.
///
/// # Safety
/// As [`optional_string`].
pub(crate) unsafe fn string<'a>(pointer: *const c_char, what: &str) -> Outcome<&'a str> {
    // SAFETY: the caller guarantees it.
    unsafe { optional_string(pointer, what) }?.ok_or_else(|| null(what))
}

/// Returns a string, or `None` if the pointer is null.
///
/// # Safety
/// `pointer` is null, or points to bytes that end with 0 and do not change for 'a.
pub(crate) unsafe fn optional_string<'a>(
    pointer: *const c_char,
    what: &str,
) -> Outcome<Option<&'a str>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller guarantees it.
    let text = unsafe { CStr::from_ptr(pointer) };
    let text = text.to_str().map_err(|error| Failure::argument(format!("{what}: {error}")))?;
    Ok(Some(text))
}

/// Options that begin with their size, so that a program can use a library of another release.
///
/// # Safety
/// The type is `repr(C)`, begins with a `usize` that is its size, has no padding at its end, and all zeros are a valid
/// value. A release adds fields only at the end and without padding, and 0 in such a field means the old behaviour.
pub(crate) unsafe trait Options: Copy {
    /// The macro in toroni.h that initialises the options.
    const INIT: &'static str;
}

/// No options will be larger than this. A larger size has not been initialised.
const LARGEST_OPTIONS: usize = 4096;

/// Returns a caller's options. The caller may be built against another release: fields that it does not have are 0,
/// and fields that this release does not have must be 0.
///
/// # Safety
/// `pointer` is null, or points to as many bytes as the `usize` at their start says.
pub(crate) unsafe fn options<T: Options>(pointer: *const T) -> Outcome<T> {
    if pointer.is_null() {
        return Err(null("the options"));
    }
    let bytes: *const u8 = pointer.cast();
    // Only the size is read here, because it says how many more bytes may be read.
    // SAFETY: the caller guarantees it.
    let size = unsafe { bytes.cast::<usize>().read_unaligned() };
    let known = size_of::<T>();
    if !(size_of::<usize>()..=LARGEST_OPTIONS).contains(&size) || size % align_of::<T>() != 0 {
        let text = format!(
            "struct_size is {size}, which is not a possible size: initialise the options with {}",
            T::INIT
        );
        return Err(Failure::argument(text));
    }
    let mut options = MaybeUninit::<T>::zeroed();
    // SAFETY: the source has `size` bytes, the target `known`, and they do not overlap.
    unsafe { bytes.copy_to_nonoverlapping(options.as_mut_ptr().cast(), size.min(known)) };
    for at in known..size {
        // SAFETY: as above.
        if unsafe { bytes.add(at).read() } != 0 {
            let text = format!(
                "byte {at} of the options is set, but this release knows only {known} bytes of them"
            );
            return Err(Failure::argument(text));
        }
    }
    // SAFETY: all zeros are valid, and the bytes that were copied belong to the same fields.
    Ok(unsafe { options.assume_init() })
}

/// Returns the array of `length` items at `pointer`.
///
/// # Safety
/// `pointer` is null, or points to that many items, which do not change for 'a.
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
        return Err(Failure::argument(format!(
            "{what}: there cannot be {length} items at {pointer:p}"
        )));
    }
    // SAFETY: not null, aligned, not larger than memory; the caller guarantees the rest.
    Ok(unsafe { std::slice::from_raw_parts(pointer, length) })
}

/// Returns the bytes of a message.
///
/// # Safety
/// As [`slice`].
#[inline]
pub(crate) unsafe fn payload<'a>(pointer: *const c_void, length: usize) -> Outcome<&'a [u8]> {
    // SAFETY: the caller guarantees it.
    unsafe { slice(pointer.cast(), length, "the payload") }
}

/// Returns the timeout, or `None` for `TORONI_FOREVER`.
pub(crate) fn timeout(ns: u64) -> Option<Duration> {
    (ns != FOREVER).then(|| Duration::from_nanos(ns))
}

/// Returns the limit of a call that publishes.
#[inline]
pub(crate) fn limit(timeout_ns: u64) -> Limit {
    match timeout_ns {
        NO_WAIT => Limit::Try,
        FOREVER => Limit::Policy,
        ns => Limit::Within(Duration::from_nanos(ns)),
    }
}

pub(crate) fn null(what: &str) -> Failure {
    Failure::argument(format!("{what} is null"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The options as this release knows them.
    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Known {
        size: usize,
        first: u32,
        second: u32,
        third: u64,
    }

    // SAFETY: it has these properties.
    unsafe impl Options for Known {
        const INIT: &'static str = "KNOWN_INIT";
    }

    fn read(words: &[usize]) -> Outcome<Known> {
        assert_eq!(words[0] / size_of::<usize>(), words.len());
        // SAFETY: the first word says how many there are.
        unsafe { options(words.as_ptr().cast()) }
    }

    #[test]
    fn options_of_older_and_newer_programs_are_understood() {
        // `first` and `second`, in one word.
        let word = usize::from_ne_bytes([3_u32.to_ne_bytes(), [0; 4]].concat().try_into().unwrap());
        let whole = Known { size: 24, first: 3, second: 0, third: 9 };
        assert_eq!(read(&[24, word, 9]).ok(), Some(whole));
        // From a release without `third`.
        assert_eq!(read(&[16, word]).ok(), Some(Known { size: 16, third: 0, ..whole }));
        assert_eq!(read(&[8]).ok(), Some(Known { size: 8, first: 0, second: 0, third: 0 }));
        // From a release with two more fields, which are not set.
        assert_eq!(read(&[40, word, 9, 0, 0]).ok(), Some(Known { size: 40, ..whole }));
        for (used, at) in [([40, word, 9, 1, 0], "byte 24"), ([40, word, 9, 0, 1], "byte 32")] {
            let text = read(&used).unwrap_err().text.unwrap();
            assert!(text.contains(at) && text.contains("knows only 24"), "{text}");
        }
    }

    #[test]
    fn an_impossible_size_of_options_is_an_error() {
        for size in [0, 7, 9, 23, 25, 4104, usize::MAX] {
            // SAFETY: only the size is read.
            let text =
                unsafe { options::<Known>([size].as_ptr().cast()) }.unwrap_err().text.unwrap();
            assert!(text.contains(&size.to_string()) && text.contains("KNOWN_INIT"), "{text}");
        }
    }
}
