//! The options of `toroni hz`.

use crate::complete;
use crate::human::parse_interval;
use clap::Args;
use clap_complete::ArgValueCompleter;
use std::time::Duration;

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
