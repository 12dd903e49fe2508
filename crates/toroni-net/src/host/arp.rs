//! How long the kernel remembers the Ethernet addresses of its neighbours (man 7 arp).
//!
//! Datagrams to a group need no such entry, but NAKs and STATUS go to one host. If the entry has aged, the kernel asks the
//! neighbour again, and the first datagram may wait for the answer.

use super::address::Mac;
use super::netlink::{self, attributes, number};
use super::sysctl;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::time::Duration;

/// How entries of one interface age.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ageing {
    /// How long an entry is used without asking the neighbour again: the kernel draws a time from this range.
    pub reachable: RangeInclusive<Duration>,
}

impl Ageing {
    /// Reads the setting of an interface for IPv4. `None` if this namespace has no such setting.
    #[must_use]
    pub fn of(interface: &str) -> Option<Self> {
        let base: u64 = sysctl::read(&Self::setting(interface))?;
        // The kernel draws from half to one and a half of it (neigh_rand_reach_time).
        let (least, most) = (base / 2, base.saturating_add(base / 2));
        Some(Self { reachable: Duration::from_millis(least)..=Duration::from_millis(most) })
    }

    /// Returns the name of the setting, in milliseconds.
    #[must_use]
    pub fn setting(interface: &str) -> String {
        format!("net.ipv4.neigh.{}.base_reachable_time_ms", interface.replace('.', "/"))
    }
}

/// What the kernel knows about a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It answered not long ago.
    Reachable,
    /// Its address is known, and will be checked when it is used next.
    Stale,
    /// The kernel has asked and waits for an answer. Datagrams wait with it.
    Incomplete,
    /// It did not answer.
    Failed,
    /// An administrator set it, or it needs no address.
    Permanent,
}

/// An entry of the kernel's table of neighbours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The index of the interface that leads to it.
    pub interface: u32,
    /// Its IP address.
    pub address: IpAddr,
    /// Its Ethernet address, if that is known.
    pub mac: Option<Mac>,
    /// What the kernel knows about it.
    pub state: State,
}

/// Returns all neighbours.
///
/// # Errors
/// If the kernel does not list them.
pub fn neighbours() -> io::Result<Vec<Neighbour>> {
    netlink::list(netlink::NEIGHBOURS, neighbour)
}

/// Reads `struct ndmsg` and its attributes (linux/neighbour.h).
fn neighbour(fixed: &[u8], found: &[u8]) -> Option<Neighbour> {
    let state = match u16::from_ne_bytes(number(fixed, 8)?) {
        0x01 => State::Incomplete,
        0x02 => State::Reachable,
        // NUD_STALE, NUD_DELAY and NUD_PROBE: usable, and to be checked.
        0x04 | 0x08 | 0x10 => State::Stale,
        0x20 => State::Failed,
        0x40 | 0x80 => State::Permanent,
        _ => return None,
    };
    let (mut address, mut mac) = (None, None);
    for (kind, value) in attributes(found) {
        match (kind, value.len()) {
            // NDA_DST.
            (1, 4) => address = number::<4>(value, 0).map(|ip| Ipv4Addr::from(ip).into()),
            (1, 16) => address = number::<16>(value, 0).map(|ip| Ipv6Addr::from(ip).into()),
            // NDA_LLADDR.
            (2, 6) => mac = number(value, 0).map(Mac),
            _ => {}
        }
    }
    let interface = u32::from_ne_bytes(number(fixed, 4)?);
    Some(Neighbour { interface, address: address?, mac, state })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_is_half_to_one_and_a_half_of_the_setting() {
        let base: u64 = sysctl::read("net.ipv4.neigh.lo.base_reachable_time_ms").unwrap();
        let ageing = Ageing::of("lo").unwrap();
        assert_eq!(ageing.reachable.start().as_millis(), u128::from(base / 2));
        assert_eq!(ageing.reachable.end().as_millis(), u128::from(base + base / 2));
        assert_eq!(Ageing::of("no-such-0"), None);
        assert!(Ageing::setting("eth0.100").contains("neigh.eth0/100."));
    }

    #[test]
    fn neighbours_are_listed() {
        for neighbour in neighbours().unwrap() {
            assert!(neighbour.interface > 0, "{neighbour:?}");
        }
        assert_eq!(neighbour(&[0; 12], &[]), None);
        assert_eq!(neighbour(&[2; 3], &[]), None);
    }
}
