//! A peer that floods a network with datagrams.

use super::Host;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// UDP, IPv4 and Ethernet with its gap, in bytes.
const HEADERS: u64 = 66;
/// How long it sleeps after it sent what was due.
const PAUSE: Duration = Duration::from_micros(500);

/// How fast a flood is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// In bit/s on the wire, with headers.
    Bits(u64),
    /// In datagrams a second.
    Datagrams(u64),
}

/// A socket of a host that has joined a group, and sends to anybody.
#[derive(Debug)]
pub struct Flood {
    socket: UdpSocket,
}

impl Flood {
    /// Opens it on a host, and joins a group there.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn open(host: &Host, group: SocketAddr) -> io::Result<Self> {
        let address = host.address();
        let socket = host.enter(|| {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, group.port()))?;
            if let SocketAddr::V4(group) = group {
                socket.join_multicast_v4(group.ip(), &address)?;
            }
            io::Result::Ok(socket)
        })?;
        Ok(Self { socket })
    }

    /// Hears datagrams of the group, and who sent them, as long as `take` wants more, at most for `longest`.
    ///
    /// # Errors
    /// If the socket cannot be read.
    pub fn listen(
        &self,
        longest: Duration,
        mut take: impl FnMut(SocketAddr, &[u8]) -> bool,
    ) -> io::Result<()> {
        let (begin, mut buffer) = (Instant::now(), vec![0; 65_536]);
        self.socket.set_read_timeout(Some(Duration::from_millis(20)))?;
        while begin.elapsed() < longest {
            match self.socket.recv_from(&mut buffer) {
                Ok((length, from)) if !take(from, &buffer[..length]) => break,
                Ok(_) => {}
                Err(error)
                    if [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted]
                        .contains(&error.kind()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends what `make` makes, until `stop` is set. Returns how many datagrams that were. It makes each one, and says where it
    /// goes. What the kernel refuses is left out.
    pub fn run(
        &self,
        rate: Rate,
        stop: &AtomicBool,
        mut make: impl FnMut(&mut Vec<u8>) -> SocketAddr,
    ) -> u64 {
        let (begin, mut datagram) = (Instant::now(), Vec::new());
        let (mut sent, mut bits) = (0_u64, 0_u64);
        while !stop.load(Ordering::Relaxed) {
            let elapsed = begin.elapsed().as_nanos();
            let due = |each: u64| {
                u64::try_from(elapsed * u128::from(each) / 1_000_000_000).unwrap_or(u64::MAX)
            };
            let is_due = match rate {
                Rate::Bits(each) => bits < due(each),
                Rate::Datagrams(each) => sent < due(each),
            };
            if !is_due {
                std::thread::sleep(PAUSE);
                continue;
            }
            let to = make(&mut datagram);
            let _ = self.socket.send_to(&datagram, to);
            sent += 1;
            bits += 8 * (datagram.len() as u64 + HEADERS);
        }
        sent
    }
}
