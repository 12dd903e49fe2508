//! What travels beside a datagram between kernel and program: addresses and control messages, as bytes.
//!
//! ```text
//!   length (8, of all) · layer (4) · type (4) · value · padding to 8      … the next one
//! ```
//!
//! man 3 cmsg; the values: man 7 ip, man 7 ipv6, man 7 socket. The bytes come from the kernel, and are checked all the
//! same.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Room for the control messages of one datagram. All that [`super::Datagram`] asks for take 120 bytes.
pub(super) const CONTROL_BYTES: usize = 192;
/// Room for an address.
pub(super) const NAME_BYTES: usize = 28;

const HEADER: usize = 16;

/// Control messages of one datagram, at an address that the kernel's structure needs.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Control(pub(super) [u8; CONTROL_BYTES]);

/// What the kernel says about a datagram that it received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) to: Option<IpAddr>,
    pub(super) interface: Option<u32>,
    pub(super) ttl: Option<u8>,
    pub(super) received_ns: Option<u64>,
    /// The kernel says nothing while the counter is 0.
    pub(super) dropped: u32,
}

impl Facts {
    /// Reads control messages. Ignores what it does not know.
    pub(super) fn parse(bytes: &[u8]) -> Self {
        let mut facts = Self::default();
        let mut rest = bytes;
        while let Some((kind, value, behind)) = next(rest) {
            facts.take(kind, value);
            rest = behind;
        }
        facts
    }

    fn take(&mut self, kind: (i32, i32), value: &[u8]) {
        match kind {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                let seconds =
                    word(value, 0).and_then(|bytes| u64::try_from(i64::from_ne_bytes(bytes)).ok());
                let rest =
                    word(value, 8).and_then(|bytes| u64::try_from(i64::from_ne_bytes(bytes)).ok());
                if let (Some(seconds), Some(rest)) = (seconds, rest) {
                    self.received_ns =
                        seconds.checked_mul(1_000_000_000).and_then(|ns| ns.checked_add(rest));
                }
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                self.dropped = word(value, 0).map_or(0, u32::from_ne_bytes);
            }
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                self.ttl =
                    word(value, 0).and_then(|bytes| u8::try_from(i32::from_ne_bytes(bytes)).ok());
            }
            // struct in_pktinfo: index, local address, destination in the header.
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                self.interface = word(value, 0).map(u32::from_ne_bytes);
                self.to = word::<4>(value, 8).map(|bytes| Ipv4Addr::from(bytes).into());
            }
            // struct in6_pktinfo: destination, index.
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                self.to = word::<16>(value, 0).map(|bytes| Ipv6Addr::from(bytes).into());
                self.interface = word(value, 16).map(u32::from_ne_bytes);
            }
            _ => {}
        }
    }
}

type Message<'a> = ((i32, i32), &'a [u8], &'a [u8]);

/// Splits off the first control message: its kind, its value, and what follows.
fn next(bytes: &[u8]) -> Option<Message<'_>> {
    let length = usize::try_from(u64::from_ne_bytes(word(bytes, 0)?)).ok()?;
    let kind = (i32::from_ne_bytes(word(bytes, 8)?), i32::from_ne_bytes(word(bytes, 12)?));
    // A length below that of the header would never end.
    let value = bytes.get(HEADER..length)?;
    let behind = bytes.get(length.next_multiple_of(8)..).unwrap_or_default();
    Some((kind, value, behind))
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// Writes the control message that makes the kernel cut one buffer into datagrams of this size. Returns its length.
pub(super) fn write_segment(control: &mut Control, size: u16) -> usize {
    const LENGTH: u64 = HEADER as u64 + 2;
    control.0[..8].copy_from_slice(&LENGTH.to_ne_bytes());
    control.0[8..12].copy_from_slice(&libc::SOL_UDP.to_ne_bytes());
    control.0[12..16].copy_from_slice(&libc::UDP_SEGMENT.to_ne_bytes());
    control.0[16..18].copy_from_slice(&size.to_ne_bytes());
    control.0[18..24].fill(0);
    24
}

/// Writes an address as the kernel's `sockaddr_in` or `sockaddr_in6`. Returns its length.
pub(super) fn write_name(name: &mut [u8; NAME_BYTES], address: SocketAddr) -> usize {
    name.fill(0);
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    name[..2].copy_from_slice(&u16::try_from(family).unwrap_or(0).to_ne_bytes());
    name[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(address) => {
            name[4..8].copy_from_slice(&address.ip().octets());
            16
        }
        SocketAddr::V6(address) => {
            name[4..8].copy_from_slice(&address.flowinfo().to_ne_bytes());
            name[8..24].copy_from_slice(&address.ip().octets());
            name[24..28].copy_from_slice(&address.scope_id().to_ne_bytes());
            28
        }
    }
}

/// Reads a `sockaddr_in` or `sockaddr_in6`.
pub(super) fn parse_name(name: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes(word(name, 0)?));
    let port = u16::from_be_bytes(word(name, 2)?);
    match family {
        libc::AF_INET => Some(SocketAddr::new(Ipv4Addr::from(word::<4>(name, 4)?).into(), port)),
        libc::AF_INET6 => {
            let ip = Ipv6Addr::from(word::<16>(name, 8)?);
            let flow = u32::from_ne_bytes(word(name, 4)?);
            let scope = u32::from_ne_bytes(word(name, 24)?);
            Some(SocketAddrV6::new(ip, port, flow, scope).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(level: i32, kind: i32, value: &[u8]) -> Vec<u8> {
        let mut bytes = (HEADER as u64 + value.len() as u64).to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(8), 0xEE);
        bytes
    }

    #[test]
    fn facts_are_found_among_others() {
        let time = [7_i64.to_ne_bytes(), 9_i64.to_ne_bytes()].concat();
        let info = [3_u32.to_ne_bytes(), [10, 0, 0, 1], [239, 1, 2, 3]].concat();
        let bytes = [
            message(libc::SOL_SOCKET, 12_345, b"unknown"),
            message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &time),
            message(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &5_u32.to_ne_bytes()),
            message(libc::IPPROTO_IP, libc::IP_PKTINFO, &info),
            message(libc::IPPROTO_IP, libc::IP_TTL, &16_i32.to_ne_bytes()),
        ]
        .concat();
        let wanted = Facts {
            to: Some(Ipv4Addr::new(239, 1, 2, 3).into()),
            interface: Some(3),
            ttl: Some(16),
            received_ns: Some(7_000_000_009),
            dropped: 5,
        };
        assert_eq!(Facts::parse(&bytes), wanted);
        // Each shorter one says less, and nothing else.
        for length in 0..bytes.len() {
            let facts = Facts::parse(&bytes[..length]);
            assert!(facts.interface.is_none() || facts.interface == wanted.interface);
            assert!(facts.received_ns.is_none() || facts.received_ns == wanted.received_ns);
        }
    }

    #[test]
    fn impossible_values_are_no_facts() {
        let negative = [(-1_i64).to_ne_bytes(), 0_i64.to_ne_bytes()].concat();
        let huge = [i64::MAX.to_ne_bytes(), 0_i64.to_ne_bytes()].concat();
        for bytes in [
            message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &negative),
            message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &huge),
            message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &[1]),
            message(libc::IPPROTO_IP, libc::IP_TTL, &256_i32.to_ne_bytes()),
            message(libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, &(-1_i32).to_ne_bytes()),
            message(libc::IPPROTO_IP, libc::IP_PKTINFO, &[1, 2]),
            // A length that is too small, and one that is too large.
            [0_u64.to_ne_bytes(), [0; 8]].concat(),
            [u64::MAX.to_ne_bytes(), [0; 8]].concat(),
        ] {
            assert_eq!(Facts::parse(&bytes), Facts::default(), "{bytes:?}");
        }
    }

    #[test]
    fn addresses_come_back() {
        let scoped = SocketAddrV6::new("ff12::7".parse().unwrap(), 9, 3, 4);
        for address in ["10.1.2.3:4479".parse().unwrap(), SocketAddr::V6(scoped)] {
            let mut name = [0xFF; NAME_BYTES];
            let length = write_name(&mut name, address);
            assert_eq!(parse_name(&name[..length]), Some(address));
            assert_eq!(parse_name(&name[..length - 5]).filter(|_| address.is_ipv6()), None);
        }
        assert_eq!(parse_name(&[1, 0, 47]), None);
    }

    proptest! {
        #[test]
        fn no_bytes_confuse_the_parser(bytes in proptest::collection::vec(any::<u8>(), 0..CONTROL_BYTES)) {
            let _ = (Facts::parse(&bytes), parse_name(&bytes));
        }
    }
}
