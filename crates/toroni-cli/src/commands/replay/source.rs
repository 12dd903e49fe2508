//! From files to messages: which are played, on which topics, and in which order.

use super::options::{By, Replay};
use super::values::{Early, Value};
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use toroni::{Pattern, Topic};
use toroni_recording::format::{CLOCK_OFFSET, RecordedLoss, RecordedNote, Retention};
use toroni_recording::reader::{Broken, ChannelKind, Damage, Item, ItemKind, Reader};
use toroni_shell::failure::Failure;
use toroni_shell::stop::Stop;

/// What becomes of the items of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Skip,
    Lost,
    Note,
    /// The topic with this index.
    Topic {
        index: usize,
        to_descendants: bool,
        retention: Retention,
    },
}

/// Which topics are played, and their names on the bus.
pub(crate) struct Selection {
    topics: Vec<Pattern>,
    exclude: Vec<Pattern>,
    map: Vec<(String, String)>,
    prefix: Option<String>,
    /// Whether names need not be valid, because nothing is published on them.
    only_prints: bool,
    /// The names on the bus, by index.
    pub(crate) names: Vec<Topic>,
}

impl Selection {
    pub(crate) fn new(arguments: &Replay) -> Result<Self, Failure> {
        let prefix = arguments.prefix.as_deref().map(|prefix| prefix.trim_matches('/').to_owned());
        if let Some(prefix) = &prefix {
            Topic::new(prefix)?;
        }
        let Replay { topics, exclude, map, .. } = arguments;
        let (topics, exclude, map) = (topics.clone(), exclude.clone(), map.clone());
        Ok(Self { topics, exclude, map, prefix, only_prints: false, names: Vec::new() })
    }

    /// Selects what matches patterns, without new names.
    pub(crate) fn matching(topics: Vec<Pattern>) -> Self {
        let (exclude, map, names) = (Vec::new(), Vec::new(), Vec::new());
        Self { topics, exclude, map, prefix: None, only_prints: true, names }
    }

    pub(crate) fn wants(&self, name: &str, to_descendants: bool) -> bool {
        let fits = |pattern: &Pattern| {
            if to_descendants { pattern.matches_descendants(name) } else { pattern.matches(name) }
        };
        (self.topics.is_empty() || self.topics.iter().any(fits))
            && !self.exclude.iter().any(|pattern| pattern.matches(name))
    }

    fn name(&self, recorded: &str) -> String {
        let below = |old: &str| {
            let rest = recorded.strip_prefix(old)?;
            (rest.is_empty() || rest.starts_with('/')).then_some(rest)
        };
        let mapped = self.map.iter().find_map(|(old, new)| Some(format!("{new}{}", below(old)?)));
        let name = mapped.unwrap_or_else(|| recorded.to_owned());
        match &self.prefix {
            Some(prefix) => format!("{prefix}/{name}"),
            None => name,
        }
    }

    /// Returns the scope of a loss with these recorded patterns, as patterns on the bus.
    pub(crate) fn scope(&self, recorded: &[String]) -> Vec<Pattern> {
        let all = || match &self.prefix {
            Some(prefix) => vec![format!("{prefix}/**").parse()],
            None => vec!["**".parse()],
        };
        let usable = (1..=toroni::Lost::MOST_PATTERNS).contains(&recorded.len());
        // A pattern cannot always be renamed, so it is widened.
        let named = if usable && self.map.is_empty() {
            recorded.iter().map(|pattern| self.name(pattern).parse()).collect()
        } else {
            all()
        };
        let parsed: Result<Vec<Pattern>, _> = named.into_iter().collect();
        parsed.unwrap_or_else(|_| vec![Pattern::everything()])
    }

    fn target(
        &mut self,
        topic: &str,
        (to_descendants, retention): (bool, Retention),
    ) -> Result<Target, Failure> {
        let recorded = topic.trim_start_matches('/');
        if !self.wants(recorded, to_descendants) {
            return Ok(Target::Skip);
        }
        if self.only_prints {
            return Ok(Target::Topic { index: 0, to_descendants, retention });
        }
        let name = self.name(recorded);
        let topic = Topic::new(&name).map_err(|error| {
            Failure::Failed(format!(
                "{name:?}: {error}; rename it with --map, or leave it out with --exclude"
            ))
        })?;
        let known = self.names.iter().position(|known| known.as_str() == topic.as_str());
        let index = known.unwrap_or_else(|| {
            self.names.push(topic);
            self.names.len().saturating_sub(1)
        });
        Ok(Target::Topic { index, to_descendants, retention })
    }
}

/// A file that is being played.
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) reader: Reader<File>,
    by: By,
    targets: Vec<Option<Target>>,
    /// The next item.
    pub(crate) head: Option<(Item, Target)>,
    pub(crate) is_done: bool,
    start: u64,
    end: u64,
    /// How far the wall clock of the recorder has been ahead of the log times, as far as the file was read.
    offsets: Vec<i64>,
    /// Whether everything up to where it was read last was seen: the notes about steps of the clock, too.
    is_read_from_front: bool,
}

/// The most bytes of the values before the place where a replay starts.
const MOST_VALUE_BYTES: usize = 256 << 20;
/// The most steps of the clock that count for the times of publication.
const MOST_OFFSETS: usize = 64;

impl Source {
    pub(crate) fn open(path: &Path, wants_origins: bool, by: By) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::Failed(format!("cannot read {}: {error}", path.display()))
        };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(Failure::Failed(format!("cannot read {}: it is no file", path.display())));
        }
        let reader = Reader::open(file, metadata.len(), wants_origins)
            .map_err(|broken| of_broken(path, &broken))?;
        let mut offsets: Vec<i64> = vec![0];
        let offset = reader.notes.0.get(CLOCK_OFFSET).and_then(|offset| offset.parse::<i64>().ok());
        offsets.extend(offset);
        Ok(Self {
            path: path.to_owned(),
            reader,
            by,
            targets: Vec::new(),
            head: None,
            is_done: false,
            start: 0,
            end: u64::MAX,
            offsets,
            is_read_from_front: false,
        })
    }

    /// Continues with the first item at or after `start`, and ends after `end`. Both are log times.
    pub(crate) fn limit(&mut self, start: u64, end: u64) -> Result<(), Failure> {
        (self.start, self.end, self.head, self.is_done) = (start, end, None, false);
        let path = &self.path;
        // The times of publication depend on the notes about steps of the clock. Those before `start` are read once.
        let seeks = start > 0 && (self.by == By::Received || self.is_read_from_front);
        self.is_read_from_front = true;
        let moved = self
            .reader
            .rewind()
            .and_then(|()| if seeks { self.reader.seek_time(start) } else { Ok(()) });
        moved.map_err(|broken| of_broken(path, &broken))
    }

    /// Finds the next item in the current chunk. Afterwards `head` is `None` if it has no more.
    #[inline]
    pub(crate) fn advance(&mut self, selection: &mut Selection) -> Result<(), Failure> {
        self.head = None;
        while let Some(item) =
            self.reader.next_item().map_err(|broken| of_broken(&self.path, &broken))?
        {
            if item.kind == ItemKind::Note {
                self.remember(&item);
            }
            if !self.is_within(&item) {
                continue;
            }
            let known = self.targets.get(usize::from(item.channel)).copied().flatten();
            let target = match known {
                _ if item.kind == ItemKind::Damage => Target::Lost,
                Some(target) => target,
                None => self.target(&item, selection)?,
            };
            if target != Target::Skip {
                self.head = Some((item, target));
                return Ok(());
            }
        }
        Ok(())
    }

    fn is_within(&self, item: &Item) -> bool {
        let until = match self.damage(item) {
            // What it had may reach to the start, or beyond.
            Some(damage) => damage.end_time.unwrap_or(u64::MAX),
            None => item.log_time,
        };
        until >= self.start && item.log_time <= self.end
    }

    /// Adds the values as they are before a time, by topic, to those of other files, of which this one has a number. Reads the
    /// file from its front, if it may have some. Afterwards, [`Self::limit`] is needed.
    pub(super) fn values_before(
        &mut self,
        (time, number): (u64, usize),
        selection: &mut Selection,
        values: &mut HashMap<usize, Early>,
        stop: &Stop,
    ) -> Result<(), Failure> {
        if !self.reader.may_have_values() {
            return Ok(());
        }
        self.limit(0, u64::MAX)?;
        let mut bytes: usize = values.values().map(Early::bytes).sum();
        while !stop.is_set() {
            self.load(selection)?;
            let Some((item, target)) = self.head.take() else { break };
            // The times of a recorder do not decrease.
            if item.log_time >= time && item.kind != ItemKind::Damage {
                break;
            }
            if let Some((topic, early)) = self.early(number, (&item, target), selection)? {
                let known = values.get(&topic);
                // Another file may have a newer one.
                if known.is_none_or(|known| known.log_time <= early.log_time) {
                    bytes = bytes.saturating_sub(known.map_or(0, Early::bytes));
                    bytes = bytes.saturating_add(early.bytes());
                    if bytes > MOST_VALUE_BYTES {
                        return Err(Failure::Failed(format!(
                            "{}: the values before --start have more than 256 MiB: leave topics out with --exclude",
                            self.path.display()
                        )));
                    }
                    values.insert(topic, early);
                }
            }
            self.advance(selection)?;
        }
        Ok(())
    }

    /// Returns the topic whose value is this item, or whose value it says is lost, and which of both; `None` if it is neither.
    fn early(
        &self,
        number: usize,
        (item, target): (&Item, Target),
        selection: &mut Selection,
    ) -> Result<Option<(usize, Early)>, Failure> {
        let (index, what) = match target {
            Target::Topic { index, to_descendants, retention } if retention != Retention::None => {
                (index, Ok(Value::new(item, to_descendants, self.reader.payload(item))))
            }
            Target::Lost => {
                let loss = self.loss(item)?;
                let Some(topic) = loss.of_value() else { return Ok(None) };
                let target = selection.target(topic, (false, Retention::Value))?;
                let Target::Topic { index, .. } = target else { return Ok(None) };
                (index, Err((number, loss)))
            }
            _ => return Ok(None),
        };
        Ok(Some((index, Early { log_time: item.log_time, what })))
    }

    /// Returns the loss of an item.
    pub(crate) fn loss(&self, item: &Item) -> Result<RecordedLoss, Failure> {
        self.reader.loss(item).map_err(|broken| of_broken(&self.path, &broken))
    }

    /// Returns the damage that an item stands for, if it is the item that was read last.
    pub(crate) fn damage(&self, item: &Item) -> Option<&Damage> {
        self.reader.damage().filter(|_| item.kind == ItemKind::Damage)
    }

    /// Whether an item has no time: a damage before all that has one.
    pub(crate) fn is_timeless(&self, item: &Item) -> bool {
        self.damage(item).is_some_and(|damage| damage.time.is_none())
    }

    /// Returns the time of the first item that has one. Afterwards, [`Self::limit`] is needed.
    pub(crate) fn first_time(&mut self, selection: &mut Selection) -> Result<Option<u64>, Failure> {
        if let Some(time) = self.reader.start_time() {
            return Ok(Some(time));
        }
        loop {
            self.load(selection)?;
            match self.head.take() {
                Some((item, _)) if self.is_timeless(&item) => self.advance(selection)?,
                head => return Ok(head.map(|(item, _)| item.log_time)),
            }
        }
    }

    fn remember(&mut self, item: &Item) {
        if let Some(RecordedNote::ClockStep { offset_ns, .. }) = self.reader.note(item)
            && !self.offsets.contains(&offset_ns)
            && self.offsets.len() < MOST_OFFSETS
        {
            self.offsets.push(offset_ns);
        }
    }

    #[cold]
    fn target(&mut self, item: &Item, selection: &mut Selection) -> Result<Target, Failure> {
        let Some(channel) = self.reader.channel_of(item.channel) else { return Ok(Target::Skip) };
        let target = match channel.kind {
            ChannelKind::Lost => Target::Lost,
            ChannelKind::Note => Target::Note,
            ChannelKind::Origin => Target::Skip,
            ChannelKind::Topic { to_descendants, retention } => {
                selection.target(&channel.topic, (to_descendants, retention))?
            }
        };
        let index = usize::from(item.channel);
        if self.targets.len() <= index {
            self.targets.resize(index + 1, None);
        }
        self.targets[index] = Some(target);
        Ok(target)
    }

    /// Reads the next chunk that has an item. Payloads of items before are gone.
    pub(crate) fn load(&mut self, selection: &mut Selection) -> Result<(), Failure> {
        while self.head.is_none() && !self.is_done {
            let more = self.reader.load().map_err(|broken| of_broken(&self.path, &broken))?;
            self.is_done = !more;
            if more {
                self.advance(selection)?;
            }
        }
        Ok(())
    }

    /// Returns the time of the next item.
    pub(crate) fn time(&self) -> Option<u64> {
        self.head.as_ref().map(|(item, _)| self.time_of(item))
    }

    pub(crate) fn time_of(&self, item: &Item) -> u64 {
        match self.by {
            By::Received => item.log_time,
            By::Publish if self.offsets.len() == 1 => item.publish_time,
            // The publisher read the wall clock before or after a step. Without the step, its time would be that of the
            // recording, but for the delay.
            By::Publish => {
                let offsets = self.offsets.iter().map(|offset| offset.saturating_neg());
                let times = offsets.map(|offset| item.publish_time.saturating_add_signed(offset));
                times.min_by_key(|time| time.abs_diff(item.log_time)).unwrap_or(item.publish_time)
            }
        }
    }
}

/// Describes a note of a recording.
pub(crate) fn remark(note: &RecordedNote, item: &Item) -> String {
    format!("at {}, {note}", toroni_shell::human::rfc3339(item.log_time))
}

/// Describes what is wrong with a file.
pub(crate) fn of_broken(path: &Path, broken: &Broken) -> Failure {
    toroni_recording::repair::of_broken(path, broken)
}
