//! The configuration of a bridge: which bus, which Zenoh, what it exports and what it imports.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The settings of a bridge. Only exports or imports are required.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The bus. Default: the bus `default` in the default directory.
    #[serde(default)]
    pub bus: BusSettings,
    /// Separates groups of bridges that share a Zenoh network: bridges of one bus and realm stand in for one another,
    /// bridges of one bus and different realms work side by side.
    #[serde(default = "default_realm")]
    pub realm: String,
    /// Names this bus among all that are connected. It must be different on each. Default: made of the machine's id, the
    /// host's name and the directory of the bus.
    #[serde(default)]
    pub source: Option<String>,
    /// The configuration of Zenoh. Default: a peer that finds others as Zenoh does.
    #[serde(default)]
    pub zenoh: ZenohSource,
    /// What goes from the bus to Zenoh.
    #[serde(default, rename = "export")]
    pub exports: Vec<Export>,
    /// What comes from Zenoh to the bus.
    #[serde(default, rename = "import")]
    pub imports: Vec<Import>,
    /// What may wait between Zenoh and the bus. What finds no room is dropped, counted, and reported as lost.
    #[serde(default)]
    pub queue: Queue,
    /// The interval of heartbeats, which tell importers what they should have received.
    #[serde(default = "default_heartbeat", with = "duration")]
    pub heartbeat: Duration,
    /// How long a starting bridge looks for another one of the same bus, and for the numbers of its predecessor.
    #[serde(default = "default_settle", with = "duration")]
    pub settle: Duration,
    /// How long a bridge that is stopped continues to send what was published before, and waits until importers have its
    /// last heartbeat.
    #[serde(default = "default_drain", with = "duration")]
    pub drain: Duration,
    /// The most bridges that a message may pass, 1 to [`MAX_HOPS`].
    #[serde(default = "default_hops")]
    pub hops: u8,
}

/// The most bridges that a message may pass.
pub const MAX_HOPS: u8 = 8;

/// The largest message that a bridge sends, in bytes.
pub const LARGEST_MESSAGE: usize = 16 << 20;

/// The bus of a bridge. It is created with the library's defaults if it does not exist.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BusSettings {
    /// Its name.
    #[serde(default = "default_bus")]
    pub name: String,
    /// The directory of the buses. Default: as for every Toroni program.
    #[serde(default)]
    pub directory: Option<PathBuf>,
}

/// Where the configuration of Zenoh comes from.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(untagged)]
pub enum ZenohSource {
    /// Zenoh's defaults.
    #[default]
    Default,
    /// A file as Zenoh reads it: JSON5, JSON or YAML.
    File(PathBuf),
    /// The same, as a table.
    Table(serde_json::Map<String, serde_json::Value>),
}

/// Messages that go from the bus to Zenoh.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Export {
    /// Which topics. Those of two exports must not match the same topic.
    pub patterns: Vec<String>,
    /// What stands in front of the topic in the key, such as `site-a`. Default: nothing.
    #[serde(default)]
    pub prefix: String,
    /// Zenoh's priority.
    #[serde(default)]
    pub priority: Priority,
    /// What happens if Zenoh cannot send as fast as messages come.
    #[serde(default)]
    pub congestion: Congestion,
    /// Which topics are sent at once, not in a batch with others.
    #[serde(default)]
    pub express: Vec<String>,
    /// The encoding that Zenoh's programs see, by pattern. A topic gets that of the first pattern, in the order of their
    /// text, that matches. Default: `application/octet-stream`.
    #[serde(default)]
    pub encoding: BTreeMap<String, String>,
    /// Whether it answers queries, from the ring and from the values of retained topics.
    #[serde(default)]
    pub history: bool,
    /// Whether it also sends what came to this bus from elsewhere, and the losses on the way here.
    #[serde(default)]
    pub relay: bool,
    /// Whether publishers wait for the bridge as the bus's policy says. Default: no. The bridge is then overtaken if it
    /// is too slow, and reports that as a loss.
    #[serde(default)]
    pub gating: bool,
}

/// Messages that come from Zenoh to the bus.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Import {
    /// Which topics.
    pub patterns: Vec<String>,
    /// What stands in front of the topic in the key. It is removed. Default: nothing.
    #[serde(default)]
    pub prefix: String,
    /// What is put in front of the topic on this bus. Default: nothing.
    #[serde(default)]
    pub under: String,
    /// Whether it asks each export for the newest message of each topic when it first meets it.
    #[serde(default)]
    pub history: bool,
    /// How long a message waits for one that should come before it.
    #[serde(default = "default_reorder", with = "duration")]
    pub reorder: Duration,
    /// What becomes of Zenoh's deletions, which are not messages.
    #[serde(default)]
    pub deletes: Deletes,
    /// Whether the bus keeps the newest message of each topic that arrives, for subscribers that join later.
    #[serde(default)]
    pub retain: bool,
    /// Whether it takes messages of bridges alone, many in one sample, which is several times as fast for short ones.
    /// What other programs publish does not come.
    #[serde(default)]
    pub batches: bool,
}

/// Zenoh's priorities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "they are Zenoh's names")]
pub enum Priority {
    RealTime,
    InteractiveHigh,
    InteractiveLow,
    DataHigh,
    #[default]
    Data,
    DataLow,
    Background,
}

/// What happens to a message for which Zenoh has no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Congestion {
    /// It is dropped for the receiver that is too slow, which learns of the loss. The others get it.
    #[default]
    Drop,
    /// The export waits for the slowest receiver. After 5 s Zenoh closes the link to a receiver that is stuck.
    Block,
}

/// What becomes of Zenoh's deletions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deletes {
    /// They are counted and left out.
    #[default]
    Ignore,
    /// They become messages without bytes.
    Empty,
}

/// Limits of what waits between Zenoh and the bus.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Queue {
    /// Messages.
    pub messages: usize,
    /// Bytes of their payloads.
    pub bytes: usize,
    /// Topics of which the order is kept. Those that were silent longest are forgotten first.
    pub topics: usize,
}

impl Default for Queue {
    /// 1,024 batches of Zenoh with 64 messages each.
    fn default() -> Self {
        Self { messages: 64 << 10, bytes: 64 << 20, topics: 64 << 10 }
    }
}

impl Default for BusSettings {
    fn default() -> Self {
        Self { name: default_bus(), directory: None }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            bus: BusSettings::default(),
            realm: default_realm(),
            source: None,
            zenoh: ZenohSource::default(),
            exports: Vec::new(),
            imports: Vec::new(),
            queue: Queue::default(),
            heartbeat: default_heartbeat(),
            settle: default_settle(),
            drain: default_drain(),
            hops: default_hops(),
        }
    }
}

impl Export {
    /// Returns an export of these patterns with default settings.
    pub fn new<T: Into<String>>(patterns: impl IntoIterator<Item = T>) -> Self {
        Self {
            patterns: patterns.into_iter().map(Into::into).collect(),
            prefix: String::new(),
            priority: Priority::default(),
            congestion: Congestion::default(),
            express: Vec::new(),
            encoding: BTreeMap::new(),
            history: false,
            relay: false,
            gating: false,
        }
    }
}

impl Import {
    /// Returns an import of these patterns with default settings.
    pub fn new<T: Into<String>>(patterns: impl IntoIterator<Item = T>) -> Self {
        Self {
            patterns: patterns.into_iter().map(Into::into).collect(),
            prefix: String::new(),
            under: String::new(),
            history: false,
            reorder: default_reorder(),
            deletes: Deletes::default(),
            retain: false,
            batches: false,
        }
    }
}

fn default_realm() -> String {
    "default".to_owned()
}

fn default_bus() -> String {
    "default".to_owned()
}

const fn default_heartbeat() -> Duration {
    Duration::from_secs(1)
}

const fn default_settle() -> Duration {
    Duration::from_secs(1)
}

const fn default_drain() -> Duration {
    Duration::from_secs(5)
}

const fn default_reorder() -> Duration {
    Duration::from_millis(20)
}

const fn default_hops() -> u8 {
    MAX_HOPS
}

/// Durations with a unit.
mod duration {
    use serde::{Deserialize, Deserializer, de};
    use std::time::Duration;

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| {
            de::Error::custom(format!("{text:?} is not a duration: write a number and ms or s"))
        })?;
        match unit {
            "ms" => Ok(Duration::from_millis(number)),
            "s" => Ok(Duration::from_secs(number)),
            _ => Err(de::Error::custom(format!(
                "the unit of {text:?} is not known: write ms or s, as in \"20ms\""
            ))),
        }
    }
}
