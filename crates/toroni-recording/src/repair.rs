//! `toroni record --repair`: completes a file whose recorder was killed.

use crate::chunk::ChunkRecord;
use crate::file::{Unwritable, failure};
use crate::format::{ENDED, METADATA};
use crate::new_file::NewFile;
use crate::reader::{Broken, Reader};
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
    if reader.is_complete {
        note::remark(&format!("{} is complete: nothing to repair", path.display()));
        return Ok(());
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
    let mut copy = Copy { writer, channels: HashSet::new(), messages: 0, stop };
    let ended = copy.all(&mut reader);
    let broken = match ended {
        Ok(()) => None,
        Err(Stopped::Broken(broken)) => Some(broken),
        Err(Stopped::Unwritable(error)) => return Err(cannot(error)),
        Err(Stopped::Interrupted) => {
            return Err(stop.interrupted("interrupted before the copy was whole"));
        }
    };
    let Copy { mut writer, messages, .. } = copy;
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
    let until = reader.whole_until;
    note::remark(&format!(
        "wrote {} with {}; cut off {} after byte {until}{}",
        target.display(),
        human::counted(messages, "message"),
        human::counted(length.saturating_sub(until), "byte"),
        broken.map(|broken| format!(", because {}", broken.what)).unwrap_or_default(),
    ));
    Ok(())
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
            let refused = |error: mcap::McapError| {
                Stopped::Broken(Broken { offset, what: error.to_string() })
            };
            while let Some(record) = reader.next_raw()? {
                match record {
                    ChunkRecord::Message { header, payload } => {
                        if !self.channels.contains(&header.channel) {
                            return Err(broken("a message is on an unknown channel"));
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
                        self.messages += 1;
                    }
                    ChunkRecord::Other(op::SCHEMA, body) => {
                        let schema = SchemaRecord::parse(reader.bytes(body))
                            .ok_or_else(|| broken("a schema cannot be parsed"))?;
                        let SchemaRecord { id, name, encoding, data } = schema;
                        self.writer
                            .add_schema_with_id(id, name, encoding, data)
                            .map_err(refused)?;
                    }
                    ChunkRecord::Other(op::CHANNEL, body) => {
                        let channel = ChannelRecord::parse(reader.bytes(body))
                            .ok_or_else(|| broken("a channel cannot be parsed"))?;
                        let ChannelRecord { id, schema, topic, encoding, metadata } = channel;
                        self.writer
                            .add_channel_with_id(id, schema, &topic, &encoding, &metadata)
                            .map_err(refused)?;
                        self.channels.insert(id);
                    }
                    ChunkRecord::Other(..) => {}
                }
            }
            self.writer.flush().map_err(|error| Stopped::Unwritable(error.into()))?;
        }
        Ok(())
    }
}
