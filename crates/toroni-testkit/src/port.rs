//! Ports for servers of tests.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// The kernel gives these to connections only if somebody asks for them: `ip_local_port_range` begins above.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// Returns an address of the loopback interface at which nothing listens, for a server that is started later. No connection
/// takes its port meanwhile, and another process that asks for one begins elsewhere.
///
/// # Panics
///
/// If all ports are taken.
#[must_use]
pub fn free() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let own = std::process::id().wrapping_mul(37) % u32::from(COUNT);
    for _ in 0..COUNT {
        let at = own + u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let at = u16::try_from(at % u32::from(COUNT)).unwrap_or(0);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, FIRST + at));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no port from {FIRST} on is free");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ_and_are_free() {
        let (one, other) = (free(), free());
        assert_ne!(one, other);
        let _ = (TcpListener::bind(one).unwrap(), TcpListener::bind(other).unwrap());
    }
}
