//! The memory of an operation's buffer, as the kernel receives it.

use std::mem::MaybeUninit;
use std::sync::atomic::AtomicU32;

/// The address and length of a buffer. The buffer itself belongs to the operation's completion, and stays
/// there, unmoved on the heap, until the operation is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pointer: *mut u8,
    length: usize,
}

// SAFETY: it is an address. The methods below argue why it may be turned into memory; the buffers are
// `Send`, because `ReadBuffer` and `WriteBuffer` are.
unsafe impl Send for Memory {}

/// The maximum length of one transfer: Linux caps it at 2 GiB less a page.
const LONGEST: usize = 0x7FFF_F000;

impl Memory {
    /// For operations without a buffer.
    pub(crate) const NONE: Self =
        Self { pointer: std::ptr::NonNull::dangling().as_ptr(), length: 0 };

    /// Describes a buffer to be filled.
    ///
    /// # Safety
    ///
    /// The bytes stay where they are, and are accessed only through this, until their operation is over.
    pub(crate) unsafe fn to_fill(pointer: *mut u8, length: usize) -> Self {
        Self { pointer, length }
    }

    /// Describes a buffer to be sent. It is never written to.
    ///
    /// # Safety
    ///
    /// The bytes stay where they are, initialised and unchanged, until the operation is over.
    pub(crate) unsafe fn to_send(pointer: *const u8, length: usize) -> Self {
        Self { pointer: pointer.cast_mut(), length }
    }

    /// Describes a word to wait at.
    ///
    /// # Safety
    ///
    /// It stays mapped until the operation is over.
    pub(crate) unsafe fn to_watch(pointer: *const AtomicU32) -> Self {
        Self { pointer: pointer.cast_mut().cast(), length: size_of::<AtomicU32>() }
    }

    pub(crate) fn pointer(self) -> *mut u8 {
        self.pointer
    }

    /// Returns the length in bytes, at most that of one transfer.
    pub(crate) fn length(self) -> usize {
        self.length.min(LONGEST)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.length == 0
    }

    /// Returns the rest after `bytes` bytes; nothing if there is no more.
    pub(crate) fn after(self, bytes: usize) -> Self {
        let bytes = bytes.min(self.length);
        Self { pointer: self.pointer.wrapping_add(bytes), length: self.length - bytes }
    }

    /// Returns the first `length` bytes.
    pub(crate) fn at_most(self, length: usize) -> Self {
        Self { length: self.length().min(length), ..self }
    }

    /// Returns the bytes to fill.
    ///
    /// # Safety
    ///
    /// Made by [`Memory::to_fill`]; nothing else, including the kernel, works on this operation while the
    /// slice lives.
    pub(crate) unsafe fn filling<'a>(self) -> &'a mut [MaybeUninit<u8>] {
        // SAFETY: pointer and length are of one buffer that outlives the operation (`to_fill`), and the
        // caller has it alone.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.cast(), self.length()) }
    }

    /// Returns the bytes to send.
    ///
    /// # Safety
    ///
    /// Made by [`Memory::to_send`]; the operation is not over while the slice lives.
    pub(crate) unsafe fn sending<'a>(self) -> &'a [u8] {
        // SAFETY: pointer and length are of one initialised buffer that outlives the operation and that
        // nothing changes (`to_send`).
        unsafe { std::slice::from_raw_parts(self.pointer, self.length()) }
    }
}
