//! Whether datagrams that must stay on this host leave it.
//!
//! A TTL of 0 keeps a datagram to a group on its host, but Linux checks that only where it also delivers the datagram to
//! this host: if no socket of the host has joined the group on the interface, the datagram leaves (`ip_mc_output` and
//! `ip_output` of the kernel). No standard says more, and a driver may do otherwise, so it is tested: the interface counts
//! what it sends.

use super::batch::{Outgoing, Sender};
use super::datagram::{Datagram, Options, SocketError};
use crate::host::address::DEFAULT_GROUP;
use crate::host::interface::{self, Interface};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Far more than an interface sends by itself meanwhile.
const SENT: u64 = 200;
/// Other programs may send as much, but hardly each time.
const ATTEMPTS: u32 = 3;
/// How long the interface's counter may lag behind.
const SETTLED: Duration = Duration::from_millis(50);
/// How long an interface may take no datagram.
const GIVEN_UP: Duration = Duration::from_secs(2);
/// Discard (RFC 863): where a datagram leaks to, no program takes it.
const PORT: u16 = 9;

/// Sends some datagrams with this TTL to the default group, and returns whether the interface sent them. Meanwhile a socket
/// of this host is in the group, or is not, if no other process has joined it.
///
/// A driver that counts late may hide a leak, and so does an interface that sends nothing yet.
///
/// # Errors
/// If the interface has no IPv4 address, is down, or the kernel does not list its interfaces.
pub fn leaves_host(on: &Interface, ttl: u8, is_joined: bool) -> Result<bool, SocketError> {
    let to = SocketAddr::new(DEFAULT_GROUP.ip(), PORT);
    // With another port: it gets nothing.
    let member = SocketAddr::new(to.ip(), 0);
    let _member =
        is_joined.then(|| Datagram::group(member, on, &Options::default())).transpose()?;
    let socket = Datagram::leg(on.source(to.ip())?, on, &Options { ttl, ..Options::default() })?;
    for _ in 0..ATTEMPTS {
        let before = sent(on)?;
        send_all(&socket, to).map_err(|error| SocketError::new("send", to, on, error))?;
        // Drivers count when the card is done.
        let started = Instant::now();
        let has_left = loop {
            if sent(on)?.saturating_sub(before) >= SENT {
                break true;
            }
            if started.elapsed() > SETTLED {
                break false;
            }
            std::thread::sleep(SETTLED / 10);
        };
        if !has_left {
            return Ok(false);
        }
    }
    Ok(true)
}

fn send_all(socket: &Datagram, to: SocketAddr) -> io::Result<()> {
    let mut sender = Sender::new(socket);
    let datagram = [Outgoing { to, bytes: b"toroni: a test of TTL" }];
    let (mut taken, started) = (0, Instant::now());
    while taken < SENT {
        match sender.send(socket, &datagram)? {
            // The socket's buffer is full until the card is done with some.
            0 if started.elapsed() > GIVEN_UP => return Err(io::ErrorKind::WouldBlock.into()),
            0 => std::thread::sleep(SETTLED / 10),
            _ => taken += 1,
        }
    }
    Ok(())
}

fn sent(on: &Interface) -> Result<u64, SocketError> {
    Ok(interface::named(&on.name)?.counters.sent)
}
