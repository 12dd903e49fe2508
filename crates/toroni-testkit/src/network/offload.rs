//! Switches off what a network interface computes for the kernel.
//!
//! A veth pretends to compute checksums and to cut large packets, because its other end is in the same kernel. Frames
//! that a program reads from the other end would have unfinished checksums, and several datagrams would be one frame.

use std::io;
use std::os::fd::AsRawFd;

/// Commands of the ioctl `SIOCETHTOOL` (linux/ethtool.h) that switch something off: checksums of received and sent
/// frames, segmentation by the interface, by the kernel, and the joining of received frames.
const OFF: [(u32, &str); 5] = [
    (0x0015, "rx checksums"),
    (0x0017, "tx checksums"),
    (0x001f, "TCP segmentation"),
    (0x0024, "generic segmentation"),
    (0x002c, "generic receive offload"),
];
const SIOCETHTOOL: libc::c_ulong = 0x8946;

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Switches off all offloads of an interface of the calling thread's namespace.
pub(super) fn switch_off(interface: &str) -> io::Result<()> {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
    for (command, what) in OFF {
        let mut value = Value { command, data: 0 };
        // SAFETY: all zero is a valid `ifreq`.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let name = interface.as_bytes();
        assert!(name.len() < request.ifr_name.len(), "{interface} is no name of an interface");
        for (to, from) in request.ifr_name.iter_mut().zip(name) {
            *to = from.cast_signed();
        }
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: the name ends in 0, because the last byte was not written; the data is an `ethtool_value`, as these
        // commands want, and outlives the call.
        if unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) } != 0 {
            let error = io::Error::last_os_error();
            return Err(io::Error::new(error.kind(), format!("{interface}: {what}: {error}")));
        }
    }
    Ok(())
}
