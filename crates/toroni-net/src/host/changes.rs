//! Changes: whether the addresses of this host have changed, as the kernel says (man 7 rtnetlink).

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use std::io;

/// `RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR` (linux/rtnetlink.h).
const ADDRESSES: u32 = 0x10 | 0x100;
/// How many notices are read at a time. Further ones wait in the socket.
const MOST: usize = 1_024;

/// Learns that an interface of this host got or lost an address.
#[derive(Debug)]
pub struct Changes {
    socket: OwnedFd,
}

impl Changes {
    /// Begins to listen.
    ///
    /// # Errors
    /// If the kernel refuses the socket.
    pub fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // NETLINK_ROUTE is 0, the default protocol of the family.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, ADDRESSES))?;
        Ok(Self { socket })
    }

    /// Returns whether an address has come or gone since the last call. What exactly has changed is in the lists of
    /// [`interface`](super::interface): when this is read, more may have changed.
    #[must_use]
    pub fn have_come(&self) -> bool {
        let mut has_changed = false;
        // The notices themselves are not needed: one byte takes a whole one out of the socket.
        let mut byte = [0];
        for _ in 0..MOST {
            match recv(&self.socket, &mut byte[..], RecvFlags::empty()) {
                Err(Errno::WOULDBLOCK) => return has_changed,
                Err(Errno::INTR) => {}
                // Also if the kernel had no room for one (ENOBUFS).
                _ => has_changed = true,
            }
        }
        has_changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroni_testkit::network::{Namespace, skip};

    #[test]
    fn an_address_that_comes_and_goes_is_noticed_once() {
        // Nothing else happens in this one.
        let namespace = match Namespace::new() {
            Ok(namespace) => namespace,
            Err(error) => return skip(&format!("no network namespace: {error}")),
        };
        let changes = namespace.enter(|| Changes::open().unwrap());
        assert!(!changes.have_come());
        for change in ["add", "delete"] {
            for address in ["10.78.0.1/24", "2001:db8::1/64"] {
                let command = format!("address {change} {address} dev lo");
                namespace.ip(&[command.as_str()]);
                assert!(changes.have_come(), "{command}");
                assert!(!changes.have_come(), "{command}");
            }
        }
    }
}
