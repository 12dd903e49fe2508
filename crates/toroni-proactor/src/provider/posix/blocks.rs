//! The control blocks of the C library's asynchronous I/O: one for each operation entry that ever needed one,
//! at an address that does not change.
//!
//! The C library writes to a block from the start of its operation until `aio_error` no longer returns
//! `EINPROGRESS`; after that it does not access it.

use crate::operation::Request;
use crate::sys::{last_error, to_timespec};
use crate::wait::AioNotification;
use rustix::io::Errno;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// All methods but [`Blocks::suspend`] are called under the proactor's lock.
#[derive(Default)]
pub(crate) struct Blocks(Mutex<Vec<Entry>>);

/// The block of one operation.
#[derive(Clone, Copy, Default)]
struct Entry {
    block: Option<NonNull<libc::aiocb>>,
    /// The C library uses it, or its outcome was not taken yet.
    is_used: bool,
}

// SAFETY: the blocks belong to this table, as boxes would; they are pointers only because the C library
// writes to them while the table is in use.
unsafe impl Send for Entry {}

/// The result of a cancellation.
pub(super) enum Cancelled {
    /// The operation is over, with this outcome.
    Over(Result<usize, Errno>),
    /// A thread of the C library works on it, and cannot be stopped.
    AtWork,
}

/// The operations that one call of `aio_suspend` waits for.
#[derive(Default)]
pub(crate) struct Suspended {
    blocks: Vec<*const libc::aiocb>,
    indices: Vec<u32>,
}

// SAFETY: addresses, which only `Blocks::suspend` follows.
unsafe impl Send for Suspended {}

impl Suspended {
    pub(crate) fn get(&self, number: usize) -> Option<u32> {
        self.indices.get(number).copied()
    }
}

impl Blocks {
    /// Starts a read or a write at an offset. `EAGAIN` if the C library has no resources.
    pub(super) fn start(
        &self,
        index: u32,
        request: &Request,
        offset: libc::off_t,
        notification: AioNotification,
    ) -> Result<(), Errno> {
        let mut entries = self.entries();
        let number = index as usize;
        if number >= entries.len() {
            entries.resize(number + 1, Entry::default());
        }
        let entry = &mut entries[number];
        debug_assert!(!entry.is_used, "an entry has one operation at a time");
        let block = *entry.block.get_or_insert_with(|| {
            // SAFETY: all of it may be zero: numbers, and pointers that are not followed.
            let block = Box::new(unsafe { std::mem::zeroed::<libc::aiocb>() });
            NonNull::from(Box::leak(block))
        });
        let block = block.as_ptr();
        // SAFETY: the block is alive, and no operation in progress uses it. Only its public members are
        // written to: a leader's `aio_suspend` may still read the others. The memory belongs to the operation
        // until it is over; its direction is that of the call.
        let refused = unsafe {
            (*block).aio_fildes = request.raw().unwrap_or(-1);
            (*block).aio_buf = request.memory.pointer().cast();
            (*block).aio_nbytes = request.memory.length();
            (*block).aio_offset = offset;
            set_sigevent(&raw mut (*block).aio_sigevent, notification);
            if request.kind.is_reading() { libc::aio_read(block) } else { libc::aio_write(block) }
        };
        if refused != 0 {
            return Err(last_error());
        }
        entry.is_used = true;
        Ok(())
    }

    /// Returns whether an operation is over, and its outcome not taken yet.
    pub(crate) fn is_over(&self, index: u32) -> bool {
        used(&self.entries(), index).is_some_and(|block| error(block) != libc::EINPROGRESS)
    }

    /// Takes the outcome of an operation that is over. `None` if it is not over, was taken, or never existed:
    /// notifications may come late.
    pub(super) fn take_outcome(&self, index: u32) -> Option<Result<usize, Errno>> {
        let mut entries = self.entries();
        let block = used(&entries, index)?;
        let error = error(block);
        if error == libc::EINPROGRESS {
            return None;
        }
        entries[index as usize].is_used = false;
        // SAFETY: the operation is over, and this is asked once.
        let moved = unsafe { libc::aio_return(block.as_ptr()) };
        Some(usize::try_from(moved).map_err(|_| Errno::from_raw_os_error(error)))
    }

    /// Asks the C library not to carry out an operation.
    pub(super) fn cancel(&self, index: u32) -> Cancelled {
        let cancelled = used(&self.entries(), index).is_some_and(|block| {
            // SAFETY: the block was started; its descriptor is open, because the operation holds it.
            let done = unsafe { libc::aio_cancel((*block.as_ptr()).aio_fildes, block.as_ptr()) };
            done == libc::AIO_CANCELED
        });
        match self.take_outcome(index) {
            // Regardless of its notification.
            Some(_) if cancelled => Cancelled::Over(Err(Errno::CANCELED)),
            outcome => outcome.map_or(Cancelled::AtWork, Cancelled::Over),
        }
    }

    /// Fills a list with the operations of these indices.
    pub(crate) fn list(&self, indices: impl Iterator<Item = u32>, list: &mut Suspended) {
        let entries = self.entries();
        list.blocks.clear();
        list.indices.clear();
        for index in indices {
            if let Some(block) = used(&entries, index) {
                list.blocks.push(block.as_ptr());
                list.indices.push(index);
            }
        }
    }

    /// Waits until one of them is over, for a signal, or until the timeout.
    pub(crate) fn suspend(&self, list: &Suspended, timeout: Duration) {
        if list.blocks.is_empty() {
            // `aio_suspend` does not wait with an empty list.
            let _ = crate::sys::ppoll(&mut [], Some(timeout), None);
            return;
        }
        let count = libc::c_int::try_from(list.blocks.len()).unwrap_or(libc::c_int::MAX);
        let timeout = to_timespec(timeout);
        // SAFETY: the list was made by this table, whose blocks live as long as it does; one that is used
        // again meanwhile is still a valid block. However the wait ends, the caller checks the operations.
        unsafe { libc::aio_suspend(list.blocks.as_ptr(), count, &raw const timeout) };
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.try_lock().expect("under the proactor's lock")
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        for entry in self.entries().drain(..) {
            if let Some(block) = entry.block {
                // SAFETY: made by `Box::leak` above. The provider is dropped only when nothing is in
                // progress: a proactor whose operations do not end leaks it.
                drop(unsafe { Box::from_raw(block.as_ptr()) });
            }
        }
    }
}

fn used(entries: &[Entry], index: u32) -> Option<NonNull<libc::aiocb>> {
    entries.get(index as usize).filter(|entry| entry.is_used)?.block
}

fn error(block: NonNull<libc::aiocb>) -> i32 {
    // SAFETY: the block is alive, and was started.
    unsafe { libc::aio_error(block.as_ptr()) }
}

/// # Safety
///
/// `event` is valid, and nothing else uses it.
unsafe fn set_sigevent(event: *mut libc::sigevent, notification: AioNotification) {
    /// `struct sigevent` for threads: `libc` declares another member of its union.
    #[repr(C)]
    struct OfThread {
        value: usize,
        signal: i32,
        kind: i32,
        function: Option<extern "C" fn(usize)>,
        attributes: *const libc::pthread_attr_t,
    }
    const {
        assert!(size_of::<OfThread>() <= size_of::<libc::sigevent>());
        assert!(offset_of!(OfThread, kind) == offset_of!(libc::sigevent, sigev_notify));
        assert!(
            offset_of!(OfThread, function) == offset_of!(libc::sigevent, sigev_notify_thread_id)
        );
    }
    let (kind, signal, value, function) = match notification {
        AioNotification::None => (libc::SIGEV_NONE, 0, 0, None),
        AioNotification::Signal { number, value } => (libc::SIGEV_SIGNAL, number, value, None),
        AioNotification::Thread { function, value } => {
            (libc::SIGEV_THREAD, 0, value, Some(function))
        }
    };
    let attributes = std::ptr::null();
    // SAFETY: as the caller says; the layout is asserted above. A function of a number is called as one of
    // `union sigval`, which is as large as a pointer.
    unsafe {
        event.cast::<OfThread>().write(OfThread { value, signal, kind, function, attributes })
    };
}
