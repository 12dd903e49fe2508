//! Copies between the ring, which other processes may write at the same time, and memory of this
//! process.
//!
//! # Why not `memcpy`
//!
//! A reader copies a record first and then checks whether a writer has begun to overwrite it, as in
//! a seqlock (H.-J. Boehm, "Can seqlocks get along with programming language memory models?", MSPC
//! 2012).
//!
//! 1. A plain read that races with a write is undefined behaviour, even if its result is discarded.
//!    So every access to the ring is a relaxed atomic access of a whole word.
//! 2. A *word* is therefore never torn. A *record* may be torn, and the validation after the copy
//!    detects that.
//! 3. Ordering comes from the fences of the callers.
//!
//! The word loops express this in Rust, but compilers do not vectorise atomic accesses. For several
//! words, assembly does the same ([`bulk`]).

use super::bulk;
use crate::sync::{AtomicU64, Ordering};

/// Copies words of the ring to `into`, starting at word number `first`. The length of `ring` is a
/// power of two, and the word numbers wrap.
#[inline]
pub(crate) fn load(ring: &[AtomicU64], first: usize, into: &mut [u64]) {
    match ring.get(first..first + into.len()) {
        Some(run) => load_in_row(run, into),
        None => {
            for (index, word) in into.iter_mut().enumerate() {
                *word = ring[(first + index) & (ring.len() - 1)].load(Ordering::Relaxed);
            }
        }
    }
}

/// Copies bytes to the ring, starting at word number `first`, and pads the last word with zeros.
/// The length of `ring` is a power of two, and the word numbers wrap.
#[inline]
pub(crate) fn store(ring: &[AtomicU64], first: usize, from: &[u8]) {
    match ring.get(first..first + from.len().div_ceil(8)) {
        Some(run) => store_in_row(run, from),
        None => {
            for (index, chunk) in from.chunks(8).enumerate() {
                let word = &ring[(first + index) & (ring.len() - 1)];
                word.store(padded(chunk), Ordering::Relaxed);
            }
        }
    }
}

/// Fills `into` from `run`, which has at least as many words.
#[inline(always)]
pub(crate) fn load_in_row(run: &[AtomicU64], into: &mut [u64]) {
    let run = &run[..into.len()];
    if bulk::EXISTS && into.len() >= bulk::FEWEST_WORDS {
        // SAFETY: both are `into.len()` words long; they cannot overlap, since `into` is borrowed
        // mutably.
        unsafe { bulk::copy(run.as_ptr().cast::<u64>(), into.as_mut_ptr(), into.len()) };
        return;
    }
    for (word, source) in into.iter_mut().zip(run) {
        *word = source.load(Ordering::Relaxed);
    }
}

/// Copies words from `run` to `to`, which is as long. They must not overlap: no word may be in both.
#[inline(always)]
pub(crate) fn between(run: &[AtomicU64], to: &[AtomicU64]) {
    let run = &run[..to.len()];
    if bulk::EXISTS && to.len() >= bulk::FEWEST_WORDS {
        // SAFETY: both are `to.len()` words long. They are atomics, so they may be written through a shared reference. If
        // they overlap, some words are copied twice, in an order that is not specified, and nothing worse happens.
        unsafe {
            let to_words = to.as_ptr().cast::<u64>().cast_mut();
            bulk::copy(run.as_ptr().cast::<u64>(), to_words, to.len());
        }
        return;
    }
    for (to, word) in to.iter().zip(run) {
        to.store(word.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Copies bytes to the start of `run`, which is long enough, and pads the last word with zeros.
#[inline(always)]
pub(crate) fn store_in_row(run: &[AtomicU64], from: &[u8]) {
    let (whole, rest) = from.as_chunks::<8>();
    let (run, after) = run.split_at(whole.len());
    if bulk::EXISTS && whole.len() >= bulk::FEWEST_WORDS {
        // SAFETY: both are `whole.len()` words long. `from` does not overlap the ring, which is
        // never borrowed as bytes. The ring's words are atomics, so they may be written through a
        // shared reference.
        unsafe {
            let to = run.as_ptr().cast::<u64>().cast_mut();
            bulk::copy(whole.as_ptr().cast::<u64>(), to, whole.len());
        }
    } else {
        for (word, bytes) in run.iter().zip(whole) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
    }
    if !rest.is_empty() {
        after[0].store(padded(rest), Ordering::Relaxed);
    }
}

/// Returns at most eight bytes as a word, padded with zeros.
#[inline]
fn padded(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_ne_bytes(word)
}

/// Copies bytes of `words` to `into`, starting at byte number `offset`. Does not wrap.
pub(crate) fn load_bytes(words: &[AtomicU64], offset: usize, into: &mut [u8]) {
    let mut at = offset;
    let (head, rest) = into.split_at_mut(into.len().min(offset.next_multiple_of(8) - offset));
    for byte in head {
        *byte = words[at / 8].load(Ordering::Relaxed).to_ne_bytes()[at % 8];
        at += 1;
    }
    let (whole, tail) = rest.as_chunks_mut::<8>();
    let run = &words[at / 8..][..whole.len()];
    at += whole.len() * 8;
    if bulk::EXISTS && whole.len() >= bulk::FEWEST_WORDS {
        // SAFETY: both are `whole.len()` words long, and cannot overlap because `into` is borrowed
        // mutably. The target need not be aligned.
        unsafe {
            let to = whole.as_mut_ptr().cast::<u64>();
            bulk::copy(run.as_ptr().cast::<u64>(), to, whole.len());
        }
    } else {
        for (bytes, word) in whole.iter_mut().zip(run) {
            *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        }
    }
    if !tail.is_empty() {
        let bytes = words[at / 8].load(Ordering::Relaxed).to_ne_bytes();
        tail.copy_from_slice(&bytes[..tail.len()]);
    }
}

/// Copies bytes to `words`, starting at byte number `offset`. The other bytes of the first and last
/// word stay as they are. Does not wrap. Only the owner of the writer lock may call this.
pub(crate) fn store_bytes(words: &[AtomicU64], offset: usize, from: &[u8]) {
    let mut at = offset;
    let (head, rest) = from.split_at(from.len().min(offset.next_multiple_of(8) - offset));
    let (whole, tail) = rest.as_chunks::<8>();
    let patch = |at: usize, bytes: &[u8]| {
        if !bytes.is_empty() {
            let mut word = words[at / 8].load(Ordering::Relaxed).to_ne_bytes();
            word[at % 8..][..bytes.len()].copy_from_slice(bytes);
            words[at / 8].store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
    };
    patch(at, head);
    at += head.len();
    store_in_row(&words[at / 8..], whole.as_flattened());
    patch(at + whole.len() * 8, tail);
}

/// Private memory for copied records: whole words, read as bytes.
#[derive(Debug, Default)]
pub(crate) struct Scratch(Vec<u64>);

impl Scratch {
    /// Returns the first `words` words, for writing. Grows if necessary, and never shrinks: a
    /// subscriber will need the size of its largest message again.
    #[inline]
    pub(crate) fn words(&mut self, words: usize) -> &mut [u64] {
        if self.0.len() < words {
            self.grow(words);
        }
        &mut self.0[..words]
    }

    /// # Panics
    ///
    /// Panics if the memory has never been that large.
    #[inline]
    pub(crate) fn word(&self, index: usize) -> u64 {
        self.0[index]
    }

    #[cold]
    fn grow(&mut self, words: usize) {
        self.0.resize(words.next_power_of_two(), 0);
    }

    /// # Panics
    ///
    /// Panics if the memory has never been that large.
    #[inline]
    pub(crate) fn bytes(&self, length: usize) -> &[u8] {
        self.bytes_from(0, length)
    }

    /// Returns `length` bytes, starting at number `from`.
    ///
    /// # Panics
    ///
    /// Panics if the memory has never been that large.
    #[inline]
    pub(crate) fn bytes_from(&self, from: usize, length: usize) -> &[u8] {
        let available = self.0.len() * 8;
        assert!(from <= available && length <= available - from);
        // SAFETY: the vector holds that many initialised bytes after `from`, borrowed for as long
        // as the result. Bytes have no alignment and no invalid values.
        unsafe { core::slice::from_raw_parts(self.0.as_ptr().cast::<u8>().add(from), length) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(u64::MAX)).collect()
    }

    #[test]
    fn every_length_and_offset_comes_back() {
        let size = if cfg!(miri) { 16 } else { 64 };
        let ring = words(size);
        for first in 0..size {
            for length in 0..=(size * 8 - 8) {
                let bytes: Vec<u8> = (1..=u8::MAX).cycle().skip(first).take(length).collect();
                ring[(first + length.div_ceil(8)) & (size - 1)].store(42, Ordering::Relaxed);
                store(&ring, first, &bytes);
                assert_eq!(
                    ring[(first + length.div_ceil(8)) & (size - 1)].load(Ordering::Relaxed),
                    42,
                    "wrote past its range at {first}, {length} bytes"
                );
                let mut back = vec![0; length.div_ceil(8)];
                load(&ring, first, &mut back);
                let back: Vec<u8> = back.iter().flat_map(|word| word.to_ne_bytes()).collect();
                assert_eq!(&back[..length], &bytes[..]);
                assert!(back[length..].iter().all(|byte| *byte == 0), "padding is 0");
                if cfg!(miri) && length > 40 {
                    break;
                }
            }
        }
    }
}
