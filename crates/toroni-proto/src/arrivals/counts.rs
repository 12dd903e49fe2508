//! What can be seen of the arrivals: counters, marks, memory.

use super::sessions::Entry;
use super::{Arrivals, Rejects};
use crate::audience::Name;
use crate::budget::Budget;
use crate::id::{Session, Source, Stream};
use crate::legs::{Leg, LegCounters};
use crate::reassembly::Buffer;
use crate::receiver::{Counters, Mark};
use crate::time::Monotonic;
use crate::wire::{self, Reject};

/// What waits in a stream, and for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Datagrams that are held.
    pub held: usize,
    /// When the oldest of them arrived.
    pub held_since: Option<Monotonic>,
    /// Gaps that are open.
    pub open_gaps: usize,
}

impl Arrivals {
    /// Returns how many datagrams were refused, by reason.
    #[must_use]
    pub const fn rejects(&self) -> &Rejects {
        &self.rejects
    }

    /// Returns how many datagrams were refused of each stream that is followed, by reason. Before its MAC is
    /// checked, a datagram may name any source.
    pub fn rejects_of_streams(&self) -> impl Iterator<Item = (Source, Stream, &Rejects)> {
        self.entries.iter().map(|entry| (entry.source, entry.stream, &entry.rejects))
    }

    pub(super) fn count_reject(&mut self, reason: Reject, buffer: &Buffer, length: usize) {
        self.rejects[reason.index()] += 1;
        let bytes = self.pool.get(buffer).get(..length).unwrap_or_default();
        if let Some(key) = wire::claimed_stream(bytes)
            && let Ok(at) = self.entries.binary_search_by_key(&key, Entry::key)
        {
            self.entries[at].rejects[reason.index()] += 1;
        }
    }

    /// Returns how many datagrams found no buffer, and how many no room for their source.
    #[must_use]
    pub const fn dropped(&self) -> (u64, u64) {
        (self.no_buffer, self.no_entry)
    }

    /// Returns how many events the caller did not fetch in time.
    #[must_use]
    pub const fn events_dropped(&self) -> u64 {
        self.events_dropped
    }

    /// Returns how long repairs took in each stream, and how long datagrams waited for their order.
    pub fn budgets(&self) -> impl Iterator<Item = (Source, Stream, [&Budget; 2])> {
        self.entries.iter().filter_map(|entry| {
            let receiver = entry.receiver.as_ref()?;
            Some((entry.source, entry.stream, [receiver.repair(), receiver.order()]))
        })
    }

    /// Returns what each receiver has counted.
    pub fn counters(&self) -> impl Iterator<Item = (Source, Stream, Session, Counters)> {
        self.entries.iter().filter_map(|entry| {
            let counters = entry.receiver.as_ref()?.counters();
            Some((entry.source, entry.stream, entry.session, counters))
        })
    }

    /// Returns how many receivers the source of a stream knows, as its last SESSION has stated.
    #[must_use]
    pub fn receivers_of(&self, source: Source, stream: Stream) -> Option<u16> {
        let entry = self.entries.iter().find(|entry| entry.key() == (source, stream))?;
        entry.receiver.as_ref()?.audience()
    }

    /// Returns what each leg has brought of each session.
    pub fn legs(&self) -> impl Iterator<Item = (Source, Stream, Leg, LegCounters)> {
        self.entries.iter().flat_map(|entry| {
            let legs = entry.receiver.iter().flat_map(|receiver| receiver.legs());
            legs.map(|(leg, counters)| (entry.source, entry.stream, leg, counters))
        })
    }

    /// Returns the names of the nodes whose streams are followed, as their last SESSIONs stated them.
    pub fn names(&self) -> impl Iterator<Item = (Source, Stream, &Name)> {
        self.entries.iter().filter_map(|it| Some((it.source, it.stream, it.name.as_ref()?)))
    }

    /// Returns what each stream holds, and how much of it is missing.
    pub fn backlogs(&self) -> impl Iterator<Item = (Source, Stream, Backlog)> {
        self.entries.iter().map(|it| {
            let held_since = it.held_since(&self.pool);
            let backlog = Backlog { held: it.held(), held_since, open_gaps: it.open_gaps() };
            (it.source, it.stream, backlog)
        })
    }

    /// Returns where each series continues.
    pub fn marks(&self) -> impl Iterator<Item = (Source, Stream, Mark)> {
        self.entries.iter().filter_map(|entry| Some((entry.source, entry.stream, entry.mark()?)))
    }

    /// Returns how many buffers are free, and how many the receivers hold.
    #[must_use]
    pub fn buffers(&self) -> (usize, usize) {
        (self.pool.free(), self.entries.iter().map(Entry::held).sum())
    }

    /// Returns how many gaps are open.
    #[must_use]
    pub fn open_gaps(&self) -> usize {
        self.entries.iter().map(Entry::open_gaps).sum()
    }
}
