//! The network interfaces of this host.

use super::address::Mac;
use super::netlink::{self, attributes, number};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

const UP: u32 = 1;
const LOOPBACK: u32 = 8;
const MULTICAST: u32 = 0x1000;

/// A network interface, as it was when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's number. An interface that is removed and made again has another one.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// The greatest IP packet that it sends, in bytes.
    pub mtu: u32,
    /// Its Ethernet address, if it has one.
    pub mac: Option<Mac>,
    /// Whether a cable, a radio or a peer is there. `None` if the interface is down: then the kernel does not know.
    pub carrier: Option<bool>,
    /// Its addresses, IPv4 first, each in the kernel's order. IPv6 addresses that are still being checked for
    /// duplicates are not among them.
    pub addresses: Vec<IpAddr>,
    /// What it has counted.
    pub counters: Counters,
    flags: u32,
}

/// What an interface has counted since it was made, or since its driver was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets sent.
    pub sent: u64,
    /// Packets received.
    pub received: u64,
    /// Multicast packets received, if the driver counts them.
    pub multicast: u64,
    /// Received packets that the kernel dropped before any socket saw them (`rx_dropped`).
    pub dropped: u64,
    /// Packets for which the card had no buffer (`rx_missed_errors`).
    pub missed: u64,
    /// Packets that overflowed the card's queue (`rx_fifo_errors`).
    pub overflowed: u64,
}

/// Why an interface cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// There is no interface of this name.
    #[error("there is no interface {name:?}: this host has {known}")]
    NotFound {
        /// The name.
        name: String,
        /// The names of all interfaces.
        known: String,
    },
    /// No name was given, and several interfaces, or none, can be used.
    #[error("{}", .candidates.as_ref().map_or_else(
        || "no interface of this host is up, has an address and can multicast: name one, such as lo".to_owned(),
        |names| format!("several interfaces can multicast: name one of {names}")
    ))]
    Ambiguous {
        /// The names of those that can be used.
        candidates: Option<String>,
    },
    /// The interface has no address of the group's family.
    #[error(
        "{interface} has no {family} address: give it one, for example `ip address add ADDRESS/PREFIX dev {interface}`"
    )]
    NoAddress {
        /// The name of the interface.
        interface: String,
        /// `IPv4` or `IPv6`.
        family: &'static str,
    },
    /// The kernel does not list its interfaces.
    #[error("cannot list the interfaces: {0}")]
    System(#[from] io::Error),
}

impl Interface {
    /// Whether it is up.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        self.flags & UP != 0
    }

    /// Whether it leads only to this host.
    #[must_use]
    pub const fn is_loopback(&self) -> bool {
        self.flags & LOOPBACK != 0
    }

    /// Whether groups can be joined on it. The loopback interface does not say so, and can.
    #[must_use]
    pub const fn can_multicast(&self) -> bool {
        self.flags & (MULTICAST | LOOPBACK) != 0
    }

    /// Returns the address from which datagrams to such a group are sent, with port 0.
    ///
    /// # Errors
    /// If the interface has no address of that family.
    pub fn source(&self, group: IpAddr) -> Result<SocketAddr, InterfaceError> {
        let is_wanted = |address: &&IpAddr| address.is_ipv4() == group.is_ipv4();
        let found = self.addresses.iter().find(is_wanted);
        let address = found.ok_or_else(|| InterfaceError::NoAddress {
            interface: self.name.clone(),
            family: if group.is_ipv4() { "IPv4" } else { "IPv6" },
        })?;
        Ok(self.scoped(SocketAddr::new(*address, 0)))
    }

    /// Adds the interface to an IPv6 address that means something only on one interface.
    #[must_use]
    pub fn scoped(&self, address: SocketAddr) -> SocketAddr {
        match address {
            SocketAddr::V6(v6) if needs_scope(*v6.ip()) => {
                SocketAddrV6::new(*v6.ip(), v6.port(), v6.flowinfo(), self.index).into()
            }
            address => address,
        }
    }
}

fn needs_scope(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.octets();
    address.is_unicast_link_local() || (first == 0xff && matches!(second & 0x0f, 1 | 2))
}

/// Returns all interfaces, in the kernel's order.
///
/// # Errors
/// If the kernel does not list them.
pub fn all() -> io::Result<Vec<Interface>> {
    let mut interfaces = netlink::list(netlink::INTERFACES, interface)?;
    let mut addresses = netlink::list(netlink::ADDRESSES, address)?;
    // A stable sort: otherwise in the kernel's order.
    addresses.sort_by_key(|(_, address)| address.is_ipv6());
    for (index, address) in addresses {
        if let Some(owner) = interfaces.iter_mut().find(|one| one.index == index) {
            owner.addresses.push(address);
        }
    }
    Ok(interfaces)
}

/// Returns the interface of this name.
///
/// # Errors
/// If there is none, or the kernel does not list them.
pub fn named(name: &str) -> Result<Interface, InterfaceError> {
    let all = all()?;
    let known = names(&all);
    all.into_iter()
        .find(|interface| interface.name == name)
        .ok_or_else(|| InterfaceError::NotFound { name: name.to_owned(), known })
}

/// Returns the only interface that is up, has an address, can multicast and leads to other hosts.
///
/// # Errors
/// If there are several such interfaces, or none.
pub fn only() -> Result<Interface, InterfaceError> {
    let mut candidates = candidates(all()?);
    match candidates.len() {
        0 => Err(InterfaceError::Ambiguous { candidates: None }),
        1 => Ok(candidates.remove(0)),
        _ => Err(InterfaceError::Ambiguous { candidates: Some(names(&candidates)) }),
    }
}

/// Returns those of the interfaces that are up, have an address, can multicast and lead to other hosts.
#[must_use]
pub fn candidates(interfaces: Vec<Interface>) -> Vec<Interface> {
    let is_usable = |one: &Interface| {
        one.is_up() && one.can_multicast() && !one.is_loopback() && !one.addresses.is_empty()
    };
    interfaces.into_iter().filter(is_usable).collect()
}

fn names(interfaces: &[Interface]) -> String {
    interfaces.iter().map(|one| one.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Reads `struct ifinfomsg` and its attributes (linux/if_link.h).
fn interface(fixed: &[u8], found: &[u8]) -> Option<Interface> {
    let flags = u32::from_ne_bytes(number(fixed, 8)?);
    let mut interface = Interface {
        index: u32::from_ne_bytes(number(fixed, 4)?),
        name: String::new(),
        mtu: 0,
        mac: None,
        carrier: None,
        addresses: Vec::new(),
        counters: Counters::default(),
        flags,
    };
    for (kind, value) in attributes(found) {
        match kind {
            // IFLA_ADDRESS.
            1 => {
                let mac = <[u8; 6]>::try_from(value).ok().filter(|mac| *mac != [0; 6]);
                interface.mac = mac.map(Mac);
            }
            // IFLA_IFNAME.
            3 => {
                let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
                interface.name = String::from_utf8_lossy(name).into_owned();
            }
            // IFLA_MTU.
            4 => interface.mtu = u32::from_ne_bytes(number(value, 0)?),
            // IFLA_STATS64.
            23 => interface.counters = Counters::parse(value),
            // IFLA_CARRIER.
            33 if flags & UP != 0 => interface.carrier = value.first().map(|carrier| *carrier != 0),
            _ => {}
        }
    }
    Some(interface)
}

impl Counters {
    /// Reads `struct rtnl_link_stats64` (linux/if_link.h), of which an older kernel knows less.
    fn parse(value: &[u8]) -> Self {
        let field = |index: usize| number(value, index * 8).map_or(0, u64::from_ne_bytes);
        Self {
            received: field(0),
            sent: field(1),
            dropped: field(6),
            multicast: field(8),
            overflowed: field(14),
            missed: field(15),
        }
    }
}

/// Reads `struct ifaddrmsg` and its attributes (linux/if_addr.h): the index of the interface, and the address.
fn address(fixed: &[u8], found: &[u8]) -> Option<(u32, IpAddr)> {
    /// `IFA_F_DADFAILED | IFA_F_TENTATIVE`: sockets cannot be bound to these.
    const UNUSABLE: u8 = 0x08 | 0x40;
    let index = u32::from_ne_bytes(number(fixed, 4)?);
    if fixed.get(2)? & UNUSABLE != 0 {
        return None;
    }
    let ip = |value: &[u8]| match value.len() {
        4 => Some(IpAddr::from(Ipv4Addr::from(number::<4>(value, 0)?))),
        16 => Some(IpAddr::from(Ipv6Addr::from(number::<16>(value, 0)?))),
        _ => None,
    };
    let (mut local, mut other) = (None, None);
    for (kind, value) in attributes(found) {
        match kind {
            // IFA_ADDRESS: on a point-to-point interface, the peer's.
            1 => other = ip(value),
            // IFA_LOCAL.
            2 => local = ip(value),
            _ => {}
        }
    }
    Some((index, local.or(other)?))
}

/// Returns the name of an interface's driver, as sysfs has it. `None` if it has none, as `lo`, or its name is not one of an
/// interface.
#[must_use]
pub fn driver(name: &str) -> Option<String> {
    // A name of an interface has no slash (dev_valid_name in net/core/dev.c of the kernel).
    if name.contains('/') {
        return None;
    }
    let driver = std::fs::read_link(format!("/sys/class/net/{name}/device/driver")).ok()?;
    Some(driver.file_name()?.to_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_loopback_interface_is_found() {
        let lo = named("lo").unwrap();
        assert!(lo.is_loopback() && lo.can_multicast());
        assert!(lo.index > 0 && lo.mtu > 0);
        if lo.is_up() {
            assert_eq!(lo.carrier, Some(true));
            let source = lo.source(Ipv4Addr::new(239, 1, 2, 3).into()).unwrap();
            assert_eq!(source, "127.0.0.1:0".parse().unwrap());
        }
        assert_eq!(lo.mac, None);
    }

    #[test]
    fn an_unknown_name_is_told_with_the_known_ones() {
        let error = named("no-such-0").unwrap_err().to_string();
        assert!(
            error.starts_with("there is no interface \"no-such-0\": this host has "),
            "{error}"
        );
        assert!(error.contains("lo"), "{error}");
    }

    #[test]
    fn only_addresses_that_need_it_get_the_interface() {
        let lo = named("lo").unwrap();
        for (text, scope) in
            [("ff12::1", lo.index), ("fe80::1", lo.index), ("ff18::1", 0), ("::1", 0)]
        {
            let address = SocketAddr::new(text.parse().unwrap(), 9);
            let SocketAddr::V6(scoped) = lo.scoped(address) else { panic!() };
            assert_eq!(scoped.scope_id(), scope, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_confuse_the_readers(
            fixed in proptest::collection::vec(any::<u8>(), 0..20),
            found in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let _ = (interface(&fixed, &found), address(&fixed, &found));
        }
    }
}
