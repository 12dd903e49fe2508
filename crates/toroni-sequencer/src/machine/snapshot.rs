//! The state as bytes: what a member that was away for long is sent, and what a restart begins from.
//!
//! ```text
//!  "TNSEQST" 2 · series u32 · sources u32 · kept u32 · begun u64 · next u64 · digest 32
//!  closed u32 · series of the feed u32 · from u32
//!  each source, by its number:  source u32 · session u32 · series u32 · flags u32 (1 released) · next u64
//!                               last event + 1, or 0, u64 · bus 16
//!  each closed bus:             source u32 · bus 16
//!  each series of the feed:     series u32 · first event u64
//!  each digest that is kept:    number u64 · digest 32
//!  BLAKE3 over everything before, 32 bytes
//! ```
//!
//! Version 1 is read, too. It has no second line, no series of the feed and no last events, and the closed buses of a source stand with
//! that: closed u32 in place of flags, then next, bus, and 16 bytes for each.

use super::{
    CLOSED_KEPT, CLOSED_KEPT_1, Chain, DIGEST_EVERY, DIGESTS_KEPT, Digest, MAX_SOURCES,
    MAX_SOURCES_1, Machine, SERIES_KEPT, Source,
};
use crate::batch::NUMBER_BITS;
use crate::bytes::{Fields, TooShort};

const MAGIC: [u8; 8] = *b"TNSEQST\x02";
const MAGIC_1: [u8; 8] = *b"TNSEQST\x01";

/// The greatest length of a snapshot, in bytes.
pub(crate) const MAX_SNAPSHOT_BYTES: usize = MAX_BYTES_1;
const MAX_BYTES_1: usize = 68 + MAX_SOURCES_1 * (40 + 16 * CLOSED_KEPT_1) + DIGESTS_KEPT * 40 + 32;
const MAX_BYTES: usize =
    80 + MAX_SOURCES * 48 + CLOSED_KEPT * 20 + SERIES_KEPT * 12 + DIGESTS_KEPT * 40 + 32;
// That of version 1 is the longer one.
const _: () = assert!(MAX_BYTES < MAX_BYTES_1);

/// Why bytes are no snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// They end too early, or too late.
    #[error("the snapshot has the wrong length")]
    Length,
    /// Another kind of file, or another version.
    #[error("not a snapshot of version 1 or 2")]
    Version,
    /// The hash at the end does not belong to the bytes.
    #[error("the snapshot is damaged: its hash differs")]
    Hash,
    /// A count or number that no machine can come to.
    #[error("the snapshot says what cannot be")]
    Impossible,
}

impl From<TooShort> for SnapshotError {
    fn from(TooShort: TooShort) -> Self {
        Self::Length
    }
}

impl Machine {
    /// Returns the state as bytes.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(4096);
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
        bytes.extend(MAGIC);
        bytes.extend(self.chain.series.to_le_bytes());
        bytes.extend(count(self.sources.len()));
        bytes.extend(count(self.kept.len()));
        bytes.extend(self.chain.begun.to_le_bytes());
        bytes.extend(self.chain.next.to_le_bytes());
        bytes.extend(self.chain.digest.as_bytes());
        bytes.extend(count(self.closed.len()));
        bytes.extend(count(self.lineage.begun.len()));
        bytes.extend(self.lineage.complete_from.to_le_bytes());
        for (number, source) in &self.sources {
            bytes.extend(number.to_le_bytes());
            bytes.extend(source.session.to_le_bytes());
            bytes.extend(source.series.to_le_bytes());
            bytes.extend(u32::from(source.is_released).to_le_bytes());
            bytes.extend(source.next.to_le_bytes());
            let last = source.last.map_or(0, |last| last.saturating_add(1));
            bytes.extend(last.to_le_bytes());
            bytes.extend(source.bus);
        }
        for (source, bus) in &self.closed {
            bytes.extend(source.to_le_bytes());
            bytes.extend(bus);
        }
        for (series, first) in &self.lineage.begun {
            bytes.extend(series.to_le_bytes());
            bytes.extend(first.to_le_bytes());
        }
        for (number, digest) in &self.kept {
            bytes.extend(number.to_le_bytes());
            bytes.extend(digest.as_bytes());
        }
        let hash = blake3::hash(&bytes);
        bytes.extend(hash.as_bytes());
        bytes
    }

    /// Returns the machine whose snapshot this is.
    ///
    /// # Errors
    ///
    /// If a byte is not as [`Machine::snapshot`] writes it.
    pub fn from_snapshot(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let Some((state, hash)) = bytes.split_last_chunk::<32>() else {
            return Err(SnapshotError::Length);
        };
        if bytes.len() > MAX_SNAPSHOT_BYTES {
            return Err(SnapshotError::Length);
        }
        let mut fields = Fields::of(state);
        let is_1 = match fields.array()? {
            MAGIC => false,
            MAGIC_1 => true,
            _ => return Err(SnapshotError::Version),
        };
        if blake3::hash(state) != *hash {
            return Err(SnapshotError::Hash);
        }
        let (series, sources, kept) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let (begun, next) = (fields.u64()?, fields.u64()?);
        let digest = Digest::from_bytes(fields.array()?);
        let chain = Chain { series, begun, next, digest };
        if begun > next {
            return Err(SnapshotError::Impossible);
        }
        let mut machine = Self { chain, ..Self::default() };
        let (closed, all_begun);
        if is_1 {
            (closed, all_begun) = (0, 0);
            // Of earlier series, nothing is known.
            machine.lineage.complete_from = series;
            machine.lineage.begun.extend((series > 0).then_some((series, begun)));
        } else {
            (closed, all_begun) = (fields.u32()?, fields.u32()?);
            machine.lineage.complete_from = fields.u32()?;
        }
        let below = |count: u32, limit| usize::try_from(count).is_ok_and(|count| count <= limit);
        let most = if is_1 { MAX_SOURCES_1 } else { MAX_SOURCES };
        let counts_fit = below(sources, most) && below(kept, DIGESTS_KEPT);
        if !counts_fit || !below(closed, CLOSED_KEPT) || !below(all_begun, SERIES_KEPT) {
            return Err(SnapshotError::Impossible);
        }
        for _ in 0..sources {
            let number = fields.u32()?;
            let source = if is_1 {
                let (source, closed) = read_source_1(&mut fields)?;
                closed.into_iter().for_each(|bus| machine.close(number, bus));
                source
            } else {
                read_source(&mut fields, next)?
            };
            if machine.sources.last_key_value().is_some_and(|(last, _)| *last >= number) {
                return Err(SnapshotError::Impossible);
            }
            machine.sources.insert(number, source);
        }
        for _ in 0..closed {
            machine.closed.push_back((fields.u32()?, fields.array()?));
        }
        for _ in 0..all_begun {
            let (series, first) = (fields.u32()?, fields.u64()?);
            let follows =
                machine.lineage.begun.last().is_none_or(|last| last.0 < series && last.1 < first);
            if !follows || first >= next || series < machine.lineage.complete_from {
                return Err(SnapshotError::Impossible);
            }
            machine.lineage.begun.push((series, first));
        }
        if machine.lineage.begun.last().map_or((0, 0), |last| *last) != (series, begun) {
            return Err(SnapshotError::Impossible);
        }
        for _ in 0..kept {
            let number = fields.u64()?;
            let follows = machine.kept.back().is_none_or(|(last, _)| *last < number);
            let is_kept =
                number.checked_add(1).is_some_and(|next| next.is_multiple_of(DIGEST_EVERY));
            if !follows || !is_kept || number >= next {
                return Err(SnapshotError::Impossible);
            }
            machine.kept.push_back((number, Digest::from_bytes(fields.array()?)));
        }
        if fields.rest().is_empty() { Ok(machine) } else { Err(SnapshotError::Length) }
    }
}

fn read_source(fields: &mut Fields<'_>, events: u64) -> Result<Source, SnapshotError> {
    let (session, series, flags) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let (next, last, bus) = (fields.u64()?, fields.u64()?, fields.array()?);
    if next > 1 << NUMBER_BITS || last > events || flags > 1 {
        return Err(SnapshotError::Impossible);
    }
    Ok(Source { bus, session, series, next, last: last.checked_sub(1), is_released: flags == 1 })
}

/// Reads a source of version 1, with its closed buses.
fn read_source_1(fields: &mut Fields<'_>) -> Result<(Source, Vec<[u8; 16]>), SnapshotError> {
    let (session, series, closed) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let (next, bus) = (fields.u64()?, fields.array()?);
    let fits = usize::try_from(closed).is_ok_and(|closed| closed <= CLOSED_KEPT_1);
    if next > 1 << NUMBER_BITS || !fits {
        return Err(SnapshotError::Impossible);
    }
    let closed = (0..closed).map(|_| fields.array()).collect::<Result<_, _>>()?;
    let source = Source { bus, session, series, next, last: None, is_released: false };
    Ok((source, closed))
}
