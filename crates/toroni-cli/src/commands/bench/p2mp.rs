//! `toroni bench p2mp`.

use super::options::Shared;
use crate::human::parse_bytes;
use clap::Args;
use toroni_bench_harness::experiment::p2mp::Options;

#[derive(Args)]
#[command(after_help = "Example:
  toroni bench p2mp --quick --receivers 2 --plot p2mp.svg

One sender process and several receiver processes, objects of 50 bytes. Measured in turn: Toroni, TCP, and the \
queue of the published experiment with each of its two mutexes.")]
pub(crate) struct P2mp {
    #[command(flatten)]
    pub(crate) shared: Shared,
    /// Objects that each receiver receives [default: 100 million; 20 million with --quick, 1000 million with --full]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub(crate) objects: Option<u64>,
    /// Number of receiving processes [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=15))]
    pub(crate) receivers: Option<u16>,
    /// Size of a batch [default: 100000]
    #[arg(long, value_name = "BYTES", value_parser = batch_bytes)]
    pub(crate) batch: Option<usize>,
    /// Packets in the queue; a batch is two packets [default: 256]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..))]
    pub(crate) packets: Option<u16>,
    /// Size of Toroni's ring, a power of two [default: 8MiB]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) capacity: Option<u64>,
}

impl P2mp {
    pub(crate) fn options(&self) -> Options {
        let mut options = Options::of(self.shared.length());
        options.repetitions = self.shared.repetitions.unwrap_or(options.repetitions);
        options.objects = self.objects.unwrap_or(options.objects);
        options.receivers = self.receivers.unwrap_or(options.receivers);
        options.batch_bytes = self.batch.unwrap_or(options.batch_bytes);
        options.packets = self.packets.map_or(options.packets, usize::from);
        options.capacity_bytes = self.capacity.unwrap_or(options.capacity_bytes);
        options
    }
}

/// Parses the size of a batch: two packets of the queue, each with a header and at least one object.
pub(super) fn batch_bytes(text: &str) -> Result<usize, String> {
    match usize::try_from(parse_bytes(text)?) {
        Ok(bytes) if (200..=1 << 30).contains(&bytes) => Ok(bytes),
        _ => Err("a batch has 200 bytes to 1 GiB".to_owned()),
    }
}
