//! What one core can copy.

use std::hint::black_box;
use std::time::Instant;

use super::{Effort, Floor};

/// The bytes of a ring, term or queue in the comparisons: the destination walks through as many.
const RING_BYTES: usize = 4 << 20;
/// More than any cache of one core, so that each byte comes from main memory and goes there.
const MAIN_MEMORY_BYTES: usize = 128 << 20;

/// Copies a payload of `length` bytes, which stays in the cache, to the next place of a ring: the part
/// of a send that no transport with shared memory can leave out, unless it is given a place to fill.
pub(super) fn into_ring(effort: Effort, length: usize) -> Floor {
    let payload = vec![0x5a_u8; length];
    let mut ring = vec![1_u8; RING_BYTES];
    let samples = (0..effort.repetitions)
        .map(|_| {
            rate(effort.bytes, RING_BYTES, || {
                for place in ring.chunks_exact_mut(length) {
                    place.copy_from_slice(black_box(&payload));
                }
                black_box(&mut ring);
            })
        })
        .collect();
    Floor::of(format!("copy of {length} B into a ring of 4 MiB"), "GB/s", samples)
}

/// Copies from main memory to main memory.
pub(super) fn main_memory(effort: Effort) -> Floor {
    let from = vec![0x5a_u8; MAIN_MEMORY_BYTES];
    let mut to = vec![1_u8; MAIN_MEMORY_BYTES];
    let samples = (0..effort.repetitions)
        .map(|_| {
            rate(effort.bytes, MAIN_MEMORY_BYTES, || {
                to.copy_from_slice(black_box(&from));
                black_box(&mut to);
            })
        })
        .collect();
    Floor::of("copy of 128 MiB in main memory", "GB/s", samples)
}

/// Gigabytes a second of as many rounds of `step` bytes as make up `bytes`.
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
        let effort = Effort { repetitions: 3, bytes: 1 << 22, rounds: 1 };
        let floor = into_ring(effort, 64);
        assert!(floor.median > 0.0 && floor.median.is_finite(), "{floor:?}");
    }
}
