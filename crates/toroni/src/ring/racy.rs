//! In-place access to bytes of the ring that another process may write at the same time.
//!
//! A plain `&[u8]` over such bytes would be undefined behaviour, even if the bytes are validated
//! later: the compiler may read them twice or cache them. These views therefore copy bytes in and
//! out with relaxed atomic loads and stores of whole words. They give out a slice only through
//! `unsafe` methods, in which the caller promises that there is no race.

use super::copy;
use crate::sync::{AtomicU64, Ordering};

/// A read-only view of a message's bytes in shared memory.
///
/// A publisher may overwrite the bytes while they are read. What was read is valid only if a
/// validation after reading succeeds.
///
/// If the message had already been copied out of the ring, the view reads that copy.
#[derive(Clone, Copy)]
pub struct RacyBytes<'a>(Source<'a>);

#[derive(Clone, Copy)]
enum Source<'a> {
    Ring { words: &'a [AtomicU64], length: usize },
    Private(&'a [u8]),
}

impl<'a> RacyBytes<'a> {
    /// Makes a view of the first `length` bytes of `words`, or returns `None` if there are fewer.
    #[inline]
    pub(crate) fn new(words: &'a [AtomicU64], length: usize) -> Option<Self> {
        (length.div_ceil(8) <= words.len())
            .then(|| Self(Source::Ring { words: &words[..length.div_ceil(8)], length }))
    }

    /// Makes a view of private bytes, which no other process writes.
    #[inline]
    pub(crate) fn private(bytes: &'a [u8]) -> Self {
        Self(Source::Private(bytes))
    }

    #[inline]
    pub(crate) fn is_private(self) -> bool {
        matches!(self.0, Source::Private(_))
    }

    /// Returns the number of bytes.
    #[inline]
    #[must_use]
    pub fn len(self) -> usize {
        match self.0 {
            Source::Ring { length, .. } => length,
            Source::Private(bytes) => bytes.len(),
        }
    }

    /// Returns whether the view has no bytes.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the byte at `offset`, or `None` if the view ends before it.
    #[must_use]
    pub fn get(self, offset: usize) -> Option<u8> {
        match self.0 {
            Source::Ring { words, length } => (offset < length)
                .then(|| words[offset / 8].load(Ordering::Relaxed).to_ne_bytes()[offset % 8]),
            Source::Private(bytes) => bytes.get(offset).copied(),
        }
    }

    /// Returns the `N` bytes at `offset`, or `None` if the view ends before their end. Useful for
    /// numbers:
    ///
    /// ```
    /// # fn read(payload: toroni::RacyBytes<'_>) -> Option<u32> {
    /// payload.array(4).map(u32::from_le_bytes)
    /// # }
    /// ```
    #[inline]
    #[must_use]
    pub fn array<const N: usize>(self, offset: usize) -> Option<[u8; N]> {
        if self.len().checked_sub(offset)? < N {
            return None;
        }
        let mut bytes = [0; N];
        match self.0 {
            // The common case: all bytes are in one word.
            Source::Ring { words, .. } if N > 0 && offset % 8 + N <= 8 => {
                let word = words[offset / 8].load(Ordering::Relaxed).to_ne_bytes();
                bytes.copy_from_slice(&word[offset % 8..][..N]);
            }
            Source::Ring { words, .. } => copy::load_bytes(words, offset, &mut bytes),
            Source::Private(whole) => bytes.copy_from_slice(&whole[offset..][..N]),
        }
        Some(bytes)
    }

    /// Iterates over all bytes, eight at a time, for sums and searches. If the length is not a
    /// multiple of eight, the last item is padded with zeros.
    ///
    /// ```
    /// # fn read(payload: toroni::RacyBytes<'_>) -> u64 {
    /// payload.words().map(u64::from_le_bytes).fold(0, u64::wrapping_add)
    /// # }
    /// ```
    #[inline]
    pub fn words(self) -> impl ExactSizeIterator<Item = [u8; 8]> + 'a {
        let length = self.len();
        (0..length.div_ceil(8)).map(move |number| {
            let left = length - number * 8;
            let mut bytes = [0; 8];
            match self.0 {
                Source::Ring { words, .. } => {
                    bytes = words[number].load(Ordering::Relaxed).to_ne_bytes();
                    if left < 8 {
                        bytes[left..].fill(0);
                    }
                }
                Source::Private(whole) => {
                    let left = left.min(8);
                    bytes[..left].copy_from_slice(&whole[number * 8..][..left]);
                }
            }
            bytes
        })
    }

    /// Fills `into` with the bytes from `offset` on.
    ///
    /// # Panics
    ///
    /// Panics if there are fewer than `into.len()` bytes, as indexing a slice does.
    pub fn copy_to(self, offset: usize, into: &mut [u8]) {
        assert!(
            offset.checked_add(into.len()).is_some_and(|end| end <= self.len()),
            "{} bytes at {offset} of {}",
            into.len(),
            self.len()
        );
        match self.0 {
            Source::Ring { words, .. } => copy::load_bytes(words, offset, into),
            Source::Private(bytes) => into.copy_from_slice(&bytes[offset..][..into.len()]),
        }
    }

    /// Copies all bytes into a vector.
    #[must_use]
    pub fn to_vec(self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.copy_to(0, &mut bytes);
        bytes
    }

    /// Returns a pointer to the bytes, for code in other languages. A publisher may write the bytes
    /// while they are read: what was read is valid only if a validation after reading succeeds.
    #[inline]
    #[must_use]
    pub fn as_ptr(self) -> *const u8 {
        match self.0 {
            Source::Ring { words, .. } => words.as_ptr().cast(),
            Source::Private(bytes) => bytes.as_ptr(),
        }
    }

    /// Returns the bytes as a slice, without copying.
    ///
    /// # Safety
    ///
    /// No publisher may write these bytes while the slice is alive. This holds if the subscriber
    /// gates, the policy of the bus is `Wait { limit: None }`, and every publisher follows the
    /// protocol.
    #[must_use]
    pub unsafe fn as_slice(self) -> &'a [u8] {
        match self.0 {
            // SAFETY: `words` holds at least `length` bytes and lives for 'a. The caller promises
            // that no process writes them.
            Source::Ring { words, length } => unsafe {
                core::slice::from_raw_parts(words.as_ptr().cast(), length)
            },
            Source::Private(bytes) => bytes,
        }
    }
}

/// A writable view of the payload of a message that is being published, at its final location in
/// shared memory.
///
/// Until they are written, the bytes hold what an older message left there.
pub struct RacyBytesMut<'a> {
    words: &'a [AtomicU64],
    length: usize,
}

impl<'a> RacyBytesMut<'a> {
    /// Makes a view of the first `length` bytes of `words`, or returns `None` if there are fewer.
    /// The caller owns the writer lock.
    #[inline]
    pub(crate) fn new(words: &'a [AtomicU64], length: usize) -> Option<Self> {
        (length.div_ceil(8) <= words.len())
            .then(|| Self { words: &words[..length.div_ceil(8)], length })
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns whether the view has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Writes `bytes` at `offset`.
    ///
    /// # Panics
    ///
    /// Panics if they do not fit, as indexing a slice does.
    #[inline]
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(
            offset.checked_add(bytes.len()).is_some_and(|end| end <= self.length),
            "{} bytes at {offset} of {}",
            bytes.len(),
            self.length
        );
        if offset.is_multiple_of(8) && bytes.len().is_multiple_of(8) {
            copy::store_in_row(&self.words[offset / 8..], bytes);
        } else {
            copy::store_bytes(self.words, offset, bytes);
        }
    }

    /// Sets every byte to `value`.
    pub fn fill(&mut self, value: u8) {
        for word in &self.words[..self.length / 8] {
            word.store(u64::from_ne_bytes([value; 8]), Ordering::Relaxed);
        }
        let whole = self.length / 8 * 8;
        self.write(whole, &[value; 8][..self.length - whole]);
    }

    /// Returns a pointer to the bytes, for code in other languages. Code that writes through it
    /// must not write beyond [`Self::len`], must stop before this view ends, and must accept the
    /// conditions of [`Self::as_mut_slice`].
    #[inline]
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.words.as_ptr().cast_mut().cast()
    }

    /// Returns the bytes as a slice, without copying.
    ///
    /// # Safety
    ///
    /// This message may overwrite bytes that a slow subscriber is reading at the same time. The
    /// subscriber reads with relaxed atomic loads and discards the result. Rust still calls this a
    /// data race, because the writes are not atomic, although it does no harm on the processors
    /// that Rust supports. Use this method only if you accept that, or if no subscriber is ever
    /// lapped (policy `Wait { limit: None }`).
    pub unsafe fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: `words` holds at least `length` bytes, which only the owner of the writer lock
        // writes. The caller promises the rest.
        unsafe {
            core::slice::from_raw_parts_mut(self.words.as_ptr().cast_mut().cast(), self.length)
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_in_and_out_at_any_offset() {
        let words: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(u64::MAX)).collect();
        for length in 0..=61 {
            for offset in 0..=length {
                let mut view = RacyBytesMut::new(&words, length).unwrap();
                view.fill(7);
                let bytes: Vec<u8> = (1..=u8::MAX).take(length - offset).collect();
                view.write(offset, &bytes);
                let read = RacyBytes::new(&words, length).unwrap();
                assert_eq!(read.len(), length);
                let mut expected = vec![7; offset];
                expected.extend(&bytes);
                assert_eq!(read.to_vec(), expected);
                let mut part = vec![0; length - offset];
                read.copy_to(offset, &mut part);
                assert_eq!(part, bytes);
                let private = RacyBytes::private(&expected);
                for view in [read, private] {
                    let words: Vec<u8> = view.words().flatten().collect();
                    assert_eq!(view.words().len(), length.div_ceil(8));
                    assert!(words.starts_with(&expected) && words.len() < length + 8);
                    assert!(words[length..].iter().all(|byte| *byte == 0));
                    assert_eq!(view.array(offset), expected.get(offset..).and_then(first::<1>));
                    assert_eq!(view.array(offset), expected.get(offset..).and_then(first::<3>));
                    assert_eq!(view.array(offset), expected.get(offset..).and_then(first::<8>));
                    assert_eq!(view.array(offset), expected.get(offset..).and_then(first::<21>));
                    assert_eq!(view.array(offset), Some([]));
                    assert_eq!(view.array::<0>(length + 1), None);
                }
                assert_eq!(read.get(length), None);
                assert_eq!(read.get(offset), expected.get(offset).copied());
                // SAFETY: only this thread uses the words.
                assert_eq!(unsafe { read.as_slice() }, expected);
                assert!(std::ptr::eq(read.as_ptr(), words.as_ptr().cast()));
                assert!(std::ptr::eq(view.as_mut_ptr(), read.as_ptr()));
                assert!(std::ptr::eq(private.as_ptr(), expected.as_ptr()));
            }
        }
    }

    fn first<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
        bytes.first_chunk().copied()
    }

    #[test]
    #[should_panic(expected = "9 bytes at 0 of 8")]
    fn writing_beyond_the_end_panics() {
        let words = [AtomicU64::new(0), AtomicU64::new(0)];
        RacyBytesMut::new(&words, 8).unwrap().write(0, &[0; 9]);
    }
}
