//! One MCAP file: chunks that are whole in memory before they are written, each in a single pass from front to back.

use crate::format::{
    self, ENDED, LOST_SCHEMA, LOST_TOPIC, METADATA, NOTE_SCHEMA, NOTE_TOPIC, ORIGIN_TOPIC,
    OriginRun, RecordedLoss, RecordedNote, Retention,
};
use crate::new_file::{NewFile, cannot_create};
use clap::ValueEnum;
use mcap::records::{MessageHeader, Metadata};
use mcap::write::NoSeek;
use mcap::{Compression, McapError, WriteOptions, Writer};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use toroni::Pattern;
use toroni_shell::failure::Failure;

/// A chunk is closed at this size.
const CHUNK_BYTES: usize = 1 << 20;
/// A chunk is closed this time after its first message. With the time that the intake keeps a buffer, and that of the
/// write, a message is in the file within a second.
pub(crate) const CHUNK_AFTER: Duration = Duration::from_millis(700);
/// Space that is reserved on the disk at a time: as much as the file has, within these limits.
const RESERVE_BYTES: RangeInclusive<u64> = (256 << 10)..=(16 << 20);

/// A topic of the recording, as the writer learns it.
#[derive(Clone, Debug)]
pub struct Topic {
    /// The topic.
    pub name: String,
    /// Whether its messages go to the topics below it, too.
    pub to_descendants: bool,
}

/// A message that is written.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The number of its topic.
    pub topic: u32,
    /// What it has to do with the value of its topic.
    pub retention: Retention,
    /// Its sequence on the bus.
    pub sequence: u64,
    /// When it was recorded, and when it was published.
    pub times: (u64, u64),
    /// Its bytes.
    pub payload: &'a [u8],
    /// Where it was published first.
    pub origin: Option<OriginRun>,
}

/// How messages are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Compress {
    /// Fastest, largest
    None,
    /// Fast
    Lz4,
    /// Smallest (level 1)
    Zstd,
}

/// When a recording is written to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// At these times.
    Every(Duration),
    /// After each chunk.
    Chunk,
    /// Only when the kernel does.
    Never,
}

/// Why a file cannot be written.
#[derive(Debug)]
pub enum Unwritable {
    /// There is no space left. The file can still be finished.
    Full {
        /// Bytes that the file needs.
        more: u64,
        /// Why.
        error: io::Error,
    },
    /// Any other reason.
    Other(String),
}

impl From<McapError> for Unwritable {
    fn from(error: McapError) -> Self {
        match error {
            McapError::Io(error) => error.into(),
            other => Self::Other(other.to_string()),
        }
    }
}

impl From<io::Error> for Unwritable {
    fn from(error: io::Error) -> Self {
        Self::Other(match advice(&error) {
            Some(advice) => format!("{error}: {advice}"),
            None => error.to_string(),
        })
    }
}

/// The end of the file. It counts what it writes.
struct Sink {
    file: Arc<File>,
    written: Arc<AtomicU64>,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = (&*self.file).write(bytes)?;
        self.written.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How topics are described in files.
pub struct Description {
    /// Encodings of the topics that match; the first counts.
    pub encodings: Vec<(Pattern, String)>,
    /// Schemas of the topics that match; the first counts.
    pub schemas: Vec<(Pattern, Schema)>,
    /// How messages are compressed.
    pub compress: Compress,
    /// When the file is written to the disk.
    pub sync: Sync,
    /// The metadata at the front.
    pub notes: BTreeMap<String, String>,
}

/// The schema of a topic.
#[derive(Clone)]
pub struct Schema {
    name: String,
    encoding: &'static str,
    data: Vec<u8>,
}

impl Schema {
    /// Reads the file of a `--schema` option.
    pub fn read(option: &str) -> Result<Self, Failure> {
        let (path, name) = match option.rsplit_once(':') {
            Some((path, name)) if !Path::new(option).exists() => (path, Some(name.to_owned())),
            _ => (option, None),
        };
        let data = std::fs::read(path)
            .map_err(|error| Failure::Failed(format!("cannot read the schema {path}: {error}")))?;
        let is_json = Path::new(path).extension().is_some_and(|extension| extension == "json");
        match name {
            None if !is_json => Err(Failure::Usage(format!(
                "--schema {option}: a JSON Schema has a name that ends in .json; for protobuf, add the type, as in \
                 {option}:package.Type"
            ))),
            None => {
                let name = Path::new(path).file_stem().unwrap_or_default().to_string_lossy();
                Ok(Self { name: name.into_owned(), encoding: "jsonschema", data })
            }
            Some(name) => Ok(Self { name, encoding: "protobuf", data }),
        }
    }
}

/// What a file has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Messages of the stream.
    pub messages: u64,
    /// Values of topics, which were published before their place in the file.
    pub values: u64,
    /// Reports of losses.
    pub losses: u64,
    /// Messages that these losses are about.
    pub lost_messages: u64,
    /// Bytes of payload.
    pub bytes: u64,
}

impl Totals {
    /// Returns whether there is neither a message nor a loss.
    pub fn is_empty(&self) -> bool {
        self.messages == 0 && self.losses == 0
    }
}

/// A file that is being written.
pub struct Part {
    /// The file.
    pub path: PathBuf,
    writer: Writer<NoSeek<Sink>>,
    file: NewFile,
    is_finished: bool,
    written: Arc<AtomicU64>,
    /// How far the disk has space for the file. `None` if the file system cannot reserve any.
    reserved: Option<u64>,
    /// How long this process may make a file (`ulimit -f`).
    limit: u64,
    /// What the summary will have at most.
    summary_bytes: u64,
    /// Bytes and records in the open chunk, uncompressed.
    chunk_bytes: usize,
    chunk_records: u64,
    chunk_channels: u64,
    chunk_began: Option<Instant>,
    /// The channels of each topic of the recorder, by what they have to do with its value; 0 for those that it does not have yet.
    channels: Vec<[u16; Retention::ALL.len()]>,
    channel_count: usize,
    lost_channel: u16,
    origin_channel: u16,
    note_channel: u16,
    run: Option<OriginRun>,
    sync: Sync,
    synced: Instant,
    is_dirty: bool,
    last_time: u64,
    /// When it was created.
    pub began: Instant,
    /// What it has so far.
    pub totals: Totals,
}

impl Part {
    /// Creates a file that did not exist. It gets its name with [`Self::name`], or when it is finished.
    pub fn create(path: &Path, description: &Description) -> Result<Self, Failure> {
        let file = NewFile::create(path)?;
        let of_file = |error| failure(path, &error);
        let written = Arc::new(AtomicU64::new(0));
        let sink = Sink { file: Arc::clone(file.file()), written: Arc::clone(&written) };
        let writer = WriteOptions::new()
            .profile("")
            .library(concat!("toroni ", env!("CARGO_PKG_VERSION")))
            .compression(match description.compress {
                Compress::None => None,
                Compress::Lz4 => Some(Compression::Lz4),
                Compress::Zstd => Some(Compression::Zstd),
            })
            // lz4 has no level 1 that differs from its default.
            .compression_level(if description.compress == Compress::Zstd { 1 } else { 0 })
            .compression_threads(0)
            // Chunks are closed here, because the origins of a chunk's messages belong in it.
            .chunk_size(None)
            .disable_seeking(true)
            // Each chunk has its own checksum.
            .calculate_data_section_crc(false)
            .create(NoSeek::new(sink))
            .map_err(|error| of_file(error.into()))?;
        let now = Instant::now();
        let mut part = Self {
            path: path.to_owned(),
            writer,
            file,
            is_finished: false,
            written,
            reserved: Some(0),
            limit: getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX),
            summary_bytes: 4096,
            chunk_bytes: 0,
            chunk_records: 0,
            chunk_channels: 0,
            chunk_began: None,
            channels: Vec::new(),
            channel_count: 0,
            lost_channel: 0,
            origin_channel: 0,
            note_channel: 0,
            run: None,
            sync: description.sync,
            synced: now,
            is_dirty: true,
            last_time: 0,
            began: now,
            totals: Totals::default(),
        };
        part.room(0).map_err(of_file)?;
        let notes = Metadata { name: METADATA.to_owned(), metadata: description.notes.clone() };
        part.writer.write_metadata(&notes).map_err(|error| of_file(error.into()))?;
        part.lost_channel =
            part.own_channel(("toroni.Lost", LOST_SCHEMA), LOST_TOPIC, "lost").map_err(of_file)?;
        part.note_channel =
            part.own_channel(("toroni.Note", NOTE_SCHEMA), NOTE_TOPIC, "note").map_err(of_file)?;
        part.origin_channel = part
            .writer
            .add_channel(0, ORIGIN_TOPIC, "toroni.origin", &format::kind("origin"))
            .map_err(|error| of_file(error.into()))?;
        part.end_chunk().map_err(of_file)?;
        Ok(part)
    }

    /// Adds a channel whose messages are JSON of the recorder itself.
    fn own_channel(
        &mut self,
        (name, schema): (&str, &str),
        topic: &str,
        kind: &str,
    ) -> Result<u16, Unwritable> {
        let id = self.writer.add_schema(name, "jsonschema", schema.as_bytes())?;
        self.summary_bytes += schema.len() as u64 + 256;
        self.chunk_bytes += schema.len() + 256;
        Ok(self.writer.add_channel(id, topic, "json", &format::kind(kind))?)
    }

    /// Gives the file its name: it has a front, and the disk has space for its end.
    pub fn name(&mut self) -> Result<(), Failure> {
        self.file.name().map_err(|error| cannot_create(&self.path, &error))
    }

    /// Returns how many channels it has.
    pub fn channels(&self) -> usize {
        self.channel_count
    }

    /// Returns whether the file has no name any more: nothing can read it when it is closed.
    pub fn is_removed(&self) -> bool {
        self.file.file().metadata().is_ok_and(|file| file.nlink() == 0)
    }

    /// Returns the length of the file.
    pub fn length(&self) -> u64 {
        self.written.load(Ordering::Relaxed) + self.chunk_bytes as u64
    }

    /// Makes sure that the disk has space for the open chunk with `more` bytes, and for the end of the file.
    fn room(&mut self, more: usize) -> Result<(), Unwritable> {
        // Compression may add a little. Each message is in an index, too.
        let chunk = (self.chunk_bytes + more) as u64;
        let chunk = chunk + chunk / 64 + 16 * self.chunk_records + 4096;
        let needed = chunk + self.summary_bytes + 12 * self.chunk_channels;
        let wanted = self.written.load(Ordering::Relaxed) + needed;
        let full = |error: Errno| Unwritable::Full { more: needed, error: error.into() };
        if wanted > self.limit {
            return Err(full(Errno::FBIG));
        }
        let Some(reserved) = self.reserved.filter(|reserved| wanted > *reserved) else {
            return Ok(());
        };
        let ahead = wanted.clamp(*RESERVE_BYTES.start(), *RESERVE_BYTES.end());
        let reserve = |until| {
            let flags = FallocateFlags::KEEP_SIZE;
            fallocate(&**self.file.file(), flags, reserved, until - reserved).map(|()| until)
        };
        // The last space of a disk is used, too.
        let reserved = match reserve(wanted + ahead) {
            Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => reserve(wanted),
            reserved => reserved,
        };
        match reserved {
            Ok(until) => {
                self.reserved = Some(until);
                Ok(())
            }
            Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(full(error)),
            Err(Errno::INTR) => self.room(more),
            // The file system has no such call: it reports at a write that it is full.
            Err(_) => {
                self.reserved = None;
                Ok(())
            }
        }
    }

    fn channel(
        &mut self,
        (number, retention): (u32, Retention),
        topics: &[Topic],
        description: &Description,
    ) -> Result<u16, Unwritable> {
        let index = number as usize;
        let known = self.channels.get(index).map(|channels| channels[retention as usize]);
        if let Some(channel) = known.filter(|channel| *channel != 0) {
            return Ok(channel);
        }
        let topic = topics.get(index).expect("topics come before their messages");
        let first = |pairs: &[(Pattern, String)]| {
            pairs.iter().find(|(pattern, _)| pattern.matches(&topic.name)).map(|(_, v)| v.clone())
        };
        let encoding =
            first(&description.encodings).unwrap_or_else(|| "application/octet-stream".to_owned());
        let mut schema_id = 0;
        if let Some((_, schema)) =
            description.schemas.iter().find(|(pattern, _)| pattern.matches(&topic.name))
        {
            self.room(schema.data.len())?;
            schema_id = self.writer.add_schema(&schema.name, schema.encoding, &schema.data)?;
            self.summary_bytes += schema.data.len() as u64 + 256;
            self.chunk_bytes += schema.data.len() + 64;
        }
        let bytes = topic.name.len() + encoding.len() + 128;
        self.room(bytes)?;
        let metadata = format::of_topic(topic.to_descendants, retention);
        let channel = self.writer.add_channel(schema_id, &topic.name, &encoding, &metadata)?;
        self.chunk_bytes += bytes;
        self.summary_bytes += bytes as u64 + 32;
        if self.channels.len() <= index {
            self.channels.resize(index + 1, Default::default());
        }
        self.channels[index][retention as usize] = channel;
        self.channel_count += 1;
        Ok(channel)
    }

    fn write(
        &mut self,
        channel: u16,
        sequence: u64,
        (log_time, publish_time): (u64, u64),
        payload: &[u8],
    ) -> Result<(), Unwritable> {
        let sequence = u32::try_from(sequence & u64::from(u32::MAX)).unwrap_or_default();
        let header = MessageHeader { channel_id: channel, sequence, log_time, publish_time };
        self.writer.write_to_known_channel(&header, payload)?;
        self.chunk_bytes += payload.len() + 31;
        self.chunk_records += 1;
        self.last_time = log_time;
        Ok(())
    }

    /// Writes a message.
    pub fn message(
        &mut self,
        message: &Message<'_>,
        (topics, description): (&[Topic], &Description),
    ) -> Result<(), Unwritable> {
        let Message { topic, retention, sequence, times, payload, origin } = *message;
        self.begin_chunk();
        self.room(payload.len() + 256)?;
        let channel = self.channel((topic, retention), topics, description)?;
        self.write(channel, sequence, times, payload)?;
        self.chunk_channels = self.chunk_channels.max(u64::from(channel));
        match retention {
            Retention::None | Retention::Message => {
                self.totals.messages += 1;
                self.totals.bytes += payload.len() as u64;
            }
            Retention::Value => self.totals.values += 1,
            Retention::Cleared => {}
        }
        if let Some(next) = origin
            && !self.run.as_mut().is_some_and(|run| run.extend(&next))
        {
            self.end_run()?;
            self.run = Some(next);
        }
        self.end_full_chunk()
    }

    /// Writes a loss.
    pub fn loss(&mut self, loss: &RecordedLoss, times: (u64, u64)) -> Result<(), Unwritable> {
        self.json(self.lost_channel, loss, loss.from_sequence, times)?;
        self.totals.losses += 1;
        self.totals.lost_messages = self.totals.lost_messages.saturating_add(loss.messages);
        self.end_full_chunk()
    }

    /// Writes a note.
    pub fn note(
        &mut self,
        note: &RecordedNote,
        sequence: u64,
        log_time: u64,
    ) -> Result<(), Unwritable> {
        self.json(self.note_channel, note, sequence, (log_time, log_time))?;
        self.end_full_chunk()
    }

    fn json(
        &mut self,
        channel: u16,
        value: &impl serde::Serialize,
        sequence: u64,
        times: (u64, u64),
    ) -> Result<(), Unwritable> {
        self.begin_chunk();
        let text =
            serde_json::to_vec(value).map_err(|error| Unwritable::Other(error.to_string()))?;
        self.room(text.len() + 256)?;
        self.write(channel, sequence, times, &text)
    }

    fn begin_chunk(&mut self) {
        if self.chunk_began.is_none() {
            self.chunk_began = Some(Instant::now());
        }
    }

    /// Writes the origins of the messages before.
    fn end_run(&mut self) -> Result<(), Unwritable> {
        let Some(run) = self.run.take() else { return Ok(()) };
        let times = (self.last_time, self.last_time);
        self.write(self.origin_channel, run.sequence, times, &run.encode())
    }

    fn end_full_chunk(&mut self) -> Result<(), Unwritable> {
        if self.chunk_bytes >= CHUNK_BYTES { self.end_chunk() } else { Ok(()) }
    }

    /// Closes the open chunk: everything so far is in the file.
    pub fn end_chunk(&mut self) -> Result<(), Unwritable> {
        self.end_run()?;
        self.writer.flush()?;
        self.chunk_began = None;
        if self.chunk_bytes > 0 {
            self.is_dirty = true;
            self.summary_bytes += 128 + 10 * (self.chunk_channels + 2);
            if self.sync == Sync::Chunk {
                self.synchronise()?;
            }
        }
        (self.chunk_bytes, self.chunk_records, self.chunk_channels) = (0, 0, 0);
        Ok(())
    }

    fn synchronise(&mut self) -> Result<(), Unwritable> {
        self.file.file().sync_data()?;
        (self.is_dirty, self.synced) = (false, Instant::now());
        Ok(())
    }

    /// Does what is due at a time. Returns how long until something else is.
    pub fn tick(&mut self) -> Result<Duration, Unwritable> {
        let mut next = Duration::from_secs(1);
        if let Some(began) = self.chunk_began {
            let left = CHUNK_AFTER.saturating_sub(began.elapsed());
            if left.is_zero() {
                self.end_chunk()?;
            } else {
                next = next.min(left);
            }
        }
        if let Sync::Every(interval) = self.sync
            && self.is_dirty
        {
            let left = interval.saturating_sub(self.synced.elapsed());
            if left.is_zero() {
                self.synchronise()?;
            } else {
                next = next.min(left);
            }
        }
        Ok(next)
    }

    /// Writes the end of the file: totals, summary, index.
    pub fn finish(mut self, reason: &str) -> Result<Totals, Unwritable> {
        self.end_chunk()?;
        let Totals { messages, values, losses, lost_messages, bytes } = self.totals;
        let totals = Metadata {
            name: METADATA.to_owned(),
            metadata: BTreeMap::from([
                ("messages".to_owned(), messages.to_string()),
                ("values".to_owned(), values.to_string()),
                ("losses".to_owned(), losses.to_string()),
                ("lost_messages".to_owned(), lost_messages.to_string()),
                ("payload_bytes".to_owned(), bytes.to_string()),
                (ENDED.to_owned(), reason.to_owned()),
            ]),
        };
        self.writer.write_metadata(&totals)?;
        self.writer.finish()?;
        // Gives back what was reserved and not used.
        self.file.file().set_len(self.written.load(Ordering::Relaxed))?;
        if self.sync != Sync::Never {
            self.synchronise()?;
        }
        self.file.name()?;
        self.is_finished = true;
        Ok(self.totals)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Nothing is lost with it, and it would be in the way of the next try.
        if !self.is_finished && self.totals.is_empty() {
            self.file.discard();
        }
    }
}

/// Says what to do about an error that a file cannot grow.
fn advice(error: &io::Error) -> Option<String> {
    match error.kind() {
        io::ErrorKind::FileTooLarge => {
            let limit = getrlimit(Resource::Fsize).current?;
            let limit = toroni_shell::human::bytes(limit);
            Some(format!("the limit of this process is {limit} (see `ulimit -f`)"))
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Some("free some space, or record to another file system".to_owned())
        }
        _ => None,
    }
}

/// Describes why a file cannot be written.
pub fn failure(path: &Path, error: &Unwritable) -> Failure {
    let path = path.display();
    Failure::Failed(match error {
        Unwritable::Full { more, error } => format!(
            "cannot write {path}: {error} (it needs {} more){}",
            toroni_shell::human::bytes(*more),
            advice(error).map(|advice| format!(": {advice}")).unwrap_or_default()
        ),
        Unwritable::Other(error) => format!("cannot write {path}: {error}"),
    })
}
