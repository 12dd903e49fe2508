//! What those who doze and those who rouse them agree on.

use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// A message of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Its round, from 0.
    pub round: u64,
    /// When the call that published it began, by [`now_ns`].
    pub sent_ns: u64,
}

impl Stamp {
    #[must_use]
    pub fn encode(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.round.to_le_bytes());
        bytes[8..].copy_from_slice(&self.sent_ns.to_le_bytes());
        bytes
    }

    /// From what [`Self::encode`] gave.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Self {
        let number = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes);
        assert_eq!(bytes.len(), 16, "a stamp");
        Self { round: number(0).expect("8 bytes"), sent_ns: number(8).expect("8 bytes") }
    }
}

/// CLOCK_MONOTONIC, the same in all processes.
#[must_use]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}

/// Returns whether the exclusive publisher of a bus leaves its fence out: whether its mark is in the file `ring`, which is
/// `Control::asymmetric` in the library's `ring/layout.rs`.
///
/// # Panics
/// If the file cannot be read.
#[must_use]
pub fn leaves_fence_out(ring: &File) -> bool {
    let mut mark = [0; 4];
    ring.read_exact_at(&mut mark, 4096 + 256).expect("the file ring");
    mark != [0; 4]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_as_it_was_written() {
        let stamp = Stamp { round: 7, sent_ns: now_ns() };
        assert_eq!(Stamp::decode(&stamp.encode()), stamp);
    }
}
