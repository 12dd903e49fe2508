//! Regular files and block devices.

use super::{Handle, Pending, handle, transfer};
use crate::buffer::{BufResult, ReadBuffer, WriteBuffer};
use crate::error::{Refused, SetupError};
use crate::operation::{DescriptorKind, OperationKind, Request};
use crate::proactor::{OperationId, Proactor};
use rustix::io::{Errno, pread};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A file that is read and written at given offsets. Clones share it.
///
/// SELECT engines transfer in the thread that starts the operation, because files are always ready. That thread
/// may wait for the disk.
#[derive(Clone)]
pub struct File(Arc<Handle>);

handle!(File);

impl File {
    /// Takes over an open file.
    ///
    /// # Errors
    ///
    /// `ESPIPE` if the descriptor has no positions, as pipes and sockets have none: some engines would read it
    /// like a stream, others not at all.
    pub fn new(proactor: &Proactor, file: impl Into<OwnedFd>) -> Result<Self, SetupError> {
        let handle = Handle::of(proactor, file.into())?;
        if handle.request(OperationKind::ReadFile).on().kind() != DescriptorKind::File {
            let nothing: &mut [u8] = &mut [];
            if pread(handle.as_fd(), nothing, 0) == Err(Errno::SPIPE) {
                let action = "read and write it at positions (take `Stream`)";
                return Err(SetupError::system(action)(Errno::SPIPE));
            }
        }
        Ok(Self(handle))
    }

    /// Reads from a byte offset, at most as much as the buffer holds. 0 bytes mean the end of the file.
    ///
    /// # Errors
    ///
    /// If the operation cannot be started; the buffer and the handler come back. A buffer without capacity is
    /// refused ([`crate::StartError::NoRoom`]), because its 0 bytes would look like the end.
    pub fn read<B, F>(
        &self,
        offset: u64,
        buffer: B,
        handler: F,
    ) -> Result<OperationId, Refused<B, F>>
    where
        B: ReadBuffer,
        F: FnOnce(BufResult<usize, B>) + Send + 'static,
    {
        let request = self.request(OperationKind::ReadFile, offset);
        transfer::fill(&self.0, request, buffer, |_, bytes| bytes, handler)
    }

    /// Writes at a byte offset, perhaps not all of the buffer. [`crate::Rest`] is the part that is left.
    ///
    /// # Errors
    ///
    /// If the operation cannot be started; the buffer and the handler come back.
    pub fn write<B, F>(
        &self,
        offset: u64,
        buffer: B,
        handler: F,
    ) -> Result<OperationId, Refused<B, F>>
    where
        B: WriteBuffer,
        F: FnOnce(BufResult<usize, B>) + Send + 'static,
    {
        let request = self.request(OperationKind::WriteFile, offset);
        transfer::send(&self.0, request, buffer, |bytes| bytes, handler)
    }

    /// [`File::read`] as a future.
    pub fn read_async<B: ReadBuffer>(
        &self,
        offset: u64,
        buffer: B,
    ) -> Pending<BufResult<usize, B>> {
        Pending::start(
            self.0.inner(),
            |handler| self.read(offset, buffer, handler),
            |refused| refused.into_result(OperationKind::ReadFile),
        )
    }

    /// [`File::write`] as a future.
    pub fn write_async<B: WriteBuffer>(
        &self,
        offset: u64,
        buffer: B,
    ) -> Pending<BufResult<usize, B>> {
        Pending::start(
            self.0.inner(),
            |handler| self.write(offset, buffer, handler),
            |refused| refused.into_result(OperationKind::WriteFile),
        )
    }

    fn request(&self, operation: OperationKind, offset: u64) -> Request {
        Request { offset, ..self.0.request(operation) }
    }
}
