//! Datagrams and frames: one of each type, and what becomes of them when a few of their bytes change.

use super::fields::Fields;
use crate::id::{MessageNumber, Number, Origin, Series, Session, Source, Stream};
use crate::random::Random;
use crate::time::Wall;
use crate::wire::chunk::tests::{start, topic};
use crate::wire::samples::{KEYS, RULES, header, sequence};
use crate::wire::{
    Chunk, DataWriter, Flags, Header, Keys, LostReason, MAC_BYTES, NodeName, Probe, ProbeKind,
    Rules, Start, TableName, parse, samples, tcp,
};

/// How many changed datagrams and frames there are of each type.
const CHANGED: usize = 150;

/// What is sent, and what must be shown.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) bytes: Vec<u8>,
    /// `None` if our decoder refuses it: then it may be shown in any way.
    pub(super) wanted: Option<Fields>,
}

/// Datagrams of every type: whole, signed, changed and cut.
pub(super) fn datagrams() -> Vec<Packet> {
    let mut packets = Vec::new();
    for keys in [None, Some(&KEYS)] {
        let samples = samples::all().map(|sample| sample.encode(keys));
        let others = data(keys).chain([question(keys)]);
        packets.extend(samples.chain(others).map(|bytes| datagram(bytes, keys)));
    }
    let mut random = Random::new(1);
    for bytes in samples::all().map(|sample| sample.bytes).chain(data(None)) {
        for _ in 0..CHANGED {
            let mut bytes = changed(&bytes, &mut random);
            let length = u16::try_from(bytes.len()).unwrap().to_le_bytes();
            bytes[6..8].copy_from_slice(&length);
            bytes[..3].copy_from_slice(b"TN\x02");
            bytes[8..12].copy_from_slice(&RULES.realm.0.to_le_bytes());
            packets.push(datagram(bytes, None));
        }
    }
    packets
}

/// Frames of every type, from the client or from the server.
pub(super) fn frames(keys: Option<&Keys>) -> Vec<(bool, Packet)> {
    let mut packets = Vec::new();
    let mut random = Random::new(2);
    for kind in tcp::Kind::ALL {
        let to_server = kind == tcp::Kind::Hello;
        let bytes = tcp::samples::signed(kind, keys);
        packets.push((to_server, frame(bytes.clone(), keys)));
        for _ in 0..CHANGED * usize::from(keys.is_none()) {
            let mut bytes = changed(&bytes, &mut random);
            let length = u32::try_from(bytes.len()).unwrap().to_le_bytes();
            bytes[..4].copy_from_slice(&length);
            packets.push((to_server, frame(bytes, keys)));
        }
    }
    packets.push((true, frame(historian(keys), keys)));
    packets
}

/// HELLO of a client that wants nothing but the history that it asks for.
pub(super) fn historian(keys: Option<&Keys>) -> Vec<u8> {
    let who = (Source(0xa1b2_c3d4), Session(0x0a0b_0c0d));
    let (nonce, name) = (tcp::samples::NONCES.client, NodeName::new("line-6").unwrap());
    let patterns = [TableName::new("plant/**").unwrap()].into_iter();
    let seal = tcp::Seal { keys, context: tcp::samples::context() };
    let mut buffer = vec![0; 200];
    let length = tcp::Hello::encode(
        RULES.realm,
        who,
        tcp::Flags::REPLAY,
        nonce,
        1 << 20,
        name,
        patterns,
        [].into_iter(),
        &seal,
        &mut buffer,
    );
    buffer.truncate(length.unwrap());
    buffer
}

/// Changes a few bytes, and sometimes the length, of a datagram or frame.
fn changed(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..random.between(1, 4) {
        let at = usize::try_from(random.below(bytes.len() as u64)).unwrap();
        bytes[at] = u8::try_from(random.below(256)).unwrap();
    }
    if random.below(4) == 0 {
        let length = random.between(32, 200);
        bytes.resize(usize::try_from(length).unwrap(), 0);
    }
    bytes
}

fn datagram(bytes: Vec<u8>, keys: Option<&Keys>) -> Packet {
    let wanted = parse(&bytes, &Rules { keys, ..RULES }, |_, _| Ok(()))
        .ok()
        .map(|parsed| Fields::of_datagram(&parsed, bytes.len(), mac(&bytes, keys)));
    Packet { wanted: wanted.filter(Fields::is_printable), bytes }
}

fn frame(bytes: Vec<u8>, keys: Option<&Keys>) -> Packet {
    let rules = Rules { keys, ..RULES };
    let wanted = tcp::parse(&bytes, &rules, |_, _| tcp::samples::context())
        .ok()
        .map(|parsed| Fields::of_frame(&parsed, bytes.len(), mac(&bytes, keys)));
    Packet { wanted: wanted.filter(Fields::is_printable), bytes }
}

fn mac<'a>(bytes: &'a [u8], keys: Option<&Keys>) -> Option<&'a [u8]> {
    keys.and_then(|_| bytes.get(bytes.len() - MAC_BYTES..))
}

/// A question of PROBE, whose sample is an answer.
fn question(keys: Option<&Keys>) -> Vec<u8> {
    let name = NodeName::new("line-5").unwrap();
    let probe = Probe { sent: Wall::from_ns(1), kind: ProbeKind::Ask { padding: 9 }, name };
    let mut buffer = vec![0; 200];
    let length = probe.encode(&header(1_000), keys, &mut buffer).unwrap();
    buffer.truncate(length);
    buffer
}

/// DATA with every kind of chunk: the end of a message, LOST, names, a message of a feed, and the beginning of
/// one.
fn data(keys: Option<&Keys>) -> impl Iterator<Item = Vec<u8>> + use<> {
    let origin = Origin {
        source: Source(0x0a0b_0c0d),
        series: Series(0x1a1b_1c1d),
        stream: Stream(3),
        number: Number::new(0x1122_3344_5566).unwrap(),
    };
    let published = Some(Wall::from_ns(1_700_000_000_123_456_789));
    let rest = Chunk::Rest { topic: topic(3), offset: 1_300, last: true, payload: b"end" };
    let lost =
        Chunk::Lost { count: 41, until: Number::new(900).unwrap(), reason: LostReason::Overtaken };
    let name = Chunk::Topic { number: topic(9), name: TableName::new("plant/ä").unwrap() };
    let of_feed = Start { origin: Some(origin), published, to_descendants: true, ..start(950) };
    let whole = Chunk::Message { start: of_feed, payload: b"whole" };
    let plain = Chunk::Message { start: start(951), payload: &[0, 0xff] };
    let begin = Chunk::First {
        start: Start { topic: topic(9), ..start(952) },
        total: 5_000,
        payload: b"begin",
    };
    let middle = Chunk::Rest { topic: topic(9), offset: 5, last: false, payload: b"middle" };

    let feed = Flags::FEED;
    let again = Flags::FEED.with(Flags::RETRANSMISSION);
    let all = vec![rest, lost, name, whole, plain, begin];
    let keys = keys.copied();
    [(feed, all), (again, vec![middle])].into_iter().map(move |(flags, chunks)| {
        let mut buffer = vec![0; 2_000];
        let mut writer = DataWriter::new(MessageNumber::new(77).unwrap(), Number::ZERO);
        chunks.iter().for_each(|chunk| writer.push(chunk, &mut buffer).unwrap());
        let header = Header { flags, ..header(1_000) };
        let sent = Wall::from_ns(1_700_000_000_000_000_001);
        let length =
            writer.finish(&header, sent, sequence(1), 5, keys.as_ref(), &mut buffer).unwrap();
        buffer.truncate(length);
        buffer
    })
}

#[test]
fn the_changed_packets_are_not_all_refused() {
    let frames = frames(None).into_iter().map(|(_, packet)| packet);
    for packets in [datagrams(), frames.collect()] {
        let accepted = packets.iter().filter(|packet| packet.wanted.is_some()).count();
        assert!(accepted > packets.len() / 5, "{accepted} of {}", packets.len());
        assert!(accepted < packets.len() * 3 / 4, "{accepted} of {}", packets.len());
    }
}
