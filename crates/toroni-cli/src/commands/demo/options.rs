//! The options of `toroni demo`.

use crate::human::parse_bytes;
use clap::Args;

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
