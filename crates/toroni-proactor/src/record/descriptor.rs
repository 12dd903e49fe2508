//! A descriptor as operations hold it.

use super::Operation;
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};

/// What kind of thing a descriptor is, as far as engines care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A socket: `recv` and `send` exist, and take `MSG_DONTWAIT`.
    Socket,
    /// A regular file or a block device: always ready, transfers wait for the disk.
    File,
    /// Pipes, terminals, eventfds and so on.
    Other,
}

/// A descriptor that operations share: it is closed when the last of them is done with it, so that its
/// number is never given to another file while the kernel still works on this one.
#[derive(Debug)]
pub(crate) struct Descriptor {
    descriptor: OwnedFd,
    kind: Kind,
    /// Operations that wait to read, and to write: who finds none may try at once without overtaking.
    waiting: [AtomicU32; 2],
}

impl Descriptor {
    /// Takes it over, and looks what it is.
    pub(crate) fn new(descriptor: OwnedFd) -> Result<Self, Errno> {
        let kind = match FileType::from_raw_mode(fstat(&descriptor)?.st_mode) {
            FileType::Socket => Kind::Socket,
            FileType::RegularFile | FileType::BlockDevice => Kind::File,
            _ => Kind::Other,
        };
        Ok(Self { descriptor, kind, waiting: [AtomicU32::new(0), AtomicU32::new(0)] })
    }

    /// What it is.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether no operation of that direction is started or deferred.
    pub(crate) fn is_idle(&self, operation: Operation) -> bool {
        self.waiting_for(operation).load(Ordering::Relaxed) == 0
    }

    /// An operation begins to wait. Under the proactor's lock.
    pub(super) fn begin(&self, operation: Operation) {
        self.waiting_for(operation).fetch_add(1, Ordering::Relaxed);
    }

    /// An operation no longer waits. Under the proactor's lock.
    pub(super) fn end(&self, operation: Operation) {
        self.waiting_for(operation).fetch_sub(1, Ordering::Relaxed);
    }

    fn waiting_for(&self, operation: Operation) -> &AtomicU32 {
        &self.waiting[usize::from(operation.is_reading())]
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}
