//! From the ring to buffers: copies messages in runs, and validates each run before its buffer is handed on.

use super::clock::Clock;
use super::control::{Action, Request};
use super::trigger;
use super::values::Retained;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant, SystemTime};
use toroni::{InPlace, Origin, Pattern, ReceiveError, RetainedError};
use toroni_recording::file::Topic;
use toroni_recording::format::{RecordedLoss, RecordedNote, Retention};
use toroni_shell::failure::Failure;

/// How many buffers there are. They hide a stall of the disk: of 0.3 s at 100 MiB/s.
pub(super) const BUFFERS: usize = 8;
/// The size of a buffer. One with a longer message grows.
const BUFFER_BYTES: usize = 4 << 20;
/// A buffer that is not full is handed on after this time.
pub(super) const HAND_ON_AFTER: Duration = Duration::from_millis(100);
/// How often a full intake checks whether the writer has ended.
const CHECK_EVERY: Duration = Duration::from_millis(200);

/// The most steps of the clock that are remembered while nothing is recorded.
const MOST_STEPS: usize = 64;

/// A message, a loss or a note in a buffer.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) what: What,
    pub(super) sequence: u64,
    pub(super) log_time: u64,
    pub(super) publish_time: u64,
    /// Where its payload ends. It begins where that of the entry before ends.
    pub(super) end: usize,
}

#[derive(Clone, Copy)]
pub(super) enum What {
    /// A message on the topic with this number. `origin` says where in [`Buffer::origins`] its origin is.
    Message {
        topic: u32,
        /// A message of the stream has none here: the writer knows by then whether its topic is retained.
        retention: Retention,
        origin: Option<u32>,
    },
    /// The next of [`Buffer::losses`].
    Loss,
    /// The next of [`Buffer::requests`]: something that the writer does between two entries.
    Request,
    Note(RecordedNote),
}

/// A pause of the recording.
#[derive(Clone, Copy)]
struct Pause {
    began_ns: u64,
    /// Messages that were left out.
    messages: u64,
    /// The sequence of the first.
    from: u64,
}

/// Messages on their way to the writer.
#[derive(Default)]
pub(super) struct Buffer {
    /// Payloads. Beyond `used` are old bytes: clearing them would take as long as copying new ones.
    pub(super) bytes: Vec<u8>,
    used: usize,
    pub(super) entries: Vec<Entry>,
    pub(super) origins: Vec<(Origin, Option<u64>)>,
    pub(super) losses: Vec<RecordedLoss>,
    /// Topics that the writer does not know yet, in the order of their numbers.
    pub(super) topics: Vec<Topic>,
    /// The numbers of topics of which the writer does not know yet that they are retained.
    pub(super) retained: Vec<u32>,
    /// What the writer is asked to do.
    pub(super) requests: Vec<Request>,
    /// Whether this is the last buffer of a capture: the writer finishes the file.
    pub(super) ends_file: bool,
}

impl Buffer {
    fn is_full(&self) -> bool {
        self.used + self.entries.len() * size_of::<Entry>() >= BUFFER_BYTES
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && !self.ends_file
    }

    /// Adds space for a payload.
    fn space(&mut self, length: usize) -> &mut [u8] {
        let (start, end) = (self.used, self.used + length);
        if self.bytes.len() < end {
            self.bytes.resize(end.max(2 * self.bytes.len()), 0);
        }
        self.used = end;
        &mut self.bytes[start..end]
    }

    /// Adds a message, whose payload has its space already.
    #[inline]
    fn push_message(
        &mut self,
        (topic, retention): (u32, Retention),
        sequence: u64,
        (log_time, published): (u64, Option<SystemTime>),
        origin: Option<(Origin, Option<u64>)>,
    ) {
        let origin = origin.map(|origin| {
            self.origins.push(origin);
            u32::try_from(self.origins.len() - 1).unwrap_or(u32::MAX)
        });
        let published = published.and_then(toroni_shell::exchange::nanoseconds);
        self.entries.push(Entry {
            what: What::Message { topic, retention, origin },
            sequence,
            log_time,
            publish_time: published.unwrap_or(log_time),
            end: self.used,
        });
    }

    pub(super) fn clear(&mut self) {
        self.used = 0;
        // A buffer that has grown for a long message gives the memory back.
        self.bytes.truncate(2 * BUFFER_BYTES);
        self.bytes.shrink_to(2 * BUFFER_BYTES);
        self.entries.clear();
        self.origins.clear();
        self.losses.clear();
        self.topics.clear();
        self.retained.clear();
        self.requests.clear();
        self.ends_file = false;
    }
}

/// A time, and the end of the stream at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) position: u64,
    pub(super) time_ns: u64,
}

/// Something that is asked of the recorder, and takes effect at a place of the stream.
struct Due {
    position: u64,
    request: Request,
    /// Whether the program that asked knows that it is done, or will be.
    is_taken: bool,
    /// The answer and the note of what the writer need not do.
    done: Option<(&'static str, Option<RecordedNote>)>,
}

pub(super) struct Intake {
    full: SyncSender<Buffer>,
    free: Receiver<Buffer>,
    buffer: Buffer,
    began: Option<Instant>,
    topics: HashMap<(String, bool), Option<u32>>,
    /// The topic of the message before.
    last: (String, bool, Option<u32>),
    topic_count: u32,
    exclude: Vec<Pattern>,
    trigger: Vec<Pattern>,
    /// Whether messages on a topic match the trigger, by its number.
    fires: Vec<bool>,
    /// Whether a message has matched the trigger since this was last cleared.
    pub(super) fired: bool,
    /// What says when messages come.
    pub(super) clock: Clock,
    log_time: u64,
    /// When messages of the past came, oldest first: those up to a mark's position came at its time.
    past: VecDeque<Mark>,
    /// Steps of the clock that no file has yet, because nothing was recorded.
    steps: Vec<RecordedNote>,
    pause: Option<Pause>,
    /// Which topics are retained; `None` on a bus without values.
    retained: Option<Retained>,
    /// What was asked, and has not taken effect: oldest first.
    due: VecDeque<Due>,
    /// The sequence after the last message.
    next_sequence: u64,
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) lost: u64,
    /// Values that were missing where a pause has ended, and are not reported yet.
    missing: Vec<ReceiveError>,
    quiet: bool,
}

impl Intake {
    pub(super) fn new(
        full: SyncSender<Buffer>,
        free: Receiver<Buffer>,
        exclude: Vec<Pattern>,
        trigger: Vec<Pattern>,
        retained: Option<Retained>,
        (sequence, quiet): (u64, bool),
    ) -> Self {
        Self {
            full,
            free,
            buffer: Buffer::default(),
            began: None,
            topics: HashMap::new(),
            last: (String::new(), false, None),
            topic_count: 0,
            exclude,
            trigger,
            fires: Vec::new(),
            fired: false,
            clock: Clock::start(),
            log_time: 0,
            past: VecDeque::new(),
            steps: Vec::new(),
            pause: None,
            retained,
            due: VecDeque::new(),
            next_sequence: sequence,
            messages: 0,
            bytes: 0,
            lost: 0,
            missing: Vec::new(),
            quiet,
        }
    }

    /// Takes at most `limit` messages of a run, up to the position `end`. Returns whether it reached `end`.
    pub(super) fn run(
        &mut self,
        run: &mut InPlace<'_>,
        limit: u64,
        end: u64,
    ) -> Result<bool, Failure> {
        let (bytes, entries) = (self.buffer.used, self.buffer.entries.len());
        let (origins, losses) = (self.buffer.origins.len(), self.buffer.losses.len());
        let (mut messages, mut reached_end) = (0, false);
        let (before, pause, mut done) = (self.next_sequence, self.pause, 0);
        let mut due = self.due_at(done);
        while messages < limit && !self.buffer.is_full() {
            let Some(message) = run.next() else { break };
            if message.position() >= end {
                reached_end = true;
                break;
            }
            while message.position() >= due {
                self.take_effect(done);
                done += 1;
                due = self.due_at(done);
            }
            let sequence = message.sequence();
            let retention = match (message.is_retained(), message.is_cleared()) {
                (_, true) => Retention::Cleared,
                (true, false) => Retention::Value,
                (false, false) => Retention::None,
            };
            let is_message = retention == Retention::None;
            if !message.is_retained() {
                self.next_sequence = sequence.wrapping_add(1);
            }
            let Some(topic) = self.topic(message.topic(), message.to_descendants()) else {
                continue;
            };
            if !is_message {
                self.mark_retained(topic);
            }
            if let Some(pause) = &mut self.pause
                // Where the pause ends, the values come that changed meanwhile. One that was cleared is none of them.
                && retention != Retention::Cleared
            {
                pause.messages = pause.messages.saturating_add(is_message.into());
                continue;
            }
            self.fired |= is_message && self.fires.get(topic as usize).copied().unwrap_or(false);
            let log_time = self.time_of(message.position());
            let payload = message.payload();
            payload.copy_to(0, self.buffer.space(payload.len()));
            let origin = message.origin().map(|origin| (origin, message.number()));
            let times = (log_time, message.timestamp());
            self.buffer.push_message((topic, retention), sequence, times, origin);
            messages += u64::from(is_message);
        }
        // Of the messages, each that was published after a step is read after it. The note about the step comes before all.
        let step = self.clock.step();
        let is_valid = run.validate();
        if let Some(step) = step {
            self.remark(&step);
            self.note_at(entries, step, before);
        }
        let entries = entries + usize::from(step.is_some());
        if let Err(error) = is_valid {
            // What was copied may be torn. It is part of the loss.
            self.buffer.used = bytes;
            self.buffer.entries.truncate(entries);
            self.buffer.origins.truncate(origins);
            self.buffer.losses.truncate(losses);
            self.next_sequence = before;
            self.pause = pause;
            self.missing.clear();
            self.loss(error)?;
            // The place of what has taken effect is in the loss.
            (0..done).for_each(|index| self.take_effect(index));
            self.answer(done);
            return Ok(reached_end);
        }
        self.answer(done);
        self.messages += messages;
        self.bytes += (self.buffer.used - bytes) as u64;
        self.hand_on_if_due()?;
        Ok(reached_end)
    }

    /// Takes a loss. Other errors are failures.
    pub(super) fn loss(&mut self, error: ReceiveError) -> Result<(), Failure> {
        let loss = match &error {
            ReceiveError::Lapped { lost_messages, lost_bytes } => {
                RecordedLoss::lapse(self.next_sequence, *lost_messages, *lost_bytes)
            }
            ReceiveError::Lost(lost) => RecordedLoss::on_the_way(self.next_sequence, lost),
            ReceiveError::ValueMissing { topic, length, .. } => {
                let Some(number) = self.topic(topic, false) else { return Ok(()) };
                self.mark_retained(number);
                RecordedLoss::value(self.next_sequence, topic, *length)
            }
            _ => return Err(error.into()),
        };
        if matches!(error, ReceiveError::Lapped { .. }) {
            self.next_sequence = self.next_sequence.wrapping_add(loss.messages);
        }
        if let Some(pause) = &mut self.pause {
            // Where the pause ends, the values are reported that are missing then. They are no messages of the pause.
            if loss.of_value().is_none() {
                pause.messages = pause.messages.saturating_add(loss.messages);
            }
            return Ok(());
        }
        self.report(&error, loss.messages);
        self.push_loss(loss);
        self.hand_on_if_due()
    }

    /// Counts a loss, and reports it on standard error.
    fn report(&mut self, error: &ReceiveError, messages: u64) {
        if !self.quiet {
            toroni_shell::note::loss(&toroni_shell::exchange::loss_text(error));
        }
        self.lost = self.lost.saturating_add(messages);
    }

    /// Reports the values that were missing where a pause has ended.
    fn report_missing(&mut self) {
        for missing in std::mem::take(&mut self.missing) {
            self.report(&missing, 1);
        }
    }

    fn push_loss(&mut self, loss: RecordedLoss) {
        let log_time = self.next_time();
        self.buffer.entries.push(Entry {
            what: What::Loss,
            sequence: loss.from_sequence,
            log_time,
            publish_time: log_time,
            end: self.buffer.used,
        });
        self.buffer.losses.push(loss);
    }

    /// Returns the number of a topic, or `None` if it is excluded.
    #[inline]
    fn topic(&mut self, name: &str, to_descendants: bool) -> Option<u32> {
        if self.last.0 == name && self.last.1 == to_descendants && !name.is_empty() {
            return self.last.2;
        }
        self.other_topic(name, to_descendants)
    }

    #[inline(never)]
    fn other_topic(&mut self, name: &str, to_descendants: bool) -> Option<u32> {
        let key = (name.to_owned(), to_descendants);
        let number = if let Some(known) = self.topics.get(&key) {
            *known
        } else {
            let is_excluded = self.exclude.iter().any(|pattern| pattern.matches(name));
            let number = (!is_excluded).then_some(self.topic_count);
            if number.is_some() {
                self.fires.push(trigger::matches(&self.trigger, name, to_descendants));
                self.buffer.topics.push(Topic { name: name.to_owned(), to_descendants });
                self.topic_count += 1;
            }
            self.topics.insert(key, number);
            if let (Some(number), Some(retained)) = (number, &mut self.retained) {
                retained.add(name);
                // It may be retained by what is not published to descendants, or by what is.
                let other = self.topics.get(&(name.to_owned(), !to_descendants)).copied().flatten();
                let known = other.and_then(|other| retained.topics.get(other as usize));
                if known.is_some_and(|known| known.is_retained) {
                    self.mark_retained(number);
                }
            }
            number
        };
        self.last.0.clear();
        self.last.0.push_str(name);
        (self.last.1, self.last.2) = (to_descendants, number);
        number
    }

    /// Notes that a topic is retained.
    fn mark_retained(&mut self, topic: u32) {
        let Some(retained) = &mut self.retained else { return };
        let Some(known) = retained.topics.get(topic as usize) else { return };
        if known.is_retained {
            return;
        }
        let name = known.name.clone();
        for to_descendants in [false, true] {
            let number = self.topics.get(&(name.clone(), to_descendants)).copied().flatten();
            if let Some(number) = number
                && let Some(known) = retained.topics.get_mut(number as usize)
                && !std::mem::replace(&mut known.is_retained, true)
            {
                self.buffer.retained.push(number);
            }
        }
    }

    /// Finds out which topics in the buffer are retained.
    fn find_retained(&mut self) {
        let Some(retained) = &mut self.retained else { return };
        let topics = self.buffer.entries.iter().filter_map(|entry| match entry.what {
            What::Message { topic, .. } => Some(topic),
            _ => None,
        });
        for topic in retained.found(topics) {
            self.mark_retained(topic);
        }
    }

    /// Adds the values that changed from this sequence on, as after a loss.
    fn push_values(&mut self, from: u64) {
        let Some(retained) = &self.retained else { return };
        let span = from..self.next_sequence;
        let all = retained.patterns.iter().map(|pattern| retained.bus.retained_matching(pattern));
        let mut due = BTreeMap::new();
        for value in all.flatten().flatten() {
            let (sequence, value) = match value {
                Ok(value) => (value.sequence(), Ok(value)),
                Err(RetainedError::Missing { topic, sequence, length }) => {
                    (sequence, Err((topic, length)))
                }
                // One that changes all the time has a newer message in the stream.
                Err(_) => continue,
            };
            if span.contains(&sequence) {
                due.insert(sequence, value);
            }
        }
        for (sequence, value) in due {
            let value = match value {
                Ok(value) => value,
                Err((topic, length)) => {
                    if let Some(number) = self.topic(&topic, false) {
                        self.mark_retained(number);
                        self.push_loss(RecordedLoss::value(self.next_sequence, &topic, length));
                        self.missing.push(ReceiveError::ValueMissing { topic, sequence, length });
                    }
                    continue;
                }
            };
            let to_descendants = value.to_descendants();
            let Some(topic) = self.topic(value.topic(), to_descendants) else { continue };
            self.mark_retained(topic);
            let payload = value.payload();
            self.buffer.space(payload.len()).copy_from_slice(payload);
            let origin = value.origin().map(|origin| (origin, value.number()));
            let times = (self.next_time(), value.timestamp());
            self.buffer.push_message((topic, Retention::Value), sequence, times, origin);
        }
    }

    /// Returns when a message came: now, or a time of the past.
    #[inline]
    fn time_of(&mut self, position: u64) -> u64 {
        while self.past.front().is_some_and(|mark| position >= mark.position) {
            self.past.pop_front();
        }
        self.next_time()
    }

    /// Returns the time of what comes next: now, or that of the next messages of the past.
    #[inline]
    fn next_time(&mut self) -> u64 {
        let time = match self.past.front() {
            Some(mark) => mark.time_ns,
            None => self.clock.now_ns(),
        };
        self.log_time = self.log_time.max(time);
        self.log_time
    }

    /// Does what is due while nothing is recorded.
    pub(super) fn wait(&mut self) {
        if let Some(step) = self.clock.step() {
            self.remark(&step);
            if self.steps.len() == MOST_STEPS {
                self.steps.remove(0);
            }
            self.steps.push(step);
        }
    }

    /// Begins a file with messages of the past.
    pub(super) fn begin(&mut self, past: VecDeque<Mark>) {
        self.past = past;
        // Before the messages: a note about a step says what their stamps may be ahead of.
        for step in std::mem::take(&mut self.steps) {
            self.push(What::Note(step));
        }
    }

    /// Takes something that is asked of the recorder, and takes effect at a position of the stream.
    pub(super) fn ask(&mut self, position: u64, request: Request, is_taken: bool) {
        self.due.push_back(Due { position, request, is_taken, done: None });
    }

    /// Whether something that was asked has not taken effect.
    pub(super) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    fn due_at(&self, index: usize) -> u64 {
        self.due.get(index).map_or(u64::MAX, |due| due.position)
    }

    /// Does what is asked up to a position. What was before has been read.
    pub(super) fn reach(&mut self, position: u64) {
        let count = self.due.iter().take_while(|due| due.position <= position).count();
        (0..count).for_each(|index| self.take_effect(index));
        self.answer(count);
    }

    /// Does what is asked, before the next entry of the buffer.
    fn take_effect(&mut self, index: usize) {
        let Some(due) = self.due.get_mut(index) else { return };
        due.is_taken = due.is_taken || due.request.take();
        if !due.is_taken {
            return;
        }
        let action = due.request.action;
        let is_paused = self.pause.is_some();
        let done = match action {
            Action::Split | Action::Snapshot => {
                self.push(What::Request);
                return;
            }
            Action::Pause if is_paused => ("it was paused before", None),
            Action::Resume if !is_paused => ("it was not paused", None),
            Action::Pause | Action::Toggle if !is_paused => ("paused", Some(self.pause())),
            Action::Pause | Action::Resume | Action::Toggle => ("resumed", self.resume()),
        };
        if let Some(due) = self.due.get_mut(index) {
            due.done = Some(done);
        }
    }

    /// Answers what has taken effect, or has the writer do so.
    fn answer(&mut self, count: usize) {
        for due in self.due.drain(..count).filter(|due| due.is_taken) {
            match due.done {
                Some((text, note)) => {
                    if let Some(note) = note
                        && !self.quiet
                    {
                        toroni_shell::note::remark(&note.to_string());
                    }
                    due.request.answer(Ok(text.to_owned()));
                }
                None => self.buffer.requests.push(due.request),
            }
        }
        self.report_missing();
    }

    /// Does what is due while no messages come.
    pub(super) fn tick(&mut self) -> Result<(), Failure> {
        // What was there of the past has been read.
        self.past.clear();
        self.reach(u64::MAX);
        if let Some(step) = self.clock.step() {
            self.remark(&step);
            self.push(What::Note(step));
        }
        self.hand_on()
    }

    /// Adds an entry without payload.
    fn push(&mut self, what: What) {
        let (sequence, log_time, end) = (self.next_sequence, self.next_time(), self.buffer.used);
        self.buffer.entries.push(Entry { what, sequence, log_time, publish_time: log_time, end });
    }

    fn remark(&self, note: &RecordedNote) {
        if !self.quiet {
            toroni_shell::note::remark(&note.to_string());
        }
    }

    /// Inserts a note before an entry of the buffer, which has this sequence.
    fn note_at(&mut self, index: usize, note: RecordedNote, sequence: u64) {
        let end = index.checked_sub(1).map_or(0, |before| self.buffer.entries[before].end);
        // It has the time of the entry, so that times do not decrease.
        let next = self.buffer.entries.get(index).map(|next| next.log_time);
        let log_time = next.unwrap_or_else(|| self.next_time());
        let (what, publish_time) = (What::Note(note), log_time);
        self.buffer.entries.insert(index, Entry { what, sequence, log_time, publish_time, end });
    }

    /// Whether there is something to hand on.
    pub(super) fn has_some(&self) -> bool {
        !self.buffer.is_empty()
    }

    fn hand_on_if_due(&mut self) -> Result<(), Failure> {
        let began = *self.began.get_or_insert_with(Instant::now);
        if self.buffer.is_full() || began.elapsed() >= HAND_ON_AFTER {
            self.hand_on()?;
        }
        Ok(())
    }

    /// Hands the buffer to the writer, and waits for a free one.
    pub(super) fn hand_on(&mut self) -> Result<(), Failure> {
        self.began = None;
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.find_retained();
        let next = loop {
            match self.free.recv_timeout(CHECK_EVERY) {
                Ok(buffer) => break buffer,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(writer_ended()),
            }
        };
        let buffer = std::mem::replace(&mut self.buffer, next);
        self.full.send(buffer).map_err(|_| writer_ended())
    }

    /// Begins a pause. Returns the note about it.
    fn pause(&mut self) -> RecordedNote {
        let note = RecordedNote::Paused;
        self.push(What::Note(note));
        let (began_ns, from) = (self.clock.now_ns(), self.next_sequence);
        self.pause = Some(Pause { began_ns, messages: 0, from });
        note
    }

    /// Ends the pause. Returns the note about it, if there was one.
    fn resume(&mut self) -> Option<RecordedNote> {
        let Pause { began_ns, messages, from } = self.pause.take()?;
        let paused_ns = self.clock.now_ns().saturating_sub(began_ns);
        let note = RecordedNote::Resumed { messages, paused_ns };
        self.push(What::Note(note));
        self.push_values(from);
        Some(note)
    }

    /// Ends the file: the next message begins another one. A pause ends with it.
    pub(super) fn end_file(&mut self) -> Result<(), Failure> {
        for due in self.due.drain(..) {
            due.request.answer(Err("the recording has ended before".to_owned()));
        }
        if let Some(note) = self.resume() {
            self.remark(&note);
        }
        self.report_missing();
        self.buffer.ends_file = true;
        self.hand_on()
    }
}

/// The writer has failed, and says why when it is joined.
fn writer_ended() -> Failure {
    Failure::Failed("the thread that writes the file has ended".to_owned())
}
