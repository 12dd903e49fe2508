//! What one commit makes visible: a message, a batch, or a message that the caller writes in place.

use super::participant::{CallEnd, Participant};
use super::reentrancy::Permit;
use crate::error::PublishError;
use crate::ring::writer::{Appender, Record};
use crate::sync::AtomicU64;
use std::ops::Range;

/// What one commit makes visible.
pub(super) trait Commit {
    /// What the caller gets if it was published.
    type Result;

    fn messages(&self) -> u64 {
        1
    }

    /// Returns how many bytes of the stream it takes.
    fn bytes(&self) -> u64;

    /// Returns the tag of its records.
    fn tag(&self) -> u32;

    /// Returns how many bytes its last record takes, which is the value of a retained topic.
    #[inline(always)]
    fn newest(&self) -> u64 {
        self.bytes()
    }

    /// Writes and commits, under the writer lock. `end` says what is to be done if the caller's function panics.
    fn write<const VALUES: bool>(
        self,
        appender: &mut Appender<'_, VALUES>,
        participant: &Participant,
        end: CallEnd,
    ) -> Result<Self::Result, PublishError>;
}

impl Commit for Record<'_> {
    /// Its sequence.
    type Result = u64;

    #[inline(always)]
    fn bytes(&self) -> u64 {
        self.bytes()
    }

    #[inline(always)]
    fn tag(&self) -> u32 {
        self.tag
    }

    #[inline(always)]
    fn write<const VALUES: bool>(
        self,
        appender: &mut Appender<'_, VALUES>,
        _: &Participant,
        _: CallEnd,
    ) -> Result<u64, PublishError> {
        let sequence = appender.sequence();
        appender.write(self);
        Ok(sequence)
    }
}

/// Records of one topic that become visible together.
pub(super) struct Batch<I> {
    pub(super) records: I,
    pub(super) tag: u32,
    pub(super) count: u64,
    /// The sum of the records' bytes.
    pub(super) bytes: u64,
    /// Bytes of the last one.
    pub(super) newest: u64,
}

impl<'r, I: Iterator<Item = Record<'r>>> Commit for Batch<I> {
    /// Their sequences.
    type Result = Range<u64>;

    #[inline(always)]
    fn messages(&self) -> u64 {
        self.count
    }

    #[inline(always)]
    fn bytes(&self) -> u64 {
        self.bytes
    }

    #[inline(always)]
    fn tag(&self) -> u32 {
        self.tag
    }

    #[inline(always)]
    fn newest(&self) -> u64 {
        self.newest
    }

    #[inline(always)]
    fn write<const VALUES: bool>(
        self,
        appender: &mut Appender<'_, VALUES>,
        _: &Participant,
        _: CallEnd,
    ) -> Result<Range<u64>, PublishError> {
        let first = appender.sequence();
        appender.write_batch(self.records, self.bytes);
        Ok(first..appender.sequence())
    }
}

/// A record whose payload the caller's function writes in the ring.
pub(super) struct Filled<'a, F> {
    pub(super) permit: Permit,
    pub(super) tag: u32,
    pub(super) extensions: &'a [u8],
    /// Bytes of the payload.
    pub(super) length: u32,
    /// Bytes of the record.
    pub(super) bytes: u64,
    pub(super) fill: F,
}

impl<R, F: FnOnce(&[AtomicU64]) -> R> Commit for Filled<'_, F> {
    /// Its sequence, and what the function returned.
    type Result = (u64, R);

    #[inline(always)]
    fn bytes(&self) -> u64 {
        self.bytes
    }

    #[inline(always)]
    fn tag(&self) -> u32 {
        self.tag
    }

    #[inline(always)]
    fn write<const VALUES: bool>(
        self,
        appender: &mut Appender<'_, VALUES>,
        participant: &Participant,
        end: CallEnd,
    ) -> Result<(u64, R), PublishError> {
        let sequence = appender.sequence();
        // If `fill` panics, this ends the call, and nothing is visible.
        let lock = participant.lock_guard(end);
        let _entered = self.permit.enter(&participant.bus_id);
        let result = appender.write_with(self.tag, self.extensions, self.length, |words| {
            let result = (self.fill)(words);
            // `fill` may have forked: then it returns twice, and the lock is the parent's.
            participant.check_fork().map(|()| result)
        })?;
        lock.defer();
        Ok((sequence, result))
    }
}
