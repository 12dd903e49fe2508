//! *Interrupt_Pipe_Strategy*, and the same with an eventfd: the leader always has one read in progress on the
//! notification descriptor, and an interrupt is a write to its other end.
//!
//! The operation of that read is reused, never reaches the dispatcher, and is started again only by a leader
//! that finds it not started. Interrupts between two waits leave bytes in the pipe; the read takes all of them.

use super::{Activation, InterruptChoice, InterruptStrategy};
use crate::operation::{Descriptor, Memory, OperationKind, Request};
use crate::sys::ThreadId;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, dup, write};
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) struct NotificationDescriptor {
    choice: InterruptChoice,
    reading: Arc<Descriptor>,
    writing: OwnedFd,
    /// The buffer of the read. It is on the heap, and alive until no read is in progress: the processor drops
    /// its strategies only then.
    bytes: Box<[u8; 64]>,
    helper: Option<HelperThread>,
}

/// A thread of the C library that is occupied by the read of a notification descriptor while this exists. The
/// C library has 20 threads for all asynchronous I/O of the process.
pub(crate) struct HelperThread(());

/// The number of threads occupied like this.
static HELPERS: AtomicUsize = AtomicUsize::new(0);

impl HelperThread {
    /// The maximum; the other threads are for operations.
    pub(crate) const MOST: usize = 16;

    /// Occupies a thread; `EUSERS` if [`HelperThread::MOST`] are occupied.
    pub(crate) fn take() -> Result<Self, Errno> {
        let more = |busy: usize| (busy < Self::MOST).then_some(busy + 1);
        match HELPERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Self(())),
            Err(_) => Err(Errno::USERS),
        }
    }
}

impl Drop for HelperThread {
    fn drop(&mut self) {
        HELPERS.fetch_sub(1, Ordering::Relaxed);
    }
}

impl NotificationDescriptor {
    pub(crate) fn pipe() -> Result<Self, Errno> {
        let (reading, writing) = pipe_with(PipeFlags::CLOEXEC)?;
        // The write end must not block; engines wait at the read end, and some of them block.
        rustix::io::ioctl_fionbio(&writing, true)?;
        Self::new(InterruptChoice::Pipe, reading, writing)
    }

    pub(crate) fn eventfd() -> Result<Self, Errno> {
        let reading = eventfd(0, EventfdFlags::CLOEXEC)?;
        let writing = dup(&reading)?;
        Self::new(InterruptChoice::Eventfd, reading, writing)
    }

    /// Adds the thread of the C library that the reads occupy.
    pub(crate) fn occupying(mut self, helper: HelperThread) -> Self {
        self.helper = Some(helper);
        self
    }

    fn new(choice: InterruptChoice, reading: OwnedFd, writing: OwnedFd) -> Result<Self, Errno> {
        let reading = Arc::new(Descriptor::new(reading, 0)?);
        Ok(Self { choice, reading, writing, bytes: Box::new([0; 64]), helper: None })
    }
}

impl InterruptStrategy for NotificationDescriptor {
    fn choice(&self) -> InterruptChoice {
        self.choice
    }

    fn interrupt(&mut self, _: ThreadId) {
        // A full pipe refuses the byte, and does not need it: its reader wakes anyway. An eventfd refuses only
        // beyond 2^64 - 2.
        let _ = write(&self.writing, &1u64.to_ne_bytes());
    }

    fn on_leader_activated(&mut self) -> Activation {
        Activation::default()
    }

    fn read(&self) -> Option<Request> {
        let mut request = Request::new(OperationKind::ReadStream, Arc::clone(&self.reading));
        // SAFETY: the bytes are on the heap, nothing accesses them, and the strategy outlives the read.
        request.memory =
            unsafe { Memory::to_fill(self.bytes.as_ptr().cast_mut(), self.bytes.len()) };
        Some(request)
    }
}
