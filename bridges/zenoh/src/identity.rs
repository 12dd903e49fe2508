//! The names of a bus, of its streams, and of programs that are no bridges, among all that are connected.

use crate::config::Export;
use crate::order::StreamKey;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use toroni::Bus;

/// Set in the numbers of streams that have no messages: see [`settled`].
const SETTLED: u16 = 0x8000;
/// The numbers of streams are below this, so that all differ from those with [`SETTLED`], and those from
/// [`crate::loss::STREAM`].
const STREAM_LIMIT: u16 = SETTLED - 1;

/// The names of a bus.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// The id of the bus, as text.
    pub(crate) bus: String,
    /// Names the bridges that stand in for one another.
    pub(crate) realm: u32,
    pub(crate) source: u32,
    pub(crate) series: u32,
    /// See [`crate::beat::Beat::life`].
    pub(crate) life: u64,
    /// The source of what programs that are no bridges publish. Bridges of other realms have another one.
    pub(crate) foreign: u32,
}

impl Identity {
    /// Makes the names of a bus. `name` is the setting `source`.
    pub(crate) fn new(bus: &Bus, name: Option<&str>, realm: &str) -> Self {
        let place = || {
            let read = |path| std::fs::read_to_string(path).unwrap_or_default();
            let path = bus.path().canonicalize().unwrap_or_else(|_| bus.path().to_owned());
            let [machine, host] = ["/etc/machine-id", "/proc/sys/kernel/hostname"].map(read);
            format!("{machine}\n{host}\n{}", path.display())
        };
        let name = name.map_or_else(place, str::to_owned);
        // A copy has the id of the bus, but is another file. Its sequences may name other messages.
        let file = std::fs::metadata(bus.path().join("ring")).map(|file| {
            let born = file.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            format!("{} {}", file.ino(), born.unwrap_or_default().as_nanos())
        });
        let bus = bus.id().to_string();
        Self {
            realm: hash(&["realm", realm]),
            source: hash(&["source", &name]),
            series: hash(&["series", &bus, &file.unwrap_or_default()]),
            life: 0,
            foreign: hash(&["foreign", &name, realm]),
            bus,
        }
    }

    /// Returns the names of the same bus after its sequences have gone back. Each life has a series of its own.
    pub(crate) fn with_life(&self, life: u64) -> Self {
        if life == 0 {
            return self.clone();
        }
        let series = hash(&["life", &self.series.to_string(), &life.to_string()]);
        Self { series, life, ..self.clone() }
    }

    /// Returns the key of one of its streams.
    pub(crate) fn stream(&self, stream: u16) -> StreamKey {
        StreamKey { source: self.source, series: self.series, stream }
    }

    /// Returns the key of what a program that is no bridge publishes.
    pub(crate) fn foreign(&self, publisher: &str) -> StreamKey {
        let series = if publisher.is_empty() { 0 } else { hash(&["publisher", publisher]) };
        StreamKey { source: self.foreign, series, stream: 0 }
    }
}

/// Returns the number of an export's stream, which is the export with this index among those of one prefix. It does not
/// depend on the patterns: importers ask for what they have missed by the stream, also after the patterns were edited.
pub(crate) fn stream(realm: &str, prefix: &str, index: usize) -> u16 {
    let [a, b, ..] = hash(&["stream", realm, prefix]).to_le_bytes();
    let number = usize::from(u16::from_le_bytes([a, b])).saturating_add(index);
    u16::try_from(number % usize::from(STREAM_LIMIT)).unwrap_or_default()
}

/// Returns a number that is the same as long as the exports are.
pub(crate) fn edition(exports: &[Export]) -> u32 {
    let mut texts = Vec::new();
    for export in exports {
        texts.extend(["export", &export.prefix]);
        texts.extend(export.patterns.iter().map(String::as_str));
    }
    hash(&texts)
}

/// Returns the key under which a bus keeps up to where the stream of a sender is settled (see the module `order`). `None`
/// if no export has a stream with this number.
pub(crate) fn settled(key: StreamKey) -> Option<StreamKey> {
    (key.stream < STREAM_LIMIT).then_some(StreamKey { stream: key.stream | SETTLED, ..key })
}

/// Returns a number that differs each time.
pub(crate) fn unique(seed: &str) -> u32 {
    hash(&[seed, &since_epoch().as_nanos().to_string(), &std::process::id().to_string()])
}

/// Returns a number above this one that differs each time: the milliseconds since 1970.
pub(crate) fn next_life(last: u64) -> u64 {
    u64::try_from(since_epoch().as_millis()).unwrap_or(0).max(last.saturating_add(1))
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn hash(parts: &[&str]) -> u32 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"toroni-zenoh");
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    let [a, b, c, d, ..] = *hasher.finalize().as_bytes();
    u32::from_le_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_by_realm_prefix_and_index() {
        let mut all = std::collections::HashSet::new();
        for (realm, prefix, index) in [("a", "", 0), ("a", "", 1), ("a", "b", 0), ("b", "", 0)] {
            let number = stream(realm, prefix, index);
            assert!(number < STREAM_LIMIT && all.insert(number), "{realm} {prefix} {index}");
        }
        assert_eq!(stream("a", "", usize::from(STREAM_LIMIT)), stream("a", "", 0));
    }

    #[test]
    fn each_life_has_a_series_of_its_own() {
        let first =
            Identity { bus: "ab".into(), realm: 1, source: 2, series: 3, life: 0, foreign: 4 };
        assert_eq!(first.with_life(0).series, 3);
        let second = next_life(0);
        let third = next_life(second);
        assert!(third > second && second > 0);
        assert_ne!(first.with_life(second).series, first.with_life(third).series);
    }

    #[test]
    fn no_stream_has_the_number_of_another_purpose() {
        let mut settled_ones = std::collections::HashSet::new();
        for stream in 0..STREAM_LIMIT {
            let key = settled(StreamKey { stream, ..StreamKey::default() }).unwrap();
            assert!(key.stream > STREAM_LIMIT && key.stream != crate::loss::STREAM);
            assert!(settled(key).is_none() && settled_ones.insert(key.stream));
        }
    }
}
