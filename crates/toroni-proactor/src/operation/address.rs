//! Addresses to connect or to send to.

use rustix::net::{SocketAddrAny, SocketAddrUnix};
use std::net::SocketAddr;

/// An address. The long kind is boxed, because requests are moved often and rarely have one.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    /// `AF_INET` or `AF_INET6`.
    Internet(SocketAddr),
    /// `AF_UNIX`, up to 110 bytes.
    Local(Box<SocketAddrUnix>),
}

impl Address {
    /// Converts to the form that system calls take.
    pub(crate) fn to_any(&self) -> SocketAddrAny {
        match self {
            Self::Internet(address) => (*address).into(),
            Self::Local(address) => SocketAddrUnix::clone(address).into(),
        }
    }
}

/// Returns a peer's address if it is an internet address; others are not reported.
pub(crate) fn of_peer(address: Option<SocketAddrAny>) -> Option<SocketAddr> {
    SocketAddr::try_from(address?).ok()
}
