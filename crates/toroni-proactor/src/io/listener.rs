//! Listening sockets.

use super::{Handle, Pending, Stream, handle};
use crate::error::{OperationError, Refused, SetupError};
use crate::inner::Inner;
use crate::operation::{Completion, Done, OperationKind};
use crate::proactor::{OperationId, Proactor, identified};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A listening socket. Clones share it.
#[derive(Clone)]
pub struct Listener(Arc<Handle>);

handle!(Listener);

/// An accepted connection and the peer's address, which is `None` for local sockets.
pub type Accepted = Result<(Stream, Option<SocketAddr>), OperationError>;

impl Listener {
    /// Listens on an address, with the backlog of the standard library.
    ///
    /// # Errors
    ///
    /// If the address is in use, or not allowed.
    pub fn bind(proactor: &Proactor, address: SocketAddr) -> Result<Self, SetupError> {
        let listener = TcpListener::bind(address)
            .map_err(|source| SetupError::System { action: "listen on the address", source })?;
        Self::new(proactor, listener)
    }

    /// Takes over a listening socket of any family. It becomes non-blocking.
    ///
    /// # Errors
    ///
    /// If `fstat` fails for the descriptor, or the socket cannot be made non-blocking.
    pub fn new(proactor: &Proactor, socket: impl Into<OwnedFd>) -> Result<Self, SetupError> {
        Handle::of(proactor, socket.into()).map(Self)
    }

    /// Returns the address that the socket listens on.
    ///
    /// # Errors
    ///
    /// If it is not an internet socket.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        let address = rustix::net::getsockname(self.0.as_fd())?;
        Ok(SocketAddr::try_from(address)?)
    }

    /// Accepts the next connection.
    ///
    /// # Errors
    ///
    /// If the operation cannot be started; the handler comes back.
    pub fn accept<F>(&self, handler: F) -> Result<OperationId, Refused<(), F>>
    where
        F: FnOnce(Accepted) + Send + 'static,
    {
        let completion = Box::new(Accepting { inner: Arc::clone(self.0.inner()), handler });
        let request = self.0.request(OperationKind::Accept);
        let started = self.0.inner().start(request, completion);
        identified(started, |Accepting { handler, .. }| ((), handler))
    }

    /// [`Listener::accept`] as a future.
    pub fn accept_async(&self) -> Pending<Accepted> {
        Pending::start(
            self.0.inner(),
            |handler| self.accept(handler),
            |refused| Err(refused.error.of(OperationKind::Accept)),
        )
    }
}

struct Accepting<F> {
    inner: Arc<Inner>,
    handler: F,
}

impl<F: FnOnce(Accepted) + Send + 'static> Completion for Accepting<F> {
    fn complete(self: Box<Self>, mut done: Done) {
        let Self { inner, handler } = *self;
        let descriptor = done.raw();
        let accepted = done.result().and_then(|_| {
            let failed =
                |errno| OperationError { operation: OperationKind::Accept, descriptor, errno };
            let socket = done.outcome.accepted.take().ok_or_else(|| failed(libc::EIO))?;
            let handle = Handle::accepted(&inner, socket).map_err(|_| failed(libc::EIO))?;
            Ok((Stream(handle), done.outcome.address))
        });
        handler(accepted);
    }
}
