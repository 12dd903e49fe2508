//! The names of a bus, of its streams, and of programs that are no bridges, among all that are connected.

use crate::order::StreamKey;
use toroni::{Bus, Pattern};

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
    pub(crate) source: u32,
    pub(crate) series: u32,
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
        let bus = bus.id().to_string();
        Self {
            source: hash(&["source", &name]),
            series: hash(&["series", &bus]),
            foreign: hash(&["foreign", &name, realm]),
            bus,
        }
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

/// Returns the number of an export's stream. It depends on the patterns alone, not on the place in the configuration: a
/// stream must not get the numbers of another one.
pub(crate) fn stream(patterns: &[Pattern], prefix: &str) -> u16 {
    let mut texts: Vec<_> = patterns.iter().map(Pattern::as_str).collect();
    texts.sort_unstable();
    texts.insert(0, prefix);
    let bytes = hash(&texts).to_le_bytes();
    u16::from_le_bytes([bytes[0], bytes[1]]) % STREAM_LIMIT
}

/// Returns the key under which a bus keeps up to where the stream of a sender is settled (see the module `order`). `None`
/// if no export has a stream with this number.
pub(crate) fn settled(key: StreamKey) -> Option<StreamKey> {
    (key.stream < STREAM_LIMIT).then_some(StreamKey { stream: key.stream | SETTLED, ..key })
}

/// Returns a number that differs each time.
pub(crate) fn unique(seed: &str) -> u32 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.unwrap_or_default().as_nanos().to_string();
    hash(&[seed, &now, &std::process::id().to_string()])
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
    fn a_stream_depends_on_what_is_exported_alone() {
        let of = |texts: &[&str], prefix| {
            let patterns: Vec<_> = texts.iter().map(|text| Pattern::new(text).unwrap()).collect();
            stream(&patterns, prefix)
        };
        assert_eq!(of(&["a", "b/**"], ""), of(&["b/**", "a"], ""));
        assert_ne!(of(&["a", "b/**"], ""), of(&["a", "b/**"], "site"));
        assert_ne!(of(&["a", "b"], ""), of(&["a"], ""));
        assert_ne!(of(&["ab"], ""), of(&["b"], "a"));
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
