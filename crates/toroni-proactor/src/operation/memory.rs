//! The memory of an operation's buffer, as the kernel is told of it.

use std::mem::MaybeUninit;
use std::sync::atomic::AtomicU32;

/// Where a buffer is. The buffer itself belongs to the operation's completion, and stays there, unmoved on
/// the heap, until the operation is terminally complete.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pointer: *mut u8,
    length: usize,
}

// SAFETY: it is an address. Who turns it into memory argues about that in the methods below; the buffers
// behind it are `Send`, because `ReadBuffer` and `WriteBuffer` are.
unsafe impl Send for Memory {}

/// More than this is never transferred at once: Linux caps a transfer at 2 GiB less a page.
const LONGEST: usize = 0x7FFF_F000;

impl Memory {
    /// For operations without a buffer.
    pub(crate) const NONE: Self =
        Self { pointer: std::ptr::NonNull::dangling().as_ptr(), length: 0 };

    /// A buffer to be filled.
    ///
    /// # Safety
    ///
    /// The bytes stay where they are, and are touched through this only, until the operation that they
    /// are for is terminally complete.
    pub(crate) unsafe fn to_fill(pointer: *mut u8, length: usize) -> Self {
        Self { pointer, length }
    }

    /// A buffer to be sent; it is never written to.
    ///
    /// # Safety
    ///
    /// The bytes stay where they are, initialised and unchanged, until the operation is terminally
    /// complete.
    pub(crate) unsafe fn to_send(pointer: *const u8, length: usize) -> Self {
        Self { pointer: pointer.cast_mut(), length }
    }

    /// A word that is looked at.
    ///
    /// # Safety
    ///
    /// It stays mapped until the operation is terminally complete.
    pub(crate) unsafe fn to_watch(pointer: *const AtomicU32) -> Self {
        Self { pointer: pointer.cast_mut().cast(), length: size_of::<AtomicU32>() }
    }

    /// Its address.
    pub(crate) fn pointer(self) -> *mut u8 {
        self.pointer
    }

    /// Its length in bytes, as far as one transfer goes.
    pub(crate) fn length(self) -> usize {
        self.length.min(LONGEST)
    }

    /// Whether there is nothing to transfer.
    pub(crate) fn is_empty(self) -> bool {
        self.length == 0
    }

    /// The rest of it; nothing if there is no more.
    pub(crate) fn after(self, bytes: usize) -> Self {
        let bytes = bytes.min(self.length);
        Self { pointer: self.pointer.wrapping_add(bytes), length: self.length - bytes }
    }

    /// The first of it.
    pub(crate) fn at_most(self, length: usize) -> Self {
        Self { length: self.length().min(length), ..self }
    }

    /// The bytes to fill.
    ///
    /// # Safety
    ///
    /// Made by [`Memory::to_fill`], and nobody else, the kernel included, works on this operation for as
    /// long as the slice lives.
    pub(crate) unsafe fn filling<'a>(self) -> &'a mut [MaybeUninit<u8>] {
        // SAFETY: pointer and length are of one buffer that outlives the operation (`to_fill`), and the
        // caller has it alone.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.cast(), self.length()) }
    }

    /// The bytes to send.
    ///
    /// # Safety
    ///
    /// Made by [`Memory::to_send`], and the operation is not complete for as long as the slice lives.
    pub(crate) unsafe fn sending<'a>(self) -> &'a [u8] {
        // SAFETY: pointer and length are of one initialised buffer that outlives the operation and that
        // nobody changes (`to_send`).
        unsafe { std::slice::from_raw_parts(self.pointer, self.length()) }
    }
}
