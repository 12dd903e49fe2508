//! What may be missing on a path whose sender has not told what this bus has missed.
//!
//! An importer that joins a numbering asks its sender for what came while it was away. Sometimes there is no such answer:
//! the sender did not answer in time, or it relays streams and has published nothing of its own, so that the importer
//! cannot name a place to continue from. Then only the numbers of a stream tell how much may be missing. They bound it
//! from above, because not every number was sent.

use super::StreamKey;
use std::collections::HashMap;
use toroni::Origin;

/// The streams of such a path.
#[derive(Debug, Default)]
pub(super) struct Unaccounted {
    streams: HashMap<StreamKey, Met>,
    /// Whether the counts of all topics are known, so that from now on counts find what is missing.
    is_told: bool,
    /// The stream of the last message, if there is nothing more to find out about it.
    settled: Option<StreamKey>,
}

/// Up to where a stream is accounted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Base {
    /// All lower numbers have arrived or were reported.
    pub(super) until: u64,
    /// As many messages with this number or a higher one have arrived.
    pub(super) came: u64,
}

impl Base {
    /// Returns how many messages below a number are missing at most.
    pub(super) fn missing_before(self, number: u64) -> u64 {
        number.saturating_sub(self.until).saturating_sub(self.came)
    }
}

#[derive(Debug)]
struct Met {
    /// `None` if nothing of the stream had arrived before: who joins late misses nothing.
    base: Option<Base>,
    /// Whether messages may be missing that no count will show.
    is_doubtful: bool,
}

impl Unaccounted {
    /// Returns whether [`Self::before`] has to know of the messages of a stream.
    pub(super) fn is_open(&self, key: StreamKey) -> bool {
        let is_settled = || {
            self.settled == Some(key) || self.streams.get(&key).is_some_and(|met| !met.is_doubtful)
        };
        !self.is_told || !is_settled()
    }

    /// Returns whether this path has brought messages of a stream.
    pub(super) fn has_met(&self, key: StreamKey) -> bool {
        self.streams.contains_key(&key)
    }

    /// Takes the messages of a stream from `first` to `last`, before they are delivered; `count` of them have come. `base`
    /// is where the stream stands if this path has not brought it yet, and `is_new` says whether they are on a topic that
    /// the path has not brought yet. Returns how many messages are missing at most.
    pub(super) fn before(
        &mut self,
        first: Origin,
        last: u64,
        count: u64,
        base: Option<Base>,
        is_new: bool,
    ) -> u64 {
        let key = StreamKey::of(first);
        let met = self.streams.entry(key).or_insert(Met { base, is_doubtful: true });
        met.is_doubtful |= is_new && !self.is_told;
        let is_doubtful = std::mem::take(&mut met.is_doubtful);
        if self.is_told {
            self.settled = Some(key);
        }
        let Some(base) = &mut met.base else { return 0 };
        let came = if first.number >= base.until { count } else { 0 };
        if !is_doubtful {
            base.came = base.came.saturating_add(came);
            return 0;
        }
        let missing = base.missing_before(last + 1).saturating_sub(came);
        *base = Base { until: base.until.max(last + 1), came: 0 };
        missing
    }

    /// Learns that messages of a stream, from this number on, are missing, and how many: their counts have shown it.
    pub(super) fn found(&mut self, from: Origin, messages: u64) {
        if let Some(Met { base: Some(base), .. }) = self.streams.get_mut(&StreamKey::of(from))
            && from.number >= base.until
        {
            base.came = base.came.saturating_add(messages);
        }
    }

    /// Learns that the sender has sent its own stream up to a number, and the counts of topics; of all topics, if `full`.
    /// Returns how many messages of it are missing at most.
    pub(super) fn told(
        &mut self,
        own: StreamKey,
        until: u64,
        full: bool,
        base: Option<Base>,
    ) -> u64 {
        if self.is_told {
            return 0;
        }
        self.is_told = full;
        for met in self.streams.values_mut() {
            // Of the streams that it relays it does not say how far they are.
            met.is_doubtful = true;
        }
        let met = self.streams.entry(own).or_insert(Met { base, is_doubtful: false });
        met.is_doubtful = false;
        let Some(base) = &mut met.base else { return 0 };
        let missing = base.missing_before(until);
        *base = Base { until: base.until.max(until), came: 0 };
        missing
    }
}
