//! The command line.

use clap::{Parser, ValueEnum};
use toroni_protocol_model::setup::{Lock, Policy, Setup, Start, Victims, Work};
use toroni_protocol_model::setups::{self, Named, Size};

/// Visits every state of the bus's protocol that can be reached, and shows what breaks a promise.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask model")]
pub(crate) struct Options {
    /// Setups by name; without any, the small ones
    names: Vec<String>,
    /// The large ones, too
    #[arg(long)]
    all: bool,
    /// Lists the setups
    #[arg(long)]
    list: bool,
    /// Builds known mistakes in, all or those named, and shows the shortest way to what each breaks
    #[arg(long, num_args = 0.., value_name = "MISTAKE")]
    pub(crate) mistakes: Option<Vec<String>>,
    /// Threads of the search
    #[arg(long, default_value_t = 2)]
    pub(crate) threads: usize,
    /// Shows the first counterexample, and not the shortest
    #[arg(long)]
    pub(crate) quick: bool,
    /// A setup of your own: the number of publishers
    #[arg(long, value_name = "NUMBER")]
    publishers: Option<u8>,
    /// … the number of messages that each of them publishes, of 1, 2, 0 … words of payload
    #[arg(long, default_value_t = 2)]
    messages: u8,
    /// … the number of subscribers
    #[arg(long, default_value_t = 1)]
    subscribers: u8,
    /// … how many of the subscribers join later
    #[arg(long, default_value_t = 0)]
    late: u8,
    /// … at the oldest message, not at the end
    #[arg(long)]
    oldest: bool,
    /// … the number of records of two words that the ring has space for
    #[arg(long, default_value_t = 4)]
    records: u8,
    /// … the number of blocks of the ring
    #[arg(long, default_value_t = 4)]
    blocks: u8,
    /// … the policy
    #[arg(long, value_enum, default_value_t = PolicyName::Overwrite)]
    policy: PolicyName,
    /// … how many of the publishers are exclusive
    #[arg(long, default_value_t = 0)]
    exclusive: u8,
    /// … with a robust lock
    #[arg(long)]
    robust: bool,
    /// … with subscribers that sleep
    #[arg(long)]
    sleep: bool,
    /// … the number of deaths
    #[arg(long, default_value_t = 0)]
    deaths: u8,
    /// … the number of stops
    #[arg(long, default_value_t = 0)]
    stops: u8,
    /// … how often an exclusive publisher loses its lease while it lives
    #[arg(long, default_value_t = 0)]
    losses: u8,
    /// … the number of restarts
    #[arg(long, default_value_t = 0)]
    restarts: u8,
    /// … how many subscribers leave
    #[arg(long, default_value_t = 0)]
    leaves: u8,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PolicyName {
    Overwrite,
    Wait,
    Limit,
}

impl Options {
    pub(crate) fn setups(&self) -> Result<Vec<Named>, String> {
        if self.list {
            for named in setups::all() {
                println!("{:<16} {:?}: {}", named.name, named.size, named.about);
            }
            return Ok(Vec::new());
        }
        if let Some(publishers) = self.publishers {
            let setup = self.own(publishers);
            setup.check()?;
            let about = "from the command line";
            return Ok(vec![Named { name: "own", about, size: Size::Large, setup }]);
        }
        if self.names.is_empty() {
            let is_meant = |named: &Named| self.all || named.size == Size::Small;
            return Ok(setups::all().into_iter().filter(is_meant).collect());
        }
        let find = |name: &String| {
            setups::named(name).ok_or_else(|| format!("no setup {name}: see --list"))
        };
        self.names.iter().map(find).collect()
    }

    /// Whether no setup was chosen.
    pub(crate) fn is_for_all(&self) -> bool {
        self.names.is_empty() && self.publishers.is_none() && !self.list
    }

    fn own(&self, publishers: u8) -> Setup {
        let messages =
            (0..self.messages).map(|number| Work::One([1, 2, 0][usize::from(number) % 3]));
        let works: Vec<Work> = messages.collect();
        Setup {
            words: self.records.saturating_mul(2),
            blocks: self.blocks,
            read_ahead: 4,
            policy: match self.policy {
                PolicyName::Overwrite => Policy::Overwrite,
                PolicyName::Wait => Policy::Wait,
                PolicyName::Limit => Policy::Limit,
            },
            lock: if self.robust { Lock::Robust } else { Lock::Lease },
            sleep: self.sleep,
            works: vec![works; publishers.into()],
            topics: Vec::new(),
            known_topics: 1,
            stale_columns: false,
            passes: false,
            exclusive: self.exclusive.into(),
            late: 0,
            subscribers: self.subscribers.into(),
            interests: Vec::new(),
            joined: self.subscribers.saturating_sub(self.late).into(),
            start: if self.oldest { Start::Oldest } else { Start::End },
            deaths: self.deaths,
            stops: self.stops,
            losses: self.losses,
            restarts: self.restarts,
            leaves: self.leaves,
            victims: Victims::All,
            mistake: None,
        }
    }
}
