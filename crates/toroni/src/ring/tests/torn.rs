//! Readers that are overtaken while they read: they trust nothing that a writer has begun to
//! overwrite, whether that writer continues, pauses or dies.

use super::super::copy::Scratch;
use super::super::memory::Ring;
use super::super::reader::{Cursor, Interrupted};
use super::super::testing::{Memory, body, tag};
use super::super::writer::{Appender, Record, header};
use crate::hook::{CrashPoint, rehearsal};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::topic::frame::{Extensions, Tag, TopicId};
use crate::topic::interest::Interest;
use crate::topic::table::{Appended, TableMemory, TopicCache};
use crate::topic::{Pattern, Topic};

const CAPACITY: u64 = 1024;
const START: u64 = 3 * CAPACITY;

/// Returns a full ring, and a reader at its oldest message, which is 120 bytes long.
fn full() -> (Memory, Cursor) {
    let memory = Memory::laid(CAPACITY, START, &[120, 200, 200, 200, 232]);
    assert_eq!(memory.control.commit.0.tail.load(Ordering::Relaxed), START + CAPACITY - 32);
    (memory, Cursor { position: START, sequence: 0 })
}

/// Runs a writer of one message that dies at this step.
fn dies(ring: Ring<'_>, at: CrashPoint, owner_died: bool, payload: &[u8]) {
    let (reached, lived) = rehearsal::act(
        move |reached| reached.last() == Some(&at),
        || {
            let mut appender = Appender::begin(ring, || None, owner_died).unwrap();
            let record = Record { tag: tag(99), extensions: &[], payload };
            if !appender.fits(record.bytes()) {
                appender.reserve(appender.wanted(record.bytes()));
            }
            appender.write(record);
        },
    );
    assert!(lived.is_none(), "{at:?} is not among {reached:?}");
}

/// This is why `reserved` exists: a writer copies over the oldest bytes and dies or pauses
/// half-way. The tail has not moved, but the bytes have changed.
#[test]
fn a_half_copied_record_over_what_is_being_read() {
    let (memory, reader) = full();
    let ring = memory.ring();
    let seen = reader.peek(ring).unwrap().unwrap();
    let mut scratch = Scratch::default();
    reader.copy(ring, &seen, &mut scratch).unwrap();
    assert_eq!(scratch.bytes(120), body(0, 120));

    let tail = memory.control.commit.0.tail.load(Ordering::Relaxed);
    dies(ring, CrashPoint::MidCopy, false, &[0xEE; 240]);
    assert_eq!(memory.control.commit.0.tail.load(Ordering::Relaxed), tail);

    assert_eq!(reader.copy(ring, &seen, &mut scratch), Err(Interrupted::Lapped));
    let torn = scratch.bytes(120);
    assert!(torn.contains(&0xEE) && torn.ends_with(&body(0, 120)[104..]), "the copy is torn");
    assert_eq!(reader.peek(ring), Err(Interrupted::Lapped));

    let mut reader = reader;
    assert_eq!(reader.resume(ring, 0), Ok((2, 128 + 208)));
    let seen = reader.peek(ring).unwrap().unwrap();
    reader.copy(ring, &seen, &mut scratch).unwrap();
    assert_eq!(scratch.bytes(200), body(2, 200));
}

/// A reader is lapped as soon as the space is reserved, before any byte changes.
#[test]
fn a_reservation_alone_laps() {
    let (memory, reader) = full();
    dies(memory.ring(), CrashPoint::AfterReserve, false, &[0xEE; 240]);
    assert_eq!(reader.peek(memory.ring()), Err(Interrupted::Lapped));
}

/// Recovery must not lower `reserved`, because the dead writer's bytes are still there.
#[test]
fn recovery_does_not_make_overwritten_bytes_valid_again() {
    let (memory, mut reader) = full();
    let ring = memory.ring();
    let seen = reader.peek(ring).unwrap().unwrap();
    dies(ring, CrashPoint::MidCopy, false, &[0xEE; 240]);
    let reserved = memory.control.reserved.0.load(Ordering::Relaxed);
    Appender::begin(ring, || None, true).unwrap();
    assert_eq!(memory.control.reserved.0.load(Ordering::Relaxed), reserved);
    let mut scratch = Scratch::default();
    assert_eq!(reader.copy(ring, &seen, &mut scratch), Err(Interrupted::Lapped));

    // Nor may a small message that needs less space.
    let mut appender = Appender::begin(ring, || None, true).unwrap();
    assert!(appender.fits(16));
    appender.write(Record { tag: tag(5), extensions: &[], payload: &[1; 8] });
    assert_eq!(reader.copy(ring, &seen, &mut scratch), Err(Interrupted::Lapped));
    assert_eq!(reader.resume(ring, 0), Ok((2, 128 + 208)));
}

/// A lapped reader is in the middle of a payload whose bytes are 0. If it took that for the end, it
/// would sleep for ever.
#[test]
fn a_lapped_reader_does_not_trust_a_zero() {
    for at in [CrashPoint::MidCopy, CrashPoint::AfterCommit] {
        let (memory, reader) = full();
        let ring = memory.ring();
        dies(ring, at, false, &[0; 240]);
        assert_eq!(ring.word(reader.position).load(Ordering::Relaxed), 0);
        assert_eq!(reader.peek(ring), Err(Interrupted::Lapped));
    }
}

/// A lapped reader must not report payload bytes as a corrupt header.
#[test]
fn a_lapped_reader_does_not_call_payload_corrupt() {
    for word in [header(0, 0) | 5, header(u32::MAX, 1), u64::MAX] {
        let (memory, reader) = full();
        let ring = memory.ring();
        let payload: Vec<u8> = word.to_ne_bytes().repeat(30);
        dies(ring, CrashPoint::AfterCommit, false, &payload);
        assert_eq!(ring.word(reader.position).load(Ordering::Relaxed), word);
        assert_eq!(reader.peek(ring), Err(Interrupted::Lapped));
    }
}

/// A subscriber as the bus implements it, reduced to one message.
struct Subscriber<'a> {
    cursor: Cursor,
    interest: Interest,
    topic_cache: TopicCache,
    table: TableMemory<'a>,
    /// Topics for which it consulted its patterns or its cache.
    asked: Vec<TopicId>,
}

impl Subscriber<'_> {
    /// Returns whether the next message is for it.
    fn next(&mut self, ring: Ring<'_>) -> Result<Option<bool>, Interrupted> {
        let Some(seen) = self.cursor.peek(ring)? else { return Ok(None) };
        let tag = Tag::from_raw(seen.tag);
        self.asked.push(tag.topic());
        let mine = match self.interest.answer(tag) {
            Some(mine) => mine,
            None => {
                self.topic_cache.sync(self.table).unwrap();
                let filled = self.interest.fill(tag, &self.topic_cache);
                filled.expect("the table has the topic of every valid record")
            }
        };
        self.cursor.copy(ring, &seen, &mut Scratch::default())?;
        self.cursor.advance(&seen);
        Ok(Some(mine))
    }
}

/// A lapped reader must not consult its patterns about payload that it takes for a header. It would
/// cache an answer for another message's topic, or report the record as corrupt because its topic
/// is not in the table.
#[test]
fn a_lapped_reader_does_not_fill_its_interest_cache() {
    let count = AtomicU32::new(0);
    let words: Vec<AtomicU64> = (0..16).map(|_| AtomicU64::new(0)).collect();
    let table = TableMemory { count: &count, words: &words };
    let mut publisher = TopicCache::default();
    let mut add = |name| match publisher.append(table, &Topic::new(name).unwrap()).unwrap() {
        Appended::Added(id) => id,
        other => panic!("{other:?}"),
    };
    let (wanted, other) = (add("wanted"), add("other"));
    let later = TopicId::new(2).unwrap();

    for forged in [wanted, later] {
        let (memory, cursor) = full();
        let ring = memory.ring();
        let pattern = [Pattern::new("wanted").unwrap()];
        let mut subscriber = Subscriber {
            cursor,
            interest: Interest::new(pattern.into_iter().collect()),
            topic_cache: TopicCache::default(),
            table,
            asked: Vec::new(),
        };
        let message = |topic| Tag::message(topic, false, &Extensions::default()).raw();
        let payload: Vec<u8> = header(16, message(forged)).to_ne_bytes().repeat(30);
        let mut appender = Appender::begin(ring, || None, false).unwrap();
        let record = Record { tag: message(other), extensions: &[], payload: &payload };
        appender.reserve(appender.wanted(2 * record.bytes()));
        appender.write(record);

        assert_eq!(subscriber.next(ring), Err(Interrupted::Lapped));
        assert_eq!(subscriber.asked, [], "it did not consult its patterns about payload");
        assert_eq!(subscriber.interest.answer(Tag::from_raw(message(forged))), None);

        subscriber.cursor = Cursor::at_end(ring).unwrap();
        for (topic, mine) in [(other, false), (wanted, true)] {
            appender.write(Record { tag: message(topic), extensions: &[], payload: &[7; 16] });
            assert_eq!(subscriber.next(ring), Ok(Some(mine)));
        }
        assert_eq!(subscriber.asked, [other, wanted]);
    }
}
