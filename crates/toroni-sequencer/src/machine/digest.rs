//! The chain of hashes over all events: equal digests at one number mean equal events up to there.

use std::fmt;

/// After each this many events the digest is kept.
pub const DIGEST_EVERY: u64 = 4096;
/// How many digests are kept.
pub const DIGESTS_KEPT: usize = 1024;

/// BLAKE3 over the digest before, the feed's series, the event's number, and the command's encoding.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    pub(crate) const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the digest after one more event.
    pub(super) fn after(&self, series: u32, number: u64, command: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher
            .update(&self.0)
            .update(&series.to_le_bytes())
            .update(&number.to_le_bytes())
            .update(command);
        Self(*hasher.finalize().as_bytes())
    }
}

/// All of it in hexadecimal.
impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Digest({self})")
    }
}
