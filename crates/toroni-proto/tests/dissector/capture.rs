//! A file of packets, as tshark reads it.

/// IP packets without a link layer: `LINKTYPE_RAW` of <https://www.tcpdump.org/linktypes.html>.
const LINKTYPE_RAW: u32 = 101;
const IPV4_BYTES: usize = 20;
const UDP: u8 = 17;
const TCP: u8 = 6;

/// With which TTL all packets arrive.
pub(super) const ARRIVING_TTL: u8 = 14;

/// Packets in the format of pcap, version 2.4.
pub(super) struct Capture {
    bytes: Vec<u8>,
    /// The next byte of each direction of the connection, from client and server.
    sequences: [u32; 2],
}

impl Capture {
    pub(super) fn new() -> Self {
        let mut bytes = Vec::new();
        bytes.extend(0xa1b2_c3d4_u32.to_le_bytes());
        bytes.extend([2, 0, 4, 0]);
        bytes.extend([0; 8]);
        bytes.extend(0x4_0000_u32.to_le_bytes());
        bytes.extend(LINKTYPE_RAW.to_le_bytes());
        Self { bytes, sequences: [1, 1] }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds a datagram to this UDP port.
    pub(super) fn datagram(&mut self, port: u16, contents: &[u8]) {
        let length = u16::try_from(8 + contents.len()).unwrap();
        let mut udp = Vec::new();
        udp.extend(40_000_u16.to_be_bytes());
        udp.extend(port.to_be_bytes());
        udp.extend(length.to_be_bytes());
        udp.extend([0, 0]); // no checksum
        udp.extend(contents);
        self.packet(UDP, &udp);
    }

    /// Adds a segment of the connection between a client and the server's port.
    pub(super) fn segment(&mut self, port: u16, to_server: bool, contents: &[u8]) {
        let ports = if to_server { [40_000, port] } else { [port, 40_000] };
        let from = usize::from(!to_server);
        let mut tcp = Vec::new();
        for port in ports {
            tcp.extend(port.to_be_bytes());
        }
        tcp.extend(self.sequences[from].to_be_bytes());
        tcp.extend(self.sequences[1 - from].to_be_bytes());
        tcp.extend([5 << 4, 0x18]); // 5 words of header; PSH, ACK
        tcp.extend(u16::MAX.to_be_bytes()); // window
        tcp.extend([0; 4]);
        tcp.extend(contents);
        self.sequences[from] += u32::try_from(contents.len()).unwrap();
        self.packet(TCP, &tcp);
    }

    fn packet(&mut self, protocol: u8, contents: &[u8]) {
        let length = IPV4_BYTES + contents.len();
        let mut ip = vec![0x45, 0];
        ip.extend(u16::try_from(length).unwrap().to_be_bytes());
        ip.extend([0, 0, 0, 0, ARRIVING_TTL, protocol, 0, 0]);
        // Both ends of a connection have one address, so that its direction follows from the ports.
        ip.extend([10, 0, 0, 1, 10, 0, 0, 1]);
        self.bytes.extend([0; 8]); // the time
        for _ in 0..2 {
            self.bytes.extend(u32::try_from(length).unwrap().to_le_bytes());
        }
        self.bytes.extend(ip);
        self.bytes.extend(contents);
    }
}
