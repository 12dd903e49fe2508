//! Copies of slots at one moment.
//!
//! Some process wrote each word, but the words of one slot may be from different moments, and all of them may be
//! nonsense. So only messages for people and bounded decisions may depend on them.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use crate::ring::layout::{
    PATTERNS_TEXT_WORDS, PATTERNS_TRUNCATED, PublisherSlot, ReaderPatterns, ReaderSlot,
};
use crate::sync::Ordering;
use std::mem::{offset_of, size_of, size_of_val};

/// A copy of a [`ReaderSlot`] with the same layout. Its number is its index in the list. A
/// [`LeaseTester`](super::lease::LeaseTester) says whether its owner is alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct ReaderSnapshot {
    pub(crate) generation: u32,
    pub(crate) state: u32,
    pub(crate) position: u64,
    pub(crate) pid: u32,
    pub(crate) flags: u32,
    pub(crate) pid_namespace: u64,
    pub(crate) started_ns: u64,
    pub(crate) received: u64,
    pub(crate) lost_messages: u64,
    pub(crate) lapses: u64,
    pub(crate) lost_on_the_way: u64,
    _unused: u32,
    pub(crate) losses: u32,
    pub(crate) name: [u64; 6],
}

/// A copy of a [`PublisherSlot`] with the same layout. Otherwise as [`ReaderSnapshot`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct PublisherSnapshot {
    pub(crate) generation: u32,
    pub(crate) state: u32,
    pub(crate) pid: u32,
    pub(crate) _unused: u32,
    pub(crate) pid_namespace: u64,
    pub(crate) started_ns: u64,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    pub(crate) waits: u64,
    pub(crate) waited_ns: u64,
    pub(crate) overwrites: u64,
    pub(crate) wakes: u64,
    pub(crate) name: [u64; 5],
    pub(crate) _padding: u64,
}

/// A copy of [`ReaderPatterns`] with the same layout. Otherwise as [`ReaderSnapshot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct PatternsSnapshot {
    pub(crate) version: u32,
    pub(crate) generation: u32,
    pub(crate) length: u32,
    pub(crate) flags: u32,
    pub(crate) text: [u64; PATTERNS_TEXT_WORDS],
}

impl Default for PatternsSnapshot {
    fn default() -> Self {
        let text = [0; PATTERNS_TEXT_WORDS];
        Self { version: 0, generation: 0, length: 0, flags: 0, text }
    }
}

impl PatternsSnapshot {
    /// Returns the text, and whether patterns are missing from it. `None` if no subscriber could have written these
    /// bytes.
    pub(crate) fn text(&self) -> Option<(String, bool)> {
        let is_truncated = match self.flags {
            0 => false,
            PATTERNS_TRUNCATED => true,
            _ => return None,
        };
        let mut bytes: Vec<u8> = self.text.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let length = usize::try_from(self.length).ok().filter(|length| *length <= bytes.len())?;
        bytes.truncate(length);
        Some((String::from_utf8(bytes).ok()?, is_truncated))
    }
}

impl ReaderSnapshot {
    /// What its owner calls itself; unprintable bytes are replaced.
    pub(crate) fn name(&self) -> String {
        printable(&self.name)
    }
}

impl PublisherSnapshot {
    /// What its owner calls itself; unprintable bytes are replaced.
    pub(crate) fn name(&self) -> String {
        printable(&self.name)
    }
}

/// Returns what the owner of a mapped slot calls itself; unprintable bytes are replaced.
pub(crate) fn publisher_name(slot: &PublisherSlot) -> String {
    printable(&slot.name.each_ref().map(|word| word.load(Ordering::Relaxed)))
}

/// A copy of a slot into which bytes can be read.
///
/// # Safety
///
/// The type is `repr(C)`, of integers only and without padding, so any bytes are a value.
pub(super) unsafe trait Snapshot: Copy + Default {
    fn bytes_of(slots: &mut [Self]) -> &mut [u8] {
        let length = size_of_val(slots);
        // SAFETY: the memory of `slots`, borrowed for as long. By the trait's promise, any bytes that are written
        // there are values, and all bytes are initialised.
        unsafe { std::slice::from_raw_parts_mut(slots.as_mut_ptr().cast::<u8>(), length) }
    }
}

// SAFETY: repr(C), of u32 and u64, without padding: see the sizes below.
unsafe impl Snapshot for ReaderSnapshot {}
// SAFETY: as above.
unsafe impl Snapshot for PublisherSnapshot {}
// SAFETY: as above.
unsafe impl Snapshot for PatternsSnapshot {}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<ReaderSnapshot>() == size_of::<ReaderSlot>());
    assert!(size_of::<PublisherSnapshot>() == size_of::<PublisherSlot>());
    assert!(size_of::<PatternsSnapshot>() == size_of::<ReaderPatterns>());
    assert!(offset_of!(PatternsSnapshot, generation) == offset_of!(ReaderPatterns, generation));
    assert!(offset_of!(PatternsSnapshot, flags) == offset_of!(ReaderPatterns, flags));
    assert!(offset_of!(PatternsSnapshot, text) == offset_of!(ReaderPatterns, text));
    assert!(offset_of!(ReaderSnapshot, position) == offset_of!(ReaderSlot, position));
    assert!(offset_of!(ReaderSnapshot, flags) == offset_of!(ReaderSlot, flags));
    assert!(offset_of!(ReaderSnapshot, lapses) == offset_of!(ReaderSlot, lapses));
    assert!(offset_of!(ReaderSnapshot, losses) == offset_of!(ReaderSlot, losses));
    assert!(offset_of!(ReaderSnapshot, name) == offset_of!(ReaderSlot, name));
    assert!(offset_of!(PublisherSnapshot, pid) == offset_of!(PublisherSlot, pid));
    assert!(offset_of!(PublisherSnapshot, waits) == offset_of!(PublisherSlot, waits));
    assert!(offset_of!(PublisherSnapshot, name) == offset_of!(PublisherSlot, name));
};

fn printable(words: &[u64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    // Control characters could control the terminal of the person who reads it.
    String::from_utf8_lossy(&bytes[..end])
        .chars()
        .map(|char| if char.is_control() { char::REPLACEMENT_CHARACTER } else { char })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_steer_terminals() {
        let words = [u64::from_ne_bytes(*b"a\x1b[2Jb\n\0"), 0];
        assert_eq!(printable(&words), "a\u{fffd}[2Jb\u{fffd}");
        assert_eq!(printable(&[u64::MAX]).chars().count(), 8);
    }
}
