//! Joining: what is held, and where a session begins.

use super::*;
use crate::receiver::JOIN_HELD;

#[test]
fn who_joins_in_the_middle_begins_with_the_first_message_that_starts_in_what_is_held() {
    let mut source = ORIGIN.start();
    for ms in 0..100 {
        source.publish(ms, 40 + ms, 5);
    }
    // A long message, of which the receiver has the end only.
    let long = source.publish(100, 140, 3_000);
    let mut bench = Bench::new(&config());
    bench.hears_all(100, &long[1..]);
    bench.hears_all(101, &source.publish(101, 141, 5));
    assert_eq!((bench.given(101), bench.receiver.held()), (vec![], long.len()));
    // What is repaired for others lies before what is wanted.
    let mut again = source.publish(102, 142, 5).pop().unwrap();
    again[4] |= 1;
    bench.hears(102, &again);
    assert_eq!(bench.receiver.held(), long.len());
    bench.hears(121, &source.session(122));
    // Names that were declared before come first.
    assert_eq!(bench.given(121), [""; 0]);
    let wanted = bench.sent(121).into_iter().find(|bytes| bytes[3] == 7).unwrap();
    source.sender.handle_datagram(now(122), Address::default(), &wanted).unwrap();
    let names = source.sent(123).into_iter().find(|bytes| bytes[3] == 6).unwrap();
    bench.hears(123, &names);
    let given = bench.given(123);
    assert_eq!(given, ["M141"], "140 had begun before, and 142 is a gap");
    assert_eq!(bench.receiver.counters().lost, 0, "that is no loss, as on a bus");
}

#[test]
fn at_most_64_datagrams_are_held_and_at_most_for_200_ms() {
    let mut source = ORIGIN.start();
    let mut bench = Bench::new(&config());
    for ms in 0..70 {
        for bytes in source.publish(ms, 40 + ms, 5).iter().filter(|bytes| bytes[3] == 1) {
            bench.hears(ms, bytes);
            // A copy takes no place.
            bench.hears(ms, bytes);
        }
    }
    assert_eq!((bench.receiver.held(), bench.pool.free()), (JOIN_HELD, 400 - JOIN_HELD));
    bench.given(199);
    assert_eq!(bench.receiver.held(), JOIN_HELD);
    bench.given(200);
    assert_eq!((bench.receiver.held(), bench.pool.free()), (0, 400));
    // What comes now is held again, for another 200 ms.
    let next = source.publish(210, 110, 5).pop().unwrap();
    bench.hears(210, &next);
    bench.given(409);
    assert_eq!(bench.receiver.held(), 1);
    bench.given(410);
    assert_eq!(bench.receiver.held(), 0);
}

#[test]
fn who_joins_asks_for_a_session_at_once_and_then_less_and_less_often() {
    let mut bench = Bench::new(&config());
    assert_eq!(bench.times(5, 0..5_000), [0, 20, 60, 140, 300, 620, 1_260, 2_540, 4_540]);
    let status = Bench::new(&config()).sent(0).pop().unwrap();
    let Body::Status(status) = samples::parse(&status).unwrap().body else { panic!("a STATUS") };
    assert!(status.new && status.required);
    assert_eq!((status.receiver.source, status.name.as_str()), (SourceId(9), "line-9"));
}

#[test]
fn a_new_series_that_was_just_begun_is_received_from_its_start() {
    let mut source = ORIGIN.start();
    let mut bench = Bench::new(&config());
    let first = source.publish(0, 40, 5);
    let second = source.publish(1, 41, 5);
    // The first datagram is missing, and one of less than 64: it is repaired.
    bench.hears(1, &second[0]);
    bench.hears(1, &first[0]);
    assert_eq!((bench.given(1), bench.receiver.open_gaps()), (vec![], 1));
    bench.hears(2, &first[1]);
    assert_eq!(bench.given(2), ["M40", "M41"]);
}

fn known(next: u64) -> Option<Mark> {
    Some(Mark { session: Session(99), series: Series(1), next: number(next) })
}

#[test]
fn in_a_known_series_the_head_of_a_session_is_never_skipped() {
    let mut source = ORIGIN.start();
    for ms in 0..100 {
        source.publish(ms, 40 + ms, 5);
    }
    let session = source.session(121);
    for (mark, wanted) in [(known(40), ""), (known(35), "Restart<=5 in 35..40")] {
        let mut bench = Bench { mark, ..Bench::new(&config()) };
        bench.hears(121, &session);
        let given = bench.given(121).concat();
        assert_eq!((given.as_str(), bench.receiver.open_gaps()), (wanted, 1));
        let nak = bench.times(3, 122..130);
        assert_eq!(nak.len(), 1);
    }
    // A new series begins with what is sent next.
    let mut bench = Bench::new(&config());
    bench.hears(121, &session);
    assert_eq!((bench.given(121), bench.receiver.open_gaps()), (vec![], 0));
}

#[test]
fn what_is_more_than_a_sender_queues_for_one_receiver_is_a_loss_and_not_asked_for() {
    let mut source = ORIGIN.start();
    let session = source.publish(0, 40, 5).remove(0);
    for (sent, gaps, wanted) in [(4_096, 1, ""), (4_097, 0, "Restart<=960 in 40..1000")] {
        let session = session_with(&session, |header, info| {
            header.sequence = Sequence::new(FIRST + sent).unwrap();
            (info.message, info.number) = (MessageNumber::new(sent).unwrap(), number(1_000));
            info.trail = info.first;
        });
        let mut bench = Bench { mark: known(40), ..Bench::new(&config()) };
        bench.hears(1, &session);
        let given = bench.given(1).concat();
        assert_eq!((given.as_str(), bench.receiver.open_gaps()), (wanted, gaps), "{sent}");
    }
}

#[test]
fn what_left_the_window_before_we_came_is_a_loss_at_once() {
    let mut source = ORIGIN.start();
    let session = source.publish(0, 40, 5).remove(0);
    let session = session_with(&session, |header, info| {
        header.sequence = Sequence::new(FIRST + 20).unwrap();
        (info.message, info.number) = (MessageNumber::new(20).unwrap(), number(60));
        info.trail = Sequence::new(FIRST + 8).unwrap();
    });
    let mut bench = Bench { mark: known(40), ..Bench::new(&config()) };
    bench.hears(1, &session);
    assert_eq!((bench.given(1), bench.receiver.open_gaps()), (vec![], 1));
    let nak = (1..5).find_map(|ms| bench.sent(ms).into_iter().find(|bytes| bytes[3] == 3)).unwrap();
    let Body::Nak(nak) = samples::parse(&nak).unwrap().body else { panic!("a NAK") };
    let ranges: Vec<Range> = nak.ranges.iter().collect();
    assert_eq!(ranges, [Range::new(Sequence::new(FIRST + 8).unwrap(), 12).unwrap()]);
    // All of it is counted where the next datagram says how many there were.
    assert_eq!(bench.given(600), ["Gone=20 in 40..60"]);
}
