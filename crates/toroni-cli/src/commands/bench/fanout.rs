//! `toroni bench fanout`.

use super::options::Shared;
use crate::human::parse_duration;
use clap::Args;
use std::time::Duration;
use toroni_bench_harness::experiment::fanout::{MOST_SUBSCRIBERS, Options};

#[derive(Args)]
#[command(after_help = "Example:
  toroni bench fanout --subscribers 1,10,20 --interval 100us --plot fanout.svg

One process publishes; the only thread of another process serves all subscribers in turn. Both processes poll. \
Measured in turn: Toroni with a subscriber each, Toroni with one router, UDP multicast with a socket each.")]
pub(crate) struct Fanout {
    #[command(flatten)]
    pub(crate) shared: Shared,
    /// Messages per run [default: 40000; 3000 with --quick, 200000 with --full]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) messages: Option<u64>,
    /// Numbers of subscribers; one row for each [default: 1,2,3,4,5,10,15,20]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=i64::from(MOST_SUBSCRIBERS)))]
    pub(crate) subscribers: Vec<u16>,
    /// Time from one message to the next; must be longer than the slowest variant needs for a message [default: 50us]
    #[arg(long, value_name = "TIME", value_parser = interval)]
    pub(crate) interval: Option<Duration>,
}

impl Fanout {
    pub(crate) fn options(&self) -> Options {
        let mut options = Options::of(self.shared.length());
        options.repetitions = self.shared.repetitions.unwrap_or(options.repetitions);
        options.messages = self.messages.unwrap_or(options.messages);
        if let Some(interval) = self.interval {
            options.interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        }
        if !self.subscribers.is_empty() {
            options.subscribers.clone_from(&self.subscribers);
        }
        options
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    if (Duration::from_micros(1)..=Duration::from_secs(1)).contains(&interval) {
        Ok(interval)
    } else {
        Err("an interval is from 1us to 1s".to_owned())
    }
}
