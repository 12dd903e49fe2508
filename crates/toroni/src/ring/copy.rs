//! The one racy copy: between the ring, which other processes may write at the same time, and memory
//! of this process.
//!
//! # Why not `memcpy`
//!
//! A reader copies a record first and asks afterwards whether a writer has begun to overwrite it
//! (seqlock; H.-J. Boehm, "Can seqlocks get along with programming language memory models?", MSPC
//! 2012). A plain read that races with a write is undefined behaviour even if its result is thrown
//! away, so every access to the ring is a relaxed atomic one of a whole word. Torn *records* are found
//! by validation; torn *words* cannot exist.
//!
//! The word loop says exactly that in Rust, but compilers do not vectorise atomics. Where there are
//! several words, assembly does the same ([`bulk`]). Ordering comes from the fences at the call sites.

use super::bulk;
use crate::sync::{AtomicU64, Ordering};

/// Copies words of the ring, from word number `first` on, to `into`. `ring` is a power of two long;
/// the numbering wraps.
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

/// Copies bytes to the ring, from word number `first` on; the rest of the last word becomes 0. `ring`
/// is a power of two long; the numbering wraps.
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

/// Copies to all of `into`; `run` has at least as many words.
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

/// Copies bytes to as many words as they need, of which `run` has enough; the rest of the last word
/// becomes 0.
#[inline(always)]
pub(crate) fn store_in_row(run: &[AtomicU64], from: &[u8]) {
    let (whole, rest) = from.as_chunks::<8>();
    let (run, behind) = run.split_at(whole.len());
    if bulk::EXISTS && whole.len() >= bulk::FEWEST_WORDS {
        // SAFETY: both are `whole.len()` words long; `from` is not the ring, which nobody borrows as
        // bytes. The ring's words are atomics, which may be written through a shared reference.
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
        behind[0].store(padded(rest), Ordering::Relaxed);
    }
}

/// At most eight bytes as a word, filled up with 0.
#[inline]
fn padded(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_ne_bytes(word)
}

/// Copies bytes of `words`, from byte number `offset` on, to `into`. Does not wrap.
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
        // SAFETY: both are `whole.len()` words long; they cannot overlap, since `into` is borrowed
        // mutably. It need not be aligned.
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

/// Copies bytes to `words`, from byte number `offset` on; what is beside them in their words stays.
/// Does not wrap. Only the owner of the writer lock.
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

/// Private memory for a copied record: whole words, read as bytes.
#[derive(Debug, Default)]
pub(crate) struct Scratch(Vec<u64>);

impl Scratch {
    /// The first `words` words, to be written. Grows, and never shrinks: a subscriber needs its
    /// largest message's size again.
    #[inline]
    pub(crate) fn words(&mut self, words: usize) -> &mut [u64] {
        if self.0.len() < words {
            self.grow(words);
        }
        &mut self.0[..words]
    }

    /// Word number `index`.
    ///
    /// # Panics
    /// If it has never been so large.
    #[inline]
    pub(crate) fn word(&self, index: usize) -> u64 {
        self.0[index]
    }

    #[cold]
    fn grow(&mut self, words: usize) {
        self.0.resize(words.next_power_of_two(), 0);
    }

    /// The first `length` bytes.
    ///
    /// # Panics
    /// If it has never been so large.
    #[inline]
    pub(crate) fn bytes(&self, length: usize) -> &[u8] {
        self.bytes_from(0, length)
    }

    /// `length` bytes from number `from` on.
    ///
    /// # Panics
    /// If it has never been so large.
    #[inline]
    pub(crate) fn bytes_from(&self, from: usize, length: usize) -> &[u8] {
        let available = self.0.len() * 8;
        assert!(from <= available && length <= available - from);
        // SAFETY: the vector holds so many initialised bytes from there on, borrowed as long as the
        // result; bytes have no alignment and no invalid values.
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
                    "wrote behind its range at {first}, {length} bytes"
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
