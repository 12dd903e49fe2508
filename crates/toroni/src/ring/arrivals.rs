//! The table of arrivals: how far each stream from elsewhere has arrived in this bus.
//!
//! A stream is known by its source, series and number. Its *mark* is the lowest number that has not arrived, neither as
//! a message nor as a loss. A message with a lower number is a duplicate. The marks are in the ring because they have to
//! outlive the process that brings the messages: the next one continues where it stopped, even if the ring has
//! overwritten all that it brought.
//!
//! Only the owner of the writer lock uses the table. For each message it takes four steps:
//!
//! 1. It notes in [`PendingArrival`] the entry, the new mark, and the position of the record. It stores the entry last.
//! 2. It writes and commits the record (`writer.rs`).
//! 3. It raises the mark.
//! 4. It clears the note.
//!
//! If it dies in between, its note remains. The next owner, whether it uses the table or not, recovers the end of the
//! stream and then settles the note, before it writes ([`Arrivals::settle`]). If the end is beyond the noted position,
//! the record was committed, and the mark is raised. Otherwise the note is void. It must not remain: the next record
//! starts at the same position.
//!
//! The table is a hash table with linear probing. Entries are never removed, only replaced once the table is full, so
//! an entry that is found once stays within its probing distance.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::layout::{ARRIVAL_FREE, ARRIVAL_REPLACED, ARRIVAL_USED, ArrivalEntry, PendingArrival};
use super::position::to_index;
use crate::error::Corrupt;
use crate::hook::{self, CrashPoint, mutant};
use crate::sync::{Ordering, fence};
use std::collections::HashMap;

/// Marks are at most this, the limit of numbers.
const LARGEST_MARK: u64 = 1 << 48;

/// How long nothing must have arrived of a series before its entry may be replaced, in ns: a day.
const FORGOTTEN_AFTER_NS: u64 = 24 * 3600 * 1_000_000_000;

/// Names a stream of messages from elsewhere, for [`Inlet::claim`](crate::Inlet::claim).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamKey {
    /// The host or program that published the stream first, as in [`Origin::source`](crate::Origin::source).
    pub source: u32,
    /// The series, as in [`Origin::series`](crate::Origin::series).
    pub series: u32,
    /// The number of the stream within its series, as in [`Origin::stream`](crate::Origin::stream).
    pub stream: u16,
}

/// A publishing participant that brings messages from elsewhere: its slot, and the generation of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bringer {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// The table, for the owner of the writer lock.
#[derive(Clone, Copy)]
pub(crate) struct Arrivals<'a> {
    pub(crate) pending: &'a PendingArrival,
    pub(crate) entries: &'a [ArrivalEntry],
}

/// The entry of a stream that the caller brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    index: usize,
    /// The lowest number that has not arrived.
    pub(crate) mark: u64,
    /// Who brought the stream before, if the caller has just taken over.
    pub(crate) taken_over: Option<Bringer>,
}

/// Why a stream cannot be brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused<E> {
    /// Another participant brings its series, and may live.
    Taken(Bringer),
    /// The table has no entry left.
    Full,
    /// It is not known whether the other participant lives.
    Unknown(E),
    Corrupt(Corrupt),
}

impl<E> From<Corrupt> for Refused<E> {
    fn from(corrupt: Corrupt) -> Self {
        Self::Corrupt(corrupt)
    }
}

impl Arrivals<'_> {
    /// Empties the table. Requires that no other process uses it.
    pub(crate) fn reset(&self) {
        self.pending.entry.store(0, Ordering::Relaxed);
        for entry in self.entries {
            entry.state.store(ARRIVAL_FREE, Ordering::Relaxed);
        }
    }

    /// States that no process brings any stream. Requires that no other process uses the table.
    pub(crate) fn forget_bringers(&self) {
        for entry in self.entries {
            entry.bringer_slot.store(0, Ordering::Relaxed);
        }
    }

    /// Completes what a dead owner of the lock left, or discards it. Part of every recovery. `tail` is the recovered end of
    /// the stream.
    pub(crate) fn settle(&self, tail: u64) -> Result<(), Corrupt> {
        match self.pending.entry.load(Ordering::Relaxed) {
            0 => Ok(()),
            noted => self.settle_noted(noted, tail),
        }
    }

    fn settle_noted(&self, noted: u32, tail: u64) -> Result<(), Corrupt> {
        let position = self.pending.position.load(Ordering::Relaxed);
        let mark = self.pending.mark.load(Ordering::Relaxed);
        let entry = self.entries.get(to_index(u64::from(noted).wrapping_sub(1)));
        let (Some(entry), true) = (entry, mark <= LARGEST_MARK) else {
            // Reported once: otherwise each death to come would cost another publisher this error.
            self.pending.entry.store(0, Ordering::Relaxed);
            return Err(Corrupt { what: "pending arrival", value: noted.into(), position });
        };
        let was_committed = tail > position;
        if was_committed && !mutant("mark_not_redone") {
            entry.mark.store(mark.max(entry.mark.load(Ordering::Relaxed)), Ordering::Relaxed);
        }
        self.pending.entry.store(0, Ordering::Release);
        Ok(())
    }

    /// Returns the entry of a stream that `me` brings. Makes or takes over the entry if necessary: `has_left` says whether
    /// another participant no longer brings anything.
    #[inline]
    pub(crate) fn bring<E>(
        &self,
        key: StreamKey,
        me: Bringer,
        now_ns: u64,
        has_left: impl FnMut(Bringer) -> Result<bool, E>,
    ) -> Result<Arrival, Refused<E>> {
        if let Some(index) = self.find(key)
            && self.entries[index].bringer() == Some(me)
        {
            return Ok(Arrival { index, mark: self.mark(index)?, taken_over: None });
        }
        self.take(key, me, now_ns, has_left)
    }

    #[cold]
    fn take<E>(
        &self,
        key: StreamKey,
        me: Bringer,
        now_ns: u64,
        mut has_left: impl FnMut(Bringer) -> Result<bool, E>,
    ) -> Result<Arrival, Refused<E>> {
        let mut taken_over = None;
        // One participant brings all streams of a series. It may have filtered what it brings, so its marks say nothing
        // about what another one would bring.
        for entry in self.entries {
            let Some(other) = entry.bringer().filter(|other| *other != me) else { continue };
            if !entry.is_of_series(key) {
                continue;
            }
            if !has_left(other).map_err(Refused::Unknown)? {
                return Err(Refused::Taken(other));
            }
            taken_over = Some(other);
        }
        if let Some(index) = self.find(key) {
            // Checked before it is taken: a hostile mark stays where it is found again.
            let mark = self.mark(index)?;
            let entry = &self.entries[index];
            entry.set_bringer(me);
            entry.reached_ns.store(now_ns, Ordering::Relaxed);
            return Ok(Arrival { index, mark, taken_over });
        }
        let index = self.place_for(key, now_ns).ok_or(Refused::Full)?;
        self.entries[index].make(key, me, now_ns);
        Ok(Arrival { index, mark: 0, taken_over })
    }

    /// Notes that the record at `tail`, the end of the stream, will raise the mark of `arrival`.
    #[inline]
    pub(crate) fn begin(&self, arrival: &Arrival, mark: u64, tail: u64) {
        if mutant("mark_before_commit") {
            self.entries[arrival.index].mark.store(mark, Ordering::Relaxed);
        }
        // The last note is cleared before this one is written. Otherwise an owner that dies in between would leave the old
        // entry with the new position, and its record would count as not committed.
        fence(Ordering::Release);
        self.pending.position.store(tail, Ordering::Relaxed);
        self.pending.mark.store(mark, Ordering::Relaxed);
        let noted =
            u32::try_from(arrival.index.saturating_add(1)).expect("a bus has fewer entries");
        // After both values. COMMIT, which follows, keeps it from being stored later than the record.
        self.pending.entry.store(noted, Ordering::Release);
        hook::point(CrashPoint::ArrivalPending);
    }

    /// Raises the mark, after the record was committed.
    #[inline]
    pub(crate) fn finish(&self, arrival: &Arrival, mark: u64, now_ns: u64) {
        hook::point(CrashPoint::BeforeMark);
        let entry = &self.entries[arrival.index];
        // Not before COMMIT: an owner that dies in between would have claimed an arrival that did not happen.
        entry.mark.store(mark, Ordering::Release);
        entry.reached_ns.store(now_ns, Ordering::Relaxed);
        hook::point(CrashPoint::AfterMark);
        self.pending.entry.store(0, Ordering::Release);
    }

    /// Raises the mark without a record. It is one store, so an owner that dies has done it or has not.
    pub(crate) fn raise(&self, arrival: &Arrival, mark: u64, now_ns: u64) {
        let entry = &self.entries[arrival.index];
        entry.mark.store(mark.max(arrival.mark), Ordering::Release);
        entry.reached_ns.store(now_ns, Ordering::Relaxed);
    }

    fn mark(&self, index: usize) -> Result<u64, Corrupt> {
        let mark = self.entries[index].mark.load(Ordering::Relaxed);
        if mark <= LARGEST_MARK {
            return Ok(mark);
        }
        Err(Corrupt { what: "mark of an arrival", value: mark, position: index as u64 })
    }

    #[inline]
    fn find(&self, key: StreamKey) -> Option<usize> {
        self.probe(key)
            .take_while(|index| self.entries[*index].state.load(Ordering::Relaxed) != ARRIVAL_FREE)
            .find(|index| self.entries[*index].is_of(key))
    }

    /// Returns the entries in the order in which the stream's is looked for.
    #[inline]
    fn probe(&self, key: StreamKey) -> impl Iterator<Item = usize> + use<> {
        let count = self.entries.len();
        let start = hash(key).checked_rem(count).unwrap_or(0);
        (start..count).chain(0..start)
    }

    /// Returns a free entry for the stream. If there is none, one of a series that its source no longer uses: nothing has
    /// arrived of any of its streams for a day, and something has arrived of another series of that source since.
    fn place_for(&self, key: StreamKey, now_ns: u64) -> Option<usize> {
        let is_free =
            |index: &usize| self.entries[*index].state.load(Ordering::Relaxed) != ARRIVAL_USED;
        if let Some(index) = self.probe(key).find(is_free) {
            return Some(index);
        }
        // The caller has the writer lock, so the table is read a fixed number of times.
        let mut reached_of: HashMap<(u32, u32), u64> = HashMap::new();
        let mut newest_of: HashMap<u32, u64> = HashMap::new();
        for entry in self.entries {
            let (source, series) = entry.source_and_series();
            let reached_ns = entry.reached_ns.load(Ordering::Relaxed);
            let of_series = reached_of.entry((source, series)).or_default();
            *of_series = reached_ns.max(*of_series);
            let of_source = newest_of.entry(source).or_default();
            *of_source = reached_ns.max(*of_source);
        }
        let is_forgotten = |index: &usize| {
            let (source, series) = self.entries[*index].source_and_series();
            // Another process may write to the table, and an entry may have changed since it was read.
            let reached_ns = reached_of.get(&(source, series)).copied().unwrap_or(u64::MAX);
            reached_ns.saturating_add(FORGOTTEN_AFTER_NS) < now_ns
                && newest_of.get(&source).is_some_and(|newest| *newest > reached_ns)
        };
        self.probe(key).find(is_forgotten)
    }
}

impl ArrivalEntry {
    fn source_and_series(&self) -> (u32, u32) {
        (self.source.load(Ordering::Relaxed), self.series.load(Ordering::Relaxed))
    }

    #[inline]
    fn is_of(&self, key: StreamKey) -> bool {
        self.state.load(Ordering::Relaxed) == ARRIVAL_USED
            && self.source.load(Ordering::Relaxed) == key.source
            && self.series.load(Ordering::Relaxed) == key.series
            && self.stream.load(Ordering::Relaxed) == u32::from(key.stream)
    }

    fn is_of_series(&self, key: StreamKey) -> bool {
        self.state.load(Ordering::Relaxed) == ARRIVAL_USED
            && self.source.load(Ordering::Relaxed) == key.source
            && self.series.load(Ordering::Relaxed) == key.series
    }

    #[inline]
    fn bringer(&self) -> Option<Bringer> {
        let slot = self.bringer_slot.load(Ordering::Relaxed).checked_sub(1)?;
        Some(Bringer { slot, generation: self.bringer_generation.load(Ordering::Relaxed) })
    }

    /// An owner that dies in the middle leaves an entry that no process brings.
    fn set_bringer(&self, bringer: Bringer) {
        self.bringer_slot.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        self.bringer_generation.store(bringer.generation, Ordering::Relaxed);
        self.bringer_slot.store(bringer.slot.saturating_add(1), Ordering::Release);
    }

    /// Makes the entry that of a new stream. An owner that dies in the middle leaves an entry that others pass on their
    /// way to theirs, and that can be made again.
    fn make(&self, key: StreamKey, bringer: Bringer, now_ns: u64) {
        self.state.store(ARRIVAL_REPLACED, Ordering::Relaxed);
        fence(Ordering::Release);
        self.source.store(key.source, Ordering::Relaxed);
        self.series.store(key.series, Ordering::Relaxed);
        self.stream.store(key.stream.into(), Ordering::Relaxed);
        self.mark.store(0, Ordering::Relaxed);
        self.reached_ns.store(now_ns, Ordering::Relaxed);
        self.set_bringer(bringer);
        hook::point(CrashPoint::MidArrival);
        self.state.store(ARRIVAL_USED, Ordering::Release);
    }
}

/// Spreads streams over the table. Sources are random numbers already; streams of one source are neighbours.
#[inline]
fn hash(key: StreamKey) -> usize {
    let mixed = key.source ^ key.series.rotate_left(16);
    mixed.wrapping_add(key.stream.into()) as usize
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::settings::MOST_ARRIVALS;
    use rustix::time::{ClockId, clock_gettime};
    use std::convert::Infallible;

    struct Table {
        pending: PendingArrival,
        entries: Vec<ArrivalEntry>,
    }

    const ME: Bringer = Bringer { slot: 0, generation: 1 };
    const OTHER: Bringer = Bringer { slot: 3, generation: 7 };

    fn key(source: u32, series: u32, stream: u16) -> StreamKey {
        StreamKey { source, series, stream }
    }

    impl Table {
        fn new(entries: usize) -> Self {
            let entries = (0..entries).map(|_| ArrivalEntry::default()).collect();
            Self { pending: PendingArrival::default(), entries }
        }

        fn arrivals(&self) -> Arrivals<'_> {
            Arrivals { pending: &self.pending, entries: &self.entries }
        }

        fn bring(
            &self,
            key: StreamKey,
            who: Bringer,
            now_ns: u64,
        ) -> Result<Arrival, Refused<Infallible>> {
            self.arrivals().bring(key, who, now_ns, |_| Ok(false))
        }

        /// Has messages up to the mark arrive.
        fn raise(&self, key: StreamKey, mark: u64, now_ns: u64) {
            let arrival = self.bring(key, ME, now_ns).unwrap();
            self.arrivals().begin(&arrival, mark, 0);
            self.arrivals().finish(&arrival, mark, now_ns);
        }
    }

    #[test]
    fn each_stream_has_a_mark_of_its_own() {
        let table = Table::new(16);
        let keys = [key(1, 1, 0), key(1, 1, 1), key(1, 2, 0), key(2, 1, 0), key(17, 1, 0)];
        for (mark, key) in (1..).zip(keys) {
            assert_eq!(table.bring(key, ME, 0).unwrap().mark, 0);
            table.raise(key, mark, 0);
        }
        for (mark, key) in (1..).zip(keys) {
            assert_eq!(table.bring(key, ME, 0).unwrap().mark, mark);
        }
    }

    #[test]
    fn a_full_table_finds_all_its_streams_and_refuses_more() {
        let table = Table::new(7);
        for stream in 0..7 {
            table.raise(key(9, 9, stream * 7), u64::from(stream) + 1, 0);
        }
        for stream in 0..7 {
            let arrival = table.bring(key(9, 9, stream * 7), ME, 0).unwrap();
            assert_eq!(arrival.mark, u64::from(stream) + 1);
        }
        assert_eq!(table.bring(key(9, 9, 1), ME, u64::MAX), Err(Refused::Full));
        assert_eq!(Table::new(0).bring(key(9, 9, 1), ME, 0), Err(Refused::Full));
    }

    #[test]
    fn an_entry_of_a_forgotten_series_is_used_again() {
        let day = FORGOTTEN_AFTER_NS;
        let table = Table::new(3);
        table.raise(key(5, 1, 0), 10, 100);
        table.raise(key(5, 2, 0), 20, 200);
        table.raise(key(6, 1, 0), 30, 100);
        assert_eq!(table.bring(key(7, 1, 0), ME, day), Err(Refused::Full), "not for a day yet");
        let late = 150 + day;
        assert_eq!(table.bring(key(7, 1, 0), ME, late).unwrap().mark, 0);
        assert_eq!(table.bring(key(5, 2, 0), ME, late).unwrap().mark, 20, "the newer series");
        assert_eq!(table.bring(key(6, 1, 0), ME, late).unwrap().mark, 30, "has no newer one");
        assert_eq!(table.bring(key(5, 1, 0), ME, late), Err(Refused::Full));
    }

    #[test]
    fn a_quiet_stream_of_a_series_in_use_is_not_forgotten() {
        let late = 200 + FORGOTTEN_AFTER_NS;
        let table = Table::new(3);
        table.raise(key(5, 1, 0), 10, 100);
        table.raise(key(5, 1, 1), 20, late);
        table.raise(key(5, 2, 0), 30, late);
        assert_eq!(table.bring(key(7, 1, 0), ME, late), Err(Refused::Full));
        assert_eq!(table.bring(key(5, 1, 0), ME, late).unwrap().mark, 10);
    }

    /// The largest table is full, nothing of it may be replaced, and others wait for the writer lock meanwhile.
    #[test]
    fn a_full_table_is_searched_in_linear_time() {
        let entries = usize::try_from(MOST_ARRIVALS).unwrap();
        let table = Table::new(entries);
        for (source, entry) in (0..).zip(&table.entries) {
            entry.make(key(source, 1, 0), OTHER, 0);
        }
        // What this thread uses, whatever else the processors do.
        let used = || clock_gettime(ClockId::ThreadCPUTime).tv_sec;
        let before = used();
        for source in 0..3 {
            assert_eq!(table.bring(key(source, 2, 0), ME, u64::MAX), Err(Refused::Full));
        }
        // Each search in quadratic time takes longer than this.
        assert!(used() - before < 15);
    }

    #[test]
    fn no_process_brings_anything_after_a_reboot() {
        let table = Table::new(4);
        table.raise(key(1, 1, 0), 5, 0);
        table.arrivals().forget_bringers();
        let arrival = table.bring(key(1, 1, 0), OTHER, 0).unwrap();
        assert_eq!((arrival.mark, arrival.taken_over), (5, None));
    }

    #[test]
    fn one_participant_brings_all_streams_of_a_series_until_it_has_left() {
        let table = Table::new(8);
        table.raise(key(1, 1, 0), 5, 0);
        for stream in [0, 1] {
            assert_eq!(table.bring(key(1, 1, stream), OTHER, 0), Err(Refused::Taken(ME)));
        }
        assert_eq!(
            table.bring(key(1, 2, 0), OTHER, 0).unwrap().taken_over,
            None,
            "its next series"
        );

        let arrivals = table.arrivals();
        let unknown = arrivals.bring(key(1, 1, 0), OTHER, 0, |_| Err("blind"));
        assert_eq!(unknown, Err(Refused::Unknown("blind")));
        let left = |who| Ok::<_, Infallible>(who == ME);
        let arrival = arrivals.bring(key(1, 1, 0), OTHER, 0, left).unwrap();
        assert_eq!((arrival.mark, arrival.taken_over), (5, Some(ME)));
        let again = arrivals.bring(key(1, 1, 0), OTHER, 0, left).unwrap();
        assert_eq!((again.mark, again.taken_over), (5, None));
        assert_eq!(table.bring(key(1, 1, 0), ME, 0), Err(Refused::Taken(OTHER)));
    }

    #[test]
    fn a_note_counts_if_its_record_was_committed() {
        for (end, mark) in [(1000, 5), (1008, 9)] {
            let table = Table::new(8);
            table.raise(key(1, 1, 0), 5, 0);
            let arrival = table.bring(key(1, 1, 0), ME, 0).unwrap();
            table.arrivals().begin(&arrival, 9, 1000);
            // It dies here.
            table.arrivals().settle(end).unwrap();
            table.arrivals().settle(u64::MAX).unwrap();
            assert_eq!(table.bring(key(1, 1, 0), ME, 0).unwrap().mark, mark, "up to {end}");
        }
    }

    #[test]
    fn an_entry_that_was_not_completed_hides_no_other() {
        let table = Table::new(4);
        let keys = [key(0, 0, 0), key(0, 0, 4), key(0, 0, 8)];
        for key in keys {
            table.raise(key, 7, 0);
        }
        // Its owner died while it replaced the second one.
        table.entries[1].state.store(ARRIVAL_REPLACED, Ordering::Relaxed);
        assert_eq!(table.bring(keys[2], ME, 0).unwrap().mark, 7);
        assert_eq!(table.bring(keys[1], ME, 0).unwrap().mark, 0, "it is made again");
        assert_eq!(table.entries[1].state.load(Ordering::Relaxed), ARRIVAL_USED);
    }

    #[test]
    fn hostile_values_are_reported() {
        let table = Table::new(4);
        table.raise(key(1, 1, 0), 5, 0);
        for entry in &table.entries {
            entry.mark.store(LARGEST_MARK + 1, Ordering::Relaxed);
        }
        let what = |result| match result {
            Err(Refused::Corrupt(corrupt)) => Some(corrupt.what),
            _ => None,
        };
        assert_eq!(what(table.bring(key(1, 1, 0), ME, 0)), Some("mark of an arrival"));
        for (entry, mark) in [(5, 0), (u32::MAX, 0), (1, LARGEST_MARK + 1)] {
            table.pending.entry.store(entry, Ordering::Relaxed);
            table.pending.mark.store(mark, Ordering::Relaxed);
            assert_eq!(table.arrivals().settle(0).unwrap_err().what, "pending arrival");
            table.arrivals().settle(0).expect("reported once");
        }
    }
}
