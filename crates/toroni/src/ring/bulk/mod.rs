//! Copies of words in assembly, each specified as one relaxed atomic access for every aligned 8-byte
//! word, in any order, some words perhaps twice. `copy.rs` argues why that is needed and sound.
//!
//! Wide registers carry several words at once. An aligned 8-byte part of such an access is not torn by
//! the processors that have them (for 16 bytes and aligned, Intel SDM vol. 3A §9.1.1 and AMD APM vol. 2
//! §7.3.2 promise it); and if one were, the record would fail its validation as any torn record does. A
//! header is never committed here, and one that was copied here is believed only behind the validation.
//! Of the two sides only the ring's is aligned; the other belongs to this process.

/// Whether [`copy`] exists here. Neither models nor Miri know assembly, and the sanitizers do not see what it
/// does: for them `--cfg toroni_words` leaves it out.
pub(super) const EXISTS: bool =
    cfg!(all(target_arch = "x86_64", not(loom), not(miri), not(toroni_words)));

/// The fewest words that it copies.
pub(super) const FEWEST_WORDS: usize = 2;

#[cfg(all(target_arch = "x86_64", not(loom), not(miri), not(toroni_words)))]
mod x86_64;

#[cfg(all(target_arch = "x86_64", not(loom), not(miri), not(toroni_words)))]
pub(super) use x86_64::{copy, prefetch_to_write};

#[cfg(not(all(target_arch = "x86_64", not(loom), not(miri), not(toroni_words))))]
pub(super) use nothing::{copy, prefetch_to_write};

/// Stands where there is no such copy.
#[cfg(not(all(target_arch = "x86_64", not(loom), not(miri), not(toroni_words))))]
mod nothing {
    /// Never called: [`EXISTS`](super::EXISTS) is false here.
    ///
    /// # Safety
    /// None is needed.
    pub(in crate::ring) unsafe fn copy(_: *const u64, _: *mut u64, _: usize) {
        unreachable!("there is no such copy on this target");
    }

    /// A hint that nobody takes.
    #[inline(always)]
    pub(in crate::ring) fn prefetch_to_write(_: *const u64) {}
}
