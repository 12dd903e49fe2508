//! Which multicast groups to use, and which to avoid.
//!
//! A switch and a network card do not see the IP address of a group, but an Ethernet address that keeps only a part
//! of it (RFC 1112, section 6.4, and RFC 2464, section 7):
//!
//! ```text
//!   IPv4  1110 xxxxx.a bbbbbbb.cccccccc.dddddddd      the 5 bits x are lost: 32 groups share an Ethernet address
//!                     └───────────┬────────────┘
//!                 01:00:5e : 0bbbbbbb : cccccccc : dddddddd
//!
//!   IPv6  ff..:....:....:....:....:....:aabb:ccdd  ──►  33:33 : aa : bb : cc : dd
//! ```
//!
//! So two groups can reach the same hosts although their addresses differ, and switches flood every group whose
//! Ethernet address is that of a group of routing protocols.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The port of a group, if nothing else is configured.
pub const DEFAULT_PORT: u16 = 4479;

/// The group, if nothing else is configured: `239.192.84.79`, which stays within an organisation.
pub const DEFAULT_GROUP: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(239, 192, 84, 79)), DEFAULT_PORT);

/// The group on IPv6, if nothing else is configured: `ff18::5452:4f4e`, transient and within an organisation.
pub const DEFAULT_GROUP_IPV6: SocketAddr =
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0xff18, 0, 0, 0, 0, 0, 0x5452, 0x4f4e)), DEFAULT_PORT);

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Returns the Ethernet address to which datagrams of a group are sent, or `None` if the address is no group.
    #[must_use]
    pub const fn of_group(group: IpAddr) -> Option<Self> {
        match group {
            IpAddr::V4(group) if group.is_multicast() => {
                let [_, b, c, d] = group.octets();
                Some(Self([0x01, 0x00, 0x5e, b & 0x7f, c, d]))
            }
            IpAddr::V6(group) if group.is_multicast() => {
                let [.., a, b, c, d] = group.octets();
                Some(Self([0x33, 0x33, a, b, c, d]))
            }
            _ => None,
        }
    }

    /// Whether switches send frames to this address to all ports, also to those where no host has joined. The groups of
    /// routing protocols have such addresses (RFC 4541, sections 2.1.2 and 3).
    #[must_use]
    pub const fn is_flooded(self) -> bool {
        matches!(self.0, [0x01, 0x00, 0x5e, 0, 0, _] | [0x33, 0x33, 0, 0, 0, _])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// How far datagrams of a group may go, if routers are configured as the ranges of addresses intend (RFC 2365,
/// RFC 4291 section 2.7 and RFC 7346). The TTL of a datagram limits it as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Within one interface of one host.
    Interface,
    /// Within one network: routers do not forward it.
    Link,
    /// Within one site.
    Site,
    /// Within one organisation.
    Organisation,
    /// Everywhere.
    Global,
    /// Wherever an administrator ends it: a scope of IPv6 without a name in common use.
    Administered(u8),
}

impl Scope {
    /// Returns the scope of a group, or `None` if the address is no group or may not be used at all.
    #[must_use]
    pub const fn of_group(group: IpAddr) -> Option<Self> {
        match group {
            IpAddr::V4(group) => match group.octets() {
                [224, 0, 0, _] => Some(Self::Link),
                // RFC 2365, section 6: the local scope may grow downward to 239.252.
                [239, 252..=255, ..] => Some(Self::Site),
                [239, ..] => Some(Self::Organisation),
                [224..=238, ..] => Some(Self::Global),
                _ => None,
            },
            IpAddr::V6(group) if group.is_multicast() => match group.octets()[1] & 0x0f {
                0 | 15 => None,
                1 => Some(Self::Interface),
                2 => Some(Self::Link),
                5 => Some(Self::Site),
                8 => Some(Self::Organisation),
                14 => Some(Self::Global),
                other => Some(Self::Administered(other)),
            },
            IpAddr::V6(_) => None,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interface => f.write_str("interface-local"),
            Self::Link => f.write_str("link-local"),
            Self::Site => f.write_str("site-local"),
            Self::Organisation => f.write_str("organisation-local"),
            Self::Global => f.write_str("global"),
            Self::Administered(scope) => write!(f, "administered (scope {scope:x})"),
        }
    }
}

/// Why groups cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The address is no multicast address.
    #[error(
        "{0} is no multicast address: use one of 239.0.0.0/8, such as {default}, or of ff18::/16",
        default = DEFAULT_GROUP.ip()
    )]
    NotMulticast(IpAddr),
    /// The address belongs to the protocols of a network: 224.0.0.0/24, or a permanent link-local group of IPv6.
    #[error(
        "{0} is reserved for routing protocols, and switches flood it to all ports: use one of 239.0.0.0/8, such as \
         {default}, or of ff18::/16",
        default = DEFAULT_GROUP.ip()
    )]
    Reserved(IpAddr),
    /// IPv6 forbids to send to this scope (RFC 4291, section 2.7: 0 and F are reserved).
    #[error("{0} has the reserved scope {scope:x}: use scope 8, as in ff18::/16", scope = .0.octets()[1] & 0x0f)]
    ReservedScope(Ipv6Addr),
    /// Two groups have one Ethernet address, so each network card that receives one receives the other, too.
    #[error(
        "{one} and {other} have the same Ethernet address, {mac}: every receiver of one would receive both; choose \
         groups that differ in their last {bits} bits",
        bits = if one.is_ipv4() { 23 } else { 32 }
    )]
    SameMac {
        /// The group that was named first.
        one: IpAddr,
        /// The other one.
        other: IpAddr,
        /// The address of both.
        mac: Mac,
    },
}

/// What is questionable about groups that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Concern {
    /// The Ethernet address is one that switches flood.
    Flooded(IpAddr, Mac),
    /// The address is outside the ranges that everyone may use: 239.0.0.0/8 and, for its owner, GLOP.
    Assigned(IpAddr),
    /// An address of 232.0.0.0/8 or ff3x::/32, which routers forward only to receivers that name a source (RFC 4607).
    SourceSpecific(IpAddr),
    /// Datagrams to this group never leave the host.
    StaysOnHost(IpAddr),
    /// One group is used with two ports: every receiver of one gets both, and its kernel drops what is for the other.
    TwoPorts(SocketAddr, SocketAddr),
}

impl fmt::Display for Concern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flooded(group, mac) => write!(
                f,
                "switches flood {group} to all ports: it has the Ethernet address {mac} of a group of routing protocols"
            ),
            Self::Assigned(group @ IpAddr::V4(_)) => write!(
                f,
                "{group} may be in use on the Internet: 239.0.0.0/8 is free for everyone, and 233.0.0.0/8 for the owner \
                 of an AS number (GLOP)"
            ),
            Self::Assigned(group @ IpAddr::V6(_)) => write!(
                f,
                "{group} is for groups that IANA has assigned: ff18::/16 is free for everyone"
            ),
            Self::SourceSpecific(group) => write!(
                f,
                "{group} is for source-specific multicast: routers do not forward it to receivers that name no source"
            ),
            Self::StaysOnHost(group) => write!(f, "datagrams to {group} never leave the host"),
            Self::TwoPorts(one, other) => write!(
                f,
                "{one} and {other} differ only in the port: network cards cannot tell them apart, so every receiver of \
                 one receives both"
            ),
        }
    }
}

/// The result of [`review`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Review {
    /// Why these groups cannot be used together.
    pub refusals: Vec<Refusal>,
    /// What is questionable about them.
    pub concerns: Vec<Concern>,
}

/// Checks groups that are to be used together.
///
/// A group that is named twice counts once. The order of the result is that of the groups. The kernel's
/// `net.ipv4.igmp_max_memberships` does not limit the number of groups: it holds for each socket, and each group has
/// sockets of its own.
#[must_use]
pub fn review(groups: &[SocketAddr]) -> Review {
    let mut review = Review::default();
    // The first socket address of each group, and the first group of each Ethernet address.
    let mut seen: BTreeMap<IpAddr, SocketAddr> = BTreeMap::new();
    let mut owners: BTreeMap<Mac, IpAddr> = BTreeMap::new();
    for group in groups {
        let address = group.ip().to_canonical();
        if let Some(before) = seen.get(&address) {
            if before.port() != group.port() {
                review.concerns.push(Concern::TwoPorts(*before, *group));
            }
            continue;
        }
        seen.insert(address, *group);
        review.one(address);
        let Some(mac) = Mac::of_group(address) else { continue };
        match owners.get(&mac) {
            Some(&one) => review.refusals.push(Refusal::SameMac { one, other: address, mac }),
            None => drop(owners.insert(mac, address)),
        }
    }
    review
}

impl Review {
    fn one(&mut self, group: IpAddr) {
        let Some(mac) = Mac::of_group(group) else {
            return self.refusals.push(Refusal::NotMulticast(group));
        };
        let before = self.refusals.len();
        match group {
            IpAddr::V4(address) => self.ipv4(address),
            IpAddr::V6(address) => self.ipv6(address),
        }
        if self.refusals.len() == before && mac.is_flooded() {
            self.concerns.push(Concern::Flooded(group, mac));
        }
    }

    fn ipv4(&mut self, group: Ipv4Addr) {
        match group.octets() {
            [224, 0, 0, _] => self.refusals.push(Refusal::Reserved(group.into())),
            [232, ..] => self.concerns.push(Concern::SourceSpecific(group.into())),
            // GLOP is 233.0.0.0 to 233.251.255.255 (RFC 3180).
            [239, ..] | [233, 0..=251, ..] => {}
            _ => self.concerns.push(Concern::Assigned(group.into())),
        }
    }

    fn ipv6(&mut self, group: Ipv6Addr) {
        let [_, flags_and_scope, ..] = group.octets();
        let (flags, scope) = (flags_and_scope >> 4, flags_and_scope & 0x0f);
        let is_transient = flags & 1 != 0;
        match scope {
            0 | 15 => return self.refusals.push(Refusal::ReservedScope(group)),
            1 => self.concerns.push(Concern::StaysOnHost(group.into())),
            2 if !is_transient => return self.refusals.push(Refusal::Reserved(group.into())),
            _ => {}
        }
        if !is_transient {
            self.concerns.push(Concern::Assigned(group.into()));
        } else if flags == 3 && group.octets()[2..4] == [0, 0] {
            self.concerns.push(Concern::SourceSpecific(group.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(texts: &[&str]) -> Vec<SocketAddr> {
        texts
            .iter()
            .map(|text| {
                text.parse()
                    .unwrap_or_else(|_| SocketAddr::new(text.parse().unwrap(), DEFAULT_PORT))
            })
            .collect()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn mac(text: &str) -> String {
        Mac::of_group(ip(text)).unwrap().to_string()
    }

    #[test]
    fn the_default_groups_have_nothing_questionable() {
        assert_eq!(DEFAULT_GROUP.to_string(), "239.192.84.79:4479");
        assert_eq!(DEFAULT_GROUP_IPV6.to_string(), "[ff18::5452:4f4e]:4479");
        assert_eq!(review(&[DEFAULT_GROUP, DEFAULT_GROUP_IPV6]), Review::default());
        assert_eq!(mac("239.192.84.79"), "01:00:5e:40:54:4f");
        for group in [DEFAULT_GROUP, DEFAULT_GROUP_IPV6] {
            assert_eq!(Scope::of_group(group.ip()), Some(Scope::Organisation));
        }
    }

    #[test]
    fn ethernet_addresses_are_those_of_the_standards() {
        // RFC 1112: the low-order 23 bits.
        assert_eq!(mac("239.255.255.255"), "01:00:5e:7f:ff:ff");
        assert_eq!(mac("239.128.0.1"), mac("239.0.0.1"));
        // RFC 2464: the low-order 32 bits.
        assert_eq!(mac("ff02::1:ff28:9c5a"), "33:33:ff:28:9c:5a");
        for text in ["10.0.0.1", "240.0.0.1", "255.255.255.255", "fe80::1", "::1"] {
            assert_eq!(Mac::of_group(ip(text)), None, "{text}");
        }
    }

    #[test]
    fn scopes_are_those_of_the_standards() {
        for (text, scope) in [
            ("224.0.0.5", Some(Scope::Link)),
            ("224.0.1.1", Some(Scope::Global)),
            ("239.192.0.1", Some(Scope::Organisation)),
            ("239.1.2.3", Some(Scope::Organisation)),
            ("239.255.1.2", Some(Scope::Site)),
            ("239.252.1.2", Some(Scope::Site)),
            ("10.0.0.1", None),
            ("ff11::1", Some(Scope::Interface)),
            ("ff02::1", Some(Scope::Link)),
            ("ff15::1", Some(Scope::Site)),
            ("ff1e::1", Some(Scope::Global)),
            ("ff14::1", Some(Scope::Administered(4))),
            ("ff10::1", None),
            ("2001:db8::1", None),
        ] {
            assert_eq!(Scope::of_group(ip(text)), scope, "{text}");
        }
    }

    #[test]
    fn what_cannot_work_is_refused() {
        for (text, refusal) in [
            ("192.168.1.1", Refusal::NotMulticast(ip("192.168.1.1"))),
            ("2001:db8::1", Refusal::NotMulticast(ip("2001:db8::1"))),
            ("224.0.0.0", Refusal::Reserved(ip("224.0.0.0"))),
            ("224.0.0.255", Refusal::Reserved(ip("224.0.0.255"))),
            ("ff02::fb", Refusal::Reserved(ip("ff02::fb"))),
            ("ff10::9", Refusal::ReservedScope("ff10::9".parse().unwrap())),
            ("ff1f::9", Refusal::ReservedScope("ff1f::9".parse().unwrap())),
        ] {
            assert_eq!(
                review(&groups(&[text])),
                Review { refusals: vec![refusal], concerns: vec![] },
                "{text}"
            );
        }
    }

    #[test]
    fn groups_with_one_ethernet_address_are_refused_and_named() {
        let found = review(&groups(&["239.1.2.3", "239.9.9.9", "239.129.2.3", "234.1.2.3"]));
        let said: Vec<String> = found.refusals.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said[0].starts_with(
                "239.1.2.3 and 239.129.2.3 have the same Ethernet address, 01:00:5e:01:02:03"
            ),
            "{said:?}"
        );
        assert!(said[1].starts_with("239.1.2.3 and 234.1.2.3 "), "{said:?}");
        assert!(said[1].ends_with("last 23 bits"), "{said:?}");
        let found = review(&groups(&["ff18::1:2:3", "ff15::7:2:3"]));
        assert!(found.refusals[0].to_string().ends_with("last 32 bits"), "{found:?}");
    }

    #[test]
    fn one_group_named_twice_is_one_group() {
        let found = review(&groups(&["239.1.2.3", "239.1.2.3", "239.1.2.3:4480"]));
        let [one, other] = groups(&["239.1.2.3", "239.1.2.3:4480"])[..] else { panic!() };
        let wanted = Review { refusals: vec![], concerns: vec![Concern::TwoPorts(one, other)] };
        assert_eq!(found, wanted);
    }

    #[test]
    fn what_is_questionable_is_a_concern() {
        for (text, wanted) in [
            ("239.0.0.7", "switches flood 239.0.0.7"),
            ("239.128.0.7", "switches flood 239.128.0.7"),
            ("234.1.2.3", "234.1.2.3 may be in use on the Internet"),
            ("233.252.0.1", "233.252.0.1 may be in use on the Internet"),
            ("232.1.2.3", "232.1.2.3 is for source-specific multicast"),
            ("ff11::1:1:1", "never leave the host"),
            ("ff08::1:1:1", "is for groups that IANA has assigned"),
            ("ff38::8000:1", "is for source-specific multicast"),
            ("ff18::1", "switches flood ff18::1"),
        ] {
            let found = review(&groups(&[text]));
            assert_eq!((found.refusals.len(), found.concerns.len()), (0, 1), "{text}: {found:?}");
            assert!(found.concerns[0].to_string().contains(wanted), "{}", found.concerns[0]);
        }
        for text in ["239.1.2.3", "239.0.1.0", "233.1.2.3", "ff15::1:1:1", "ff38:30::1:1"] {
            assert_eq!(review(&groups(&[text])), Review::default(), "{text}");
        }
    }
}
