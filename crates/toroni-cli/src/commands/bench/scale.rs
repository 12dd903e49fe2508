//! `toroni bench scale`.

use super::options::Shared;
use super::rmp_tcp::message_bytes;
use crate::human::parse_bytes;
use clap::Args;
use toroni_bench_harness::workload::scale::Options;

#[derive(Args)]
#[command(after_help = "Example:
  toroni bench scale --subscribers 1,2,4 --topics 1,1000 --plot scale.svg

One publisher process. Each list is a table and a chart; the charts stand in one file, one below the other.")]
pub(crate) struct Scale {
    #[command(flatten)]
    pub(crate) shared: Shared,
    /// Messages of a run; more of many topics, fewer large ones [default: 1 million; 100000 with --quick, 10 million with --full]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000_000))]
    pub(crate) messages: Option<u64>,
    /// Subscribing processes [default: 1 to 64]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) subscribers: Vec<u16>,
    /// Topics that are published on in turn [default: 1 to 100000]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) topics: Vec<u32>,
    /// Patterns of the subscriber [default: 1 to 1000]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) patterns: Vec<u32>,
    /// Bytes of a message, 8 at least [default: 8 to 64KiB]
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', value_parser = message_bytes)]
    pub(crate) sizes: Vec<usize>,
    /// Bytes of the ring, powers of two [default: 64KiB to 64MiB]
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', value_parser = parse_bytes)]
    pub(crate) capacities: Vec<u64>,
}

impl Scale {
    /// For the rig.
    pub(crate) fn options(&self) -> Options {
        let mut options = Options::of(self.shared.effort());
        options.repetitions = self.shared.repetitions.unwrap_or(options.repetitions);
        options.messages = self.messages.unwrap_or(options.messages);
        take(&self.subscribers, &mut options.subscribers);
        take(&self.topics, &mut options.topics);
        take(&self.patterns, &mut options.patterns);
        take(&self.sizes, &mut options.sizes);
        take(&self.capacities, &mut options.capacities);
        options
    }
}

fn take<T: Clone>(given: &[T], list: &mut Vec<T>) {
    if !given.is_empty() {
        *list = given.to_vec();
    }
}
