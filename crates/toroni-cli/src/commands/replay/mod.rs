//! `toroni replay`: plays recordings back into a bus.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod list;
pub(crate) mod options;
mod pace;
pub(crate) mod source;
mod steer;
mod values;

use crate::audience::{self, Wanted};
use options::{OnLoss, Replay};
use pace::{Pace, TOGETHER};
use source::{Selection, Source, Target};
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::mem::Discriminant;
use std::time::{Duration, Instant};
use steer::{Key, Keyboard, Line};
use toroni::{Entry, Inlet, Origin, PublishError, RetainError};
use toroni_recording::format::{self, RecordedLoss, Retention};
use toroni_recording::reader::{Item, ItemKind};
use toroni_shell::exchange::now_ns;
use toroni_shell::failure::Failure;
use toroni_shell::location::BusLocation;
use toroni_shell::stop::{GracePeriod, Stop};
use toroni_shell::{human, note};
use values::{Played, PlayedTopic, Value};

/// The most messages, and about the most bytes, that are published with one call.
const BATCH_MESSAGES: usize = 512;
const BATCH_BYTES: usize = 256 << 10;
/// How often a wait for a slow subscriber looks for a signal.
const CHECK_EVERY: Duration = Duration::from_millis(200);
/// How far the key ← goes back.
const BACK_NS: u64 = 5_000_000_000;

/// Plays all files.
pub(crate) fn run(location: &BusLocation, arguments: &Replay) -> Result<(), Failure> {
    if arguments.list {
        return list::run(&arguments.files, arguments.json);
    }
    if arguments.paused && !Keyboard::is_there() {
        return Err(Failure::Usage(
            "--paused needs a terminal, for the key that continues: standard input and standard error".to_owned(),
        ));
    }
    let mut selection = Selection::new(arguments)?;
    let mut sources = Vec::new();
    for path in &arguments.files {
        let source = Source::open(path, arguments.keep_origin, arguments.by)?;
        if !source.reader.is_complete && !arguments.quiet {
            note::remark(&format!(
                "{} is incomplete: playing what is in it (`toroni record --repair` completes it)",
                path.display()
            ));
        }
        sources.push(source);
    }
    let (first, start, end) = limits(arguments, &mut sources, &mut selection)?;
    let stop = Stop::install(GracePeriod::Unlimited)?;
    let config = location.config().participant_name(arguments.name.as_str());
    let bus = crate::opening::open_or_create(&config, location)?;
    let inlet = bus.inlet()?;
    if let Some(count) = arguments.wait_subscribers {
        let wanted = Wanted { count, topic: None, to_descendants: false };
        audience::wait_for(&wanted, &bus, &stop)?;
    }
    let keyboard = if arguments.no_keys { None } else { Keyboard::open()? };
    let last = sources.iter().filter_map(|source| {
        let statistics = source.reader.summary.as_ref()?.statistics?;
        Some(statistics.end_time.min(end))
    });
    let last = last.max().unwrap_or(start);
    let random = RandomState::new().build_hasher().finish();
    let (source, series) = (half(random), half(random >> 32));
    let mut player = Player {
        arguments,
        stop: &stop,
        inlet: &inlet,
        selection,
        sources,
        topics: Vec::new(),
        values: 0,
        left_out: Vec::new(),
        pace: Pace::new(arguments.speed, arguments.rate, arguments.gap_limit),
        batch: Vec::with_capacity(BATCH_MESSAGES),
        batch_bytes: 0,
        batch_due: None,
        own: Origin { source, series, stream: 0, number: 0 },
        messages: 0,
        losses: 0,
        bytes: 0,
        keyboard,
        line: Line::new(start, last, arguments.quiet),
        is_paused: arguments.paused,
        steps: 0,
        time: None,
        first,
        start,
        end,
        wants_end: false,
    };
    let started = Instant::now();
    let ended = player.play_all();
    let Player { messages, values, bytes, losses, wants_end, keyboard, line, .. } = player;
    // The terminal is as before when something is printed.
    drop((keyboard, line));
    if !arguments.quiet {
        let duplicates = match inlet.duplicates() {
            0 => String::new(),
            count => format!(", {} had arrived before", human::count(count)),
        };
        let values = match values {
            0 => String::new(),
            count => format!(" and {}", human::counted(count, "value")),
        };
        note::remark(&format!(
            "played {}{values}, {}, and {} in {}{duplicates}",
            human::counted(messages, "message"),
            human::bytes(bytes),
            human::counted(losses, "report").replace("report", "loss report"),
            human::duration(started.elapsed()),
        ));
    }
    ended?;
    if stop.is_set() && !wants_end && arguments.repeat != Some(0) {
        return Err(stop.interrupted(format!("interrupted after {messages} messages")));
    }
    Ok(())
}

fn half(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or_default()
}

/// Stops the process if Ctrl-Z was pressed. The replay continues where it was.
fn suspend(keyboard: &mut Option<Keyboard>, line: &Line, pace: &mut Pace) {
    let Some(keyboard) = keyboard.as_mut().filter(|keyboard| keyboard.wants_stop()) else {
        return;
    };
    let began = Instant::now();
    line.clear();
    keyboard.stop();
    pace.delay(began.elapsed());
}

/// Returns the first log time, and those between which messages are played.
fn limits(
    arguments: &Replay,
    sources: &mut [Source],
    selection: &mut Selection,
) -> Result<(u64, u64, u64), Failure> {
    let mut start = u64::MAX;
    for source in sources.iter_mut() {
        start = start.min(source.first_time(selection)?.unwrap_or(u64::MAX));
    }
    if start == u64::MAX {
        start = 0;
    }
    let from = arguments.start.map_or(start, |point| point.time(start));
    let until = arguments.end.map_or(u64::MAX, |point| point.time(start));
    if until < from {
        return Err(Failure::Usage("--end is before --start".to_owned()));
    }
    Ok((start, from, until))
}

struct Player<'a> {
    arguments: &'a Replay,
    stop: &'a Stop,
    inlet: &'a Inlet,
    selection: Selection,
    sources: Vec<Source>,
    /// The topics of the inlet, by the index in `selection.names`.
    topics: Vec<PlayedTopic>,
    values: u64,
    /// Why values are left out, as far as it has said so.
    left_out: Vec<Discriminant<RetainError>>,
    pace: Pace,
    /// What is published with the next call: source, item, topic, whether to descendants.
    batch: Vec<(usize, Item, usize, bool)>,
    batch_bytes: usize,
    /// When the first message of the batch is due.
    batch_due: Option<Instant>,
    /// The stream in which losses are reported.
    own: Origin,
    messages: u64,
    losses: u64,
    bytes: u64,
    keyboard: Option<Keyboard>,
    line: Line,
    is_paused: bool,
    /// Messages to play although it is paused.
    steps: u64,
    /// The time of the last message that was played.
    time: Option<u64>,
    /// When the recording begins, and where the replay starts and ends.
    first: u64,
    start: u64,
    end: u64,
    /// Whether the key q ended it.
    wants_end: bool,
}

impl Player<'_> {
    fn play_all(&mut self) -> Result<(), Failure> {
        let times = match self.arguments.repeat {
            None => 1,
            Some(0) => u64::MAX,
            Some(times) => times,
        };
        for _ in 0..times {
            self.rewind(self.start)?;
            self.pace.restart(None);
            let before = (self.messages, self.losses);
            self.play()?;
            if self.is_over() || before == (self.messages, self.losses) {
                break;
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.wants_end || self.stop.is_set()
    }

    /// Continues at a time, with the values as they are there.
    fn rewind(&mut self, start: u64) -> Result<(), Failure> {
        self.batch.clear();
        self.batch_bytes = 0;
        let mut values = HashMap::new();
        for (index, source) in self.sources.iter_mut().enumerate() {
            if start > self.first {
                source.values_before(
                    (start, index),
                    &mut self.selection,
                    &mut values,
                    self.stop,
                )?;
            }
            source.limit(start, self.end)?;
        }
        let mut values: Vec<_> = values.into_iter().collect();
        values.sort_by_key(|(topic, early)| (early.log_time, *topic));
        for (topic, early) in values {
            match early.what {
                Ok(value) => self.value(topic, &value)?,
                Err((source, loss)) => self.report_lost(source, &loss)?,
            }
        }
        Ok(())
    }

    fn play(&mut self) -> Result<(), Failure> {
        while !self.is_over() {
            let Some(next) = self.next_source()? else { break };
            let Some((item, target)) = self.sources[next].head.take() else { break };
            let time = self.sources[next].time_of(&item);
            let is_timeless = self.sources[next].is_timeless(&item);
            if !is_timeless && !self.wait_for(time)? {
                continue;
            }
            match target {
                Target::Skip => {}
                Target::Note => {
                    self.flush()?;
                    if let Some(note) = self.sources[next].reader.note(&item)
                        && !self.arguments.quiet
                    {
                        self.line.remark(&source::remark(&note, &item));
                    }
                }
                Target::Lost => {
                    self.flush()?;
                    self.loss(next, &item)?;
                }
                Target::Topic { index, to_descendants, .. }
                    if matches!(item.kind, ItemKind::Value | ItemKind::Cleared) =>
                {
                    self.flush()?;
                    let payload = self.sources[next].reader.payload(&item);
                    let value = Value::new(&item, to_descendants, payload);
                    self.value(index, &value)?;
                }
                Target::Topic { index, to_descendants, retention } => {
                    self.topic(index)?;
                    if retention == Retention::Message {
                        self.retain(index)?;
                    }
                    self.batch_bytes = self
                        .batch_bytes
                        .saturating_add(self.sources[next].reader.payload(&item).len());
                    self.batch.push((next, item, index, to_descendants));
                    if self.batch.len() >= BATCH_MESSAGES || self.batch_bytes >= BATCH_BYTES {
                        self.flush()?;
                    }
                }
            }
            if !is_timeless {
                self.time = Some(time);
            }
            self.sources[next].advance(&mut self.selection)?;
        }
        if self.is_over() { Ok(()) } else { self.flush() }
    }

    /// Returns the source with the next item, or `None` at the end.
    fn next_source(&mut self) -> Result<Option<usize>, Failure> {
        if self.sources.iter().any(|source| source.head.is_none() && !source.is_done) {
            // The payloads of the batch are in chunks that end here.
            self.flush()?;
            for source in &mut self.sources {
                source.load(&mut self.selection)?;
            }
        }
        if let [source] = &self.sources[..] {
            return Ok(source.head.is_some().then_some(0));
        }
        let times = self.sources.iter().enumerate();
        let times = times.filter_map(|(index, source)| Some((source.time()?, index)));
        Ok(times.min().map(|(_, index)| index))
    }

    fn topic(&mut self, index: usize) -> Result<(), Failure> {
        while self.topics.len() <= index {
            let name = &self.selection.names[self.topics.len()];
            self.topics.push(PlayedTopic::new(self.inlet.topic(name.as_str())?));
        }
        Ok(())
    }

    /// Waits until a message with this time is due, and publishes what is due before. Returns `false` if the message
    /// is not to be played: a signal came, or a key moved to another place.
    #[inline]
    fn wait_for(&mut self, time: u64) -> Result<bool, Failure> {
        let due = self.pace.due(time);
        let looks = self.is_paused || self.keyboard.as_ref().is_some_and(Keyboard::is_due);
        if due.is_none() && !looks {
            return Ok(true);
        }
        self.wait_until(time, due)
    }

    fn wait_until(&mut self, time: u64, due: Option<Instant>) -> Result<bool, Failure> {
        let together = match (due, self.batch_due) {
            (Some(due), Some(first)) => due.saturating_duration_since(first) <= TOGETHER,
            _ => false,
        };
        if together && !self.batch.is_empty() && !self.is_paused {
            return Ok(true);
        }
        if due.is_none_or(|due| due > Instant::now()) || self.is_paused {
            self.flush()?;
        }
        loop {
            suspend(&mut self.keyboard, &self.line, &mut self.pace);
            if !self.keys(time)? {
                return Ok(false);
            }
            // After a pause, or at another speed.
            let due = self.pace.again(time);
            self.batch_due = due;
            if self.is_paused && self.steps == 0 {
                continue;
            }
            if self.steps > 0 {
                self.steps = self.steps.saturating_sub(1);
                // It is shown at once.
                self.pace.restart(Some(time));
                return Ok(true);
            }
            let Some(at) = due else { return Ok(true) };
            let Self { keyboard, line, pace, stop, time: last, .. } = &mut *self;
            let (mut pressed, mut wants_stop) = (None, false);
            let waited = Pace::wait(at, stop, || {
                if let (Some(now), Some(last)) = (pace.now(), *last) {
                    line.pass(now.saturating_sub(last));
                }
                if let Some(keyboard) = keyboard {
                    wants_stop = keyboard.wants_stop();
                    pressed = keyboard.key(Duration::ZERO);
                }
                wants_stop || pressed.is_some()
            });
            if wants_stop {
                continue;
            }
            match pressed {
                Some(key) => {
                    if !self.pressed(key, time)? {
                        return Ok(false);
                    }
                }
                None => return Ok(waited),
            }
        }
    }

    /// Handles the keys that were pressed. While it is paused, waits for one. Returns `false` if the next message is
    /// another one.
    fn keys(&mut self, time: u64) -> Result<bool, Failure> {
        let Some(keyboard) = &mut self.keyboard else { return Ok(!self.stop.is_set()) };
        let wait = if self.is_paused && self.steps == 0 { CHECK_EVERY } else { Duration::ZERO };
        let began = Instant::now();
        let key = keyboard.key(wait);
        if self.is_paused && self.steps == 0 {
            // Until it continues, the time stands still.
            self.pace.delay(began.elapsed());
        }
        if self.stop.is_set() {
            return Ok(false);
        }
        match key {
            Some(key) => self.pressed(key, time),
            None => Ok(true),
        }
    }

    fn pressed(&mut self, key: Key, time: u64) -> Result<bool, Failure> {
        match key {
            Key::Quit => {
                self.wants_end = true;
                return Ok(false);
            }
            Key::Pause => self.is_paused = !self.is_paused,
            Key::Step => {
                self.is_paused = true;
                self.steps = self.steps.saturating_add(1);
            }
            Key::Faster => self.pace.scale(2.0, time),
            Key::Slower => self.pace.scale(0.5, time),
            Key::Back => {
                self.flush()?;
                let back = self.time.unwrap_or(time).saturating_sub(BACK_NS).max(self.start);
                self.rewind(back)?;
                self.pace.restart(None);
                return Ok(false);
            }
        }
        let state = if self.is_paused { "  (paused)" } else { "  " };
        self.line.show_state(self.pace.now().map_or(time, |now| now.min(time)), state);
        Ok(true)
    }

    /// Publishes the batch.
    fn flush(&mut self) -> Result<(), Failure> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let Self { sources, topics, batch, arguments, keyboard, line, pace, .. } = self;
        let now = now_ns();
        let payloads: Vec<[&[u8]; 1]> = batch
            .iter()
            .map(|(source, item, ..)| [sources[*source].reader.payload(item)])
            .collect();
        let entries: Vec<Entry<'_>> = batch
            .iter()
            .zip(&payloads)
            .map(|((_, item, topic, to_descendants), payload)| Entry {
                to_descendants: *to_descendants,
                published_ns: arguments.stamp.of(item.stamp(), now),
                origin: item.origin.map(|(origin, _)| origin),
                number: item.origin.and_then(|(_, number)| number),
                ..Entry::new(&topics[*topic].inlet, payload)
            })
            .collect();
        let mut published = 0;
        while published < entries.len() && !self.stop.is_set() {
            match self.inlet.publish(&entries[published..], CHECK_EVERY) {
                Ok(()) => published = entries.len(),
                Err(error) => {
                    published = published.saturating_add(error.published);
                    if !matches!(error.source, PublishError::Timeout) {
                        self.messages = self.messages.saturating_add(published as u64);
                        return Err(error.source.into());
                    }
                    suspend(keyboard, line, pace);
                }
            }
        }
        drop(entries);
        self.messages = self.messages.saturating_add(published as u64);
        for ([payload], (_, item, topic, _)) in payloads.iter().zip(batch.iter()).take(published) {
            self.bytes = self.bytes.saturating_add(payload.len() as u64);
            let topic = &mut topics[*topic];
            if topic.is_retained == Some(true) {
                topic.last = Some(Played::new(payload, arguments.stamp.of(item.stamp(), now)));
            }
        }
        drop(payloads);
        if let Some((_, item, topic, _)) = self.batch.last() {
            self.line.show(item.log_time, self.selection.names[*topic].as_str());
        }
        self.batch.clear();
        self.batch_bytes = 0;
        Ok(())
    }

    /// Plays the loss of an item.
    fn loss(&mut self, index: usize, item: &Item) -> Result<(), Failure> {
        let source = &self.sources[index];
        let loss = source.loss(item)?;
        if let Some(damage) = source.damage(item) {
            if !self.arguments.quiet {
                self.line.remark(&format!("{}: {damage}", source.path.display()));
            }
            if loss.messages == 0 {
                return Ok(());
            }
        }
        self.report_lost(index, &loss)
    }

    /// Plays a loss.
    fn report_lost(&mut self, source: usize, loss: &RecordedLoss) -> Result<(), Failure> {
        let source = &self.sources[source];
        match self.arguments.lost {
            OnLoss::Ignore => return Ok(()),
            OnLoss::Fail => {
                return Err(Failure::Lost(format!(
                    "{}: {} lost at sequence {}",
                    source.path.display(),
                    human::counted(loss.messages, "message"),
                    loss.from_sequence
                )));
            }
            OnLoss::Report => {}
        }
        if !loss.scope.is_empty() && !loss.scope.iter().any(|scope| self.may_concern(scope)) {
            return Ok(());
        }
        let recorded = match &loss.scope[..] {
            // Of the whole bus, as far as it was recorded.
            [] => self.recorded_patterns(source),
            scope => scope.to_vec(),
        };
        let scope = self.selection.scope(&recorded);
        let kept = self.arguments.keep_origin.then(|| loss.numbers()).flatten();
        let (from, until) = kept.unwrap_or_else(|| self.own_numbers(loss));
        let lost = loss.to_lost(from, until, scope);
        while !self.stop.is_set() {
            let published = match kept {
                Some(_) => self.inlet.publish_lost(&lost, None, CHECK_EVERY),
                // Each run has a stream of its own, which nothing follows: the bus need not remember it.
                None => self.inlet.publish_lost_unlisted(&lost, CHECK_EVERY),
            };
            match published {
                Err(PublishError::Timeout) => {
                    suspend(&mut self.keyboard, &self.line, &mut self.pace);
                }
                Err(error) => return Err(error.into()),
                Ok(()) => {
                    self.losses = self.losses.saturating_add(1);
                    break;
                }
            }
        }
        Ok(())
    }

    fn may_concern(&self, scope: &str) -> bool {
        // A pattern without wildcards is a topic. Others may have lost anything.
        scope.contains('*') || self.selection.wants(scope, false)
    }

    fn recorded_patterns(&self, source: &Source) -> Vec<String> {
        let patterns = source.reader.notes.0.get(format::PATTERNS);
        let patterns = patterns.map_or("**", String::as_str);
        patterns.split(' ').filter(|pattern| !pattern.is_empty()).map(str::to_owned).collect()
    }

    /// Returns numbers of a stream of this process for a loss.
    fn own_numbers(&mut self, loss: &RecordedLoss) -> (Origin, u64) {
        let from = self.own;
        // The stream would end after 2^48 numbers.
        let count = loss.messages.clamp(1, 1 << 24);
        let until = from.number.saturating_add(count).min(Origin::NUMBER_LIMIT);
        self.own.number = until.min(Origin::NUMBER_LIMIT - 1);
        (from, until)
    }
}
