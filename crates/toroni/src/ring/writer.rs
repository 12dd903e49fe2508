//! Writing to the stream, in four steps:
//!
//! 1. **Reserve.** If the record ends beyond `reserved`, the writer raises `reserved`, after the
//!    policy has agreed. A release fence always follows (RESERVE), even if `reserved` was not
//!    raised: a reader that sees any byte written after the fence also sees `reserved`.
//! 2. **Copy.** The writer stores everything after the header word, then a 0 after the record,
//!    which is the new end of the stream, then the blocks index. A reader sees nothing of this yet:
//!    the word at the tail is still 0, and readers ignore index entries beyond the tail.
//! 3. **Commit.** The writer stores the end of the record in the bound of its topic (`bounds.rs`) and
//!    in `next`. Then it stores the header word
//!    with release (COMMIT). This one store makes the record visible, together with the 0 after it.
//! 4. **Bookkeeping.** If the topic is retained, the writer copies the record (`values.rs`), which it has announced before the
//!    commit. Then it stores `sequence`, and `tail` with release (TAIL).
//!
//! If the owner dies before its commit, nothing has changed for readers, and the next record
//! overwrites its bytes. If it dies after its commit, `sequence` and `tail` are outdated. The next
//! owner detects that, because `next` is not `tail` (I4), and **recovers**: it counts records up to
//! the first 0 and sets all three (I3). The word at the tail would tell the same, but subscribers
//! poll its cache line, and that of `next` is needed for the lock anyway.

use super::bounds;
use super::bulk;
use super::copy;
use super::gate;
use super::layout::{ALIGNMENT, NO_ENTRY, ValueEntry};
use super::memory::{RecordStart, Ring};
use super::position::{MISPLACED, record_bytes, to_index};
use super::values::Values;
use crate::error::Corrupt;
use crate::hook::{self, CrashPoint, mutant, weakened};
use crate::sync::{AtomicU64, Ordering, fence};

/// The distance in bytes ahead of the end of the stream at which the writer prefetches cache lines.
/// Readers have held these lines since the last lap. A store to a line that another processor holds
/// waits for it, and all later stores wait too.
const WRITTEN_AHEAD: usize = 1024;

/// Appends records. The owner of the writer lock makes an appender after locking, and drops it
/// before unlocking.
///
/// It has `VALUES` for topics that may be retained. Others need not ask for each record.
pub(crate) struct Appender<'a, const VALUES: bool = false> {
    ring: Ring<'a>,
    values: Option<Values<'a>>,
    tail: u64,
    sequence: u64,
}

/// A record that is kept as the value of its topic.
#[derive(Clone, Copy)]
struct Kept<'a> {
    entry: &'a ValueEntry,
    at: RecordStart,
    /// Its first one, the header.
    word: u64,
}

/// A record to be written: its header and up to two parts after it.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    /// Flags and topic id: the upper half of the header word, never 0.
    pub(crate) tag: u32,
    /// Its length is a multiple of 8 bytes.
    pub(crate) extensions: &'a [u8],
    pub(crate) payload: &'a [u8],
}

impl Record<'_> {
    /// Returns the length that the header states. The caller has checked it against the largest
    /// record.
    #[inline]
    fn length(&self) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "a largest record fits u32")]
        let length = (self.extensions.len() + self.payload.len()) as u32;
        length
    }

    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        record_bytes(self.length())
    }
}

/// Returns the header word: length in the low half, tag in the high half. 0 means that there is no
/// record.
#[inline]
pub(crate) const fn header(length: u32, tag: u32) -> u64 {
    (tag as u64) << 32 | length as u64
}

impl<'a> Appender<'a> {
    /// Starts appending, and recovers if a previous owner died. `owner_died` is what the lock
    /// reports. An owner may also have died without that, if no process saw its lock.
    pub(crate) fn begin(
        ring: Ring<'a>,
        values: impl FnOnce() -> Option<Values<'a>>,
        owner_died: bool,
    ) -> Result<Self, Corrupt> {
        let mut appender = Self::at_stored_end(ring);
        if owner_died || appender.is_outdated() {
            appender.recover(values())?;
        }
        hook::point(CrashPoint::AfterLock);
        Ok(appender)
    }

    /// Returns whether [`Self::begin`] will recover, even if the lock does not report a death.
    pub(crate) fn has_to_recover(ring: Ring<'a>) -> bool {
        Self::at_stored_end(ring).is_outdated()
    }

    /// Like [`Self::begin`] if there is nothing to recover, which is the common case. Otherwise
    /// returns `None`.
    #[inline]
    pub(crate) fn resume(ring: Ring<'a>) -> Option<Self> {
        let appender = Self::at_stored_end(ring);
        if appender.is_outdated() {
            return None;
        }
        hook::point(CrashPoint::AfterLock);
        Some(appender)
    }

    #[inline]
    fn at_stored_end(ring: Ring<'a>) -> Self {
        let commit = &ring.control.commit.0;
        let tail = commit.tail.load(Ordering::Relaxed);
        Self { ring, values: None, tail, sequence: commit.sequence.load(Ordering::Relaxed) }
    }

    /// Returns whether a record with this tag needs [`Self::with_values`].
    #[inline(always)]
    pub(crate) fn may_retain(&self, tag: u32) -> bool {
        bounds::may_be_retained(self.ring.control, tag)
    }

    /// Returns an appender of records whose topics may be retained.
    pub(crate) fn with_values(&self, values: Option<Values<'a>>) -> Appender<'a, true> {
        let Self { ring, tail, sequence, .. } = *self;
        Appender { ring, values, tail, sequence }
    }

    /// Appends records whose topics may be retained.
    #[cold]
    pub(crate) fn append_with_values<R>(
        &mut self,
        values: Option<Values<'a>>,
        append: impl FnOnce(&mut Appender<'a, true>) -> R,
    ) -> R {
        let mut appender = self.with_values(values);
        let result = append(&mut appender);
        (self.tail, self.sequence) = (appender.tail, appender.sequence);
        result
    }

    /// Rolls the end of the stream forward over what a dead owner committed (invariant I3).
    ///
    /// - Sequence and tail may be a half-updated pair, so both are counted again from the newest
    ///   entry of the index.
    /// - If the owner died before its commit, the word at the tail is still 0, whatever `next` says.
    ///   The next record overwrites everything that the owner wrote, including index entries that
    ///   point beyond the tail.
    /// - `reserved` stays as it is, because readers may have seen it.
    /// - What the owner committed, and had no time to retain, is retained before `tail` is stored (R1).
    #[cold]
    fn recover(&mut self, values: Option<Values<'a>>) -> Result<(), Corrupt> {
        if mutant("recovery_lowers_reserved") {
            let lowered = self.ring.shape().round_up_to_block(self.tail + ALIGNMENT);
            self.ring.control.reserved.0.store(lowered, Ordering::Relaxed);
        }
        let tail = self.tail;
        if let Some(values) = values {
            values.mark(self.ring.control);
        }
        let values = values.filter(|_| !mutant("no_redo"));
        let end = self.find_end(|record, word| {
            if record.position >= tail
                && let Some(values) = values
            {
                values.retain(self.ring, record, word);
            }
        })?;
        // The mutant continues at the stored tail, as if the stream ended there.
        self.tail = if mutant("no_roll_forward") { self.tail } else { end.position };
        self.sequence = end.sequence;
        let commit = &self.ring.control.commit.0;
        commit.sequence.store(self.sequence, Ordering::Release);
        hook::point(CrashPoint::MidRecovery);
        commit.tail.store(self.tail, Ordering::Release);
        // The dead owner's proposal is void. A joining reader would wait for its decision.
        let control = self.ring.control;
        let reserved = control.reserved.0.load(Ordering::Relaxed);
        if !mutant("proposal_survives_recovery") {
            gate::withdraw(&control.waits.0, reserved);
        }
        // Last: until then, an owner that dies in here leaves a stream that the next one recovers.
        commit.next.store(self.tail, Ordering::Relaxed);
        Ok(())
    }
}

impl<'a, const VALUES: bool> Appender<'a, VALUES> {
    /// Returns whether the stored tail may not be the end of the stream (I4).
    #[inline]
    fn is_outdated(&self) -> bool {
        let next = self.ring.control.commit.0.next.load(Ordering::Relaxed);
        next != self.tail || next & MISPLACED != 0
    }

    #[inline]
    pub(crate) fn tail(&self) -> u64 {
        self.tail
    }

    #[inline]
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns whether `bytes` more fit without raising `reserved`, which is the common case.
    #[inline]
    pub(crate) fn fits(&self, bytes: u64) -> bool {
        self.tail + bytes + ALIGNMENT <= self.ring.control.reserved.0.load(Ordering::Relaxed)
    }

    /// Returns the value that `reserved` needs for `bytes` more. [`Self::reserve`] with this value
    /// allows the writer to overwrite everything before the value minus the capacity.
    pub(crate) fn wanted(&self, bytes: u64) -> u64 {
        self.ring.shape().round_up_to_block(self.tail + bytes + ALIGNMENT)
    }

    /// Raises `reserved` to `wanted`. Call this only after the policy has agreed.
    pub(crate) fn reserve(&mut self, wanted: u64) {
        let reserved = &self.ring.control.reserved.0;
        assert!(wanted.is_multiple_of(ALIGNMENT), "I1");
        if wanted > reserved.load(Ordering::Relaxed) {
            reserved.store(wanted, Ordering::Relaxed);
        }
        // With the fence only in here, a second writer that finds the space already reserved would
        // execute no fence, but it needs one as well.
        if mutant("fence_inside_if") {
            fence(Ordering::Release);
        }
        hook::point(CrashPoint::AfterReserve);
    }

    /// RESERVE: a reader that sees a byte written after this fence also sees `reserved`. Pairs with
    /// the acquire fence of [`Ring::is_intact`].
    #[inline]
    fn fence_reserved(&self) {
        self.assert_reserved();
        if !mutant("fence_inside_if") {
            fence(Ordering::Release);
        }
    }

    /// Writes and commits one record. There must be space for it.
    #[inline(always)]
    pub(crate) fn write(&mut self, record: Record<'_>) {
        let bytes = record.bytes();
        let end = to_index(bytes / ALIGNMENT);
        self.fence_reserved();
        match self.ring.contiguous_words(self.tail, end + 1) {
            // The common case: the words are contiguous, so the position is converted only once.
            Some(span) if record.extensions.is_empty() && !hook::can_die() => {
                bulk::prefetch_to_write(span.as_ptr().wrapping_byte_add(WRITTEN_AHEAD).cast());
                copy::store_in_row(&span[1..end], record.payload);
                span[end].store(0, Ordering::Relaxed);
            }
            _ => {
                self.write_parts(self.tail, &record);
                self.end_stream_at(self.tail + bytes);
            }
        }
        self.index_blocks(self.tail, bytes, self.sequence.wrapping_add(1));
        let word = header(record.length(), record.tag);
        let kept = self.note(word, self.start(), bytes, self.tail + bytes);
        self.commit(word, bytes, 1, kept);
    }

    /// Writes and commits records without extensions, as long as they end below `reserved` and
    /// before the next block. Returns their number. Within these limits, no record needs a check of
    /// its own.
    #[inline]
    pub(crate) fn write_in_block(&mut self, tag: u32, payloads: &[&[u8]]) -> usize {
        let end_of_block = self.ring.shape().round_up_to_block(self.tail + 1);
        let reserved = self.ring.control.reserved.0.load(Ordering::Relaxed);
        // The word after the last record is the end of the stream. It is in the same block.
        let available = end_of_block.min(reserved).saturating_sub(self.tail) / ALIGNMENT;
        let Some(span) = self.ring.contiguous_words(self.tail, to_index(available)) else {
            return 0;
        };
        self.fence_reserved();
        let commit = &self.ring.control.commit.0;
        let (mut at, mut tail, mut sequence) = (0, self.tail, self.sequence);
        for (count, payload) in payloads.iter().enumerate() {
            // The words to be written: the record and the new end of the stream.
            let words = 1 + payload.len().div_ceil(8);
            let Some(record) = span.get(at..).and_then(|rest| rest.get(..=words)) else {
                return count;
            };
            bulk::prefetch_to_write(record.as_ptr().wrapping_byte_add(WRITTEN_AHEAD).cast());
            copy::store_in_row(&record[1..], payload);
            hook::point(CrashPoint::MidCopy);
            if !mutant("burst_ends_after_its_commit") {
                record[words].store(0, Ordering::Relaxed);
            }
            hook::point(CrashPoint::AfterEndWord);
            #[expect(clippy::cast_possible_truncation, reason = "shorter than a block")]
            let length = payload.len() as u32;
            let bytes = words as u64 * ALIGNMENT;
            tail += bytes;
            let word = header(length, tag);
            let kept = self.note(word, self.start(), bytes, tail);
            self.store_next(tail);
            // COMMIT
            record[0].store(word, weakened("burst_commit_relaxed", Ordering::Release));
            if mutant("burst_ends_after_its_commit") {
                record[words].store(0, Ordering::Relaxed);
            }
            hook::point(CrashPoint::AfterCommit);
            self.keep(kept);
            at += words;
            sequence = sequence.wrapping_add(1);
            // END
            commit.sequence.store(sequence, weakened("sequence_relaxed", Ordering::Release));
            hook::point(CrashPoint::BetweenSequenceAndTail);
            // TAIL
            commit.tail.store(tail, Ordering::Release);
            (self.tail, self.sequence) = (tail, sequence);
            hook::point(CrashPoint::MidBurst);
        }
        payloads.len()
    }

    /// Writes and commits one record whose payload of `length` bytes `fill` writes in place, after
    /// the extensions. If `fill` panics or fails, nothing becomes visible.
    #[inline]
    pub(crate) fn write_with<R, E>(
        &mut self,
        tag: u32,
        extensions: &[u8],
        length: u32,
        fill: impl FnOnce(&'a [AtomicU64]) -> Result<R, E>,
    ) -> Result<R, E> {
        #[expect(clippy::cast_possible_truncation, reason = "at most MAX_EXTENSIONS_BYTES")]
        let whole = extensions.len() as u32 + length;
        let bytes = record_bytes(whole);
        self.fence_reserved();
        let end = to_index(bytes / ALIGNMENT);
        let result = match self.ring.contiguous_words(self.tail, end + 1) {
            // The common case, as in `write`.
            Some(span) if extensions.is_empty() && !hook::can_die() => {
                bulk::prefetch_to_write(span.as_ptr().wrapping_byte_add(WRITTEN_AHEAD).cast());
                if !length.is_multiple_of(8) {
                    // The padding that `fill` does not write must not be left over from an older
                    // message.
                    span[end - 1].store(0, Ordering::Relaxed);
                }
                let result = fill(&span[1..end])?;
                span[end].store(0, Ordering::Relaxed);
                result
            }
            _ => self.write_extended_with(extensions, length, bytes, fill)?,
        };
        self.index_blocks(self.tail, bytes, self.sequence.wrapping_add(1));
        let word = header(whole, tag);
        let kept = self.note(word, self.start(), bytes, self.tail + bytes);
        self.commit(word, bytes, 1, kept);
        Ok(result)
    }

    /// Like [`Self::write_with`] for a record that is not contiguous: writes extensions, payload
    /// and the end of the stream.
    #[cold]
    fn write_extended_with<R, E>(
        &self,
        extensions: &[u8],
        length: u32,
        bytes: u64,
        fill: impl FnOnce(&'a [AtomicU64]) -> Result<R, E>,
    ) -> Result<R, E> {
        let payload = self.tail + ALIGNMENT + extensions.len() as u64;
        self.ring.store(self.tail + ALIGNMENT, extensions);
        if !length.is_multiple_of(8) {
            self.ring.word(payload + u64::from(length)).store(0, Ordering::Relaxed);
        }
        let result = fill(self.ring.words_from(payload))?;
        self.end_stream_at(self.tail + bytes);
        Ok(result)
    }

    /// Writes records under one commit: readers see all of them or none. `bytes` is the sum of
    /// their sizes. There must be space for them. With `VALUES`, all are of one topic.
    pub(crate) fn write_batch<'r>(
        &mut self,
        records: impl Iterator<Item = Record<'r>>,
        bytes: u64,
    ) {
        self.fence_reserved();
        let mut first = 0;
        let mut position = self.tail;
        let mut count = 0;
        let mut bounded = 0;
        let end = self.tail + bytes;
        let mut newest = None;
        let mut rest = self.ring.contiguous_words(self.tail, to_index(bytes / ALIGNMENT));
        for record in records {
            let word = header(record.length(), record.tag);
            if record.tag != bounded && !VALUES {
                bounded = record.tag;
                self.set_bound(bounded, end);
            }
            let bytes = record.bytes();
            let split = rest.and_then(|rest| rest.split_at_checked(to_index(bytes / ALIGNMENT)));
            let header_word = match split {
                // The common case, as in `write`.
                Some((span, after)) if record.extensions.is_empty() && !hook::can_die() => {
                    copy::store_in_row(&span[1..], record.payload);
                    rest = Some(after);
                    &span[0]
                }
                _ => {
                    self.write_parts(position, &record);
                    rest = None;
                    self.ring.word(position)
                }
            };
            if count == 0 {
                first = word;
            } else {
                header_word.store(word, Ordering::Relaxed);
            }
            if VALUES {
                let sequence = self.sequence.wrapping_add(count);
                newest = Some((word, RecordStart { position, sequence }, bytes));
            }
            count += 1;
            self.index_blocks(position, bytes, self.sequence.wrapping_add(count));
            position += bytes;
        }
        assert_eq!(position, self.tail + bytes, "the batch is as long as stated");
        if count > 0 {
            self.end_stream_at(position);
            let kept = newest.and_then(|(word, at, bytes)| self.note(word, at, bytes, end));
            self.commit(first, bytes, count, kept);
        }
    }

    #[inline]
    fn write_parts(&self, position: u64, record: &Record<'_>) {
        let mut at = position + ALIGNMENT;
        if !record.extensions.is_empty() {
            self.ring.store(at, record.extensions);
            at += record.extensions.len() as u64;
        }
        if hook::can_die() {
            let half = record.payload.len() / 2;
            self.ring.store(at, &record.payload[..half]);
            hook::point(CrashPoint::MidCopy);
        }
        self.ring.store(at, record.payload);
    }

    /// Stores the new end of the stream: a reader that gets this far finds 0 until the next commit.
    #[inline]
    fn end_stream_at(&self, position: u64) {
        self.ring.word(position).store(0, Ordering::Relaxed);
        hook::point(CrashPoint::AfterEndWord);
    }

    /// Updates the index entries of all blocks that start inside the record of `bytes` bytes at
    /// `position`, or right after it. They then point to the next record, which has number
    /// `next_sequence`.
    #[inline]
    fn index_blocks(&self, position: u64, bytes: u64, next_sequence: u64) {
        let shape = self.ring.shape();
        if shape.block(position ^ (position + bytes)) != 0 {
            let (first, last) = (shape.block(position), shape.block(position + bytes));
            self.index_each_block(first, last, position + bytes, next_sequence);
        }
    }

    #[cold]
    fn index_each_block(&self, first: u64, last: u64, position: u64, sequence: u64) {
        for block in first + 1..=last {
            let entry = self.ring.entry(block);
            // This mutant trusts an entry that a writer left when it died before its commit.
            if mutant("stale_index_entry")
                && (self.tail + 1..NO_ENTRY).contains(&entry.position.load(Ordering::Relaxed))
            {
                continue;
            }
            // See `Ring::read_entry`: a reader must not combine half of the old pair with half of the new
            // one.
            if !mutant("index_without_seqlock") {
                entry.position.store(NO_ENTRY, Ordering::Relaxed);
                fence(Ordering::Release);
            }
            entry.sequence.store(sequence, Ordering::Relaxed);
            hook::point(CrashPoint::MidIndex);
            // INDEX
            entry.position.store(position, weakened("index_relaxed", Ordering::Release));
        }
        hook::point(CrashPoint::AfterIndex);
    }

    /// Stores in `next` where the stream ends after the commit that follows.
    #[inline]
    fn store_next(&self, end: u64) {
        self.ring.control.commit.0.next.store(end, Ordering::Relaxed);
        hook::point(CrashPoint::BeforeCommit);
    }

    /// PASSED: readers that see the commit which follows also see that the topic has a record that ends at `end`.
    #[inline(always)]
    fn set_bound(&self, tag: u32, end: u64) {
        if !mutant("bound_after_commit") {
            let may_be_retained = VALUES && bounds::may_be_retained(self.ring.control, tag);
            bounds::set(self.ring.control, tag, end, may_be_retained);
        }
    }

    /// Notes a record that is about to be committed, in the bound of its topic, and in its value. `end` is where the commit ends.
    #[inline(always)]
    fn note(&self, word: u64, at: RecordStart, bytes: u64, end: u64) -> Option<Kept<'a>> {
        let tag = tag_of(word);
        self.set_bound(tag, end);
        let values = self.values.as_ref().filter(|_| VALUES)?;
        let entry = values.announce(bounds::topic_of(tag), at, self.tail, bytes)?;
        Some(Kept { entry, at, word })
    }

    /// Copies a record that was committed into its entry.
    #[inline(always)]
    fn keep(&self, kept: Option<Kept<'a>>) {
        if let Some(values) = self.values.filter(|_| VALUES)
            && let Some(Kept { entry, at, word }) = kept
        {
            values.keep(self.ring, entry, at, word);
        }
    }

    /// Returns where the next record starts.
    #[inline(always)]
    fn start(&self) -> RecordStart {
        RecordStart { position: self.tail, sequence: self.sequence }
    }

    /// Commits records, of which one may be kept as a value.
    #[inline]
    fn commit(&mut self, header: u64, bytes: u64, count: u64, kept: Option<Kept<'a>>) {
        if !mutant("next_after_commit") {
            self.store_next(self.tail + bytes);
        }
        // COMMIT: this one store makes everything visible.
        self.ring.word(self.tail).store(header, weakened("commit_relaxed", Ordering::Release));
        hook::point(CrashPoint::AfterCommit);
        if mutant("next_after_commit") {
            self.store_next(self.tail + bytes);
        }
        if !mutant("copy_after_tail") {
            self.keep(kept);
        }
        self.tail += bytes;
        self.sequence = self.sequence.wrapping_add(count);
        self.store_end();
        if mutant("copy_after_tail") {
            self.keep(kept);
        }
        if mutant("bound_after_commit") {
            bounds::set(self.ring.control, tag_of(header), self.tail, false);
        }
    }

    #[inline]
    fn store_end(&self) {
        let commit = &self.ring.control.commit.0;
        // END
        commit.sequence.store(self.sequence, weakened("sequence_relaxed", Ordering::Release));
        hook::point(CrashPoint::BetweenSequenceAndTail);
        // TAIL
        commit.tail.store(self.tail, Ordering::Release);
        self.assert_reserved();
    }

    /// Asserts invariant I1, but only in this crate's tests. Elsewhere another process may write
    /// `reserved`, and must not be able to make this one panic.
    #[inline]
    fn assert_reserved(&self) {
        if cfg!(test) {
            let reserved = self.ring.control.reserved.0.load(Ordering::Relaxed);
            assert!(self.tail + ALIGNMENT <= reserved, "I1");
        }
    }

    /// Finds the end of the stream: counts records from the newest index entry to the first 0. Calls `found` with each, and its
    /// header word.
    fn find_end(&self, mut found: impl FnMut(RecordStart, u64)) -> Result<RecordStart, Corrupt> {
        let shape = self.ring.shape();
        let reserved = self.ring.control.reserved.0.load(Ordering::Relaxed);
        let corrupt = |what, value, position| Err(Corrupt { what, value, position });
        if self.tail & MISPLACED != 0 || self.tail + ALIGNMENT > reserved {
            return corrupt("tail", self.tail, reserved);
        }
        let Some(mut at) = newest_entry(self.ring, self.tail, reserved) else {
            return corrupt("blocks index", 0, self.tail);
        };
        // The loop is bounded: each step is at least a word, and no step goes beyond `reserved`,
        // which is at most one capacity away from a valid entry.
        loop {
            let word = self.ring.word(at.position).load(Ordering::Relaxed);
            if word == 0 {
                break;
            }
            let bytes = record_bytes(length_of(word));
            if tag_of(word) == 0
                || bytes > shape.largest_record()
                || at.position + bytes + ALIGNMENT > reserved
            {
                return corrupt("record header", word, at.position);
            }
            found(at, word);
            at = RecordStart {
                position: at.position + bytes,
                sequence: at.sequence.wrapping_add(1),
            };
        }
        if at.position < self.tail {
            return corrupt("end of the stream", at.position, self.tail);
        }
        Ok(at)
    }
}

/// Returns the length of extensions and payload that a header word states.
#[inline]
pub(crate) const fn length_of(word: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
    let length = word as u32;
    length
}

/// Returns the tag of a header word.
#[inline]
pub(crate) const fn tag_of(word: u64) -> u32 {
    (word >> 32) as u32
}

/// Returns the newest entry of the index that is not beyond `target` and whose record is intact,
/// given `reserved`. If `target` is a tail, there always is one: the entry of its block.
pub(crate) fn newest_entry(ring: Ring<'_>, target: u64, reserved: u64) -> Option<RecordStart> {
    let oldest = ring.shape().oldest(reserved);
    (0..super::layout::BLOCKS)
        .filter_map(|block| ring.read_entry(block))
        .filter(|entry| (oldest..=target).contains(&entry.position))
        .max_by_key(|entry| entry.position)
}
