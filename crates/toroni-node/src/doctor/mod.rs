//! `toroni node doctor`: whether this host is set up for messages between hosts, and suits a node.

mod hosts;
mod node;

use crate::net::parse_bit_rate;
use clap::{Args, ValueHint};
use std::path::PathBuf;
use toroni_shell::failure::Failure;
use toroni_shell::finding::{self, Finding};

#[derive(Args)]
#[command(after_help = "Examples:
  toroni node doctor --rate 200Mbit/s      what several hosts need
  toroni node doctor node.toml             what the node of this file needs
  toroni node doctor --json | jq 'select(.status != \"ok\")'

It checks what multicast between hosts needs: buffers, drops, interfaces, network cards, the clock. With a file it also checks \
whether this host suits the node of that file, for the user who runs it. It changes nothing, and says which command would. \
`toroni doctor` checks what the bus needs.")]
pub(crate) struct Doctor {
    /// Also check what the node of this file needs, and only its interfaces
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,
    /// Show every parameter of interrupt coalescing, not only those that are set
    #[arg(long)]
    verbose: bool,
    /// Rate at which this host receives, for the check of buffers [default: 100Mbit/s; with FILE the speed of the interface]
    #[arg(long, value_name = "R", value_parser = parse_bit_rate)]
    rate: Option<u64>,
    /// Print JSON, one object per line
    #[arg(long)]
    json: bool,
}

/// Runs every check. Fails if one of them fails.
pub(crate) fn run(arguments: &Doctor) -> Result<(), Failure> {
    let wanted = arguments.config.as_deref().map(node::Wanted::read).transpose()?;
    let scope = hosts::Scope::new(arguments.rate, arguments.verbose, wanted.as_ref());
    let of_node = wanted.into_iter().map(|wanted| wanted.checks(arguments.rate));
    let checks = of_node.chain(hosts::checks(scope));
    finding::report(checks, "A node works on this host", arguments.json)
}
