//! `toroni net …`: what several hosts need to know before they talk to one another.

mod address;
mod buffer;
mod latency;
mod membership;
mod nodes;
mod probe;
mod receive;
mod replay;
mod screen;
mod send;

use clap::{Args, Subcommand};
use toroni_net::node::config::units::Quantity;
use toroni_shell::failure::Failure;
use toroni_shell::location::BusLocation;

#[derive(Args)]
#[command(after_help = "Examples:
  toroni net send 'plant/**' --rate 100Mbit/s  send messages of a bus to other hosts
  toroni net receive                          print them there, and bring them to a bus
  toroni net replay --source line-3 --from 7  messages of another host from number 7 on
  toroni net nodes --realm plant              which nodes send here, and what?
  toroni net probe                            which hosts hear one another? on each at once
  toroni net latency --realm plant            how long do datagrams take to this host?
  toroni net buffer --rate 200Mbit/s          how large must the receive buffer be?
  toroni net address 239.192.84.79 239.0.0.7  which groups are safe to use?")]
pub(crate) struct Net {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Send messages of the bus to other hosts, without a file
    Send(send::Send),
    /// Bring messages of other hosts to the bus, and print them, without a file
    Receive(receive::Receive),
    /// Print history of a stream by number, or bring it to a bus
    Replay(replay::Replay),
    /// List the nodes that send to a multicast group, and their streams
    Nodes(nodes::NodesOf),
    /// Find out which hosts hear one another in a multicast group, and how well
    Probe(probe::Probe),
    /// Measure how long the datagrams of running streams take to this host, one way
    Latency(latency::Latency),
    /// Calculate the receive buffer for a rate, or how long a buffer lasts
    Buffer(buffer::Buffer),
    /// Check multicast groups: scope, Ethernet address, what overlaps, what floods
    Address(address::Address),
}

/// Runs one of the commands below `net`.
pub(crate) fn run(location: &BusLocation, arguments: &Net) -> Result<(), Failure> {
    match &arguments.command {
        Command::Send(arguments) => send::run(location, arguments),
        Command::Receive(arguments) => receive::run(location, arguments),
        Command::Replay(arguments) => replay::run(location, arguments),
        Command::Nodes(arguments) => nodes::run(arguments),
        Command::Probe(arguments) => probe::run(arguments),
        Command::Latency(arguments) => latency::run(arguments),
        Command::Buffer(arguments) => buffer::run(arguments),
        Command::Address(arguments) => address::run(arguments),
    }
}

/// Parses a rate as in the file of a node.
pub(crate) fn parse_bit_rate(text: &str) -> Result<u64, String> {
    match Quantity::Rate.parse(text) {
        Some(0) => Err("a rate must be above 0".to_owned()),
        Some(rate) => Ok(rate),
        None => Err(format!("write {}", Quantity::Rate.expected())),
    }
}
