//! Ways: a stream may reach a node by multicast and over TCP.
//!
//! The bus remembers one mark for a stream, below which everything has arrived, and drops what lies below it. So two ways
//! may bring the same stream, and each message arrives once, if both bring all of it. If one of them left out what the
//! other brings, its mark would hide that. Then the way that comes first brings the stream, and the other one does not.

use super::Selection;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use toroni::Pattern;
use toroni_proto::config::Order;
use toroni_proto::id::{Source, Stream};

/// What a way brings.
#[derive(PartialEq, Eq)]
struct Brought {
    accept: Vec<String>,
    prefix: String,
    is_in_order: bool,
}

/// The ways on which messages come to one bus. Its clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Ways(Arc<Mutex<Firsts>>);

/// Which way brought a stream first, and what it brings of it.
type Firsts = HashMap<(Source, Stream), (usize, Brought)>;

impl Ways {
    /// Returns whether this way may bring a stream. The number differs from those of other ways.
    pub(crate) fn may_bring(
        &self,
        way: usize,
        stream: (Source, Stream),
        selection: &Selection,
    ) -> bool {
        let mut accept: Vec<String> =
            selection.accept.iter().map(Pattern::as_str).map(str::to_owned).collect();
        accept.sort_unstable();
        accept.dedup();
        let prefix = selection.prefix.clone();
        let is_in_order = selection.order == Order::Source;
        let this = Brought { accept, prefix, is_in_order };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match all.get(&stream) {
            Some((first, brought)) => *first == way || (is_in_order && *brought == this),
            None => {
                all.insert(stream, (way, this));
                true
            }
        }
    }

    /// This way does not know the stream any more, so another one may bring it.
    pub(crate) fn forget(&self, way: usize, stream: (Source, Stream)) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.get(&stream).is_some_and(|(first, _)| *first == way) {
            all.remove(&stream);
        }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
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
        assert!(ways.may_bring(0, stream, &all));
        assert!(ways.may_bring(0, stream, &all), "again, after a restart of the source");
        assert!(ways.may_bring(1, stream, &selection(&["b", "a"], Order::Source)));
        assert!(!ways.may_bring(2, stream, &selection(&["a"], Order::Source)));
        assert!(!ways.may_bring(2, stream, &selection(&["a", "b"], Order::Arrival)));
        assert!(ways.may_bring(2, (Source(1), Stream(3)), &selection(&["a"], Order::Arrival)));
        assert!(!ways.may_bring(0, (Source(1), Stream(3)), &selection(&["a"], Order::Arrival)));
        // Another way may bring it once the first one has forgotten it.
        ways.forget(2, stream);
        assert!(!ways.may_bring(2, stream, &selection(&["a"], Order::Source)));
        ways.forget(0, stream);
        assert!(ways.may_bring(2, stream, &selection(&["a"], Order::Source)));
    }
}
