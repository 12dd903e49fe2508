//! The socket options that rustix leaves out. Their values are numbers.

use rustix::fd::{AsFd, AsRawFd};
use rustix::net::{AddressFamily, sockopt};
use std::io;

/// An option: the layer of the protocol, and its number there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name(pub(super) libc::c_int, pub(super) libc::c_int);

pub(super) const RECEIVE_TIME: Name = Name(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS);
pub(super) const RECEIVE_DROPS: Name = Name(libc::SOL_SOCKET, libc::SO_RXQ_OVFL);
pub(super) const BUSY_POLL: Name = Name(libc::SOL_SOCKET, libc::SO_BUSY_POLL);
const PRIORITY: Name = Name(libc::SOL_SOCKET, libc::SO_PRIORITY);
const PEER: Name = Name(libc::SOL_SOCKET, libc::SO_PEERCRED);
/// `SO_MEMINFO` of asm-generic/socket.h, which libc does not know everywhere.
pub(super) const MEMORY: Name = Name(libc::SOL_SOCKET, 55);
/// `SO_BINDTOIFINDEX` of asm-generic/socket.h, since Linux 5.0.
pub(super) const BIND_TO_INTERFACE: Name = Name(libc::SOL_SOCKET, 62);
pub(super) const MULTICAST_ALL: Name = Name(libc::IPPROTO_IP, libc::IP_MULTICAST_ALL);
pub(super) const PACKET_INFO: Name = Name(libc::IPPROTO_IP, libc::IP_PKTINFO);
pub(super) const RECEIVE_TTL: Name = Name(libc::IPPROTO_IP, libc::IP_RECVTTL);
/// `IPV6_MULTICAST_ALL` of linux/in6.h, since Linux 4.20.
pub(super) const MULTICAST_ALL_IPV6: Name = Name(libc::IPPROTO_IPV6, 29);
pub(super) const PACKET_INFO_IPV6: Name = Name(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO);
pub(super) const RECEIVE_HOPS_IPV6: Name = Name(libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT);
pub(super) const FRAGMENTS: Name = Name(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER);
pub(super) const FRAGMENTS_IPV6: Name = Name(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER);
/// The value of [`FRAGMENTS`] with which neither this host nor a router cuts a datagram, and no ICMP message changes what
/// is sent.
pub(super) const NEVER: libc::c_int = libc::IP_PMTUDISC_PROBE;
/// The same for [`FRAGMENTS_IPV6`].
pub(super) const NEVER_IPV6: libc::c_int = libc::IPV6_PMTUDISC_PROBE;
pub(super) const SEGMENT: Name = Name(libc::SOL_UDP, libc::UDP_SEGMENT);
/// Above this many bytes that were never sent, the kernel takes no more.
pub(crate) const UNSENT_LOW_WATER: Name = Name(libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT);

/// Sets an option whose value is a number.
pub(crate) fn set(socket: &impl AsFd, name: Name, value: libc::c_int) -> io::Result<()> {
    let length = u32::try_from(size_of_val(&value)).unwrap_or(0);
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open while it is borrowed, and the kernel reads `length` bytes of `value`.
    let result =
        unsafe { libc::setsockopt(descriptor, name.0, name.1, (&raw const value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The kernel gives higher priorities only to processes with `CAP_NET_ADMIN`.
const MOST_PRIORITY: u8 = 6;

/// Sets the class of what a socket sends: the DSCP, 0 to 63, in each IP header (RFC 2474), and as the priority of the socket its upper
/// three bits, up to 6 (`SO_PRIORITY`). By the latter this host chooses a queue, and an interface of a VLAN the PCP of its frames.
pub(crate) fn classify(socket: &impl AsFd, dscp: u8) -> io::Result<()> {
    if dscp == 0 {
        return Ok(());
    }
    // The two bits below are those of ECN.
    let class = dscp << 2;
    if sockopt::socket_domain(socket)? == AddressFamily::INET6 {
        sockopt::set_ipv6_tclass(socket, class.into())?;
    }
    // A socket of IPv6 may have a peer of IPv4.
    sockopt::set_ip_tos(socket, class)?;
    // After the class, with which the kernel sets a priority of its own.
    set(socket, PRIORITY, (dscp >> 3).min(MOST_PRIORITY).into())
}

/// Makes the kernel drop all datagrams but those with one of these bytes at this place (`SO_ATTACH_FILTER`, man 7 socket, and
/// Documentation/networking/filter.rst of the kernel).
pub(super) fn keep_only(socket: &impl AsFd, place: u8, bytes: [u8; 2]) -> io::Result<()> {
    // A filter of a UDP socket reads from the header of UDP on.
    const UDP_HEADER_BYTES: u32 = 8;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let [load, jump, give] =
        [libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, libc::BPF_JMP | libc::BPF_JEQ, libc::BPF_RET]
            .map(|code| u16::try_from(code).unwrap_or(0));
    let mut program = [
        step(load, 0, 0, UDP_HEADER_BYTES + u32::from(place)),
        step(jump, 1, 0, u32::from(bytes[0])),
        step(jump, 0, 1, u32::from(bytes[1])),
        step(give, 0, 0, u32::MAX),
        step(give, 0, 0, 0),
    ];
    let filter = libc::sock_fprog { len: 5, filter: program.as_mut_ptr() };
    let length = u32::try_from(size_of_val(&filter)).unwrap_or(0);
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open while it is borrowed. The kernel reads `length` bytes of `filter` and copies the five
    // steps of `program`, which both live until the call returns.
    let result = unsafe {
        libc::setsockopt(
            descriptor,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            length,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the process at the other end of a connected Unix socket, if it is one of this PID namespace.
pub(crate) fn peer_process(socket: &impl AsFd) -> Option<u32> {
    // `struct ucred` of man 7 unix: process, user, group.
    let ([process, ..], known) = words::<3>(socket, PEER).ok()?;
    (known == 3 && process != 0).then_some(process)
}

/// Returns the words of an option's value, and how many the kernel knows. The others are 0.
pub(super) fn words<const N: usize>(
    socket: &impl AsFd,
    name: Name,
) -> io::Result<([u32; N], usize)> {
    let mut values = [0_u32; N];
    let mut length = u32::try_from(size_of_val(&values)).unwrap_or(0);
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open while it is borrowed. The kernel writes at most `length` bytes, which are those of
    // `values`, and any bytes are valid numbers.
    let result = unsafe {
        libc::getsockopt(descriptor, name.0, name.1, values.as_mut_ptr().cast(), &raw mut length)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let known = usize::try_from(length).unwrap_or(0) / size_of::<u32>();
    Ok((values, known.min(N)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn a_class_is_in_each_header_and_its_upper_bits_are_the_priority() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(socket) = UdpSocket::bind(address) else { continue };
            for (dscp, wanted) in [(0, (0, 0)), (46, (184, 5)), (63, (252, 6))] {
                classify(&socket, dscp).unwrap();
                let ([priority], _) = words::<1>(&socket, PRIORITY).unwrap();
                assert_eq!((sockopt::ip_tos(&socket).unwrap(), priority), wanted, "{address}");
                if address.starts_with('[') {
                    let class = sockopt::ipv6_tclass(&socket).unwrap();
                    assert_eq!(class, u32::from(dscp) << 2, "{address}");
                }
            }
        }
    }
}
