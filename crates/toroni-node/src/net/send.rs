//! `toroni net send`: a node without a file that sends messages of a bus to other hosts.

use super::address::{parse_group, refuse_groups};
use super::membership::{Membership, list, quoted};
use crate::node;
use clap::Args;
use clap_complete::ArgValueCompleter;
use std::net::SocketAddr;
use toroni_net::host::address::DEFAULT_GROUP;
use toroni_net::host::interface::Interface;
use toroni_net::node::config::datagram_within;
use toroni_net::node::config::units::Quantity;
use toroni_proto::config::Config;
use toroni_shell::failure::Failure;
use toroni_shell::location::{self, BusLocation, parse_address};
use toroni_shell::ready::ReadyFd;
use toroni_shell::{complete, human, note};

#[derive(Args)]
#[command(after_help = "Examples:
  toroni net send 'plant/**' --rate 100Mbit/s      to the default group
  toroni net send '**' --rate 1Gbit/s --interface eth1 --group 239.192.1.7
  toroni net send 'plant/**' --rate 100Mbit/s --print > node.toml

It does what `toroni node` does with the file that --print shows, and sends what is published from now on. On other hosts, \
`toroni net receive` prints it. If no receiver answers within 5 s of the first message, it says so and what to run. It remembers nothing: after a restart it is a new source. For a host that must keep on \
sending, write the file and give it a `state`.")]
pub(crate) struct Send {
    /// Topics to send, such as plant/**: at most 16 patterns
    #[arg(value_name = "PATTERN", required = true, add = ArgValueCompleter::new(complete::topics))]
    patterns: Vec<String>,
    /// Greatest rate of new data on the wire, such as 100Mbit/s; only people know what the network can bear
    #[arg(long, value_name = "R", value_parser = super::parse_bit_rate)]
    rate: u64,
    /// Multicast group, with or without a port [default: 239.192.84.79:4479]
    #[arg(long, value_name = "GROUP", value_parser = parse_group, conflicts_with = "to")]
    group: Option<SocketAddr>,
    /// Send to this address and port instead of a group; may be given several times
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_address)]
    to: Vec<SocketAddr>,
    /// Greatest length of a datagram with a unit, such as 1200B, or mtu: as long as the interface takes [default: 1408B, or
    /// less if the interface takes less]
    #[arg(long, value_name = "SIZE")]
    datagram: Option<String>,
    /// Let other nodes of this host hear it, too
    #[arg(long = "loop")]
    is_looped: bool,
    #[command(flatten)]
    membership: Membership,
}

/// Sends until a signal arrives.
pub(crate) fn run(location: &BusLocation, arguments: &Send) -> Result<(), Failure> {
    refuse_groups(&arguments.patterns)?;
    let ready = ReadyFd::claim(arguments.membership.ready_fd)?;
    let group = arguments.group.unwrap_or(DEFAULT_GROUP);
    let (key, to) = match &arguments.to[..] {
        [] => (format!("group = {}", quoted(&group.to_string())), group.to_string()),
        all => {
            let shown: Vec<String> = all.iter().map(ToString::to_string).collect();
            (format!("to = {}", list(all)), shown.join(", "))
        }
    };
    let mut sections = format!(
        "[[send]]\nstream = 1\npatterns = {}\n{key}\ndata_rate = {}\nloop = {}\n",
        list(&arguments.patterns),
        quoted(&Quantity::Rate.show(arguments.rate)),
        arguments.is_looped,
    );
    let shorter = match arguments.datagram {
        Some(_) => None,
        None => takes_less(&arguments.membership.interfaces()),
    };
    let datagram = arguments.datagram.as_deref().or(shorter.as_ref().map(|_| "mtu"));
    if let Some(datagram) = datagram {
        sections.push_str(&format!("datagram = {}\n", quoted(datagram)));
    }
    if let Some(window) = window(arguments.rate) {
        sections.push_str(&format!("window = {}\n", quoted(&Quantity::Bytes.show(window))));
    }
    let Some(config) = arguments.membership.read(location, "send", &sections)? else {
        return Ok(());
    };
    // The node would create it without a word.
    drop(location::open_or_create(&location.config(), location)?);
    let about = format!(
        "sends {} of bus {} to {to}, at most {}; a signal (Ctrl-C) ends it",
        arguments.patterns.join(", "),
        location.bus,
        human::bit_rate(arguments.rate),
    );
    if let Some(text) = shorter {
        note::remark(&text);
    }
    let way = node::Way {
        origin: "net send",
        about: Some(&about),
        format: node::Format::Text,
        is_service: false,
    };
    node::serve(&config, &way, ready, || false)
}

/// Says that datagrams are shorter than usual, if one of these interfaces does not take longer ones.
fn takes_less(interfaces: &[Interface]) -> Option<String> {
    let least = interfaces.iter().min_by_key(|interface| interface.mtu)?;
    let (fits, usual) = (datagram_within(least.mtu), Config::default().datagram_bytes);
    (fits < usual).then(|| {
        format!(
            "datagrams have at most {fits} bytes instead of {usual}: {} takes packets of {} bytes",
            least.name, least.mtu
        )
    })
}

/// Returns the window that this rate needs, in bytes, unless the default is enough: what is sent within the generation
/// interval, and a datagram of any length.
fn window(rate: u64) -> Option<u64> {
    const MIB: u64 = 1 << 20;
    let defaults = Config::with_rate(rate);
    let bytes = u128::from(rate / 8) * u128::from(defaults.generation_ns) / 1_000_000_000;
    let needed = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_add(1 << 16);
    (needed > defaults.window_bytes).then(|| needed.div_ceil(MIB).saturating_mul(MIB))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_high_rate_gets_the_window_that_it_needs() {
        assert_eq!(window(1_000_000_000), None);
        assert_eq!(window(2_000_000_000), Some(120 << 20));
    }
}
