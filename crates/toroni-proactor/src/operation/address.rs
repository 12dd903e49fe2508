//! Where to connect or to send.

use rustix::net::{SocketAddrAny, SocketAddrUnix};
use std::net::SocketAddr;

/// An address. Requests are moved often, and hardly any has one of the long kind.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    /// `AF_INET` or `AF_INET6`.
    Internet(SocketAddr),
    /// `AF_UNIX`, of up to 110 bytes.
    Local(Box<SocketAddrUnix>),
}

impl Address {
    /// As the kernel takes it.
    pub(crate) fn to_any(&self) -> SocketAddrAny {
        match self {
            Self::Internet(address) => (*address).into(),
            Self::Local(address) => SocketAddrUnix::clone(address).into(),
        }
    }
}

/// The address of a peer, if it is one of the internet: others are not told.
pub(crate) fn of_peer(address: Option<SocketAddrAny>) -> Option<SocketAddr> {
    SocketAddr::try_from(address?).ok()
}
