//! The options of `toroni sub`.

use clap::{Args, ValueEnum};
use clap_complete::ArgValueCompleter;
use std::time::Duration;
use toroni::{Start, WaitStrategy};
use toroni_shell::complete;
use toroni_shell::failure::Failure;
use toroni_shell::human::parse_interval;
use toroni_shell::output::Output;
use toroni_shell::printer::{Format, Printer, Style};
use toroni_shell::template::Template;

#[derive(Args)]
#[command(after_help = "Examples:
  toroni sub                                         all messages on the bus
  toroni sub 'plant/**' '*/alarm'                    * matches one segment, ** any number
  toroni sub --json --from oldest --count 10 | jq .payload
  toroni sub --from sequence:4711                    message 4711 and all after it
  toroni sub --last 5 -n 5 -t 1s 'alarm/**'          the newest five that are still in the ring
  toroni sub -F '%T %t %l' 'plant/**'                time, topic and length of each message
  toroni sub --newest --max-age 100ms 'pose/*'       only messages that are still fresh
  toroni sub --json | toroni -b copy pub --json      copy all topics to the bus copy
  toroni sub --retained 'plant/**'                   the values of retained topics, then new messages
  toroni sub --file day.mcap 'alarm/**'              print a recording
  toroni sub --strict > capture                      exit code 3 at the first loss

If the bus does not exist, sub waits until a process creates it, and then starts with its first message.
With --format text, sub prints topic, tab and payload. It reports losses on standard error; with --json, as \
objects with the field lost, between the messages. Messages that were lost on their way from another host to this \
bus are losses, too, if a pattern may have matched them.

With --retained, each line of --format text and hex begins with a field: retained for a value, cleared if the value of a \
topic was cleared, - for any other message. JSON has the fields retained and cleared. Without a place for that, as with \
--payload-only or --format raw, sub prints nothing when a value is cleared. A value for which the bus had no room is a loss.

Letters of --template:
  %t  topic
  %p  payload
  %x  payload in hexadecimal digits
  %b  payload in base64
  %l  length of the payload in bytes
  %s  sequence number
  %o  position in the stream
  %T  time of publication (RFC 3339, UTC), or -
  %n  time of publication in nanoseconds since 1970, or -
  %A  nanoseconds from publication to receipt, or -
  %d  1 if published to descendants, else 0
  %r  retained for a value, cleared if one was cleared, else -
  %%  a percent sign

A line feed follows each message (with -0, a NUL). Escapes are \\n, \\t, \\r, \\e, \\0, \\xHH and \\\\.")]
pub(crate) struct Subscribe {
    /// Topics to subscribe to, such as plant/** [default: **]
    #[arg(value_name = "PATTERN", hide_default_value = true, default_value = "**", add = ArgValueCompleter::new(complete::topics))]
    pub(crate) patterns: Vec<String>,
    /// Stop after N messages
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) form: Form,
    /// Where to start: latest (only messages published from now on), oldest, or a message that --json printed, by its position (a number) or by its sequence (sequence:N); not with --last
    #[arg(long, value_name = "START", default_value = "latest", value_parser = parse_start)]
    pub(crate) from: Start,
    /// Start with the newest N matching messages that are still in the ring, then continue with new ones
    #[arg(long, value_name = "N", conflicts_with = "from")]
    pub(crate) last: Option<u64>,
    /// Begin with the values of the topics that match: the newest message of each retained topic
    #[arg(long, conflicts_with = "last")]
    pub(crate) retained: bool,
    /// Never make publishers wait for this subscriber; it may lose messages instead
    #[arg(long)]
    pub(crate) no_gate: bool,
    /// After a loss, continue with the newest matching message instead of the oldest that is left; the loss counts all that it passes over
    #[arg(long)]
    pub(crate) newest: bool,
    /// Pass over messages that are older than this when they are received, if their publisher stamps them (pub --timestamps): seconds, or a number with a unit, such as 100ms
    #[arg(long, value_name = "AGE", value_parser = parse_interval)]
    pub(crate) max_age: Option<Duration>,
    /// If the bus does not exist, create it with the default settings instead of waiting for it
    #[arg(long)]
    pub(crate) create: bool,
    /// Stop with exit code 3 at the first loss
    #[arg(long)]
    pub(crate) strict: bool,
    /// How to wait for messages
    #[arg(long, value_enum, default_value_t = Wait::Backoff)]
    pub(crate) wait: Wait,
    /// Stop after this time without a message: seconds, or a number with a unit, such as 500ms
    #[arg(short, long, value_name = "S", value_parser = parse_interval)]
    pub(crate) timeout: Option<Duration>,
    /// Print a recording (an MCAP file) instead of a bus
    #[cfg(feature = "record")]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from", "last", "retained", "no_gate", "newest", "max_age", "create", "wait", "timeout", "ready_fd", "name"])]
    pub(crate) file: Option<std::path::PathBuf>,
    /// Do not report losses on standard error
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Report on standard error what is subscribed, and at the end how much was printed
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Write a line to this inherited file descriptor when subscribed
    #[arg(long, value_name = "FD")]
    pub(crate) ready_fd: Option<i32>,
    /// Name of this subscriber in `toroni info`
    #[arg(long, value_name = "NAME", default_value = "toroni-sub")]
    pub(crate) name: String,
}

/// How messages are printed.
#[derive(Args)]
pub(crate) struct Form {
    /// How to print a message
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// The same as --format json: one object per line
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Print each message in this form; see the letters of `toroni sub --help`
    #[arg(short = 'F', long, value_name = "TEMPLATE", value_parser = Template::parse, conflicts_with_all = ["format", "json", "payload_only"])]
    template: Option<Template>,
    /// End each message with a NUL byte instead of a line feed, as `pub -0` reads it
    #[arg(short = '0', long, conflicts_with = "json")]
    null: bool,
    /// Do not print the topic
    #[arg(long)]
    payload_only: bool,
}

impl Form {
    /// Fails if options exclude one another.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.null && matches!(self.format, Format::Raw | Format::Json) {
            let wrong = "-0 works with --template, and with --format text and hex";
            return Err(Failure::Usage(wrong.to_owned()));
        }
        Ok(())
    }

    pub(crate) fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }

    pub(crate) fn printer(&self, output: Output) -> Printer {
        let end = if self.null { 0 } else { b'\n' };
        let style = match &self.template {
            Some(template) => Style::Template(template.clone()),
            None => Style::Format { format: self.format(), payload_only: self.payload_only },
        };
        Printer::new(output, style, end)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Wait {
    /// Poll without a pause: lowest latency, uses a whole CPU
    Spin,
    /// Poll, and let other threads run between two polls
    Yield,
    /// Poll for a short time, then sleep
    Backoff,
    /// Sleep immediately
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

pub(crate) fn parse_start(text: &str) -> Result<Start, String> {
    match text {
        "latest" => Ok(Start::Latest),
        "oldest" => Ok(Start::Oldest),
        other => {
            let start = match other.strip_prefix("sequence:") {
                Some(sequence) => sequence.parse().map(Start::Sequence),
                None => other.parse().map(Start::Position),
            };
            start.map_err(|_| {
                "use latest, oldest, the position of a message, or sequence:N".to_owned()
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_has_every_letter() {
        let program = crate::cli::definitions();
        let help = program.find_subcommand("sub").unwrap().get_after_help().unwrap().to_string();
        for (letter, meaning) in toroni_shell::template::letters() {
            let line = format!("  %{letter}  {meaning}");
            assert!(help.lines().any(|shown| shown == line), "{line}");
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
