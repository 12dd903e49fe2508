//! Datagram sockets.

use super::{Handle, Pending, handle, transfer};
use crate::buffer::{BufResult, ReadBuffer, WriteBuffer};
use crate::error::{Refused, SetupError};
use crate::operation::{Address, Done, OperationKind, Outcome};
use crate::proactor::{OperationId, Proactor};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A datagram socket. Clones share it.
#[derive(Clone)]
pub struct Datagrams(Arc<Handle>);

handle!(Datagrams);

/// The datagram that a read has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Its length in bytes, limited to the length of the buffer.
    pub length: usize,
    /// The sender's address; `None` for local sockets.
    pub from: Option<SocketAddr>,
    /// The datagram was longer than the buffer, and its end is lost.
    pub is_truncated: bool,
}

impl Datagrams {
    /// Binds a UDP socket to an address.
    ///
    /// # Errors
    ///
    /// If the address is in use, or not allowed.
    pub fn bind(proactor: &Proactor, address: SocketAddr) -> Result<Self, SetupError> {
        let socket = UdpSocket::bind(address)
            .map_err(|source| SetupError::System { action: "bind the address", source })?;
        Self::new(proactor, socket)
    }

    /// Takes over a datagram socket of any family. It becomes non-blocking.
    ///
    /// # Errors
    ///
    /// If `fstat` fails for the descriptor, or the socket cannot be made non-blocking.
    pub fn new(proactor: &Proactor, socket: impl Into<OwnedFd>) -> Result<Self, SetupError> {
        Handle::of(proactor, socket.into()).map(Self)
    }

    /// Returns the address that the socket receives on.
    ///
    /// # Errors
    ///
    /// If it is not an internet socket.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        let address = rustix::net::getsockname(self.0.as_fd())?;
        Ok(SocketAddr::try_from(address)?)
    }

    /// Receives one datagram.
    ///
    /// # Errors
    ///
    /// If the operation cannot be started; the buffer and the handler come back.
    pub fn read<B, F>(&self, buffer: B, handler: F) -> Result<OperationId, Refused<B, F>>
    where
        B: ReadBuffer,
        F: FnOnce(BufResult<Datagram, B>) + Send + 'static,
    {
        transfer::fill(
            &self.0,
            self.0.request(OperationKind::ReadDatagram),
            buffer,
            report,
            handler,
        )
    }

    /// Sends one datagram: to an address, or, with `None`, to the peer that the socket is connected to.
    ///
    /// # Errors
    ///
    /// If the operation cannot be started; the buffer and the handler come back.
    pub fn write<B, F>(
        &self,
        buffer: B,
        to: Option<SocketAddr>,
        handler: F,
    ) -> Result<OperationId, Refused<B, F>>
    where
        B: WriteBuffer,
        F: FnOnce(BufResult<usize, B>) + Send + 'static,
    {
        let mut request = self.0.request(OperationKind::WriteDatagram);
        request.address = to.map(Address::Internet);
        transfer::send(&self.0, request, buffer, |bytes| bytes, handler)
    }

    /// [`Datagrams::read`] as a future.
    pub fn read_async<B: ReadBuffer>(&self, buffer: B) -> Pending<BufResult<Datagram, B>> {
        Pending::start(
            self.0.inner(),
            |handler| self.read(buffer, handler),
            |refused| refused.into_result(OperationKind::ReadDatagram),
        )
    }

    /// [`Datagrams::write`] as a future.
    pub fn write_async<B: WriteBuffer>(
        &self,
        buffer: B,
        to: Option<SocketAddr>,
    ) -> Pending<BufResult<usize, B>> {
        Pending::start(
            self.0.inner(),
            |handler| self.write(buffer, to, handler),
            |refused| refused.into_result(OperationKind::WriteDatagram),
        )
    }
}

fn report(done: &mut Done, length: usize) -> Datagram {
    let Outcome { address: from, is_truncated, .. } = done.outcome;
    Datagram { length, from, is_truncated }
}
