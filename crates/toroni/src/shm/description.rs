//! Tells which open file description a descriptor stands for.
//!
//! Code that knows nothing of this library may close every descriptor of the process, as daemons do. The kernel
//! then uses the numbers again: for another file, or for another description of the same file, which holds other
//! locks. A handle that still used such a number would close, unlock or query something that is not its own.
//!
//! So the library numbers each description on which something depends. It stores the number as the file offset, which
//! belongs to the description and serves nothing else: the library reads and writes at explicit positions. Each number
//! is used once in a process.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
// Not from `crate::sync`: these are not part of a model.
use std::sync::atomic::{AtomicU64, Ordering};

/// Distinguishes one open file description of this process from all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DescriptionId {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) offset: u64,
}

impl DescriptionId {
    /// Numbers a description that was just opened. Async-signal-safe.
    pub(super) fn assign(fd: impl AsFd) -> Result<Self, Errno> {
        /// Far from the offset of any other description, and below the maximal file length of any file system.
        static NEXT: AtomicU64 = AtomicU64::new(1 << 30);
        let offset = NEXT.fetch_add(1, Ordering::Relaxed);
        let stat = rustix::fs::fstat(&fd)?;
        rustix::fs::seek(&fd, SeekFrom::Start(offset))?;
        Ok(Self { device: stat.st_dev, inode: stat.st_ino, offset })
    }

    /// Returns whether the descriptor stands for the description that has this id. Async-signal-safe.
    pub(super) fn is_of(self, fd: impl AsFd) -> bool {
        rustix::fs::fstat(&fd)
            .is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (self.device, self.inode))
            && rustix::fs::tell(&fd) == Ok(self.offset)
    }
}

/// A descriptor that is used and closed only while it stands for the description with which it was made.
#[derive(Debug)]
pub(super) struct CheckedFd {
    /// `None` only during the drop.
    fd: Option<OwnedFd>,
    id: DescriptionId,
}

impl CheckedFd {
    pub(super) fn new(fd: OwnedFd) -> Result<Self, Errno> {
        let id = DescriptionId::assign(&fd)?;
        Ok(Self { fd: Some(fd), id })
    }

    /// Returns whether the descriptor still stands for its description.
    pub(super) fn is_intact(&self) -> bool {
        self.id.is_of(self.as_fd())
    }

    /// Returns what `ask` returns about the description, or `EBADF` if the descriptor stands for another one.
    ///
    /// The id is checked before and after `ask`. An answer about another description could get through only if
    /// other code duplicated this descriptor, replaced it between the first check and `ask`, and restored it before
    /// the second check.
    pub(super) fn ask<T>(
        &self,
        ask: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        if !self.is_intact() {
            return Err(Errno::BADF.into());
        }
        let answer = ask(self.as_fd())?;
        if self.is_intact() { Ok(answer) } else { Err(Errno::BADF.into()) }
    }
}

impl AsFd for CheckedFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("present until the drop").as_fd()
    }
}

impl AsRawFd for CheckedFd {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Drop for CheckedFd {
    fn drop(&mut self) {
        if !self.is_intact()
            && let Some(fd) = self.fd.take()
        {
            // The number now stands for something else, or for nothing.
            let _ = fd.into_raw_fd();
        }
    }
}
