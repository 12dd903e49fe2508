//! Connecting: the stream is there when the operation is over.

use super::{Handle, Stream};
use crate::error::{OperationError, Refused, StartError};
use crate::proactor::{OperationId, Proactor, take_back};
use crate::record::{Completion, Done, Operation};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::net::SocketAddr;
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

/// Makes a socket and connects it.
pub(super) fn connect<F>(
    proactor: &Proactor,
    address: SocketAddr,
    handler: F,
) -> Result<OperationId, Refused<(), F>>
where
    F: FnOnce(Result<Stream, OperationError>) + Send + 'static,
{
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let handle = socket_with(family, SocketType::STREAM, flags, None)
        .and_then(|socket| Handle::of(proactor, socket).map_err(|_| Errno::BADF));
    let handle = match handle {
        Ok(handle) => handle,
        Err(errno) => {
            let errno = errno.raw_os_error();
            let operation = Operation::Connect;
            let error = StartError::Refused(OperationError { operation, descriptor: None, errno });
            return Err(Refused { error, buffer: (), handler });
        }
    };
    let mut request = handle.request(Operation::Connect);
    request.address = Some(address.into());
    let inner = Arc::clone(handle.inner());
    let completion = Box::new(Connecting { handle, handler });
    inner.start(request, completion).map(OperationId::new).map_err(|returned| {
        let (error, Connecting { handler, .. }) = take_back::<Connecting<F>>(returned);
        Refused { error, buffer: (), handler }
    })
}
