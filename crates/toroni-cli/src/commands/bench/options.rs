//! The command line of `toroni bench`.

use super::fanout::Fanout;
use super::p2mp::P2mp;
use super::proactor::Proactor;
use super::rmp_tcp::RmpTcp;
use super::scale::Scale;
use super::sweep::Sweep;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;
use toroni_bench_harness::workload::{RunLength, latency, stress, throughput};

#[derive(Args)]
#[command(after_help = "Examples:
  toroni bench throughput --quick
  toroni bench throughput --plot throughput.svg
  toroni bench throughput --json | jq -c 'select(.kind == \"goal\" and .met == false)'

Each writer and each reader is a process of its own, and another process creates the bus; `proactor` measures \
connections within one process. A benchmark uses a bus of its own in /dev/shm (or --dir) and removes it at the \
end. Compare only ratios of results that were measured in the same run on an otherwise idle machine.")]
pub(crate) struct Bench {
    #[command(subcommand)]
    pub(crate) workload: Workload,
}

#[derive(Subcommand)]
pub(crate) enum Workload {
    /// Messages per second for numbers of writers and readers: Table 4 of the Toroni paper
    Throughput(Throughput),
    /// Time from publish to receive for numbers of writers and readers: Table 5 of the Toroni paper; CPU time of idle readers
    Latency(Latency),
    /// Many writers and readers on a ring that is much too small: section 4.4.3 of the Toroni paper
    Stress(Stress),
    /// One writer and one reader, compared with TCP: Figure 8 of the Toroni paper
    RmpTcp(RmpTcp),
    /// One sender and several receivers of small objects in batches, compared with TCP and a queue with a mutex
    P2mp(P2mp),
    /// The same as p2mp, with batches of several sizes
    Sweep(Sweep),
    /// Latency of subscribers that share a thread, compared with UDP multicast
    Fanout(Fanout),
    /// How the cost of a message grows with subscribers, topics, patterns and sizes
    Scale(Scale),
    /// TCP connections on each engine of the proactor, compared with a thread-pool reactor
    Proactor(Proactor),
}

/// Options of all workloads.
#[derive(Args)]
pub(crate) struct Shared {
    /// Measure less, in under 20 s: fewer repetitions, smaller volumes
    #[arg(long, conflicts_with = "full")]
    pub(crate) quick: bool,
    /// Measure everything; may take long
    #[arg(long)]
    pub(crate) full: bool,
    /// Number of runs of each table cell, or of the whole benchmark [default: depends on the benchmark]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) repetitions: Option<u32>,
    /// Print JSON, one object per line: the report, each cell, each goal
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a chart to this file, as SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}

impl Shared {
    /// How much time it may take.
    pub(crate) fn length(&self) -> RunLength {
        match (self.quick, self.full) {
            (true, _) => RunLength::Quick,
            (_, true) => RunLength::Full,
            _ => RunLength::Usual,
        }
    }
}

/// The numbers of writers and readers of a table.
#[derive(Args)]
pub(crate) struct Cells {
    /// Numbers of writers [default: 1,2,4,7; 1 to 7 with --full]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=16))]
    pub(crate) writers: Vec<u16>,
    /// Numbers of readers [default: 1,4,8,16]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) readers: Vec<u16>,
}

impl Cells {
    /// Replaces the defaults by the given numbers.
    fn choose(&self, writers: &mut Vec<u16>, readers: &mut Vec<u16>) {
        for (chosen, numbers) in [(&self.writers, writers), (&self.readers, readers)] {
            if !chosen.is_empty() {
                numbers.clone_from(chosen);
            }
        }
    }
}

#[derive(Args)]
#[command(after_help = "Example:
  toroni bench throughput --writers 1,7 --readers 1,16 --repetitions 20 --plot throughput.svg")]
pub(crate) struct Throughput {
    #[command(flatten)]
    pub(crate) shared: Shared,
    #[command(flatten)]
    pub(crate) cells: Cells,
    /// Messages that each writer publishes in a burst [default: 20000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=10_000_000))]
    pub(crate) messages: Option<u64>,
    /// Also measure writers that publish one message per call
    #[arg(long)]
    pub(crate) one_by_one: bool,
    /// Also measure writers that do not wait for one another at the start, as in the paper [default: not with --quick]
    #[arg(long)]
    pub(crate) as_started: bool,
    /// Volume of each writer in the table of sustained throughput, in sizes of the ring; 0 for no table [default: 100; 2 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    pub(crate) sustained: Option<u64>,
}

impl Throughput {
    pub(crate) fn options(&self) -> throughput::Options {
        let mut options = throughput::Options::of(self.shared.length());
        if let Some(repetitions) = self.shared.repetitions {
            options.repetitions = repetitions;
            options.sustained.2 = repetitions;
        }
        self.cells.choose(&mut options.writers, &mut options.readers);
        let (writers, readers, _) = &mut options.sustained;
        self.cells.choose(writers, readers);
        options.messages = self.messages.unwrap_or(options.messages);
        options.one_by_one |= self.one_by_one;
        options.as_started |= self.as_started;
        options.sustained_rings = self.sustained.unwrap_or(options.sustained_rings);
        options
    }
}

#[derive(Args)]
#[command(after_help = "Example:
  toroni bench latency --writers 1 --readers 1,16 --repetitions 200 --plot latency.svg")]
pub(crate) struct Latency {
    #[command(flatten)]
    pub(crate) shared: Shared,
    #[command(flatten)]
    pub(crate) cells: Cells,
    /// Messages that each writer publishes [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) messages: Option<u64>,
    /// Also measure writers that do not wait for one another at the start, as in the paper [default: not with --quick]
    #[arg(long)]
    pub(crate) as_started: bool,
    /// Seconds to measure the CPU time of idle readers; 0 to skip that [default: 5; 2 with --quick]
    #[arg(long, value_name = "S")]
    pub(crate) idle: Option<u16>,
}

impl Latency {
    pub(crate) fn options(&self) -> latency::Options {
        let mut options = latency::Options::of(self.shared.length());
        options.repetitions = self.shared.repetitions.unwrap_or(options.repetitions);
        self.cells.choose(&mut options.writers, &mut options.readers);
        options.messages = self.messages.unwrap_or(options.messages);
        options.as_started |= self.as_started;
        if let Some(seconds) = self.idle {
            options.idle = Duration::from_secs(seconds.into());
        }
        options
    }
}

#[derive(Args)]
#[command(after_help = "Example:
  toroni bench stress --quick --json | jq -c 'select(.kind == \"goal\")'")]
pub(crate) struct Stress {
    #[command(flatten)]
    pub(crate) shared: Shared,
    /// Number of writers
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub(crate) writers: u16,
    /// Number of readers
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) readers: u16,
    /// Messages of 500 bytes that each writer publishes
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) messages: u64,
}

impl Stress {
    pub(crate) fn options(&self) -> stress::Options {
        let options = stress::Options::of(self.shared.length());
        stress::Options {
            writers: self.writers,
            readers: self.readers,
            messages: self.messages,
            repetitions: self.shared.repetitions.unwrap_or(options.repetitions),
            ..options
        }
    }
}
