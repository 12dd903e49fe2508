//! `toroni record --repair`: completes a file whose recorder was killed.

use crate::chunk::ChunkRecord;
use crate::file::{Unwritable, failure};
use crate::format::{ENDED, METADATA, RecordedLoss};
use crate::new_file::NewFile;
use crate::reader::{Broken, Damage, ItemKind, Reader};
use crate::wire::{ChannelRecord, SchemaRecord, op};
use mcap::records::{MessageHeader, Metadata};
use mcap::write::NoSeek;
use mcap::{Compression, WriteOptions, Writer};
use std::collections::HashSet;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toroni_shell::failure::Failure;
use toroni_shell::stop::Stop;
use toroni_shell::{human, note};

type Output = Writer<NoSeek<BufWriter<Arc<File>>>>;

/// Copies what is readable to a new file, with an index, and reports what was cut off.
pub fn run(path: &Path, stop: &Stop) -> Result<(), Failure> {
    let named =
        |error: std::io::Error| Failure::Failed(format!("cannot read {}: {error}", path.display()));
    let file = File::open(path).map_err(named)?;
    let length = file.metadata().map_err(named)?.len();
    let mut reader =
        Reader::open(file, length, false).map_err(|broken| of_broken(path, &broken))?;
    let is_complete = reader.is_complete;
    if is_complete {
        if is_whole(&mut reader, stop)? {
            note::remark(&format!("{} is complete: nothing to repair", path.display()));
            return Ok(());
        }
        reader.rewind().map_err(|broken| of_broken(path, &broken))?;
    }
    let target = target(path);
    let cannot = |error: Unwritable| failure(&target, &error);
    let mut output = NewFile::create(&target)?;
    let mut writer = WriteOptions::new()
        .library(concat!("toroni ", env!("CARGO_PKG_VERSION")))
        .compression(Some(Compression::Zstd))
        .compression_level(1)
        .compression_threads(0)
        .chunk_size(None)
        .disable_seeking(true)
        .calculate_data_section_crc(false)
        .create(NoSeek::new(BufWriter::new(Arc::clone(output.file()))))
        .map_err(|error| cannot(error.into()))?;
    let front = Metadata { name: METADATA.to_owned(), metadata: reader.notes.0.clone() };
    writer.write_metadata(&front).map_err(|error| cannot(error.into()))?;
    let mut copy = Copy {
        writer,
        channels: HashSet::new(),
        messages: 0,
        has_begun: false,
        early: Vec::new(),
        damages: Vec::new(),
        stop,
    };
    let ended = copy.all(&mut reader);
    let broken = match ended {
        Ok(()) => None,
        Err(Stopped::Broken(broken)) => Some(broken),
        Err(Stopped::Unwritable(error)) => return Err(cannot(error)),
        Err(Stopped::Interrupted) => {
            return Err(stop.interrupted("interrupted before the copy was whole"));
        }
    };
    let Copy { mut writer, messages, damages, .. } = copy;
    let end = Metadata {
        name: METADATA.to_owned(),
        metadata: [
            ("messages".to_owned(), messages.to_string()),
            (ENDED.to_owned(), "repaired".to_owned()),
        ]
        .into(),
    };
    writer.write_metadata(&end).map_err(|error| cannot(error.into()))?;
    writer.finish().map_err(|error| cannot(error.into()))?;
    let buffered = writer.into_inner().into_inner();
    let file = buffered.into_inner().map_err(|error| cannot(error.into_error().into()))?;
    file.sync_all().map_err(|error| cannot(error.into()))?;
    output.name().map_err(|error| cannot(error.into()))?;
    for damage in &damages {
        note::remark(&format!("{}: {damage}", path.display()));
    }
    let until = reader.whole_until;
    // A complete file has its old index after that.
    let cut = if is_complete && broken.is_none() {
        String::new()
    } else {
        let bytes = human::counted(length.saturating_sub(until), "byte");
        let why = broken.map(|broken| format!(", because {}", broken.what)).unwrap_or_default();
        format!("; cut off {bytes} after byte {until}{why}")
    };
    let messages = human::counted(messages, "message");
    note::remark(&format!("wrote {} with {messages}{cut}", target.display()));
    Ok(())
}

/// Reads all chunks of a file. Returns whether none is damaged.
fn is_whole(reader: &mut Reader<File>, stop: &Stop) -> Result<bool, Failure> {
    while let Ok(more) = reader.load() {
        if stop.is_set() {
            return Err(stop.interrupted("interrupted before the file was read"));
        }
        while reader.next_raw().is_some() {}
        if reader.take_damage().is_some() {
            return Ok(false);
        }
        if !more {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the name of the new file: `x.repaired.mcap` for `x.mcap`.
fn target(path: &Path) -> PathBuf {
    let stem = match path.extension() {
        Some(extension) if extension == "mcap" => path.with_extension(""),
        _ => path.to_owned(),
    };
    let mut name = stem.into_os_string();
    name.push(".repaired.mcap");
    PathBuf::from(name)
}

/// Describes what is wrong with a file.
pub fn of_broken(path: &Path, broken: &Broken) -> Failure {
    Failure::Failed(format!(
        "{} is damaged at byte {}: {}",
        path.display(),
        broken.offset,
        broken.what
    ))
}

/// The most damaged parts that are reported one by one.
const MOST_DAMAGES: usize = 1000;

enum Stopped {
    Broken(Broken),
    Unwritable(Unwritable),
    Interrupted,
}

impl From<Broken> for Stopped {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

struct Copy<'a> {
    writer: Output,
    channels: HashSet<u16>,
    messages: u64,
    /// Whether it has a message, a loss or a note.
    has_begun: bool,
    /// What could not be copied before the first message, whose place it needs.
    early: Vec<Damage>,
    /// What could not be copied.
    damages: Vec<Damage>,
    stop: &'a Stop,
}

impl Copy<'_> {
    fn all(&mut self, reader: &mut Reader<File>) -> Result<(), Stopped> {
        while reader.load()? {
            if self.stop.is_set() {
                return Err(Stopped::Interrupted);
            }
            let offset = reader.chunk_offset;
            let broken = |what: &str| Stopped::Broken(Broken { offset, what: what.to_owned() });
            while let Some((record, passed)) = reader.next_raw() {
                match record {
                    ChunkRecord::Message { header, payload } => {
                        if !self.describe(header.channel, reader)? {
                            // The reader counts those that it does not know either.
                            if passed.is_none() {
                                continue;
                            }
                            return Err(broken("the channel of a message is not described"));
                        }
                        // The sequence of a value is not that of its place.
                        if let Some((kind, sequence)) = passed
                            && kind != ItemKind::Value
                        {
                            self.begin(sequence, header.log_time, reader)?;
                        }
                        let header = MessageHeader {
                            channel_id: header.channel,
                            sequence: header.sequence,
                            log_time: header.log_time,
                            publish_time: header.publish_time,
                        };
                        self.writer
                            .write_to_known_channel(&header, reader.bytes(payload))
                            .map_err(|error| Stopped::Unwritable(error.into()))?;
                        let is_message = matches!(passed, Some((ItemKind::Message, _)));
                        self.messages = self.messages.saturating_add(u64::from(is_message));
                    }
                    ChunkRecord::Other(code, body) => {
                        let body = reader.bytes(body);
                        self.add(code, body).map_err(|what| broken(&what))?;
                    }
                }
            }
            if let Some(damage) = reader.take_damage() {
                self.left_out(damage, reader)?;
            }
            self.writer.flush().map_err(|error| Stopped::Unwritable(error.into()))?;
        }
        Ok(())
    }

    /// Writes the losses before the first message. They come before its sequence, and have its time if the file does not say
    /// when they were recorded.
    fn begin(&mut self, sequence: u64, time: u64, reader: &Reader<File>) -> Result<(), Stopped> {
        if self.has_begun {
            return Ok(());
        }
        self.has_begun = true;
        for damage in std::mem::take(&mut self.early) {
            let from = sequence.saturating_sub(damage.messages.unwrap_or(1));
            let from = from.max(reader.sequence_base());
            self.lose(&damage, (from, damage.time.unwrap_or(time)), reader)?;
        }
        Ok(())
    }

    /// Adds a schema or a channel. Ignores other records. Returns what is wrong with it.
    fn add(&mut self, code: u8, body: &[u8]) -> Result<(), String> {
        match code {
            op::SCHEMA => {
                let SchemaRecord { id, name, encoding, data } =
                    SchemaRecord::parse(body).ok_or("a schema cannot be parsed")?;
                let added = self.writer.add_schema_with_id(id, name, encoding, data);
                added.map(drop).map_err(|error| error.to_string())
            }
            op::CHANNEL => {
                let channel = ChannelRecord::parse(body).ok_or("a channel cannot be parsed")?;
                let ChannelRecord { id, schema, topic, encoding, metadata } = channel;
                self.channels.insert(id);
                let added =
                    self.writer.add_channel_with_id(id, schema, &topic, &encoding, &metadata);
                added.map(drop).map_err(|error| error.to_string())
            }
            _ => Ok(()),
        }
    }

    /// Makes sure that a channel is in the copy. Its description may be in a damaged chunk: then the index has another. Returns
    /// whether it is there.
    fn describe(&mut self, channel: u16, reader: &Reader<File>) -> Result<bool, Stopped> {
        if self.channels.contains(&channel) {
            return Ok(true);
        }
        let Some(summary) = &reader.summary else { return Ok(false) };
        let found = summary.descriptions.iter().find_map(|(code, body)| {
            let record = ChannelRecord::parse(body).filter(|_| *code == op::CHANNEL)?;
            (record.id == channel).then_some((record.schema, body))
        });
        let Some((schema, body)) = found else { return Ok(false) };
        let schema = summary.descriptions.iter().find(|(code, body)| {
            let record = SchemaRecord::parse(body).filter(|_| *code == op::SCHEMA);
            record.is_some_and(|record| record.id == schema)
        });
        let offset = reader.chunk_offset;
        for (code, body) in
            schema.map(|(code, body)| (*code, body)).into_iter().chain([(op::CHANNEL, body)])
        {
            self.add(code, body).map_err(|what| Stopped::Broken(Broken { offset, what }))?;
        }
        Ok(true)
    }

    /// Notes that a part of the file is not in the copy.
    fn left_out(&mut self, damage: Damage, reader: &Reader<File>) -> Result<(), Stopped> {
        if self.has_begun {
            let time = damage.time.unwrap_or(0);
            self.lose(&damage, (damage.sequence, time), reader)?;
        } else if self.early.len() < MOST_DAMAGES {
            self.early.push(damage.clone());
        }
        if self.damages.len() < MOST_DAMAGES {
            self.damages.push(damage);
        }
        Ok(())
    }

    /// Writes a loss in place of a damage, if the file has a channel for losses.
    fn lose(
        &mut self,
        damage: &Damage,
        (from, log_time): (u64, u64),
        reader: &Reader<File>,
    ) -> Result<(), Stopped> {
        if damage.messages == Some(0) {
            return Ok(());
        }
        let Some(channel_id) = reader.lost_channel() else { return Ok(()) };
        if !self.describe(channel_id, reader)? {
            return Ok(());
        }
        let loss = RecordedLoss::damage(from, damage.messages);
        let sequence = u32::try_from(from & u64::from(u32::MAX)).unwrap_or(0);
        let text = serde_json::to_vec(&loss)
            .map_err(|error| Stopped::Unwritable(Unwritable::Other(error.to_string())))?;
        let header = MessageHeader { channel_id, sequence, log_time, publish_time: log_time };
        self.writer
            .write_to_known_channel(&header, &text)
            .map_err(|error| Stopped::Unwritable(error.into()))
    }
}
