//! Copies of words in assembly. Each copy is specified as one relaxed atomic access to every
//! aligned 8-byte word, in any order, perhaps accessing some words twice. `copy.rs` explains why
//! this is needed and sound.
//!
//! Why wide registers are sound:
//!
//! 1. A wide register carries several words at once. The processors that have them do not tear an
//!    aligned 8-byte part of such an access. For aligned 16-byte accesses, this is promised (Intel
//!    SDM vol. 3A §9.1.1, AMD APM vol. 2 §7.3.2).
//! 2. If such a part were torn nevertheless, validation would reject the record, as it does any
//!    torn record.
//! 3. These copies never commit a header, and a header that was copied here is trusted only after
//!    validation.
//!
//! Only the ring's side of a copy is aligned. The other side is private memory of this process.

/// Whether [`copy`] exists on this target. Loom and Miri do not support assembly, and sanitizers do
/// not see what it does. `--cfg toroni_words` disables it for sanitizers.
pub(super) const EXISTS: bool =
    cfg!(all(target_arch = "x86_64", not(loom), not(miri), not(toroni_words)));

/// The minimum number of words that [`copy`] accepts.
pub(super) const FEWEST_WORDS: usize = 2;

#[cfg(all(target_arch = "x86_64", not(loom), not(miri), not(toroni_words)))]
mod x86_64;

#[cfg(all(target_arch = "x86_64", not(loom), not(miri), not(toroni_words)))]
pub(super) use x86_64::{copy, prefetch_to_write};

#[cfg(not(all(target_arch = "x86_64", not(loom), not(miri), not(toroni_words))))]
pub(super) use nothing::{copy, prefetch_to_write};

/// Replaces `x86_64` on other targets.
#[cfg(not(all(target_arch = "x86_64", not(loom), not(miri), not(toroni_words))))]
mod nothing {
    /// Never called, because [`EXISTS`](super::EXISTS) is false.
    ///
    /// # Safety
    ///
    /// No requirements.
    pub(in crate::ring) unsafe fn copy(_: *const u64, _: *mut u64, _: usize) {
        unreachable!("this target has no copy in assembly");
    }

    /// Does nothing.
    #[inline(always)]
    pub(in crate::ring) fn prefetch_to_write(_: *const u64) {}
}
