//! Losses: when a gap is given up and why, and that each count is exact.

use super::*;
use crate::wire::{Ncf, NcfReason};

#[test]
fn a_gap_is_given_up_after_the_generation_interval_with_an_exact_count() {
    let (mut source, mut bench) = live(&config());
    for number in 41..44 {
        source.publish(1, number, 5);
    }
    bench.hears_all(2, &source.publish(2, 44, 5));
    assert_eq!(bench.given(501), [""; 0]);
    assert_eq!(bench.given(502), ["Budget=3 in 41..44", "M44"]);
    let counters = bench.receiver.counters();
    assert_eq!((counters.messages, counters.lost, counters.repaired), (2, 3, 0));
}

#[test]
fn a_message_that_is_cut_at_the_edge_of_a_gap_counts_as_one() {
    // A long message has parts in three datagrams. Numbers 41 and 43 are short.
    let lost = |from: usize, until: usize, order: Order| {
        let (mut source, mut bench) = live(&Config { order, ..config() });
        let mut list: Vec<Vec<u8>> = Vec::new();
        list.extend(source.publish(1, 41, 5));
        list.extend(source.publish(1, 42, 3_000));
        list.extend(source.publish(1, 43, 5));
        assert_eq!(list.len(), 5);
        for (place, bytes) in list.iter().enumerate() {
            if !(from..until).contains(&place) {
                bench.hears(1, bytes);
            }
        }
        (bench.given(1_000), bench.pool.free())
    };
    for (from, until, wanted) in [
        (0, 1, ["Budget=1 in 41..42", "M42", "M43"].as_slice()),
        (0, 2, &["Budget=2 in 41..43", "M43"]),
        (1, 2, &["M41", "Budget=1 in 42..43", "M43"]),
        (2, 3, &["M41", "Budget=1 in 42..43", "M43"]),
        (3, 4, &["M41", "Budget=1 in 42..43", "M43"]),
        (0, 4, &["Budget=2 in 41..43", "M43"]),
    ] {
        let (given, free) = lost(from, until, Order::Source);
        assert_eq!((given, free), (wanted.iter().map(ToString::to_string).collect(), 400));
        // By arrival the same, with the loss last.
        let (given, free) = lost(from, until, Order::Arrival);
        let mut wanted = wanted.to_vec();
        wanted.sort_by_key(|one| one.starts_with('B'));
        assert_eq!(free, 400);
        assert_eq!(given, wanted, "{from}..{until}");
    }
}

#[test]
fn a_loss_at_the_end_is_found_by_session_and_never_only_by_the_next_datagram() {
    for order in [Order::Source, Order::Arrival] {
        let (mut source, mut bench) = live(&Config { order, ..config() });
        source.publish(1, 41, 5);
        source.publish(1, 42, 3_000);
        bench.hears(21, &source.session(21));
        assert_eq!((bench.given(520), bench.receiver.open_gaps()), (vec![], 1));
        assert_eq!(bench.given(521), ["Budget=2 in 41..43"]);
        assert_eq!(bench.receiver.mark().unwrap().next, number(43));
    }
}

#[test]
fn what_is_repaired_is_delivered_in_the_order_that_was_asked_for() {
    for (config, wanted) in [(config(), ["M41", "M42"]), (by_arrival(), ["M42", "M41"])] {
        let (mut source, mut bench) = live(&config);
        let missed = source.publish(1, 41, 5);
        bench.hears_all(2, &source.publish(2, 42, 5));
        let nak = (2..6).find_map(|ms| bench.sent(ms).into_iter().find(|bytes| bytes[3] == 3));
        source.sender.handle_datagram(now(6), Address::default(), &nak.unwrap()).unwrap();
        let repair = source.sent(6).into_iter().find(|bytes| bytes[4] == 1).unwrap();
        assert_eq!(sequence_of(&repair), sequence_of(&missed[0]));
        bench.hears(7, &repair);
        bench.hears(8, &repair);
        assert_eq!(bench.given(8), wanted);
        let counters = bench.receiver.counters();
        assert_eq!((counters.repaired, counters.naks, counters.duplicates), (1, 1, 1));
        assert_eq!(counters.repair_max_ns, 5 * MILLISECOND);
    }
}

#[test]
fn what_the_sender_says_is_gone_is_given_up_at_once() {
    let (mut source, mut bench) = live(&config());
    let missed = source.publish(1, 41, 5);
    let next = source.publish(1, 42, 5);
    bench.hears_all(1, &next);
    let range = Range::new(sequence_of(&missed[0]), 1).unwrap();
    let header = Header { sequence: sequence_of(&next[0]).plus(1), ..samples::header(0) };
    let header = Header { source: SourceId(1), session: Session(100), ..header };
    for (reason, wanted) in [
        (NcfReason::Delayed, [].as_slice()),
        (NcfReason::Shed, &[]),
        (NcfReason::Gone, &["Gone=1 in 41..42", "M42"]),
    ] {
        let mut bytes = [0; 100];
        let length = Ncf::encode(&header, reason, &[range], None, &mut bytes).unwrap();
        bench.hears(2, &bytes[..length]);
        assert_eq!(bench.given(2), wanted, "{reason:?}");
    }
}

#[test]
fn what_the_trail_has_passed_has_one_more_pause() {
    let (mut source, mut bench) = live(&config());
    source.publish(1, 41, 5);
    let mut next = source.publish(1, 42, 5).pop().unwrap();
    // `behind` 0: all before this datagram has left the window.
    next[56..60].fill(0);
    bench.hears(1, &next);
    assert_eq!(bench.given(20), [""; 0]);
    assert_eq!(bench.given(21), ["Gone=1 in 41..42", "M42"]);
}

#[test]
fn when_memory_is_short_the_oldest_gap_is_given_up() {
    // Room for 46 datagrams.
    let (mut source, mut bench) =
        live(&Config { reorder_memory_bytes: 1 << 16, message_max_bytes: 9_000, ..config() });
    source.publish(1, 41, 5);
    for number in 42..88 {
        bench.hears_all(2, &source.publish(number, number, 5));
    }
    assert_eq!((bench.given(90), bench.receiver.held()), (vec![], 46));
    bench.hears_all(90, &source.publish(90, 88, 5));
    let given = bench.given(90);
    assert_eq!(given[..2], ["Memory=1 in 41..42", "M42"]);
    assert_eq!((given.len(), bench.receiver.held()), (48, 0));
}

#[test]
fn one_gap_more_than_there_is_room_for_ends_the_oldest() {
    let big = Config { reorder_memory_bytes: 4 << 20, receive_memory_bytes: 4 << 20, ..config() };
    let (mut source, mut bench) = live(&big);
    bench.pool = Pool::new(2_000, 1_408);
    for place in 0..1_025 {
        source.publish(place, 41 + 2 * place, 5);
        let kept = source.publish(place, 42 + 2 * place, 5);
        kept.iter().filter(|bytes| bytes[3] == 1).for_each(|bytes| bench.hears(1, bytes));
        let wanted: &[&str] = if place == 1_024 { &["Burst=1 in 41..42", "M42"] } else { &[] };
        assert_eq!(core::mem::take(&mut bench.seen.0), wanted, "gap {place}");
    }
    assert_eq!(bench.receiver.open_gaps(), 1_024);
}

#[test]
fn without_repairs_a_gap_is_told_at_once_and_nothing_is_asked_for() {
    let (mut source, mut bench) = live(&Config { generation_ns: 0, ..config() });
    source.publish(1, 41, 5);
    bench.hears_all(2, &source.publish(2, 42, 5));
    assert_eq!(bench.given(2), ["Budget=1 in 41..42", "M42"]);
    assert_eq!(bench.times(3, 2..100), [0; 0]);
}

#[test]
fn a_jump_is_believed_when_it_is_continued_and_then_it_is_one_loss() {
    let far = 65_536;
    let at = |sequence: u64, bytes: &[u8]| {
        session_with(bytes, |header, info| {
            header.sequence = Sequence::new(sequence).unwrap();
            let sent = sequence - FIRST;
            (info.message, info.number) = (MessageNumber::new(sent).unwrap(), number(40 + sent));
            info.trail = info.first;
        })
    };
    let (mut source, mut bench) = live(&config());
    let session = source.session(20);
    // Not far enough: that is a gap.
    bench.hears(20, &at(FIRST + far, &session));
    assert_eq!((bench.given(20), bench.receiver.open_gaps()), (vec![], 1));

    let (mut source, mut bench) = live(&config());
    bench.hears(20, &at(FIRST + 1 + far, &session));
    assert_eq!((bench.given(20), bench.receiver.open_gaps()), (vec![], 0));
    // DATA from where the stream was contradicts it.
    bench.hears_all(21, &source.publish(21, 41, 5));
    bench.hears(22, &at(FIRST + 2 + far, &session));
    assert_eq!((bench.given(22), bench.receiver.open_gaps()), (vec!["M41".to_owned()], 0));
    // A later SESSION that is not below it confirms it.
    bench.hears(40, &at(FIRST + 2 + far, &session));
    let wanted = format!("Jump<={far} in 42..{}", 42 + far);
    assert_eq!((bench.given(40), bench.receiver.open_gaps()), (vec![wanted], 0));
    assert_eq!(bench.times(3, 40..100), [0; 0], "no NAK for it");
}

#[test]
fn end_ends_nothing_but_detection() {
    let (mut source, mut bench) = live(&config());
    let missed = source.publish(1, 41, 5);
    source.sender.end(now(2), false);
    let end = source.session(21);
    bench.hears(21, &end);
    assert_eq!((bench.given(520), bench.receiver.ended()), (vec![], None));
    // Repaired, or given up at its deadline: then the session has ended completely.
    bench.hears_all(520, &missed);
    assert_eq!(
        (bench.given(520), bench.receiver.ended()),
        (vec!["M41".to_owned()], Some(End::Complete))
    );

    let (mut source, mut bench) = live(&config());
    source.publish(1, 41, 5);
    source.sender.end(now(2), false);
    bench.hears(21, &source.session(21));
    assert_eq!(bench.given(521), ["Budget=1 in 41..42"]);
    assert_eq!(bench.receiver.ended(), Some(End::Complete));
    assert_eq!((bench.given(20_000), bench.receiver.poll_timeout()), (vec![], None));
}

#[test]
fn silence_tells_what_is_missing_and_that_there_may_be_more() {
    let (mut source, mut bench) = live(&Config { generation_ns: 9_000 * MILLISECOND, ..config() });
    source.publish(1, 41, 5);
    bench.hears_all(2_000, &source.publish(1, 42, 5));
    assert_eq!(bench.given(10_999), [""; 0]);
    bench.receiver.postpone(1_500 * MILLISECOND);
    assert_eq!(bench.given(13_499), ["Budget=1 in 41..42", "M42"]);
    assert_eq!(bench.given(13_500), ["Silent>=0 in 43.."]);
    let left = bench.receiver.left().unwrap();
    assert_eq!((left.counted.message.get(), bench.receiver.ended()), (3, Some(End::Silent)));

    let (mut source, mut bench) = live(&Config { generation_ns: 9_999 * MILLISECOND, ..config() });
    source.publish(1, 41, 5);
    bench.hears_all(1, &source.publish(1, 42, 5));
    bench.receiver.close(Over::Silent, &mut bench.pool, &mut bench.seen);
    assert_eq!(bench.given(5), ["Silent=1 in 41..42", "M42", "Silent>=0 in 43.."]);
    assert_eq!(bench.pool.free(), 400);
}

#[test]
fn a_session_that_is_heard_again_after_its_silence_brings_nothing_twice() {
    let (mut source, mut bench) = live(&config());
    let session = source.session(20);
    assert_eq!(bench.given(10_000), ["Silent>=0 in 41.."]);
    let (left, mark) = (bench.receiver.left(), bench.receiver.mark());
    let header = samples::parse(&session).unwrap().header;
    bench.receiver.restart(header, now(11_000).monotonic, &mut bench.pool);
    bench.receiver.resume(left);
    bench.mark = mark;
    source.publish(11_000, 41, 5);
    bench.hears(11_001, &source.session(11_021));
    bench.hears_all(11_030, &source.publish(11_030, 42, 5));
    // The name is asked for again, and 41 is a gap like any other.
    assert_eq!((bench.given(11_030), bench.receiver.open_gaps()), (vec![], 1));
    let given = bench.given(11_600);
    assert_eq!(given[0], "Budget=1 in 41..42");
}
