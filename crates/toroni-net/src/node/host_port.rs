//! Where another node listens: an address, or the name of a host, which may have another address with each attempt to connect.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// The longest name of a host, and the longest of its labels (RFC 1035 §2.3.4), in bytes. A name may have 253, but the members
/// of a sequencer have room for 255 with the port.
const NAME_BYTES: usize = 249;
const LABEL_BYTES: usize = 63;

/// An address or the name of a host, and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort(Host);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Host {
    Address(SocketAddr),
    /// In lower case.
    Name(String, u16),
}

/// A text is neither an address with a port nor a name with a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write an address or a name of a host, and a port, such as 10.0.0.1:4480 or line-3:4480")]
pub struct NoHostPort;

impl FromStr for HostPort {
    type Err = NoHostPort;

    fn from_str(text: &str) -> Result<Self, NoHostPort> {
        if let Ok(address) = text.parse() {
            return Ok(Self(Host::Address(address)));
        }
        let (name, port) = text.rsplit_once(':').ok_or(NoHostPort)?;
        let port = port.parse().ok().filter(|port| *port > 0).ok_or(NoHostPort)?;
        if is_name(name) {
            Ok(Self(Host::Name(name.to_ascii_lowercase(), port)))
        } else {
            Err(NoHostPort)
        }
    }
}

/// Whether a text can be the name of a host. What ends in a number is a mistyped address: no domain does (RFC 3696 §2).
fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        (1..=LABEL_BYTES).contains(&label.len())
            && label.bytes().all(is_part)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let name = text.strip_suffix('.').unwrap_or(text);
    let last = name.rsplit('.').next().unwrap_or_default();
    name.len() <= NAME_BYTES
        && name.split('.').all(is_label)
        && !last.bytes().all(|byte| byte.is_ascii_digit())
}

impl From<SocketAddr> for HostPort {
    fn from(address: SocketAddr) -> Self {
        Self(Host::Address(address))
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Host::Address(address) => address.fmt(formatter),
            Host::Name(name, port) => write!(formatter, "{name}:{port}"),
        }
    }
}

impl HostPort {
    /// Returns the address, unless it is a name.
    #[must_use]
    pub const fn address(&self) -> Option<SocketAddr> {
        match self.0 {
            Host::Address(address) => Some(address),
            Host::Name(..) => None,
        }
    }

    /// Returns the port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        match &self.0 {
            Host::Address(address) => address.port(),
            Host::Name(_, port) => *port,
        }
    }

    /// Whether no other host can be meant.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        match &self.0 {
            Host::Address(address) => address.ip().is_loopback(),
            Host::Name(name, _) => name == "localhost" || name.ends_with(".localhost"),
        }
    }

    /// Returns the addresses that it has now. For a name, this asks the resolver of the system, and may take many seconds.
    ///
    /// # Errors
    /// If the name has no address, or the resolver does not answer.
    pub fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        match &self.0 {
            Host::Address(address) => Ok(vec![*address]),
            Host::Name(name, port) => {
                let found: Vec<SocketAddr> = (name.as_str(), *port).to_socket_addrs()?.collect();
                if found.is_empty() {
                    return Err(io::Error::other("the name has no address"));
                }
                Ok(found)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_told_apart() {
        for (text, shown) in [
            ("10.0.0.1:4480", "10.0.0.1:4480"),
            ("[fe80::1%2]:4480", "[fe80::1%2]:4480"),
            ("line-3:4480", "line-3:4480"),
            ("Line-3.Example.ORG:1", "line-3.example.org:1"),
            ("a_b.example.:65535", "a_b.example.:65535"),
            ("3com.example:9", "3com.example:9"),
        ] {
            let host: HostPort = text.parse().unwrap();
            assert_eq!(host.to_string(), shown);
            assert_eq!(host.address().is_some(), text.parse::<SocketAddr>().is_ok(), "{text}");
            assert_eq!(host.port().to_string(), text.rsplit_once(':').unwrap().1);
        }
        let long = format!("{}:1", "a".repeat(64));
        let longer = format!("{}:1", "a.".repeat(124) + "bc");
        for text in [
            "",
            ":1",
            "line-3",
            "line-3:",
            "line-3:0",
            "line-3:65536",
            "10.0.0.256:1",
            "10.0.0:1",
            "a..b:1",
            "-a:1",
            "a-:1",
            "a b:1",
            "ä:1",
            "::1:9",
            "[::1]",
            "http://a:1",
            &long,
            &longer,
        ] {
            assert_eq!(text.parse::<HostPort>(), Err(NoHostPort), "{text}");
        }
    }

    #[test]
    fn a_name_has_the_addresses_that_the_system_knows() {
        let local: HostPort = "localhost:4480".parse().unwrap();
        assert!(local.is_loopback());
        let found = local.resolve().unwrap();
        assert!(!found.is_empty());
        assert!(found.iter().all(|it| it.ip().is_loopback() && it.port() == 4480), "{found:?}");
        let address: HostPort = "10.0.0.1:4480".parse().unwrap();
        assert_eq!(address.resolve().unwrap(), [address.address().unwrap()]);
        assert!(!address.is_loopback());
        // RFC 6761 reserves this one, so that it never exists.
        "nonesuch.invalid:1".parse::<HostPort>().unwrap().resolve().unwrap_err();
    }
}
