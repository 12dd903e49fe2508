//! `toroni bench rmp-tcp`.

use super::options::Shared;
use crate::human::parse_bytes;
use clap::Args;
use toroni_bench_harness::experiment::rmp_tcp::{Options, SMALLEST};

#[derive(Args)]
#[command(after_help = "Example:
  toroni bench rmp-tcp --sizes 8,256,4KiB --plot figure8.svg

One writer process and one reader process. One TCP write per message is compared with one publish per message; \
a TCP writer that collects messages in a buffer is compared with bursts.")]
pub(crate) struct RmpTcp {
    #[command(flatten)]
    pub(crate) shared: Shared,
    /// Messages per run [default: 100000; fewer large messages with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) messages: Option<u64>,
    /// Sizes of a message, at least 8 bytes; one row for each [default: 8 to 64KiB]
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', value_parser = message_bytes)]
    pub(crate) sizes: Vec<usize>,
    /// Size of Toroni's ring, a power of two [default: 4MiB]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) capacity: Option<u64>,
}

impl RmpTcp {
    pub(crate) fn options(&self) -> Options {
        let mut options = Options::of(self.shared.length());
        options.repetitions = self.shared.repetitions.unwrap_or(options.repetitions);
        options.messages = self.messages.unwrap_or(options.messages);
        options.capacity_bytes = self.capacity.unwrap_or(options.capacity_bytes);
        if !self.sizes.is_empty() {
            options.sizes.clone_from(&self.sizes);
        }
        options
    }
}

/// Parses the size of a message that contains a number.
pub(super) fn message_bytes(text: &str) -> Result<usize, String> {
    match usize::try_from(parse_bytes(text)?) {
        Ok(bytes) if bytes >= SMALLEST => Ok(bytes),
        _ => Err(format!("a message contains its number: use {SMALLEST} bytes or more")),
    }
}
