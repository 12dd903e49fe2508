//! Full fences between a commit and the check for sleeping subscribers, as cheap as the processor allows.

use super::Ordering;
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
use super::compiler_fence;
#[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
use super::fence;

/// Is the full fence between a commit and the check for sleepers, after the writer lock was given back
/// with a compare-exchange, whether that succeeded or not.
///
/// In the C11 model a compare-exchange is not a sequentially consistent fence, and one that fails is only
/// a load. The check for sleepers could move before the commit, and a reader that went to sleep in between
/// would not be woken. On x86-64 it is `lock cmpxchg`, a locked instruction even if it fails. The
/// processor orders that with every load after it (AMD64 APM vol. 2 §7.4.2), so only the compiler has to
/// be held back. The tests in `sync/tso.rs` try every execution of the pair.
#[inline]
pub(crate) fn fence_after_unlock() {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
    if !crate::hook::mutant("no_fence_after_unlock") {
        fence(Ordering::SeqCst);
    }
}

/// Orders everything before it before everything after it, as `fence(SeqCst)` does.
///
/// On x86-64 that compiles to `mfence`, which also orders non-temporal stores and takes about twice as long as a locked
/// instruction. A locked instruction orders all ordinary loads and stores (AMD64 APM vol. 2 §7.4.2; Intel SDM vol. 3
/// §11.2.2), and the ring has no others.
#[inline]
pub(crate) fn full_fence() {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    // SAFETY: the word at the top of the stack belongs to this thread, and keeps its value.
    unsafe {
        core::arch::asm!("lock or dword ptr [rsp], 0");
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
    fence(Ordering::SeqCst);
}
