//! Values of retained topics: what any step of a writer leaves (R1), and any words.

use super::super::copy::Scratch;
use super::super::layout::NO_ENTRY;
use super::super::position::to_index;
use super::super::reader::Cursor;
use super::super::testing::{Memory, body};
use super::super::values::{UNIT_WORDS, Value, Values};
use super::super::writer::{Appender, Record, header};
use super::fixture::scaled;
use super::resume::SplitMix;
use crate::hook::rehearsal;
use crate::sync::Ordering;

/// A message of the retained topic 0, and one of topic 1.
const KEPT: u32 = 0x001;
const OTHER: u32 = 0x101;
const UNITS: usize = 64;

fn retaining() -> Memory {
    let memory = Memory::new(4096).with_values(2, UNITS);
    memory.values().unwrap().declare(&memory.control, 0).unwrap();
    memory
}

/// Publishes messages, together or one by one. Their bytes are those of their sequences.
fn publish(memory: &Memory, owner_died: bool, messages: &[(u32, u32)], together: bool) {
    let Ok(mut appender) = Appender::begin(memory.ring(), || memory.values(), owner_died) else {
        return;
    };
    let first = appender.sequence();
    let payloads: Vec<_> =
        (first..).zip(messages).map(|(stamp, (_, length))| body(stamp, *length)).collect();
    let records: Vec<_> = messages
        .iter()
        .zip(&payloads)
        .map(|((tag, _), payload)| {
            // A batch is of one topic.
            let tag = if together { messages[0].0 } else { *tag };
            Record { tag, extensions: &[], payload }
        })
        .collect();
    let reserve = |appender: &mut Appender<'_>, bytes| {
        if !appender.fits(bytes) {
            appender.reserve(appender.wanted(bytes));
        }
    };
    if together {
        let bytes = records.iter().map(Record::bytes).sum();
        reserve(&mut appender, bytes);
        appender.append_with_values(memory.values(), |appender| {
            appender.write_batch(records.into_iter(), bytes);
        });
        return;
    }
    for record in records {
        reserve(&mut appender, record.bytes());
        appender.append_with_values(memory.values(), |appender| appender.write(record));
    }
}

/// R1 and R3, where writers die at any step and others recover.
#[test]
fn a_value_is_the_newest_message_before_the_end_of_the_stream() {
    let mut random = SplitMix(0x0DD);
    let mut scratch = Scratch::default();
    let (mut deaths, mut values) = (0, 0);
    for _ in 0..scaled(100) {
        let memory = retaining();
        let (ring, kept) = (memory.ring(), memory.values().unwrap());
        let mut at = Cursor::at_end(ring).unwrap();
        let mut newest = None;
        for _ in 0..20 {
            let messages: Vec<_> = (0..1 + random.below(3))
                .map(|_| {
                    let tag = if random.below(2) == 0 { KEPT } else { OTHER };
                    (tag, random.length(200))
                })
                .collect();
            let (together, step) = (random.below(2) == 0, random.below(40));
            let dies = move |reached: &[_]| reached.len() as u64 == step;
            let lived = rehearsal::act(dies, || publish(&memory, true, &messages, together)).1;
            deaths += u32::from(lived.is_none());
            // Another owner comes, and recovers.
            Appender::begin(ring, || memory.values(), true).unwrap();
            while let Some(seen) = at.peek(ring).unwrap() {
                newest = (seen.tag == KEPT).then_some(seen).or(newest);
                at.advance(&seen);
            }
            assert_eq!(
                Values::kept(kept.entry(0).unwrap()).map(|kept| kept.0),
                newest.map(|seen| seen.sequence),
                "R1"
            );
            match (kept.read(ring, 0, &mut scratch).unwrap(), newest) {
                (Value::None, None) => {}
                (Value::Present(found), Some(newest)) => {
                    let bytes = scratch.bytes(to_index(found.length.into()));
                    assert!(found == newest && bytes == body(found.sequence, found.length));
                    values += 1;
                }
                (found, newest) => panic!("{found:?}, and not {newest:?}"),
            }
        }
    }
    assert!(cfg!(miri) || (deaths > 200 && values > 500), "{deaths} deaths, {values} values");
}

/// Nothing panics, everything ends, and the stream is what was published.
#[test]
fn values_survive_any_words() {
    let mut random = SplitMix(0xBAD5EED);
    let mut scratch = Scratch::default();
    let mut present = 0;
    for _ in 0..scaled(1500) {
        let memory = retaining();
        let (ring, values) = (memory.ring(), memory.values().unwrap());
        publish(&memory, false, &[(KEPT, random.length(300)), (OTHER, 8)], false);
        for _ in 0..1 + random.below(6) {
            let tail = memory.control.commit.0.tail.load(Ordering::Relaxed);
            let word = match random.below(8) {
                0 => random.next(),
                1 => u64::MAX - random.below(9),
                2 => random.below(4),
                3 => tail.wrapping_add(8 * random.below(20)).wrapping_sub(8 * random.below(20)),
                4 => header(u32::try_from(random.below(400)).unwrap(), KEPT),
                5 => NO_ENTRY,
                _ => random.below(UNITS as u64 + 2) << 32 | random.below(UNITS as u64 + 2),
            };
            let entry = &values.entries[to_index(random.below(2))];
            let buffer = &entry.buffers[to_index(random.below(2))];
            let any = &values.area[to_index(random.below((UNITS * UNIT_WORDS) as u64))];
            let to = match random.below(12) {
                0 => {
                    let index = &values.index[to_index(random.below(2))];
                    index.store(u32::try_from(word % (1 << 32)).unwrap(), Ordering::Relaxed);
                    continue;
                }
                1 => &entry.version,
                2 => &entry.announced_position,
                3 => &entry.announced_sequence,
                4 => &entry.announced_commit,
                5 => &entry.spare,
                6 | 7 => &buffer.place,
                8 => &buffer.position,
                9 => &buffer.sequence,
                10 => &buffer.header,
                _ => {
                    if random.below(2) == 0 {
                        any
                    } else {
                        &values.area[0]
                    }
                }
            };
            to.store(word, Ordering::Relaxed);
        }
        for topic in [0, 1, 2] {
            let read = values.read(ring, topic, &mut scratch);
            present += u32::from(matches!(read, Some(Value::Present(_))));
        }
        let _ = (values.usage(), values.topics().count(), values.declare(&memory.control, 1));
        let mut at = Cursor::at_end(ring).unwrap();
        let messages = [(KEPT, 100), (KEPT, 900), (OTHER, 8), (KEPT, 24)];
        let together = random.below(2) == 0;
        publish(&memory, random.below(2) == 0, &messages, together);
        for (tag, length) in messages {
            let tag = if together { KEPT } else { tag };
            let seen = at.peek(ring).unwrap().expect("it was published");
            at.copy(ring, &seen, &mut scratch).unwrap();
            assert_eq!((seen.tag, seen.length), (tag, length));
            assert!(scratch.bytes(to_index(length.into())) == body(seen.sequence, length));
            at.advance(&seen);
        }
        let _ = values.read(ring, 0, &mut scratch);
    }
    assert!(cfg!(miri) || present > 500, "{present} values");
}
