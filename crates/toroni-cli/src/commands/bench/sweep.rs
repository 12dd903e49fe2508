//! `toroni bench sweep`.

use super::options::Shared;
use super::p2mp::batch_bytes;
use crate::human::parse_bytes;
use clap::Args;
use toroni_bench_harness::experiment::sweep::Options;

#[derive(Args)]
#[command(after_help = "Example:
  toroni bench sweep --batches 100000,10000,1000 --plot sweep.svg

The same as p2mp with batches of several sizes. Measured in turn: Toroni and the queue of the published experiment.")]
pub(crate) struct Sweep {
    #[command(flatten)]
    pub(crate) shared: Shared,
    /// Objects that each receiver receives [default: 20 million; 2 million with --quick, 1000 million with --full]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub(crate) objects: Option<u64>,
    /// Number of receiving processes [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=15))]
    pub(crate) receivers: Option<u16>,
    /// Sizes of a batch; one row for each [default: 100000 to 1000, as published]
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', value_parser = batch_bytes)]
    pub(crate) batches: Vec<usize>,
    /// Packets in the queue; a batch is two packets [default: 256]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..))]
    pub(crate) packets: Option<u16>,
    /// Size of Toroni's ring, a power of two [default: 8MiB]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) capacity: Option<u64>,
}

impl Sweep {
    pub(crate) fn options(&self) -> Options {
        let mut options = Options::of(self.shared.length());
        options.repetitions = self.shared.repetitions.unwrap_or(options.repetitions);
        options.objects = self.objects.unwrap_or(options.objects);
        options.receivers = self.receivers.unwrap_or(options.receivers);
        options.packets = self.packets.map_or(options.packets, usize::from);
        options.capacity_bytes = self.capacity.unwrap_or(options.capacity_bytes);
        if !self.batches.is_empty() {
            options.batches.clone_from(&self.batches);
        }
        options
    }
}
