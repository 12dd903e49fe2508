//! Ways: a stream may reach a node by multicast and over TCP.
//!
//! The bus remembers one mark for a stream, below which everything has arrived, and drops what lies below it. So two ways
//! may bring the same stream, and each message arrives once, if both bring all of it. If one of them left out what the
//! other brings, its mark would hide that. Then the way that comes first brings the stream, and the other one does not.

use super::Selection;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use toroni::Pattern;
use toroni_proto::config::Order;
use toroni_proto::id::{Session, Source, Stream};

/// How many streams that rest are remembered.
const MOST_RESTING: usize = 4_096;

/// What a way brings.
#[derive(PartialEq, Eq)]
struct Brought {
    accept: Vec<String>,
    prefix: String,
    is_in_order: bool,
}

/// The ways on which messages come to one bus. Its clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Ways(Arc<Shared>);

#[derive(Default)]
struct Shared {
    streams: Mutex<Streams>,
    /// How often a stream has gone back.
    gone_back: AtomicU64,
}

#[derive(Default)]
struct Streams {
    coming: HashMap<(Source, Stream), Coming>,
    /// Those that have ended in order, and are likely to come back.
    resting: HashSet<(Source, Stream)>,
    /// In which session streams went back because their senders had forgotten earlier ones.
    since: HashMap<(Source, Stream), Session>,
}

/// A stream that comes.
struct Coming {
    /// What each of its ways brings.
    brought: Brought,
    ways: Vec<usize>,
}

impl Ways {
    /// Begins to bring a stream by this way, whose number differs from those of other ways. Returns whether it may.
    pub(crate) fn join(&self, way: usize, stream: (Source, Stream), selection: &Selection) -> bool {
        let mut accept: Vec<String> =
            selection.accept.iter().map(Pattern::as_str).map(str::to_owned).collect();
        accept.sort_unstable();
        accept.dedup();
        let prefix = selection.prefix.clone();
        let is_in_order = selection.order == Order::Source;
        let brought = Brought { accept, prefix, is_in_order };
        let mut all = self.all();
        all.resting.remove(&stream);
        let Some(coming) = all.coming.get_mut(&stream) else {
            all.coming.insert(stream, Coming { brought, ways: vec![way] });
            return true;
        };
        if coming.ways.contains(&way) {
            return true;
        }
        let may = is_in_order && coming.brought == brought;
        if may {
            coming.ways.push(way);
        }
        may
    }

    /// The stream does not come by this way any more. `rests` says that it has ended in order. Returns whether it comes by another
    /// way.
    pub(crate) fn leave(&self, way: usize, stream: (Source, Stream), rests: bool) -> bool {
        let mut all = self.all();
        let Some(coming) = all.coming.get_mut(&stream) else { return false };
        coming.ways.retain(|other| *other != way);
        let remain = !coming.ways.is_empty();
        if !remain {
            all.coming.remove(&stream);
            if rests && all.resting.len() < MOST_RESTING {
                all.resting.insert(stream);
            }
        }
        remain
    }

    /// Returns whether a stream comes by this way.
    pub(crate) fn comes_by(&self, way: usize, stream: (Source, Stream)) -> bool {
        self.all().coming.get(&stream).is_some_and(|coming| coming.ways.contains(&way))
    }

    /// Returns whether a stream comes by any way but this one.
    pub(crate) fn has_other(&self, way: usize, stream: (Source, Stream)) -> bool {
        let all = self.all();
        all.coming.get(&stream).is_some_and(|coming| coming.ways.iter().any(|other| *other != way))
    }

    /// Returns whether a stream comes.
    pub(crate) fn has(&self, stream: (Source, Stream)) -> bool {
        self.all().coming.contains_key(&stream)
    }

    /// Returns whether a stream has ended in order, and did not come since.
    pub(crate) fn rests(&self, stream: (Source, Stream)) -> bool {
        self.all().resting.contains(&stream)
    }

    /// A stream went back when this session began.
    pub(super) fn go_back(&self, stream: (Source, Stream), session: Session) {
        let mut all = self.all();
        if all.since.len() >= MOST_RESTING {
            all.since.clear();
        }
        all.since.insert(stream, session);
        self.0.gone_back.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how often a stream has gone back.
    pub(super) fn gone_back(&self) -> u64 {
        self.0.gone_back.load(Ordering::Relaxed)
    }

    /// Returns the session in which a stream went back last.
    pub(super) fn since(&self, stream: (Source, Stream)) -> Option<Session> {
        self.all().since.get(&stream).copied()
    }

    fn all(&self) -> MutexGuard<'_, Streams> {
        self.0.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.all().coming.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(accept: &[&str], order: Order) -> Selection {
        let accept = accept.iter().map(|text| Pattern::new(text).unwrap()).collect();
        Selection { accept, prefix: String::new(), order }
    }

    #[test]
    fn two_ways_bring_a_stream_if_neither_leaves_anything_out() {
        let ways = Ways::default();
        let stream = (Source(1), Stream(2));
        let all = selection(&["a", "b"], Order::Source);
        assert!(ways.join(0, stream, &all));
        assert!(ways.join(0, stream, &all), "again, after a restart of the source");
        assert!(ways.join(1, stream, &selection(&["b", "a"], Order::Source)));
        assert!(!ways.join(2, stream, &selection(&["a"], Order::Source)));
        assert!(!ways.join(2, stream, &selection(&["a", "b"], Order::Arrival)));
        assert!(ways.join(2, (Source(1), Stream(3)), &selection(&["a"], Order::Arrival)));
        assert!(!ways.join(0, (Source(1), Stream(3)), &selection(&["a"], Order::Arrival)));
        // Another way may bring it once all others have left.
        assert!(ways.has_other(0, stream) && ways.has(stream));
        assert!(ways.leave(1, stream, true) && !ways.rests(stream) && !ways.has_other(0, stream));
        assert!(!ways.join(2, stream, &selection(&["a"], Order::Source)));
        assert!(!ways.leave(0, stream, true) && ways.rests(stream) && !ways.has(stream));
        assert!(ways.join(2, stream, &selection(&["a"], Order::Source)) && !ways.rests(stream));
    }
}
