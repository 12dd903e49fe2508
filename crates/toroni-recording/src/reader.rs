//! Reads a recording from front to back, one chunk at a time.
//!
//! Files come from anywhere. Every length and offset is checked against the file, and one chunk at a time is in memory:
//! its data, and what they are decompressed from.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::chunk::{Chunk, ChunkRecord, MOST_CHUNK_BYTES};
use super::format::{self, OriginRun, RecordedLoss, RecordedNote, Retention};
use super::wire::{
    self, Bytes, ChannelRecord, ChunkHeader, ChunkIndex, FOOTER_BYTES, FOOTER_COVERED_BYTES, MAGIC,
    MessageHeader, RECORD_HEADER_BYTES, op,
};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::sync::Arc;
use toroni::Origin;

pub use super::wire::Statistics;

const BUFFER_BYTES: usize = 256 << 10;
/// How many bytes of a file without chunks are in memory at a time.
const UNCHUNKED_BYTES: usize = 1 << 20;
/// The most bytes of all names and metadata of channels.
const MOST_NAME_BYTES: usize = 64 << 20;
/// The most bytes of a metadata record that are read.
const MOST_METADATA_BYTES: u64 = 16 << 20;

/// What a channel carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelKind {
    /// Messages of a topic.
    Topic {
        /// Whether they go to the topics below it, too.
        to_descendants: bool,
        /// What they have to do with the value of the topic.
        retention: Retention,
    },
    /// Losses.
    Lost,
    /// Origins.
    Origin,
    /// Notes of the recorder.
    Note,
}

/// A channel of a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Channel {
    /// The topic.
    pub topic: String,
    /// How its payloads are encoded; empty if nothing is known.
    pub encoding: String,
    /// What it carries.
    pub kind: ChannelKind,
}

impl From<ChannelRecord> for Channel {
    fn from(record: ChannelRecord) -> Self {
        let is = |key, value| record.metadata.get(key).is_some_and(|found| found == value);
        let kind = if is(format::KIND, "lost") {
            ChannelKind::Lost
        } else if is(format::KIND, "origin") {
            ChannelKind::Origin
        } else if is(format::KIND, "note") {
            ChannelKind::Note
        } else {
            let retention = Retention::ALL.into_iter().find(|retention| {
                retention.as_str().is_some_and(|text| is(format::RETAINED, text))
            });
            ChannelKind::Topic {
                to_descendants: is(format::TO_DESCENDANTS, "true"),
                retention: retention.unwrap_or_default(),
            }
        };
        Self { topic: record.topic, encoding: record.encoding, kind }
    }
}

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// A message.
    Message,
    /// The value of a topic at this place. It was published before.
    Value,
    /// No message: the value of a topic was cleared.
    Cleared,
    /// A loss: see [`Reader::loss`].
    Loss,
    /// A note of the recorder: see [`Reader::note`].
    Note,
    /// A damaged part of the file, at the place of what it had: see [`Reader::damage`].
    Damage,
}

/// A message, a loss or a note in the current chunk.
#[derive(Clone, Debug)]
pub struct Item {
    /// The number of its channel.
    pub channel: u16,
    /// What it is.
    pub kind: ItemKind,
    /// Its sequence on the bus.
    pub sequence: u64,
    /// When it was recorded, in nanoseconds since 1970. 0 for a damage without [`Damage::time`].
    pub log_time: u64,
    /// When it was published, in nanoseconds since 1970.
    pub publish_time: u64,
    /// Where it was published first, and its place in an order over several buses.
    pub origin: Option<(Origin, Option<u64>)>,
    payload: (usize, usize),
}

impl Item {
    /// Returns its time of publication, if the message had a stamp: without one, both times are equal.
    #[inline]
    pub fn stamp(&self) -> Option<u64> {
        (self.publish_time != self.log_time).then_some(self.publish_time)
    }
}

/// A part of a file that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// What is wrong, and where.
    pub broken: Broken,
    /// How many messages it had. `None` if the file does not say.
    pub messages: Option<u64>,
    /// The sequence at which they are missing.
    pub(crate) sequence: u64,
    /// When it begins. `None` if nothing before it has a time, and the file does not say.
    pub time: Option<u64>,
    /// When its last message was recorded, if the file says so.
    pub end_time: Option<u64>,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Broken { offset, what } = &self.broken;
        match self.messages {
            Some(1) => write!(f, "1 message is missing")?,
            Some(count) => write!(f, "{} messages are missing", toroni_shell::human::count(count))?,
            None => write!(f, "an unknown number of messages is missing")?,
        }
        write!(f, ": the file is damaged at byte {offset}: {what}")
    }
}

/// What is wrong with a file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Where the record starts.
    pub offset: u64,
    /// What is wrong.
    pub what: String,
}

/// The index at the end of a complete file.
#[derive(Debug, Default)]
pub struct Summary {
    pub(crate) chunks: Vec<ChunkIndex>,
    /// Schemas and channels as they are in the file: opcode and body.
    pub(crate) descriptions: Vec<(u8, Vec<u8>)>,
    /// The channels that have messages, as far as the statistics say so.
    used: Vec<u16>,
    /// What it counts, if it does.
    pub statistics: Option<Statistics>,
}

/// What the metadata records of a recorder say.
#[derive(Debug, Default)]
pub struct Notes(pub BTreeMap<String, String>);

/// Reads a recording, one chunk at a time.
pub struct Reader<R> {
    input: BufReader<R>,
    length: u64,
    /// Where `input` is.
    position: u64,
    /// Where the record of the current chunk starts.
    pub chunk_offset: u64,
    chunk: Chunk,
    channels: Vec<Option<Arc<Channel>>>,
    name_bytes: usize,
    /// The end of the last record that was whole.
    pub whole_until: u64,
    /// Whether the file ends as a finished one does.
    pub is_complete: bool,
    /// The index, if the file has one.
    pub summary: Option<Summary>,
    /// What the recorder wrote about the recording.
    pub notes: Notes,
    /// How many chunks were read.
    pub chunks_read: u64,
    /// The sequence of the item before, from which that of the next one follows.
    last_sequence: u64,
    /// The sequence after the message before.
    next_sequence: u64,
    last_time: u64,
    /// The damage that was found last.
    damage: Option<Damage>,
    /// Its item, which is the next one.
    damage_item: Option<Item>,
    /// Messages of the current chunk on channels that are not described.
    unknown: u64,
    wants_origins: bool,
    origins: Vec<OriginRun>,
    is_done: bool,
}

impl<R: Read + Seek> Reader<R> {
    /// Opens a file of `length` bytes, and reads its index if it has one.
    pub fn open(input: R, length: u64, wants_origins: bool) -> Result<Self, Broken> {
        let mut reader = Self {
            input: BufReader::with_capacity(BUFFER_BYTES, input),
            length,
            position: 0,
            chunk_offset: 0,
            chunk: Chunk::default(),
            channels: Vec::new(),
            name_bytes: 0,
            whole_until: 0,
            is_complete: false,
            summary: None,
            notes: Notes::default(),
            chunks_read: 0,
            last_sequence: 0,
            next_sequence: 0,
            last_time: 0,
            damage: None,
            damage_item: None,
            unknown: 0,
            wants_origins,
            origins: Vec::new(),
            is_done: false,
        };
        let mut magic = [0; MAGIC.len()];
        if length < magic.len() as u64 {
            return Err(reader.broken("it is too short for a recording: it has no MCAP magic"));
        }
        reader.read_exact(&mut magic)?;
        if magic != *MAGIC {
            return Err(Broken { offset: 0, what: "it is not an MCAP file".to_owned() });
        }
        // A damaged index is as good as none: the data do not depend on it.
        reader.summary = reader.read_summary().unwrap_or_default();
        reader.is_complete = reader.summary.is_some();
        if reader.summary.is_none() {
            reader.channels.clear();
        }
        reader.seek(MAGIC.len() as u64)?;
        reader.whole_until = reader.position;
        // The header and the metadata at the front.
        reader.read_notes()?;
        Ok(reader)
    }

    fn broken(&self, what: impl Into<String>) -> Broken {
        Broken { offset: self.position, what: what.into() }
    }

    fn read_exact(&mut self, into: &mut [u8]) -> Result<(), Broken> {
        self.input
            .read_exact(into)
            .map_err(|error| self.broken(format!("it cannot be read: {error}")))?;
        self.position = self.position.saturating_add(into.len() as u64);
        Ok(())
    }

    fn seek(&mut self, position: u64) -> Result<(), Broken> {
        // Relative, which keeps what is buffered.
        match i64::try_from(i128::from(position).saturating_sub(i128::from(self.position))) {
            Ok(distance) => self.input.seek_relative(distance),
            Err(_) => self.input.seek(SeekFrom::Start(position)).map(drop),
        }
        .map_err(|error| self.broken(format!("it cannot be read: {error}")))?;
        self.position = position;
        Ok(())
    }

    fn skip(&mut self, bytes: u64) -> Result<(), Broken> {
        let Ok(bytes) = i64::try_from(bytes) else {
            return Err(self.broken("a length is too large"));
        };
        self.input
            .seek_relative(bytes)
            .map_err(|error| self.broken(format!("it cannot be read: {error}")))?;
        self.position = self.position.saturating_add(bytes.unsigned_abs());
        Ok(())
    }

    fn left(&self) -> u64 {
        self.length.saturating_sub(self.position)
    }

    /// Reads the header of the next record. Returns `None` at the end, and if the record is cut off.
    fn record(&mut self) -> Result<Option<(u8, u64)>, Broken> {
        if self.left() < RECORD_HEADER_BYTES as u64 {
            return Ok(None);
        }
        let mut header = [0; RECORD_HEADER_BYTES];
        self.read_exact(&mut header)?;
        let [code, length @ ..] = header;
        let length = u64::from_le_bytes(length);
        Ok((length <= self.left()).then_some((code, length)))
    }

    /// Reads the body of a record. Requires that `length` is what [`Self::record`] has returned.
    fn body(&mut self, length: u64, most: u64) -> Result<Vec<u8>, Broken> {
        if length > most {
            return Err(self.broken(format!("a record has {length} bytes, more than {most}")));
        }
        let mut body = vec![0; usize::try_from(length).unwrap_or_default()];
        self.read_exact(&mut body)?;
        Ok(body)
    }

    /// Reads the index, with the channels. Returns `None` if the file has none.
    fn read_summary(&mut self) -> Result<Option<Summary>, Broken> {
        let Some(footer) = self.length.checked_sub(FOOTER_BYTES as u64) else { return Ok(None) };
        self.seek(footer)?;
        let mut bytes = [0; FOOTER_BYTES];
        self.read_exact(&mut bytes)?;
        if !bytes.ends_with(MAGIC) {
            return Ok(None);
        }
        let Some((op::FOOTER, body)) = Bytes(&bytes).record() else { return Ok(None) };
        let Some((start, checksum)) = wire::footer(body) else { return Ok(None) };
        let mut summary = Summary::default();
        if start == 0 {
            // Complete, without an index.
            return Ok(Some(summary));
        }
        if start < MAGIC.len() as u64 || start > footer {
            return Ok(None);
        }
        let covered = footer.saturating_add(FOOTER_COVERED_BYTES);
        if checksum != 0 && self.checksum(start, covered)? != checksum {
            return Ok(None);
        }
        self.seek(start)?;
        let mut described = 0;
        while self.position < footer {
            let Some((code, length)) = self.record()? else { return Ok(None) };
            match code {
                op::CHANNEL | op::SCHEMA => {
                    let body = self.body(length, MOST_METADATA_BYTES)?;
                    if code == op::CHANNEL {
                        self.channel(&body)?;
                    }
                    described = body.len().saturating_add(described);
                    if described <= MOST_NAME_BYTES {
                        summary.descriptions.push((code, body));
                    }
                }
                op::CHUNK_INDEX => {
                    let body = self.body(length, MOST_METADATA_BYTES)?;
                    let Some(index) = ChunkIndex::parse(&body) else { return Ok(None) };
                    let end = index.offset.checked_add(index.length);
                    if end.is_none_or(|end| end > start) {
                        return Ok(None);
                    }
                    summary.chunks.push(index);
                }
                op::STATISTICS => {
                    let body = self.body(length, MOST_METADATA_BYTES)?;
                    summary.statistics = Statistics::parse(&body);
                    summary.used = wire::used_channels(&body).unwrap_or_default();
                }
                _ => self.skip(length)?,
            }
        }
        summary.chunks.sort_unstable_by_key(|chunk| chunk.offset);
        Ok(Some(summary))
    }

    /// Returns the checksum of a part of the file.
    fn checksum(&mut self, start: u64, end: u64) -> Result<u32, Broken> {
        self.seek(start)?;
        let mut hasher = crc32fast::Hasher::new();
        let mut bytes = [0; 8192];
        while self.position < end {
            let left = usize::try_from(end.saturating_sub(self.position)).unwrap_or(usize::MAX);
            let part = &mut bytes[..left.min(8192)];
            self.read_exact(part)?;
            hasher.update(part);
        }
        Ok(hasher.finalize())
    }

    /// Reads the records at the front that are neither messages nor chunks.
    fn read_notes(&mut self) -> Result<(), Broken> {
        loop {
            let start = self.position;
            let next = self.next_chunk(start).map_or(self.length, |chunk| chunk.offset);
            match self.record()? {
                // One that reaches into a chunk has a wrong length, which `load` reports.
                Some((op::HEADER | op::METADATA, length))
                    if self.position.saturating_add(length) > next =>
                {
                    self.seek(start)?;
                    break;
                }
                Some((op::HEADER, length)) => self.skip(length)?,
                Some((op::METADATA, length)) => {
                    let body = self.body(length, MOST_METADATA_BYTES)?;
                    self.take_notes(&body);
                }
                _ => {
                    self.seek(start)?;
                    break;
                }
            }
            self.whole_until = self.position;
        }
        self.last_sequence = self.sequence_base();
        self.next_sequence = self.last_sequence;
        Ok(())
    }

    /// Returns a sequence that is not after the first.
    pub(crate) fn sequence_base(&self) -> u64 {
        let base = self.notes.0.get(format::SEQUENCE_BASE).and_then(|base| base.parse().ok());
        base.unwrap_or(0)
    }

    fn take_notes(&mut self, body: &[u8]) {
        if let Some((name, entries)) = wire::metadata(body)
            && name == format::METADATA
            && self.notes.0.len() < 1000
        {
            self.notes.0.extend(entries);
        }
    }

    fn channel(&mut self, body: &[u8]) -> Result<(), Broken> {
        let record =
            ChannelRecord::parse(body).ok_or_else(|| self.broken("a channel cannot be parsed"))?;
        let index = usize::from(record.id);
        if self.channels.len() <= index {
            self.channels.resize(index + 1, None);
        }
        let channel = Channel::from(record);
        match &self.channels[index] {
            Some(known) if **known == channel => Ok(()),
            Some(known) => {
                let what = format!("channel {index} is {:?} and {:?}", known.topic, channel.topic);
                Err(self.broken(what))
            }
            None => {
                self.name_bytes = self
                    .name_bytes
                    .saturating_add(channel.topic.len())
                    .saturating_add(channel.encoding.len());
                if self.name_bytes > MOST_NAME_BYTES {
                    return Err(self.broken("the names of its channels have more than 64 MiB"));
                }
                self.channels[index] = Some(Arc::new(channel));
                Ok(())
            }
        }
    }

    /// Returns the channel with this id.
    pub fn channel_of(&self, id: u16) -> Option<&Arc<Channel>> {
        self.channels.get(usize::from(id))?.as_ref()
    }

    /// Returns whether the file may have a topic that is retained, or the loss of a value. A file without an index has described
    /// only some of its channels.
    pub fn may_have_values(&self) -> bool {
        let is_retained = |channel: &Arc<Channel>| matches!(channel.kind, ChannelKind::Topic { retention, .. } if retention != Retention::None);
        self.summary.as_ref().is_none_or(|summary| {
            let has_losses =
                || self.lost_channel().is_some_and(|lost| summary.used.contains(&lost));
            summary.descriptions.is_empty() || has_losses()
        }) || self.channels.iter().flatten().any(is_retained)
    }

    /// Returns the channel with the losses, if the file has one.
    pub(crate) fn lost_channel(&self) -> Option<u16> {
        let is_lost = |channel: &Option<Arc<Channel>>| {
            channel.as_ref().is_some_and(|it| it.kind == ChannelKind::Lost)
        };
        u16::try_from(self.channels.iter().position(is_lost)?).ok()
    }

    /// Returns the payload of an item of the current chunk.
    pub fn payload(&self, item: &Item) -> &[u8] {
        self.chunk.slice(item.payload)
    }

    /// Continues with the first chunk that has messages at or after a time. Without an index, it starts at the front.
    pub fn seek_time(&mut self, log_time: u64) -> Result<(), Broken> {
        let Some(summary) = &self.summary else { return Ok(()) };
        let found = summary.chunks.iter().find(|chunk| chunk.end_time >= log_time);
        let offset = match (found, summary.chunks.last()) {
            (Some(chunk), _) => chunk.offset,
            (None, Some(last)) => last.offset,
            (None, None) => return Ok(()),
        };
        self.chunk.clear();
        self.is_done = false;
        self.seek(offset)
    }

    /// Starts again at the front.
    pub fn rewind(&mut self) -> Result<(), Broken> {
        self.chunk.clear();
        self.origins.clear();
        self.damage_item = None;
        self.last_time = 0;
        self.is_done = false;
        self.seek(MAGIC.len() as u64)?;
        self.read_notes()
    }

    /// Returns the log time of the first message: from the index, or of the first item.
    pub fn start_time(&self) -> Option<u64> {
        let statistics = self.summary.as_ref()?.statistics?;
        (statistics.messages > 0).then_some(statistics.start_time)
    }

    /// Reads the next chunk. Returns `false` at the end of the data. A file that was cut off ends with its last
    /// whole record. If a chunk is damaged and the file says where the next one is, the item of the damage takes its place.
    pub fn load(&mut self) -> Result<bool, Broken> {
        self.chunk.clear();
        self.origins.clear();
        self.damage_item = None;
        self.unknown = 0;
        while !self.is_done {
            let start = self.position;
            match self.load_record(start) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(broken) => {
                    self.chunk.clear();
                    self.origins.clear();
                    self.pass_damage(start, broken)?;
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Reads the next record. Returns whether it was a chunk, or a part of a file without chunks.
    fn load_record(&mut self, start: u64) -> Result<bool, Broken> {
        let next = self.next_chunk(start);
        let record = match (self.record()?, next) {
            // The index has a checksum, and a chunk another one. The front of a chunk has none.
            (_, Some(chunk)) if chunk.offset == start => {
                Some((op::CHUNK, chunk.length.saturating_sub(RECORD_HEADER_BYTES as u64)))
            }
            (record, _) => record,
        };
        let is_wrong = match (record, next.filter(|chunk| chunk.offset > start)) {
            (Some((code, length)), Some(next)) => {
                matches!(code, op::DATA_END | op::FOOTER)
                    || self.position.saturating_add(length) > next.offset
            }
            (None, Some(_)) => true,
            (_, None) => false,
        };
        if is_wrong {
            let what = "there is no record where the file has one".to_owned();
            return Err(Broken { offset: start, what });
        }
        let Some((code, length)) = record else {
            self.is_done = true;
            return Ok(false);
        };
        match code {
            op::CHUNK => {
                self.chunk_offset = start;
                self.load_chunk(start, length)?;
                self.whole_until = self.position;
                self.chunks_read = self.chunks_read.saturating_add(1);
                return Ok(true);
            }
            op::CHANNEL | op::MESSAGE | op::SCHEMA => {
                self.chunk_offset = start;
                self.seek(start)?;
                self.load_unchunked()?;
                return Ok(true);
            }
            op::METADATA => {
                let body = self.body(length, MOST_METADATA_BYTES)?;
                self.take_notes(&body);
            }
            op::DATA_END | op::FOOTER => {
                self.is_done = true;
                return Ok(false);
            }
            _ => self.skip(length)?,
        }
        self.whole_until = self.position;
        Ok(false)
    }

    /// Returns the first chunk at or after an offset, if the index has one.
    fn next_chunk(&self, offset: u64) -> Option<ChunkIndex> {
        let chunks = &self.summary.as_ref()?.chunks;
        let after = chunks.partition_point(|chunk| chunk.offset < offset);
        chunks.get(after).copied()
    }

    /// Continues after a damaged part that starts here. Returns the error if the file does not say where it ends.
    fn pass_damage(&mut self, start: u64, broken: Broken) -> Result<(), Broken> {
        let indexed = self.next_chunk(start).filter(|chunk| chunk.offset == start);
        let next = self.next_chunk(start.saturating_add(1)).map_or(self.length, |next| next.offset);
        // What was read of it has moved the input.
        let moved = self.input.seek(SeekFrom::Start(start));
        moved.map_err(|error| self.broken(format!("it cannot be read: {error}")))?;
        self.position = start;
        let framed = match self.record()? {
            Some((op::CHUNK, length)) => Some(self.position.saturating_add(length)),
            _ => None,
        };
        let end = indexed.map(|chunk| start.saturating_add(chunk.length)).or(framed);
        let messages = match end.filter(|end| *end > start && *end <= next) {
            Some(end) => {
                self.seek(end)?;
                let counted = self.count_indexed()?;
                // A chunk without messages has no index, in a file that has some.
                let is_empty = indexed.is_some_and(|chunk| chunk.index_length == 0)
                    && self.summary.as_ref().is_some_and(|summary| {
                        summary.chunks.iter().any(|chunk| chunk.index_length > 0)
                    });
                counted.or(is_empty.then_some(0))
            }
            None if next < self.length => {
                self.seek(next)?;
                // The index has all chunks.
                if indexed.is_some() { None } else { Some(0) }
            }
            None => return Err(broken),
        };
        self.whole_until = self.position;
        // A chunk without messages has no time.
        let indexed = indexed.filter(|chunk| chunk.start_time > 0);
        let time = indexed.map(|chunk| chunk.start_time);
        self.found_damage(broken, messages, time, indexed.map(|chunk| chunk.end_time));
        Ok(())
    }

    /// Counts the messages of the chunk before by the index after it. Returns `None` if there is no index.
    fn count_indexed(&mut self) -> Result<Option<u64>, Broken> {
        let mut messages = None;
        loop {
            let start = self.position;
            let Some((op::MESSAGE_INDEX, length)) = self.record()? else {
                self.seek(start)?;
                return Ok(messages);
            };
            let limit = self.next_chunk(start).map_or(self.length, |chunk| chunk.offset);
            if self.position.saturating_add(length) > limit {
                self.seek(start)?;
                return Ok(messages);
            }
            let body = self.body(length, MOST_CHUNK_BYTES)?;
            if let Some((channel, count)) = wire::message_index(&body) {
                let count = if self.may_be_topic(channel) { count } else { 0 };
                messages = Some(count.saturating_add(messages.unwrap_or(0)));
            }
        }
    }

    /// Makes a damage the next item. Its place is after what was read before.
    fn found_damage(
        &mut self,
        broken: Broken,
        messages: Option<u64>,
        time: Option<u64>,
        end_time: Option<u64>,
    ) {
        let known = (self.last_time > 0).then_some(self.last_time);
        let time = time.max(known).or_else(|| self.start_time());
        let (sequence, log_time) = (self.next_sequence, time.unwrap_or(0));
        self.damage = Some(Damage { broken, messages, sequence, time, end_time });
        self.damage_item = Some(Item {
            channel: 0,
            kind: ItemKind::Damage,
            sequence,
            log_time,
            publish_time: log_time,
            origin: None,
            payload: (0, 0),
        });
    }

    fn load_chunk(&mut self, start: u64, length: u64) -> Result<(), Broken> {
        let at = |what| Broken { offset: start, what };
        let front = usize::try_from(length).unwrap_or(usize::MAX).min(ChunkHeader::MOST_BYTES);
        let mut bytes = vec![0; front];
        let body_start = self.position;
        self.read_exact(&mut bytes)?;
        let Some((header, header_length)) = ChunkHeader::parse(&bytes) else {
            return Err(at("the header of a chunk cannot be parsed".to_owned()));
        };
        let left = length.saturating_sub(header_length as u64);
        if header.compressed_size > left || header.compressed_size > MOST_CHUNK_BYTES {
            return Err(at("the data of a chunk are longer than the chunk".to_owned()));
        }
        self.seek(body_start.saturating_add(header_length as u64))?;
        self.chunk.fill(&header, &mut self.input).map_err(at)?;
        self.position = self
            .input
            .stream_position()
            .map_err(|error| at(format!("it cannot be read: {error}")))?;
        self.seek(body_start.saturating_add(length))?;
        if self.wants_origins {
            self.find_origins().map_err(at)?;
        }
        Ok(())
    }

    /// Collects the origins of the chunk, which may come after their messages.
    fn find_origins(&mut self) -> Result<(), String> {
        while let Some(record) = self.chunk.next()? {
            match record {
                ChunkRecord::Other(op::CHANNEL, body) => {
                    let body = self.chunk.slice(body).to_vec();
                    self.channel(&body).map_err(|broken| broken.what)?;
                }
                ChunkRecord::Message { header, payload } => {
                    let channel = self.channel_of(header.channel);
                    if channel.is_some_and(|channel| channel.kind == ChannelKind::Origin) {
                        self.origins.extend(OriginRun::decode(self.chunk.slice(payload)));
                    }
                }
                ChunkRecord::Other(..) => {}
            }
        }
        self.origins.sort_unstable_by_key(|run| run.sequence);
        self.chunk.rewind();
        Ok(())
    }

    /// Collects records that are not in a chunk.
    fn load_unchunked(&mut self) -> Result<(), Broken> {
        while self.chunk.bytes.len() < UNCHUNKED_BYTES {
            let start = self.position;
            let next = self.next_chunk(start).map_or(u64::MAX, |chunk| chunk.offset);
            let Some((code, length)) = self.record()? else {
                self.is_done = true;
                break;
            };
            let length = match code {
                _ if self.position.saturating_add(length) > next => {
                    self.seek(start)?;
                    break;
                }
                op::CHANNEL | op::MESSAGE | op::SCHEMA if length <= MOST_CHUNK_BYTES => length,
                op::CHANNEL | op::MESSAGE | op::SCHEMA => {
                    return Err(Broken {
                        offset: start,
                        what: "a record has more than 1 GiB".to_owned(),
                    });
                }
                _ => {
                    self.seek(start)?;
                    break;
                }
            };
            self.chunk.bytes.push(code);
            self.chunk.bytes.extend_from_slice(&length.to_le_bytes());
            let from = self.chunk.bytes.len();
            self.chunk
                .bytes
                .resize(from.saturating_add(usize::try_from(length).unwrap_or_default()), 0);
            let (input, bytes) = (&mut self.input, &mut self.chunk.bytes);
            input.read_exact(&mut bytes[from..]).map_err(|error: io::Error| Broken {
                offset: start,
                what: format!("it cannot be read: {error}"),
            })?;
            self.position = self.position.saturating_add(length);
            self.whole_until = self.position;
        }
        if self.wants_origins {
            let offset = self.chunk_offset;
            self.find_origins().map_err(|what| Broken { offset, what })?;
        }
        Ok(())
    }

    /// Returns the next message, loss or note of the current chunk, or `None` at its end: then call [`Self::load`].
    #[inline]
    pub fn next_item(&mut self) -> Result<Option<Item>, Broken> {
        loop {
            let record = match self.chunk.next() {
                Ok(Some(record)) => record,
                Ok(None) => return Ok(self.end_of_chunk(None)),
                Err(what) => return Ok(self.end_of_chunk(Some(what))),
            };
            match record {
                ChunkRecord::Message { header, payload } => {
                    if let Some(item) = self.item(header, payload) {
                        return Ok(Some(item));
                    }
                }
                ChunkRecord::Other(op::CHANNEL, body) => {
                    let body = self.chunk.slice(body).to_vec();
                    self.channel(&body)?;
                }
                ChunkRecord::Other(..) => {}
            }
        }
    }

    /// Returns what remains to be said of a chunk at its end, or where it cannot be read further.
    #[cold]
    fn end_of_chunk(&mut self, what: Option<String>) -> Option<Item> {
        let offset = self.chunk_offset;
        let unknown = std::mem::take(&mut self.unknown);
        if let Some(what) = what {
            self.chunk.clear();
            self.found_damage(Broken { offset, what }, None, None, None);
        } else if unknown > 0 {
            let what = "their channels are not described".to_owned();
            self.found_damage(Broken { offset, what }, Some(unknown), None, None);
        }
        self.damage_item.take()
    }

    /// Whether a channel may be one of a topic, if it is not described: the recorder numbers its own channels first.
    fn may_be_topic(&self, channel: u16) -> bool {
        let is_own = format::OWN_CHANNELS.contains(&channel)
            && self.notes.0.contains_key(format::SEQUENCE_BASE);
        self.channel_of(channel)
            .map_or(!is_own, |channel| kind_of(channel.kind) == Some(ItemKind::Message))
    }

    /// Takes note of a message of the file. Returns what it is and its sequence, or `None` for origins, and on a channel
    /// that is not described.
    #[inline]
    fn pass(&mut self, header: &MessageHeader) -> Option<(ItemKind, u64)> {
        let Some(channel) = self.channel_of(header.channel) else {
            let count = u64::from(self.may_be_topic(header.channel));
            self.unknown = self.unknown.saturating_add(count);
            return None;
        };
        let kind = kind_of(channel.kind)?;
        self.last_time = header.log_time;
        // The file has the low 32 bits. Sequences grow.
        let low = u32::try_from(self.last_sequence & u64::from(u32::MAX)).unwrap_or(0);
        let ahead = header.sequence.wrapping_sub(low);
        if matches!(kind, ItemKind::Value | ItemKind::Cleared) && ahead.cast_signed() < 0 {
            // But for values, and for those that were cleared during a loss.
            let back = ahead.wrapping_neg();
            return Some((kind, self.last_sequence.saturating_sub(back.into())));
        }
        let sequence = self.last_sequence.wrapping_add(ahead.into());
        self.last_sequence = sequence;
        let has_place = matches!(kind, ItemKind::Message | ItemKind::Value | ItemKind::Cleared);
        self.next_sequence = sequence.saturating_add(has_place.into());
        Some((kind, sequence))
    }

    #[inline]
    fn item(&mut self, header: MessageHeader, payload: (usize, usize)) -> Option<Item> {
        let (kind, sequence) = self.pass(&header)?;
        let origin = if self.origins.is_empty() { None } else { self.origin_of(sequence) };
        Some(Item {
            channel: header.channel,
            kind,
            sequence,
            log_time: header.log_time,
            publish_time: header.publish_time,
            origin,
            payload,
        })
    }

    fn origin_of(&self, sequence: u64) -> Option<(Origin, Option<u64>)> {
        let after = self.origins.partition_point(|run| run.sequence <= sequence);
        self.origins.get(after.checked_sub(1)?)?.of_message(sequence)
    }

    /// Returns the next record of the current chunk as it is, for a message with what [`Self::pass`] says. At the end of the
    /// chunk, or where it cannot be read further, returns `None`: then ask [`Self::take_damage`].
    pub(crate) fn next_raw(&mut self) -> Option<(ChunkRecord, Option<(ItemKind, u64)>)> {
        let what = match self.chunk.next() {
            Ok(Some(record)) => {
                let passed = match &record {
                    ChunkRecord::Message { header, .. } => Ok(self.pass(header)),
                    ChunkRecord::Other(op::CHANNEL, body) => {
                        let body = self.chunk.slice(*body).to_vec();
                        self.channel(&body).map(|()| None)
                    }
                    ChunkRecord::Other(..) => Ok(None),
                };
                match passed {
                    Ok(passed) => return Some((record, passed)),
                    Err(broken) => Some(broken.what),
                }
            }
            Ok(None) => None,
            Err(what) => Some(what),
        };
        self.end_of_chunk(what);
        None
    }

    /// Returns how many bytes of memory the current chunk has.
    pub fn chunk_capacity(&self) -> usize {
        self.chunk.bytes.capacity()
    }

    /// Returns bytes of the current chunk.
    pub fn bytes(&self, range: (usize, usize)) -> &[u8] {
        self.chunk.slice(range)
    }

    /// Returns the damage of the item of that kind that was returned last.
    pub fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }

    /// Returns the damage that was found since this was last asked.
    pub(crate) fn take_damage(&mut self) -> Option<Damage> {
        self.damage_item = None;
        self.damage.take()
    }

    /// Parses the loss of an item, or makes one of a damage.
    pub fn loss(&self, item: &Item) -> Result<RecordedLoss, Broken> {
        if item.kind == ItemKind::Damage {
            let messages = self.damage.as_ref().and_then(|damage| damage.messages);
            return Ok(RecordedLoss::damage(item.sequence, messages));
        }
        serde_json::from_slice(self.payload(item)).map_err(|error| Broken {
            offset: self.chunk_offset,
            what: format!("a loss cannot be parsed: {error}"),
        })
    }

    /// Parses the note of an item. Returns `None` for one that this version does not know.
    pub fn note(&self, item: &Item) -> Option<RecordedNote> {
        serde_json::from_slice(self.payload(item)).ok()
    }
}

/// Returns what the messages of a channel are, or `None` for origins: their sequence is that of an earlier message.
#[inline]
fn kind_of(channel: ChannelKind) -> Option<ItemKind> {
    match channel {
        ChannelKind::Topic { retention: Retention::None | Retention::Message, .. } => {
            Some(ItemKind::Message)
        }
        ChannelKind::Topic { retention: Retention::Value, .. } => Some(ItemKind::Value),
        ChannelKind::Topic { retention: Retention::Cleared, .. } => Some(ItemKind::Cleared),
        ChannelKind::Lost => Some(ItemKind::Loss),
        ChannelKind::Note => Some(ItemKind::Note),
        ChannelKind::Origin => None,
    }
}

/// Reads a recording to its end, or to what is wrong with it. Returns how many messages, losses and notes it has, and the
/// most bytes of memory that one of its chunks took. The fuzz harness and the tests of this crate call it.
#[doc(hidden)]
#[must_use]
pub fn walk(bytes: &[u8], with_origins: bool) -> (u64, usize) {
    let (mut items, mut most) = (0, 0);
    let input = io::Cursor::new(bytes);
    let Ok(mut reader) = Reader::open(input, bytes.len() as u64, with_origins) else {
        return (items, most);
    };
    for start in [None, Some(1_000)] {
        if start.is_some_and(|time| reader.rewind().and_then(|()| reader.seek_time(time)).is_err())
        {
            break;
        }
        loop {
            let loaded = reader.load();
            most = most.max(reader.chunk_capacity());
            if !matches!(loaded, Ok(true)) {
                break;
            }
            while let Ok(Some(item)) = reader.next_item() {
                items = u64::saturating_add(items, 1);
                assert!(reader.payload(&item).len() <= reader.chunk_capacity());
                let has_channel = reader.channel_of(item.channel).is_some();
                assert!(has_channel || item.kind == ItemKind::Damage, "a message has a channel");
                match item.kind {
                    ItemKind::Message | ItemKind::Value | ItemKind::Cleared => {}
                    ItemKind::Damage => assert!(reader.damage().is_some()),
                    ItemKind::Loss => drop(reader.loss(&item)),
                    ItemKind::Note => drop(reader.note(&item)),
                }
            }
        }
        assert!(reader.whole_until <= bytes.len() as u64);
    }
    (items, most)
}
