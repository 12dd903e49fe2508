//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use toroni_bench_harness::experiment::{bystanders, connections};
use toroni_bench_harness::options::{Output, Root};
use toroni_bench_harness::registry::Selected;

use crate::net::Net;
use crate::peers::foreign::Packages;
use crate::sequencer::{Sequencer, SequencerMember};

#[derive(Parser)]
#[command(
    name = "toroni-bench",
    version,
    about = "Measure Toroni: alone, in published experiments, and beside other transports"
)]
#[command(after_help = "Examples:
  toroni-bench throughput --quick
  toroni-bench throughput --plot throughput.svg
  toroni-bench throughput --json | jq -c 'select(.kind == \"goal\" and .met == false)'
  toroni-bench proactor --quick --with-peers
  toroni-bench peers latency --quick
  toroni-bench peers throughput --peer aeron --peer tcp --json
  toroni-bench peers values --plot values.svg
  toroni-bench net crybaby --quick

In a checkout, `cargo run --release -p toroni-bench -- throughput --quick` builds and runs it. Where it lies beside the \
program toroni or in PATH, `toroni bench` runs it.

Each writer and each reader of a workload is a process of its own, and another process creates the bus; `proactor` measures \
connections within one process. A workload uses a bus of its own in /dev/shm (or --dir) and removes it at the end. Compare \
only ratios of results that were measured in the same run on an otherwise idle machine.

bench/install-peers installs what the foreign peers need; bench/README.md says how each is configured.

Exit codes:
  0              the measurement is complete, whether or not it met its goals
  1              failure
  2              wrong usage
  129, 130, 143  a signal (SIGHUP, SIGINT, SIGTERM) ended it before it was done")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// A workload of the harness
    #[command(flatten)]
    Workload(Selected),
    /// TCP connections on each engine of the proactor, compared with a thread-pool reactor, and with tokio and compio
    Proactor(Connections),
    /// Processor time of a message while other subscribers sleep, beside ZeroMQ, NNG, iceoryx2, Zenoh and D-Bus
    Bystanders(BesidePeers),
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
    /// Measure the protocol between hosts, which are network namespaces, beside plain datagrams. Needs root
    Net(Net),
    /// Measure the sequencer beside a TCP connection and NATS JetStream, all on this host
    Sequencer(Sequencer),
    /// Run a member of the sequencer
    #[command(hide = true)]
    SequencerMember(SequencerMember),
    /// Run the second process of a floor
    #[command(hide = true)]
    FloorPartner { kind: String, pages: PathBuf, core: Option<usize> },
}

#[derive(Args)]
pub(crate) struct Peers {
    /// What to measure [default: all four]
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
    /// with --quick 8 and 1024; latency and many use only 8, 64 and 1024 of them]. Updates of values have 64 and 1024
    /// bytes, or those of the two that are given
    #[arg(long = "size", value_name = "BYTES", value_parser = parse_size)]
    pub(crate) sizes: Vec<usize>,
    /// How ends wait [default: both]; values has no such choice
    #[arg(long, value_enum)]
    pub(crate) wait: Option<WaitKind>,
    #[command(flatten)]
    pub(crate) packages: Packages,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args)]
pub(crate) struct Connections {
    #[command(flatten)]
    pub(crate) measured: connections::Proactor,
    /// Also measure tokio and compio, which are built first. Not needed if --columns names one of their columns
    #[arg(long)]
    pub(crate) with_peers: bool,
    #[command(flatten)]
    pub(crate) packages: Packages,
    #[command(flatten)]
    pub(crate) root: Root,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args)]
#[command(after_help = "Examples:
  toroni-bench bystanders --bystanders 0,16,64 --plot bystanders.svg
  toroni-bench bystanders --with-peers --others
  toroni-bench bystanders --peer zeromq --peer dbus --same

Each subscriber is a process. The figures are those of all processes together, and of the broker of D-Bus, for each message, \
less what the same processes use while nothing is published. bench/README.md says how each peer filters topics.")]
pub(crate) struct BesidePeers {
    #[command(flatten)]
    pub(crate) measured: bystanders::Bystanders,
    /// Also measure all peers with topics, which are built first. Not needed with --peer
    #[arg(long)]
    pub(crate) with_peers: bool,
    /// Also measure this peer; may be given several times
    #[arg(long = "peer", value_name = "NAME")]
    pub(crate) peers: Vec<String>,
    #[command(flatten)]
    pub(crate) packages: Packages,
    #[command(flatten)]
    pub(crate) root: Root,
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
    /// Values that are kept: publish one, read one, join and get 500
    Values,
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
            Self::Values => "peers-values",
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
    use std::path::Path;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
        let parsed = Arguments::try_parse_from(["toroni-bench", "peers", "--size", "7"]);
        assert!(parsed.is_err(), "7 bytes have no space for the number");
    }

    #[test]
    fn the_workloads_of_the_harness_are_commands() {
        let program = Arguments::command();
        for workload in toroni_bench_harness::registry::all() {
            assert!(program.find_subcommand(workload.name).is_some(), "{}", workload.name);
        }
        let parsed = |words: &[&str]| Arguments::try_parse_from(words).unwrap().command;
        let command = parsed(&["toroni-bench", "stress", "--quick", "--plot", "x.svg"]);
        let Command::Workload(selected) = command else { panic!("it is a workload") };
        assert_eq!(selected.output.plot, Some(PathBuf::from("x.svg")));
        let command = parsed(&["toroni-bench", "proactor", "--rows", "1", "--with-peers"]);
        assert!(matches!(command, Command::Proactor(Connections { with_peers: true, .. })));
    }

    /// Every command of this program that a document or a help text names can be given as it stands there.
    #[test]
    fn documented_commands_parse() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let docs = std::fs::read_dir(root.join("docs")).unwrap().map(|page| page.unwrap().path());
        let others =
            ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md", "bench/README.md"];
        let mut found = Vec::new();
        for page in docs.chain(others.map(|page| root.join(page))).filter(|page| page.is_file()) {
            let text = std::fs::read_to_string(&page).unwrap();
            let named = spans(&text).into_iter().flat_map(|span| commands(&span));
            found.extend(named.map(|words| (page.display().to_string(), words)));
        }
        for help in helps(&Arguments::command()) {
            let examples = help.lines().filter(|line| line.starts_with("  toroni-bench "));
            found.extend(examples.flat_map(commands).map(|words| ("the help".to_owned(), words)));
        }
        for (page, words) in &found {
            let parsed = Arguments::try_parse_from(words).err();
            let wrong = parsed.filter(clap::Error::use_stderr);
            assert!(wrong.is_none(), "{page}: {}: {}", words.join(" "), wrong.unwrap());
        }
        let own = ["proactor", "bystanders", "net", "sequencer", "floors", "machines", "peers"];
        let workloads = toroni_bench_harness::registry::all().into_iter().map(|one| one.name);
        for name in workloads.chain(own) {
            let is_named = |words: &[String]| words[1] == name;
            let documented =
                found.iter().any(|(page, words)| page != "the help" && is_named(words));
            assert!(documented, "{name} is in no document");
        }
    }

    #[test]
    fn commands_are_found_in_documents() {
        let found = |text: &str| -> Vec<String> {
            let commands = spans(text).into_iter().flat_map(|span| commands(&span));
            commands.map(|words| words[1..].join("+")).collect()
        };
        assert_eq!(
            found("```console\n$ cargo run -p toroni-bench -- net --quick   # a minute\n```\n"),
            ["net+--quick"]
        );
        assert_eq!(
            found("By `chrt 1 toroni-bench peers a | b\n--quick`, or `toroni-bench x | y`."),
            ["peers+a+--quick", "peers+b+--quick", "x", "y"]
        );
        assert_eq!(found("`toroni-bench p --columns \"a b,c\nd\"`"), ["p+--columns+a b,c d"]);
        assert_eq!(found("`toroni-bench x --json | jq -c 'y'`"), ["x+--json"]);
        let none =
            "`toroni-bench`, `toroni-bench NAME`, `cargo test -p toroni-bench x`, toroni-bench y";
        assert!(found(none).is_empty());
    }

    /// Returns the commands of a text that a reader is to type, and its spans of code.
    fn spans(text: &str) -> Vec<String> {
        let typed = text.lines().filter_map(|line| line.strip_prefix("$ "));
        let mut spans: Vec<String> = typed.map(str::to_owned).collect();
        for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.contains("```")) {
            let code = paragraph.split('`').skip(1).step_by(2);
            // A span may go on in the next line.
            spans.extend(code.map(|span| span.replace('\n', " ")));
        }
        spans
    }

    /// Returns the command lines of this program in a span: one for each word of `a | b`.
    fn commands(span: &str) -> Vec<Vec<String>> {
        let Some((before, line)) = span.split_once("toroni-bench ") else { return Vec::new() };
        if before.contains("cargo") && !before.contains("cargo run") {
            return Vec::new();
        }
        let line = line.trim_start_matches("-- ").split(" | jq").next().unwrap_or_default();
        let line = line.split(" #").next().unwrap_or_default();
        let mut words = vec!["toroni-bench".to_owned()];
        // Between quotation marks, spaces do not separate words.
        for (number, part) in line.split(['"', '\'']).enumerate() {
            match number % 2 {
                0 => words.extend(part.split_whitespace().map(str::to_owned)),
                _ => words.push(part.to_owned()),
            }
        }
        let is_bar = |word: &String| word == "|";
        let bars = || words.iter().enumerate().filter(|(_, word)| is_bar(word)).map(|(at, _)| at);
        match (bars().next(), bars().next_back()) {
            _ if words.get(1).is_none_or(|word| word == "NAME") => Vec::new(),
            (Some(first), Some(last)) => {
                let (before, rest) = words.split_at(first - 1);
                let (names, after) = rest.split_at(last + 3 - first);
                let names = names.iter().filter(|word| !is_bar(word));
                names.map(|name| [before, std::slice::from_ref(name), after].concat()).collect()
            }
            _ => vec![words],
        }
    }

    fn helps(command: &clap::Command) -> Vec<String> {
        let own = command.get_after_help().map(ToString::to_string);
        own.into_iter().chain(command.get_subcommands().flat_map(helps)).collect()
    }
}
