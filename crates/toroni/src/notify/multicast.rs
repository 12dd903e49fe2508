//! Waking by UDP multicast on the loopback interface, the Toroni paper's notification (§3.2.4).
//!
//! One datagram reaches every subscriber in the network namespace. Its content is ignored. It never leaves the
//! machine: interface and membership are 127.0.0.1, and its time to live is 0.

use super::{ArmingSlot, Delivery, Waiter, drain, wait_readable};
use crate::hook::{self, CrashPoint, mutant};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, bind, connect, send, socket_with, sockopt,
};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A subscriber's membership in the group.
#[derive(Debug)]
pub(crate) struct MulticastWaiter {
    socket: OwnedFd,
    group: SocketAddrV4,
}

impl MulticastWaiter {
    /// Joins `group` on the loopback interface.
    pub(crate) fn join(group: SocketAddrV4) -> io::Result<Self> {
        let socket = udp_socket().map_err(|error| explain("open a UDP socket", group, error))?;
        // All subscribers bind the same address, and each gets a copy of every datagram.
        sockopt::set_socket_reuseaddr(&socket, true)
            .and_then(|()| {
                sockopt::set_ip_add_membership(&socket, group.ip(), &Ipv4Addr::LOCALHOST)
            })
            // Bind to the group, not to the wildcard address: otherwise any datagram to this port of the machine
            // would wake.
            .and_then(|()| bind(&socket, &group))
            .and_then(|()| refuse_other_memberships(&socket))
            .map_err(|error| explain("join", group, error))?;
        Ok(Self { socket, group })
    }

    /// Makes this socket and those of all other subscribers readable, as a publisher would.
    pub(crate) fn nudge(&self) {
        if let Ok(waker) = MulticastWaker::connect(self.group) {
            // If the queue is full, the socket is readable already.
            let _ = send(&waker.socket, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }
}

impl MulticastWaiter {
    /// Returns a socket that is connected to the group.
    pub(crate) fn sender(&self) -> io::Result<OwnedFd> {
        MulticastWaker::connect(self.group).map(|waker| waker.socket)
    }
}

impl Waiter for MulticastWaiter {
    fn arm(&mut self, slot: ArmingSlot<'_>) {
        drain(self.socket.as_fd());
        slot.arm_descriptor();
        if mutant("group_drained_after_arming") {
            drain(self.socket.as_fd());
        }
    }

    fn wait(&self, _slot: ArmingSlot<'_>, timeout: Option<Duration>) -> io::Result<()> {
        wait_readable(self.socket.as_fd(), timeout)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}

/// A publisher's socket, connected to the group.
#[derive(Debug)]
pub(crate) struct MulticastWaker {
    socket: OwnedFd,
}

impl MulticastWaker {
    /// Opens a socket that sends to `group` on the loopback interface only.
    pub(crate) fn connect(group: SocketAddrV4) -> io::Result<Self> {
        let socket = udp_socket().map_err(|error| explain("open a UDP socket", group, error))?;
        sockopt::set_ip_multicast_if(&socket, &Ipv4Addr::LOCALHOST)
            .and_then(|()| sockopt::set_ip_multicast_loop(&socket, true))
            .and_then(|()| sockopt::set_ip_multicast_ttl(&socket, 0))
            .and_then(|()| connect(&socket, &group))
            .map_err(|error| explain("send to", group, error))?;
        Ok(Self { socket })
    }

    /// Sends one datagram, which reaches all. These slots wait for it.
    pub(super) fn deliver(&self, due: &[u32]) -> Delivery {
        hook::point(CrashPoint::MidWake);
        match send(&self.socket, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(_) => Delivery { sent: 1, postponed: Vec::new() },
            // A temporary failure: the next message tries again.
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM) => {
                Delivery { sent: 0, postponed: due.to_vec() }
            }
            // A lasting failure, for example because `lo` went down. To try again with each message would be a failing call
            // for each. The subscribers arm again within 50 ms, and then the next message tries again.
            Err(_) => Delivery::default(),
        }
    }
}

fn udp_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)
}

/// Refuses datagrams that arrive at other interfaces because of another socket's membership, which a socket gets by
/// default. A datagram from the network must not wake this subscriber.
fn refuse_other_memberships(socket: &OwnedFd) -> Result<(), Errno> {
    let off: libc::c_int = 0;
    let length: libc::socklen_t = libc::c_int::BITS / 8;
    // SAFETY: the pointer and the length describe `off`, which outlives the call. The descriptor is open because
    // `socket` owns it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_MULTICAST_ALL,
            (&raw const off).cast(),
            length,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL))
    }
}

fn explain(action: &str, group: SocketAddrV4, error: Errno) -> io::Error {
    let hint = match error {
        Errno::NODEV | Errno::NETUNREACH | Errno::NETDOWN | Errno::ADDRNOTAVAIL => {
            "the loopback interface is down: `ip link set lo up`, or create the bus with the notifier `futex`"
        }
        Errno::ADDRINUSE => {
            "another program has bound the port for itself: create the bus with another group"
        }
        Errno::ACCESS | Errno::PERM => {
            "a firewall or sandbox forbids it: create the bus with the notifier `futex`"
        }
        _ => "create the bus with the notifier `futex`",
    };
    io::Error::new(
        io::Error::from(error).kind(),
        format!("cannot {action} {group} on 127.0.0.1: {error} ({hint})"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_no_group_is_refused_with_the_reason() {
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 50_000);
        let error = MulticastWaiter::join(address).unwrap_err().to_string();
        assert!(error.contains("cannot join 127.0.0.1:50000"), "{error}");
    }

    #[test]
    fn a_missing_interface_names_the_way_out() {
        let group = SocketAddrV4::new(Ipv4Addr::new(239, 255, 0, 1), 50_000);
        let error = explain("join", group, Errno::NODEV).to_string();
        assert!(error.contains("ip link set lo up"), "{error}");
    }
}
