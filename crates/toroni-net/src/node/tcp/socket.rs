//! The sockets of TCP: what waits, waits with us, where it can be left out, and not in the kernel, where it only ages.

use crate::socket::options::{self, UNSENT_LOW_WATER};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use toroni_proto::time::{MILLISECOND, SECOND};

/// What the kernel may hold for one connection, in bytes: what is on the way, without an acknowledgement. The kernel
/// doubles it for its own bookkeeping.
const SEND_BUFFER: usize = 256 << 10;
/// While the kernel has this many bytes that were never sent, it takes no more.
const UNSENT_BYTES: i32 = 16 << 10;
/// After this time without an acknowledgement the connection is lost; see `TCP_USER_TIMEOUT` in tcp(7).
const USER_TIMEOUT_NS: u64 = 10 * SECOND;
/// The kernel takes no more.
const MOST_MS: u32 = i32::MAX.unsigned_abs();

/// What else a node has open: files of the bus, sockets of groups, standard streams.
const OTHER_DESCRIPTORS: u64 = 256;

/// Prepares a connection: it never waits, and holds little. `patience_ns` is the longest time for which its peer may stand still. The
/// kernel counts a window that stays closed as a time without an acknowledgement, so it must wait for longer.
pub(super) fn prepare(socket: &TcpStream, patience_ns: u64, dscp: u8) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    sockopt::set_socket_send_buffer_size(socket, SEND_BUFFER)?;
    options::set(socket, UNSENT_LOW_WATER, UNSENT_BYTES)?;
    let timeout_ms = USER_TIMEOUT_NS.max(patience_ns.saturating_mul(2)) / MILLISECOND;
    sockopt::set_tcp_user_timeout(
        socket,
        u32::try_from(timeout_ms).unwrap_or(MOST_MS).min(MOST_MS),
    )?;
    options::classify(socket, dscp)
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
pub(super) fn begin_connect(
    to: SocketAddr,
    from: Option<SocketAddr>,
    dscp: u8,
) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let descriptor: OwnedFd = socket_with(family, SocketType::STREAM, flags, None)?;
    let socket = TcpStream::from(descriptor);
    prepare(&socket, 0, dscp)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Else the kernel cuts a client that may stand still for longer.
    #[test]
    fn the_kernel_waits_for_longer_than_a_peer_may_stand_still() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        for (patience, wanted) in
            [(0, 10_000), (60 * SECOND, 120_000), (u64::MAX, i32::MAX.unsigned_abs())]
        {
            prepare(&socket, patience, 0).unwrap();
            assert_eq!(sockopt::tcp_user_timeout(&socket).unwrap(), wanted);
        }
    }

    #[test]
    fn both_ends_send_in_the_class_of_the_node() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let begun = begin_connect(listener.local_addr().unwrap(), None, 46).unwrap();
        listener.set_nonblocking(false).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert_eq!(sockopt::ip_tos(&accepted).unwrap(), 0);
        prepare(&accepted, 0, 46).unwrap();
        for socket in [&begun, &accepted] {
            assert_eq!(sockopt::ip_tos(socket).unwrap(), 46 << 2);
        }
    }
}
