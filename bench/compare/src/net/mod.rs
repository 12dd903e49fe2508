//! The protocol between hosts, which are network namespaces, beside plain datagrams.
//!
//! ```text
//!   rig          hosts, senders and receivers
//!   latency/     one way between two hosts, busy and blocking, without a bus and from bus to bus
//!   throughput/  messages per second, beside full datagrams and other libraries
//!   tcp/         clients over TCP, of which one is stopped and one slow
//!   hostile      one sender and two receivers beside a host that floods them
//!   fanout       1 to 20 subscribers in one thread, beside as many sockets
//!   crowd        one sender and several receivers: a crybaby, many
//!   loss         the same in a network that loses
//!   repairs      how long it takes until what was lost is there
//! ```
//!
//! Unless a row says "from bus to bus", both ends are programs without a bus (`toroni_net::direct`), so that what is
//! measured is the protocol and not the bus, which has reports of its own. On a machine of two cores only ratios count:
//! what is compared runs in turn.

mod crowd;
mod fanout;
mod hostile;
mod latency;
mod loss;
mod repairs;
mod rig;
mod tcp;
pub(crate) mod throughput;

use std::time::Duration;

use clap::{Args, ValueEnum};
use toroni_bench_harness::Failure;
use toroni_bench_harness::report::Report;

use crate::peers::foreign::Packages;

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Experiment {
    /// One way between two hosts, without a bus and from bus to bus, beside plain datagrams
    Latency,
    /// Messages per second, beside full datagrams, Aeron and ZeroMQ
    Throughput,
    /// 1 to 20 subscribers in one thread, from the network, beside as many multicast sockets
    Fanout,
    /// A network that loses: throughput, latency and repairs beside one that does not
    Loss,
    /// Four good receivers, with and without a fifth that loses 30 %
    Crybaby,
    /// Two receivers, with and without a host that floods the group and the sender
    Hostile,
    /// Eight clients over TCP, of which one is stopped and one slow, beside a plain fan-out and NATS
    Tcp,
    /// What 1 to 30 receivers cost the sender
    Many,
}

#[derive(Args)]
pub(crate) struct Net {
    /// What to measure [default: all]
    #[arg(value_enum)]
    experiments: Vec<Experiment>,
    /// Finish in a minute: fewer repetitions, shorter runs
    #[arg(long)]
    quick: bool,
    /// Number of runs of each row, all rows in turn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: Option<u32>,
    /// The `data_rate` of the sender in Mbit/s; 70 % of it are offered
    #[arg(long, value_name = "N", default_value_t = 50)]
    rate: u32,
    /// How long each row runs in each repetition [default: 4; 1 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: Option<u64>,
    #[command(flatten)]
    packages: Packages,
    /// Print JSON, one object per line: the report, each cell, each goal
    #[arg(long)]
    pub(crate) json: bool,
}

/// How long the measurement takes.
#[derive(Clone, Copy, Debug)]
struct Length {
    repetitions: u32,
    /// Of one row in one repetition.
    each: Duration,
    /// In bits per second.
    data_rate: u64,
}

/// Measures what was asked for.
///
/// # Errors
/// If there can be no network namespaces here, or nothing arrives.
pub(crate) fn run(options: &Net) -> Result<Vec<Report>, Failure> {
    let (repetitions, seconds) = if options.quick { (3, 1) } else { (7, 4) };
    let length = Length {
        repetitions: options.repetitions.unwrap_or(repetitions),
        each: Duration::from_secs(options.seconds.unwrap_or(seconds)),
        data_rate: u64::from(options.rate) * 1_000_000,
    };
    let all = Experiment::value_variants();
    let wanted = if options.experiments.is_empty() { all } else { &options.experiments };
    let measure = |experiment: &Experiment| match experiment {
        Experiment::Latency => latency::report(&length),
        Experiment::Throughput => throughput::report(&length, &options.packages.peers_directory),
        Experiment::Fanout => fanout::report(&length),
        Experiment::Loss => loss::report(&length),
        Experiment::Crybaby => crowd::crybaby(&length),
        Experiment::Hostile => hostile::report(&length),
        Experiment::Tcp => tcp::report(&length),
        Experiment::Many => crowd::many(&length),
    };
    wanted.iter().map(measure).collect()
}
