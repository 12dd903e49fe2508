//! Any bytes as a recording: it is read or refused, and takes no more memory than its chunks have.

use toroni_recording::reader;

/// What a chunk may take beside its bytes: what is reserved at first.
const RESERVED_BYTES: usize = 16 << 20;
/// How far zstd and lz4 can expand bytes, about.
const MOST_EXPANSION: usize = 1 << 17;

/// Reads the bytes with and without origins.
pub fn fuzz(bytes: &[u8]) {
    let limit = bytes.len().saturating_mul(MOST_EXPANSION).saturating_add(RESERVED_BYTES);
    for with_origins in [false, true] {
        let (_, most) = reader::walk(bytes, with_origins);
        assert!(most <= limit, "{most} bytes for a file of {}", bytes.len());
    }
}
