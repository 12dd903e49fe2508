//! Tests of receiver and arrivals, with datagrams of real senders and a clock that the test moves.

mod budgets;
mod proof;
mod restart;
mod room;
mod turns;

use super::*;
use crate::audience::Name;
use crate::id::Session;
use crate::receiver::tests::{KEYS, LONGEST, ORIGIN, Origin, Seen, Source, config, now, number};
use crate::time::SECOND;
use crate::wire::samples::{self, RULES};
use crate::wire::{Address, Header, LostReason, NodeName, Receiver as Id};

/// Who receives, and what it was given.
struct Sink {
    arrivals: Arrivals,
    seen: Seen,
}

impl Inbox for Seen {
    fn message(&mut self, _: Flow, message: Message<'_>) {
        Deliver::message(self, message);
    }

    fn topic(&mut self, _: Flow, _: TopicNumber, _: TableName<'_>) {}

    fn loss(&mut self, _: Flow, loss: Loss) {
        Deliver::loss(self, loss);
    }

    fn forgets(&mut self, source: crate::id::Source, _: Stream) {
        self.0.push(format!("forgets {}", source.0));
    }
}

impl Sink {
    fn new(config: &Config) -> Self {
        Self::with(config, 9, None)
    }

    fn with(config: &Config, source: u32, keys: Option<Keys>) -> Self {
        let id = Id { source: crate::id::Source(source), session: Session(50) };
        let name = Name::new(NodeName::new("line-9").unwrap());
        let me = Me { id, name, required: false };
        // What another session means does not depend on how it is believed.
        let config = Config { proof: false, ..config.clone() };
        Self::of(&config, me, keys)
    }

    fn of(config: &Config, me: Me, keys: Option<Keys>) -> Self {
        let arrivals = Arrivals::new(config, RULES.realm, keys, me, [9; 16], Random::new(1));
        Self { arrivals, seen: Seen::default() }
    }

    /// Kills the receiver and starts it again with its marks.
    fn again(self) -> Self {
        let mut again = Self::new(&config());
        for (source, stream, mark) in self.arrivals.marks() {
            assert!(again.arrivals.remember(now(0).monotonic, source, stream, mark));
        }
        again
    }

    fn hears(&mut self, ms: u64, bytes: &[u8]) -> Result<(), Reject> {
        self.hears_from(ms, Path::default(), bytes)
    }

    fn hears_from(&mut self, ms: u64, from: Path, bytes: &[u8]) -> Result<(), Reject> {
        self.arrivals.handle_datagram(now(ms).monotonic, from, bytes, &mut self.seen)
    }

    fn hears_all(&mut self, ms: u64, list: &[Vec<u8>]) {
        for bytes in list {
            assert_eq!(self.hears(ms, bytes), Ok(()));
        }
    }

    /// Does what is due, and returns what was given since the last call.
    fn given(&mut self, ms: u64) -> Vec<String> {
        self.arrivals.handle_timeout(now(ms).monotonic, &mut self.seen);
        core::mem::take(&mut self.seen.0)
    }
}

#[test]
fn what_the_source_missed_is_not_reported_again_after_a_restart_of_the_receiver() {
    for arrives_again in [false, true] {
        let mut source = ORIGIN.start();
        let first = source.publish(0, 40, 5);
        let missed = source.publish(1, 41, LONGEST + 1);
        let mut sink = Sink::new(&config());
        sink.hears_all(1, &first);
        sink.hears_all(1, &missed);
        assert_eq!(sink.given(1), ["M40", "TooLong=1 in 41..42"]);
        // It dies before a SESSION says that all below 42 is done.
        let mut sink = sink.again();
        sink.hears_all(3, &first);
        if arrives_again {
            sink.hears_all(3, &missed);
        }
        let last = source.publish(3, 42, 5);
        sink.hears_all(3, &last);
        assert_eq!(sink.given(2_000), ["M42"], "arrives again: {arrives_again}");
    }
}

#[test]
fn of_what_the_source_missed_and_was_reported_in_part_at_most_the_rest_is_new() {
    let mut source = ORIGIN.start();
    let mut sink = Sink::new(&config());
    sink.hears_all(0, &source.publish(0, 40, 5));
    sink.hears_all(1, &source.publish(1, 41, LONGEST + 1));
    assert_eq!(sink.given(1), ["M40", "TooLong=1 in 41..42"]);
    // It comes back, and cannot read any of it from its bus.
    let mut source = Origin { session: 101, ..ORIGIN }.start();
    source.sender.lost(now(20), 5, number(45), LostReason::Overtaken).unwrap();
    source.sender.lost(now(20), 2, number(47), LostReason::Overtaken).unwrap();
    let mut sink = sink.again();
    sink.hears_all(20, &source.publish(20, 47, 5));
    assert_eq!(sink.given(20), ["Overtaken<=5 in 42..45", "Overtaken=2 in 45..47", "M47"]);
}

#[test]
fn losses_of_the_source_raise_the_mark_by_arrival_when_nothing_before_them_is_open() {
    let config = Config { order: crate::config::Order::Arrival, ..config() };
    let mark = |sink: &Sink| sink.arrivals.marks().next().unwrap().2.next.get();
    let mut source = ORIGIN.start();
    let mut sink = Sink::new(&config);
    sink.hears_all(0, &source.publish(0, 40, 5));
    let repair = source.publish(1, 41, 5);
    sink.hears_all(1, &source.publish(1, 42, LONGEST + 1));
    assert_eq!(sink.given(1), ["M40", "TooLong=1 in 40..43"]);
    assert_eq!(mark(&sink), 41);
    sink.hears_all(2, &repair);
    assert_eq!(sink.given(2), ["M41"]);
    assert_eq!(mark(&sink), 43);
}

#[test]
fn a_gap_before_a_loss_of_the_source_has_numbers_of_its_own() {
    let mut source = ORIGIN.start();
    let mut sink = Sink::new(&Config { generation_ns: 0, ..config() });
    sink.hears_all(0, &source.publish(0, 40, 5));
    source.publish(1, 41, 5);
    source.sender.lost(now(2), 1, number(43), LostReason::Overtaken).unwrap();
    let last = source.publish(2, 50, 5);
    sink.hears_all(2, &last);
    let wanted = ["M40", "Budget=1 in 41..42", "Overtaken=1 in 42..43", "M50"];
    assert_eq!(sink.given(2), wanted);
}

#[test]
fn a_gap_in_which_the_source_may_have_said_that_it_does_not_know_is_an_upper_bound() {
    for order in [crate::config::Order::Source, crate::config::Order::Arrival] {
        let config = Config { generation_ns: 0, order, ..config() };
        let mut source = ORIGIN.start();
        let mut sink = Sink::new(&config);
        sink.hears_all(0, &source.publish(0, 40, 5));
        source.publish(1, 41, 5);
        source.sender.lost(now(2), 5, number(48), LostReason::Overtaken).unwrap();
        source.publish(2, 48, 5);
        sink.hears_all(3, &source.publish(3, 49, 5));
        // And one that ends with a SESSION.
        source.sender.lost(now(4), 2, number(60), LostReason::Overtaken).unwrap();
        source.sender.flush(now(4));
        source.sent(4);
        let session = source.session(24);
        sink.hears_all(24, &[session]);
        // What is missing of other datagrams is as exact as before.
        source.publish(25, 60, 5);
        sink.hears_all(26, &source.publish(26, 61, 5));
        let mut given = sink.given(26);
        // By arrival, messages do not wait for the losses before them.
        given.retain(|one| !one.starts_with('M'));
        let counts: Vec<&str> = given.iter().map(|one| one.split(' ').next().unwrap()).collect();
        assert_eq!(counts, ["Budget<=7", "Budget<=2", "Budget=1"], "{given:?}");
    }
}

#[test]
fn one_datagram_from_far_ahead_moves_nothing() {
    let mut source = ORIGIN.start();
    let mut sink = Sink::new(&config());
    sink.hears_all(0, &source.publish(0, 40, 5));
    let next = source.publish(1, 41, 5);
    let mut forged = next[0].clone();
    let sequence = u64::from_le_bytes(forged[24..32].try_into().unwrap());
    forged[24..32].copy_from_slice(&(sequence + 100_000).to_le_bytes());
    assert_eq!(sink.hears(1, &forged), Ok(()));
    sink.hears_all(2, &next);
    assert_eq!(sink.given(2_000), ["M40", "M41"]);
}

/// Which events there were, but for `Joined`.
fn events(sink: &mut Sink) -> Vec<Event> {
    let all = core::iter::from_fn(|| sink.arrivals.poll_event());
    all.filter(|event| !matches!(event, Event::Joined(_))).collect()
}

#[test]
fn without_a_key_three_sessions_with_our_source_and_another_instance_are_a_collision() {
    // Our session is 50, so that of the other node is greater; and then less. No node must stop.
    for session in [100, 10] {
        let other = Origin { source: 9, session, ..ORIGIN };
        let mut source = other.start();
        let mut sink = Sink::new(&config());
        let first = source.publish(0, 40, 5);
        assert_eq!(sink.hears(0, &first[1]), Err(Reject::Echo), "DATA does not say whose it is");
        for ms in [0, 4_000, 5_000] {
            assert_eq!(sink.hears(ms, &first[0]), Err(Reject::Collision));
            assert_eq!(events(&mut sink), [], "not three within 3 s");
        }
        assert_eq!(sink.hears(6_000, &first[0]), Err(Reject::Collision));
        let address = Address::default();
        assert_eq!(events(&mut sink), [Event::Collision { address, stop: false }]);
        let mut ours = Origin { instance: 9, ..other }.start();
        let echo = ours.publish(0, 40, 5);
        assert_eq!(sink.hears(6_000, &echo[0]), Err(Reject::Echo));
        assert_eq!(sink.given(6_000), [""; 0]);
    }
}

#[test]
fn an_earlier_session_is_followed_when_ours_is_silent_and_it_was_named_twice() {
    let mut source = ORIGIN.start();
    let mut sink = Sink::new(&config());
    sink.hears_all(0, &source.publish(0, 40, 5));
    assert_eq!(sink.given(0), ["M40"]);
    let mut earlier = Origin { session: 99, begins: 41, ..ORIGIN }.start();
    let list = earlier.publish(0, 41, 5);
    let [session, data] = &list[..] else { panic!("{list:?}") };
    // The one that is followed is silent from 0 ms on, and `activity` is 10 s.
    assert_eq!(sink.hears(9_990, session), Err(Reject::Session));
    assert_eq!(sink.hears(10_000, data), Err(Reject::Session), "a DATA names nothing");
    assert_eq!(sink.hears(10_000, session), Err(Reject::Session), "the first that counts");
    assert_eq!(sink.hears(10_990, session), Err(Reject::Session), "too soon after it");
    assert_eq!(sink.hears(11_000, session), Ok(()));
    assert_eq!(sink.hears(11_000, data), Ok(()));
    let given = sink.given(11_000);
    assert_eq!(given.last().map(String::as_str), Some("M41"), "{given:?}");
}

#[test]
fn a_later_session_is_followed_at_once_with_a_key_and_else_when_a_promise_is_broken() {
    for keys in [None, Some(KEYS)] {
        let mut source = Origin { keys, ..ORIGIN }.start();
        let mut sink = Sink::with(&config(), 9, keys);
        let mut list = source.publish(0, 40, 5);
        list.push(source.session(20));
        sink.hears_all(20, &list);
        let promised = u64::from(u16::from_le_bytes([list[2][104], list[2][105]]));
        let mut later = Origin { session: 101, begins: 41, keys, ..ORIGIN }.start();
        let list = later.publish(30, 41, 5);
        let refused = if keys.is_some() { Ok(()) } else { Err(Reject::Session) };
        assert_eq!(sink.hears(30, &list[0]), refused);
        assert_eq!(sink.hears(20 + promised + 49, &list[0]), refused);
        let at = 20 + promised + 50;
        sink.hears_all(at, &list);
        assert_eq!(sink.given(at), ["M40", "M41"]);
    }
}

#[test]
fn a_stream_with_a_gap_does_not_take_the_last_buffer_from_another() {
    // 46 buffers for all streams, which one stream may fill alone.
    let config = Config { receive_memory_bytes: 1 << 16, ..config() };
    let mut sink = Sink::new(&config);
    let mut one = ORIGIN.start();
    sink.hears_all(0, &one.publish(0, 40, 5));
    one.publish(1, 41, 5);
    for count in 0..46 {
        sink.hears_all(2 + count, &one.publish(2 + count, 42 + count, 5));
    }
    assert_eq!(sink.given(1), ["M40"]);
    assert_eq!(sink.arrivals.buffers(), (0, 46));
    let mut other = Origin { source: 2, ..ORIGIN }.start();
    sink.hears_all(60, &other.publish(60, 40, 5));
    let given = sink.given(60);
    assert_eq!(given[..2], ["Memory=1 in 41..42", "M42"]);
    assert_eq!((given.len(), given.last().map(String::as_str)), (1 + 46 + 1, Some("M40")));
    assert_eq!((sink.arrivals.buffers(), sink.arrivals.dropped()), ((46, 0), (0, 0)));
}

#[test]
fn a_source_beyond_the_limit_is_refused_until_another_has_ended() {
    let mut sink = Sink::new(&Config { sources: 1, ..config() });
    let mut one = ORIGIN.start();
    let mut other = Origin { source: 2, ..ORIGIN }.start();
    sink.hears_all(0, &one.publish(0, 40, 5));
    let list = other.publish(0, 70, 5);
    assert_eq!(sink.hears(0, &list[0]), Err(Reject::Session));
    assert_eq!(sink.arrivals.dropped(), (0, 1));
    assert_eq!(sink.given(10_000), ["M40", "Silent>=0 in 41.."]);
    sink.hears_all(10_000, &list);
    assert_eq!(sink.given(10_000), ["forgets 1", "M70"]);
}

#[test]
fn the_time_that_this_process_slept_is_no_loss() {
    let mut source = ORIGIN.start();
    let mut sink = Sink::new(&config());
    sink.hears_all(0, &source.publish(0, 40, 5));
    let repair = source.publish(1, 41, 5);
    sink.hears_all(2, &source.publish(2, 42, 5));
    // The gap has 500 ms, and the source 10 s, of which the process sleeps 20.
    sink.arrivals.postpone(20 * SECOND);
    assert_eq!(sink.given(20_400), ["M40"]);
    sink.hears_all(20_400, &repair);
    assert_eq!(sink.given(20_400), ["M41", "M42"]);
    assert_eq!(sink.given(30_399), [""; 0]);
    assert_eq!(sink.given(30_400), ["Silent>=0 in 43.."]);
}
