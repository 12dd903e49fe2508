//! A source returns: with the same series or another one, while gaps are open.

use super::*;
use crate::past::Past;

const KEYED: Origin = Origin { keys: Some(KEYS), ..ORIGIN };

/// A receiver that has message 40, misses `lost` and holds the next one. With a key, so that another session is
/// followed at once.
fn with_a_gap(config: &Config, lost: core::ops::Range<u64>) -> Sink {
    gap(config, lost, false)
}

/// And it has a SESSION that counts all of them.
fn with_a_gap_and_session(config: &Config, lost: core::ops::Range<u64>) -> Sink {
    gap(config, lost, true)
}

fn gap(config: &Config, lost: core::ops::Range<u64>, session: bool) -> Sink {
    let mut source = KEYED.start();
    let mut sink = Sink::with(config, 9, Some(KEYS));
    sink.hears_all(0, &source.publish(0, 40, 5));
    for number in lost.clone() {
        source.publish(1, number, 5);
    }
    let next = source.publish(1, lost.end, 5);
    sink.hears_all(1, &next);
    if session {
        assert_eq!(sink.hears(21, &source.session(21)), Ok(()));
    }
    sink
}

fn again(series: u32, begins: u64) -> Source {
    Origin { session: 101, series, begins, ..KEYED }.start()
}

fn by_arrival() -> Config {
    Config { order: crate::config::Order::Arrival, ..config() }
}

#[test]
fn another_series_ends_the_gaps_with_exact_counts_in_their_order() {
    let mut sink = with_a_gap(&config(), 41..43);
    assert_eq!(sink.given(1), ["M40"]);
    sink.hears_all(20, &again(2, 0).publish(20, 7, 5));
    let wanted = ["Restart=2 in 41..43", "M43", "Restart>=0 in 44..", "M7"];
    assert_eq!(sink.given(20), wanted);
    assert_eq!(sink.arrivals.buffers().1, 0);
}

#[test]
fn by_arrival_another_series_ends_the_gaps_too() {
    let mut sink = with_a_gap(&by_arrival(), 41..43);
    assert_eq!(sink.given(1), ["M40", "M43"]);
    sink.hears_all(20, &again(2, 0).publish(20, 7, 5));
    assert_eq!(sink.given(20), ["Restart=2 in 41..43", "Restart>=0 in 44..", "M7"]);
}

#[test]
fn what_the_last_session_named_and_did_not_arrive_is_counted_too() {
    let mut source = KEYED.start();
    let mut sink = Sink::with(&config(), 9, Some(KEYS));
    sink.hears_all(0, &source.publish(0, 40, 5));
    source.publish(1, 41, 5);
    source.publish(1, 42, 5);
    assert_eq!(sink.hears(21, &source.session(21)), Ok(()));
    sink.hears_all(30, &again(2, 0).publish(30, 7, 5));
    let wanted = ["M40", "Restart=2 in 41..43", "Restart>=0 in 43..", "M7"];
    assert_eq!(sink.given(30), wanted);
}

#[test]
fn the_same_series_brings_what_is_missing_again() {
    let mut sink = with_a_gap(&config(), 41..43);
    let mut source = again(1, 41);
    for number in 41..44 {
        sink.hears_all(20, &source.publish(20, number, 5));
    }
    assert_eq!(sink.given(2_000), ["M40", "M41", "M42", "M43"]);
}

#[test]
fn what_the_same_series_does_not_bring_again_is_counted_and_what_was_held_delivered() {
    for (begins, wanted) in [
        (42, ["M40", "Restart<=1 in 41..42", "M42", "M43", "M44"].as_slice()),
        (43, &["M40", "Restart=2 in 41..43", "M43", "M44"]),
        (44, &["M40", "Restart=2 in 41..43", "M43", "M44"]),
        (46, &["M40", "Restart=2 in 41..43", "M43", "Restart<=2 in 44..46", "M46"]),
    ] {
        // Whether the session before had said that it had taken all below 44 from its bus.
        for stated in [false, true] {
            let mut sink = match stated {
                false => with_a_gap(&config(), 41..43),
                true => with_a_gap_and_session(&config(), 41..43),
            };
            let mut source = again(1, begins);
            for number in begins..45.max(begins + 1) {
                sink.hears_all(30, &source.publish(30, number, 5));
            }
            assert_eq!(sink.given(30), wanted, "begins at {begins}, stated: {stated}");
        }
    }
}

/// The bus of the sender was restored from a backup. It uses the numbers from 42 on for other messages.
#[test]
fn a_sender_that_has_forgotten_a_session_or_numbers_is_followed_from_where_it_began() {
    let forgets = |session, prior, head| {
        let mut source = KEYED.start();
        let mut sink = Sink::with(&config(), 9, Some(KEYS));
        for number in 40..44 {
            sink.hears_all(0, &source.publish(0, number, 5));
        }
        assert_eq!(sink.given(0), ["M40", "M41", "M42", "M43"]);
        let past = Past { head: number(head), prior: Session(prior) };
        // What was sent before the backup is sent again.
        let mut source = Origin { session, begins: 41, past, ..KEYED }.start();
        for number in 41..46 {
            sink.hears_all(20, &source.publish(20, number, 5));
        }
        sink.given(20)
    };
    assert_eq!(forgets(101, 100, 44), ["M44", "M45"], "it remembers all");
    let wanted = ["Diverged>=0 in 44..", "M42", "M43", "M44", "M45"];
    assert_eq!(forgets(101, 99, 42), wanted, "not the session");
    assert_eq!(forgets(101, 100, 42), wanted, "not the numbers");
    // The bus was right, and only the state is old: what lies before the session is not sent again.
    assert_eq!(forgets(101, 99, 45), ["Diverged>=0 in 44..", "M45"]);
}

/// Without a key, one that returns to a session after another was followed continues where it is: it was followed before.
#[test]
fn a_session_that_is_followed_again_after_a_later_one_repeats_nothing() {
    let past = Past { head: number(40), prior: Session(99) };
    let mut source = Origin { past, ..ORIGIN }.start();
    let mut sink = Sink::new(&config());
    for number in 40..43 {
        sink.hears_all(0, &source.publish(0, number, 5));
    }
    let mut forged = Origin { session: 200, begins: 43, ..ORIGIN }.start();
    sink.hears_all(300, &forged.publish(300, 70, 5));
    let silent = 300 + config().activity_ns / MILLISECOND;
    for ms in [silent, silent + 1_000] {
        let _ = sink.hears(ms, &source.session(ms));
    }
    let given = sink.given(silent + 1_001);
    assert!(given.contains(&"Diverged>=0 in 71..".to_owned()), "{given:?}");
    let messages: Vec<&str> =
        given.iter().map(String::as_str).filter(|it| it.starts_with('M')).collect();
    assert_eq!(messages, ["M40", "M41", "M42", "M70"], "{given:?}");
    let continues_at = sink.arrivals.marks().next().map(|(.., mark)| (mark.session, mark.next));
    assert_eq!(continues_at, Some((Session(100), number(43))));
}

#[test]
fn a_session_that_is_heard_and_never_says_its_series_leaves_no_gap_untold() {
    let mut sink = with_a_gap(&config(), 41..43);
    assert_eq!(sink.given(1), ["M40"]);
    let list = again(1, 41).publish(20, 41, 5);
    assert_eq!(sink.hears(20, &list[1]), Ok(()), "its SESSION was lost");
    assert_eq!(sink.arrivals.open_gaps(), 1);
    assert_eq!(sink.given(10_019), [""; 0]);
    let wanted = ["Silent=2 in 41..43", "M43", "Silent>=0 in 44.."];
    assert_eq!(sink.given(10_020), wanted);
    assert_eq!((sink.arrivals.buffers().1, sink.arrivals.open_gaps()), (0, 0));
}

#[test]
fn a_third_session_is_followed_while_the_second_has_not_said_its_series() {
    let mut sink = with_a_gap(&config(), 41..43);
    let second = again(1, 41).publish(20, 41, 5);
    assert_eq!(sink.hears(20, &second[1]), Ok(()));
    let mut third = Origin { session: 102, series: 2, begins: 0, ..KEYED }.start();
    sink.hears_all(30, &third.publish(30, 7, 5));
    let wanted = ["M40", "Restart=2 in 41..43", "M43", "Restart>=0 in 44..", "M7"];
    assert_eq!(sink.given(30), wanted);
}

#[test]
fn after_its_end_another_series_is_no_loss_if_the_end_was_sealed() {
    let end = |sink: &mut Sink, sealed| {
        let mut source = KEYED.start();
        sink.hears_all(0, &source.publish(0, 40, 5));
        source.sender.end(now(1), sealed);
        sink.hears_all(21, &source.sent(21));
        assert_eq!(sink.given(21), ["M40"]);
        let end = if sealed { End::Sealed } else { End::Complete };
        let mut events = core::iter::from_fn(|| sink.arrivals.poll_event());
        assert!(events.any(|event| matches!(event, Event::Ended(_, it) if it == end)));
    };
    for (sealed, wanted) in [(true, ["M7"].as_slice()), (false, &["Restart>=0 in 41..", "M7"])] {
        let mut sink = Sink::with(&config(), 9, Some(KEYS));
        end(&mut sink, sealed);
        sink.hears_all(30, &again(2, 0).publish(30, 7, 5));
        assert_eq!(sink.given(30), wanted);
    }

    let mut sink = Sink::with(&config(), 9, Some(KEYS));
    end(&mut sink, false);
    let list = again(2, 0).publish(30, 7, 5);
    assert_eq!(sink.hears(30, &list[1]), Ok(()), "its SESSION was lost");
    assert_eq!(sink.given(10_030), ["Silent>=0 in 41.."]);
    // A source that was never followed cannot have lost anything of ours.
    let stranger = Origin { source: 77, ..KEYED }.start().publish(10_030, 40, 5);
    assert_eq!(sink.hears(10_030, &stranger[1]), Ok(()));
    assert_eq!(sink.given(20_030), [""; 0]);
}

/// Without a key, anybody can say END. What the sender sends after it is delivered, and nothing is missing.
#[test]
fn an_end_that_a_stranger_has_said_ends_nothing() {
    for sealed in [false, true] {
        let [mut source, mut forger] = [ORIGIN.start(), ORIGIN.start()];
        let mut sink = Sink::new(&config());
        sink.hears_all(0, &source.publish(0, 40, 5));
        forger.publish(0, 40, 5);
        forger.sender.end(now(1), sealed);
        sink.hears_all(21, &forger.sent(21));
        let mut events = core::iter::from_fn(|| sink.arrivals.poll_event());
        assert!(events.any(|event| matches!(event, Event::Ended(..))));
        assert_eq!(sink.given(21), ["M40"]);
        // The first datagram after it does not arrive.
        source.publish(30, 41, 5);
        sink.hears_all(31, &source.publish(31, 42, 5));
        let given: Vec<_> = (32..200)
            .step_by(10)
            .flat_map(|ms| {
                proof::exchange(&mut sink, &mut source, ms);
                sink.given(ms)
            })
            .collect();
        assert_eq!(given, ["M41", "M42"], "sealed: {sealed}");
    }
}

#[test]
fn a_gap_of_the_session_before_makes_room_when_memory_is_short() {
    let memory = Config { receive_memory_bytes: 1 << 16, ..config() };
    let mut sink = with_a_gap(&memory, 41..43);
    let list = again(1, 41).publish(20, 41, 5);
    assert_eq!(sink.hears(20, &list[1]), Ok(()), "its SESSION was lost");
    let (free, held) = sink.arrivals.buffers();
    assert_eq!((free + held, held), (46, 2));
    let taken: Vec<_> = (0..46).map_while(|_| sink.arrivals.take_buffer(&mut sink.seen)).collect();
    // The last buffers are those of the gap of the session before, and of what joins.
    assert_eq!(taken.len(), 46);
    assert_eq!(sink.given(21), ["M40", "Memory=2 in 41..43", "M43"]);
}

#[test]
fn with_a_key_a_session_that_is_over_cannot_be_played_again_to_a_receiver_that_restarts() {
    let mut old = KEYED.start();
    let recorded = old.publish(0, 40, 5);
    let mut sink = Sink::with(&config(), 9, Some(KEYS));
    sink.hears_all(0, &recorded);
    sink.hears_all(20, &again(1, 41).publish(20, 41, 5));
    assert_eq!(sink.given(20), ["M40", "M41"]);
    let mut restarted = Sink::with(&config(), 9, Some(KEYS));
    for (source, stream, mark) in sink.arrivals.marks() {
        assert_eq!((mark.session, mark.next), (Session(101), number(42)));
        assert!(restarted.arrivals.remember(now(0).monotonic, source, stream, mark));
    }
    assert_eq!(restarted.hears(30, &recorded[0]), Err(Reject::Session));
    assert_eq!(restarted.hears(30, &recorded[1]), Err(Reject::Session));
    assert_eq!(restarted.hears(1_030, &recorded[0]), Err(Reject::Session));
    assert_eq!(restarted.given(9_999), [""; 0]);
    assert_eq!(restarted.hears(9_999, &recorded[0]), Err(Reject::Session));
}

/// The current session, which broke its promise, and DATA of a later one.
fn interrupted(sink: &mut Sink, source: &mut Source) -> u64 {
    let mut list = source.publish(0, 40, 5);
    list.push(source.session(20));
    sink.hears_all(20, &list);
    let next_ms = u64::from(u16::from_le_bytes([list[2][104], list[2][105]]));
    let at = 20 + next_ms + 50;
    let later = Origin { session: 101, series: 2, begins: 0, ..ORIGIN }.start().publish(at, 7, 5);
    assert_eq!(sink.hears(at, &later[1]), Ok(()));
    assert_eq!(sink.given(at), ["M40"]);
    at
}

#[test]
fn data_of_a_later_session_does_not_end_the_one_that_is_heard_again() {
    let mut source = ORIGIN.start();
    let mut sink = Sink::new(&config());
    let at = interrupted(&mut sink, &mut source);
    let missed = source.publish(at + 1, 41, 5);
    sink.hears_all(at + 2, &source.publish(at + 2, 42, 5));
    sink.hears_all(at + 3, &missed);
    assert_eq!(sink.given(at + 3), ["M41", "M42"]);
    assert_eq!((sink.arrivals.buffers().1, sink.arrivals.open_gaps()), (0, 0));
    // Its SESSION comes too late: the session before lives.
    let mut later = Origin { session: 101, series: 2, begins: 0, ..ORIGIN }.start();
    let list = later.publish(at + 3, 7, 5);
    assert_eq!(sink.hears(at + 4, &list[0]), Err(Reject::Session));
}

#[test]
fn a_later_session_of_a_feed_is_followed_at_once() {
    let mut sink = Sink::new(&config());
    sink.hears_all(0, &ORIGIN.feed(&[]).publish(0, 40, 5));
    let mut next = Origin { session: 101, begins: 41, ..ORIGIN }.feed(&[]);
    sink.hears_all(1, &next.publish(1, 41, 5));
    assert_eq!(sink.given(1), ["M40", "M41"]);
    let old = ORIGIN.feed(&[]).publish(2, 40, 5);
    assert_eq!(sink.hears(2, &old[1]), Err(Reject::Session));
}

#[test]
fn what_is_refused_is_counted_for_the_stream_that_it_names() {
    let mut sink = Sink::new(&config());
    sink.hears_all(0, &ORIGIN.start().publish(0, 40, 5));
    sink.hears_all(0, &Origin { source: 2, ..ORIGIN }.start().publish(0, 40, 5));
    let mut bytes = Origin { source: 2, ..ORIGIN }.start().publish(0, 40, 5).remove(0);
    bytes[2] = 9;
    assert_eq!(sink.hears(1, &bytes), Err(Reject::Version));
    assert_eq!(sink.hears(1, &bytes[..12]), Err(Reject::Short));
    let version = |rejects: &Rejects| rejects[Reject::Version.index()];
    let streams: Vec<_> =
        sink.arrivals.rejects_of_streams().map(|(.., one)| version(one)).collect();
    assert_eq!((streams, version(sink.arrivals.rejects())), (vec![0, 1], 1));
    let all = sink.arrivals.rejects_of_streams().map(|(.., one)| one.iter().sum::<u64>());
    assert_eq!((all.sum::<u64>(), sink.arrivals.rejects().iter().sum()), (1, 2));
}

#[test]
fn a_source_that_is_silent_since_this_process_started_is_reported() {
    let mut source = ORIGIN.start();
    let mut sink = Sink::new(&config());
    let first = source.publish(0, 40, 5);
    sink.hears_all(0, &first);
    assert_eq!(sink.given(0), ["M40"]);
    // What it sent while this process did not run is unknown.
    let mut sink = sink.again();
    assert_eq!(sink.arrivals.poll_timeout(), Some(now(10_000).monotonic));
    assert_eq!(sink.given(9_999), [""; 0]);
    assert_eq!(sink.given(10_000), ["Silent>=0 in 41.."]);
    assert_eq!(sink.given(60_000), [""; 0], "once");
    assert_eq!(sink.arrivals.poll_timeout(), None);
    sink.hears_all(60_000, &source.publish(60_000, 41, 5));
    // Number 40 is asked for again, because it is not known in which session that was.
    sink.hears_all(60_010, &first);
    assert_eq!(sink.given(60_010), ["M41"]);
}
