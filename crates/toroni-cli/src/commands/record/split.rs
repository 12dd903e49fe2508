//! The thread that writes: takes buffers, writes files one after the other, and removes the oldest.

use super::control::{Action, Request};
use super::intake::{Buffer, What};
use super::options::{Record, Split};
use super::values::{Newest, Payload, Value};
use rustix::fs::statvfs;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use toroni_recording::file::{Description, Message, Part, Topic, Totals, Unwritable, failure};
use toroni_recording::format::{
    CLOCK_OFFSET, OriginRun, RecordedLoss, RecordedNote, Retention, SEQUENCE_BASE,
};
use toroni_shell::failure::Failure;
use toroni_shell::human;

/// The most channels of a file, with a reserve. MCAP numbers them with 16 bits.
const MOST_CHANNELS: usize = 65_000;

/// Why a file ends: it could not be written.
const FAILED: &str = "failed";

/// What was written, by all files together.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) totals: Totals,
    pub(super) length: u64,
    pub(super) files: Vec<PathBuf>,
}

/// How long a file system may take until the space of a removed file is free.
const SPACE_COMES_WITHIN: Duration = Duration::from_secs(1);

/// Returns how much space a file system has for this user.
fn free_bytes(directory: &Path) -> Option<u64> {
    let found = statvfs(directory).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Returns what the names of all parts begin with.
pub(super) fn stem(path: &Path) -> PathBuf {
    match path.extension() {
        Some(extension) if extension == "mcap" => path.with_extension(""),
        _ => path.to_owned(),
    }
}

/// Returns the directory of a file, which is the working directory if the path names none.
pub(super) fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the number of a part with this file name.
fn number_of(name: &OsStr, stem: &OsStr) -> Option<u32> {
    let rest = name.as_bytes().strip_prefix(stem.as_bytes())?.strip_prefix(b".")?;
    let digits = std::str::from_utf8(rest.strip_suffix(b".mcap")?).ok()?;
    // Only what `next_path` writes: `a.2024.01.mcap` and `a.1.mcap` are files of others.
    let number = digits.parse().ok()?;
    (format!("{number:04}") == digits).then_some(number)
}

/// Returns the parts of a series that exist, in the order of their numbers. A directory that cannot be read has none:
/// creating the first part then says why.
fn parts(path: &Path) -> Vec<(u32, PathBuf)> {
    let stem = stem(path);
    let Some(name) = stem.file_name() else { return Vec::new() };
    let entries = std::fs::read_dir(directory(path)).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let number = number_of(&entry.file_name(), name)?;
            Some((number, path.with_file_name(entry.file_name())))
        })
        .collect();
    found.sort();
    found
}

/// The values with which a part begins.
#[derive(Clone, Copy)]
enum Front {
    /// The part has nothing else yet. They begin where it has this length.
    From(u64),
    /// They have this many bytes.
    Bytes(u64),
}

pub(super) struct Series {
    path: PathBuf,
    description: Description,
    split: Option<Split>,
    keep: Option<usize>,
    min_free: Option<u64>,
    /// When a file was removed whose space was not free at once.
    waits_for_space: Option<Instant>,
    /// Whether there is a new file after each one that ends, and files have numbers.
    is_numbered: bool,
    number: u32,
    part: Option<Part>,
    kept: VecDeque<PathBuf>,
    topics: Vec<Topic>,
    /// With which the next part begins.
    newest: Newest,
    /// The values with which the part begins.
    front: Front,
    /// The highest sequence so far.
    sequence: u64,
    /// A file that was removed while it was open.
    removed: Option<PathBuf>,
    report: Report,
}

impl Series {
    /// Begins a series, of which each part begins with values of at most this many bytes.
    pub(super) fn new(
        path: &Path,
        description: Description,
        arguments: &Record,
        value_bytes: u64,
    ) -> Self {
        let Record { split, keep, min_free, .. } = *arguments;
        let is_numbered = split.is_some();
        // Parts of earlier runs: the numbers continue after them, and they count for `keep`.
        let earlier = if is_numbered { parts(path) } else { Vec::new() };
        let mut series = Self {
            path: path.to_owned(),
            description,
            split,
            keep: keep.and_then(|keep| usize::try_from(keep).ok()),
            min_free,
            waits_for_space: None,
            is_numbered,
            number: earlier.last().map_or(0, |(number, _)| *number),
            part: None,
            kept: earlier.into_iter().map(|(_, path)| path).collect(),
            topics: Vec::new(),
            newest: Newest::new(value_bytes),
            front: Front::Bytes(0),
            sequence: 0,
            removed: None,
            report: Report::default(),
        };
        series.remove_beyond(series.keep);
        series
    }

    /// Returns the path of the next file.
    fn next_path(&self) -> PathBuf {
        if !self.is_numbered {
            return self.path.clone();
        }
        let mut name = stem(&self.path).into_os_string();
        name.push(format!(".{:04}.mcap", self.number.saturating_add(1)));
        PathBuf::from(name)
    }

    /// Creates the next file, which begins at this time with the values of retained topics.
    pub(super) fn begin(&mut self, log_time: u64) -> Result<(), Failure> {
        if self.sequence > 0 {
            // Of a series that is long, the base is too far back.
            let base = self.sequence.saturating_sub(1 << 31).to_string();
            self.description.notes.insert(SEQUENCE_BASE.to_owned(), base);
        }
        // With the next one, there are as many as are kept.
        self.remove_beyond(self.keep.map(|keep| keep.saturating_sub(1)));
        let (path, part) = loop {
            let path = self.next_path();
            let created = Part::create(&path, &self.description)
                .and_then(|mut part| part.name().map(|()| part));
            let is_last = self.number == u32::MAX;
            self.number = self.number.saturating_add(1);
            match created {
                // A recorder that this one cannot see, as in another container, has the number.
                Err(_) if self.is_numbered && !is_last && path.symlink_metadata().is_ok() => {}
                created => break (path, created?),
            }
        };
        self.kept.push_back(path.clone());
        self.report.files.push(path);
        self.part = Some(part);
        self.write_values(log_time).map_err(|error| self.describe(&error))
    }

    /// Writes the values as they are at this place.
    fn write_values(&mut self, log_time: u64) -> Result<(), Unwritable> {
        let Some(part) = &mut self.part else { return Ok(()) };
        self.front = Front::From(part.length());
        for (name, value) in self.newest.in_order() {
            let Value { topic, sequence, published, origin, payload } = value;
            let times = (log_time, published.unwrap_or(log_time));
            match payload {
                Payload::Kept(payload) => {
                    let message = Message {
                        topic: *topic,
                        retention: Retention::Value,
                        sequence: *sequence,
                        times,
                        payload,
                        origin: origin
                            .map(|(origin, number)| OriginRun::of(*sequence, origin, number)),
                    };
                    part.message(&message, (&self.topics, &self.description))?;
                }
                Payload::Missing(length) => {
                    let loss = RecordedLoss::value(self.sequence, name, *length);
                    part.loss(&loss, (log_time, log_time))?;
                }
            }
        }
        Ok(())
    }

    /// Ends the values with which the part begins. They are in a chunk of their own, which says how many bytes they have.
    fn end_front(&mut self) -> Result<(), Unwritable> {
        let (Some(part), Front::From(from)) = (&mut self.part, self.front) else { return Ok(()) };
        if part.totals.values > 0 {
            part.end_chunk()?;
        }
        self.front = Front::Bytes(part.length().saturating_sub(from));
        Ok(())
    }

    /// Finishes the file.
    fn end(&mut self, reason: &str) -> Result<(), Failure> {
        let Some(part) = self.part.take() else { return Ok(()) };
        if reason == FAILED && part.totals.is_empty() {
            // It would only be in the way of the next try. Dropping it removes the file.
            self.report.files.pop();
            return Ok(());
        }
        let path = part.path.clone();
        if part.is_removed() {
            self.removed.get_or_insert_with(|| path.clone());
        }
        let totals = part.finish(reason).map_err(|error| failure(&path, &error))?;
        let sum = &mut self.report.totals;
        sum.messages += totals.messages;
        sum.values += totals.values;
        sum.bytes += totals.bytes;
        sum.losses += totals.losses;
        sum.lost_messages = sum.lost_messages.saturating_add(totals.lost_messages);
        self.report.length += std::fs::metadata(&path).map_or(0, |file| file.len());
        if let Some(name) = path.file_name() {
            let name = name.to_string_lossy().into_owned();
            self.description.notes.insert("previous".to_owned(), name);
        }
        Ok(())
    }

    /// Removes the oldest if there are more than this.
    fn remove_beyond(&mut self, most: Option<usize>) {
        while most.is_some_and(|most| self.kept.len() > most) {
            self.remove_oldest();
        }
    }

    fn remove_oldest(&mut self) {
        let Some(oldest) = self.kept.pop_front() else { return };
        if let Err(error) = std::fs::remove_file(&oldest) {
            toroni_shell::note::remark(&format!("cannot remove {}: {error}", oldest.display()));
        }
    }

    /// Keeps space free on the disk, as `--min-free` says.
    fn keep_free(&mut self) -> Result<(), Failure> {
        let (Some(least), Some(part)) = (self.min_free, &self.part) else { return Ok(()) };
        let path = part.path.clone();
        let directory = directory(&path);
        // If the directory is gone, the next part says so.
        while let Some(free) = free_bytes(directory)
            && free < least
        {
            if self.waits_for_space.is_some_and(|since| since.elapsed() < SPACE_COMES_WITHIN) {
                return Ok(());
            }
            // The last one is that which is being written.
            if self.keep.is_none() || self.kept.len() <= 1 {
                let (free, least) = (human::bytes(free), human::bytes(least));
                return Err(Failure::Failed(format!(
                    "the recording has ended: the disk of {} has {free} free, less than {least} (--min-free)",
                    path.display()
                )));
            }
            self.remove_oldest();
            // Some file systems give the space back later, and a program may read the file.
            let is_later = free_bytes(directory).is_none_or(|now| now <= free);
            self.waits_for_space = is_later.then(Instant::now);
        }
        Ok(())
    }

    /// Does what a request asks of the writer.
    fn handle(&mut self, request: &Request, log_time: u64) -> Result<(), Failure> {
        if request.action == Action::Split && self.part.is_some() {
            self.end("split")?;
            self.begin(log_time)?;
        }
        request.answer(Ok(match &self.part {
            Some(part) => format!("recording to {}", part.path.display()),
            None => "recording: the next message begins the file".to_owned(),
        }));
        Ok(())
    }

    /// Writes all buffers. The file is finished whatever ends it.
    pub(super) fn run(
        mut self,
        full: &Receiver<Buffer>,
        free: &Sender<Buffer>,
    ) -> Result<Report, Failure> {
        let ended = self.write_all(full, free);
        let finished = self.end(if ended.is_ok() { "finished" } else { FAILED });
        ended.and(finished)?;
        match self.removed {
            Some(path) => Err(Failure::Failed(format!(
                "{} was removed while messages were written to it: they are lost",
                path.display()
            ))),
            None => Ok(self.report),
        }
    }

    fn write_all(&mut self, full: &Receiver<Buffer>, free: &Sender<Buffer>) -> Result<(), Failure> {
        let mut wait = Duration::from_secs(1);
        loop {
            match full.recv_timeout(wait) {
                Ok(mut buffer) => {
                    self.write(&mut buffer)?;
                    self.keep_free()?;
                    buffer.clear();
                    // The intake may have ended.
                    let _ = free.send(buffer);
                }
                Err(RecvTimeoutError::Timeout) => self.keep_free()?,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            wait = match &mut self.part {
                Some(part) => part.tick().map_err(|error| failure(&part.path, &error))?,
                None => Duration::from_secs(1),
            };
        }
    }

    fn write(&mut self, buffer: &mut Buffer) -> Result<(), Failure> {
        self.topics.append(&mut buffer.topics);
        buffer.retained.drain(..).for_each(|topic| self.newest.mark(topic));
        let mut losses = std::mem::take(&mut buffer.losses).into_iter();
        let mut requests = std::mem::take(&mut buffer.requests).into_iter();
        let mut start = 0;
        for entry in &buffer.entries {
            if matches!(entry.what, What::Request) {
                if let Some(request) = requests.next() {
                    self.handle(&request, entry.log_time)?;
                }
                continue;
            }
            self.split_if_due(entry.log_time)?;
            let is_of_front = match entry.what {
                What::Message { retention, .. } => retention == Retention::Value,
                What::Loss => losses.as_slice().first().is_some_and(|it| it.of_value().is_some()),
                What::Request | What::Note(_) => false,
            };
            if !is_of_front {
                self.end_front().map_err(|error| self.describe(&error))?;
            }
            self.sequence = self.sequence.max(entry.sequence);
            let Some(part) = &mut self.part else { break };
            let payload = buffer.bytes.get(start..entry.end).unwrap_or_default();
            start = entry.end;
            let times = (entry.log_time, entry.publish_time);
            let written = match entry.what {
                What::Message { topic, retention, origin } => {
                    let sequence = entry.sequence;
                    let origin = origin.and_then(|index| buffer.origins.get(index as usize));
                    let run =
                        origin.map(|(origin, number)| OriginRun::of(sequence, *origin, *number));
                    let retention = self.newest.retention(topic, retention);
                    let message =
                        Message { topic, retention, sequence, times, payload, origin: run };
                    let written = part.message(&message, (&self.topics, &self.description));
                    let name = self.topics.get(topic as usize).map_or("", |topic| &topic.name);
                    match retention {
                        Retention::Message | Retention::Value if self.is_numbered => {
                            let published = (times.0 != times.1).then_some(times.1);
                            let origin = origin.copied();
                            let kept = Payload::Kept(Vec::new());
                            let value = Value { topic, sequence, published, origin, payload: kept };
                            self.newest.keep(name, value, payload);
                        }
                        Retention::Cleared => self.newest.clear(name),
                        _ => {}
                    }
                    written
                }
                What::Loss => match losses.next() {
                    Some(loss) => {
                        if let Some(name) = loss.of_value()
                            && self.is_numbered
                        {
                            let payload = Payload::Missing(loss.bytes.unwrap_or(0));
                            let (sequence, published, origin) = (entry.sequence, None, None);
                            let value = Value { topic: 0, sequence, published, origin, payload };
                            self.newest.keep(name, value, &[]);
                        }
                        part.loss(&loss, times)
                    }
                    None => Ok(()),
                },
                What::Request => Ok(()),
                What::Note(note) => {
                    let written = part.note(&note, entry.sequence, entry.log_time);
                    if let RecordedNote::ClockStep { offset_ns, .. } = note {
                        // Later parts do not have the note.
                        let offset = offset_ns.to_string();
                        self.description.notes.insert(CLOCK_OFFSET.to_owned(), offset);
                    }
                    written
                }
            };
            written.map_err(|error| self.describe(&error))?;
        }
        if buffer.ends_file {
            self.end("finished")?;
            // The next capture begins with those of the bus.
            self.newest.clear_all();
        }
        Ok(())
    }

    fn describe(&self, error: &Unwritable) -> Failure {
        let Some(part) = &self.part else { return failure(&self.path, error) };
        let text = failure(&part.path, error).report().1.unwrap_or_default();
        let Totals { messages, bytes, .. } = part.totals;
        Failure::Failed(format!(
            "{text}; the file ends after {} with {}",
            human::counted(messages, "message"),
            human::bytes(bytes)
        ))
    }

    /// Begins a new file if there is none, or if the current one is long enough.
    fn split_if_due(&mut self, log_time: u64) -> Result<(), Failure> {
        let Some(part) = &self.part else { return self.begin(log_time) };
        let Front::Bytes(front) = self.front else { return Ok(()) };
        let is_due = match self.split {
            // Without the values with which it begins: they may be longer than a part.
            Some(Split::Bytes(bytes)) => part.length().saturating_sub(front) >= bytes,
            Some(Split::Time(time)) => part.totals.messages > 0 && part.began.elapsed() >= time,
            None => false,
        };
        if is_due || (self.is_numbered && part.channels() >= MOST_CHANNELS) {
            self.end("split")?;
            self.begin(log_time)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_parts_have_a_number() {
        let number = |name: &str| number_of(OsStr::new(name), OsStr::new("log"));
        assert_eq!(number("log.0001.mcap"), Some(1));
        assert_eq!(number("log.12345.mcap"), Some(12345));
        for other in [
            "log.mcap",
            "log.1.mcap",
            "log.00001.mcap",
            "log.+001.mcap",
            "log.0001.repaired.mcap",
            "logs.0001.mcap",
            "log.99999999999.mcap",
        ] {
            assert_eq!(number(other), None, "{other}");
        }
        assert_eq!(stem(Path::new("a/log.mcap")), Path::new("a/log"));
        assert_eq!(stem(Path::new("a/log.bin")), Path::new("a/log.bin"));
    }
}
