//! Retained topics: who may declare them, and what other programs read.

use super::act::{CrashPoint, act};
use super::state::{INLETS, Note, State, WRITERS};
use super::writers::{Writer, extensions_of, topics};
use std::collections::BTreeMap;
use toroni::{PublishError, RetainError, RetainedError, RetainedMessage, ValueStats};
use toroni_oracle::{Newest, Room, body, record_bytes};

/// Topics that can be retained: fewer than there are.
pub(super) const MOST_VALUES: u32 = 5;
/// Room for values: not for the longest messages, and not for long ones of each topic.
pub(super) const VALUE_BYTES: u64 = 32 << 10;

/// What a topic has.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Nothing,
    /// The message of this sequence.
    Message(u64),
    /// The message of this sequence, or the news that it is missing.
    Perhaps(u64),
    /// The message of this sequence is missing.
    Missing(u64),
}

impl State {
    pub(super) fn retain(&mut self, writer: u8, topic: u8, die_at: u8) {
        let number = usize::from(topic % 128) % topics().len();
        let writer = usize::from(writer % (WRITERS + INLETS));
        match writer.checked_sub(WRITERS.into()) {
            Some(inlet) => self.retain_of_inlet(inlet, number),
            None => self.retain_of_writer(writer, topic, number, die_at),
        }
    }

    fn retain_of_writer(&mut self, writer: usize, topic: u8, number: usize, die_at: u8) {
        let exclusively = self.exclusive == Some(writer) && topic & 0x60 != 0x60;
        let is_kept_out = self.exclusive.is_some() && !exclusively;
        let mut slot = self.writers[writer].take();
        let mut is_inline = false;
        let (this, place, inline) = (&*self, &mut slot, &mut is_inline);
        let (reached, outcome) = act(die_at, self.setup.robust, || {
            let writer = Writer::opened(place, writer, this);
            let topic = &topics()[number];
            let handle = writer.handle(number, topic, false, exclusively);
            (_, *inline) = extensions_of(&handle, this, topic);
            writer.retain(number, topic, exclusively)
        });
        self.writers[writer] = slot;
        self.learn_topic(number);
        let Some(outcome) = outcome else {
            if reached.contains(&CrashPoint::AfterLock) {
                self.model.stored = self.model.count();
            }
            match reached.last() {
                Some(CrashPoint::MidDeclaration) => self.values.declare_halfway(number),
                _ if reached.contains(&CrashPoint::MidDeclaration) => {
                    self.values.declare(number).unwrap();
                }
                _ => {}
            }
            return self.bury_writer(writer);
        };
        self.settle_retain(number, is_inline, is_kept_out, outcome);
    }

    fn retain_of_inlet(&mut self, inlet: usize, number: usize) {
        let Some(bridge) = &mut self.bridges[inlet] else { return };
        let Some(topic) = bridge.topics.get_mut(&number) else { return };
        let outcome = bridge.inlet.retain(&mut topic.topic);
        let is_inline = topic.is_inline.expect("an operation has made it");
        self.learn_topic(number);
        let bridge = self.bridges[inlet].as_mut().expect("it is above");
        bridge.topics.get_mut(&number).expect("it is above").is_inline =
            Some(is_inline && !self.interned.contains(&number));
        self.settle_retain(number, is_inline, self.exclusive.is_some(), outcome);
    }

    /// `is_inline`: the handle's topic had no number. Retaining it tries to enter it once more.
    fn settle_retain(
        &mut self,
        number: usize,
        is_inline: bool,
        is_kept_out: bool,
        outcome: Result<(), RetainError>,
    ) {
        let is_full = matches!(outcome, Err(RetainError::TopicTableFull));
        assert!(is_inline || !is_full, "it has a number");
        self.tally.refused += u64::from(outcome.is_err());
        match outcome {
            Err(RetainError::TopicTableFull) => {}
            Err(RetainError::Publish(PublishError::Exclusive { .. })) => {
                assert!(is_kept_out);
                self.tally.kept_out += 1;
            }
            Ok(()) | Err(RetainError::TooManyRetained { limit: MOST_VALUES }) => {
                assert!(!is_kept_out && self.interned.contains(&number));
                assert_eq!(self.values.declare(number).is_ok(), outcome.is_ok());
                self.model.stored = self.model.count();
                self.orphaned = false;
            }
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Takes a message that was committed, and for which there is room or not.
    pub(super) fn keep(&mut self, note: &Note, bytes: u64, room: Room) {
        let sequence = self.model.count() as u64 - 1;
        if note.loss.is_none() {
            let newest = Newest { sequence, is_cleared: note.is_cleared, room };
            self.values.publish(note.topic, newest, bytes);
        }
    }

    /// Bytes in no use, if the topic is retained.
    pub(super) fn free_bytes(&self, topic: usize) -> u64 {
        if !self.values.is_retained(topic) {
            return 0;
        }
        let stats = self.bus.stats().unwrap().retained;
        stats.bytes - stats.used_bytes
    }

    /// What a topic has, and what must be read of it (R1 to R3).
    pub(super) fn kept(&self, topic: usize) -> Kept {
        let Some(Newest { sequence, is_cleared, room }) = self.values.newest(topic) else {
            return Kept::Nothing;
        };
        let is_in_ring = !self.model.is_lapped(self.model.start(sequence));
        match room {
            _ if is_cleared => Kept::Nothing,
            Room::Certain => Kept::Message(sequence),
            _ if is_in_ring => Kept::Message(sequence),
            Room::Perhaps => Kept::Perhaps(sequence),
            Room::TooLong => Kept::Missing(sequence),
        }
    }

    pub(super) fn check_values(&mut self) {
        let topics = topics();
        let mut in_order = BTreeMap::new();
        for (number, topic) in topics.iter().enumerate() {
            let read = self.bus.retained(topic);
            self.compare_value(topic, &self.kept(number), &read);
            if let Some(Newest { sequence, is_cleared: false, .. }) = self.values.newest(number) {
                in_order.insert(sequence, number);
            }
        }
        self.tally.values += in_order.len() as u64;
        let all = self.bus.retained_matching("**").unwrap();
        assert_eq!(all.len(), in_order.len());
        for (number, read) in in_order.values().zip(all) {
            self.tally.missing += u64::from(read.is_err());
            self.compare_value(&topics[*number], &self.kept(*number), &read.map(Some));
        }
        let stats = self.bus.stats().unwrap().retained;
        let count = self.values.topics().count();
        assert_eq!((stats.topics as usize, stats.max_topics), (count, MOST_VALUES));
    }

    fn compare_value(
        &self,
        topic: &str,
        kept: &Kept,
        read: &Result<Option<RetainedMessage>, RetainedError>,
    ) {
        match (kept, read) {
            (Kept::Nothing, Ok(None)) => {}
            (Kept::Message(sequence) | Kept::Perhaps(sequence), Ok(Some(found))) => {
                let message = self.model.message(*sequence).unwrap();
                let note = &self.notes[usize::try_from(*sequence).unwrap()];
                assert_eq!((found.sequence(), found.position()), (*sequence, message.start));
                assert_eq!(found.topic(), topic);
                assert_eq!((found.origin(), found.number()), (note.origin, note.number));
                assert_eq!(found.timestamp().is_some(), note.has_time);
                let length = (message.length - note.extensions) as usize;
                assert!(found.payload() == body(message.stamp, length), "bytes of {found:?}");
            }
            (
                Kept::Missing(sequence) | Kept::Perhaps(sequence),
                Err(RetainedError::Missing { topic: of, sequence: found, length }),
            ) => self.check_missing((topic, *sequence), (of, *found, *length)),
            _ => panic!("the value of {topic} is {read:?}, and not {kept:?}"),
        }
    }

    pub(super) fn check_missing(&self, expected: (&str, u64), found: (&str, u64, u64)) {
        let length = self.model.message(expected.1).unwrap().length;
        assert_eq!(found, (expected.0, expected.1, length.into()));
    }

    /// What statistics say of a topic's value.
    pub(super) fn compare_value_stats(&self, topic: usize, found: Option<ValueStats>) {
        let is_retained = self.values.is_retained(topic);
        let payload = |sequence: u64| {
            let note = &self.notes[usize::try_from(sequence).unwrap()];
            u64::from(self.model.message(sequence).unwrap().length - note.extensions)
        };
        match (self.kept(topic), found) {
            (Kept::Nothing, found) => {
                assert_eq!(found, is_retained.then_some(ValueStats::None));
            }
            (
                Kept::Message(number) | Kept::Perhaps(number),
                Some(ValueStats::Kept { sequence, bytes, .. }),
            ) => assert_eq!((sequence, bytes), (number, payload(number))),
            (
                Kept::Missing(number) | Kept::Perhaps(number),
                Some(ValueStats::Missing { sequence, bytes }),
            ) => {
                let length = self.model.message(number).unwrap().length;
                assert_eq!((sequence, bytes), (number, length.into()));
            }
            (kept, found) => panic!("{found:?}, and not {kept:?}"),
        }
    }

    /// Compares an error for want of room with what there was. `bytes` are those of the record.
    pub(super) fn check_no_room(&self, error: &PublishError, bytes: u64, room: Room) {
        match error {
            PublishError::ValueTooLong { length, limit } => {
                assert_eq!((*length, *limit), (bytes, self.values.longest()));
                assert_eq!(room, Room::TooLong);
            }
            PublishError::RetainedFull { limit } => {
                assert_eq!((*limit, room), (VALUE_BYTES, Room::Perhaps));
            }
            _ => unreachable!("called for these errors only"),
        }
    }

    /// For the record of a publisher that has not declared its topic: whether the bus keeps it. After one that may have taken
    /// some of what was free, only what was kept before is certain.
    pub(super) fn room_for(&mut self, topic: usize, length: u32) -> Room {
        let bytes = record_bytes(length);
        if self.values.room(topic, bytes, 0) == Room::Certain {
            return Room::Certain;
        }
        self.values.room(topic, bytes, std::mem::take(&mut self.free))
    }
}
