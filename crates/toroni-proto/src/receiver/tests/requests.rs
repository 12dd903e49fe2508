//! What a receiver sends, and when.

use super::*;
use crate::wire::Status;

fn statuses(bench: &mut Bench, ms: u64) -> Vec<(u32, bool)> {
    let list = bench.sent(ms);
    let statuses = list.iter().filter_map(|bytes| match samples::parse(bytes).unwrap().body {
        Body::Status(Status { window, new, .. }) => Some((window, new)),
        _ => None,
    });
    statuses.collect()
}

#[test]
fn a_receiver_says_every_status_that_it_is_there_and_less_often_in_a_large_group() {
    let (mut source, mut bench) = live(&config());
    let session = source.session(20);
    bench.hears(20, &session);
    assert_eq!(bench.times(5, 0..5_000), [0, 2_000, 4_000]);
    let crowd = session_with(&session, |_, info| info.receivers = 300);
    bench.hears(5_000, &crowd);
    assert_eq!(bench.times(5, 5_000..14_000), [6_000, 9_000, 12_000], "300 × 10 ms");
}

#[test]
fn a_sender_that_waits_hears_every_100_ms_and_after_each_quarter_of_the_window() {
    let (mut source, mut bench) = live(&config());
    bench.sent(0);
    let slowest =
        session_with(&source.session(20), |_, info| info.policy = crate::wire::Policy::Slowest);
    bench.hears(20, &slowest);
    assert_eq!(bench.times(5, 20..500), [120, 220, 320, 420]);
    // A quarter of 128 KiB is 26 datagrams of 1,266 bytes.
    let mut taken = Vec::new();
    for count in 0..60 {
        for bytes in source.publish(500 + count, 41 + count, 1_190) {
            if bytes[3] == 1 {
                bench.hears(500, &bytes);
            }
        }
        taken.extend(statuses(&mut bench, 500).iter().map(|_| count));
    }
    assert_eq!(taken, [25, 51]);
}

#[test]
fn the_window_of_status_is_what_is_left_of_the_memory() {
    let (mut source, mut bench) = live(&config());
    bench.sent(0);
    source.publish(1, 41, 5);
    for count in 0..10 {
        bench.hears_all(2, &source.publish(2 + count, 42 + count, 5));
    }
    let left = (1 << 17) - 10 * 1_408;
    assert_eq!(statuses(&mut bench, 2_000), [(left, false)]);
}

#[test]
fn a_receiver_sends_at_most_one_nak_in_a_millisecond() {
    let (mut source, mut bench) = live(&config());
    // 100 gaps are two NAKs.
    for place in 0..100 {
        source.publish(place, 41 + 2 * place, 5);
        bench.hears_all(100, &source.publish(place, 42 + 2 * place, 5));
    }
    let naks = |bench: &mut Bench, ms| bench.sent(ms).iter().filter(|bytes| bytes[3] == 3).count();
    assert_eq!([102, 102, 103, 103].map(|ms| naks(&mut bench, ms)), [1, 0, 1, 0]);
    assert_eq!(bench.receiver.counters().naks, 2);
}

#[test]
fn what_uses_a_name_that_is_not_known_waits_for_it_and_asks() {
    let (mut source, mut bench) = live(&config());
    source.publish_on("plant/b", 1, 41, 5);
    let next = source.publish_on("plant/b", 2, 42, 5);
    bench.sent(0);
    // The datagram that declares it is given up, because it has left the window.
    let mut moved = next[0].clone();
    moved[56..60].fill(0);
    bench.hears(2, &moved);
    assert_eq!(bench.given(22), [""; 0], "the datagram that says how many were lost waits too");
    assert_eq!(bench.times(7, 22..150), [22, 42, 82]);
    let wanted =
        (150..400).find_map(|ms| bench.sent(ms).into_iter().find(|bytes| bytes[3] == 7)).unwrap();
    source.sender.handle_datagram(now(400), Address::default(), &wanted).unwrap();
    let names = source.sent(400).into_iter().find(|bytes| bytes[3] == 6).unwrap();
    bench.hears(401, &names);
    assert_eq!(bench.given(401), ["Gone=1 in 41..42", "M42"]);
    assert_eq!(bench.times(7, 401..2_000), [0; 0], "no name is missing any more");
}

#[test]
fn a_message_whose_name_does_not_come_is_lost_after_the_generation_interval() {
    let (mut source, mut bench) = live(&config());
    source.publish_on("plant/b", 1, 41, 5);
    let mut next = source.publish_on("plant/b", 2, 42, 5).pop().unwrap();
    next[56..60].fill(0);
    bench.hears(2, &next);
    assert_eq!((bench.given(22), bench.given(521)), (vec![], vec![]));
    assert_eq!(bench.given(522), ["Gone=1 in 41..42", "Topic=1 in 42..43"]);
    assert_eq!((bench.receiver.held(), bench.receiver.mark().unwrap().next), (0, number(43)));
}

#[test]
fn what_needs_a_name_asks_for_it_at_once_however_long_the_pause_has_become() {
    let (mut source, mut bench) = live(&config());
    // Its name is declared in it, and both are lost.
    source.publish_on("plant/b", 1, 41, 5);
    bench.hears(21, &source.session(21));
    bench.given(600);
    bench.hears(601, &source.session(601));
    let asked = bench.times(7, 601..3_000);
    assert!(asked.len() > 3 && asked.iter().all(|ms| *ms < 2_500), "{asked:?}");
    bench.hears_all(3_000, &source.publish_on("plant/b", 3_000, 42, 5));
    assert_eq!(bench.times(7, 3_000..3_015), [3_000]);
}
