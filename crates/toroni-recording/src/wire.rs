//! The records of MCAP that this program reads. Nothing is allocated for a length that the bytes do not have.
//!
//! The readers of the crate `mcap` trust more: some allocate what a length field says, and one slices without a check.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::collections::BTreeMap;

pub(crate) const MAGIC: &[u8; 8] = b"\x89MCAP0\r\n";
/// Opcode and length.
pub(crate) const RECORD_HEADER_BYTES: usize = 9;
/// What precedes the payload in the body of a message.
pub(crate) const MESSAGE_HEADER_BYTES: usize = 22;
/// The last record of a complete file, with the magic after it.
pub(crate) const FOOTER_BYTES: usize = 9 + 20 + 8;
/// The bytes of it that its checksum covers.
pub(crate) const FOOTER_COVERED_BYTES: u64 = 9 + 8 + 8;

pub(crate) mod op {
    pub(crate) const HEADER: u8 = 0x01;
    pub(crate) const FOOTER: u8 = 0x02;
    pub(crate) const SCHEMA: u8 = 0x03;
    pub(crate) const CHANNEL: u8 = 0x04;
    pub(crate) const MESSAGE: u8 = 0x05;
    pub(crate) const CHUNK: u8 = 0x06;
    pub(crate) const MESSAGE_INDEX: u8 = 0x07;
    pub(crate) const CHUNK_INDEX: u8 = 0x08;
    pub(crate) const STATISTICS: u8 = 0x0B;
    pub(crate) const METADATA: u8 = 0x0C;
    pub(crate) const DATA_END: u8 = 0x0F;
}

/// Bytes that are read from the front. `None` means that there are too few.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Returns bytes whose length precedes them.
    pub(crate) fn prefixed(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.take(usize::try_from(length).ok()?)
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.prefixed()?).ok()
    }

    fn map(&mut self) -> Option<BTreeMap<String, String>> {
        let mut entries = Bytes(self.prefixed()?);
        let mut map = BTreeMap::new();
        while !entries.0.is_empty() {
            map.insert(entries.text()?.to_owned(), entries.text()?.to_owned());
        }
        Some(map)
    }

    /// Returns opcode and body of the next record.
    #[inline]
    pub(crate) fn record(&mut self) -> Option<(u8, &'a [u8])> {
        let (header, rest) = self.0.split_first_chunk::<RECORD_HEADER_BYTES>()?;
        let [code, length @ ..] = *header;
        let length = usize::try_from(u64::from_le_bytes(length)).ok()?;
        let (body, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((code, body))
    }
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageHeader {
    pub(crate) channel: u16,
    /// The low 32 bits.
    pub(crate) sequence: u32,
    pub(crate) log_time: u64,
    pub(crate) publish_time: u64,
}

impl MessageHeader {
    #[inline]
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(body.get(..MESSAGE_HEADER_BYTES)?);
        Some(Self {
            channel: bytes.u16()?,
            sequence: bytes.u32()?,
            log_time: bytes.u64()?,
            publish_time: bytes.u64()?,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SchemaRecord<'a> {
    pub(crate) id: u16,
    pub(crate) name: &'a str,
    pub(crate) encoding: &'a str,
    pub(crate) data: &'a [u8],
}

impl<'a> SchemaRecord<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> Option<Self> {
        let mut bytes = Bytes(body);
        Some(Self {
            id: bytes.u16()?,
            name: bytes.text()?,
            encoding: bytes.text()?,
            data: bytes.prefixed()?,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChannelRecord {
    pub(crate) id: u16,
    pub(crate) schema: u16,
    pub(crate) topic: String,
    pub(crate) encoding: String,
    pub(crate) metadata: BTreeMap<String, String>,
}

impl ChannelRecord {
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(body);
        Some(Self {
            id: bytes.u16()?,
            schema: bytes.u16()?,
            topic: bytes.text()?.to_owned(),
            encoding: bytes.text()?.to_owned(),
            metadata: bytes.map()?,
        })
    }
}

/// The front of a chunk. Its data follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChunkHeader {
    pub(crate) start_time: u64,
    pub(crate) end_time: u64,
    pub(crate) uncompressed_size: u64,
    /// 0 if there is none.
    pub(crate) uncompressed_crc: u32,
    pub(crate) compression: String,
    pub(crate) compressed_size: u64,
}

impl ChunkHeader {
    /// The most bytes that a header with a known compression has.
    pub(crate) const MOST_BYTES: usize = 8 + 8 + 8 + 4 + 4 + 32 + 8;

    /// Returns the header and its length.
    pub(crate) fn parse(body: &[u8]) -> Option<(Self, usize)> {
        let mut bytes = Bytes(body);
        let header = Self {
            start_time: bytes.u64()?,
            end_time: bytes.u64()?,
            uncompressed_size: bytes.u64()?,
            uncompressed_crc: bytes.u32()?,
            compression: bytes.text()?.to_owned(),
            compressed_size: bytes.u64()?,
        };
        Some((header, body.len().saturating_sub(bytes.0.len())))
    }
}

/// Where a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkIndex {
    pub(crate) start_time: u64,
    pub(crate) end_time: u64,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    /// How many bytes of indexes of messages follow it.
    pub(crate) index_length: u64,
}

impl ChunkIndex {
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(body);
        let [start_time, end_time, offset, length] =
            [bytes.u64()?, bytes.u64()?, bytes.u64()?, bytes.u64()?];
        // Where each channel has its index.
        bytes.prefixed()?;
        Some(Self { start_time, end_time, offset, length, index_length: bytes.u64()? })
    }
}

/// What the summary counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Messages.
    pub messages: u64,
    /// The least time of recording, in nanoseconds since 1970.
    pub start_time: u64,
    /// The greatest.
    pub end_time: u64,
}

impl Statistics {
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(body);
        let messages = bytes.u64()?;
        bytes.take(2 + 4 + 4 + 4 + 4)?;
        Some(Self { messages, start_time: bytes.u64()?, end_time: bytes.u64()? })
    }
}

/// Returns the channels of which the statistics count messages.
pub(crate) fn used_channels(body: &[u8]) -> Option<Vec<u16>> {
    let mut bytes = Bytes(body);
    // What is before the counts: see `Statistics`.
    bytes.take(8 + 2 + 4 + 4 + 4 + 4 + 8 + 8)?;
    let mut counts = Bytes(bytes.prefixed()?);
    let mut used = Vec::new();
    while !counts.0.is_empty() {
        let (channel, count) = (counts.u16()?, counts.u64()?);
        used.extend((count > 0).then_some(channel));
    }
    Some(used)
}

/// Parses a metadata record: its name, and its entries.
pub(crate) fn metadata(body: &[u8]) -> Option<(String, BTreeMap<String, String>)> {
    let mut bytes = Bytes(body);
    Some((bytes.text()?.to_owned(), bytes.map()?))
}

/// Parses the footer: the offset of the summary, or 0, and its checksum, or 0.
pub(crate) fn footer(body: &[u8]) -> Option<(u64, u32)> {
    let mut bytes = Bytes(body);
    let start = bytes.u64()?;
    bytes.u64()?;
    Some((start, bytes.u32()?))
}

/// Parses an index of messages: the channel, and how many it has in the chunk before.
pub(crate) fn message_index(body: &[u8]) -> Option<(u16, u64)> {
    /// Time and offset.
    const ENTRY_BYTES: u64 = 16;
    let mut bytes = Bytes(body);
    let channel = bytes.u16()?;
    Some((channel, u64::from(bytes.u32()?) / ENTRY_BYTES))
}
