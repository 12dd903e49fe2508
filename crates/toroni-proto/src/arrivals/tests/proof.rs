//! Recordings: with a key, a session is followed once it has shown that it lives.

use super::*;
use crate::batcher::Now;
use crate::config::Order;
use crate::legs::Leg;
use crate::receiver::End;
use crate::wire::{LegAddresses, Ncf, NcfReason, Range, Rules, parse};

const KEYED: Origin = Origin { keys: Some(KEYS), ..ORIGIN };

fn me(source: u32) -> Me {
    let id = Id { source: crate::id::Source(source), session: Session(50) };
    Me { id, name: Name::new(NodeName::new("line-9").unwrap()), required: false }
}

fn asking() -> Sink {
    Sink::of(&config(), me(9), Some(KEYS))
}

/// Brings what a sink sends to a sender, and what that sends then to the sink. Returns what the sender sent.
pub(super) fn exchange(sink: &mut Sink, source: &mut Source, ms: u64) -> Vec<Vec<u8>> {
    while let Some((to, bytes)) = sink.arrivals.poll_transmit(now(ms).monotonic) {
        let _ = source.sender.handle_datagram(now(ms), to.address, bytes);
    }
    let sent = source.sent(ms);
    for bytes in &sent {
        let _ = sink.hears(ms, bytes);
    }
    sent
}

/// Some of it may be refused.
fn hears_any(sink: &mut Sink, ms: u64, list: &[Vec<u8>]) {
    for bytes in list {
        let _ = sink.hears(ms, bytes);
    }
}

/// A sink that follows a session, which it has received message 40 of.
fn following(source: &mut Source) -> Sink {
    let mut sink = asking();
    sink.hears_all(0, &source.publish(0, 40, 5));
    exchange(&mut sink, source, 1);
    assert_eq!(sink.given(1), ["M40"]);
    sink
}

fn kind(bytes: &[u8]) -> u8 {
    bytes[3]
}

/// The next SESSION from a time on, and when it is sent.
fn session(source: &mut Source, from: u64) -> (u64, Vec<u8>) {
    (from..from + 3_000)
        .find_map(|ms| {
            let sent = source.sent(ms).into_iter().find(|bytes| kind(bytes) == 2);
            sent.map(|bytes| (ms, bytes))
        })
        .expect("a SESSION is due")
}

#[test]
fn a_session_is_followed_after_its_echo_and_what_came_before_is_not_lost() {
    let mut source = KEYED.start();
    let mut sink = asking();
    sink.hears_all(0, &source.publish(0, 40, 5));
    sink.hears_all(1, &source.publish(1, 41, 5));
    assert_eq!(sink.given(1), [""; 0]);
    let sent = exchange(&mut sink, &mut source, 2);
    assert_eq!(sent.iter().map(|bytes| kind(bytes)).collect::<Vec<_>>(), [9, 2], "ECHO, SESSION");
    assert_eq!(sink.given(2), ["M40", "M41"]);
    sink.hears_all(3, &source.publish(3, 42, 5));
    assert_eq!(sink.given(3), ["M42"]);
}

#[test]
fn a_lost_echo_is_asked_for_again_and_a_lost_session_is_the_next_one() {
    let mut source = KEYED.start();
    let mut sink = asking();
    sink.hears_all(0, &source.publish(0, 40, 5));
    let asked = |sink: &mut Sink, ms| {
        let mut asked = Vec::new();
        while let Some((_, bytes)) = sink.arrivals.poll_transmit(now(ms).monotonic) {
            asked.push(bytes.to_vec());
        }
        asked
    };
    assert_eq!(asked(&mut sink, 0).len(), 1);
    assert_eq!(asked(&mut sink, 19).len(), 0);
    let again = asked(&mut sink, 20);
    source.sender.handle_datagram(now(20), Address::default(), &again[0]).unwrap();
    let sent = source.sent(20);
    assert_eq!((kind(&sent[0]), kind(&sent[1])), (9, 2));
    sink.hears_all(20, &sent[..1]);
    assert_eq!(sink.given(20), [""; 0]);
    // The SESSION that follows the ECHO is lost, and the next one will do.
    let (at, session) = session(&mut source, 21);
    sink.hears_all(at, &[session]);
    assert_eq!(sink.given(at), ["M40"]);
}

#[test]
fn a_recording_of_an_earlier_life_is_neither_followed_nor_held_for_the_next_one() {
    let mut old = KEYED.start();
    let recorded = old.publish(0, 40, 5);
    let mut source = Origin { session: 101, begins: 41, ..KEYED }.start();
    let mut sink = asking();
    sink.hears_all(0, &recorded);
    // While it is asked, the one that lives is heard as well.
    for (ms, number) in [(10, 41), (200, 42)] {
        for bytes in source.publish(ms, number, 5) {
            let _ = sink.hears(ms, &bytes);
        }
        for bytes in &recorded {
            let _ = sink.hears(ms, bytes);
        }
    }
    for ms in [201, 203] {
        exchange(&mut sink, &mut source, ms);
    }
    assert_eq!(sink.given(203), ["M41", "M42"]);
    // Neither now nor when the other one has fallen silent.
    for ms in [202, 5_000, 10_000, 12_000, 30_000] {
        hears_any(&mut sink, ms, &recorded);
        exchange(&mut sink, &mut source, 202);
        let given = sink.given(ms);
        assert!(!given.iter().any(|one| one == "M40"), "{given:?} at {ms}");
    }
}

#[test]
fn an_echo_that_is_played_again_proves_nothing() {
    let mut source = KEYED.start();
    let mut sink = asking();
    sink.hears_all(0, &source.publish(0, 40, 5));
    let recorded = exchange(&mut sink, &mut source, 1);
    assert_eq!(sink.given(1), ["M40"]);
    // Another process, and this one some seconds later.
    let mut other = Sink::of(&config(), me(8), Some(KEYS));
    for bytes in &recorded {
        let _ = other.hears(2, bytes);
        let _ = other.hears(3, bytes);
    }
    assert!(other.arrivals.poll_event().is_none());
    assert_eq!(sink.given(10_001), ["Silent>=0 in 41.."]);
    for bytes in recorded.iter().chain(&recorded) {
        let _ = sink.hears(10_002, bytes);
    }
    let joined = |event: Event| matches!(event, Event::Joined(_));
    let events: Vec<Event> = core::iter::from_fn(|| sink.arrivals.poll_event()).collect();
    assert_eq!(events.into_iter().filter(|event| joined(*event)).count(), 1, "only at the start");
}

#[test]
fn an_echo_does_not_bring_an_earlier_session_back() {
    let mut old = KEYED.start();
    let mut sink = asking();
    let mut recorded = old.publish(0, 40, 5);
    sink.hears_all(0, &recorded);
    recorded.extend(exchange(&mut sink, &mut old, 1));
    let mut source = Origin { session: 101, series: 2, begins: 41, ..KEYED }.start();
    hears_any(&mut sink, 10, &source.publish(10, 41, 5));
    exchange(&mut sink, &mut source, 11);
    assert_eq!(sink.given(11), ["M40", "Restart>=0 in 41..", "M41"]);
    // It is off, and its earlier session is played again, ECHO and SESSION too.
    for ms in (1_000..3_000).step_by(100) {
        hears_any(&mut sink, ms, &recorded);
    }
    assert_eq!(sink.given(3_000), [""; 0]);
}

#[test]
fn a_source_that_was_silent_is_resumed_with_its_echo_and_without_a_gap() {
    let mut source = KEYED.start();
    let mut sink = following(&mut source);
    assert_eq!(sink.given(10_001), ["Silent>=0 in 41.."]);
    for bytes in source.publish(10_100, 41, 5) {
        let _ = sink.hears(10_100, &bytes);
    }
    assert_eq!(sink.given(10_100), [""; 0]);
    for ms in [10_101, 10_103] {
        exchange(&mut sink, &mut source, ms);
    }
    assert_eq!(sink.given(10_103), ["M41"]);
}

#[test]
fn what_is_played_again_does_not_hide_that_the_source_is_silent() {
    let mut source = KEYED.start();
    let mut sink = following(&mut source);
    let mut recorded = source.publish(2, 41, 5);
    let (at, last) = session(&mut source, 3);
    recorded.push(last);
    sink.hears_all(at, &recorded);
    assert_eq!(sink.given(at), ["M41"]);
    for ms in (1_000..10_000).step_by(1_000) {
        hears_any(&mut sink, ms, &recorded);
        assert_eq!(sink.given(ms), [""; 0]);
    }
    let [.., before, last] = &recorded[..] else { panic!() };
    assert_eq!((kind(before), kind(last)), (1, 2));
    assert_eq!(
        sink.hears(9_999, last),
        Ok(()),
        "a copy of the last SESSION, as another leg brings it"
    );
    assert_eq!(sink.given(10_030), ["Silent>=0 in 42.."]);
}

#[test]
fn a_session_that_was_sent_before_the_last_one_is_refused_with_a_key() {
    let mut source = KEYED.start();
    let mut sink = following(&mut source);
    let (_, one) = session(&mut source, 30);
    let (at, other) = session(&mut source, 400);
    sink.hears_all(at, &[other]);
    assert_eq!(sink.hears(at + 1, &one), Err(Reject::Old));
    // Its sender's calendar may go back: its SESSIONs count the time since the first one.
    let ms = at + 2_000;
    let earlier = Now { monotonic: now(ms).monotonic, wall: crate::time::Wall::from_ns(1) };
    source.sender.handle_timeout(earlier);
    let sent = source.sender.poll_transmit(earlier).map(<[u8]>::to_vec);
    assert_eq!(sink.hears(ms, &sent.expect("a SESSION")), Ok(()));
}

#[test]
fn an_old_datagram_of_the_session_does_not_decide_where_a_receiver_begins() {
    let mut source = KEYED.start();
    let recorded = source.publish(0, 40, 5);
    for number in 41..300 {
        source.publish(number, number, 5);
    }
    let mut sink = asking();
    assert_eq!(sink.hears(300, &recorded[1]), Ok(()));
    sink.hears_all(300, &source.publish(300, 300, 5));
    sink.hears_all(301, &source.publish(301, 301, 5));
    for ms in [302, 304] {
        exchange(&mut sink, &mut source, ms);
    }
    assert_eq!(sink.given(2_000), ["M300", "M301"]);
}

#[test]
fn who_heard_the_first_session_of_a_source_misses_nothing_while_it_waits_for_the_echo() {
    let mut source = KEYED.start();
    let mut sink = asking();
    let mut kept = Vec::new();
    // Far more than it holds, and for longer than it holds it.
    for number in 40..240 {
        let ms = 3 * (number - 40);
        let sent = source.publish(ms, number, 5);
        for bytes in &sent {
            let _ = sink.hears(ms, bytes);
        }
        kept.extend(sent);
        sink.given(ms);
    }
    for ms in (600..2_000).step_by(10) {
        exchange(&mut sink, &mut source, ms);
        sink.arrivals.handle_timeout(now(ms).monotonic, &mut sink.seen);
    }
    let wanted: Vec<String> = (40..240).map(|number| format!("M{number}")).collect();
    assert_eq!(sink.given(2_000), wanted);
}

#[test]
fn a_later_session_that_lives_is_followed_at_once_and_an_earlier_one_after_a_broken_promise() {
    let mut source = KEYED.start();
    let mut sink = following(&mut source);
    let (at, session) = session(&mut source, 3);
    sink.hears_all(at, std::slice::from_ref(&session));
    let promised = u64::from(u16::from_le_bytes([session[104], session[105]]));
    let mut later = Origin { session: 101, begins: 41, ..KEYED }.start();
    hears_any(&mut sink, at + 1, &later.publish(at + 1, 41, 5));
    exchange(&mut sink, &mut later, at + 2);
    assert_eq!(sink.given(at + 2), ["M41"]);
    let heard = at + 2;
    // Its calendar went back, and it restarts.
    let mut earlier = Origin { session: 99, begins: 42, ..KEYED }.start();
    let mut given = Vec::new();
    let mut at = 0;
    for ms in (heard + 1..heard + 2_000).step_by(10) {
        let list = if ms == heard + 1 { earlier.publish(ms, 42, 5) } else { earlier.sent(ms) };
        hears_any(&mut sink, ms, &list);
        exchange(&mut sink, &mut earlier, ms);
        given.extend(sink.given(ms));
        if given.is_empty() {
            at = ms;
        }
    }
    assert_eq!(given, ["M42"]);
    assert!(at + 10 >= heard + promised.min(200) + 50, "followed at {at}");
}

#[test]
fn after_its_end_a_session_is_not_asked_again() {
    let mut source = KEYED.start();
    let mut sink = following(&mut source);
    let late = source.publish(2, 41, 5);
    sink.hears_all(2, &late);
    source.sender.end(now(3), false);
    sink.hears_all(23, &source.sent(23));
    assert_eq!(sink.given(23), ["M41"]);
    let mut ended = core::iter::from_fn(|| sink.arrivals.poll_event());
    assert!(ended.any(|event| matches!(event, Event::Ended(_, End::Complete))));
    assert_eq!(sink.hears(24, &late[0]), Err(Reject::Session));
    assert!(sink.arrivals.poll_transmit(now(24).monotonic).is_none());
}

/// It says neither where the session is nor where to ask.
#[test]
fn an_answer_of_a_session_of_which_nothing_else_came_is_not_asked_about() {
    for (origin, keys) in [(ORIGIN, None), (KEYED, Some(KEYS))] {
        let first = origin.start().publish(0, 40, 5);
        let rules = Rules { keys: keys.as_ref(), ..RULES };
        let header = parse(&first[0], &rules, |_, _| Ok(())).unwrap().header;
        let mut buffer = [0; 200];
        let gone = [Range::new(header.sequence, 1).unwrap()];
        let header = Header { sequence: header.sequence.plus(1), ..header };
        let length = Ncf::encode(&header, NcfReason::Gone, &gone, keys.as_ref(), &mut buffer);
        let mut sink = Sink::of(&config(), me(9), keys);
        assert_eq!(sink.hears(2, &buffer[..length.unwrap()]), Err(Reject::Session));
        assert!(sink.arrivals.poll_transmit(now(2).monotonic).is_none());
        assert!(sink.arrivals.poll_timeout().is_none());
    }
}

#[test]
fn recordings_of_many_dead_sources_take_a_bounded_part_and_ask_at_a_bounded_rate() {
    let config = Config { sources: 16, ..config() };
    let mut sink = Sink::of(&config, me(9), Some(KEYS));
    let mut living = KEYED.start();
    sink.hears_all(0, &living.publish(0, 40, 5));
    exchange(&mut sink, &mut living, 1);
    assert_eq!(sink.given(1), ["M40"]);
    let (mut asked, mut most) = (0, 0);
    for ms in 2..2_002 {
        let dead = Origin { source: 100 + u32::try_from(ms % 300).unwrap(), ..KEYED };
        for bytes in dead.start().publish(ms, 40, 5) {
            let _ = sink.hears(ms, &bytes);
        }
        most = most.max(sink.arrivals.buffers().1);
        sink.given(ms);
        while sink.arrivals.poll_transmit(now(ms).monotonic).is_some() {
            asked += 1;
        }
    }
    assert!(
        most <= 4,
        "{most} buffers: one for each candidate, which are a quarter of the sources"
    );
    assert!((10..=210).contains(&asked), "{asked}");
    // A source that lives still comes in, and the one that is followed stays.
    let mut new = Origin { source: 2, ..KEYED }.start();
    for ms in (2_300..2_900).step_by(50) {
        for bytes in new.publish(ms, ms, 5) {
            let _ = sink.hears(ms, &bytes);
        }
        exchange(&mut sink, &mut new, ms + 1);
    }
    let given = sink.given(2_900);
    assert!(given.iter().any(|one| one == "M2850"), "{given:?}");
    sink.hears_all(2_900, &living.publish(2_900, 41, 5));
    assert_eq!(sink.given(2_900), ["M41"]);
}

#[test]
fn another_node_with_our_source_must_show_that_it_lives_and_the_later_one_stops() {
    // Our session is 50.
    for (session, must_stop) in [(100, false), (10, true)] {
        let mut other = Origin { source: 9, session, ..KEYED }.start();
        let mut sink = asking();
        let recorded = other.publish(0, 40, 5);
        for ms in [0, 100, 200, 300] {
            assert_eq!(sink.hears(ms, &recorded[0]), Err(Reject::Collision));
        }
        assert_eq!(events(&mut sink), [], "it may be a recording");
        exchange(&mut sink, &mut other, 301);
        let address = Address::default();
        assert_eq!(events(&mut sink), [Event::Collision { address, stop: must_stop }]);
    }
}

/// The caller has no room for what is to be sent, so the question stays due.
#[test]
fn a_question_that_cannot_leave_moves_no_deadline_twice() {
    let mut source = KEYED.start();
    let mut sink = following(&mut source);
    let mut before = Origin { source: 9, instance: 3, ..KEYED }.start();
    let (at, recorded) = session(&mut before, 2);
    let _ = sink.hears(at, &recorded);
    let later = at + 1_000;
    assert!(sink.arrivals.begin_turn(now(later).monotonic).is_some());
    for ms in later..later + 15 {
        assert_eq!(sink.arrivals.begin_turn(now(ms).monotonic), None);
    }
}

#[test]
fn a_receiver_without_a_way_back_believes_a_key_alone() {
    let config = Config { proof: false, order: Order::Source, ..config() };
    let mut sink = Sink::of(&config, me(9), Some(KEYS));
    sink.hears_all(0, &KEYED.start().publish(0, 40, 5));
    assert_eq!(sink.given(0), ["M40"]);
}

#[test]
fn what_comes_from_an_unlisted_address_is_answered_where_the_sender_is() {
    let address = |port| Address { ip: [0; 16], port };
    let listed = LegAddresses::new(&[address(1)]).unwrap();
    let mut source = KEYED.start();
    source.sender.set_legs(now(0).monotonic, listed);
    let list = source.publish(0, 40, 5);
    let body = parse(&list[0], &crate::wire::Rules { keys: Some(&KEYS), ..RULES }, |_, _| Ok(()));
    let Body::Session(info) = body.unwrap().body else { panic!() };
    assert_eq!(LegAddresses::from(info.legs), listed);
    let mut sink = asking();
    let stranger = Path { leg: Leg::new(0).unwrap(), address: address(66) };
    let to = |sink: &mut Sink, ms| {
        sink.arrivals.poll_transmit(now(ms).monotonic).map(|(to, _)| to.address.port)
    };
    // Nothing is listed before its SESSION.
    assert_eq!(sink.hears_from(0, stranger, &list[1]), Ok(()));
    assert_eq!(to(&mut sink, 0), Some(66));
    assert_eq!(sink.hears_from(1, stranger, &list[0]), Ok(()));
    assert_eq!(to(&mut sink, 20), Some(1));
    for ms in [60, 61] {
        while let Some((to, bytes)) = sink.arrivals.poll_transmit(now(ms).monotonic) {
            assert_eq!(to.address.port, 1);
            let _ = source.sender.handle_datagram(now(ms), to.address, bytes);
        }
        for bytes in source.sent(ms) {
            let _ = sink.hears_from(ms, stranger, &bytes);
        }
    }
    assert_eq!(sink.given(61), ["M40"]);
    let unlisted = core::iter::from_fn(|| sink.arrivals.poll_event())
        .filter(|event| matches!(event, Event::Unlisted(_, from) if from.port == 66));
    assert_eq!(unlisted.count(), 1, "it is said once");
}
