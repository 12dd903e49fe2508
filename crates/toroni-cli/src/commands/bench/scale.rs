//! `toroni bench scale`.

use super::options::Shared;
use super::rmp_tcp::message_bytes;
use crate::human::parse_bytes;
use clap::Args;
use toroni_bench_harness::experiment::scale::Options;

#[derive(Args)]
#[command(after_help = "Example:
  toroni bench scale --subscribers 1,2,4 --topics 1,1000 --plot scale.svg

One process publishes. Each list results in a table and a chart; all charts are in one file.")]
pub(crate) struct Scale {
    #[command(flatten)]
    pub(crate) shared: Shared,
    /// Messages per run; more with many topics, fewer if they are large [default: 1 million; 100000 with --quick, 10 million with --full]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000_000))]
    pub(crate) messages: Option<u64>,
    /// Numbers of subscribing processes [default: 1 to 64]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) subscribers: Vec<u16>,
    /// Numbers of topics; messages are published on each in turn [default: 1 to 100000]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) topics: Vec<u32>,
    /// Numbers of patterns of the subscriber [default: 1 to 1000]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) patterns: Vec<u32>,
    /// Sizes of a message, at least 8 bytes [default: 8 to 64KiB]
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', value_parser = message_bytes)]
    pub(crate) sizes: Vec<usize>,
    /// Sizes of the ring, powers of two [default: 64KiB to 64MiB]
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', value_parser = parse_bytes)]
    pub(crate) capacities: Vec<u64>,
}

impl Scale {
    pub(crate) fn options(&self) -> Options {
        let mut options = Options::of(self.shared.length());
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
