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
use toroni_bench_harness::workload::{Effort, latency, stress, throughput};

#[derive(Args)]
#[command(after_help = "Examples:
  toroni bench throughput --quick
  toroni bench throughput --plot throughput.svg
  toroni bench throughput --json | jq -c 'select(.kind == \"goal\" and .met == false)'

Each writer, reader and bus host is a process of its own, but for `proactor`, whose sessions share one. The bus is the benchmark's own, below \
/dev/shm (or --dir), and is removed at the end. Only ratios of what was measured in one run, on a \
machine that does nothing else, can be compared.")]
pub(crate) struct Bench {
    #[command(subcommand)]
    pub(crate) workload: Workload,
}

/// What is measured.
#[derive(Subcommand)]
pub(crate) enum Workload {
    /// Messages a second by writers and readers: the Toroni paper's Table 4
    Throughput(Throughput),
    /// Time from post to receipt by writers and readers: Table 5; and what idle readers cost
    Latency(Latency),
    /// Many writers and readers on a ring that is much too small: §4.4.3
    Stress(Stress),
    /// One writer, one reader, beside TCP: the Toroni paper's Figure 8
    RmpTcp(RmpTcp),
    /// One sender, several receivers, small objects in batches, beside TCP and a queue behind a mutex
    P2mp(P2mp),
    /// As p2mp, with batches of several sizes
    Sweep(Sweep),
    /// Latency of subscribers that share a thread, beside UDP multicast
    Fanout(Fanout),
    /// How the cost of a message grows with subscribers, topics, patterns and sizes
    Scale(Scale),
    /// Sessions over TCP on each engine of the proactor, beside a thread-pool reactor
    Proactor(Proactor),
}

/// What all workloads know.
#[derive(Args)]
pub(crate) struct Shared {
    /// Take less than 20 s: fewer repetitions, smaller volumes
    #[arg(long, conflicts_with = "full")]
    pub(crate) quick: bool,
    /// Measure everything, however long it takes
    #[arg(long)]
    pub(crate) full: bool,
    /// Runs of each cell, or of the whole [default: depends on the benchmark]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) repetitions: Option<u32>,
    /// Print JSON objects, one a line: the report, each cell, each goal
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw a chart into this file, as SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}

impl Shared {
    /// How much time it may take.
    pub(crate) fn effort(&self) -> Effort {
        match (self.quick, self.full) {
            (true, _) => Effort::Quick,
            (_, true) => Effort::Full,
            _ => Effort::Usual,
        }
    }
}

/// The cells of a table of writers and readers.
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
    /// Puts what was asked for in place of the defaults.
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
    /// Messages of each writer in a burst [default: 20000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=10_000_000))]
    pub(crate) messages: Option<u64>,
    /// Also measure writers that post one message a call
    #[arg(long)]
    pub(crate) one_by_one: bool,
    /// Also measure writers that begin as soon as they have started, as in the paper [default: not with --quick]
    #[arg(long)]
    pub(crate) as_started: bool,
    /// Volume of the sustained table: so many times the ring's size from each writer, 0 for none [default: 100; 2 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    pub(crate) sustained: Option<u64>,
}

impl Throughput {
    /// For the rig.
    pub(crate) fn options(&self) -> throughput::Options {
        let mut options = throughput::Options::of(self.shared.effort());
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
    /// Messages of each writer [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) messages: Option<u64>,
    /// Also measure writers that begin as soon as they have started, as in the paper [default: not with --quick]
    #[arg(long)]
    pub(crate) as_started: bool,
    /// Seconds for which readers wait for nothing, to see what that costs; 0 for not at all [default: 5; 2 with --quick]
    #[arg(long, value_name = "S")]
    pub(crate) idle: Option<u16>,
}

impl Latency {
    /// For the rig.
    pub(crate) fn options(&self) -> latency::Options {
        let mut options = latency::Options::of(self.shared.effort());
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
    /// Writers
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub(crate) writers: u16,
    /// Readers
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) readers: u16,
    /// Messages of each writer, of 500 bytes
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) messages: u64,
}

impl Stress {
    /// For the rig.
    pub(crate) fn options(&self) -> stress::Options {
        let options = stress::Options::of(self.shared.effort());
        stress::Options {
            writers: self.writers,
            readers: self.readers,
            messages: self.messages,
            repetitions: self.shared.repetitions.unwrap_or(options.repetitions),
            ..options
        }
    }
}
