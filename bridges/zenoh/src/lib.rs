//! Connects Toroni buses over Zenoh: between hosts, through routers, over a WAN.
//!
//! ```text
//!  bus ──► export ──► Zenoh ══ network ══ Zenoh ──► queue ──► order ──► import ──► bus
//!            │ counts by topic, heartbeats                      │ gaps, duplicates
//!            └ history: answers from the ring                   └ exact losses
//! ```
//!
//! - [`attachment`] is what a bridge tells another one about a message.
//! - `key` maps topics and patterns to keys, and names the keys by which bridges talk.
//! - `export` and `import` are the two directions; `queue` is between Zenoh's threads and the bus.
//! - `send` gives messages to Zenoh, as `interest` says: as samples of their own, or in batches (`batch`).
//! - `order` restores the order of each topic, and finds duplicates and losses. It does no I/O.
//! - `beat` counts messages by topic, and tells others in heartbeats. `witness` keeps the last ones of others.
//! - `history` answers queries. `loss` has the loss reports that a bridge relays.
//! - `handover` lets one of several bridges of a bus work.
//! - `renewal` opens another session of Zenoh after the process was stopped for long.

pub mod attachment;
mod batch;
mod beat;
pub mod config;
mod context;
mod counters;
mod error;
mod export;
mod handover;
mod history;
mod identity;
mod import;
mod interest;
mod key;
mod limit;
mod loss;
mod order;
mod queue;
mod renewal;
mod send;
mod witness;

pub use config::Config;
pub use context::State;
pub use counters::Counters;
pub use error::BridgeError;

use config::{MAX_HOPS, ZenohSource};
use context::{Context, Life, lock};
use counters::Counting;
use handover::{Plans, Ranks};
use identity::Identity;
use renewal::{Renewal, Watchdog};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use toroni::BusConfig;
use zenoh::{Session, Wait};

/// A running bridge. Dropping it stops it.
#[derive(Debug)]
pub struct Bridge {
    life: Arc<Life>,
    counting: Arc<Counting>,
    session: Arc<Mutex<Session>>,
    thread: Option<JoinHandle<()>>,
}

impl Bridge {
    /// Starts a bridge: it opens the bus and a session of Zenoh, and begins to export and to import, or to stand by if
    /// another bridge of the same bus is at work. See [`Self::wait_for`].
    ///
    /// # Errors
    /// Returns [`BridgeError`] if the settings are invalid, or the bus or Zenoh cannot be opened.
    pub fn start(config: &Config) -> Result<Self, BridgeError> {
        let plans = check(config)?;
        let zenoh = zenoh_config(&config.zenoh)?;
        let watchdog = Watchdog::new(&zenoh);
        let mut bus = BusConfig::new().participant_name("toroni-zenoh");
        if let Some(directory) = &config.bus.directory {
            bus = bus.directory(directory);
        }
        let bus = bus.open(&config.bus.name)?;
        let session = open(&zenoh)?;
        let identity = Identity::new(&bus, config.source.as_deref(), &config.realm);
        tracing::info!(bus = %bus.id(), source = identity.source, zid = %session.info().zid().wait(), "the bridge starts");
        let context = Arc::new(Context::new(bus, session, identity, config.heartbeat, config.hops));
        let ranks = Ranks::join(&context, &config.realm)?;
        let (life, counting) = (context.life().clone(), context.counting.clone());
        let session = Arc::new(Mutex::new(context.session.clone()));
        let renewal = Renewal { zenoh, realm: config.realm.clone(), current: session.clone() };
        let run = move || renewal.run(context, ranks, &plans);
        let builder = std::thread::Builder::new().name("bridge".to_owned());
        let thread = builder.spawn(run).map_err(BridgeError::Thread)?;
        let bridge = Self { life, counting, session, thread: Some(thread) };
        watchdog.start(&bridge.life)?;
        Ok(bridge)
    }

    /// Stops it: it sends a last heartbeat, withdraws from Zenoh, and ends its threads.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.life.set_state(State::Stopped);
        let _ = thread.join();
    }

    /// Returns what it is doing.
    #[must_use]
    pub fn state(&self) -> State {
        self.life.state()
    }

    /// Waits until it is in a state, or has ended, or the time is over. Returns the state.
    #[must_use]
    pub fn wait_for(&self, state: &State, timeout: Duration) -> State {
        self.life.wait(timeout, |now| now == state || now.is_over())
    }

    /// Returns what it has counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counting.now()
    }

    /// Returns the Zenoh session that it uses now. Programs may ask it for peers, routers and its own id. The bridge opens
    /// another one after its process was stopped for long.
    #[must_use]
    pub fn session(&self) -> Session {
        lock(&self.session).clone()
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.end();
    }
}

/// Checks settings as [`Bridge::start`] does, without opening anything.
///
/// # Errors
/// Returns the first setting that is invalid.
pub fn check_config(config: &Config) -> Result<(), BridgeError> {
    check(config).map(drop)?;
    zenoh_config(&config.zenoh).map(drop)
}

fn check(config: &Config) -> Result<Plans, BridgeError> {
    let refuse = |setting: &str, problem: String| BridgeError::Config {
        setting: setting.to_owned(),
        problem,
    };
    if config.exports.is_empty() && config.imports.is_empty() {
        let problem = "there is none, nor an import: name topics for one of them".to_owned();
        return Err(refuse("export", problem));
    }
    if !(1..=MAX_HOPS).contains(&config.hops) {
        return Err(refuse("hops", format!("{} is not from 1 to {MAX_HOPS}", config.hops)));
    }
    if config.heartbeat < Duration::from_millis(10) {
        return Err(refuse("heartbeat", "it must be 10 ms at least".to_owned()));
    }
    if config.queue.messages == 0 || config.queue.bytes == 0 || config.queue.topics == 0 {
        return Err(refuse("queue", "a limit of 0 lets nothing through".to_owned()));
    }
    if toroni::Topic::new(&config.realm).is_err()
        || config.realm.contains('/')
        || config.realm.starts_with('@')
    {
        let problem = format!("{:?} is not one segment of a topic", config.realm);
        return Err(refuse("realm", problem));
    }
    let mut exports: Vec<Arc<export::Plan>> = Vec::new();
    for index in 0..config.exports.len() {
        let plan = export::Plan::new(config, index)?;
        for (other, earlier) in exports.iter().enumerate() {
            if plan.intersects(earlier) {
                let problem = format!(
                    "they can match the same topic as those of export {}: a message belongs to one export",
                    other + 1
                );
                return Err(refuse(&format!("export {}: patterns", index + 1), problem));
            }
            if plan.stream == earlier.stream {
                let problem = format!(
                    "its stream would have the same number as that of export {}: choose another prefix",
                    other + 1
                );
                return Err(refuse(&format!("export {}: prefix", index + 1), problem));
            }
        }
        exports.push(Arc::new(plan));
    }
    let mut imports: Vec<import::Plan> = Vec::new();
    for (index, import) in config.imports.iter().enumerate() {
        let plan = import::Plan::new(index, import)?;
        if let Some(other) = imports.iter().position(|earlier| plan.intersects(earlier)) {
            let problem = format!(
                "they can match the same topic as those of import {}, which has the same prefix",
                other + 1
            );
            return Err(refuse(&format!("import {}: patterns", index + 1), problem));
        }
        if let Some(other) = imports.iter().position(|earlier| plan.is_mixed_with(earlier)) {
            let problem = format!(
                "import {} has the same prefix and another value: imports with one prefix share what comes, so give both the same",
                other + 1
            );
            return Err(refuse(&format!("import {}: batches", index + 1), problem));
        }
        imports.push(plan);
    }
    Ok(Plans { exports, imports: Arc::new(imports), queue: config.queue, settle: config.settle })
}

fn zenoh_config(source: &ZenohSource) -> Result<zenoh::Config, BridgeError> {
    let read = match source {
        ZenohSource::Default => return Ok(zenoh::Config::default()),
        ZenohSource::File(path) => zenoh::Config::from_file(path),
        ZenohSource::Table(table) => {
            zenoh::Config::from_json5(&serde_json::Value::Object(table.clone()).to_string())
        }
    };
    read.map_err(|source| BridgeError::Zenoh { action: "read the configuration of Zenoh", source })
}

fn open(config: &zenoh::Config) -> Result<Session, BridgeError> {
    let opened = zenoh::open(config.clone()).wait();
    opened.map_err(|source| BridgeError::Zenoh { action: "open a session", source })
}
