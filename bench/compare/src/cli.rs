//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

#[derive(Parser)]
#[command(
    name = "toroni-bench",
    about = "Toroni beside other transports, and beside what the machine itself takes"
)]
#[command(after_help = "Examples:
  cargo run --release -p toroni-bench -- floors
  cargo run --release -p toroni-bench -- peers latency --quick
  cargo run --release -p toroni-bench -- peers throughput --peer aeron --peer tcp --json

bench/install-peers installs what foreign peers need; bench/README.md says how each is configured.")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// What the machine itself takes: copies, cache lines, wake-ups
    Floors {
        /// Take a few seconds
        #[arg(long)]
        quick: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Toroni and its peers, in turn in one run
    Peers(Peers),
    /// The proactor's engines, a thread-pool reactor, tokio and compio: `toroni bench proactor` with peers
    Proactor(Proactor),
    /// A process of a run
    #[command(hide = true)]
    Child,
    /// The second process of a floor
    #[command(hide = true)]
    FloorPartner { kind: String, board: PathBuf, core: Option<usize> },
}

#[derive(Args)]
pub(crate) struct Peers {
    /// What to measure [default: all three]
    #[arg(value_enum)]
    pub(crate) workloads: Vec<Workload>,
    /// Only these, beside Toroni; may be given several times [default: all]
    #[arg(long = "peer", value_name = "NAME")]
    pub(crate) peers: Vec<String>,
    /// Take a few minutes in place of an hour: fewer sizes and repetitions, shorter runs
    #[arg(long)]
    pub(crate) quick: bool,
    /// Runs of each cell [default: 5, with --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repetitions: Option<u32>,
    /// Bytes of a message; may be given several times [default: 8, 64, 256, 1024 and 65536,
    /// with --quick 8 and 1024; latency and many leave out the others than 8, 64 and 1024]
    #[arg(long = "size", value_name = "BYTES", value_parser = parse_size)]
    pub(crate) sizes: Vec<usize>,
    /// How to wait [default: both]
    #[arg(long, value_enum)]
    pub(crate) wait: Option<WaitKind>,
    /// Where the packages of the foreign peers are
    #[arg(long, value_name = "DIRECTORY", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../peers"))]
    pub(crate) peers_directory: PathBuf,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args)]
pub(crate) struct Proactor {
    /// Take some seconds, once the peers are built: shorter runs, once each, of five rows
    #[arg(long, conflicts_with = "full")]
    pub(crate) quick: bool,
    /// Runs as long as the proactor paper's
    #[arg(long)]
    pub(crate) full: bool,
    /// Rows of the paper's table, counted from 1 [default: all 12; five with --quick]
    #[arg(long = "rows", value_name = "N,…", value_delimiter = ',')]
    pub(crate) rows: Vec<usize>,
    /// Columns, by the names above the table [default: all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub(crate) columns: Vec<String>,
    /// Milliseconds of a run [default: 300; 100 with --quick, 1 to 5 s as in the paper with --full]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=3_600_000))]
    pub(crate) milliseconds: Option<u32>,
    /// Runs of each cell [default: 3; 1 with --quick, 5 with --full]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repetitions: Option<u32>,
    /// Where the packages of the foreign peers are
    #[arg(long, value_name = "DIRECTORY", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../peers"))]
    pub(crate) peers_directory: PathBuf,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// Messages a second, 1 → 1 and 1 → 4
    Throughput,
    /// A message there and back
    Latency,
    /// 4 → 4, with the common order checked
    Many,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WaitKind {
    /// Polling, with yields
    Busy,
    /// Each transport's own blocking call
    Blocking,
}

#[derive(Args)]
pub(crate) struct Output {
    /// Print JSON objects, one a line: the report, each cell, each goal
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw charts into this file, as SVG; with several workloads into one file each
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}

/// A payload carries its number in its first 8 bytes.
fn parse_size(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(size @ 8..=1_048_576) => Ok(size),
        _ => Err("take a number of bytes from 8 to 1048576".to_owned()),
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
        assert!(parsed.is_err(), "7 bytes have no room for the number");
    }
}
