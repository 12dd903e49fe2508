//! The switch's end of a cable: a packet socket (packet(7)) that takes and sends whole frames, many with one call.

use super::path::Frame;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;

/// How many frames one call takes or sends.
pub(super) const BATCH: usize = 64;

/// Room for frames that the switch has not read yet. While it waits for a processor, they must not be lost: that would
/// be a loss that no seed decided. 64 MiB hold about 27,000 frames of 1,400 bytes.
const RECEIVE_BUFFER: libc::c_int = 64 << 20;

/// What the frames that all ports have sent may take in the kernel before a host takes them. If more were on their way,
/// the kernel might drop some: its queue for them holds 1,000 (`net.core.netdev_max_backlog`), and each takes at least
/// 768 bytes. A port waits instead.
const SEND_BUFFERS: usize = 600 * 768;

/// How long a port waits for the kernel to take a frame.
const PATIENCE: libc::timeval = libc::timeval { tv_sec: 10, tv_usec: 0 };

#[derive(Debug)]
pub(super) struct Port(OwnedFd);

impl Port {
    /// Opens a socket on an interface of the calling thread's namespace, for one of `ports` ports.
    pub(super) fn open(interface: &str, ports: usize) -> io::Result<Self> {
        // Protocol 0: it receives nothing before it is bound to the interface.
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: it takes no pointer.
        let socket = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
        // SAFETY: a new descriptor that nothing else owns.
        let port = Self(unsafe { OwnedFd::from_raw_fd(socket) });
        port.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER)?;
        // The kernel doubles it.
        let share = libc::c_int::try_from(SEND_BUFFERS / ports / 2).expect("a small number");
        port.set(libc::SOL_SOCKET, libc::SO_SNDBUF, share)?;
        port.set(libc::SOL_SOCKET, libc::SO_SNDTIMEO, PATIENCE)?;
        // What the kernel and this socket send is none of the switch's input.
        port.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        let index = rustix::net::netdevice::name_to_index(&port.0, interface)?;
        // SAFETY: all zero is a valid address of a packet socket.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET.try_into().expect("a family");
        address.sll_protocol = u16::try_from(libc::ETH_P_ALL).expect("a protocol").to_be();
        address.sll_ifindex = index.try_into().expect("an index");
        let length = size_of_val(&address).try_into().expect("a length");
        // SAFETY: a valid address of this length.
        check(unsafe { libc::bind(socket, (&raw const address).cast(), length) })?;
        Ok(port)
    }

    /// Takes frames that have come, without waiting, and returns how many.
    pub(super) fn receive(&self, batch: &mut Batch) -> usize {
        let Batch { slot, bytes, lengths } = batch;
        // SAFETY: all zero is a valid `iovec` and a valid `mmsghdr`: without a buffer.
        let (mut parts, mut heads): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) =
            unsafe { (zeroed(), zeroed()) };
        for ((part, head), room) in parts.iter_mut().zip(&mut heads).zip(bytes.chunks_mut(*slot)) {
            *part = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
            head.msg_hdr.msg_iov = part;
            head.msg_hdr.msg_iovlen = 1;
        }
        let count = BATCH.try_into().expect("a batch");
        // SAFETY: each head has one part, which lies in `bytes`, disjoint from the others, until the call is over.
        let taken = unsafe {
            libc::recvmmsg(
                self.0.as_raw_fd(),
                heads.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT,
                null_mut(),
            )
        };
        // Nothing there, or the interface is down. Neither ends the switch.
        let taken = usize::try_from(taken).unwrap_or(0);
        for (length, head) in lengths.iter_mut().zip(&heads[..taken]) {
            *length = usize::try_from(head.msg_len).expect("a length").min(*slot);
        }
        taken
    }

    /// Sends all frames in their order, and returns how many the kernel refused.
    pub(super) fn send(&self, frames: &[Frame]) -> u64 {
        let mut refused = 0;
        for frames in frames.chunks(BATCH) {
            refused += self.send_batch(frames);
        }
        refused
    }

    fn send_batch(&self, frames: &[Frame]) -> u64 {
        // SAFETY: as in `receive`.
        let (mut parts, mut heads): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) =
            unsafe { (zeroed(), zeroed()) };
        for ((part, head), frame) in parts.iter_mut().zip(&mut heads).zip(frames) {
            // The kernel only reads it.
            *part =
                libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
            head.msg_hdr.msg_iov = part;
            head.msg_hdr.msg_iovlen = 1;
        }
        let (mut done, mut refused) = (0, 0);
        while done < frames.len() {
            let rest = &mut heads[done..frames.len()];
            let count = rest.len().try_into().expect("a batch");
            // SAFETY: each head has one part, which is a frame that is borrowed until the call is over.
            let sent = unsafe { libc::sendmmsg(self.0.as_raw_fd(), rest.as_mut_ptr(), count, 0) };
            match usize::try_from(sent) {
                Ok(sent) => done += sent,
                Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                // The interface is down, or the frame too long for it, or the kernel takes none: this frame is dropped.
                Err(_) => {
                    done += 1;
                    refused += 1;
                }
            }
        }
        refused
    }

    /// Returns how many frames the kernel dropped because this socket's buffer was full, since the last call.
    pub(super) fn drops(&self) -> u64 {
        // SAFETY: all zero is a valid value of this structure.
        let mut statistics: libc::tpacket_stats = unsafe { zeroed() };
        let mut length = size_of_val(&statistics).try_into().expect("a length");
        // SAFETY: the value and its length are valid for writes.
        let result = unsafe {
            let value = (&raw mut statistics).cast();
            let socket = self.0.as_raw_fd();
            libc::getsockopt(socket, libc::SOL_PACKET, libc::PACKET_STATISTICS, value, &mut length)
        };
        assert_eq!(result, 0, "the statistics of a packet socket");
        statistics.tp_drops.into()
    }

    /// Sets an option whose value is a `T`.
    fn set<T>(&self, level: libc::c_int, option: libc::c_int, value: T) -> io::Result<()> {
        let length = size_of_val(&value).try_into().expect("a length");
        // SAFETY: the value is valid for reads of this length. The kernel checks that it is what the option wants.
        let result = unsafe {
            let value = (&raw const value).cast();
            libc::setsockopt(self.0.as_raw_fd(), level, option, value, length)
        };
        check(result).map(|_| ())
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Room for the frames of one call.
#[derive(Debug)]
pub(super) struct Batch {
    slot: usize,
    bytes: Vec<u8>,
    lengths: [usize; BATCH],
}

impl Batch {
    /// Makes room for frames of this many bytes.
    pub(super) fn new(slot: usize) -> Self {
        Self { slot, bytes: vec![0; slot * BATCH], lengths: [0; BATCH] }
    }

    /// Returns the first frames.
    pub(super) fn frames(&self, count: usize) -> impl Iterator<Item = &[u8]> {
        let rooms = self.bytes.chunks(self.slot).zip(&self.lengths).take(count);
        rooms.map(|(room, length)| &room[..*length])
    }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
