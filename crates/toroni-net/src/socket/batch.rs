//! Many datagrams with one system call.
//!
//! [`Receiver`] reads into buffers of the caller, and says of each datagram who sent it, where and when it arrived, and
//! how many the kernel had dropped by then. [`Sender`] joins datagrams of equal size for one destination, so that the
//! kernel passes through its layers once for all of them (generic segmentation offload, man 7 udp, `UDP_SEGMENT`).
//!
//! ```text
//!   to        A      A      A    B      A      A          one call of sendmmsg
//!   bytes  1408   1408    200  900   1408   1408
//!          └── one message ──┘  │     └── one ──┘          the last of a message may be shorter
//! ```

use super::control::{self, CONTROL_BYTES, Control, Facts, NAME_BYTES};
use super::datagram::Datagram;
use rustix::fd::{AsFd, AsRawFd};
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The greatest number of datagrams of one system call.
pub const BATCH: usize = 64;
/// The greatest payload of a datagram on IPv4, and so of several that are sent as one.
const LARGEST: usize = 65_507;

/// A datagram that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The bytes in the buffer.
    pub length: usize,
    /// The bytes that were sent. If there are more than `length`, the buffer was too small and the rest is gone.
    pub sent_length: usize,
    /// The sender, or `0.0.0.0:0` if the kernel does not name it.
    pub from: SocketAddr,
    /// The address to which it was sent: the group, or one of this host.
    pub to: Option<IpAddr>,
    /// The index of the interface on which it arrived.
    pub interface: Option<u32>,
    /// The hops that it had left.
    pub ttl: Option<u8>,
    /// When the kernel received it: nanoseconds since 1970 by `CLOCK_REALTIME`.
    pub received_ns: Option<u64>,
    /// How many datagrams the kernel had dropped because the socket's buffer was full, modulo 2³²: see
    /// [`super::drops::Overflow`].
    pub dropped: u32,
}

impl Arrival {
    /// Whether the buffer was too small.
    #[must_use]
    pub const fn is_truncated(&self) -> bool {
        self.sent_length > self.length
    }
}

/// Receives many datagrams with one system call. It owns the memory for what travels beside them.
pub struct Receiver {
    names: Box<[[u8; NAME_BYTES]; BATCH]>,
    controls: Box<[Control; BATCH]>,
    arrivals: Vec<Arrival>,
}

impl Default for Receiver {
    fn default() -> Self {
        Self::new()
    }
}

impl Receiver {
    /// Allocates all memory that it will need.
    #[must_use]
    pub fn new() -> Self {
        Self {
            names: Box::new([[0; NAME_BYTES]; BATCH]),
            controls: Box::new([Control([0; CONTROL_BYTES]); BATCH]),
            arrivals: Vec::with_capacity(BATCH),
        }
    }

    /// Receives at most as many datagrams as there are buffers, and at most [`BATCH`]. Never waits: if there is none,
    /// returns an empty slice.
    ///
    /// The first datagram is in the first buffer, and so on. Other buffers keep their bytes.
    ///
    /// # Errors
    /// Those of recvmmsg(2), for example if the descriptor is no socket any more. `EINTR` and `EAGAIN` are no errors.
    pub fn receive<'b>(
        &mut self,
        socket: &impl AsFd,
        buffers: impl IntoIterator<Item = &'b mut [u8]>,
    ) -> io::Result<&[Arrival]> {
        self.arrivals.clear();
        let mut parts = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH];
        let mut sizes = [0; BATCH];
        let mut count = 0;
        let places = parts.iter_mut().zip(&mut headers).zip(&mut sizes);
        let beside = self.names.iter_mut().zip(self.controls.iter_mut());
        for (((part, header), size), ((name, control), buffer)) in places.zip(beside.zip(buffers)) {
            *size = buffer.len();
            let part = part
                .write(libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() });
            header.write(message(name, NAME_BYTES, part, 1, control, CONTROL_BYTES));
            count += 1;
        }
        if count == 0 {
            return Ok(&self.arrivals);
        }
        let descriptor = socket.as_fd().as_raw_fd();
        // With MSG_TRUNC, the kernel says how long a datagram was, even if it did not fit.
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        let received = retry(|| {
            // SAFETY: the first `count` headers are initialised. Each points to memory that nothing else refers to while
            // the call runs: a buffer, borrowed exclusively for 'b, and a name and control messages of `self`, each with
            // its length. The kernel writes plain bytes to them. `timeout` may be null.
            let result = unsafe {
                libc::recvmmsg(
                    descriptor,
                    headers.as_mut_ptr().cast(),
                    count,
                    flags,
                    std::ptr::null_mut(),
                )
            };
            usize::try_from(result).map_err(|_| io::Error::last_os_error())
        })?;
        let beside = self.names.iter().zip(self.controls.iter()).zip(sizes);
        for (header, ((name, control), size)) in headers.iter().zip(beside).take(received) {
            // SAFETY: `received` is at most `count`, and the first `received` headers are initialised.
            let header = unsafe { header.assume_init_ref() };
            let sent_length = usize::try_from(header.msg_len).unwrap_or(0);
            let name_bytes = usize::try_from(header.msg_hdr.msg_namelen).unwrap_or(0);
            let control_bytes = header.msg_hdr.msg_controllen.min(CONTROL_BYTES);
            let facts = Facts::parse(&control.0[..control_bytes]);
            self.arrivals.push(Arrival {
                length: sent_length.min(size),
                sent_length,
                from: control::parse_name(&name[..name_bytes.min(NAME_BYTES)])
                    .unwrap_or(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0)),
                to: facts.to,
                interface: facts.interface,
                ttl: facts.ttl,
                received_ns: facts.received_ns,
                dropped: facts.dropped,
            });
        }
        Ok(&self.arrivals)
    }
}

/// A datagram to send.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Its destination.
    pub to: SocketAddr,
    /// Its content.
    pub bytes: &'a [u8],
}

/// Sends many datagrams with one system call. It owns the memory for what travels beside them.
pub struct Sender {
    names: Box<[[u8; NAME_BYTES]; BATCH]>,
    controls: Box<[Control; BATCH]>,
    is_joining: bool,
    messages: u64,
}

impl Sender {
    /// Allocates all memory that it will need. It joins datagrams if the kernel knows how to cut them again.
    #[must_use]
    pub fn new(socket: &Datagram) -> Self {
        Self {
            names: Box::new([[0; NAME_BYTES]; BATCH]),
            controls: Box::new([Control([0; CONTROL_BYTES]); BATCH]),
            is_joining: socket.can_segment(),
            messages: 0,
        }
    }

    /// Whether it joins datagrams. It stops once the kernel or a device refuses.
    #[must_use]
    pub const fn is_joining(&self) -> bool {
        self.is_joining
    }

    /// Returns how many messages it gave to the kernel. Joined datagrams are one message.
    #[must_use]
    pub const fn messages(&self) -> u64 {
        self.messages
    }

    /// Gives datagrams to the kernel, in order, and returns how many it took. These are fewer than given if the kernel
    /// has no room now, or refuses the next one: then the next call returns that error.
    ///
    /// # Errors
    /// Those of sendmmsg(2) for the first datagram: for example `ENETUNREACH` or `ENETDOWN` if the interface is down, and
    /// `EMSGSIZE` if it is too long. `EINTR` and `EAGAIN` are no errors.
    pub fn send(&mut self, socket: &impl AsFd, datagrams: &[Outgoing<'_>]) -> io::Result<usize> {
        let mut sent = 0;
        while let Some(rest) = datagrams.get(sent..).filter(|rest| !rest.is_empty()) {
            match self.send_some(socket, rest) {
                Ok(0) => break,
                Ok(count) => sent += count,
                Err(error) if self.is_joining && is_about_segments(&error) => {
                    match self.send_alone(socket, &rest[..1]) {
                        Ok(0) => break,
                        Ok(count) => sent += count,
                        Err(error) if sent == 0 => return Err(error),
                        Err(_) => break,
                    }
                }
                Err(error) if sent == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(sent)
    }

    /// Sends a datagram that was refused together with others. If the kernel takes it alone, a device cannot check sums
    /// (EIO) or the kernel cannot cut what was joined, and from now on nothing is joined. Otherwise it is refused for itself:
    /// for example, it is too long.
    #[cold]
    fn send_alone(&mut self, socket: &impl AsFd, one: &[Outgoing<'_>]) -> io::Result<usize> {
        self.is_joining = false;
        let outcome = self.send_some(socket, one);
        self.is_joining = !matches!(outcome, Ok(1));
        outcome
    }

    /// Sends at most [`BATCH`] datagrams. Returns how many the kernel took.
    fn send_some(&mut self, socket: &impl AsFd, datagrams: &[Outgoing<'_>]) -> io::Result<usize> {
        let datagrams = datagrams.get(..BATCH).unwrap_or(datagrams);
        let mut parts = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH];
        for (part, datagram) in parts.iter_mut().zip(datagrams) {
            part.write(libc::iovec {
                // The kernel only reads it.
                iov_base: datagram.bytes.as_ptr().cast_mut().cast(),
                iov_len: datagram.bytes.len(),
            });
        }
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH];
        // How many datagrams each message has.
        let mut joined = [0; BATCH];
        let (mut count, mut next) = (0, 0);
        let beside = self.names.iter_mut().zip(self.controls.iter_mut());
        for ((header, joined), (name, control)) in headers.iter_mut().zip(&mut joined).zip(beside) {
            let Some(rest) = datagrams.get(next..).filter(|rest| !rest.is_empty()) else { break };
            *joined = if self.is_joining { joinable(rest) } else { 1 };
            let name_bytes = control::write_name(name, rest[0].to);
            let control_bytes = match u16::try_from(rest[0].bytes.len()) {
                Ok(size) if *joined > 1 => control::write_segment(control, size),
                _ => 0,
            };
            let part = parts[next..].as_mut_ptr().cast();
            header.write(message(name, name_bytes, part, *joined, control, control_bytes));
            next += *joined;
            count += 1;
        }
        let descriptor = socket.as_fd().as_raw_fd();
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let taken = retry(|| {
            // SAFETY: the first `count` headers are initialised. Each points to a name and control messages of `self`, and
            // to initialised `parts`, which point to the bytes of the datagrams; all with their lengths. They outlive the
            // call, which only reads them, except for `msg_len` in the headers.
            let result =
                unsafe { libc::sendmmsg(descriptor, headers.as_mut_ptr().cast(), count, flags) };
            usize::try_from(result).map_err(|_| io::Error::last_os_error())
        })?;
        self.messages += taken as u64;
        Ok(joined[..taken].iter().sum())
    }
}

/// Returns how many of the first datagrams can be sent as one message: those of the same destination and size, and one
/// more that is shorter.
fn joinable(datagrams: &[Outgoing<'_>]) -> usize {
    let Some(first) = datagrams.first().filter(|first| !first.bytes.is_empty()) else { return 1 };
    let mut total = first.bytes.len();
    let mut count = 1;
    for datagram in &datagrams[1..] {
        total += datagram.bytes.len();
        let fits = datagram.bytes.len() <= first.bytes.len() && !datagram.bytes.is_empty();
        if datagram.to != first.to || !fits || total > LARGEST {
            break;
        }
        count += 1;
        if datagram.bytes.len() < first.bytes.len() {
            break;
        }
    }
    count
}

fn is_about_segments(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE))
}

/// Calls again after a signal. The kernel has nothing or no room: that is 0.
fn retry(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            result => return result,
        }
    }
}

fn message(
    name: &mut [u8; NAME_BYTES],
    name_bytes: usize,
    parts: *mut libc::iovec,
    part_count: usize,
    control: &mut Control,
    control_bytes: usize,
) -> libc::mmsghdr {
    // SAFETY: a header of zeros is valid: null pointers with lengths of 0. Some C libraries have padding fields, so it
    // cannot be written as a literal.
    let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
    header.msg_hdr.msg_name = name.as_mut_ptr().cast();
    header.msg_hdr.msg_namelen = u32::try_from(name_bytes).unwrap_or(0);
    header.msg_hdr.msg_iov = parts;
    header.msg_hdr.msg_iovlen = part_count;
    if control_bytes > 0 {
        header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
        header.msg_hdr.msg_controllen = control_bytes;
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_datagrams_of_one_size_and_destination_are_joined() {
        let bytes = [0; 40_000];
        let to = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let joined = |lengths: &[(usize, u16)]| {
            let datagrams: Vec<Outgoing<'_>> = lengths
                .iter()
                .map(|&(length, port)| Outgoing { to: to(port), bytes: &bytes[..length] })
                .collect();
            joinable(&datagrams)
        };
        assert_eq!(joined(&[(100, 1)]), 1);
        assert_eq!(joined(&[(100, 1), (100, 1), (100, 1)]), 3);
        assert_eq!(joined(&[(100, 1), (100, 1), (50, 1), (50, 1)]), 3);
        assert_eq!(joined(&[(100, 1), (101, 1)]), 1);
        assert_eq!(joined(&[(100, 1), (100, 2)]), 1);
        assert_eq!(joined(&[(100, 1), (0, 1)]), 1);
        assert_eq!(joined(&[(0, 1), (0, 1)]), 1);
        assert_eq!(joined(&[(40_000, 1), (25_507, 1)]), 2);
        assert_eq!(joined(&[(40_000, 1), (25_508, 1)]), 1);
    }
}
