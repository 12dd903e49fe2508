//! The sockets of TCP: what waits, waits with us, where it can be left out, and not in the kernel, where it only ages.

use crate::socket::options::{self, UNSENT_LOW_WATER};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};

/// What the kernel may hold for one connection, in bytes: what is on the way, without an acknowledgement. The kernel
/// doubles it for its own bookkeeping.
const SEND_BUFFER: usize = 256 << 10;
/// As long as so many bytes in the kernel were not sent for the first time, it takes no more.
const UNSENT_BYTES: i32 = 16 << 10;
/// After so long without an acknowledgement the connection is lost, in milliseconds; see `TCP_USER_TIMEOUT` in tcp(7).
const USER_TIMEOUT_MS: u32 = 10_000;

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
