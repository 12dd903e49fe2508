//! The two kinds of sockets that a node has.
//!
//! ```text
//!   Datagram::group   one for each group and interface     receives what is sent to the group, and nothing else
//!   Datagram::leg     one for each interface (a leg)       sends everything; receives what is sent to this node
//! ```
//!
//! A group's socket is bound to the group's address, and on an interface: without both, every datagram of the same port
//! would come, of whatever group and interface others on this host have joined. A leg's socket has a port of its own, so
//! that answers reach the process that asked.
//!
//! All sockets are closed when another program is executed. A fork shares them: both processes then take datagrams from
//! one buffer, so the child must close them.

use super::options::{self, Name};
use super::{buffer, multicast};
use crate::host::interface::{Interface, InterfaceError};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, ipproto, socket_with, sockopt,
};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// How a socket sends and receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many hops a datagram to a group may go: 0 stays on this host, 1 on this network.
    pub ttl: u8,
    /// Whether sockets of this host get what it sends to a group, if they have joined.
    pub is_looped: bool,
    /// The DSCP of what it sends, 0 to 63 (RFC 2474). Its upper three bits, up to 6, are the priority of the socket (`SO_PRIORITY`).
    pub dscp: u8,
    /// The receive buffer to ask for, as the value of `SO_RCVBUF`; see [`crate::host::buffers::Load::request`]. `None`
    /// leaves the kernel's default.
    pub receive_buffer: Option<u64>,
    /// How long the kernel polls the card when there is nothing to read (`SO_BUSY_POLL`), rounded to microseconds. Without
    /// `CAP_NET_ADMIN` the kernel may refuse; the socket then works without.
    pub busy_poll: Duration,
}

impl Default for Options {
    /// 16 hops, not looped, the class 0, the kernel's buffer, no polling.
    fn default() -> Self {
        Self { ttl: 16, is_looped: false, dscp: 0, receive_buffer: None, busy_poll: Duration::ZERO }
    }
}

/// A socket for datagrams on one interface. It never waits.
#[derive(Debug)]
pub struct Datagram {
    descriptor: OwnedFd,
    address: SocketAddr,
    can_segment: bool,
    polls_busily: bool,
    grant: Option<buffer::Grant>,
}

/// Why a socket cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The address is no group.
    #[error("{0} is no multicast address")]
    NotMulticast(IpAddr),
    /// The interface cannot be used.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The kernel refused.
    #[error("cannot {attempt} {address} on {interface}: {source}{}", advice(.attempt, .source))]
    System {
        /// What was attempted: `bind`, `join`, …
        attempt: &'static str,
        /// The address of the socket or the group.
        address: String,
        /// The name of the interface.
        interface: String,
        /// The error of the kernel.
        source: io::Error,
    },
}

impl SocketError {
    pub(super) fn new(
        attempt: &'static str,
        address: impl fmt::Display,
        interface: &Interface,
        source: io::Error,
    ) -> Self {
        let (address, interface) = (address.to_string(), interface.name.clone());
        Self::System { attempt, address, interface, source }
    }
}

/// Returns what to do about an error, with the punctuation before it.
fn advice(attempt: &str, error: &io::Error) -> &'static str {
    match (attempt, error.raw_os_error()) {
        ("join", Some(libc::ENOBUFS)) => {
            " (this socket is in as many groups as net.ipv4.igmp_max_memberships allows)"
        }
        (_, Some(libc::ENODEV)) | ("configure", Some(libc::EADDRNOTAVAIL)) => {
            " (the interface is gone)"
        }
        ("join", Some(libc::EADDRINUSE)) => " (this socket has joined it there already)",
        ("bind", Some(libc::EADDRINUSE)) => {
            " (another program uses this port alone: end it, or choose another port)"
        }
        ("bind", Some(libc::EADDRNOTAVAIL)) => " (the interface has lost this address)",
        ("bind", Some(libc::EACCES)) => " (ports below 1024 need privileges: choose another port)",
        ("open", Some(libc::EAFNOSUPPORT)) => " (this kernel has no IPv6: use a group of IPv4)",
        ("open", Some(libc::EMFILE)) => " (raise the limit of open files: ulimit -n)",
        _ => "",
    }
}

impl Datagram {
    /// Opens a socket that receives what is sent to a group, if it arrives on this interface.
    ///
    /// Several processes of a host may open the same group; each gets every datagram.
    ///
    /// # Errors
    /// If the address is no group, another program has the port for itself, or the interface cannot multicast.
    pub fn group(
        group: SocketAddr,
        on: &Interface,
        options: &Options,
    ) -> Result<Self, SocketError> {
        if !group.ip().is_multicast() {
            return Err(SocketError::NotMulticast(group.ip()));
        }
        let address = on.scoped(group);
        let descriptor = open(address, on)?;
        let error = |attempt, error| SocketError::new(attempt, address, on, error);
        sockopt::set_socket_reuseaddr(&descriptor, true).map_err(|e| error("share", e.into()))?;
        if address.is_ipv6() {
            // The kernel compares only the addresses of groups, not the interfaces, on which an IPv6 socket joined.
            let index = i32::try_from(on.index).unwrap_or(0);
            options::set(&descriptor, options::BIND_TO_INTERFACE, index)
                .map_err(|e| error("open", e))?;
        }
        let socket = Self::finish(descriptor, address, on, options)?;
        multicast::join(&socket, group.ip(), on)?;
        Ok(socket)
    }

    /// Opens a socket as [`Self::group`] does, which gets only datagrams with this byte at this place. The kernel drops the
    /// others before they are in the socket.
    ///
    /// # Errors
    /// See [`Self::group`].
    pub fn group_filtered(
        group: SocketAddr,
        on: &Interface,
        options: &Options,
        (place, bytes): (u8, [u8; 2]),
    ) -> Result<Self, SocketError> {
        let socket = Self::group(group, on, options)?;
        options::keep_only(&socket.descriptor, place, bytes)
            .map_err(|error| SocketError::new("configure", socket.address, on, error))?;
        Ok(socket)
    }

    /// Opens a socket that sends on this interface, from this address of it, and receives what is sent there. With port 0,
    /// the kernel chooses one that no other socket has.
    ///
    /// IP fragments nothing that it sends: one lost fragment would lose the datagram, and no counter would show it.
    /// The kernel refuses a datagram that is longer than the interface's MTU (`EMSGSIZE`).
    ///
    /// # Errors
    /// If the address is not one of this host, or the port is taken.
    pub fn leg(
        address: SocketAddr,
        on: &Interface,
        options: &Options,
    ) -> Result<Self, SocketError> {
        let address = on.scoped(address);
        let descriptor = open(address, on)?;
        let (name, never) = if address.is_ipv4() {
            (options::FRAGMENTS, options::NEVER)
        } else {
            (options::FRAGMENTS_IPV6, options::NEVER_IPV6)
        };
        options::set(&descriptor, name, never)
            .map_err(|error| SocketError::new("configure", address, on, error))?;
        Self::finish(descriptor, address, on, options)
    }

    /// Sets what both kinds need, before the socket is bound: afterwards datagrams may be in it.
    fn finish(
        descriptor: OwnedFd,
        address: SocketAddr,
        on: &Interface,
        options: &Options,
    ) -> Result<Self, SocketError> {
        let error = |attempt, error| SocketError::new(attempt, address, on, error);
        let set = |name: Name, value| {
            options::set(&descriptor, name, value).map_err(|e| error("configure", e))
        };
        set(options::RECEIVE_TIME, 1)?;
        set(options::RECEIVE_DROPS, 1)?;
        let ttl = u32::from(options.ttl);
        let result = if address.is_ipv4() {
            set(options::MULTICAST_ALL, 0)?;
            set(options::PACKET_INFO, 1)?;
            set(options::RECEIVE_TTL, 1)?;
            multicast_ipv4(&descriptor, on, ttl, options.is_looped)
        } else {
            // Older kernels behave as if it were set; such a socket is bound to its interface and group.
            match options::set(&descriptor, options::MULTICAST_ALL_IPV6, 0) {
                Err(e) if e.raw_os_error() != Some(libc::ENOPROTOOPT) => {
                    return Err(error("configure", e));
                }
                _ => {}
            }
            set(options::PACKET_INFO_IPV6, 1)?;
            set(options::RECEIVE_HOPS_IPV6, 1)?;
            multicast_ipv6(&descriptor, on, ttl, options.is_looped)
        };
        result.map_err(|e| error("configure", e.into()))?;
        options::classify(&descriptor, options.dscp).map_err(|e| error("configure", e))?;
        let polls_busily = match i32::try_from(options.busy_poll.as_micros()) {
            Ok(0) | Err(_) => false,
            Ok(microseconds) => options::set(&descriptor, options::BUSY_POLL, microseconds).is_ok(),
        };
        let grant = options.receive_buffer.map(|bytes| buffer::request(&descriptor, bytes));
        let grant = grant.transpose().map_err(|e| error("configure", e))?;
        // A kernel that knows the option takes its default.
        let can_segment = options::set(&descriptor, options::SEGMENT, 0).is_ok();
        bind(&descriptor, &address).map_err(|e| error("bind", e.into()))?;
        let bound = getsockname(&descriptor).map_err(|e| error("bind", e.into()))?;
        let address = SocketAddr::try_from(bound).map_err(|e| error("bind", e.into()))?;
        Ok(Self { descriptor, address, can_segment, polls_busily, grant })
    }

    /// Returns the address to which it is bound: the group, or one of this host with the port that the kernel chose.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether the kernel can cut one buffer into datagrams (`UDP_SEGMENT`, since Linux 4.18).
    #[must_use]
    pub const fn can_segment(&self) -> bool {
        self.can_segment
    }

    /// Whether the kernel polls the card for this socket, as [`Options::busy_poll`] asks.
    #[must_use]
    pub const fn polls_busily(&self) -> bool {
        self.polls_busily
    }

    /// Returns what the kernel gave for [`Options::receive_buffer`].
    #[must_use]
    pub const fn grant(&self) -> Option<buffer::Grant> {
        self.grant
    }
}

impl AsFd for Datagram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn open(address: SocketAddr, on: &Interface) -> Result<OwnedFd, SocketError> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let descriptor = socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))
        .map_err(|error| SocketError::new("open", address, on, error.into()))?;
    if address.is_ipv6() {
        // Otherwise it would take the port of IPv4, too.
        sockopt::set_ipv6_v6only(&descriptor, true)
            .map_err(|error| SocketError::new("configure", address, on, error.into()))?;
    }
    Ok(descriptor)
}

fn multicast_ipv4(
    socket: &OwnedFd,
    on: &Interface,
    ttl: u32,
    is_looped: bool,
) -> rustix::io::Result<()> {
    // The index alone decides.
    let none = Ipv4Addr::UNSPECIFIED;
    sockopt::set_ip_multicast_if_with_ifindex(socket, &none, &none, on.index)?;
    sockopt::set_ip_multicast_ttl(socket, ttl)?;
    sockopt::set_ip_multicast_loop(socket, is_looped)
}

fn multicast_ipv6(
    socket: &OwnedFd,
    on: &Interface,
    ttl: u32,
    is_looped: bool,
) -> rustix::io::Result<()> {
    sockopt::set_ipv6_multicast_if(socket, on.index)?;
    sockopt::set_ipv6_multicast_hops(socket, ttl)?;
    sockopt::set_ipv6_multicast_loop(socket, is_looped)
}
