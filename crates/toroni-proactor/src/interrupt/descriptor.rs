//! *Interrupt_Pipe_Strategy*, and the same with an eventfd: the leader always has one read in progress on
//! the notification descriptor, and an interrupt is a write to its other end.
//!
//! The record of that read is reused, never reaches the dispatcher, and is started again only by a leader
//! that finds it not started. Interrupts between two waits leave bytes behind; the read takes as many as
//! there are.

use super::{Activation, InterruptChoice, InterruptStrategy};
use crate::record::{Descriptor, Memory, Operation, Request};
use crate::sys::ThreadId;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, dup, write};
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// See the module.
pub(crate) struct Notification {
    choice: InterruptChoice,
    reading: Arc<Descriptor>,
    writing: OwnedFd,
    /// Where the read puts what it reads. On the heap, and alive until no read is in progress: the
    /// processor drops its strategies only then.
    bytes: Box<[u8; 64]>,
}

impl Notification {
    /// With a pipe.
    pub(crate) fn pipe() -> Result<Self, Errno> {
        let (reading, writing) = pipe_with(PipeFlags::CLOEXEC)?;
        // The end that is written to must not block; the other is waited for by engines that do block.
        rustix::io::ioctl_fionbio(&writing, true)?;
        Self::new(InterruptChoice::Pipe, reading, writing)
    }

    /// With an eventfd.
    pub(crate) fn eventfd() -> Result<Self, Errno> {
        let reading = eventfd(0, EventfdFlags::CLOEXEC)?;
        let writing = dup(&reading)?;
        Self::new(InterruptChoice::Eventfd, reading, writing)
    }

    fn new(choice: InterruptChoice, reading: OwnedFd, writing: OwnedFd) -> Result<Self, Errno> {
        let reading = Arc::new(Descriptor::new(reading)?);
        Ok(Self { choice, reading, writing, bytes: Box::new([0; 64]) })
    }
}

impl InterruptStrategy for Notification {
    fn choice(&self) -> InterruptChoice {
        self.choice
    }

    fn interrupt(&mut self, _: ThreadId) {
        // A full pipe refuses the byte, and needs none: its reader wakes anyway. An eventfd adds up to
        // 2^64 - 2 before it refuses.
        let _ = write(&self.writing, &1u64.to_ne_bytes());
    }

    fn on_leader_activated(&mut self) -> Activation {
        Activation::default()
    }

    fn read(&self) -> Option<Request> {
        let mut request = Request::new(Operation::ReadStream, Arc::clone(&self.reading));
        // SAFETY: the bytes are on the heap, nobody looks at them, and the strategy outlives the read.
        request.memory =
            unsafe { Memory::to_fill(self.bytes.as_ptr().cast_mut(), self.bytes.len()) };
        Some(request)
    }
}
