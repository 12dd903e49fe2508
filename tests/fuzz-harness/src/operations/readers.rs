//! Subscribers: what they must receive, and what they may lose.

use super::act::{act, bury};
use super::state::{Note, State};
use super::writers::topics;
use std::ops::RangeInclusive;
use std::time::Duration;
use toroni::{ReceiveError, Subscriber, SubscriberError};
use toroni_oracle::topics::{matches, matches_descendants};
use toroni_oracle::{By, Model, NoSuchStart, Policy, Start, body, record_bytes};

const MOMENT: Duration = Duration::from_micros(30);
/// What a subscriber takes out of the ring at once: small records, up to so many bytes. They are its own
/// then, and delivered also if they are overwritten.
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

/// A subscriber, and where it is.
pub(super) struct Reader {
    pub(super) subscriber: Subscriber,
    patterns: &'static [&'static str],
    pub(super) gating: bool,
    /// The number of the message that it looks at next.
    next: u64,
    /// Messages before this may have left the ring for it.
    taken: u64,
    /// The position that it has published is one of these.
    pub(super) told: RangeInclusive<u64>,
    pub(super) received: u64,
    pub(super) lost: u64,
    pub(super) lapses: u64,
}

/// What a call came to.
#[derive(PartialEq, Eq)]
enum Step {
    Message,
    Nothing,
    Lapped,
}

impl Reader {
    /// Whether it has read all.
    pub(super) fn is_at(&self, model: &Model) -> bool {
        self.next == model.count() as u64
    }

    fn wants(&self, note: &Note, topics: &[String]) -> bool {
        let topic = &topics[note.topic];
        self.patterns.iter().any(|pattern| {
            matches(pattern, topic) || note.to_descendants && matches_descendants(pattern, topic)
        })
    }
}

impl State {
    pub(super) fn subscribe(
        &mut self,
        number: usize,
        start: Start,
        patterns: u8,
        gating: bool,
        die_at: u8,
    ) {
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
        let mut builder = self.bus.subscriber().start(start).gating(gating);
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
                Some(Reader {
                    subscriber,
                    patterns,
                    gating,
                    next,
                    taken: next,
                    told,
                    received: 0,
                    lost: 0,
                    lapses: 0,
                })
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
        let before = (reader.received, reader.lost, reader.lapses);
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
        let model = &state.model;
        let count = model.count() as u64;
        let wanted =
            |number: &u64| self.wants(&state.notes[usize::try_from(*number).unwrap()], topics);
        let expected = (self.next..count).find(wanted);
        // The first that must still be in the ring.
        let looked_at = self.next.max(self.taken);
        let lapped = looked_at < count && model.is_lapped(model.start(looked_at));
        let block = model.block_bytes();
        let at_least = model.start(self.next).saturating_sub(block).max(*self.told.start());
        let step = match self.call(by, state, expected, topics) {
            Ok(true) => {
                let number = expected.unwrap();
                assert!(number < looked_at || !lapped, "message {number} was overwritten");
                self.received += 1;
                self.next = number + 1;
                self.taken = self.taken.max(behind_window(model, number));
                Step::Message
            }
            Ok(false) => {
                assert!(expected.is_none(), "nothing, and message {expected:?} is there");
                assert!(!lapped, "nothing, and message {looked_at} was overwritten");
                (self.next, self.taken) = (count, count);
                Step::Nothing
            }
            Err(ReceiveError::Lapped { lost_messages, lost_bytes }) => {
                let to = model.resumption(state.margin());
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
                Step::Lapped
            }
            Err(error) => panic!("{error}"),
        };
        assert_eq!(self.subscriber.position(), model.start(self.next));
        assert_eq!(
            self.subscriber.lag_bytes(),
            model.stored_end().position.saturating_sub(model.start(self.next))
        );
        let stats = self.subscriber.stats();
        let counts = (stats.received, stats.lost_messages, stats.lapses);
        assert_eq!(counts, (self.received, self.lost, self.lapses));
        self.told = match step {
            Step::Message if by == By::InPlace => at_least..=model.start(self.taken.max(self.next)),
            Step::Message => {
                let here = model.start(self.next).saturating_sub(block).max(at_least);
                here..=model.start(self.taken.max(self.next))
            }
            Step::Nothing | Step::Lapped => model.start(self.next)..=model.start(self.next),
        };
        step
    }

    /// Whether there was a message, which is compared with what it should be.
    fn call(
        &mut self,
        by: By,
        state: &State,
        expected: Option<u64>,
        topics: &[String],
    ) -> Result<bool, ReceiveError> {
        let timestamps = state.setup.timestamps;
        if by == By::InPlace {
            let Some(found) = self.subscriber.borrow()? else { return Ok(false) };
            let (sequence, position) = (found.sequence(), found.position());
            compare(
                state,
                expected,
                sequence,
                position,
                found.topic(),
                &found.payload().to_vec(),
                topics,
            );
            assert_eq!(found.timestamp().is_some(), timestamps);
            found.validate()?;
            return Ok(true);
        }
        let found = match by {
            By::Waiting => self.subscriber.receive_timeout(MOMENT)?,
            _ => self.subscriber.try_receive()?,
        };
        let Some(found) = found else { return Ok(false) };
        let (sequence, position) = (found.sequence(), found.position());
        compare(state, expected, sequence, position, found.topic(), found.payload(), topics);
        let number = usize::try_from(sequence).unwrap();
        assert_eq!(found.to_descendants(), state.notes[number].to_descendants);
        assert_eq!(found.timestamp().is_some(), timestamps);
        assert_eq!(found.next_position(), state.model.start(sequence + 1));
        Ok(true)
    }
}

fn compare(
    state: &State,
    expected: Option<u64>,
    sequence: u64,
    position: u64,
    topic: &str,
    payload: &[u8],
    topics: &[String],
) {
    assert_eq!(Some(sequence), expected, "the order");
    let message = state.model.message(sequence).unwrap();
    let note = &state.notes[usize::try_from(sequence).unwrap()];
    assert_eq!(position, message.start, "position of message {sequence}");
    assert_eq!(topic, topics[note.topic], "topic of message {sequence}");
    let length = (message.length - note.extensions) as usize;
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
