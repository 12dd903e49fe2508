//! What the kernel counts on the way of a datagram through a host, and where it was dropped.
//!
//! ```text
//!   card ──► ring ──► softnet backlog ──► UDP ──► socket buffer ──► program
//!        missed,  dropped            errors     no room:
//!        overflowed                             RcvbufErrors
//! ```
//!
//! A difference of two [`Snapshot`]s says where the datagrams of a gap went, or that they never reached this host.

use super::interface::{self, Interface};
use std::fmt;
use std::io;

/// All these counters at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Datagrams for which a socket's buffer had no room (`RcvbufErrors` of IPv4 and IPv6).
    pub socket_buffers: u64,
    /// Datagrams that exceeded `net.ipv4.udp_mem`, the limit of all sockets together (`MemErrors`).
    pub memory: u64,
    /// Datagrams whose checksum was wrong (`InCsumErrors`).
    pub checksums: u64,
    /// Packets for which a CPU's backlog had no room (`net.core.netdev_max_backlog`).
    pub softnet: u64,
    /// Each interface with its counters.
    pub interfaces: Vec<Interface>,
}

/// Why datagrams were dropped between two [`Snapshot`]s.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// See [`Snapshot::socket_buffers`]. Counts all sockets of this network namespace.
    pub socket_buffers: u64,
    /// See [`Snapshot::memory`].
    pub memory: u64,
    /// See [`Snapshot::checksums`].
    pub checksums: u64,
    /// See [`Snapshot::softnet`]. Counts all network namespaces of the machine.
    pub softnet: u64,
    /// The interfaces that dropped packets: name, and how many the kernel and the card dropped.
    pub interfaces: Vec<(String, u64)>,
}

impl Drops {
    /// Whether nothing was dropped on this host: what is missing was lost before it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Prints where datagrams were dropped, and what helps: `12 in full socket buffers (see toroni net buffer), 3 by eth0 …`.
impl fmt::Display for Drops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none on this host");
        }
        let host = [
            (self.socket_buffers, "in full socket buffers (see toroni net buffer)"),
            (self.memory, "for lack of memory for UDP (net.ipv4.udp_mem)"),
            (self.checksums, "with wrong checksums"),
            (self.softnet, "in full backlogs of CPUs (net.core.netdev_max_backlog)"),
        ];
        let host = host.map(|(count, place)| (count, place.to_owned()));
        let cards = self
            .interfaces
            .iter()
            .map(|(name, count)| (*count, format!("by {name} (see ethtool -g {name})")));
        let mut separator = "";
        for (count, place) in host.into_iter().chain(cards).filter(|(count, _)| *count > 0) {
            write!(f, "{separator}{count} {place}")?;
            separator = ", ";
        }
        Ok(())
    }
}

impl Snapshot {
    /// Reads all counters.
    ///
    /// # Errors
    /// If `/proc` is not mounted, or the kernel does not list its interfaces.
    pub fn read() -> io::Result<Self> {
        let ipv4 = file("snmp")?;
        // Without IPv6 in the kernel, this file does not exist.
        let ipv6 = file("snmp6").unwrap_or_default();
        let both = |name: &str| {
            snmp(&ipv4, "Udp", name)
                .unwrap_or(0)
                .wrapping_add(snmp6(&ipv6, &format!("Udp6{name}")).unwrap_or(0))
        };
        Ok(Self {
            socket_buffers: both("RcvbufErrors"),
            memory: both("MemErrors"),
            checksums: both("InCsumErrors"),
            softnet: softnet_drops(&file("softnet_stat").unwrap_or_default()),
            interfaces: interface::all()?,
        })
    }

    /// Returns what was dropped since an earlier snapshot. A counter that went back, because a driver was loaded again,
    /// counts from 0.
    #[must_use]
    pub fn since(&self, before: &Self) -> Drops {
        let interfaces = self.interfaces.iter().filter_map(|now| {
            let old = before.interfaces.iter().find(|old| old.index == now.index);
            let old = old.map(|old| old.counters).unwrap_or_default();
            let dropped = since(now.counters.dropped, old.dropped)
                + since(now.counters.missed, old.missed)
                + since(now.counters.overflowed, old.overflowed);
            (dropped > 0).then(|| (now.name.clone(), dropped))
        });
        Drops {
            socket_buffers: since(self.socket_buffers, before.socket_buffers),
            memory: since(self.memory, before.memory),
            checksums: since(self.checksums, before.checksums),
            softnet: since(self.softnet, before.softnet),
            interfaces: interfaces.collect(),
        }
    }
}

const fn since(now: u64, before: u64) -> u64 {
    if now < before { now } else { now - before }
}

/// Reads a file below `/proc/thread-self/net`.
pub(super) fn file(name: &str) -> io::Result<String> {
    // Bytes that are no text cannot be counters.
    std::fs::read(format!("/proc/thread-self/net/{name}"))
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns a counter of TCP over IPv4 and IPv6, such as `InSegs`.
///
/// # Errors
/// If `/proc` is not mounted. `None` is a counter that this kernel does not have.
pub fn tcp(name: &str) -> io::Result<Option<u64>> {
    Ok(snmp(&file("snmp")?, "Tcp", name))
}

/// Returns an extended counter of TCP, such as `TCPOFOQueue`.
///
/// # Errors
/// As [`tcp`].
pub fn tcp_extended(name: &str) -> io::Result<Option<u64>> {
    Ok(snmp(&file("netstat")?, "TcpExt", name))
}

/// Finds a counter in the format of `/proc/net/snmp`: a line of names, and a line of values, both with the same prefix.
fn snmp(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(prefix, _)| *prefix == protocol)
        .map(|(_, rest)| rest.split_whitespace());
    let (names, values) = (lines.next()?, lines.next()?);
    names.zip(values).find(|(known, _)| *known == name)?.1.parse().ok()
}

/// Finds a counter in the format of `/proc/net/snmp6`: a name and a value in each line.
fn snmp6(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next()? == name).then(|| words.next()?.parse().ok())?
    })
}

/// Adds up the second column of `/proc/net/softnet_stat`: 32 bits in hexadecimal, one line for each CPU.
fn softnet_drops(text: &str) -> u64 {
    let column = |line: &str| u32::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    text.lines().filter_map(column).map(u64::from).sum()
}

/// Returns how many datagrams the kernel dropped for one socket, by the number of its inode (`/proc/net/udp`).
///
/// # Errors
/// If `/proc` is not mounted. `None` is a socket that the list does not have.
pub fn of_socket(inode: u64) -> io::Result<Option<u64>> {
    let found = drops_of(&file("udp")?, inode);
    Ok(found.or_else(|| drops_of(&file("udp6").ok()?, inode)))
}

fn drops_of(text: &str, inode: u64) -> Option<u64> {
    text.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.get(9)?.parse() == Ok(inode)).then(|| words.get(12)?.parse().ok())?
    })
}

/// Returns the version of IGMP that the kernel uses on an interface, such as `V3`: an older one if a querier of that
/// version was heard (`/proc/net/igmp`).
///
/// # Errors
/// If `/proc` is not mounted. `None` is an interface on which no group was joined.
pub fn igmp_version(interface: &str) -> io::Result<Option<String>> {
    Ok(igmp(&file("igmp")?, interface))
}

fn igmp(text: &str, interface: &str) -> Option<String> {
    text.lines().find_map(|line| {
        // `2\teth0      :     1      V3`; the lines of groups begin with a tab.
        let (index, rest) = line.split_once('\t')?;
        index.parse::<u32>().ok()?;
        let (name, rest) = rest.rsplit_once(':')?;
        (name.trim() == interface).then(|| rest.split_whitespace().nth(1).map(str::to_owned))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SNMP: &str = "\
Ip: Forwarding DefaultTTL
Ip: 1 64
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors
Udp: 10 1 7 12 4 0 3 0 18446744073709551615
UdpLite: InDatagrams RcvbufErrors
UdpLite: 5 99
";

    #[test]
    fn counters_are_found_by_name() {
        assert_eq!(snmp(SNMP, "Udp", "RcvbufErrors"), Some(4));
        assert_eq!(snmp(SNMP, "UdpLite", "RcvbufErrors"), Some(99));
        assert_eq!(snmp(SNMP, "Udp", "MemErrors"), Some(u64::MAX));
        assert_eq!(snmp(SNMP, "Udp", "NoSuch"), None);
        assert_eq!(snmp("Udp: RcvbufErrors\n", "Udp", "RcvbufErrors"), None);
        assert_eq!(snmp("Udp: A RcvbufErrors\nUdp: 1\n", "Udp", "RcvbufErrors"), None);
        assert_eq!(snmp6("Udp6InErrors \t7\nUdp6RcvbufErrors\t 5\n", "Udp6RcvbufErrors"), Some(5));
        assert_eq!(snmp6("Udp6RcvbufErrors\n", "Udp6RcvbufErrors"), None);
    }

    #[test]
    fn the_drops_of_all_cpus_are_added() {
        let text = "0000aa10 00000002 00000000\n00000001 ffffffff 0\nnonsense\n";
        assert_eq!(softnet_drops(text), 2 + u64::from(u32::MAX));
    }

    #[test]
    fn a_socket_is_found_by_its_inode() {
        let text = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
  123: 4F54C0EF:117F 00000000:0000 07 00000000:00000300 00:00000000 00000000     0        0 777 2 ffff 42\n\
  124: 4F54C0EF:117F 00000000:0000 07 short\n";
        assert_eq!(drops_of(text, 777), Some(42));
        assert_eq!(drops_of(text, 778), None);
    }

    #[test]
    fn the_version_of_igmp_is_found() {
        let text = "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n\
1\tlo        :     1      V3\n\t\t\t\t010000E0     1 0:00000000\t\t0\n2\teth0:1    :     1      V2\n";
        assert_eq!(igmp(text, "lo").as_deref(), Some("V3"));
        assert_eq!(igmp(text, "eth0:1").as_deref(), Some("V2"));
        assert_eq!(igmp(text, "eth0"), None);
    }

    #[test]
    fn this_host_has_counters_and_a_counter_that_went_back_counts_from_0() {
        let now = Snapshot::read().unwrap();
        assert!(now.interfaces.iter().any(|interface| interface.name == "lo"));
        assert!(tcp("InSegs").unwrap().is_some());
        assert!(tcp_extended("TCPOFOQueue").unwrap().is_some());
        assert_eq!(now.since(&now), Drops::default());
        let mut later = now.clone();
        later.socket_buffers += 5;
        later.interfaces[0].counters.missed += 3;
        let drops = later.since(&now);
        assert_eq!(drops.socket_buffers, 5);
        assert_eq!(drops.interfaces, [(now.interfaces[0].name.clone(), 3)]);
        let name = &now.interfaces[0].name;
        assert_eq!(
            drops.to_string(),
            format!(
                "5 in full socket buffers (see toroni net buffer), 3 by {name} (see ethtool -g {name})"
            )
        );
        assert_eq!(Drops::default().to_string(), "none on this host");
        assert_eq!(since(3, 10), 3);
    }

    proptest! {
        #[test]
        fn no_text_confuses_the_parsers(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let text = String::from_utf8_lossy(&bytes);
            let _ = (snmp(&text, "Udp", "A"), snmp6(&text, "A"), softnet_drops(&text));
            let _ = (drops_of(&text, 1), igmp(&text, "lo"));
        }
    }
}
