//! The options of `toroni demo`.

use clap::Args;
use toroni_shell::human::parse_bytes;

#[derive(Args)]
#[command(after_help = "Example:
  toroni demo --publishers 2 --subscribers 6 --messages 5000000

While the publishers publish, the demo kills one additional publisher with SIGKILL. Then it checks that \
all subscribers received the same messages in the same order and that no message of the surviving publishers \
was lost. The demo creates a bus of its own and removes it at the end.")]
pub(crate) struct Demo {
    /// Number of publishing processes that survive
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) publishers: u16,
    /// Number of subscribing processes
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) subscribers: u16,
    /// Messages that the surviving publishers publish in total
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) messages: u64,
    /// Size of a message, at least 16 bytes
    #[arg(long, value_name = "BYTES", default_value = "16", value_parser = parse_bytes)]
    pub(crate) size: u64,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct DemoChild {
    /// Number of this publisher or subscriber
    #[arg(long)]
    pub(crate) index: u16,
    /// Size of a message
    #[arg(long)]
    pub(crate) size: u64,
}
