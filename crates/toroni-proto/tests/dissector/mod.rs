//! Compares `packaging/wireshark/toroni.lua` with the decoder of this crate: tshark shows packets, and each
//! field must have the value that [`wire::parse`](crate::wire::parse) finds.

mod capture;
mod fields;
mod packets;
mod tshark;

use self::capture::Capture;
use self::fields::Fields;
use self::packets::Packet;
use crate::random::Random;
use crate::wire::samples::KEYS;
use crate::wire::{Kind, samples, tcp};

/// The ports at which the dissector expects the protocol, and others where it must recognise it.
const PORTS: [[u16; 2]; 2] = [[4479, 50_000], [4480, 50_000]];

fn compare<'p>(packets: impl ExactSizeIterator<Item = &'p Packet>, shown: &[Fields]) {
    assert_eq!(shown.len(), packets.len(), "tshark saw another number of packets");
    for (at, (packet, shown)) in packets.zip(shown).enumerate() {
        assert!(!shown.has_failed(), "packet {at}: {shown:?}\n{:02x?}", packet.bytes);
        if let Some(wanted) = &packet.wanted {
            assert_eq!(shown, wanted, "packet {at}: {:02x?}", packet.bytes);
        }
    }
}

#[test]
fn datagrams_are_shown_as_they_are_decoded() {
    if !tshark::is_installed("datagrams_are_shown_as_they_are_decoded") {
        return;
    }
    let packets = packets::datagrams();
    for port in PORTS[0] {
        let mut capture = Capture::new();
        packets.iter().for_each(|packet| capture.datagram(port, &packet.bytes));
        compare(packets.iter(), &tshark::fields(&capture));
    }
}

#[test]
fn frames_are_shown_as_they_are_decoded() {
    if !tshark::is_installed("frames_are_shown_as_they_are_decoded") {
        return;
    }
    for keys in [None, Some(&KEYS)] {
        let packets = packets::frames(keys);
        let mut capture = Capture::new();
        for (to_server, packet) in &packets {
            capture.segment(PORTS[1][0], *to_server, &packet.bytes);
        }
        compare(packets.iter().map(|(_, packet)| packet), &tshark::fields(&capture));
    }
}

/// Frames begin and end anywhere in the segments of a connection whose port says nothing.
#[test]
fn frames_are_found_in_a_connection() {
    if !tshark::is_installed("frames_are_found_in_a_connection") {
        return;
    }
    let mut capture = Capture::new();
    capture.segment(PORTS[1][1], true, &tcp::samples::of(tcp::Kind::Hello));
    let from_server = || tcp::Kind::ALL.into_iter().filter(|kind| *kind != tcp::Kind::Hello);
    let bytes: Vec<u8> = from_server().flat_map(tcp::samples::of).collect();
    let mut random = Random::new(3);
    let mut left = &bytes[..];
    while !left.is_empty() {
        let length = random.between(1, 60).min(left.len() as u64);
        let (segment, rest) = left.split_at(usize::try_from(length).unwrap());
        capture.segment(PORTS[1][1], false, segment);
        left = rest;
    }
    let shown = tshark::fields(&capture);
    let kinds: Vec<String> =
        shown.iter().flat_map(|shown| shown.values("toroni.tcp.type")).collect();
    let wanted = [tcp::Kind::Hello].into_iter().chain(from_server());
    assert_eq!(kinds, wanted.map(|kind| (kind as u8).to_string()).collect::<Vec<_>>());
}

/// What one datagram says of source and topics is shown with the next ones.
#[test]
fn sources_and_topics_have_their_names() {
    if !tshark::is_installed("sources_and_topics_have_their_names") {
        return;
    }
    let mut capture = Capture::new();
    for kind in [Kind::Data, Kind::Session, Kind::Data, Kind::Nak] {
        capture.datagram(PORTS[0][0], &samples::of(kind).bytes);
    }
    let arguments = [
        "-T",
        "fields",
        "-e",
        "toroni.source_name",
        "-e",
        "toroni.chunk.topic_name",
        "-e",
        "_ws.col.Info",
    ];
    let shown = tshark::run(&capture, &arguments);
    assert_eq!(
        shown.lines().collect::<Vec<_>>(),
        [
            "\ta/b,a/b\tDATA 01020304/7 1000 3 chunks",
            "\t\tSESSION 01020304/7 1000 line-3",
            "line-3\ta/b,a/b\tDATA line-3/7 1000 3 chunks",
            "line-3\t\tNAK line-3/7 1000 misses 6",
        ]
    );
}

/// A client that wants nothing but history says so in HELLO.
#[test]
fn a_hello_for_history_alone_is_named() {
    if !tshark::is_installed("a_hello_for_history_alone_is_named") {
        return;
    }
    let mut capture = Capture::new();
    capture.segment(PORTS[1][0], true, &tcp::samples::of(tcp::Kind::Hello));
    capture.segment(PORTS[1][0], true, &packets::historian(None));
    let shown = tshark::run(&capture, &["-T", "fields", "-e", "_ws.col.Info"]);
    let shown: Vec<&str> = shown.lines().map(str::trim).collect();
    assert_eq!(shown, ["HELLO line-4", "HELLO line-6, for history alone"]);
}
