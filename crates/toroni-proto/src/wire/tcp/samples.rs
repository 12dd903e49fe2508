//! One valid frame of each type, for tests.

use super::super::chunk::tests::{start, topic};
use super::super::samples::{KEYS, PAST, RULES};
use super::super::{Bound, Chunk, Keys, LostReason, NoRoom, NodeName, Start, TableName};
use super::welcome::{About, Offer};
use super::*;
use crate::id::{Number, Series, Session, Source, Stream};
use crate::time::Wall;

pub(crate) const NONCES: Nonces = Nonces { server: [0xa5; 16], client: [0x5a; 16] };

pub(crate) fn context() -> Context {
    Context::of_connection(&NONCES, Direction::ToClient, 3)
}

fn number(value: u64) -> Number {
    Number::new(value).unwrap()
}

pub(crate) fn of(kind: Kind) -> Vec<u8> {
    signed(kind, None)
}

pub(crate) fn signed(kind: Kind, keys: Option<&Keys>) -> Vec<u8> {
    let mut buffer = vec![0; 1_000];
    let length = encode(kind, &Seal { keys, context: context() }, &mut buffer).unwrap();
    buffer.truncate(length);
    buffer
}

pub(crate) fn result(bytes: &[u8], keys: Option<&Keys>) -> Result<(), Reject> {
    parse(bytes, &Rules { keys, ..RULES }, |_, _| context()).map(|_| ())
}

pub(crate) fn encode(kind: Kind, seal: &Seal<'_>, buffer: &mut [u8]) -> Result<usize, NoRoom> {
    let message = MessageNumber::new(10).unwrap();
    let name = |text: &'static str| TableName::new(text).unwrap();
    match kind {
        Kind::Hello => Hello::encode(
            RULES.realm,
            (Source(0xa1b2_c3d4), Session(0x0a0b_0c0d)),
            Flags::NONE,
            NONCES.client,
            0x0012_3456,
            NodeName::new("line-4").unwrap(),
            [name("plant/**"), name("a/b")].into_iter(),
            [Resume {
                source: Source(0x0102_0304),
                series: Series(0x5040_0304),
                stream: Stream(7),
                next: number(0x67),
            }]
            .into_iter(),
            seal,
            buffer,
        ),
        Kind::Welcome => {
            let about = About {
                realm: RULES.realm,
                source: Source(0x0102_0304),
                session: Session(0x0506_0708),
                instance: core::array::from_fn(|at| 0xa0 + u8::try_from(at).unwrap()),
                set: 9,
                beat_ms: 1_000,
            };
            let patterns: [Box<str>; 1] = ["plant/**".into()];
            let offer = Offer {
                source: about.source,
                session: about.session,
                series: Series(0x5040_0304),
                stream: Stream(7),
                number: number(0x67),
                message,
                past: PAST,
                patterns: &patterns,
            };
            Welcome::encode(&about, [offer].into_iter(), seal, buffer)
        }
        Kind::Data => {
            let mut writer = FrameWriter::new(message, Number::ZERO);
            let of_2 = |number| Start { topic: topic(2), ..start(number) };
            for number in [100, 105] {
                let chunk = Chunk::Message { start: of_2(number), payload: b"hello" };
                writer.push(&chunk, buffer)?;
            }
            writer.finish(1, Flags::REPLAY, Wall::from_ns(0x1112_1314_1516_1718), seal, buffer)
        }
        Kind::Topics => {
            let names = [(topic(2), name("a/b")), (topic(5), name("a/c"))];
            let (length, count) = Names::encode(1, names, seal, buffer)?;
            if count == 2 { Ok(length) } else { Err(NoRoom) }
        }
        Kind::Gap => {
            let (first, until) = (number(100), number(120));
            let (bound, reason) = (Bound::Exact, LostReason::Budget);
            Gap { first, until, count: 7, bound, reason }.encode(
                1,
                Flags::NONE,
                message,
                seal,
                buffer,
            )
        }
        Kind::Heartbeat => {
            let streams = [(100, 40), (7, 3)].map(|(at, next)| Reached {
                number: number(at),
                message: MessageNumber::ZERO.plus(next),
            });
            Heartbeat::encode(streams.into_iter(), Flags::END, seal, buffer)
        }
        Kind::Replay => {
            let replay = Replay { first: number(100), until: number(120) };
            replay.encode(1, Flags::END, message, seal, buffer)
        }
        Kind::Bye => Bye::Slow.encode(seal, buffer),
        Kind::Challenge => Challenge(NONCES.server).encode(seal, buffer),
    }
}

/// Encodes what was parsed again.
pub(crate) fn encode_again(frame: &Frame<'_>) -> Vec<u8> {
    let seal = Seal { keys: None, context: context() };
    let mut buffer = vec![0; 70_000];
    let Header { flags, stream, message, .. } = frame.header;
    let length = match frame.body {
        Body::Hello(hello) => {
            let patterns: Vec<TableName<'_>> = hello.patterns().collect();
            let resumes: Vec<Resume> = hello.resumes().collect();
            Hello::encode(
                RULES.realm,
                (hello.source, hello.session),
                flags,
                hello.nonce,
                hello.message_max,
                hello.name,
                patterns.into_iter(),
                resumes.into_iter(),
                &seal,
                &mut buffer,
            )
        }
        Body::Welcome(welcome) => {
            let Welcome { source, session, instance, set, beat_ms, .. } = welcome;
            let about = About { realm: RULES.realm, source, session, instance, set, beat_ms };
            let patterns: Vec<Vec<Box<str>>> = welcome
                .streams()
                .map(|one| one.patterns().map(|name| name.as_str().into()).collect())
                .collect();
            let offers: Vec<Offer<'_>> = welcome
                .streams()
                .zip(&patterns)
                .map(|(one, patterns)| Offer {
                    source: one.source,
                    session: one.session,
                    series: one.series,
                    stream: one.stream,
                    number: one.number,
                    message: one.message,
                    past: one.past,
                    patterns,
                })
                .collect();
            Welcome::encode(&about, offers.into_iter(), &seal, &mut buffer)
        }
        Body::Data(data) => {
            let mut writer = FrameWriter::new(message, data.number);
            for placed in data.chunks() {
                writer.push(&placed.chunk, &mut buffer).unwrap();
            }
            writer.finish(stream, flags, data.sent, &seal, &mut buffer)
        }
        Body::Topics(names) => {
            Names::encode(stream, names.entries(), &seal, &mut buffer).map(|(length, _)| length)
        }
        Body::Gap(gap) => gap.encode(stream, flags, message, &seal, &mut buffer),
        Body::Heartbeat(beat) => Heartbeat::encode(beat.streams(), flags, &seal, &mut buffer),
        Body::Replay(replay) => replay.encode(stream, flags, message, &seal, &mut buffer),
        Body::Bye(bye) => bye.encode(&seal, &mut buffer),
        Body::Challenge(challenge) => challenge.encode(&seal, &mut buffer),
    };
    buffer.truncate(length.unwrap());
    buffer
}

pub(crate) const SIGNED: Option<&Keys> = Some(&KEYS);
