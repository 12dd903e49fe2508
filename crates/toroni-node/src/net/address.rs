//! `toroni net address`: checks multicast groups before they are configured.

use clap::Args;
use serde_json::json;
use std::net::{IpAddr, SocketAddr};
use toroni_net::host::address::{self, DEFAULT_GROUP, DEFAULT_PORT, Mac, Scope};
use toroni_net::host::interface::{self, Interface};
use toroni_shell::failure::Failure;
use toroni_shell::human;
use toroni_shell::output::{Output, Table};

#[derive(Args)]
#[command(after_help = "Examples:
  toroni net address                                    the default group
  toroni net address 239.192.1.1 239.192.1.2:5000
  toroni net address ff18::5452:4f4e '[ff15::7]:5000'

Groups that are used together must differ in their Ethernet addresses, which keep 23 bits of an IPv4 group and 32 bits of \
an IPv6 group. Use 239.0.0.0/8 or ff18::/16, and none of the form x.0.0.y or x.128.0.y, which switches flood.")]
pub(crate) struct Address {
    /// Groups that are used together, each with or without a port [default: 239.192.84.79:4479]
    #[arg(value_name = "GROUP", value_parser = parse_group)]
    groups: Vec<SocketAddr>,
    /// Print JSON: one object per group, then one per finding
    #[arg(long)]
    json: bool,
}

/// Returns the interface of this name, or the only one, on which a group is to be used. Fails if the group must not be.
pub(super) fn interface_for(group: SocketAddr, name: Option<&str>) -> Result<Interface, Failure> {
    if let Some(refusal) = address::review(&[group]).refusals.first() {
        return Err(Failure::Usage(refusal.to_string()));
    }
    let interface = name.map_or_else(interface::only, interface::named);
    interface.map_err(|error| Failure::Usage(error.to_string()))
}

pub(super) fn parse_group(text: &str) -> Result<SocketAddr, String> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    text.parse()
        .or_else(|_| bare.parse::<IpAddr>().map(|address| SocketAddr::new(address, DEFAULT_PORT)))
        .map_err(|_| {
            format!("{text:?} is no address: write for example {DEFAULT_GROUP} or [ff18::7]:4479")
        })
}

/// Refuses patterns that are addresses of groups, to which no messages would be sent.
pub(super) fn refuse_groups(patterns: &[String]) -> Result<(), Failure> {
    match patterns.iter().find(|pattern| parse_group(pattern).is_ok()) {
        None => Ok(()),
        Some(group) => Err(Failure::Usage(format!(
            "{group} is an address and no pattern of topics: name the group with '--group {group}'"
        ))),
    }
}

/// Prints each group and every finding. Fails if the groups cannot be used together.
pub(crate) fn run(arguments: &Address) -> Result<(), Failure> {
    let groups = match &arguments.groups[..] {
        [] => &[DEFAULT_GROUP],
        groups => groups,
    };
    let review = address::review(groups);
    let mut output = Output::new()?;
    let mut table = Table::new(&["GROUP", "SCOPE", "ETHERNET"]);
    for group in groups {
        let ip = group.ip().to_canonical();
        let scope = Scope::of_group(ip).map(|scope| scope.to_string());
        let mac = Mac::of_group(ip).map(|mac| mac.to_string());
        if arguments.json {
            output.json(&json!({ "group": group.to_string(), "scope": scope, "ethernet": mac }))?;
        } else {
            let shown = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
            table.row(vec![group.to_string(), shown(scope), shown(mac)]);
        }
    }
    if !arguments.json {
        output.table(&table)?;
    }
    let concerns = review.concerns.iter().map(|concern| ("warn", concern.to_string()));
    let refusals = review.refusals.iter().map(|refusal| ("fail", refusal.to_string()));
    for (status, message) in concerns.chain(refusals) {
        if arguments.json {
            output.json(&json!({ "status": status, "message": message }))?;
        } else {
            output.line(&format!("{status}  {message}"))?;
        }
    }
    output.flush()?;
    match review.refusals.len() {
        0 => Ok(()),
        count => Err(Failure::Failed(format!(
            "these groups cannot be used together: {}",
            human::counted(count as u64, "problem")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_no_pattern() {
        let refused = |pattern: &str| refuse_groups(&["a/**".to_owned(), pattern.to_owned()]);
        for group in ["239.192.1.7", "239.192.1.7:4479", "ff18::7", "[ff18::7]:4479"] {
            let Err(Failure::Usage(said)) = refused(group) else { panic!("{group}") };
            assert!(said.ends_with(&format!("'--group {group}'")), "{said}");
        }
        for pattern in ["239", "239.192.1", "239/*", "a/239.192.1.7", "**"] {
            assert!(refused(pattern).is_ok(), "{pattern}");
        }
    }

    #[test]
    fn a_port_is_optional() {
        for (text, wanted) in [
            ("239.1.2.3", "239.1.2.3:4479"),
            ("239.1.2.3:5", "239.1.2.3:5"),
            ("ff18::7", "[ff18::7]:4479"),
            ("[ff18::7]", "[ff18::7]:4479"),
            ("[ff18::7]:5", "[ff18::7]:5"),
        ] {
            assert_eq!(parse_group(text).unwrap().to_string(), wanted, "{text}");
        }
        for text in ["", "eth0", "239.1.2", "239.1.2.3:x", "239.1.2.3:70000", "[239.1.2.3"] {
            assert!(parse_group(text).is_err(), "{text}");
        }
    }
}
