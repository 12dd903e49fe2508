//! The command line.

use clap::{Parser, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Connect a bus to other machines over Zenoh
#[derive(Parser, Debug)]
#[command(name = "toroni zenoh", bin_name = "toroni zenoh", version, arg_required_else_help = true)]
#[command(args_conflicts_with_subcommands = true, subcommand_precedence_over_arg = true)]
#[command(after_help = "Examples:
  toroni zenoh --export 'plant/**'                   on one machine,
  toroni zenoh --import 'plant/**'                   and on another in the same network
  toroni zenoh --import '**' --connect tcp/10.0.0.2:7447
  toroni zenoh check bridge.toml
  toroni zenoh --config bridge.toml

SIGINT and SIGTERM end it in order. SIGUSR1 writes its counters to the log. SIGHUP does not load the file again: \
restart the bridge instead. docs/zenoh.md is the guide.

Environment:
  TORONI_BUS   name of the bus, if neither --bus nor the file names one
  TORONI_DIR   directory of the buses, if neither --dir nor the file names one
  TORONI_LOG   what is logged, for example debug, or warn,toroni_zenoh=debug [default: info, and warn for Zenoh]

Exit codes:
  0  a signal ended it, or check found nothing that is refused
  1  failure
  2  wrong usage, or the configuration is refused")]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE",
        conflicts_with_all = ["exports", "imports", "prefix", "connect", "listen", "bus", "dir", "history"])]
    pub(crate) config: Option<PathBuf>,
    /// Send the messages of these topics; repeatable
    #[arg(long = "export", value_name = "PATTERN")]
    pub(crate) exports: Vec<String>,
    /// Receive the messages of these topics; repeatable
    #[arg(long = "import", value_name = "PATTERN")]
    pub(crate) imports: Vec<String>,
    /// What stands in front of the topic in Zenoh's keys
    #[arg(long, value_name = "KEY", default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    /// Exports answer queries for earlier messages, and imports ask for the newest ones when they join
    #[arg(long)]
    pub(crate) history: bool,
    /// Connect to this endpoint of Zenoh, such as tcp/10.0.0.2:7447; repeatable
    #[arg(long, value_name = "ENDPOINT")]
    pub(crate) connect: Vec<String>,
    /// Listen on this endpoint of Zenoh, such as tcp/0.0.0.0:7447; repeatable [default: any free TCP port]
    #[arg(long, value_name = "ENDPOINT")]
    pub(crate) listen: Vec<String>,
    /// Name of the bus [default: default]
    // The variable is read in `file`, because it does not override a file.
    #[arg(short, long, value_name = "NAME")]
    pub(crate) bus: Option<String>,
    /// Directory that contains the buses [default: /dev/shm/toroni]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Serve metrics by HTTP, for example on 127.0.0.1:9480
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Format of the log, on standard error
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub(crate) log: Option<LogFormat>,
    /// When the bridge works, write a line to this inherited file descriptor
    #[arg(long, value_name = "N")]
    pub(crate) ready_fd: Option<u32>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Check a configuration file; print what it means, and everything that is wrong
    #[command(after_help = "Example:
  toroni zenoh check bridge.toml

Exit codes:
  0  the bridge would start with it; there may be warnings
  1  the file cannot be read
  2  the bridge would refuse it")]
    Check {
        /// The file
        file: PathBuf,
    },
    /// Measure from bus to bus over Zenoh, beside plain Zenoh with the same payloads
    #[command(after_help = "Example:
  toroni zenoh bench --rounds 5

All are measured in turn, in this process, over TCP on the loopback interface.
Last, a bridge in another process is stopped, and what another one still gets
is measured.")]
    Bench(Bench),
}

/// The options of the benchmark.
#[derive(clap::Args, Debug)]
pub(crate) struct Bench {
    /// How often each is measured; the table has the medians
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) rounds: usize,
    /// About how long one measurement of throughput takes
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub(crate) seconds: f64,
    /// Measure payloads of this many bytes only; may be repeated
    #[arg(long = "size", value_name = "BYTES", default_values_t = [64, 1 << 10, 64 << 10])]
    pub(crate) sizes: Vec<usize>,
    /// Measure this only, as for a profile; may be repeated
    #[arg(long = "way", value_name = "WAY", value_enum,
        default_values_t = [Way::Plain, Way::Attached, Way::Samples, Way::Batches, Way::Stopped])]
    pub(crate) ways: Vec<Way>,
}

/// What the benchmark measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// Zenoh without bridges
    Plain,
    /// Zenoh without bridges, but with attachments and timestamps as bridges send them
    Attached,
    /// Bridges with a sample for each message
    Samples,
    /// Bridges with batches
    Batches,
    /// Bridges, one of which is stopped
    Stopped,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    /// A line of text
    #[default]
    Text,
    /// A JSON object per line
    Json,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definitions_are_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn a_file_excludes_what_it_could_contain() {
        for other in ["--export", "--import", "--prefix", "--connect", "--listen", "--bus", "--dir"]
        {
            let words = ["toroni-zenoh", "--config", "f", other, "x"];
            assert!(Options::try_parse_from(words).is_err(), "{other}");
        }
        let words = ["toroni-zenoh", "--config", "f", "--metrics", "127.0.0.1:0", "--log", "json"];
        assert!(Options::try_parse_from(words).is_ok());
    }
}
