//! The options of `toroni record`.

use clap::Args;
use clap_complete::ArgValueCompleter;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use toroni::{Pattern, Start};
use toroni_recording::file::{Compress, Description, Schema, Sync};
use toroni_shell::complete;
use toroni_shell::failure::Failure;
use toroni_shell::human::{parse_bytes, parse_interval};

#[derive(Args)]
#[command(after_help = "Examples:
  toroni record day.mcap                             everything on the bus, until Ctrl-C
  toroni record plant.mcap 'plant/**' --exclude 'plant/camera/**'
  toroni record run.mcap --duration 10s --encoding 'plant/**=json'
  toroni record log.mcap --split 1GiB --keep 24      log.0001.mcap, log.0002.mcap, …
  toroni record fault.mcap --trigger 'alarm/**' --before 10s --after 5s
  toroni record --repair killed.mcap                 writes killed.repaired.mcap, complete and with an index
  toroni record --control log.mcap split             begins the next file of the recorder of log.mcap

The file is MCAP (https://mcap.dev), which Foxglove and libraries for C++, Python, Go and TypeScript read. `toroni \
replay` plays it back, and `toroni sub --file` prints it.

record does not make publishers wait (--gate changes that). If they overtake it, it reports the loss, writes the loss \
to the file, and continues. If it is killed, the file is readable up to the last second.

Commands of --control FILE, where FILE is the one that the recorder was started with:
  split     begin the next file (--split); the signal SIGUSR1 does the same
  pause     leave out messages, and note in the file how many
  resume    end the pause; SIGUSR2 pauses and resumes
  snapshot  record as if a message had matched --trigger: what was before, and what comes within --after
The exit code is 0 if the recorder has done it.")]
pub(crate) struct Record {
    /// File to create; it must not exist
    #[arg(value_name = "FILE", required_unless_present = "control")]
    pub(crate) file: Option<PathBuf>,
    /// Topics to record, such as plant/** [default: **]
    #[arg(value_name = "PATTERN", hide_default_value = true, default_value = "**", add = ArgValueCompleter::new(complete::topics))]
    pub(crate) patterns: Vec<String>,
    /// Topics not to record; repeatable
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<Pattern>,
    /// Where to start: latest (only messages published from now on), oldest, a position, or sequence:N
    #[arg(long, value_name = "START", default_value = "latest", value_parser = crate::commands::subscribe::options::parse_start)]
    pub(crate) from: Start,
    /// Stop after this time: seconds, or a number with a unit, such as 10min
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    pub(crate) duration: Option<Duration>,
    /// Stop after N messages
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// How to compress the messages
    #[arg(long, value_enum, default_value_t = Compress::Zstd)]
    pub(crate) compress: Compress,
    /// When to write the file to the disk: a time, chunk (after each chunk), or never
    #[arg(long, value_name = "WHEN", default_value = "1s", value_parser = parse_sync)]
    pub(crate) sync: Sync,
    /// Begin a new file at this size or after this time, such as 1GiB or 1h
    #[arg(long, value_name = "SIZE|TIME", value_parser = parse_split)]
    pub(crate) split: Option<Split>,
    /// Keep only the newest N files of --split, counting those of earlier runs
    #[arg(long, value_name = "N", requires = "split", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keep: Option<u32>,
    /// Keep this much of the disk free: with --keep, by removing the oldest files; then, and without --keep, by ending
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) min_free: Option<u64>,
    /// Write nothing until a message matches; repeatable
    #[arg(long, value_name = "PATTERN", conflicts_with_all = ["from", "gate"])]
    pub(crate) trigger: Vec<Pattern>,
    /// With --trigger: also record what was published in this time before, as far as the ring reaches
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_interval, requires = "trigger")]
    pub(crate) before: Duration,
    /// With --trigger: stop this time after the last message that matches
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_interval, requires = "trigger")]
    pub(crate) after: Duration,
    /// Encoding of the messages of some topics, such as plant/**=json; the first that matches counts; repeatable
    #[arg(long, value_name = "PATTERN=ENCODING", value_parser = parse_pair)]
    pub(crate) encoding: Vec<(Pattern, String)>,
    /// Schema of some topics: a file with a JSON Schema (.json), or FILE:TYPE with a protobuf descriptor set; repeatable
    #[arg(long, value_name = "PATTERN=FILE", value_parser = parse_pair)]
    pub(crate) schema: Vec<(Pattern, String)>,
    /// Make publishers wait for the recorder, as the policy of the bus says
    #[arg(long)]
    pub(crate) gate: bool,
    /// Exit with code 3 if messages were lost
    #[arg(long)]
    pub(crate) strict: bool,
    /// Complete a file that is damaged, or whose recorder was killed: writes a new file, and reports what is missing
    #[arg(long, conflicts_with_all = ["patterns", "exclude", "from", "duration", "count", "split", "keep", "min_free", "trigger", "encoding", "schema", "gate", "strict", "ready_fd", "sync"])]
    pub(crate) repair: bool,
    /// Tell the recorder that was started with FILE: split, pause, resume or snapshot (see below)
    #[arg(long, num_args = 2, value_names = ["FILE", "COMMAND"], conflicts_with_all = ["file", "repair", "exclude", "from", "duration", "count", "compress", "split", "keep", "min_free", "trigger", "encoding", "schema", "gate", "strict", "ready_fd", "sync"])]
    pub(crate) control: Vec<OsString>,
    /// Write a line to this inherited file descriptor when subscribed
    #[arg(long, value_name = "FD")]
    pub(crate) ready_fd: Option<i32>,
    /// Do not report losses, and what was recorded, on standard error
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Name of this subscriber in `toroni info`
    #[arg(long, value_name = "NAME", default_value = "toroni-record")]
    pub(crate) name: String,
}

impl Record {
    /// Returns how topics are described in files.
    pub(super) fn description(
        &self,
        notes: BTreeMap<String, String>,
    ) -> Result<Description, Failure> {
        let mut schemas = Vec::new();
        for (pattern, file) in &self.schema {
            schemas.push((pattern.clone(), Schema::read(file)?));
        }
        Ok(Description {
            encodings: self.encoding.clone(),
            schemas,
            compress: self.compress,
            sync: self.sync,
            notes,
        })
    }
}

/// When a new file begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Split {
    Bytes(u64),
    Time(Duration),
}

fn parse_sync(text: &str) -> Result<Sync, String> {
    match text {
        "chunk" => Ok(Sync::Chunk),
        "never" => Ok(Sync::Never),
        other => parse_interval(other)
            .map(Sync::Every)
            .map_err(|_| "use chunk, never, or a time such as 1s".to_owned()),
    }
}

fn parse_split(text: &str) -> Result<Split, String> {
    /// A part has at least a chunk.
    const LEAST_BYTES: u64 = 1 << 20;
    if let Ok(bytes) = parse_bytes(text) {
        return match bytes {
            LEAST_BYTES.. => Ok(Split::Bytes(bytes)),
            _ => Err("a part has at least 1MiB".to_owned()),
        };
    }
    let time = parse_interval(text);
    time.map(Split::Time).map_err(|_| "use a size such as 1GiB, or a time such as 1h".to_owned())
}

fn parse_pair(text: &str) -> Result<(Pattern, String), String> {
    let (pattern, value) = text
        .split_once('=')
        .ok_or_else(|| "use PATTERN=VALUE, such as plant/**=json".to_owned())?;
    Ok((Pattern::new(pattern).map_err(|error| error.to_string())?, value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_told_apart() {
        assert_eq!(parse_split("1GiB"), Ok(Split::Bytes(1 << 30)));
        assert_eq!(parse_split("1h"), Ok(Split::Time(Duration::from_secs(3600))));
        assert_eq!(parse_split("10min"), Ok(Split::Time(Duration::from_secs(600))));
        assert!(parse_split("1KiB").is_err() && parse_split("often").is_err());
        assert_eq!(parse_sync("1s"), Ok(Sync::Every(Duration::from_secs(1))));
        assert_eq!(parse_sync("never"), Ok(Sync::Never));
        assert!(parse_sync("0").is_err());
    }
}
