//! Ports for servers of tests.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};

/// The kernel gives these to connections only if somebody asks for them: `ip_local_port_range` begins above.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// Returns an address of the loopback interface at which nothing listens, for a server that is started later. No connection
/// takes its port meanwhile, and no other process of this host gets it until this one ends.
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
        if TcpListener::bind(address).is_ok() && is_claimed(address.port()) {
            return address;
        }
    }
    panic!("no port from {FIRST} on is free");
}

/// Claims the port for this process: returns whether no other one has it. Others ask for the same name, which the kernel releases
/// with the process.
fn is_claimed(port: u16) -> bool {
    static CLAIMS: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    let name =
        std::os::unix::net::SocketAddr::from_abstract_name(format!("toroni-test-port-{port}"));
    let claim = name.and_then(|name| UnixListener::bind_addr(&name));
    claim.map(|claim| CLAIMS.lock().unwrap_or_else(PoisonError::into_inner).push(claim)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ_and_are_free() {
        let (one, other) = (free(), free());
        assert_ne!(one, other);
        let _ = (TcpListener::bind(one).unwrap(), TcpListener::bind(other).unwrap());
        assert!(!is_claimed(one.port()), "somebody else gets it");
    }
}
