//! Subscribers: what they must receive, and what they may lose.

use super::act::{act, bury};
use super::state::{Note, State};
use super::values::Kept;
use super::writers::topics;
use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use toroni::{Borrowed, Continue, Message, Origin, ReceiveError, Subscriber, SubscriberError};
use toroni_oracle::topics::{intersect, matches, matches_descendants};
use toroni_oracle::{By, Model, NoSuchStart, Policy, RecordStart, Start, body, record_bytes};

const MOMENT: Duration = Duration::from_micros(30);
/// The most bytes of small records that a subscriber copies out of the ring at once. It delivers these copies even if
/// the records are overwritten.
const WINDOW_BYTES: u64 = 4096;
const SMALL_RECORD_BYTES: u64 = 264;

const PATTERNS: [&[&str]; 9] = [
    &["**"],
    &["a/**"],
    &["a/*"],
    &["plant/boiler/temperature", "x"],
    &["**/c", "long/**"],
    &["*"],
    &[],
    &["plant/**", "**/boiler"],
    &["long/*/1", "long/*/20", "plant/boiler/*/**"],
];

/// What a subscriber asks for.
#[derive(Clone, Copy)]
pub(super) struct Wish {
    pub(super) start: Start,
    pub(super) patterns: u8,
    pub(super) gating: bool,
    pub(super) local_only: bool,
    pub(super) newest: bool,
    pub(super) retained: bool,
}

/// A subscriber, and where it is.
pub(super) struct Reader {
    pub(super) subscriber: Subscriber,
    patterns: &'static [&'static str],
    pub(super) gating: bool,
    local_only: bool,
    /// It continues with the newest message after a loss.
    newest: bool,
    /// The number of the message that it looks at next.
    next: u64,
    /// Messages before this may have left the ring for it.
    taken: u64,
    /// The position that it has published is one of these.
    pub(super) told: RangeInclusive<u64>,
    pub(super) received: u64,
    pub(super) lost: u64,
    pub(super) lapses: u64,
    /// How often it was lapped by what is for others alone, and reported nothing.
    pub(super) passed_laps: u64,
    /// It asked for values.
    retained: bool,
    values: DueValues,
    /// Values that it has received.
    joined: u64,
    /// Of these, those after a loss.
    healed: u64,
    /// Losses on the way to the bus, and the messages that these state.
    losses: (u64, u64),
}

/// The values that a subscriber must receive before the stream.
#[derive(Default)]
struct DueValues {
    /// Sequence and topic, the next one last. A newer message of the topic is in the stream.
    due: Vec<(u64, usize)>,
    /// They are those that changed within a loss, so one that was cleared counts, too.
    heal: bool,
}

/// What a call came to.
#[derive(PartialEq, Eq)]
enum Step {
    Message,
    Value,
    MissingValue,
    Loss,
    Nothing,
    Lapped,
}

impl Reader {
    /// Whether it has read all.
    pub(super) fn is_at(&self, model: &Model) -> bool {
        self.next == model.count() as u64
    }

    fn wants(&self, note: &Note, topics: &[String]) -> bool {
        if self.local_only && (note.origin.is_some() || note.loss.is_some()) {
            return false;
        }
        if let Some(loss) = &note.loss {
            let mut scope = loss.scope.iter().map(|pattern| pattern.as_str());
            return scope.any(|lost| self.patterns.iter().any(|mine| intersect(mine, lost)));
        }
        if note.is_cleared && !self.retained {
            return false;
        }
        let topic = &topics[note.topic];
        self.patterns.iter().any(|pattern| {
            matches(pattern, topic) || note.to_descendants && matches_descendants(pattern, topic)
        })
    }
}

impl State {
    pub(super) fn subscribe(&mut self, number: usize, wish: Wish, die_at: u8) {
        let Wish { start, patterns, gating, local_only, newest, retained } = wish;
        self.unsubscribe(number, 0);
        let patterns = PATTERNS[usize::from(patterns) % PATTERNS.len()];
        let (start, expected) = match start {
            Start::Latest => (toroni::Start::Latest, Ok(self.model.stored_end())),
            Start::Oldest => {
                (toroni::Start::Oldest, Ok(self.model.first_from(self.model.oldest())))
            }
            Start::Back(back) => {
                let (capacity, end) = (self.model.capacity(), self.model.end());
                let position = Start::position(back, capacity, end);
                if back % 4 == 1 {
                    // The same place by its sequence; beyond the end at the least.
                    let first = self.model.first_from(position).sequence;
                    let sequence = first + u64::from(position > end);
                    (toroni::Start::Sequence(sequence), self.model.start_at_sequence(sequence))
                } else {
                    (toroni::Start::Position(position), self.model.start_at(position))
                }
            }
        };
        let mut builder = self.bus.subscriber().start(start).gating(gating).local_only(local_only);
        builder = builder.retained(retained);
        if newest {
            builder = builder.after_loss(Continue::Newest);
        }
        for pattern in patterns {
            builder = builder.pattern(*pattern);
        }
        let (_, built) = act(die_at, false, || builder.build());
        let Some(built) = built else {
            self.tally.deaths += 1;
            return;
        };
        let subscriber = match (built, expected) {
            (Ok(subscriber), Ok(first)) => {
                assert_eq!(subscriber.position(), first.position, "{start:?}");
                let (next, told) = (first.sequence, first.position..=first.position);
                let mut reader = Reader {
                    subscriber,
                    patterns,
                    gating,
                    local_only,
                    newest,
                    next,
                    taken: next,
                    told,
                    received: 0,
                    lost: 0,
                    lapses: 0,
                    passed_laps: 0,
                    retained,
                    values: DueValues::default(),
                    joined: 0,
                    healed: 0,
                    losses: (0, 0),
                };
                reader.gather_values(self, None);
                Some(reader)
            }
            (Err(SubscriberError::NotAPosition { .. }), Err(NoSuchStart::NotAPosition)) => None,
            (
                Err(
                    SubscriberError::PositionAhead { end: found, .. }
                    | SubscriberError::SequenceAhead { end: found, .. },
                ),
                Err(NoSuchStart::Ahead { end }),
            ) => {
                assert_eq!(found, end);
                None
            }
            (
                Err(
                    SubscriberError::PositionLost { oldest: found, .. }
                    | SubscriberError::SequenceLost { oldest: found, .. },
                ),
                Err(NoSuchStart::Lost { oldest }),
            ) => {
                assert_eq!(found, oldest);
                None
            }
            (built, expected) => panic!("{start:?} came to {built:?}, and not to {expected:?}"),
        };
        self.tally.refused += u64::from(subscriber.is_none());
        self.readers[number] = subscriber;
    }

    pub(super) fn unsubscribe(&mut self, number: usize, die_at: u8) {
        let mut slot = self.readers[number].take();
        let (_, lived) = act(die_at, false, || drop(slot.take()));
        if lived.is_none() {
            self.tally.deaths += 1;
            bury(slot);
        }
    }

    pub(super) fn receive(&mut self, number: usize, most: u8, by: By, die_at: u8) {
        let Some(mut reader) = self.readers[number].take() else { return };
        let topics = topics();
        let before =
            (reader.received, reader.lost, reader.lapses, reader.losses.0, reader.passed_laps);
        let values = (reader.joined, reader.healed);
        let (this, place) = (&*self, &mut reader);
        let (_, lived) = act(die_at, false, || {
            for _ in 0..most {
                if place.step(this, by, &topics) == Step::Nothing {
                    break;
                }
            }
        });
        self.tally.received += reader.received - before.0;
        self.tally.lost += reader.lost - before.1;
        self.tally.lapses += reader.lapses - before.2;
        self.tally.passed_laps += reader.passed_laps - before.4;
        self.tally.told += reader.losses.0 - before.3;
        self.tally.joined += reader.joined - values.0;
        self.tally.healed += reader.healed - values.1;
        if lived.is_some() {
            self.readers[number] = Some(reader);
        } else {
            self.tally.deaths += 1;
            bury(reader);
        }
    }

    /// Where a subscriber that was lapped continues.
    fn margin(&self) -> u64 {
        let part = if self.setup.policy == Policy::Overwrite { 4 } else { 8 };
        self.model.capacity() / part
    }
}

impl Reader {
    fn step(&mut self, state: &State, by: By, topics: &[String]) -> Step {
        if let Some(step) = self.step_to_value(state, by, topics) {
            return step;
        }
        let model = &state.model;
        let count = model.count() as u64;
        let expected = self.expected(state, topics);
        // The first that must still be in the ring.
        let looked_at = self.next.max(self.taken);
        let lapped = looked_at < count && model.is_lapped(model.start(looked_at));
        let block = model.block_bytes();
        let at_least = model.start(self.next).saturating_sub(block).max(*self.told.start());
        let step = match self.call(by, state, expected, topics) {
            Ok(true) => {
                let number = expected.unwrap();
                assert!(number < looked_at || !lapped, "message {number} was overwritten");
                Step::Message
            }
            Ok(false) => {
                assert!(expected.is_none(), "nothing, and message {expected:?} is there");
                // Nothing of what was overwritten was for it.
                self.passed_laps += u64::from(lapped);
                (self.next, self.taken) = (count, count);
                Step::Nothing
            }
            Err(ReceiveError::Lost(lost)) => {
                let number = expected.unwrap();
                assert!(number < looked_at || !lapped, "loss {number} was overwritten");
                let note = &state.notes[usize::try_from(number).unwrap()];
                assert_eq!(note.loss.as_ref(), Some(&lost), "the order");
                self.losses.0 += 1;
                self.losses.1 += lost.messages;
                self.pass(model, number);
                Step::Loss
            }
            Err(ReceiveError::Lapped { lost_messages, lost_bytes }) => {
                let to = self.resumption(state, topics);
                let from = to.sequence.checked_sub(lost_messages).unwrap();
                let first = expected.unwrap_or(count);
                assert!(
                    (self.next..=looked_at.min(first)).contains(&from),
                    "{lost_messages} lost before {to:?}, from {} or {looked_at}",
                    self.next
                );
                assert!(model.is_lapped(model.start(from)), "message {from} is there");
                assert_eq!(lost_bytes, to.position - model.start(from));
                self.lost += lost_messages;
                self.lapses += 1;
                (self.next, self.taken) = (to.sequence, to.sequence);
                self.gather_values(state, Some(from));
                Step::Lapped
            }
            Err(error) => panic!("{error}"),
        };
        if by == By::Run && step == Step::Message {
            // It may have passed over some that are for others.
            let passed = model.first_from(self.subscriber.position()).sequence;
            let most = self.expected(state, topics).unwrap_or(count);
            assert!((self.next..=most).contains(&passed), "at {passed}, not {}", self.next);
            self.next = passed;
        }
        assert_eq!(self.subscriber.position(), model.start(self.next));
        assert_eq!(
            self.subscriber.lag_bytes(),
            model.stored_end().position.saturating_sub(model.start(self.next))
        );
        let stats = self.subscriber.stats();
        let counts = (stats.received, stats.lost_messages, stats.lapses);
        assert_eq!(counts, (self.received, self.lost, self.lapses));
        assert_eq!((stats.losses, stats.lost_on_the_way), self.losses);
        self.told = match step {
            Step::Message if matches!(by, By::InPlace | By::Run) => {
                at_least..=model.start(self.taken.max(self.next))
            }
            Step::Message | Step::Value | Step::MissingValue | Step::Loss => {
                let here = model.start(self.next).saturating_sub(block).max(at_least);
                here..=model.start(self.taken.max(self.next))
            }
            Step::Nothing | Step::Lapped => model.start(self.next)..=model.start(self.next),
        };
        step
    }

    /// Notes the values that are due, those from this sequence on.
    fn gather_values(&mut self, state: &State, from: Option<u64>) {
        let newest = |topic: usize| {
            let newest = state.values.newest(topic)?;
            let is_of_loss = from.is_none_or(|from| newest.sequence >= from);
            let is_due = self.retained && newest.sequence < self.next && is_of_loss;
            is_due.then_some((newest.sequence, topic))
        };
        let mut due: Vec<_> = state.values.topics().filter_map(newest).collect();
        due.sort_unstable_by(|a, b| b.cmp(a));
        self.values = DueValues { due, heal: from.is_some() };
    }

    /// The next value that this subscriber must receive, or be told to be missing.
    fn next_value(&mut self, state: &State, topics: &[String]) -> Option<(u64, Kept)> {
        while let Some((sequence, topic)) = self.values.due.pop() {
            let newest = state.values.newest(topic).expect("it was retained");
            let note = &state.notes[usize::try_from(sequence).unwrap()];
            if newest.sequence != sequence || !self.wants(note, topics) {
                continue;
            }
            match state.kept(topic) {
                // It was cleared.
                Kept::Nothing if self.values.heal => return Some((sequence, Kept::Nothing)),
                Kept::Nothing => {}
                kept => return Some((sequence, kept)),
            }
        }
        None
    }

    /// Receives a value, if one is due.
    fn step_to_value(&mut self, state: &State, by: By, topics: &[String]) -> Option<Step> {
        let (sequence, kept) = self.next_value(state, topics)?;
        assert!(!self.subscriber.is_current(), "value {sequence} is due");
        let position = self.subscriber.position();
        let compare = |found: &dyn Found| {
            assert!(found.is_value(), "a value");
            assert_ne!(kept, Kept::Missing(sequence));
            compare(state, Some(sequence), found, topics);
        };
        let received = match by {
            By::InPlace => self.subscriber.borrow().map(|found| {
                let found = found.expect("a value");
                compare(&found);
                found.validate().unwrap();
            }),
            By::Run => self.subscriber.try_receive_in_place().map(|run| {
                let mut run = run.expect("a value");
                let mut numbers = 0;
                for found in run.by_ref() {
                    compare(&found);
                    numbers += 1;
                }
                run.validate().unwrap();
                assert_eq!(numbers, 1, "a value comes alone");
            }),
            By::Waiting => {
                self.subscriber.receive_timeout(MOMENT).map(|found| compare(&found.unwrap()))
            }
            By::Copy => self.subscriber.try_receive().map(|found| compare(&found.unwrap())),
        };
        let step = match (received, kept) {
            (Ok(()), _) => {
                self.received += 1;
                self.joined += 1;
                self.healed += u64::from(self.values.heal);
                Step::Value
            }
            (
                Err(ReceiveError::ValueMissing { topic, sequence: found, length }),
                Kept::Missing(_) | Kept::Perhaps(_),
            ) => {
                let note = &state.notes[usize::try_from(sequence).unwrap()];
                state.check_missing((&topics[note.topic], sequence), (&topic, found, length));
                Step::MissingValue
            }
            (Err(error), kept) => panic!("{error}, and not {kept:?}"),
        };
        assert_eq!(self.subscriber.position(), position, "a value is no position");
        let at_least = state.model.start(self.next).saturating_sub(state.model.block_bytes());
        let at_least = at_least.max(*self.told.start());
        self.told = at_least..=state.model.start(self.taken.max(self.next));
        assert_eq!(self.subscriber.stats().received, self.received);
        Some(step)
    }

    /// The number of the next message or loss that is for this subscriber.
    fn expected(&self, state: &State, topics: &[String]) -> Option<u64> {
        let wanted =
            |number: &u64| self.wants(&state.notes[usize::try_from(*number).unwrap()], topics);
        (self.next..state.model.count() as u64).find(wanted)
    }

    /// Has received the message or the loss of this number.
    fn pass(&mut self, model: &Model, number: u64) {
        self.next = number + 1;
        // One that wants the newest takes each message by itself.
        let taken = if self.newest { self.next } else { behind_window(model, number) };
        self.taken = self.taken.max(taken);
    }

    /// Where it continues after it was lapped.
    fn resumption(&self, state: &State, topics: &[String]) -> RecordStart {
        let model = &state.model;
        let oldest = model.resumption(state.margin());
        if !self.newest {
            return oldest;
        }
        let end = model.stored_end();
        let is_wanted = |number: &u64| {
            let note = &state.notes[usize::try_from(*number).unwrap()];
            note.loss.is_none() && !note.is_cleared && self.wants(note, topics)
        };
        let newest = (oldest.sequence..end.sequence).rev().find(is_wanted);
        newest.map_or(end, |sequence| RecordStart { sequence, position: model.start(sequence) })
    }

    /// Whether there was a message, which is compared with what it should be.
    fn call(
        &mut self,
        by: By,
        state: &State,
        expected: Option<u64>,
        topics: &[String],
    ) -> Result<bool, ReceiveError> {
        match by {
            By::InPlace => {
                let Some(found) = self.subscriber.borrow()? else { return Ok(false) };
                compare(state, expected, &found, topics);
                found.validate()?;
            }
            By::Run => return self.call_for_run(state, expected, topics),
            By::Waiting | By::Copy => {
                let found = match by {
                    By::Waiting => self.subscriber.receive_timeout(MOMENT)?,
                    _ => self.subscriber.try_receive()?,
                };
                let Some(found) = found else { return Ok(false) };
                compare(state, expected, &found, topics);
                assert_eq!(found.next_position(), state.model.start(found.sequence() + 1));
            }
        }
        self.received += 1;
        self.pass(&state.model, expected.unwrap());
        Ok(true)
    }

    /// Receives messages in place. Between them, there is none for this subscriber, and no loss.
    fn call_for_run(
        &mut self,
        state: &State,
        expected: Option<u64>,
        topics: &[String],
    ) -> Result<bool, ReceiveError> {
        let mut numbers = Vec::new();
        let mut run = self.subscriber.try_receive_in_place()?;
        for found in run.iter_mut().flatten() {
            numbers.push(found.sequence());
            let first = numbers.len() == 1;
            compare(state, if first { expected } else { Some(found.sequence()) }, &found, topics);
        }
        if let Some(run) = &run {
            run.validate()?;
        }
        drop(run);
        for number in &numbers {
            assert_eq!(self.expected(state, topics), Some(*number), "the order in a run");
            self.received += 1;
            self.pass(&state.model, *number);
        }
        Ok(!numbers.is_empty())
    }
}

/// What the ways to receive have in common.
trait Found {
    fn sequence(&self) -> u64;
    fn position(&self) -> u64;
    fn topic(&self) -> &str;
    fn bytes(&self) -> Vec<u8>;
    fn time(&self) -> Option<SystemTime>;
    fn origin(&self) -> Option<Origin>;
    fn number(&self) -> Option<u64>;
    fn is_to_descendants(&self) -> bool;
    fn is_cleared(&self) -> bool;
    fn is_value(&self) -> bool;
}

macro_rules! found {
    ($type:ident) => {
        impl Found for $type<'_> {
            fn sequence(&self) -> u64 {
                self.sequence()
            }
            fn position(&self) -> u64 {
                self.position()
            }
            fn topic(&self) -> &str {
                self.topic()
            }
            fn bytes(&self) -> Vec<u8> {
                self.payload().to_vec()
            }
            fn time(&self) -> Option<SystemTime> {
                self.timestamp()
            }
            fn origin(&self) -> Option<Origin> {
                self.origin()
            }
            fn number(&self) -> Option<u64> {
                self.number()
            }
            fn is_to_descendants(&self) -> bool {
                self.to_descendants()
            }
            fn is_cleared(&self) -> bool {
                self.is_cleared()
            }
            fn is_value(&self) -> bool {
                self.is_retained()
            }
        }
    };
}

found!(Message);
found!(Borrowed);

fn compare(state: &State, expected: Option<u64>, found: &dyn Found, topics: &[String]) {
    let sequence = found.sequence();
    assert_eq!(Some(sequence), expected, "the order");
    let message = state.model.message(sequence).unwrap();
    let note = &state.notes[usize::try_from(sequence).unwrap()];
    assert_eq!(found.position(), message.start, "position of message {sequence}");
    assert_eq!(found.topic(), topics[note.topic], "topic of message {sequence}");
    assert_eq!(found.is_to_descendants(), note.to_descendants, "message {sequence}");
    assert_eq!((found.origin(), found.number()), (note.origin, note.number), "message {sequence}");
    assert_eq!(found.is_cleared(), note.is_cleared, "message {sequence}");
    assert_eq!(found.time().is_some(), note.has_time, "time of message {sequence}");
    if let Some(ns) = note.published_ns {
        assert_eq!(found.time(), Some(UNIX_EPOCH + Duration::from_nanos(ns)));
    }
    let length = (message.length - note.extensions) as usize;
    let payload = found.bytes();
    assert!(payload == body(message.stamp, length), "bytes of message {sequence}: {payload:?}");
}

/// The number of the first message that cannot have been taken out of the ring with this one.
fn behind_window(model: &Model, number: u64) -> u64 {
    let begin = model.start(number);
    let with = |number: &u64| {
        model.message(*number).is_some_and(|message| {
            let bytes = record_bytes(message.length);
            bytes <= SMALL_RECORD_BYTES && message.start + bytes <= begin + WINDOW_BYTES
        })
    };
    (number..).find(|number| !with(number)).unwrap().max(number + 1)
}
