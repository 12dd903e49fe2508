//! Connected streams: TCP, local sockets, pipes, terminals.

use super::{Handle, Pending, connecting, handle, transfer};
use crate::buffer::{BufResult, ReadBuffer, WriteBuffer};
use crate::error::{OperationError, Refused, SetupError};
use crate::proactor::{OperationId, Proactor};
use crate::record::Operation;
use rustix::net::Shutdown as HowToShut;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A stream of bytes in one or both directions. Clones are the same stream.
///
/// Reads are done in the order of their starts, and so are writes.
#[derive(Clone)]
pub struct Stream(pub(crate) Arc<Handle>);

handle!(Stream);

impl Stream {
    /// Takes over a connected socket, a pipe or a terminal. A socket becomes non-blocking.
    ///
    /// # Errors
    ///
    /// If the kernel does not say what the descriptor is.
    pub fn new(proactor: &Proactor, descriptor: impl Into<OwnedFd>) -> Result<Self, SetupError> {
        Handle::of(proactor, descriptor.into()).map(Self)
    }

    /// Connects to an address.
    ///
    /// # Errors
    ///
    /// If the socket cannot be made or the operation not be started. That nobody listens there is a result.
    pub fn connect<F>(
        proactor: &Proactor,
        address: SocketAddr,
        handler: F,
    ) -> Result<OperationId, Refused<(), F>>
    where
        F: FnOnce(Result<Stream, OperationError>) + Send + 'static,
    {
        connecting::connect(proactor, address, handler)
    }

    /// As [`Stream::connect`], as a future.
    pub fn connect_async(
        proactor: &Proactor,
        address: SocketAddr,
    ) -> Pending<Result<Stream, OperationError>> {
        Pending::start(
            proactor.inner(),
            |handler| Self::connect(proactor, address, handler),
            |refused| Err(refused.error.of(Operation::Connect)),
        )
    }

    /// Reads what there is, at most as much as the buffer holds; waits until there is something. 0 bytes are
    /// the end of the stream.
    ///
    /// # Errors
    ///
    /// If it cannot be started; the buffer and the handler come back.
    pub fn read<B, F>(&self, buffer: B, handler: F) -> Result<OperationId, Refused<B, F>>
    where
        B: ReadBuffer,
        F: FnOnce(BufResult<usize, B>) + Send + 'static,
    {
        let request = self.0.request(Operation::ReadStream);
        transfer::fill(&self.0, request, buffer, |_, bytes| bytes, handler)
    }

    /// Writes from the beginning of the buffer, perhaps not all of it: [`crate::Rest`] is what is left.
    ///
    /// # Errors
    ///
    /// If it cannot be started; the buffer and the handler come back.
    pub fn write<B, F>(&self, buffer: B, handler: F) -> Result<OperationId, Refused<B, F>>
    where
        B: WriteBuffer,
        F: FnOnce(BufResult<usize, B>) + Send + 'static,
    {
        transfer::send(&self.0, self.0.request(Operation::WriteStream), buffer, handler)
    }

    /// As [`Stream::read`], as a future.
    pub fn read_async<B: ReadBuffer>(&self, buffer: B) -> Pending<BufResult<usize, B>> {
        Pending::start(
            self.0.inner(),
            |handler| self.read(buffer, handler),
            |refused| refused.into_result(Operation::ReadStream),
        )
    }

    /// As [`Stream::write`], as a future.
    pub fn write_async<B: WriteBuffer>(&self, buffer: B) -> Pending<BufResult<usize, B>> {
        Pending::start(
            self.0.inner(),
            |handler| self.write(buffer, handler),
            |refused| refused.into_result(Operation::WriteStream),
        )
    }

    /// Ends one direction, or both.
    ///
    /// # Errors
    ///
    /// If it is no connected socket.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let how = match how {
            Shutdown::Read => HowToShut::Read,
            Shutdown::Write => HowToShut::Write,
            Shutdown::Both => HowToShut::Both,
        };
        Ok(rustix::net::shutdown(self.0.as_fd(), how)?)
    }
}
