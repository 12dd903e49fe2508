//! Access in place to bytes of the ring that another process may write at the same time.
//!
//! A plain `&[u8]` over such bytes is undefined behaviour, whatever is validated later: the compiler
//! may read them twice, or keep what it read. So these views copy in and out by relaxed words, and
//! hand out a slice only against a promise.

use super::copy;
use crate::sync::{AtomicU64, Ordering};

/// The bytes of a message where they lie in shared memory, for reading.
///
/// What is read counts only if the view is validated afterwards.
///
/// A message that was copied before it was asked for in place is read from that copy.
#[derive(Clone, Copy)]
pub struct RacyBytes<'a>(Source<'a>);

#[derive(Clone, Copy)]
enum Source<'a> {
    Ring { words: &'a [AtomicU64], length: usize },
    Private(&'a [u8]),
}

impl<'a> RacyBytes<'a> {
    /// The first `length` bytes of `words`; `None` if there are not so many.
    #[inline]
    pub(crate) fn new(words: &'a [AtomicU64], length: usize) -> Option<Self> {
        (length.div_ceil(8) <= words.len())
            .then(|| Self(Source::Ring { words: &words[..length.div_ceil(8)], length }))
    }

    /// Bytes that nobody else writes.
    #[inline]
    pub(crate) fn private(bytes: &'a [u8]) -> Self {
        Self(Source::Private(bytes))
    }

    #[inline]
    pub(crate) fn is_private(self) -> bool {
        matches!(self.0, Source::Private(_))
    }

    /// Number of bytes.
    #[inline]
    #[must_use]
    pub fn len(self) -> usize {
        match self.0 {
            Source::Ring { length, .. } => length,
            Source::Private(bytes) => bytes.len(),
        }
    }

    /// Whether there are none.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The byte at `offset`, if it is one of them.
    #[must_use]
    pub fn get(self, offset: usize) -> Option<u8> {
        match self.0 {
            Source::Ring { words, length } => (offset < length)
                .then(|| words[offset / 8].load(Ordering::Relaxed).to_ne_bytes()[offset % 8]),
            Source::Private(bytes) => bytes.get(offset).copied(),
        }
    }

    /// The `N` bytes from `offset` on, if there are so many: a number, say.
    ///
    /// ```
    /// # fn look(payload: toroni::RacyBytes<'_>) -> Option<u32> {
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
            // The common case: all of it is in one word.
            Source::Ring { words, .. } if N > 0 && offset % 8 + N <= 8 => {
                let word = words[offset / 8].load(Ordering::Relaxed).to_ne_bytes();
                bytes.copy_from_slice(&word[offset % 8..][..N]);
            }
            Source::Ring { words, .. } => copy::load_bytes(words, offset, &mut bytes),
            Source::Private(whole) => bytes.copy_from_slice(&whole[offset..][..N]),
        }
        Some(bytes)
    }

    /// All bytes, eight at a time, for sums and searches; behind the last one stand zeros.
    ///
    /// ```
    /// # fn look(payload: toroni::RacyBytes<'_>) -> u64 {
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

    /// Copies bytes from `offset` on into all of `into`.
    ///
    /// # Panics
    /// If there are fewer, as with a slice.
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

    /// All bytes, copied.
    #[must_use]
    pub fn to_vec(self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.copy_to(0, &mut bytes);
        bytes
    }

    /// Where the bytes are, for code in other languages. A publisher may write them while they are read: what
    /// was read counts only behind the validation.
    #[inline]
    #[must_use]
    pub fn as_ptr(self) -> *const u8 {
        match self.0 {
            Source::Ring { words, .. } => words.as_ptr().cast(),
            Source::Private(bytes) => bytes.as_ptr(),
        }
    }

    /// The bytes as a slice, without a copy.
    ///
    /// # Safety
    /// No publisher writes these bytes while the slice lives. That holds if this subscriber gates,
    /// the policy of the bus is `Wait { limit: None }`, and every publisher keeps to the protocol.
    #[must_use]
    pub unsafe fn as_slice(self) -> &'a [u8] {
        match self.0 {
            // SAFETY: `words` holds at least `length` bytes and lives for 'a; that nobody writes them
            // is the caller's promise.
            Source::Ring { words, length } => unsafe {
                core::slice::from_raw_parts(words.as_ptr().cast(), length)
            },
            Source::Private(bytes) => bytes,
        }
    }
}

/// The bytes of a message that is being published, where they will be read, for writing.
///
/// They hold what an older message left there, until they are written.
pub struct RacyBytesMut<'a> {
    words: &'a [AtomicU64],
    length: usize,
}

impl<'a> RacyBytesMut<'a> {
    /// The first `length` bytes of `words`; `None` if there are not so many. The caller owns the
    /// writer lock.
    #[inline]
    pub(crate) fn new(words: &'a [AtomicU64], length: usize) -> Option<Self> {
        (length.div_ceil(8) <= words.len())
            .then(|| Self { words: &words[..length.div_ceil(8)], length })
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Writes `bytes` from `offset` on.
    ///
    /// # Panics
    /// If they do not fit, as with a slice.
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

    /// Where the bytes are, for code in other languages. What writes through it writes no further than
    /// [`Self::len`], only as long as this view is there, and accepts what [`Self::as_mut_slice`] says.
    #[inline]
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.words.as_ptr().cast_mut().cast()
    }

    /// The bytes as a slice, without a copy.
    ///
    /// # Safety
    /// A subscriber that is so slow that this message overwrites what it reads does so at the same
    /// time, with relaxed atomic loads, and throws the result away. The language calls even that a
    /// data race with plain writes; the processors that Rust runs on do not mind. Use it where you
    /// accept that, or where no subscriber is ever lapped (policy `Wait { limit: None }`).
    pub unsafe fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: `words` holds at least `length` bytes, which only the owner of the writer lock
        // writes; the rest is the caller's promise.
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
