//! The sockets of TCP: what waits, waits with us, where it can be left out, and not in the kernel, where it only ages.

use crate::socket::options::{self, UNSENT_LOW_WATER};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};

/// What the kernel may hold for one connection, in bytes: what is on the way, without an acknowledgement. The kernel
/// doubles it for its own bookkeeping.
const SEND_BUFFER: usize = 256 << 10;
/// While the kernel has this many bytes that were never sent, it takes no more.
const UNSENT_BYTES: i32 = 16 << 10;
/// After this many milliseconds without an acknowledgement the connection is lost; see `TCP_USER_TIMEOUT` in tcp(7).
const USER_TIMEOUT_MS: u32 = 10_000;

/// What else a node has open: files of the bus, sockets of groups, standard streams.
const OTHER_DESCRIPTORS: u64 = 256;

/// Prepares a connection: it never waits, and holds little.
pub(super) fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    sockopt::set_socket_send_buffer_size(socket, SEND_BUFFER)?;
    options::set(socket, UNSENT_LOW_WATER, UNSENT_BYTES)?;
    sockopt::set_tcp_user_timeout(socket, USER_TIMEOUT_MS)?;
    Ok(())
}

/// Listens without ever waiting.
pub(super) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpListener::bind(address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Lets this process open this many sockets beyond those of other purposes, as far as it may; see `RLIMIT_NOFILE` in
/// getrlimit(2). Where it may not, connections are refused one by one.
pub(super) fn allow(sockets: u64) {
    let limit = getrlimit(Resource::Nofile);
    let wanted = sockets.saturating_add(OTHER_DESCRIPTORS);
    let most = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    if limit.current.is_some_and(|current| current < most) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..limit });
    }
}

/// Begins to connect. The connection is made, or has failed, when the socket can be written.
pub(super) fn begin_connect(to: SocketAddr, from: Option<SocketAddr>) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let descriptor: OwnedFd = socket_with(family, SocketType::STREAM, flags, None)?;
    let socket = TcpStream::from(descriptor);
    prepare(&socket)?;
    if let Some(from) = from {
        // The port may still belong to the connection before.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &from)?;
    }
    match connect(&socket, &to) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}
