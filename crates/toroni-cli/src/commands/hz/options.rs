//! The options of `toroni hz`.

use clap::Args;
use clap_complete::ArgValueCompleter;
use std::time::Duration;
use toroni_shell::complete;
use toroni_shell::human::parse_interval;

#[derive(Args)]
#[command(after_help = "Example:
  toroni hz 'plant/**' --interval 5

JITTER is the standard deviation of the time between two messages of a topic within the interval, and \
LONGEST GAP is the longest such time. Both are measured when hz receives the messages.

If messages have a stamp (pub --timestamps, BusConfig::timestamps), AGE P50, AGE P99 and LONGEST AGE say how old they were when hz received them: \
half of them, 99 % of them and all of them were at most that old. An age below 0 is that of a stamp in the future: the clocks \
of publisher and hz differ.

The bus must exist. Publishers never wait for hz; messages that it missed are counted as lost. \
Messages that were lost on their way from another host to this bus are counted separately.")]
pub(crate) struct Hz {
    /// Topics to count, such as plant/** [default: **]
    #[arg(value_name = "PATTERN", hide_default_value = true, default_value = "**", add = ArgValueCompleter::new(complete::topics))]
    pub(crate) patterns: Vec<String>,
    /// Seconds from one report to the next
    #[arg(long, value_name = "S", default_value = "1", value_parser = parse_interval)]
    pub(crate) interval: Duration,
    /// Stop after N reports
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// Print each report as a JSON object on one line
    #[arg(long)]
    pub(crate) json: bool,
}
