//! The command line: what each command takes, with an example for each.

#[cfg(feature = "bench")]
use crate::commands::bench::options::Bench;
use crate::commands::subscribe::template::Template;
use crate::complete;
use crate::exits;
use crate::human::{parse_bytes, parse_interval, parse_mode, parse_rate};
use crate::settings::{parse_lock, parse_notify, parse_policy};
use clap::builder::Resettable;
use clap::{Args, ColorChoice, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::ArgValueCompleter;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use toroni::{LockKind, NotifyKind, Policy, Start, WaitStrategy};

/// A message bus for the processes of one Linux machine, without a broker.
#[derive(Parser)]
#[command(name = "toroni", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "Examples:
  toroni demo                                 see it at work
  toroni sub 'plant/**'                       print what is published below plant
  toroni pub plant/boiler/temperature 351.2   publish a message")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) location: BusLocation,
    /// Color failures and losses; auto: on a terminal, unless NO_COLOR is set
    // `note::choice_in` reads it, before anything is parsed.
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        help_heading = "Output"
    )]
    color: ColorChoice,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Which bus.
#[derive(Args, Clone)]
pub(crate) struct BusLocation {
    /// Name of the bus
    #[arg(
        short,
        long,
        global = true,
        value_name = "NAME",
        env = "TORONI_BUS",
        default_value = "default",
        help_heading = "Which bus",
        add = ArgValueCompleter::new(complete::buses)
    )]
    pub(crate) bus: String,
    /// Directory of all buses [default: /dev/shm/toroni]
    #[arg(long, global = true, value_name = "DIR", env = "TORONI_DIR", help_heading = "Which bus")]
    pub(crate) dir: Option<PathBuf>,
}

/// The commands without a bus, or with one of their own: `--bus` means nothing there.
const WITHOUT_BUS: [&str; 8] =
    ["bench", "completions", "create", "demo", "doctor", "ls", "man", "rm"];
/// Those that look at no directory either.
const WITHOUT_DIR: [&str; 2] = ["completions", "man"];

/// The definitions of all commands, with their exit codes. `--bus` and `--dir` are shown only where they mean
/// something.
pub(crate) fn definitions() -> clap::Command {
    let mut program =
        with_exit_codes(Cli::command(), &exits::overview()).mut_subcommands(|command| {
            match exits::of(command.get_name()) {
                Some(codes) => with_exit_codes(command, &codes),
                None => command,
            }
        });
    for (option, variable) in [("bus", "TORONI_BUS"), ("dir", "TORONI_DIR")] {
        // As in the library, a variable that is set to nothing is not set.
        if std::env::var_os(variable).is_some_and(|value| value.is_empty()) {
            program = program.mut_arg(option, |known| known.env(Resettable::Reset));
        }
    }
    for (option, commands) in [("bus", &WITHOUT_BUS[..]), ("dir", &WITHOUT_DIR[..])] {
        let Some(shown) = program.get_arguments().find(|known| known.get_id() == option) else {
            continue;
        };
        // A command's own definition goes before the global one.
        let hidden = shown.clone().hide(true);
        // Not `mut_subcommand`, which puts the command behind all others.
        program = program.mut_subcommands(|command| {
            if commands.contains(&command.get_name()) { command.arg(&hidden) } else { command }
        });
    }
    program
}

fn with_exit_codes(command: clap::Command, codes: &str) -> clap::Command {
    let notes = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    command.after_help(format!("{notes}\n\nExit codes:\n{codes}"))
}

/// Whether a command looks at no directory of buses.
pub(crate) fn is_without_directory(command: &str) -> bool {
    WITHOUT_DIR.contains(&command)
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Start publishers and subscribers, kill one, and check what arrived
    Demo(Demo),
    /// Publish a message, or each line of standard input
    #[command(name = "pub")]
    Publish(Publish),
    /// Print messages as they arrive
    #[command(name = "sub", visible_alias = "echo")]
    Subscribe(Subscribe),
    /// Show rate, jitter, bandwidth and size per topic, live
    Hz(Hz),
    /// Create a bus with settings of your own
    Create(Create),
    /// List the buses
    #[command(
        name = "ls",
        after_help = "Example:
  toroni --dir /mnt/buses ls --json | jq -r .name"
    )]
    List(List),
    /// Show one bus: its header, its participants, who lags, who lost what
    #[command(after_help = "Example:
  toroni info plant --json | jq '.subscribers[] | {name, pid, lag_bytes, lost_messages}'")]
    Info(Info),
    /// Show the topics of a bus, with counts within the retained ring, and who subscribes to each
    Topics(Topics),
    /// Check this machine, and say how to mend each finding
    #[command(after_help = "Example:
  toroni doctor --json | jq 'select(.status != \"ok\")'")]
    Doctor(List),
    /// Remove buses that nobody has open
    #[command(name = "rm")]
    Remove(Remove),
    /// Free what the dead left behind; remove buses that nobody made on purpose and nobody has open
    Clean(Clean),
    /// Measure this machine: throughput, latency, stress, fan-out, scale, the proactor, and beside TCP and others
    #[cfg(feature = "bench")]
    Bench(Bench),
    /// Print the completions for a shell
    Completions(Completions),
    /// Print a manual page
    Man(Man),
    /// A publishing process of the demo
    #[command(hide = true)]
    DemoPublisher(DemoChild),
    /// A subscribing process of the demo
    #[command(hide = true)]
    DemoSubscriber(DemoChild),
}

#[derive(Args)]
#[command(after_help = "Example:
  toroni demo --publishers 2 --subscribers 6 --messages 5000000

All subscribers must see one identical order and lose nothing, although one publisher more than \
asked for is killed with SIGKILL on the way. The bus is the demo's own and is removed at the end.")]
pub(crate) struct Demo {
    /// Publishing processes that survive
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) publishers: u16,
    /// Subscribing processes
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) subscribers: u16,
    /// Messages of all surviving publishers together
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) messages: u64,
    /// Bytes of a message, at least 16: publisher, number and time stand in them
    #[arg(long, value_name = "BYTES", default_value = "16", value_parser = parse_bytes)]
    pub(crate) size: u64,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct DemoChild {
    /// Number of the process within its kind
    #[arg(long)]
    pub(crate) index: u16,
    /// Bytes of a message
    #[arg(long)]
    pub(crate) size: u64,
}

#[derive(Args)]
#[command(after_help = "Examples:
  toroni pub plant/boiler/temperature 351.2
  vmstat 1 | toroni pub host/vmstat                  each line is a message
  toroni pub load/test --size 1KiB --repeat 100000 --rate 10k/s
  toroni pub firmware --file image.bin --chunk 64KiB --wait-subscribers 1
  find /etc -print0 | toroni pub -0 files            each name is a message
  toroni -b a sub --json | toroni -b b pub --json    copy all topics of bus a to bus b

--json reads what sub --json writes: one object a line, with topic, payload, encoding (base64, or left out \
for text) and to_descendants. It reports losses in the input on standard error and ignores all other fields.")]
pub(crate) struct Publish {
    /// Topic, as in plant/boiler/temperature
    #[arg(required_unless_present = "json", add = ArgValueCompleter::new(complete::topics))]
    pub(crate) topic: Option<String>,
    /// The message; without it, and without --size, --raw, --file and --json, each line of standard input
    #[arg(allow_negative_numbers = true, conflicts_with_all = ["size", "raw", "file"])]
    pub(crate) message: Option<OsString>,
    /// Publish the message so many times; needs MESSAGE or --size
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with_all = ["raw", "file"])]
    pub(crate) repeat: Option<u64>,
    /// Make messages of so many bytes, with a counter at their start
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, conflicts_with_all = ["raw", "file"])]
    pub(crate) size: Option<u64>,
    /// Messages per second, as in 500/s, 10k/s or 30/min [default: as fast as possible]
    #[arg(long, value_name = "R/s", value_parser = parse_rate)]
    pub(crate) rate: Option<f64>,
    /// Publish so many messages at once: all of a batch become visible together
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) batch: u32,
    /// Deliver to the subscribers of the topic and of everything below it
    #[arg(long)]
    pub(crate) to_descendants: bool,
    /// Start once this many subscribers have a pattern that matches the topic
    #[arg(long, value_name = "N")]
    pub(crate) wait_subscribers: Option<u32>,
    /// All of standard input is one message
    #[arg(long, conflicts_with = "file")]
    pub(crate) raw: bool,
    /// Messages of standard input end with a NUL byte instead of a line feed, as `sub -0` prints them
    #[arg(short = '0', long, conflicts_with_all = ["message", "size", "raw", "file"])]
    pub(crate) null: bool,
    /// Read messages with their topics from standard input, as `sub --json` prints them
    #[arg(long, conflicts_with_all = ["topic", "message", "repeat", "size", "batch", "to_descendants", "raw", "null", "file"])]
    pub(crate) json: bool,
    /// With --json, end with exit code 3 at the first loss in the input
    #[arg(long)]
    pub(crate) strict: bool,
    /// Publish the content of a file
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Bytes of the file in a message
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "64KiB", requires = "file")]
    pub(crate) chunk: u64,
    /// Stamp each message with the time
    #[arg(long)]
    pub(crate) timestamps: bool,
    /// Name of this participant in `toroni info`
    #[arg(long, value_name = "NAME", default_value = "toroni-pub")]
    pub(crate) name: String,
    /// Print a summary at the end as a JSON object
    #[arg(long)]
    pub(crate) summary: bool,
    /// Show no progress, and do not report losses in the input
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Report on standard error, at the end, how much was published
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

#[derive(Args)]
#[command(after_help = "Examples:
  toroni sub                                         everything on the bus
  toroni sub 'plant/**' '*/alarm'                    * is one segment, ** any number
  toroni sub --json --from oldest --count 10 | jq .payload
  toroni sub --last 5 -n 5 -t 1s 'alarm/**'          the newest five that the ring still has
  toroni sub -F '%T %t %l' 'plant/**'                time, topic and size of each message
  toroni sub --json | toroni -b copy pub --json      copy all topics to the bus copy
  toroni sub --strict > capture                      exit code 3 at the first loss

If the bus does not exist, sub waits until somebody makes it, and then begins with its first message.
Text is printed as topic, tab, payload. With --json, losses are objects with the field lost at \
their place in the output; otherwise they are reported on standard error.

Letters of --template:
  %t  topic
  %p  payload
  %x  payload in hexadecimal digits
  %b  payload in base64
  %l  bytes of the payload
  %s  sequence number
  %o  position in the stream
  %T  publisher's time (RFC 3339, UTC), or -
  %n  the same in nanoseconds since 1970, or -
  %d  1 if posted to descendants, else 0
  %%  a percent sign

A line feed follows each message (a NUL with -0). \\n, \\t, \\r, \\e, \\0, \\xHH and \\\\ are bytes.")]
pub(crate) struct Subscribe {
    /// What to print, as in plant/** [default: **]
    #[arg(value_name = "PATTERN", hide_default_value = true, default_value = "**", add = ArgValueCompleter::new(complete::topics))]
    pub(crate) patterns: Vec<String>,
    /// End after so many messages
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// How to print a message
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// The same as --format json: one object a line
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
    /// Print each message in this form, with letters such as %t and %p; see below
    #[arg(short = 'F', long, value_name = "TEMPLATE", value_parser = Template::parse, conflicts_with_all = ["format", "json", "payload_only"])]
    pub(crate) template: Option<Template>,
    /// End each message with a NUL byte instead of a line feed, as `pub -0` reads it
    #[arg(short = '0', long, conflicts_with = "json")]
    pub(crate) null: bool,
    /// Leave out the topic
    #[arg(long)]
    pub(crate) payload_only: bool,
    /// Where to start: latest, oldest, or a position printed by --json
    #[arg(long, value_name = "START", default_value = "latest", value_parser = parse_start)]
    pub(crate) from: Start,
    /// Start with the newest N matching messages that are still in the ring, then continue with new ones
    #[arg(long, value_name = "N", conflicts_with = "from")]
    pub(crate) last: Option<u64>,
    /// Never make a publisher wait; lose messages instead
    #[arg(long)]
    pub(crate) no_gate: bool,
    /// Make the bus with the default settings if it does not exist, instead of waiting for it
    #[arg(long)]
    pub(crate) create: bool,
    /// End with exit code 3 at the first loss
    #[arg(long)]
    pub(crate) strict: bool,
    /// How to wait for messages
    #[arg(long, value_enum, default_value_t = Wait::Backoff)]
    pub(crate) wait: Wait,
    /// End after so many seconds without a message
    #[arg(short, long, value_name = "S", value_parser = parse_interval)]
    pub(crate) timeout: Option<Duration>,
    /// Do not report losses on standard error
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Report on standard error what it subscribes to, and at the end how much it printed
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Write a line to this inherited descriptor once subscribed
    #[arg(long, value_name = "FD")]
    pub(crate) ready_fd: Option<i32>,
    /// Name of this participant in `toroni info`
    #[arg(long, value_name = "NAME", default_value = "toroni-sub")]
    pub(crate) name: String,
}

#[derive(Args)]
#[command(after_help = "Example:
  toroni hz 'plant/**' --interval 5

JITTER is the standard deviation of the times between two messages of a topic, and LONGEST GAP is \
the longest of these times, both within the interval. They are measured when hz receives the messages.

The bus must exist. It watches without gating: publishers never wait for it; what it missed is counted as lost.")]
pub(crate) struct Hz {
    /// What to count, as in plant/** [default: **]
    #[arg(value_name = "PATTERN", hide_default_value = true, default_value = "**", add = ArgValueCompleter::new(complete::topics))]
    pub(crate) patterns: Vec<String>,
    /// Seconds between two reports
    #[arg(long, value_name = "S", default_value = "1", value_parser = parse_interval)]
    pub(crate) interval: Duration,
    /// End after so many reports
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// Print each report as a JSON object on a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
#[command(after_help = "Examples:
  toroni create plant --capacity 64MiB --policy wait:forever
  toroni create ticks --policy overwrite --readers traders --mode 0640
  toroni create pod --lock lease --notify multicast:239.255.1.2:5000
  toroni create plant --if-absent --capacity 64MiB     again, in a script

The bus stays until `toroni rm NAME` removes it, unless it is --temporary.")]
pub(crate) struct Create {
    /// Name of the new bus
    pub(crate) name: String,
    /// Bytes of the ring: a power of two from 64KiB to 1TiB [default: 4MiB]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) capacity: Option<u64>,
    /// Subscribers at the same time, at most 1024 [default: 128]
    #[arg(long, value_name = "N")]
    pub(crate) max_subscribers: Option<u32>,
    /// Publishing processes at the same time, at most 1024 [default: 128]
    #[arg(long, value_name = "N")]
    pub(crate) max_publishers: Option<u32>,
    /// When a subscriber is slow: wait[:LIMIT|:forever], overwrite, bounded:BUDGET/PER [default: wait:100ms]
    #[arg(long, value_parser = parse_policy)]
    pub(crate) policy: Option<Policy>,
    /// How publishers exclude one another: lease (works across containers) or robust [default: lease]
    #[arg(long, value_name = "KIND", value_parser = parse_lock)]
    pub(crate) lock: Option<LockKind>,
    /// Group that may publish, by name or number
    #[arg(long, value_name = "GROUP")]
    pub(crate) writers: Option<String>,
    /// Group that may subscribe, by name or number
    #[arg(long, value_name = "GROUP")]
    pub(crate) readers: Option<String>,
    /// File mode in octal [default: what the umask leaves, without classes that may only read or only write]
    #[arg(long, value_parser = parse_mode)]
    pub(crate) mode: Option<u32>,
    /// Put the ring on huge pages
    #[arg(long)]
    pub(crate) huge_pages: bool,
    /// How subscribers are woken: futex, datagram, multicast[:GROUP:PORT] [default: futex]
    #[arg(long, value_name = "KIND", value_parser = parse_notify)]
    pub(crate) notify: Option<NotifyKind>,
    /// Let `toroni clean` remove the bus when nobody has it open
    #[arg(long)]
    pub(crate) temporary: bool,
    /// Succeed if the bus exists and has the settings that are given here
    #[arg(long)]
    pub(crate) if_absent: bool,
    /// Bytes for the names of topics [default: 1MiB]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) topic_table: Option<u64>,
    /// Print the new bus as a JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of the commands that only list something.
#[derive(Args)]
pub(crate) struct List {
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `topics`.
#[derive(Args)]
#[command(after_help = "Examples:
  toroni -b plant topics 'boiler/**'
  toroni topics --json | jq -r 'select(.messages > 100) | .topic'")]
pub(crate) struct Topics {
    /// What to show, as in plant/** [default: **]
    #[arg(value_name = "PATTERN", hide_default_value = true, default_value = "**", add = ArgValueCompleter::new(complete::topics))]
    pub(crate) patterns: Vec<String>,
    /// Print JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `info`.
#[derive(Args)]
pub(crate) struct Info {
    /// Name of the bus [default: that of --bus]
    #[arg(add = ArgValueCompleter::new(complete::buses))]
    pub(crate) name: Option<String>,
    /// Print JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
#[command(after_help = "Example:
  toroni rm plant ticks

A bus that somebody has open is not removed.")]
pub(crate) struct Remove {
    /// Names of the buses
    #[arg(required = true, add = ArgValueCompleter::new(complete::buses))]
    pub(crate) names: Vec<String>,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
#[command(after_help = "Examples:
  toroni clean --dry-run    what would be done
  toroni clean plant        only the bus plant
  toroni clean --all        also buses that were made on purpose; asks first

A bus that was made on purpose, with `toroni create` or as persistent by a program, stays: remove it with \
`toroni rm NAME` or with --all. A bus that somebody has open is never removed. One whose header is damaged \
cannot say how it was made: it is removed only by its name.")]
pub(crate) struct Clean {
    /// Only this bus [default: all of the directory]
    #[arg(add = ArgValueCompleter::new(complete::buses))]
    pub(crate) name: Option<String>,
    /// Also remove buses that were made on purpose, if nobody has them open
    #[arg(long, conflicts_with = "name")]
    pub(crate) all: bool,
    /// Do not ask before --all; needed where there is no terminal
    #[arg(long, requires = "all")]
    pub(crate) yes: bool,
    /// Show what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
#[command(after_help = "Examples:
  toroni completions bash > ~/.local/share/bash-completion/completions/toroni
  toroni completions zsh > ~/.zfunc/_toroni
  toroni completions fish > ~/.config/fish/completions/toroni.fish

On Tab the shell calls this program, so it also offers the buses that exist and the topics of the bus. \
Print the script again after an upgrade of the program.")]
pub(crate) struct Completions {
    /// Which shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Args)]
#[command(after_help = "Examples:
  toroni man | man -l -
  toroni man sub | man -l -
  toroni man --to /usr/local/share/man/man1")]
pub(crate) struct Man {
    /// The command to describe [default: the program itself]
    #[arg(conflicts_with = "to")]
    pub(crate) command: Option<String>,
    /// Write the pages of all commands into this directory, which is made if it is not there
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) to: Option<PathBuf>,
}

/// How `sub` prints a message.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Topic, tab, payload, line feed
    Text,
    /// Topic, tab, payload in hexadecimal digits, line feed
    Hex,
    /// The payload and nothing else
    Raw,
    /// An object with topic, position, sequence, length and payload
    Json,
}

/// How `sub` waits.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Wait {
    /// Poll without a pause: lowest latency, a whole processor
    Spin,
    /// Poll, and let others run in between
    Yield,
    /// Poll for a short time, then sleep
    Backoff,
    /// Sleep at once
    Block,
}

impl From<Wait> for WaitStrategy {
    fn from(wait: Wait) -> Self {
        match wait {
            Wait::Spin => Self::Spin,
            Wait::Yield => Self::Yield,
            Wait::Backoff => Self::Backoff,
            Wait::Block => Self::Block,
        }
    }
}

fn parse_start(text: &str) -> Result<Start, String> {
    match text {
        "latest" => Ok(Start::Latest),
        "oldest" => Ok(Start::Oldest),
        position => position
            .parse()
            .map(Start::Position)
            .map_err(|_| "write latest, oldest, or the position of a message".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_fit_together() {
        definitions().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        for command in definitions().get_subcommands().filter(|c| !c.is_hide_set()) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let wanted = format!("toroni {}", command.get_name());
            assert!(
                help.starts_with("Example") && help.contains(command.get_name()),
                "{wanted} has no example"
            );
        }
    }

    #[test]
    fn starts_are_parsed() {
        assert!(matches!(parse_start("latest"), Ok(Start::Latest)));
        assert!(matches!(parse_start("oldest"), Ok(Start::Oldest)));
        assert!(matches!(parse_start("4096"), Ok(Start::Position(4096))));
        assert!(parse_start("-1").is_err());
        assert!(parse_start("newest").is_err());
    }
}
