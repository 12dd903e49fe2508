//! The table of arrivals: how far each stream from elsewhere has arrived in this bus.
//!
//! A stream is known by its source, series and number. Its *mark* is the lowest number that has not arrived, neither as
//! a message nor as a loss. A message with a lower number is a duplicate. The marks are in the ring because they have to
//! outlive the process that brings the messages: the next one continues where it stopped, even if the ring has
//! overwritten all that it brought.
//!
//! A loss without numbers says that after the mark more may be missing. Until the next message of its stream, nothing
//! that happens needs another report. The mark has a bit for that, [`MARK_TOLD`]: a second such loss is a duplicate, whichever
//! process notices that something is missing. Each message, and each loss with numbers, clears the bit.
//!
//! Only the owner of the writer lock uses the table. For each record it takes four steps:
//!
//! 1. It notes in [`PendingArrival`] the entry, its new words, and the position of the record. It stores the entry last.
//! 2. It writes and commits the record (`writer.rs`).
//! 3. It stores the new words, the mark last.
//! 4. It clears the note.
//!
//! If it dies in between, its note remains. The next owner, whether it uses the table or not, recovers the end of the
//! stream and then settles the note, before it writes ([`Arrivals::settle`]). If the end is beyond the noted position,
//! the record was committed, and the words are stored. Otherwise the note is void. It must not remain: the next record
//! starts at the same position.
//!
//! Numbers only grow, as long as the source remembers which it has used. One that was restored from a backup has forgotten
//! some, and uses them again for other messages. So an entry has the *session* in which the stream last began to come: a source that
//! begins a new one says which it remembers, and the marks go back if it has forgotten that one ([`Arrivals::begin_session`]).
//!
//! A stream gets its entry with the first record that is committed. What is only claimed has none, so nothing fills the table
//! that has brought nothing. The table is a hash table with linear probing. Entries are never removed, only replaced once
//! the table is full, so an entry that is found once stays within its probing distance. What may be missing of a stream is reported
//! before it is replaced ([`Room::Tell`]): what comes of its stream later then needs no mark.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::layout::{
    ARRIVAL_AWAITED, ARRIVAL_FREE, ARRIVAL_OVER, ARRIVAL_REPLACED, ARRIVAL_USED, ArrivalEntry,
    MARK_TOLD, PendingArrival,
};
use super::position::to_index;
use crate::error::Corrupt;
use crate::hook::{self, CrashPoint, mutant};
use crate::sync::{Ordering, fence};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Marks are at most this, the limit of numbers.
const LARGEST_MARK: u64 = 1 << 48;

/// An entry that something has reached so lately is not replaced, in ns: the process that brought it may start again.
const KEPT_FOR_NS: u64 = 60 * 1_000_000_000;

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

impl StreamKey {
    /// What all series of one stream have in common.
    const fn line(&self) -> (u32, u16) {
        (self.source, self.stream)
    }
}

/// A publishing participant that brings messages from elsewhere: its slot, and the generation of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// How far a stream has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reach {
    /// The lowest number that has not arrived.
    pub(crate) mark: u64,
    /// The number after the highest that has arrived, at least the mark.
    pub(crate) highest: u64,
    /// Nothing needs to be told of what may be missing after the mark.
    pub(crate) is_told: bool,
}

impl Reach {
    const fn word(&self) -> u64 {
        if self.is_told { self.mark | MARK_TOLD } else { self.mark }
    }
}

/// A stream that the caller brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// The place of its entry, if it has one.
    index: Option<usize>,
    /// The stream, who brings it, and its session, if the entry is made with its first record.
    new: Option<(StreamKey, Bringing, u32)>,
    pub(crate) reach: Reach,
    /// The session in which it last began to come, or 0.
    pub(crate) session: u32,
    /// Who brought the stream before, if the caller has just taken over.
    pub(crate) taken_over: Option<Bringer>,
}

impl Arrival {
    /// Whether it has an entry, or room for one.
    pub(crate) const fn has_room(&self) -> bool {
        self.index.is_some()
    }

    fn of(index: usize, reach: Reach, session: u32) -> Self {
        Self { index: Some(index), new: None, reach, session, taken_over: None }
    }
}

/// Who brings a stream, and whether it awaits that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bringing {
    pub(crate) by: Bringer,
    pub(crate) awaits: bool,
}

/// What a caller has found out about the participants that bring streams. It is valid while the caller keeps the writer lock,
/// because only an owner of the lock changes an entry. A killed inlet may leave thousands of streams: its successor asks the
/// kernel once about it, and reads the table once.
#[derive(Debug, Default)]
pub(crate) struct KnownBringers {
    /// Whether each has left.
    gone: HashMap<Bringer, bool>,
    /// The open streams of others, without those that have left. `None` until it is needed.
    open_of_others: Option<Vec<(StreamKey, Bringer)>>,
}

/// Where a new stream finds room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Here(Arrival),
    /// In place of this stream, once the bus has reported that more of it may be missing after its mark.
    Tell(StreamKey, Arrival),
}

/// Why a stream cannot be brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused<E> {
    /// Another participant brings it, and may live.
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
        let word = self.pending.mark.load(Ordering::Relaxed);
        let highest = self.pending.highest.load(Ordering::Relaxed);
        let entry = self.entries.get(to_index(u64::from(noted).wrapping_sub(1)));
        let is_valid = word & !MARK_TOLD <= LARGEST_MARK && highest <= LARGEST_MARK;
        let (Some(entry), true) = (entry, is_valid) else {
            // Reported once: otherwise each death to come would cost another publisher this error.
            self.pending.entry.store(0, Ordering::Relaxed);
            return Err(Corrupt { what: "pending arrival", value: noted.into(), position });
        };
        let was_committed = tail > position;
        if was_committed && !mutant("mark_not_redone") {
            // The lock was held since the note was made, so nothing can have been stored after these.
            if !mutant("highest_not_kept") {
                entry.highest.store(highest, Ordering::Relaxed);
            }
            entry.mark.store(word, Ordering::Relaxed);
        }
        self.pending.entry.store(0, Ordering::Release);
        Ok(())
    }

    /// Returns how far a stream that `me` brings has arrived, and takes over its entry if necessary. `has_left` says whether
    /// another participant no longer brings anything, and `known` what it has said since the caller has the lock.
    #[inline]
    pub(crate) fn bring<E>(
        &self,
        key: StreamKey,
        me: Bringing,
        known: &mut KnownBringers,
        has_left: impl FnMut(Bringer) -> Result<bool, E>,
    ) -> Result<Arrival, Refused<E>> {
        if let Some(index) = self.find(key)
            && self.entries[index].bringer() == Some(me.by)
        {
            return Ok(self.arrival(index)?);
        }
        self.take(key, me, known, has_left)
    }

    #[cold]
    fn take<E>(
        &self,
        key: StreamKey,
        me: Bringing,
        known: &mut KnownBringers,
        mut has_left: impl FnMut(Bringer) -> Result<bool, E>,
    ) -> Result<Arrival, Refused<E>> {
        let found = self.find(key);
        // One inlet brings a stream. It may have filtered what it brings, so its mark says nothing about what another one
        // would bring. Of a stream that is awaited, it also brings the next series: it tells what may be missing in between.
        if me.awaits {
            self.check_rivals(key, me.by, known, &mut has_left)?;
        }
        let own = found.and_then(|index| self.entries[index].bringer());
        if let Some(other) = own
            && !known.has_left(other, has_left)?
        {
            return Err(Refused::Taken(other));
        }
        let Some(index) = found else {
            let reach = Reach::default();
            return Ok(Arrival { index: None, new: None, reach, session: 0, taken_over: None });
        };
        // Checked before it is taken: a hostile mark stays where it is found again.
        let arrival = self.arrival(index)?;
        let entry = &self.entries[index];
        entry.set_bringer(me);
        Ok(Arrival { taken_over: own, ..arrival })
    }

    /// Refuses a stream if a living participant brings another series of it, and has not told what may be missing there.
    fn check_rivals<E>(
        &self,
        key: StreamKey,
        me: Bringer,
        known: &mut KnownBringers,
        mut has_left: impl FnMut(Bringer) -> Result<bool, E>,
    ) -> Result<(), Refused<E>> {
        if known.open_of_others.is_none() {
            known.open_of_others = Some(self.open_of_others(me, known));
        }
        while let Some(other) = known.rival(key) {
            if !known.has_left(other, &mut has_left)? {
                return Err(Refused::Taken(other));
            }
        }
        Ok(())
    }

    /// Returns the open streams that participants bring which are not known to have left, without those of `me`.
    fn open_of_others(&self, me: Bringer, known: &KnownBringers) -> Vec<(StreamKey, Bringer)> {
        // Most entries are brought by the caller, or by the same one as the last.
        let (mut last, mut last_may_live) = (me, false);
        let mut may_live = |by| {
            if by != me && by != last {
                (last, last_may_live) = (by, known.gone.get(&by) != Some(&true));
            }
            by != me && last_may_live
        };
        let open = self.entries.iter().filter(|entry| entry.is_open());
        let brought = open.filter_map(|entry| Some((entry, entry.bringer()?)));
        brought.filter(|(_, by)| may_live(*by)).map(|(entry, by)| (entry.key(), by)).collect()
    }

    /// Notes that the record at `tail`, the end of the stream, takes `arrival` to `reach`. Makes the entry of a stream that is
    /// new.
    #[inline]
    pub(crate) fn begin(&self, arrival: &Arrival, reach: &Reach, tail: u64, now_ns: u64) {
        let Some(index) = arrival.index else { return };
        if let Some((key, me, session)) = arrival.new {
            self.entries[index].make(key, me, session, now_ns);
        }
        if mutant("mark_before_commit") {
            self.entries[index].mark.store(reach.word(), Ordering::Relaxed);
        }
        // Such a report brings nothing of the stream.
        if !reach.is_told {
            let entry = &self.entries[index];
            entry.reached_ns.store(now_ns, Ordering::Relaxed);
            let flags = entry.flags.load(Ordering::Relaxed);
            entry.flags.store(flags & !ARRIVAL_OVER, Ordering::Relaxed);
        }
        // The last note is cleared before this one is written. Otherwise an owner that dies in between would leave the old
        // entry with the new position, and its record would count as not committed.
        fence(Ordering::Release);
        self.pending.position.store(tail, Ordering::Relaxed);
        self.pending.mark.store(reach.word(), Ordering::Relaxed);
        self.pending.highest.store(reach.highest, Ordering::Relaxed);
        let noted = u32::try_from(index.saturating_add(1)).expect("a bus has fewer entries");
        // After all values. COMMIT, which follows, keeps it from being stored later than the record.
        self.pending.entry.store(noted, Ordering::Release);
        hook::point(CrashPoint::ArrivalPending);
    }

    /// Stores how far the stream has arrived, after the record was committed.
    #[inline]
    pub(crate) fn finish(&self, arrival: &Arrival, reach: &Reach) {
        let Some(index) = arrival.index else { return };
        hook::point(CrashPoint::BeforeMark);
        let entry = &self.entries[index];
        // Not before COMMIT: an owner that dies in between would have claimed an arrival that did not happen.
        entry.highest.store(reach.highest, Ordering::Release);
        hook::point(CrashPoint::MidMark);
        entry.mark.store(reach.word(), Ordering::Release);
        hook::point(CrashPoint::AfterMark);
        self.pending.entry.store(0, Ordering::Release);
    }

    /// Raises the mark without a record. It is one store, so an owner that dies has done it or has not.
    pub(crate) fn raise(&self, arrival: &Arrival, mark: u64, now_ns: u64) {
        let Some(index) = arrival.index else { return };
        let entry = &self.entries[index];
        if let Some((key, me, session)) = arrival.new {
            entry.make(key, me, session, now_ns);
        }
        let reach = Reach { mark: mark.max(arrival.reach.mark), ..arrival.reach };
        entry.mark.store(reach.word(), Ordering::Release);
        entry.reached_ns.store(now_ns, Ordering::Relaxed);
    }

    /// States in which session the stream comes from now on. If `back_to` is given, everything that was known of earlier ones is void:
    /// the stream continues at this number, below the mark or above it. A session that has begun already changes nothing.
    pub(crate) fn begin_session(&self, arrival: &Arrival, session: u32, back_to: Option<u64>) {
        let Some(index) = arrival.index else { return };
        let entry = &self.entries[index];
        if arrival.session == session {
            return;
        }
        if let Some(number) = back_to {
            // The highest number shows that the source uses numbers again, and so does the session. They are stored after the mark:
            // an owner that dies before leaves them, so its successor finds the same and goes back again.
            let word = Reach { mark: number, ..arrival.reach }.word();
            entry.mark.store(word, Ordering::Release);
            hook::point(CrashPoint::MidRewind);
            entry.highest.store(number, Ordering::Release);
            hook::point(CrashPoint::AfterRewind);
        }
        entry.session.store(session, Ordering::Release);
    }

    /// States that `me` no longer brings a stream. `is_over` says that nothing follows in it, so nothing more can be missing.
    pub(crate) fn release(
        &self,
        key: StreamKey,
        me: Bringer,
        is_over: bool,
    ) -> Result<(), Corrupt> {
        let Some(index) = self.find(key) else { return Ok(()) };
        let entry = &self.entries[index];
        if entry.bringer() != Some(me) {
            return Ok(());
        }
        if is_over {
            let reach = Reach { is_told: true, ..self.reach(index)? };
            entry.mark.store(reach.word(), Ordering::Release);
            let flags = entry.flags.load(Ordering::Relaxed);
            entry.flags.store(flags | ARRIVAL_OVER, Ordering::Release);
        }
        entry.bringer_slot.store(0, Ordering::Release);
        Ok(())
    }

    /// Returns the streams that are awaited and not told, and that no living participant other than `me` brings.
    pub(crate) fn open<E>(
        &self,
        me: Bringer,
        mut has_left: impl FnMut(Bringer) -> Result<bool, E>,
    ) -> Result<Vec<(StreamKey, Reach)>, Refused<E>> {
        let mut known = KnownBringers::default();
        let mut open = Vec::new();
        for (index, entry) in self.entries.iter().enumerate().filter(|(_, it)| it.is_open()) {
            let other = entry.bringer().filter(|other| *other != me);
            if known.have_left(other, &mut has_left)? {
                open.push((entry.key(), self.reach(index)?));
            }
        }
        Ok(open)
    }

    #[inline]
    fn arrival(&self, index: usize) -> Result<Arrival, Corrupt> {
        let session = self.entries[index].session.load(Ordering::Relaxed);
        Ok(Arrival::of(index, self.reach(index)?, session))
    }

    fn reach(&self, index: usize) -> Result<Reach, Corrupt> {
        let entry = &self.entries[index];
        let word = entry.mark.load(Ordering::Relaxed);
        let mark = word & !MARK_TOLD;
        let highest = entry.highest.load(Ordering::Relaxed);
        for (what, value) in
            [("mark of an arrival", mark), ("highest number of an arrival", highest)]
        {
            if value > LARGEST_MARK {
                return Err(Corrupt { what, value, position: index as u64 });
            }
        }
        let is_told = word & MARK_TOLD != 0;
        Ok(Reach { mark, highest: highest.max(mark), is_told })
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

    /// Returns where a stream without an entry gets one. Nothing is changed.
    pub(crate) fn room_for<E>(
        &self,
        key: StreamKey,
        (me, session): (Bringing, u32),
        now_ns: u64,
        known: &mut KnownBringers,
        mut has_left: impl FnMut(Bringer) -> Result<bool, E>,
    ) -> Result<Room, Refused<E>> {
        let is_free =
            |index: &usize| self.entries[*index].state.load(Ordering::Relaxed) != ARRIVAL_USED;
        let here = |index| {
            let new = Some((key, me, session));
            Room::Here(Arrival { new, ..Arrival::of(index, Reach::default(), session) })
        };
        if let Some(index) = self.probe(key).find(is_free) {
            return Ok(here(index));
        }
        // The caller has the writer lock, so the table is read a fixed number of times.
        let mut newest_of: HashMap<(u32, u16), u64> = HashMap::new();
        for entry in self.entries {
            let newest = newest_of.entry(entry.key().line()).or_default();
            *newest = entry.reached_ns.load(Ordering::Relaxed).max(*newest);
        }
        let mut best = None;
        for (index, entry) in self.entries.iter().enumerate() {
            let reached_ns = entry.reached_ns.load(Ordering::Relaxed);
            let word = entry.mark.load(Ordering::Relaxed);
            let is_told = word == 0 || word & MARK_TOLD != 0;
            // Another process may write to the table, and an entry may have changed since it was read.
            let newest = newest_of.get(&entry.key().line());
            let is_over = entry.flags.load(Ordering::Relaxed) & ARRIVAL_OVER != 0;
            let is_replaced = newest.is_some_and(|newest| *newest > reached_ns);
            let is_past = is_told && (is_over || is_replaced);
            // A time to come was written before the clock was set back.
            let age_ns = now_ns.checked_sub(reached_ns).unwrap_or(u64::MAX);
            if !is_past && age_ns < KEPT_FOR_NS {
                continue;
            }
            let bringer = entry.bringer();
            if bringer == Some(me.by) || !known.have_left(bringer, &mut has_left)? {
                continue;
            }
            // The longest not reached of those that are over or that a later series replaced, then of those that need no telling. The
            // rest only makes it the same one each time.
            let StreamKey { source, series, stream } = entry.key();
            let rank = (is_past, is_told, age_ns, Reverse((source, series, stream)));
            if best.is_none_or(|(before, _)| before < rank) {
                best = Some((rank, index));
            }
        }
        let (rank, index) = best.ok_or(Refused::Full)?;
        if rank.1 || mutant("evict_untold") {
            return Ok(here(index));
        }
        Ok(Room::Tell(self.entries[index].key(), self.arrival(index)?))
    }
}

impl ArrivalEntry {
    fn key(&self) -> StreamKey {
        StreamKey {
            source: self.source.load(Ordering::Relaxed),
            series: self.series.load(Ordering::Relaxed),
            // Streams have 16 bits. What does not fit was not written by us, and names no stream that is looked for.
            stream: u16::try_from(self.stream.load(Ordering::Relaxed)).unwrap_or(u16::MAX),
        }
    }

    #[inline]
    fn is_of(&self, key: StreamKey) -> bool {
        self.state.load(Ordering::Relaxed) == ARRIVAL_USED
            && self.source.load(Ordering::Relaxed) == key.source
            && self.series.load(Ordering::Relaxed) == key.series
            && self.stream.load(Ordering::Relaxed) == u32::from(key.stream)
    }

    /// Whether it is awaited, and more may be missing of it than was told.
    fn is_open(&self) -> bool {
        let word = self.mark.load(Ordering::Relaxed);
        self.state.load(Ordering::Relaxed) == ARRIVAL_USED
            && self.flags.load(Ordering::Relaxed) & ARRIVAL_AWAITED != 0
            && word != 0
            && word & MARK_TOLD == 0
    }

    #[inline]
    fn bringer(&self) -> Option<Bringer> {
        let slot = self.bringer_slot.load(Ordering::Relaxed).checked_sub(1)?;
        Some(Bringer { slot, generation: self.bringer_generation.load(Ordering::Relaxed) })
    }

    /// An owner that dies in the middle leaves an entry that no process brings.
    fn set_bringer(&self, Bringing { by, awaits }: Bringing) {
        self.bringer_slot.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        // A claim brings nothing: what is over stays so.
        let is_over = self.flags.load(Ordering::Relaxed) & ARRIVAL_OVER;
        let flags = if awaits { is_over | ARRIVAL_AWAITED } else { is_over };
        self.flags.store(flags, Ordering::Relaxed);
        self.bringer_generation.store(by.generation, Ordering::Relaxed);
        self.bringer_slot.store(by.slot.saturating_add(1), Ordering::Release);
    }

    /// Makes the entry that of a new stream. An owner that dies in the middle leaves an entry that others pass on their
    /// way to theirs, and that can be made again.
    fn make(&self, key: StreamKey, bringing: Bringing, session: u32, now_ns: u64) {
        self.state.store(ARRIVAL_REPLACED, Ordering::Relaxed);
        fence(Ordering::Release);
        self.source.store(key.source, Ordering::Relaxed);
        self.series.store(key.series, Ordering::Relaxed);
        self.stream.store(key.stream.into(), Ordering::Relaxed);
        self.mark.store(0, Ordering::Relaxed);
        self.highest.store(0, Ordering::Relaxed);
        self.flags.store(0, Ordering::Relaxed);
        self.session.store(session, Ordering::Relaxed);
        self.reached_ns.store(now_ns, Ordering::Relaxed);
        self.set_bringer(bringing);
        hook::point(CrashPoint::MidArrival);
        self.state.store(ARRIVAL_USED, Ordering::Release);
    }
}

impl KnownBringers {
    /// Returns whether a participant no longer brings anything. `has_left` is asked once for each.
    fn has_left<E>(
        &mut self,
        bringer: Bringer,
        mut has_left: impl FnMut(Bringer) -> Result<bool, E>,
    ) -> Result<bool, Refused<E>> {
        if let Some(is_gone) = self.gone.get(&bringer) {
            return Ok(*is_gone);
        }
        let is_gone = has_left(bringer).map_err(Refused::Unknown)?;
        self.gone.insert(bringer, is_gone);
        if let Some(open) = self.open_of_others.as_mut().filter(|_| is_gone) {
            open.retain(|(_, by)| *by != bringer);
        }
        Ok(is_gone)
    }

    /// Returns whether no living participant brings a stream.
    fn have_left<E>(
        &mut self,
        bringer: Option<Bringer>,
        has_left: impl FnMut(Bringer) -> Result<bool, E>,
    ) -> Result<bool, Refused<E>> {
        bringer.map_or(Ok(true), |bringer| self.has_left(bringer, has_left))
    }

    /// Returns who brings another series of a stream.
    fn rival(&self, key: StreamKey) -> Option<Bringer> {
        let is_rival = |other: &StreamKey| other.line() == key.line() && *other != key;
        let open = self.open_of_others.as_deref().unwrap_or_default();
        open.iter().find(|(other, _)| is_rival(other)).map(|(_, by)| *by)
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
    const MINUTE: u64 = KEPT_FOR_NS;

    fn awaits(by: Bringer) -> Bringing {
        Bringing { by, awaits: true }
    }

    fn key(source: u32, series: u32, stream: u16) -> StreamKey {
        StreamKey { source, series, stream }
    }

    fn all_have_left(_: Bringer) -> Result<bool, Infallible> {
        Ok(true)
    }

    impl Table {
        fn new(entries: usize) -> Self {
            let entries = (0..entries).map(|_| ArrivalEntry::default()).collect();
            Self { pending: PendingArrival::default(), entries }
        }

        fn arrivals(&self) -> Arrivals<'_> {
            Arrivals { pending: &self.pending, entries: &self.entries }
        }

        fn bring<E>(
            &self,
            key: StreamKey,
            me: Bringing,
            has_left: impl FnMut(Bringer) -> Result<bool, E>,
        ) -> Result<Arrival, Refused<E>> {
            self.arrivals().bring(key, me, &mut KnownBringers::default(), has_left)
        }

        fn room_for<E>(
            &self,
            key: StreamKey,
            new: (Bringing, u32),
            now_ns: u64,
            has_left: impl FnMut(Bringer) -> Result<bool, E>,
        ) -> Result<Room, Refused<E>> {
            let known = &mut KnownBringers::default();
            self.arrivals().room_for(key, new, now_ns, known, has_left)
        }

        fn claim(&self, key: StreamKey, who: Bringer) -> Result<Arrival, Refused<Infallible>> {
            self.bring(key, awaits(who), |_| Ok(false))
        }

        fn mark(&self, key: StreamKey) -> u64 {
            let reach =
                self.arrivals().find(key).map(|index| self.arrivals().reach(index).unwrap());
            reach.unwrap_or_default().mark
        }

        fn room(&self, key: StreamKey, now_ns: u64) -> Result<Room, Refused<Infallible>> {
            self.room_for(key, (awaits(ME), 0), now_ns, all_have_left)
        }

        fn commit(&self, key: StreamKey, who: Bringer, reach: Reach, now_ns: u64) {
            let mut arrival = self.claim(key, who).unwrap();
            if !arrival.has_room() {
                let room = self.room_for(key, (awaits(who), 0), now_ns, all_have_left);
                let Ok(Room::Here(here)) = room else { panic!("{room:?}") };
                arrival = here;
            }
            self.arrivals().begin(&arrival, &reach, 0, now_ns);
            self.arrivals().finish(&arrival, &reach);
        }

        /// Has messages up to the mark arrive.
        fn raise(&self, key: StreamKey, mark: u64, now_ns: u64) {
            self.commit(key, ME, Reach { mark, highest: mark, is_told: false }, now_ns);
        }

        /// Tells that more may be missing after the mark.
        fn tell(&self, key: StreamKey, now_ns: u64) {
            let mark = self.mark(key);
            self.commit(key, ME, Reach { mark, highest: mark, is_told: true }, now_ns);
        }

        fn release(&self, key: StreamKey) {
            self.arrivals().release(key, ME, false).unwrap();
        }
    }

    #[test]
    fn each_stream_has_a_mark_of_its_own() {
        let table = Table::new(16);
        let keys = [key(1, 1, 0), key(1, 1, 1), key(1, 2, 0), key(2, 1, 0), key(17, 1, 0)];
        for (mark, key) in (1..).zip(keys) {
            assert_eq!(table.claim(key, ME).unwrap().reach.mark, 0);
            table.raise(key, mark, 0);
        }
        for (mark, key) in (1..).zip(keys) {
            assert_eq!(table.claim(key, ME).unwrap().reach.mark, mark);
        }
    }

    #[test]
    fn a_claim_makes_no_entry() {
        let table = Table::new(2);
        for source in 0..10 {
            assert!(!table.claim(key(source, 1, 0), ME).unwrap().has_room());
        }
        table.raise(key(1, 1, 0), 5, 0);
        table.raise(key(2, 1, 0), 6, 0);
        assert!(table.claim(key(2, 1, 0), ME).unwrap().has_room());
    }

    #[test]
    fn a_stream_goes_back_or_on_when_its_source_has_forgotten_the_session() {
        let table = Table::new(4);
        let key = key(1, 1, 0);
        table.commit(key, ME, Reach { mark: 9, highest: 12, is_told: true }, 0);
        let begins = |session, back_to| {
            let arrival = table.claim(key, ME).unwrap();
            table.arrivals().begin_session(&arrival, session, back_to);
            table.claim(key, ME).unwrap()
        };
        assert_eq!(begins(5, None).session, 5);
        let back = begins(6, Some(3));
        assert_eq!(back.reach, Reach { mark: 3, highest: 3, is_told: true });
        assert_eq!(back.session, 6);
        assert_eq!(begins(6, Some(1)).reach.mark, 3, "it has begun already");
        assert_eq!(begins(7, Some(40)).reach, Reach { mark: 40, highest: 40, is_told: true });
        let table = Table::new(1);
        let room = table.room_for(key, (awaits(ME), 6), 0, all_have_left);
        let Ok(Room::Here(arrival)) = room else { panic!("{room:?}") };
        table.arrivals().begin(&arrival, &Reach::default(), 0, 0);
        assert_eq!(table.claim(key, ME).unwrap().session, 6);
    }

    #[test]
    fn a_full_table_finds_all_its_streams_and_refuses_more() {
        let table = Table::new(7);
        for stream in 0..7 {
            table.raise(key(9, 9, stream * 7), u64::from(stream) + 1, 0);
        }
        for stream in 0..7 {
            let arrival = table.claim(key(9, 9, stream * 7), ME).unwrap();
            assert_eq!(arrival.reach.mark, u64::from(stream) + 1);
        }
        assert_eq!(table.room(key(9, 9, 1), u64::MAX), Err(Refused::Full), "we bring them all");
        assert_eq!(Table::new(0).room(key(9, 9, 1), 0), Err(Refused::Full));
    }

    #[test]
    fn a_series_that_another_one_has_replaced_makes_room_at_once() {
        let table = Table::new(3);
        table.raise(key(6, 1, 0), 30, 5);
        table.release(key(6, 1, 0));
        for series in 1..=300 {
            let now_ns = 10 * u64::from(series);
            table.raise(key(5, series, 0), u64::from(series), now_ns);
            table.tell(key(5, series, 0), now_ns + 1);
            table.release(key(5, series, 0));
        }
        assert_eq!(table.mark(key(5, 300, 0)), 300);
        assert_eq!(table.mark(key(5, 299, 0)), 299, "one before it has room, too");
        assert_eq!(table.mark(key(6, 1, 0)), 30);
    }

    /// Many runs of a program, each a source of its own.
    #[test]
    fn a_stream_that_is_over_makes_room_at_once() {
        let table = Table::new(2);
        table.raise(key(6, 1, 0), 30, 5);
        table.release(key(6, 1, 0));
        for source in 100..400 {
            table.raise(key(source, 1, 0), 10, 10);
            table.arrivals().release(key(source, 1, 0), ME, true).unwrap();
        }
        assert_eq!((table.mark(key(399, 1, 0)), table.mark(key(6, 1, 0))), (10, 30));
        // It was not over after all.
        table.raise(key(399, 1, 0), 11, 10);
        table.release(key(399, 1, 0));
        assert_eq!(table.room(key(7, 1, 0), 10), Err(Refused::Full));
    }

    #[test]
    fn a_stream_that_is_told_makes_room_after_a_minute_and_the_longest_silent_first() {
        let table = Table::new(3);
        for (source, reached_ns) in [(1, 300), (2, 100), (3, 200)] {
            table.raise(key(source, 1, 0), 10, reached_ns);
            table.tell(key(source, 1, 0), 400);
            table.release(key(source, 1, 0));
        }
        assert_eq!(table.room(key(7, 1, 0), 99 + MINUTE), Err(Refused::Full));
        table.raise(key(7, 1, 0), 1, 100 + MINUTE);
        assert_eq!(table.mark(key(2, 1, 0)), 0);
        assert_eq!((table.mark(key(1, 1, 0)), table.mark(key(3, 1, 0))), (10, 10));
        // The clock was set back: what is ahead of it is old.
        table.raise(key(8, 1, 0), 1, 50);
        assert_eq!(table.mark(key(1, 1, 0)) + table.mark(key(3, 1, 0)), 10);
    }

    #[test]
    fn a_stream_that_is_not_told_makes_room_once_it_is_told() {
        let table = Table::new(2);
        table.raise(key(1, 1, 0), 10, 100);
        table.raise(key(2, 1, 0), 20, 50);
        table.release(key(1, 1, 0));
        table.release(key(2, 1, 0));
        let late = 100 + MINUTE;
        let room = table.room(key(7, 1, 0), late).unwrap();
        let Room::Tell(told, arrival) = room else { panic!("{room:?}") };
        assert_eq!((told, arrival.reach.mark), (key(2, 1, 0), 20), "the longest silent");
        let reach = Reach { is_told: true, ..arrival.reach };
        table.arrivals().begin(&arrival, &reach, 0, late);
        table.arrivals().finish(&arrival, &reach);
        table.raise(key(7, 1, 0), 1, late);
        assert_eq!((table.mark(key(1, 1, 0)), table.mark(key(2, 1, 0))), (10, 0));
    }

    #[test]
    fn a_stream_that_is_brought_makes_no_room() {
        let table = Table::new(1);
        table.raise(key(1, 1, 0), 10, 100);
        table.tell(key(1, 1, 0), 100);
        let room = |left| table.room_for(key(7, 1, 0), (awaits(OTHER), 0), u64::MAX, |_| left);
        assert_eq!(room(Ok(false)), Err(Refused::Full));
        assert_eq!(room(Err("blind")), Err(Refused::Unknown("blind")));
        assert!(matches!(room(Ok(true)), Ok(Room::Here(_))));
    }

    /// The largest table is full, nothing of it may be replaced, and others wait for the writer lock meanwhile.
    #[test]
    fn a_full_table_is_searched_in_linear_time() {
        let entries = usize::try_from(MOST_ARRIVALS).unwrap();
        let table = Table::new(entries);
        for (source, entry) in (0..).zip(&table.entries) {
            entry.make(key(source, 1, 0), awaits(OTHER), 0, 0);
        }
        // What this thread uses, whatever else the processors do.
        let used = || clock_gettime(ClockId::ThreadCPUTime).tv_sec;
        let before = used();
        let mut asked = 0;
        for source in 0..3 {
            let has_left = |_| {
                asked += 1;
                Ok::<_, Infallible>(false)
            };
            let room = table.room_for(key(source, 2, 0), (awaits(ME), 0), u64::MAX, has_left);
            assert_eq!(room, Err(Refused::Full));
        }
        assert_eq!(asked, 3, "each asks the kernel once");
        // Each search in quadratic time takes longer than this.
        assert!(used() - before < 15);
    }

    /// A killed inlet has left a full table, of one stream in many series, or of many streams.
    #[test]
    fn one_question_suffices_for_all_streams_of_an_inlet_that_has_left() {
        for of_one_stream in [false, true] {
            // Series are random numbers.
            let random = |it: u16| u32::from(it).wrapping_mul(0x9E37_79B9);
            let series_of = |it| if of_one_stream { (random(it), 0) } else { (1, it) };
            let keys: Vec<_> =
                (0..4096).map(series_of).map(|(series, it)| key(1, series, it)).collect();
            let table = Table::new(keys.len());
            for key in &keys {
                table.commit(*key, OTHER, Reach { mark: 1, highest: 1, is_told: false }, 0);
            }
            let asked = std::cell::Cell::new(0);
            let has_left = |who| {
                asked.set(asked.get() + 1);
                Ok::<_, Infallible>(who == OTHER)
            };
            let mut known = KnownBringers::default();
            for key in &keys {
                let arrival = table.arrivals().bring(*key, awaits(ME), &mut known, has_left);
                assert_eq!(arrival.unwrap().taken_over, Some(OTHER));
            }
            assert_eq!(asked.get(), 1);
            // Its successor takes over each in a call of its own.
            let successor = Bringer { slot: 5, generation: 1 };
            for key in &keys {
                let left = |who| {
                    asked.set(asked.get() + 1);
                    Ok::<_, Infallible>(who == ME)
                };
                assert!(table.bring(*key, awaits(successor), left).is_ok());
            }
            assert_eq!(asked.get(), 1 + keys.len());
        }
    }

    #[test]
    fn no_process_brings_anything_after_a_reboot() {
        let table = Table::new(4);
        table.raise(key(1, 1, 0), 5, 0);
        table.arrivals().forget_bringers();
        let arrival = table.claim(key(1, 1, 0), OTHER).unwrap();
        assert_eq!((arrival.reach.mark, arrival.taken_over), (5, None));
    }

    #[test]
    fn one_participant_brings_a_stream_until_it_has_left_or_releases_it() {
        let table = Table::new(8);
        table.raise(key(1, 1, 0), 5, 0);
        assert_eq!(table.claim(key(1, 1, 0), OTHER), Err(Refused::Taken(ME)));
        assert!(table.claim(key(1, 1, 1), OTHER).is_ok(), "another stream of its source");

        let arrivals = table.arrivals();
        let unknown = table.bring(key(1, 1, 0), awaits(OTHER), |_| Err("blind"));
        assert_eq!(unknown, Err(Refused::Unknown("blind")));
        let left = |who| Ok::<_, Infallible>(who == ME);
        let arrival = table.bring(key(1, 1, 0), awaits(OTHER), left).unwrap();
        assert_eq!((arrival.reach.mark, arrival.taken_over), (5, Some(ME)));
        let again = table.bring(key(1, 1, 0), awaits(OTHER), left).unwrap();
        assert_eq!((again.reach.mark, again.taken_over), (5, None));
        assert_eq!(table.claim(key(1, 1, 0), ME), Err(Refused::Taken(OTHER)));
        table.release(key(1, 1, 0));
        assert_eq!(table.claim(key(1, 1, 0), ME), Err(Refused::Taken(OTHER)), "not ours");
        arrivals.release(key(1, 1, 0), OTHER, false).unwrap();
        assert_eq!(table.claim(key(1, 1, 0), ME).unwrap().taken_over, None);
    }

    /// Who brings an awaited stream tells what may be missing before its next series.
    #[test]
    fn the_next_series_of_an_awaited_stream_belongs_to_who_brings_it() {
        let table = Table::new(8);
        table.raise(key(1, 1, 0), 5, 0);
        assert_eq!(table.claim(key(1, 2, 0), OTHER), Err(Refused::Taken(ME)));
        let is_free = |awaits| {
            let me = Bringing { by: OTHER, awaits };
            table.bring(key(1, 2, 0), me, |_| Ok::<_, ()>(false)).is_ok()
        };
        assert!(is_free(false), "a program that does not await it has its own rules");
        table.tell(key(1, 1, 0), 0);
        assert!(is_free(true), "it was reported");
    }

    #[test]
    fn open_streams_are_awaited_untold_and_not_brought_by_others() {
        let table = Table::new(8);
        table.raise(key(1, 1, 0), 5, 0);
        table.raise(key(2, 1, 0), 6, 0);
        table.tell(key(2, 1, 0), 0);
        table.raise(key(3, 1, 0), 7, 0);
        table.arrivals().release(key(3, 1, 0), ME, true).unwrap();
        table.entries[6].make(key(4, 1, 0), Bringing { by: ME, awaits: false }, 0, 0);
        table.entries[6].mark.store(9, Ordering::Relaxed);
        // Its owner died before the first record.
        table.entries[7].make(key(5, 1, 0), awaits(ME), 0, 0);
        let open = |who, has_left| {
            let open = table.arrivals().open(who, |_| Ok::<_, Infallible>(has_left)).unwrap();
            open.iter().map(|(key, reach)| (key.source, reach.mark)).collect::<Vec<_>>()
        };
        assert_eq!(open(ME, false), [(1, 5)]);
        assert_eq!(open(OTHER, false), []);
        assert_eq!(open(OTHER, true), [(1, 5)]);
    }

    #[test]
    fn a_note_counts_if_its_record_was_committed() {
        let before = Reach { mark: 5, highest: 5, is_told: true };
        let noted = Reach { mark: 9, highest: 12, is_told: false };
        for (before, noted) in [(before, noted), (noted, Reach { is_told: true, ..noted })] {
            for (end, reach) in [(1000, before), (1008, noted)] {
                let table = Table::new(8);
                table.commit(key(1, 1, 0), ME, before, 0);
                let arrival = table.claim(key(1, 1, 0), ME).unwrap();
                table.arrivals().begin(&arrival, &noted, 1000, 0);
                // It dies here.
                table.arrivals().settle(end).unwrap();
                table.arrivals().settle(u64::MAX).unwrap();
                assert_eq!(table.claim(key(1, 1, 0), ME).unwrap().reach, reach, "up to {end}");
            }
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
        assert_eq!(table.mark(keys[2]), 7);
        table.raise(keys[1], 3, 0);
        assert_eq!(table.entries[1].state.load(Ordering::Relaxed), ARRIVAL_USED, "made again");
    }

    #[test]
    fn hostile_values_are_reported() {
        let table = Table::new(4);
        table.raise(key(1, 1, 0), 5, 0);
        let what = |result| match result {
            Err(Refused::Corrupt(corrupt)) => Some(corrupt.what),
            _ => None,
        };
        for entry in &table.entries {
            entry.highest.store(LARGEST_MARK + 1, Ordering::Relaxed);
        }
        assert_eq!(what(table.claim(key(1, 1, 0), ME)), Some("highest number of an arrival"));
        for entry in &table.entries {
            entry.mark.store(LARGEST_MARK + 1, Ordering::Relaxed);
        }
        assert_eq!(what(table.claim(key(1, 1, 0), ME)), Some("mark of an arrival"));
        let noted =
            [(5, 0, 0), (u32::MAX, 0, 0), (1, LARGEST_MARK + 1, 0), (1, 0, LARGEST_MARK + 1)];
        for (entry, mark, highest) in noted {
            table.pending.entry.store(entry, Ordering::Relaxed);
            table.pending.mark.store(mark, Ordering::Relaxed);
            table.pending.highest.store(highest, Ordering::Relaxed);
            assert_eq!(table.arrivals().settle(0).unwrap_err().what, "pending arrival");
            table.arrivals().settle(0).expect("reported once");
        }
    }
}
