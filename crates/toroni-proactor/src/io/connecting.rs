//! `CONNECT`, whose result is a stream.

use super::{Handle, Stream};
use crate::error::{OperationError, Refused, SetupError, StartError};
use crate::operation::{Address, Completion, Done, OperationKind};
use crate::proactor::{OperationId, Proactor, identified};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

struct Connecting<F> {
    handle: Arc<Handle>,
    handler: F,
}

impl<F> Completion for Connecting<F>
where
    F: FnOnce(Result<Stream, OperationError>) + Send + 'static,
{
    fn complete(self: Box<Self>, done: Done) {
        let Self { handle, handler } = *self;
        handler(done.result().map(|_| Stream(handle)));
    }
}

/// Creates a socket, takes it over, and connects it.
pub(super) fn connect<F>(
    take_over: impl FnOnce(OwnedFd) -> Result<Arc<Handle>, SetupError>,
    address: SocketAddr,
    handler: F,
) -> Result<OperationId, Refused<(), F>>
where
    F: FnOnce(Result<Stream, OperationError>) + Send + 'static,
{
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    connect_to(take_over, family, Ok(Address::Internet(address)), handler)
}

/// Creates a local socket and connects it.
pub(super) fn connect_unix<F>(
    proactor: &Proactor,
    path: &Path,
    handler: F,
) -> Result<OperationId, Refused<(), F>>
where
    F: FnOnce(Result<Stream, OperationError>) + Send + 'static,
{
    let address = SocketAddrUnix::new(path).map(|address| Address::Local(Box::new(address)));
    connect_to(|socket| Handle::of(proactor, socket), AddressFamily::UNIX, address, handler)
}

fn connect_to<F>(
    take_over: impl FnOnce(OwnedFd) -> Result<Arc<Handle>, SetupError>,
    family: AddressFamily,
    address: Result<Address, Errno>,
    handler: F,
) -> Result<OperationId, Refused<(), F>>
where
    F: FnOnce(Result<Stream, OperationError>) + Send + 'static,
{
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let prepared = address.and_then(|address| {
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        Ok((address, take_over(socket).map_err(|_| Errno::BADF)?))
    });
    let (address, handle) = match prepared {
        Ok(prepared) => prepared,
        Err(errno) => {
            let errno = errno.raw_os_error();
            let operation = OperationKind::Connect;
            let error = StartError::Refused(OperationError { operation, descriptor: None, errno });
            return Err(Refused { error, buffer: (), handler });
        }
    };
    let mut request = handle.request(OperationKind::Connect);
    request.address = Some(address);
    let inner = Arc::clone(handle.inner());
    let completion = Box::new(Connecting { handle, handler });
    let started = inner.start(request, completion);
    identified(started, |Connecting { handler, .. }| ((), handler))
}
