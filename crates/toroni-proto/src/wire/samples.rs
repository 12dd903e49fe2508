//! One valid datagram of each type, for tests.

use super::chunk::tests::{start, topic};
use super::ranges::tests::range;
use super::{
    Address, AddressList, Chunk, Data, DataWriter, Datagram, Echo, Flags, Header, Key, Keys, Kind,
    Nak, Ncf, NcfReason, NoRoom, NodeName, Policy, Probe, ProbeKind, Receiver, Reject, Rules,
    SessionInfo, Start, Status, TableName, Topics, TopicsWanted, parse as parse_with,
};
use crate::id::{MessageNumber, Number, Realm, Sequence, Series, Session, Source, Stream};
use crate::past::Past;
use crate::time::Wall;

pub(crate) const PAST: Past = Past { head: Number::ZERO.plus(0x46), prior: Session(0x0807_0605) };

pub(crate) const KEYS: Keys = Keys { first: Key::new([7; 32]), next: Some(Key::new([9; 32])) };

pub(crate) const RULES: Rules<'static> =
    Rules { realm: Realm(0x1122_3344), keys: None, message_max: 1 << 20 };

pub(crate) fn sequence(value: u64) -> Sequence {
    Sequence::new(value).unwrap()
}

pub(crate) fn header(at: u64) -> Header {
    Header {
        flags: Flags::NONE,
        ttl: 16,
        realm: RULES.realm,
        stream: Stream(7),
        source: Source(0x0102_0304),
        session: Session(0x0506_0708),
        sequence: sequence(at),
    }
}

/// A datagram, not signed.
pub(crate) struct Sample {
    pub(crate) kind: Kind,
    pub(crate) bytes: Vec<u8>,
}

impl Sample {
    pub(crate) fn encode(&self, keys: Option<&Keys>) -> Vec<u8> {
        let mut buffer = vec![0; 2_000];
        let length = encode(self.kind, keys, &mut buffer).unwrap();
        buffer.truncate(length);
        buffer
    }

    pub(crate) fn encode_into(
        &self,
        keys: Option<&Keys>,
        buffer: &mut [u8],
    ) -> Result<usize, NoRoom> {
        encode(self.kind, keys, buffer)
    }
}

pub(crate) fn all() -> impl Iterator<Item = Sample> {
    Kind::ALL.into_iter().map(of)
}

pub(crate) fn of(kind: Kind) -> Sample {
    let mut sample = Sample { kind, bytes: Vec::new() };
    sample.bytes = sample.encode(None);
    sample
}

/// Parses a datagram that is not signed, and believes its session.
pub(crate) fn parse(bytes: &[u8]) -> Result<Datagram<'_>, Reject> {
    parse_with(bytes, &RULES, |_, _| Ok(()))
}

/// Compares the sample of this type with bytes in hexadecimal, in which spaces mean nothing.
pub(crate) fn golden(kind: Kind, wanted: &[&str]) {
    let wanted: String = wanted.concat().split_whitespace().collect();
    assert_eq!(hexadecimal(&of(kind).bytes), wanted);
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const SENT: Wall = Wall::from_ns(0x1112_1314_1516_1718);
const NONCES: [u64; 2] = [0x0123_4567_89ab_cdef, 0x1020_3040_5060_7080];
const RECEIVER: Receiver = Receiver { source: Source(0xa1b2_c3d4), session: Session(0x0a0b_0c0d) };

fn encode(kind: Kind, keys: Option<&Keys>, buffer: &mut [u8]) -> Result<usize, NoRoom> {
    let header = header(1_000);
    match kind {
        Kind::Data => data(&header, keys, buffer),
        Kind::Session => {
            let header = Header { flags: Flags::END, ..header };
            session().encode(&header, keys, buffer)
        }
        Kind::Nak => {
            let missing = [range(1_000, 5), range(1_024, 1)];
            Nak::encode(&header, RECEIVER, SENT, &missing, keys, buffer)
        }
        Kind::Ncf => Ncf::encode(&header, NcfReason::Delayed, &[range(994, 6)], keys, buffer),
        Kind::Status => status().encode(&header, keys, buffer),
        Kind::Topics => {
            let names = ["a/b", "plant/**"].map(|name| TableName::new(name).unwrap());
            let (length, count) = Topics::encode(&header, topic(2), names, keys, buffer)?;
            if count == 2 { Ok(length) } else { Err(NoRoom) }
        }
        Kind::TopicsWanted => {
            let wanted =
                TopicsWanted { receiver: RECEIVER, first: topic(2), count: 64, echo: SENT };
            wanted.encode(&header, keys, buffer)
        }
        Kind::Probe => {
            let kind = ProbeKind::Answer { asker: RECEIVER.source, heard: 95, of: 100 };
            Probe { sent: SENT, kind, name: name("line-4") }.encode(&header, keys, buffer)
        }
        Kind::Echo => {
            let (length, count) = Echo::encode(&header, SENT, NONCES, keys, buffer)?;
            if count == 2 { Ok(length) } else { Err(NoRoom) }
        }
    }
}

fn name(name: &str) -> NodeName<'_> {
    NodeName::new(name).unwrap()
}

fn data(header: &Header, keys: Option<&Keys>, buffer: &mut [u8]) -> Result<usize, NoRoom> {
    let mut writer = DataWriter::new(MessageNumber::new(10).unwrap(), Number::ZERO);
    let of_2 = |number| Start { topic: topic(2), ..start(number) };
    let chunks = [
        Chunk::Topic { number: topic(2), name: TableName::new("a/b").unwrap() },
        Chunk::Message { start: Start { to_descendants: true, ..of_2(100) }, payload: b"hello" },
        Chunk::Message {
            start: Start { published: Some(Wall::from_ns(0x2122_2324_2526_2728)), ..of_2(105) },
            payload: b"",
        },
    ];
    chunks.iter().try_for_each(|chunk| writer.push(chunk, buffer))?;
    writer.finish(header, SENT, sequence(900), 3, keys, buffer)
}

fn v4_of(host: u8) -> [u8; 16] {
    let mut ip = [0; 16];
    ip[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, host]);
    ip
}

fn session() -> SessionInfo<'static> {
    let v4 = v4_of(2);
    let mut v6 = [0; 16];
    (v6[0], v6[15]) = (0xfd, 1);
    let repairers = [Address { ip: v4, port: 4479 }, Address { ip: v6, port: 4480 }];
    SessionInfo {
        sent: SENT,
        message: MessageNumber::new(10).unwrap(),
        number: Number::new(0x67).unwrap(),
        first: sequence(100),
        begins: Number::new(0x32).unwrap(),
        series: Series(0x5040_0304),
        rtt_us: 200,
        receivers: 3,
        listen: 4480,
        trail: sequence(900),
        topics: 5,
        data_kbit: 200_000,
        retransmit_kbit: 50_000,
        window_ms: 2_680,
        next_ms: 200,
        datagram: 1_408,
        instance: core::array::from_fn(|index| 0xa0 + u8::try_from(index).unwrap()),
        policy: Policy::Bounded,
        patterns: 2,
        unsure: 9,
        past: PAST,
        legs: AddressList::of(&[Address { ip: v4_of(1), port: 4479 }]),
        repairers: AddressList::of(&repairers),
        name: name("line-3"),
    }
}

fn status() -> Status<'static> {
    Status {
        receiver: RECEIVER,
        window: 1 << 20,
        required: true,
        new: true,
        lost: 5,
        naks: 9,
        echo: SENT,
        held_us: 300,
        dropped: 7,
        count: 4,
        nonce: NONCES[0],
        name: name("line-4"),
    }
}

/// Encodes what was parsed again.
pub(crate) fn encode_again(datagram: &Datagram<'_>) -> Vec<u8> {
    use super::Body;
    let header = &datagram.header;
    let mut buffer = vec![0; 70_000];
    let length = match datagram.body {
        Body::Data(data) => encode_data(header, &data, &mut buffer),
        Body::Session(session) => session.encode(header, None, &mut buffer),
        Body::Nak(nak) => {
            let ranges: Vec<_> = nak.ranges.iter().collect();
            Nak::encode(header, nak.receiver, nak.echo, &ranges, None, &mut buffer)
        }
        Body::Ncf(ncf) => {
            let ranges: Vec<_> = ncf.ranges.iter().collect();
            Ncf::encode(header, ncf.reason, &ranges, None, &mut buffer)
        }
        Body::Status(status) => status.encode(header, None, &mut buffer),
        Body::Topics(topics) => {
            let names = topics.names();
            Topics::encode(header, topics.first, names, None, &mut buffer).map(|(length, _)| length)
        }
        Body::TopicsWanted(wanted) => wanted.encode(header, None, &mut buffer),
        Body::Probe(probe) => probe.encode(header, None, &mut buffer),
        Body::Echo(echo) => Echo::encode(header, echo.sent, echo.nonces(), None, &mut buffer)
            .map(|(length, _)| length),
    };
    buffer.truncate(length.unwrap());
    buffer
}

fn encode_data(header: &Header, data: &Data<'_>, buffer: &mut [u8]) -> Result<usize, NoRoom> {
    let mut writer = DataWriter::new(data.message, data.number);
    data.chunks().try_for_each(|placed| writer.push(&placed.chunk, buffer))?;
    writer.finish(header, data.sent, data.trail, data.unsure, None, buffer)
}
