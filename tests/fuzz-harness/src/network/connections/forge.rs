//! Forged frames, whose fields are near the true ones.

use super::super::{KEYS, REALM};
use super::history::number;
use super::world::FIRST;
use crate::input::Input;
use toroni_proto::id::{MessageNumber, Number, Realm, Series, Session, Source, Stream};
use toroni_proto::reassembly::Bound;
use toroni_proto::time::Wall;
use toroni_proto::wire::tcp::{
    Bye, Challenge, Context, Direction, Flags, FrameWriter, Gap, Heartbeat, Hello, Names, Nonces,
    Reached, Replay, Resume, Seal,
};
use toroni_proto::wire::{Chunk, LostReason, NodeName, Start, TableName, TopicNumber};

const PATTERNS: [&str; 6] = ["**", "t/1", "t/2", "t/*", "*/3", "a/b"];
const PAYLOAD: [u8; 64] = [3; 64];

fn near(input: &mut Input<'_>) -> Number {
    match input.byte() {
        255 => Number::MAX,
        254 => Number::ZERO,
        places => number(FIRST + u64::from(places)),
    }
}

fn message(input: &mut Input<'_>) -> MessageNumber {
    match input.byte() {
        255 => MessageNumber::MAX,
        places => MessageNumber::ZERO.plus(places.into()),
    }
}

fn topic(input: &mut Input<'_>) -> TopicNumber {
    TopicNumber::new(u32::from(input.byte()) * if input.byte() == 0 { 4_000 } else { 1 }).unwrap()
}

fn names<'n>(input: &mut Input<'_>, count: u8) -> Vec<TableName<'n>> {
    (0..count).map(|_| TableName::new(input.pick::<&str>(&PATTERNS)).unwrap()).collect()
}

/// A frame as the bytes describe it. If there is a key, the frame is signed with it, but not for its connection.
pub(super) fn frame(input: &mut Input<'_>, keyed: bool) -> Vec<u8> {
    let keys = keyed.then_some(&KEYS);
    let context = Context::of_connection(&Nonces::default(), Direction::ToClient, 77);
    let seal = Seal { keys, context };
    let mut buffer = vec![0; 2_000];
    let kind = input.byte() % 10;
    let stream = u16::from(input.byte() % 4);
    let flags = match input.byte() % 4 {
        0 | 1 => Flags::NONE,
        2 => Flags::REPLAY,
        _ => Flags::END,
    };
    let length = match kind {
        0 => {
            let (count, resumes) = (input.byte() % 4 + 1, input.byte() % 4);
            let names = names(input, count);
            let resumes: Vec<Resume> = (0..resumes)
                .map(|stream| Resume {
                    source: super::world::SOURCE,
                    series: Series(3),
                    stream: Stream(stream.into()),
                    next: near(input),
                })
                .collect();
            let who = (Source(66), Session(1));
            // None, less than a message, as usual, and more than there is.
            let most = [0, 10, 100_000, u32::MAX][usize::from(input.byte()) % 4];
            let (name, nonce) = (NodeName::new("stranger").unwrap(), [6; 16]);
            let (names, resumes) = (names.into_iter(), resumes.into_iter());
            let realm = Realm::of(REALM);
            let (seal, into) = (&seal, &mut buffer[..]);
            Hello::encode(realm, who, flags, nonce, most, name, names, resumes, seal, into)
        }
        1 | 2 => {
            let mut next = near(input);
            let mut writer = FrameWriter::new(message(input), next);
            for _ in 0..=input.byte() % 3 {
                if next == Number::MAX {
                    break;
                }
                // What does not fit or may not stand here is left out.
                let end = buffer.len() - 100;
                let _ = writer.push(&chunk(input, &mut next), &mut buffer[..end]);
            }
            writer.finish(stream, flags, Wall::from_ns(1), &seal, &mut buffer)
        }
        3 => {
            let count = input.byte() % 4 + 1;
            let named: Vec<_> =
                names(input, count).into_iter().map(|name| (topic(input), name)).collect();
            Names::encode(stream, named, &seal, &mut buffer).map(|(length, _)| length)
        }
        4 => {
            let (first, until) = (near(input), near(input));
            let (count, reason) = (u64::from(input.byte()), *input.pick(&LostReason::ALL));
            let bound = *input.pick(&[Bound::Exact, Bound::AtLeast, Bound::AtMost]);
            let gap = Gap { first, until, count, bound, reason };
            gap.encode(stream, flags, message(input), &seal, &mut buffer)
        }
        5 => {
            let streams: Vec<Reached> = (0..input.byte() % 4)
                .map(|_| Reached { number: near(input), message: message(input) })
                .collect();
            Heartbeat::encode(streams.into_iter(), flags, &seal, &mut buffer)
        }
        6 | 7 => {
            let replay = Replay { first: near(input), until: near(input) };
            replay.encode(stream, flags, message(input), &seal, &mut buffer)
        }
        8 => input.pick(&Bye::ALL).encode(&seal, &mut buffer),
        _ => Challenge([input.byte(); 16]).encode(&seal, &mut buffer),
    };
    // A frame without a chunk is none.
    buffer.truncate(length.unwrap_or(0));
    buffer
}

/// A chunk of which the number is not below `next`: no writer encodes another one.
fn chunk<'n>(input: &mut Input<'_>, next: &mut Number) -> Chunk<'n> {
    let number = next.plus(u64::from(input.byte()) / 4);
    let topic = topic(input);
    let payload = &PAYLOAD[..usize::from(input.byte()) % 60 + 1];
    let (to_descendants, published, origin) = (false, None, None);
    match input.byte() % 5 {
        0 | 1 => {
            let start = Start { topic, number, to_descendants, published, origin };
            *next = number.plus(1);
            Chunk::Message { start, payload }
        }
        2 => {
            let start = Start { topic, number, to_descendants, published, origin };
            *next = number.plus(1);
            Chunk::First { start, total: input.u16().into(), payload }
        }
        3 => {
            let offset = u32::from(input.byte());
            Chunk::Rest { topic, offset, last: input.byte() & 1 != 0, payload }
        }
        _ => {
            let (count, reason) = (u64::from(input.byte()) + 1, *input.pick(&LostReason::ALL));
            *next = number.plus(1);
            Chunk::Lost { count, until: *next, reason }
        }
    }
}
