//! Messages in memory: a decompressed chunk, or a part of a file without chunks.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::wire::{ChunkHeader, MESSAGE_HEADER_BYTES, MessageHeader, RECORD_HEADER_BYTES};
use std::io::Read;

/// The most bytes of a chunk, compressed or not: 1 GiB.
pub(crate) const MOST_CHUNK_BYTES: u64 = 1 << 30;
/// Memory that is reserved for a chunk before it is decompressed. A longer one has to have the bytes it claims.
const RESERVED_BYTES: u64 = 8 << 20;

/// Records one after the other.
#[derive(Default)]
pub(crate) struct Chunk {
    pub(crate) bytes: Vec<u8>,
    at: usize,
}

/// A record of a chunk.
pub(crate) enum ChunkRecord {
    Message {
        header: MessageHeader,
        /// Where its payload is in the chunk.
        payload: (usize, usize),
    },
    /// Another record: its opcode, and where its body is.
    Other(u8, (usize, usize)),
}

impl Chunk {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.at = 0;
    }

    pub(crate) fn rewind(&mut self) {
        self.at = 0;
    }

    pub(crate) fn slice(&self, (start, end): (usize, usize)) -> &[u8] {
        self.bytes.get(start..end).unwrap_or_default()
    }

    /// Returns the next record, or `None` at the end.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<ChunkRecord>, String> {
        let Some(rest) = self.bytes.get(self.at..).filter(|rest| !rest.is_empty()) else {
            return Ok(None);
        };
        let mut records = super::wire::Bytes(rest);
        let Some((code, body)) = records.record() else {
            return Err("a record in the chunk is longer than the chunk".to_owned());
        };
        let start = self.at.saturating_add(RECORD_HEADER_BYTES);
        let end = start.saturating_add(body.len());
        self.at = end;
        if code != super::wire::op::MESSAGE {
            return Ok(Some(ChunkRecord::Other(code, (start, end))));
        }
        let header =
            MessageHeader::parse(body).ok_or_else(|| "a message is too short".to_owned())?;
        Ok(Some(ChunkRecord::Message {
            header,
            payload: (start.saturating_add(MESSAGE_HEADER_BYTES), end),
        }))
    }

    /// Fills the chunk with its decompressed data, and checks them.
    pub(crate) fn fill(&mut self, header: &ChunkHeader, data: impl Read) -> Result<(), String> {
        self.clear();
        let size = header.uncompressed_size;
        if size > MOST_CHUNK_BYTES {
            return Err(format!("a chunk claims to have {size} bytes, more than 1 GiB"));
        }
        let data = data.take(header.compressed_size);
        self.bytes.reserve(usize::try_from(size.min(RESERVED_BYTES)).unwrap_or_default());
        // One byte more, to notice that there are too many.
        let limit = size.saturating_add(1);
        let read = match header.compression.as_str() {
            "" => data.take(limit).read_to_end(&mut self.bytes),
            "zstd" => zstd::stream::read::Decoder::new(data).and_then(|mut decoder| {
                // Its window needs no more memory than the chunk.
                decoder.window_log_max(30)?;
                decoder.take(limit).read_to_end(&mut self.bytes)
            }),
            "lz4" => lz4::Decoder::new(data)
                .and_then(|decoder| decoder.take(limit).read_to_end(&mut self.bytes)),
            other => {
                return Err(format!("a chunk has the compression {other:?}, which is unknown"));
            }
        };
        let read = read.map_err(|error| format!("a chunk cannot be decompressed: {error}"))?;
        if read as u64 != size {
            return Err(format!("a chunk has {read} bytes or more, but claims {size}"));
        }
        if header.uncompressed_crc != 0 && crc32fast::hash(&self.bytes) != header.uncompressed_crc {
            return Err("the checksum of a chunk is wrong".to_owned());
        }
        Ok(())
    }
}
