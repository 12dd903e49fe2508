//! UDP multicast on the loopback interface: the kernel copies each datagram to each of the sockets.

use crate::Failure;
use crate::run_directory::RunDirectory;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, connect, recv, send,
    socket_with, sockopt,
};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::time::Duration;

pub(in crate::experiment) struct Sender(OwnedFd);

impl Sender {
    pub(in crate::experiment) fn open(directory: &RunDirectory) -> Result<Self, Failure> {
        let socket = udp_socket()?;
        sockopt::set_ip_multicast_if(&socket, &Ipv4Addr::LOCALHOST)
            .and_then(|()| sockopt::set_ip_multicast_loop(&socket, true))
            // It does not leave the machine.
            .and_then(|()| sockopt::set_ip_multicast_ttl(&socket, 0))
            .and_then(|()| connect(&socket, &group(directory)))
            .map_err(Failure::of("prepare to send to a multicast group"))?;
        Ok(Self(socket))
    }

    pub(in crate::experiment) fn send(&self, bytes: &[u8]) -> Result<(), Failure> {
        send(&self.0, bytes, SendFlags::empty()).map(drop).map_err(Failure::of("send a datagram"))
    }
}

pub(in crate::experiment) struct Receiver(OwnedFd);

impl Receiver {
    pub(in crate::experiment) fn open(directory: &RunDirectory) -> Result<Self, Failure> {
        let group = group(directory);
        let socket = udp_socket()?;
        // All bind the same address, and each gets its own copy.
        sockopt::set_socket_reuseaddr(&socket, true)
            .and_then(|()| {
                sockopt::set_ip_add_membership(&socket, group.ip(), &Ipv4Addr::LOCALHOST)
            })
            .and_then(|()| bind(&socket, &group))
            .map_err(Failure::of("join a multicast group"))?;
        Ok(Self(socket))
    }

    /// Makes [`Receiver::wait`] give up after this time.
    pub(in crate::experiment) fn set_patience(&self, longest: Duration) -> Result<(), Failure> {
        sockopt::set_socket_timeout(&self.0, sockopt::Timeout::Recv, Some(longest))
            .map_err(Failure::of("limit how long a socket waits"))
    }

    /// Receives the next datagram, if there is one. Returns its length.
    #[inline]
    pub(in crate::experiment) fn poll(&self, buffer: &mut [u8]) -> Result<Option<usize>, Failure> {
        match recv(&self.0, buffer, RecvFlags::DONTWAIT) {
            Ok((length, _)) => Ok(Some(length)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(Failure::of("receive a datagram")(error)),
        }
    }

    /// Sleeps until there is a datagram, and receives it. Returns its length, or `None` if none came in time.
    pub(in crate::experiment) fn wait(&self, buffer: &mut [u8]) -> Result<Option<usize>, Failure> {
        loop {
            match recv(&self.0, &mut *buffer, RecvFlags::empty()) {
                Ok((length, _)) => return Ok(Some(length)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => return Err(Failure::of("receive a datagram")(error)),
            }
        }
    }
}

/// Returns a multicast group that no other run uses at the same time: both address and port differ.
fn group(directory: &RunDirectory) -> SocketAddrV4 {
    // FNV-1a.
    let hash = directory
        .name
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let [_, _, third, fourth] = hash.to_be_bytes();
    SocketAddrV4::new(Ipv4Addr::new(239, 255, third, fourth), directory.port)
}

fn udp_socket() -> Result<OwnedFd, Failure> {
    socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .map_err(Failure::of("open a UDP socket"))
}
