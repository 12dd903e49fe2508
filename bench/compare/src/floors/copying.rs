//! Copies by one core.

use std::hint::black_box;
use std::time::Instant;

use super::{Floor, RunLength};

/// Bytes of a ring, term or queue in the comparisons; the destination has the same size.
const RING_BYTES: usize = 4 << 20;
/// More than any cache of one core, so that each byte is read from and written to main memory.
const MAIN_MEMORY_BYTES: usize = 128 << 20;

/// Copies a payload of `bytes` bytes, which stays in the cache, to the next position in a ring. Every transport with
/// shared memory has to do this for a message, unless the message is made in place.
pub(super) fn into_ring(length: RunLength, bytes: usize) -> Floor {
    let payload = vec![0x5a_u8; bytes];
    let mut ring = vec![1_u8; RING_BYTES];
    let samples = (0..length.repetitions)
        .map(|_| {
            rate(length.bytes, RING_BYTES, || {
                for slot in ring.chunks_exact_mut(bytes) {
                    slot.copy_from_slice(black_box(&payload));
                }
                black_box(&mut ring);
            })
        })
        .collect();
    Floor::of(format!("copy of {bytes} B into a ring of 4 MiB"), "GB/s", samples)
}

/// Copies from main memory to main memory.
pub(super) fn main_memory(length: RunLength) -> Floor {
    let from = vec![0x5a_u8; MAIN_MEMORY_BYTES];
    let mut to = vec![1_u8; MAIN_MEMORY_BYTES];
    let samples = (0..length.repetitions)
        .map(|_| {
            rate(length.bytes, MAIN_MEMORY_BYTES, || {
                to.copy_from_slice(black_box(&from));
                black_box(&mut to);
            })
        })
        .collect();
    Floor::of("copy of 128 MiB in main memory", "GB/s", samples)
}

/// Copies `bytes` in rounds of `step` bytes. Returns gigabytes per second.
fn rate(bytes: usize, step: usize, mut round: impl FnMut()) -> f64 {
    let rounds = bytes.div_ceil(step);
    let start = Instant::now();
    for _ in 0..rounds {
        round();
    }
    (rounds * step) as f64 / start.elapsed().as_nanos() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_have_a_rate() {
        let length = RunLength { repetitions: 3, bytes: 1 << 22, rounds: 1 };
        let floor = into_ring(length, 64);
        assert!(floor.median > 0.0 && floor.median.is_finite(), "{floor:?}");
    }
}
