//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use toroni_bench_harness::experiment::connections;
use toroni_bench_harness::options::Output;

use crate::net::Net;
use crate::sequencer::{Sequencer, SequencerMember};

#[derive(Parser)]
#[command(
    name = "toroni-bench",
    about = "Compare Toroni with other transports, and with the floors of the machine"
)]
#[command(after_help = "Examples:
  cargo run --release -p toroni-bench -- floors
  cargo run --release -p toroni-bench -- machines
  cargo run --release -p toroni-bench -- net crybaby --quick
  cargo run --release -p toroni-bench -- sequencer --seconds 5
  cargo run --release -p toroni-bench -- peers latency --quick
  cargo run --release -p toroni-bench -- peers throughput --peer aeron --peer tcp --json

bench/install-peers installs what the foreign peers need; bench/README.md says how each is configured.")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Measure the floors of the machine: copies, cache lines, wake-ups
    Floors {
        /// Finish in a few seconds
        #[arg(long)]
        quick: bool,
        /// Print JSON, one object per line: the report, each cell
        #[arg(long)]
        json: bool,
    },
    /// Measure the network protocol alone, without sockets: packing, delivering, repairing
    Machines {
        /// Finish in a few seconds
        #[arg(long)]
        quick: bool,
        /// Print JSON, one object per line: the report, each cell, each goal
        #[arg(long)]
        json: bool,
    },
    /// Measure Toroni and its peers, in turn in one run
    Peers(Peers),
    /// Measure the proactor's engines, a thread-pool reactor, tokio and compio: `toroni bench proactor` with peers
    Proactor(ProactorWithPeers),
    /// Measure the protocol between hosts, which are network namespaces, beside plain datagrams. Needs root
    Net(Net),
    /// Measure the sequencer beside a TCP connection and NATS JetStream, all on this host
    Sequencer(Sequencer),
    /// Run a member of the sequencer
    #[command(hide = true)]
    SequencerMember(SequencerMember),
    /// Run a child process of a run
    #[command(hide = true)]
    Child,
    /// Run the second process of a floor
    #[command(hide = true)]
    FloorPartner { kind: String, pages: PathBuf, core: Option<usize> },
}

#[derive(Args)]
pub(crate) struct Peers {
    /// What to measure [default: all three]
    #[arg(value_enum)]
    pub(crate) workloads: Vec<Workload>,
    /// Compare Toroni only with this peer; may be given several times [default: all]
    #[arg(long = "peer", value_name = "NAME")]
    pub(crate) peers: Vec<String>,
    /// Finish in a few minutes instead of an hour: fewer sizes and repetitions, shorter runs
    #[arg(long)]
    pub(crate) quick: bool,
    /// Number of runs of each cell [default: 5; 3 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repetitions: Option<u32>,
    /// Bytes of a message; may be given several times [default: 8, 64, 256, 1024 and 65536,
    /// with --quick 8 and 1024; latency and many use only 8, 64 and 1024 of them]
    #[arg(long = "size", value_name = "BYTES", value_parser = parse_size)]
    pub(crate) sizes: Vec<usize>,
    /// How ends wait [default: both]
    #[arg(long, value_enum)]
    pub(crate) wait: Option<WaitKind>,
    /// Directory of the packages of the foreign peers
    #[arg(long, value_name = "DIRECTORY", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../peers"))]
    pub(crate) peers_directory: PathBuf,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args)]
pub(crate) struct ProactorWithPeers {
    #[command(flatten)]
    pub(crate) measured: connections::Proactor,
    /// Directory of the packages of the foreign peers
    #[arg(long, value_name = "DIRECTORY", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../peers"))]
    pub(crate) peers_directory: PathBuf,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// Messages per second, 1 → 1 and 1 → 4
    Throughput,
    /// A message there and back
    Latency,
    /// 4 → 4, with a check of the common order; its report has no chart
    Many,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WaitKind {
    /// Polling, with yields
    Busy,
    /// Each transport's own blocking call
    Blocking,
}

impl Peers {
    /// Returns the workloads to be measured.
    pub(crate) fn wanted(&self) -> &[Workload] {
        if self.workloads.is_empty() { Workload::value_variants() } else { &self.workloads }
    }
}

impl Workload {
    /// Names its report.
    pub(crate) fn report(self) -> &'static str {
        match self {
            Self::Throughput => "peers-throughput",
            Self::Latency => "peers-latency",
            Self::Many => "peers-many",
        }
    }

    pub(crate) fn has_chart(self) -> bool {
        self != Self::Many
    }
}

/// A payload contains its number in its first 8 bytes.
fn parse_size(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(size @ 8..=1_048_576) => Ok(size),
        _ => Err("use a number of bytes from 8 to 1048576".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
        let parsed = Arguments::try_parse_from(["toroni-bench", "peers", "--size", "7"]);
        assert!(parsed.is_err(), "7 bytes have no space for the number");
    }
}
