//! What concerns all streams of a node: turns of its loop, shares of its memory, its legs.

use super::*;
use crate::id::Sequence;
use crate::legs::LegCounters;

fn path(leg: usize, port: u16) -> Path {
    Path { leg: Leg::new(leg).unwrap(), address: Address { ip: [0; 16], port } }
}

/// What is sent at a time: type, leg and port.
fn sent(sink: &mut Sink, ms: u64) -> Vec<(u8, usize, u16)> {
    let mut list = Vec::new();
    while let Some((to, bytes)) = sink.arrivals.poll_transmit(now(ms).monotonic) {
        list.push((bytes[3], to.leg.index(), to.address.port));
    }
    list
}

#[test]
fn a_turn_that_begins_late_moves_the_deadlines_before_anything_is_read() {
    let mut source = ORIGIN.start();
    let mut sink = Sink::new(&config());
    sink.hears_all(0, &source.publish(0, 40, 5));
    let repair = source.publish(1, 41, 5);
    sink.hears_all(2, &source.publish(2, 42, 5));
    assert_eq!(sink.arrivals.begin_turn(now(2).monotonic), None);
    let due = sink.arrivals.poll_timeout().unwrap();
    let late = |ms: u64| Monotonic::from_ns(due.ns() + ms * MILLISECOND);
    assert_eq!(sink.arrivals.begin_turn(late(20)), None, "that is no stall");
    assert_eq!(sink.arrivals.begin_turn(late(5_000)), Some(5_000 * MILLISECOND));
    assert_eq!(sink.arrivals.begin_turn(late(5_000)), None, "it was moved");
    // The first datagram that waited in the socket is not the repair.
    let next = source.publish(3, 43, 5);
    let at = (late(5_000).ns() - now(0).monotonic.ns()) / MILLISECOND;
    sink.hears_all(at, &next);
    assert_eq!(sink.given(at), ["M40"]);
    sink.hears_all(at, &repair);
    assert_eq!(sink.given(at), ["M41", "M42", "M43"]);
}

#[test]
fn all_receivers_that_join_share_a_sixteenth_of_the_buffers() {
    // 46 buffers, of which 2 are for those that join.
    let mut sink = Sink::new(&Config { receive_memory_bytes: 1 << 16, ..config() });
    let list: Vec<_> =
        (1..4).map(|source| Origin { source, ..ORIGIN }.start().publish(0, 40, 5)).collect();
    for datagrams in &list {
        assert_eq!(sink.hears(0, &datagrams[1]), Ok(()));
    }
    assert_eq!((sink.arrivals.buffers(), sink.arrivals.dropped()), ((44, 2), (1, 0)));
    // One that has joined needs no share, and one whose DATA found no room joins later.
    for datagrams in &list {
        assert_eq!(sink.hears(1, &datagrams[0]), Ok(()));
    }
    assert_eq!(sink.given(1), ["M40", "M40"]);
    assert_eq!(sink.arrivals.buffers(), (46, 0));
}

#[test]
fn naks_alternate_over_the_legs_on_which_the_source_is_heard() {
    let mut source = ORIGIN.start();
    let mut sink = Sink::new(&config());
    let first = source.publish(0, 40, 5);
    for bytes in &first {
        assert_eq!(sink.hears_from(0, path(0, 1_000), bytes), Ok(()));
        assert_eq!(sink.hears_from(0, path(1, 1_001), bytes), Ok(()));
    }
    sent(&mut sink, 0);
    source.publish(1, 41, 5);
    for bytes in source.publish(2, 42, 5) {
        assert_eq!(sink.hears_from(2, path(1, 1_001), &bytes), Ok(()));
    }
    let ways: Vec<_> = (3..120).flat_map(|ms| sent(&mut sink, ms)).collect();
    let naks: Vec<_> = ways.iter().filter(|(kind, ..)| *kind == 3).collect();
    assert!(naks.len() >= 4, "{ways:?}");
    for (place, (_, leg, port)) in naks.iter().enumerate() {
        assert_eq!((*leg, usize::from(*port)), (place % 2, 1_000 + place % 2), "{ways:?}");
    }
    let legs: Vec<_> = sink.arrivals.legs().map(|(_, _, leg, counters)| (leg, counters)).collect();
    let wanted = |first, duplicates, missing| LegCounters { first, duplicates, missing };
    let wanted = [(path(0, 0).leg, wanted(1, 0, 1)), (path(1, 0).leg, wanted(1, 1, 0))];
    assert_eq!(legs, wanted);
}

#[test]
fn a_leg_that_brings_nothing_for_a_second_is_reported() {
    let mut source = ORIGIN.start();
    let mut sink = Sink::new(&config());
    for bytes in source.publish(0, 40, 5) {
        assert_eq!(sink.hears_from(0, path(0, 1_000), &bytes), Ok(()));
        assert_eq!(sink.hears_from(0, path(1, 1_001), &bytes), Ok(()));
    }
    for (ms, number) in [(10, 41), (1_009, 42), (1_010, 43), (3_000, 44)] {
        for bytes in source.publish(ms, number, 5) {
            assert_eq!(sink.hears_from(ms, path(1, 1_001), &bytes), Ok(()));
        }
        let behind: Vec<_> = events(&mut sink);
        let is_behind = matches!(behind[..], [Event::LegBehind(_, leg)] if leg.index() == 0);
        assert_eq!(is_behind, ms == 1_010, "{behind:?} at {ms}");
    }
}

#[test]
fn on_a_feed_the_repairers_are_asked_in_turn_and_the_sender_last() {
    let repairers = [path(0, 2_000).address, path(0, 2_001).address];
    let mut source = ORIGIN.feed(&repairers);
    let mut sink = Sink::new(&config());
    let sender = path(0, 1_000);
    for bytes in source.publish(0, 40, 5) {
        assert_eq!(sink.hears_from(0, sender, &bytes), Ok(()));
    }
    sent(&mut sink, 0);
    let missed = source.publish(1, 41, 5);
    for bytes in source.publish(2, 42, 5) {
        assert_eq!(sink.hears_from(2, sender, &bytes), Ok(()));
    }
    // What a repairer does not have, another one may have.
    let sequence = u64::from_le_bytes(missed[0][24..32].try_into().unwrap());
    let gone = gone(&missed[0], sequence);
    assert_eq!(sink.hears_from(3, path(0, 2_001), &gone), Ok(()));
    assert_eq!(sink.arrivals.open_gaps(), 1);
    let ways: Vec<_> = (3..150).flat_map(|ms| sent(&mut sink, ms)).collect();
    let naks: Vec<u16> =
        ways.iter().filter(|(kind, ..)| *kind == 3).map(|(.., port)| *port).collect();
    // Source 9 begins with the second of two.
    assert_eq!(naks[..5], [2_001, 2_000, 1_000, 2_001, 2_000], "{ways:?}");
    assert_eq!(sink.given(150), ["M40"]);
    assert_eq!(sink.hears_from(150, sender, &gone), Ok(()));
    assert_eq!(sink.given(150), ["Gone=1 in 41..42", "M42"]);
}

/// An NCF that says that a datagram is gone.
fn gone(data: &[u8], sequence: u64) -> Vec<u8> {
    let header = samples::parse(data).unwrap().header;
    let range = crate::wire::Range::new(Sequence::new(sequence).unwrap(), 1).unwrap();
    let header = Header { sequence: header.sequence.plus(2), ..header };
    let mut bytes = [0; 100];
    let reason = crate::wire::NcfReason::Gone;
    let length = crate::wire::Ncf::encode(&header, reason, &[range], None, &mut bytes).unwrap();
    bytes[..length].to_vec()
}

#[test]
fn status_states_what_the_kernel_has_dropped() {
    let mut sink = Sink::new(&config());
    let mut source = ORIGIN.start();
    sink.arrivals.set_kernel_dropped(7);
    sink.hears_all(0, &source.publish(0, 40, 5));
    let mut dropped = Vec::new();
    for ms in [0, 2_500] {
        while let Some((_, bytes)) = sink.arrivals.poll_transmit(now(ms).monotonic) {
            if let crate::wire::Body::Status(status) = samples::parse(bytes).unwrap().body {
                dropped.push(status.dropped);
            }
        }
        sink.arrivals.set_kernel_dropped(9);
    }
    assert_eq!(dropped, [7, 9]);
}
