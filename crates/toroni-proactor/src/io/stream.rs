//! Connected streams: TCP, local sockets, pipes, terminals.

use super::{Handle, Pending, connecting, handle, transfer};
use crate::buffer::{BufResult, ReadBuffer, WriteBuffer};
use crate::error::{OperationError, Refused, SetupError};
use crate::operation::OperationKind;
use crate::proactor::{OperationId, Proactor};
use rustix::net::Shutdown as HowToShut;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

/// A stream of bytes in one or both directions: a connected socket, a pipe or a terminal. Clones share it.
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
    /// If `fstat` fails for the descriptor, or a socket cannot be made non-blocking.
    pub fn new(proactor: &Proactor, descriptor: impl Into<OwnedFd>) -> Result<Self, SetupError> {
        Handle::of(proactor, descriptor.into()).map(Self)
    }

    /// Takes over a descriptor as [`Stream::new`] does, for work on both: it goes to the shard of this stream.
    ///
    /// Each operation of a handler on a stream of another shard takes that shard's lock, and its result comes in a
    /// thread of that shard. So the two ends of a proxy belong together. With one shard, this is [`Stream::new`].
    ///
    /// # Errors
    ///
    /// As [`Stream::new`].
    pub fn beside(&self, descriptor: impl Into<OwnedFd>) -> Result<Self, SetupError> {
        self.0.beside(descriptor.into()).map(Self)
    }

    /// Connects to an internet address.
    ///
    /// # Errors
    ///
    /// If the socket cannot be created, or the operation cannot be started. A refused connection is a result
    /// for the handler.
    pub fn connect<F>(
        proactor: &Proactor,
        address: SocketAddr,
        handler: F,
    ) -> Result<OperationId, Refused<(), F>>
    where
        F: FnOnce(Result<Stream, OperationError>) + Send + 'static,
    {
        connecting::connect(|socket| Handle::of(proactor, socket), address, handler)
    }

    /// [`Stream::connect`] to a peer that is going to work with this stream, as that of a proxy: the new stream is at home
    /// in the same shard ([`Stream::beside`]).
    ///
    /// # Errors
    ///
    /// As [`Stream::connect`].
    pub fn connect_beside<F>(
        &self,
        address: SocketAddr,
        handler: F,
    ) -> Result<OperationId, Refused<(), F>>
    where
        F: FnOnce(Result<Self, OperationError>) + Send + 'static,
    {
        connecting::connect(|socket| self.0.beside(socket), address, handler)
    }

    /// [`Stream::connect_beside`] as a future.
    pub fn connect_beside_async(
        &self,
        address: SocketAddr,
    ) -> Pending<Result<Self, OperationError>> {
        Pending::start(
            self.0.inner(),
            |handler| self.connect_beside(address, handler),
            |refused| Err(refused.error.of(OperationKind::Connect)),
        )
    }

    /// [`Stream::connect`] as a future.
    pub fn connect_async(
        proactor: &Proactor,
        address: SocketAddr,
    ) -> Pending<Result<Stream, OperationError>> {
        Pending::start(
            proactor.inner(),
            |handler| Self::connect(proactor, address, handler),
            |refused| Err(refused.error.of(OperationKind::Connect)),
        )
    }

    /// Connects to a local socket, by its path in the file system.
    ///
    /// ```
    /// # use toroni_proactor::{Listener, Proactor, Stream};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let proactor = Proactor::from_environment()?;
    /// # let path = std::env::temp_dir().join(format!("toroni-connect-{}", std::process::id()));
    /// # let _ = std::fs::remove_file(&path);
    /// let listener = Listener::new(&proactor, std::os::unix::net::UnixListener::bind(&path)?)?;
    /// let stream = proactor.block_on(Stream::connect_unix_async(&proactor, &path)).unwrap()?;
    /// # let _accepted = proactor.block_on(listener.accept_async()).unwrap()?;
    /// # std::fs::remove_file(&path)?;
    /// # drop(stream);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the path is too long (108 bytes), or the operation cannot be started. A refused connection is a
    /// result for the handler; so is `EAGAIN`, if the listener's backlog is full.
    pub fn connect_unix<F>(
        proactor: &Proactor,
        path: impl AsRef<Path>,
        handler: F,
    ) -> Result<OperationId, Refused<(), F>>
    where
        F: FnOnce(Result<Stream, OperationError>) + Send + 'static,
    {
        connecting::connect_unix(proactor, path.as_ref(), handler)
    }

    /// [`Stream::connect_unix`] as a future.
    pub fn connect_unix_async(
        proactor: &Proactor,
        path: impl AsRef<Path>,
    ) -> Pending<Result<Stream, OperationError>> {
        Pending::start(
            proactor.inner(),
            |handler| Self::connect_unix(proactor, path, handler),
            |refused| Err(refused.error.of(OperationKind::Connect)),
        )
    }

    /// Reads what has arrived, at most as much as the buffer holds; waits until something has. 0 bytes mean the
    /// end of the stream.
    ///
    /// A read moves a few hundred KiB at most, so that other operations get their turn. [`crate::Append`] keeps
    /// the bytes that a vector already has.
    ///
    /// # Errors
    ///
    /// If the operation cannot be started; the buffer and the handler come back. A buffer without capacity is
    /// refused ([`crate::StartError::NoRoom`]), because its 0 bytes would look like the end.
    pub fn read<B, F>(&self, buffer: B, handler: F) -> Result<OperationId, Refused<B, F>>
    where
        B: ReadBuffer,
        F: FnOnce(BufResult<usize, B>) + Send + 'static,
    {
        let request = self.0.request(OperationKind::ReadStream);
        transfer::fill(&self.0, request, buffer, |_, bytes| bytes, handler)
    }

    /// Writes from the beginning of the buffer: perhaps not all of it, and a few hundred KiB at most, so that
    /// other operations get their turn. [`crate::Rest`] is the part that is left.
    ///
    /// # Errors
    ///
    /// If the operation cannot be started; the buffer and the handler come back.
    pub fn write<B, F>(&self, buffer: B, handler: F) -> Result<OperationId, Refused<B, F>>
    where
        B: WriteBuffer,
        F: FnOnce(BufResult<usize, B>) + Send + 'static,
    {
        let request = self.0.request(OperationKind::WriteStream);
        transfer::send(&self.0, request, buffer, |bytes| bytes, handler)
    }

    /// Writes the whole buffer, in as many steps as it takes.
    ///
    /// It is one operation: writes that are started later follow it, so a program may start any number without
    /// waiting for each. If it fails or is cancelled, a part of the buffer may have been sent.
    ///
    /// ```
    /// # use toroni_proactor::{BufResult, Proactor, Stream};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let proactor = Proactor::from_environment()?;
    /// # let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
    /// let stream = Stream::new(&proactor, ours)?;
    /// # let reader = std::thread::spawn(move || {
    /// #     std::io::copy(&mut theirs, &mut std::io::sink()).unwrap()
    /// # });
    /// // More than a socket holds.
    /// stream.write_all(vec![7; 3_000_000], |BufResult(result, _)| result.unwrap())?;
    /// let again = stream.clone();
    /// let done = proactor.clone();
    /// stream.write_all("and the end", move |BufResult(result, _)| {
    ///     result.unwrap();
    ///     again.shutdown(std::net::Shutdown::Write).unwrap();
    ///     done.stop();
    /// })?;
    /// proactor.run();
    /// # assert_eq!(reader.join().unwrap(), 3_000_011);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the operation cannot be started; the buffer and the handler come back.
    pub fn write_all<B, F>(&self, buffer: B, handler: F) -> Result<OperationId, Refused<B, F>>
    where
        B: WriteBuffer,
        F: FnOnce(BufResult<(), B>) + Send + 'static,
    {
        let mut request = self.0.request(OperationKind::WriteStream);
        request.is_whole = true;
        transfer::send(&self.0, request, buffer, |_| (), handler)
    }

    /// [`Stream::read`] as a future.
    pub fn read_async<B: ReadBuffer>(&self, buffer: B) -> Pending<BufResult<usize, B>> {
        Pending::start(
            self.0.inner(),
            |handler| self.read(buffer, handler),
            |refused| refused.into_result(OperationKind::ReadStream),
        )
    }

    /// [`Stream::write`] as a future.
    pub fn write_async<B: WriteBuffer>(&self, buffer: B) -> Pending<BufResult<usize, B>> {
        Pending::start(
            self.0.inner(),
            |handler| self.write(buffer, handler),
            |refused| refused.into_result(OperationKind::WriteStream),
        )
    }

    /// [`Stream::write_all`] as a future.
    pub fn write_all_async<B: WriteBuffer>(&self, buffer: B) -> Pending<BufResult<(), B>> {
        Pending::start(
            self.0.inner(),
            |handler| self.write_all(buffer, handler),
            |refused| refused.into_result(OperationKind::WriteStream),
        )
    }

    /// Returns the address of this end.
    ///
    /// # Errors
    ///
    /// If the stream is not an internet socket.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        Ok(SocketAddr::try_from(rustix::net::getsockname(self.0.as_fd())?)?)
    }

    /// Returns the address of the other end.
    ///
    /// # Errors
    ///
    /// If the stream is not an internet socket, or is no longer connected.
    pub fn peer_address(&self) -> io::Result<SocketAddr> {
        let peer = rustix::net::getpeername(self.0.as_fd())?;
        Ok(SocketAddr::try_from(peer.ok_or(rustix::io::Errno::AFNOSUPPORT)?)?)
    }

    /// Sets whether TCP sends small writes at once (`TCP_NODELAY`). By default it collects them while earlier
    /// ones are not acknowledged.
    ///
    /// # Errors
    ///
    /// If the stream is not a TCP socket.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        Ok(rustix::net::sockopt::set_tcp_nodelay(self.0.as_fd(), nodelay)?)
    }

    /// Ends one direction, or both.
    ///
    /// # Errors
    ///
    /// If the stream is not a connected socket.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let how = match how {
            Shutdown::Read => HowToShut::Read,
            Shutdown::Write => HowToShut::Write,
            Shutdown::Both => HowToShut::Both,
        };
        Ok(rustix::net::shutdown(self.0.as_fd(), how)?)
    }
}
