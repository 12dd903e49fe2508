//! The state as bytes: what a member that was away for long is sent, and what a restart begins from.
//!
//! ```text
//!  "TNSEQST" 1 · series u32 · sources u32 · kept u32 · begun u64 · next u64 · digest 32
//!  each source, by its number:  source u32 · session u32 · series u32 · closed u32 · next u64 · bus 16 · closed × 16
//!  each digest that is kept:    number u64 · digest 32
//!  BLAKE3 over everything before, 32 bytes
//! ```

use super::{CLOSED_KEPT, Chain, DIGEST_EVERY, DIGESTS_KEPT, Digest, MAX_SOURCES, Machine, Source};
use crate::batch::NUMBER_BITS;
use crate::bytes::{Fields, TooShort};

const MAGIC: [u8; 8] = *b"TNSEQST\x01";

/// The greatest length of a snapshot, in bytes.
pub(crate) const MAX_SNAPSHOT_BYTES: usize =
    68 + MAX_SOURCES * (40 + 16 * CLOSED_KEPT) + DIGESTS_KEPT * 40 + 32;

/// Why bytes are no snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// They end too early, or too late.
    #[error("the snapshot has the wrong length")]
    Length,
    /// Another kind of file, or another version.
    #[error("not a snapshot of version 1")]
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
        for (number, source) in &self.sources {
            bytes.extend(number.to_le_bytes());
            bytes.extend(source.session.to_le_bytes());
            bytes.extend(source.series.to_le_bytes());
            bytes.extend(count(source.closed.len()));
            bytes.extend(source.next.to_le_bytes());
            bytes.extend(source.bus);
            bytes.extend(source.closed.iter().flatten());
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
        if fields.array()? != MAGIC {
            return Err(SnapshotError::Version);
        }
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
        let below = |count: u32, limit| usize::try_from(count).is_ok_and(|count| count <= limit);
        if !below(sources, MAX_SOURCES) || !below(kept, DIGESTS_KEPT) {
            return Err(SnapshotError::Impossible);
        }
        for _ in 0..sources {
            let number = fields.u32()?;
            let source = read_source(&mut fields)?;
            if machine.sources.last_key_value().is_some_and(|(last, _)| *last >= number) {
                return Err(SnapshotError::Impossible);
            }
            machine.sources.insert(number, source);
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

fn read_source(fields: &mut Fields<'_>) -> Result<Source, SnapshotError> {
    let (session, series, closed) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let (next, bus) = (fields.u64()?, fields.array()?);
    if next > 1 << NUMBER_BITS || !usize::try_from(closed).is_ok_and(|closed| closed <= CLOSED_KEPT)
    {
        return Err(SnapshotError::Impossible);
    }
    let closed = (0..closed).map(|_| fields.array()).collect::<Result<_, _>>()?;
    Ok(Source { bus, session, series, next, closed })
}
