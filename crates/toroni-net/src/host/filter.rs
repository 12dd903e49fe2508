//! Packet filters of this host, which may drop datagrams before any socket gets them. Their rules are not read.

use super::netlink::{self, attributes};
use std::io::{self, ErrorKind};

/// The tables of packet filters that this host has.
#[derive(Debug, Default)]
pub struct Filters {
    /// Each with the program that lists it, such as `iptables filter` and `nft inet filter`.
    pub tables: Vec<String>,
    /// Why there may be more: only root may list them.
    pub unknown: Option<io::Error>,
}

impl Filters {
    /// Asks the kernel.
    #[must_use]
    pub fn read() -> Self {
        let mut found = Self::default();
        for (program, version) in [("iptables", "ip"), ("ip6tables", "ip6")] {
            let names =
                std::fs::read_to_string(format!("/proc/thread-self/net/{version}_tables_names"));
            found.add(names.map(|names| names_of(program, &names)));
        }
        found.add(netlink::list(netlink::FILTER_TABLES, table));
        found
    }

    fn add(&mut self, tables: io::Result<Vec<String>>) {
        match tables {
            Ok(tables) => self.tables.extend(tables),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => self.unknown = Some(error),
            // The kernel has no such filter, or its module is not loaded.
            Err(_) => {}
        }
    }
}

fn names_of(program: &str, names: &str) -> Vec<String> {
    names.lines().map(|name| format!("{program} {name}")).collect()
}

/// Reads `struct nfgenmsg` and the attributes of a table.
fn table(fixed: &[u8], found: &[u8]) -> Option<String> {
    // NFPROTO_INET and the others that see IP packets. Those of ARP do not.
    let family = match fixed.first()? {
        1 => "inet",
        2 => "ip",
        5 => "netdev",
        7 => "bridge",
        10 => "ip6",
        _ => return None,
    };
    // NFTA_TABLE_NAME.
    let (_, name) = attributes(found).find(|(kind, _)| *kind == 1)?;
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Some(format!("nft {family} {}", String::from_utf8_lossy(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_the_words_of_the_programs_that_list_them() {
        assert_eq!(names_of("iptables", "filter\nnat\n"), ["iptables filter", "iptables nat"]);
        let name = [&11_u16.to_ne_bytes()[..], &1_u16.to_ne_bytes(), b"filter\0\0"].concat();
        assert_eq!(table(&[1, 0, 0, 0], &name).as_deref(), Some("nft inet filter"));
        assert_eq!(table(&[3, 0, 0, 0], &name), None, "it filters ARP");
        assert_eq!(table(&[], &name), None);
        assert_eq!(table(&[1, 0, 0, 0], &[]), None);
    }

    /// Whatever this host has.
    #[test]
    fn the_kernel_is_asked() {
        let found = Filters::read();
        assert!(found.tables.iter().all(|table| table.contains(' ')), "{found:?}");
    }
}
