//! The receive buffer of a socket: what a datagram costs in it, and how large the kernel lets it be.

use super::drops;
use crate::host::buffers;
use crate::host::sysctl::{self, Change};
use rustix::fd::AsFd;
use rustix::net::sockopt;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};

/// Enough to divide by: the kernel charges each datagram the same.
const SENT: u32 = 16;
/// The largest payload of a datagram on IPv4.
const LARGEST: u32 = 65_507;

/// What the kernel charges a socket's buffer for one datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The memory in bytes.
    pub bytes: u32,
    /// Whether it was measured, or estimated because the loopback interface does not work.
    pub is_measured: bool,
}

impl Charge {
    /// Measures the charge for a datagram with a payload of this size: fills the buffer of a socket on the loopback
    /// interface with some, and asks the kernel what they cost.
    ///
    /// A network card may cost more: its driver may use a whole page for each packet.
    #[must_use]
    pub fn of(size: u32) -> Self {
        match measure(size.min(LARGEST)) {
            Ok(bytes) => Self { bytes, is_measured: true },
            Err(_) => Self { bytes: buffers::usual_charge(size), is_measured: false },
        }
    }
}

fn measure(size: u32) -> io::Result<u32> {
    let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    // No stranger can then add to the buffer.
    receiver.connect(sender.local_addr()?)?;
    sender.connect(receiver.local_addr()?)?;
    let bytes = vec![0; usize::try_from(size).unwrap_or(0)];
    for _ in 0..SENT {
        sender.send(&bytes)?;
    }
    // The loopback interface delivers before `send` returns, or shortly after. The buffer may be too small for all of
    // them, so count those that are there.
    let charged = drops::memory(&receiver)?.allocated;
    receiver.set_nonblocking(true)?;
    let mut held = 0;
    let mut buffer = [0];
    while receiver.recv(&mut buffer).is_ok() {
        held += 1;
    }
    match charged.checked_div(held) {
        Some(each) if each >= size => Ok(each),
        _ => Err(io::Error::other("no datagram came back on the loopback interface")),
    }
}

/// What the kernel gave for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// What was asked for, as the value of `SO_RCVBUF`.
    pub requested: u64,
    /// What the kernel gave, in the same unit. The memory is twice as much.
    pub granted: u64,
    /// The limit for programs without privileges, `net.core.rmem_max`, if this namespace shows it.
    pub limit: Option<u64>,
}

impl Grant {
    /// Whether the kernel gave all that was asked for.
    #[must_use]
    pub const fn is_enough(&self) -> bool {
        self.granted >= self.requested
    }

    /// Returns the change of the kernel's settings that would give all of it, or `None` if nothing is missing.
    #[must_use]
    pub fn change(&self) -> Option<Change> {
        buffers::raise_limit(self.requested, self.granted)
    }
}

/// Asks for a receive buffer, and returns what the kernel gave. A program with `CAP_NET_ADMIN` gets more than the limit.
///
/// # Errors
/// If the descriptor is no socket.
pub fn request(socket: &impl AsFd, bytes: u64) -> io::Result<Grant> {
    let wanted = usize::try_from(bytes.min(buffers::MOST_REQUESTED)).unwrap_or(usize::MAX);
    match sockopt::set_socket_recv_buffer_size_force(socket, wanted) {
        Err(rustix::io::Errno::PERM) => sockopt::set_socket_recv_buffer_size(socket, wanted)?,
        result => result?,
    }
    let granted = sockopt::socket_recv_buffer_size(socket)? / 2;
    let limit = sysctl::read(buffers::LIMIT_SETTING);
    Ok(Grant { requested: bytes, granted: granted as u64, limit })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::buffers::Load;
    use std::time::Duration;

    /// Sends datagrams of this size until the kernel drops one, and returns how many the buffer held.
    fn fill(receiver: &UdpSocket, sender: &UdpSocket, size: usize) -> u32 {
        let before = drops::memory(receiver).unwrap().drops;
        let bytes = vec![0; size];
        for sent in 0..100_000 {
            sender.send(&bytes).unwrap();
            if drops::memory(receiver).unwrap().drops != before {
                return sent;
            }
        }
        panic!("the buffer never overflows");
    }

    fn pair() -> (UdpSocket, UdpSocket) {
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        receiver.set_nonblocking(true).unwrap();
        (receiver, sender)
    }

    #[test]
    fn a_buffer_holds_as_much_as_the_equations_say() {
        for size in [128, 1_408, 8_000] {
            let charge = Charge::of(size);
            assert!(charge.is_measured, "{charge:?}");
            // A rate of one datagram in each millisecond: times are counts.
            let load = Load::new(u64::from(size) * 8 * 1_000, size, charge.bytes);
            let (receiver, sender) = pair();
            let grant = request(&receiver, 200_000).unwrap();
            assert!(grant.is_enough(), "{grant:?}");
            let datagrams = |time: Duration| u32::try_from(time.as_millis()).unwrap();
            let least = datagrams(load.survives(grant.granted));
            let most = datagrams(load.latency(grant.granted));
            let size = usize::try_from(size).unwrap();
            let held = fill(&receiver, &sender, size);
            assert!((least..=most).contains(&held), "{size}: {least} ≤ {held} ≤ {most}");
            // Having read a part, it may hold less than a fresh one, but never less than what is certain.
            for part in [1, 7, 2, 5, 3] {
                let mut buffer = [0];
                let mut read = 0;
                while read < held / part && receiver.recv(&mut buffer).is_ok() {
                    read += 1;
                }
                fill(&receiver, &sender, size);
                let mut held = 0;
                while receiver.recv(&mut buffer).is_ok() {
                    held += 1;
                }
                assert!(
                    (least..=most).contains(&held),
                    "{size}, {part}: {least} ≤ {held} ≤ {most}"
                );
                fill(&receiver, &sender, size);
            }
        }
    }

    #[test]
    fn a_small_datagram_is_charged_several_times_its_size() {
        assert!(Charge::of(1).bytes >= 256);
        let (small, large) = (Charge::of(128).bytes, Charge::of(1_408).bytes);
        assert!(small < large && large >= 1_408, "{small} {large}");
        // The estimate is not far off.
        for size in [128, 1_408, 8_000] {
            let (charge, estimate) = (Charge::of(size).bytes, buffers::usual_charge(size));
            assert!(
                estimate <= charge * 3 / 2 && charge <= estimate * 3 / 2,
                "{charge} {estimate}"
            );
        }
    }

    #[test]
    fn what_is_missing_is_told_with_the_command() {
        let grant = Grant { requested: 5_000_000, granted: 212_992, limit: Some(212_992) };
        assert!(!grant.is_enough());
        assert_eq!(grant.change().unwrap().command(), "sysctl -w net.core.rmem_max=5000000");
        assert_eq!(Grant { granted: 5_000_000, ..grant }.change(), None);
    }

    #[test]
    fn the_kernel_never_gives_more_than_it_can() {
        let (receiver, _) = pair();
        let grant = request(&receiver, u64::MAX).unwrap();
        assert!(grant.granted <= buffers::MOST_REQUESTED && !grant.is_enough(), "{grant:?}");
    }
}
