//! What the switch reads of a frame. Each function takes any bytes and returns `None` where they are something else.

use std::net::Ipv4Addr;

/// The largest header of Ethernet that the switch meets: two addresses, a tag and the type.
pub(super) const HEADER: usize = 18;

/// The header of Ethernet without a tag.
pub(super) const ETHERNET: usize = 14;

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const IGMP: u8 = 2;
const UDP: u8 = 17;

/// A hardware address.
pub(super) type Mac = [u8; 6];

pub(super) fn destination(frame: &[u8]) -> Option<Mac> {
    frame.first_chunk().copied()
}

pub(super) fn source(frame: &[u8]) -> Option<Mac> {
    frame.get(6..12)?.first_chunk().copied()
}

/// Whether an address is that of a group; the broadcast is one too.
pub(super) fn is_group(mac: Mac) -> bool {
    mac[0] & 1 == 1
}

/// A UDP datagram in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Udp {
    pub(super) destination_port: u16,
    /// Where its header begins.
    pub(super) header: usize,
    /// Where its payload ends.
    pub(super) end: usize,
    pub(super) is_v4: bool,
}

/// Finds a whole datagram of UDP. Fragments of packets are none.
pub(super) fn udp(frame: &[u8]) -> Option<Udp> {
    let (header, is_v4) = match *frame.get(12..14)?.first_chunk()? {
        IPV4 => {
            let packet = ipv4(frame)?;
            (packet.protocol == UDP).then_some((packet.payload, true))?
        }
        IPV6 => {
            let header = frame.get(14..54)?;
            (header[6] == UDP).then_some((54, false))?
        }
        _ => return None,
    };
    let bytes = frame.get(header..header + 8)?;
    let length = usize::from(u16::from_be_bytes([bytes[4], bytes[5]]));
    let destination_port = u16::from_be_bytes([bytes[2], bytes[3]]);
    (length >= 8 && header + length <= frame.len()).then_some(Udp {
        destination_port,
        header,
        end: header + length,
        is_v4,
    })
}

/// The destination of a packet of IPv4.
pub(super) fn destination_v4(frame: &[u8]) -> Option<Ipv4Addr> {
    (frame.get(12..14)? == IPV4).then_some(())?;
    Some(Ipv4Addr::from(*frame.get(30..34)?.first_chunk::<4>()?))
}

/// The message of IGMP in a frame.
pub(super) fn igmp(frame: &[u8]) -> Option<&[u8]> {
    (frame.get(12..14)? == IPV4).then_some(())?;
    let packet = ipv4(frame)?;
    (packet.protocol == IGMP).then(|| frame.get(packet.payload..packet.end))?
}

struct Ipv4 {
    protocol: u8,
    payload: usize,
    end: usize,
}

fn ipv4(frame: &[u8]) -> Option<Ipv4> {
    let header = frame.get(14..34)?;
    let length = usize::from(header[0] & 0xf) * 4;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let is_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
    let end = 14 + total;
    let fits = header[0] >> 4 == 4 && length >= 20 && total >= length && end <= frame.len();
    (fits && !is_fragment).then_some(Ipv4 { protocol: header[9], payload: 14 + length, end })
}

/// Makes a general query of IGMPv3 (RFC 3376 §4.1), to which hosts answer within 0.1 s.
pub(super) fn general_query(source: Mac, address: Ipv4Addr) -> Vec<u8> {
    const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
    const ROUTER_ALERT: [u8; 4] = [0x94, 4, 0, 0];
    let mut igmp = vec![0x11, 1, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0];
    let sum = checksum(&igmp);
    igmp[2..4].copy_from_slice(&sum);
    // Version 4, a header of 24 bytes, 36 in all, not to be fragmented, for one hop.
    let mut ip = vec![0x46, 0xc0, 0, 36, 0, 0, 0x40, 0, 1, IGMP, 0, 0];
    ip.extend(address.octets());
    ip.extend(ALL_HOSTS.octets());
    ip.extend(ROUTER_ALERT);
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum);
    [&[0x01, 0, 0x5e, 0, 0, 1][..], &source, &IPV4, &ip, &igmp].concat()
}

/// The Internet checksum (RFC 1071) of an even number of bytes.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let [_, _, high, low] = sum.to_be_bytes();
    [!high, !low]
}

#[cfg(test)]
pub(super) mod samples {
    use super::*;

    /// A datagram of UDP over IPv4 from one port of the switch, without checksums.
    pub(in super::super) fn datagram(
        from: u8,
        to: Mac,
        address: Ipv4Addr,
        payload: &[u8],
    ) -> Vec<u8> {
        let length = |more: usize| u16::try_from(payload.len() + more).unwrap().to_be_bytes();
        let mut frame = [&to[..], &[2, 0, 0, 0, 0, from], &IPV4].concat();
        frame.extend([0x45, 0]);
        frame.extend(length(28));
        frame.extend([0, 0, 0, 0, 16, UDP, 0, 0, 10, 77, 0, from]);
        frame.extend(address.octets());
        frame.extend([0x10, 0x00, 0x11, 0x7f]);
        frame.extend(length(8));
        frame.extend([0xab, 0xcd]);
        frame.extend(payload);
        frame
    }

    /// A message of IGMP.
    pub(in super::super) fn igmp(from: u8, message: &[u8]) -> Vec<u8> {
        let mut frame = datagram(from, [1, 0, 0x5e, 0, 0, 22], Ipv4Addr::new(224, 0, 0, 22), &[]);
        frame.truncate(34);
        frame[23] = IGMP;
        frame[17] = u8::try_from(20 + message.len()).unwrap();
        frame.extend(message);
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 192, 84, 79);

    #[test]
    fn a_datagram_is_found_and_anything_shorter_is_not() {
        let frame = samples::datagram(3, [1, 0, 0x5e, 0x40, 0x54, 0x4f], GROUP, b"hello");
        let found = udp(&frame).unwrap();
        assert_eq!(
            (found.destination_port, &frame[found.header + 8..found.end]),
            (4479, &b"hello"[..])
        );
        assert_eq!(destination_v4(&frame), Some(GROUP));
        assert_eq!(source(&frame), Some([2, 0, 0, 0, 0, 3]));
        assert!(is_group(destination(&frame).unwrap()));
        for length in 0..frame.len() {
            assert_eq!(udp(&frame[..length]), None, "{length} bytes");
        }
        let mut fragment = frame;
        fragment[20] |= 0x20;
        assert_eq!(udp(&fragment), None);
    }

    #[test]
    fn a_query_is_a_valid_packet() {
        let frame = general_query([2, 0, 0, 0, 0, 254], Ipv4Addr::new(10, 77, 0, 254));
        assert_eq!(igmp(&frame).unwrap().len(), 12);
        assert_eq!(checksum(&frame[14..38]), [0, 0]);
        assert_eq!(checksum(&frame[38..]), [0, 0]);
    }
}
