//! Any bytes on a TCP connection, in any pieces: they are cut into the same frames, and what is accepted means the same
//! after it was encoded again.

use super::{KEYS, REALM};
use crate::input::Input;
use toroni_proto::id::Realm;
use toroni_proto::wire::tcp::{
    self, Body, Context, Direction, Frame, FrameData, FrameWriter, HEADER_BYTES, Header, Hello,
    Incoming, Kind, Names, Nonces, Resume, Seal,
};
use toroni_proto::wire::{self, Keys, MAC_BYTES, NoRoom, Placed, Reject, Rules, TableName};

/// The memory for one frame: little, so that lengths beyond it occur.
const FRAME_MAX: usize = 600;

/// Where fields lie in a frame: see `crates/toroni-proto/src/wire/tcp/mod.rs`.
const KIND_AT: usize = 4;
const FLAGS_AT: usize = 5;
const STREAM_AT: usize = 6;
const FLAG_MAC: u8 = 0x80;
/// Where magic, version and realm lie in HELLO and WELCOME.
const MAGIC_AT: usize = 16;
const PREAMBLE_REALM_AT: usize = 20;

/// The first byte says whether the bytes are made into frames that pass the first checks, and whether there is a key. The
/// second one says into which pieces they are cut.
pub fn fuzz(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (choice, pieces) = (input.byte(), input.byte());
    let keys = (choice & 2 != 0).then_some(&KEYS);
    let bytes = if choice & 1 != 0 { completed(&mut input, keys) } else { input.rest().to_vec() };
    let (frames, end) = cut(&bytes);
    check_incoming(&bytes, pieces, &frames, end);
    for frame in frames {
        check_frame(frame, keys);
    }
}

/// Cuts bytes into frames, as the drawing of the frame says.
fn cut(mut bytes: &[u8]) -> (Vec<&[u8]>, Result<(), Reject>) {
    let mut frames = Vec::new();
    while let Some((length, _)) = bytes.split_first_chunk() {
        let length = u32::from_le_bytes(*length) as usize;
        if length < HEADER_BYTES {
            return (frames, Err(Reject::Short));
        }
        if length > FRAME_MAX {
            return (frames, Err(Reject::Length));
        }
        let Some((frame, rest)) = bytes.split_at_checked(length) else { break };
        frames.push(frame);
        bytes = rest;
    }
    (frames, Ok(()))
}

/// Hands the bytes to [`Incoming`] in pieces whose lengths `pieces` determines.
fn check_incoming(bytes: &[u8], pieces: u8, frames: &[&[u8]], end: Result<(), Reject>) {
    let mut incoming = Incoming::new(FRAME_MAX);
    let (mut rest, mut step, mut taken) = (bytes, usize::from(pieces), 0);
    while !rest.is_empty() {
        step = step * 5 + 3;
        let room = incoming.room();
        assert!(!room.is_empty(), "there is always room for the rest of a frame");
        // Now and then, everything at once.
        let most = if step.is_multiple_of(7) { usize::MAX } else { step % 61 + 1 };
        let length = most.min(room.len()).min(rest.len());
        room[..length].copy_from_slice(&rest[..length]);
        incoming.received(length);
        rest = &rest[length..];
        step %= 1 << 16;
        loop {
            match incoming.next_frame() {
                Ok(Some(frame)) => {
                    assert_eq!(Some(&frame), frames.get(taken), "frame {taken}");
                    taken += 1;
                }
                Ok(None) => break,
                Err(reason) => {
                    assert_eq!((taken, Err(reason)), (frames.len(), end));
                    return;
                }
            }
        }
    }
    assert_eq!((taken, Ok(())), (frames.len(), end), "all frames were taken");
}

fn check_frame(bytes: &[u8], keys: Option<&Keys>) {
    let rules = Rules { realm: Realm::of(REALM), keys, message_max: 1 << 20 };
    let frame = match tcp::parse(bytes, &rules, |_, _| context()) {
        Ok(frame) => frame,
        Err(reason) => {
            assert!(Reject::ALL.contains(&reason), "{reason:?} is not listed");
            return;
        }
    };
    let Some(again) = encoded(&frame, keys) else {
        check_welcome(&frame);
        return;
    };
    let again = again.expect("what was parsed fits again");
    let Body::Data(data) = &frame.body else {
        assert_eq!(again, bytes);
        return;
    };
    // Numbers may be stated where they are implied, so the bytes may differ.
    let reparsed = tcp::parse(&again, &rules, |_, _| context()).unwrap();
    assert_eq!(frame.header, reparsed.header);
    let Body::Data(other) = &reparsed.body else { panic!("{reparsed:?}") };
    assert_eq!(contents(data), contents(other));
    // What was encoded once stays the same.
    assert_eq!(encoded(&reparsed, keys), Some(Ok(again.clone())));
}

fn contents<'a>(data: &FrameData<'a>) -> (u64, u64, Vec<Placed<'a>>) {
    (data.sent.ns(), data.number.get(), data.chunks().collect())
}

/// Only a server encodes WELCOME. What it lists must be readable.
fn check_welcome(frame: &Frame<'_>) {
    let Body::Welcome(welcome) = &frame.body else { panic!("{frame:?} has an encoder") };
    let streams = welcome.streams();
    let patterns = streams.map(|stream| stream.patterns().count()).collect::<Vec<_>>();
    assert!(patterns.len() <= tcp::MAX_STREAMS && patterns.iter().all(|count| *count <= 16));
}

fn context() -> Context {
    Context::of_connection(&Nonces::default(), Direction::ToClient, 0)
}

/// Encodes a frame again, if a public encoder exists.
fn encoded(frame: &Frame<'_>, keys: Option<&Keys>) -> Option<Result<Vec<u8>, NoRoom>> {
    let Header { flags, stream, message, .. } = frame.header;
    let seal = Seal { keys, context: context() };
    let mut buffer = vec![0; 2 * FRAME_MAX];
    let length = match frame.body {
        Body::Welcome(_) => return None,
        Body::Hello(hello) => Hello::encode(
            Realm::of(REALM),
            (hello.source, hello.session),
            flags,
            hello.nonce,
            hello.message_max,
            hello.name,
            hello.patterns().collect::<Vec<TableName<'_>>>().into_iter(),
            hello.resumes().collect::<Vec<Resume>>().into_iter(),
            &seal,
            &mut buffer,
        ),
        Body::Data(data) => {
            let mut writer = FrameWriter::new(message, data.number);
            let end = buffer.len() - MAC_BYTES;
            let mut chunks = data.chunks();
            let pushed =
                chunks.try_for_each(|placed| writer.push(&placed.chunk, &mut buffer[..end]));
            pushed.and_then(|()| writer.finish(stream, flags, data.sent, &seal, &mut buffer))
        }
        Body::Topics(names) => {
            let encoded = Names::encode(stream, names.entries(), &seal, &mut buffer);
            encoded.map(|(length, count)| {
                assert_eq!(usize::from(count), names.entries().count(), "all names fit again");
                length
            })
        }
        Body::Gap(gap) => gap.encode(stream, flags, message, &seal, &mut buffer),
        Body::Heartbeat(beat) => tcp::Heartbeat::encode(beat.streams(), flags, &seal, &mut buffer),
        Body::Replay(replay) => replay.encode(stream, flags, message, &seal, &mut buffer),
        Body::Bye(bye) => bye.encode(&seal, &mut buffer),
        Body::Challenge(challenge) => challenge.encode(&seal, &mut buffer),
    };
    Some(length.map(|length| {
        buffer.truncate(length);
        buffer
    }))
}

/// Makes frames of any bytes, so that what lies behind the first checks is reached: each has a type, flags, a stream, and a
/// message number and a body of at most 255 bytes.
fn completed(input: &mut Input<'_>, keys: Option<&Keys>) -> Vec<u8> {
    let mut frames = Vec::new();
    while !input.is_empty() {
        let kind = Kind::ALL[usize::from(input.byte()) % Kind::ALL.len()] as u8;
        let (flags, stream, length) = (input.byte(), input.byte(), input.byte());
        let mut frame = vec![0; HEADER_BYTES - 8];
        frame.extend(input.bytes(8 + usize::from(length)));
        frame.resize(frame.len().max(HEADER_BYTES), 0);
        (frame[KIND_AT], frame[STREAM_AT]) = (kind, stream);
        frame[FLAGS_AT] = flags & 0x7f;
        if let Some(preamble) = frame.get_mut(MAGIC_AT..PREAMBLE_REALM_AT + 4)
            && [Kind::Hello as u8, Kind::Welcome as u8].contains(&kind)
        {
            preamble[..3].copy_from_slice(&[b'T', b'N', wire::VERSION]);
            preamble[4..].copy_from_slice(&Realm::of(REALM).0.to_le_bytes());
        }
        let whole = frame.len() + keys.map_or(0, |_| MAC_BYTES);
        frame[..4].copy_from_slice(&u32::try_from(whole).unwrap().to_le_bytes());
        if let Some(keys) = keys {
            frame[FLAGS_AT] |= FLAG_MAC;
            // The context of `context`, whose bytes wire/tcp/mod.rs draws.
            let covered = [&[Direction::ToClient as u8][..], &[0; 40], &frame].concat();
            frame.extend(keys.sign(&covered));
        }
        frames.extend(frame);
    }
    frames
}
