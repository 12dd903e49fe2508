//! Tests of an inlet on a real bus: what it makes of streams that begin, end, and are another process's.

use super::awaited::Awaited;
use super::names::MAX_NAMES;
use super::*;
use std::sync::atomic::{AtomicU64, Ordering};
use toroni::{Bus, BusConfig, ReceiveError, Start, Subscriber};
use toroni_proto::id::{MessageNumber, Series, Session};
use toroni_proto::past::Past;
use toroni_proto::reassembly::{Bound, Parts};
use toroni_proto::wire::Start as Wire;
use toroni_testkit::Directory;

const SECONDS: u64 = SECOND;

struct Scene {
    bus: Bus,
    subscriber: Subscriber,
    session: AtomicU64,
    _directory: Directory,
}

/// A flow of stream 1 of a source.
fn flow(source: u32, series: u32, session: u32) -> Flow {
    let (source, session, series) = (Source(source), Session(session), Series(series));
    Flow { source, session, stream: Stream(1), series }
}

fn number(number: u64) -> Number {
    Number::new(number).unwrap()
}

impl Scene {
    fn new(arrivals: u32) -> Self {
        let directory = Directory::new();
        let config = BusConfig::new().directory(directory.path()).max_arrivals(arrivals);
        let bus = config.open("bus").unwrap();
        let subscriber = bus.subscriber().pattern("**").start(Start::Oldest).build().unwrap();
        Self { bus, subscriber, session: AtomicU64::new(1), _directory: directory }
    }

    fn inlet(&self, order: Order) -> Inlet {
        let (accept, prefix) = (vec![Pattern::everything()], String::new());
        Inlet::new(self.bus.inlet().unwrap().awaiting(), Selection { accept, prefix, order })
    }

    /// Returns the inlets of two ways, which share that of the bus.
    fn two_ways(&self) -> [Inlet; 2] {
        let shared = Arc::new(self.bus.inlet().unwrap().awaiting());
        let ways = Ways::default();
        [0, 1].map(|way| {
            let (accept, prefix) = (vec![Pattern::everything()], String::new());
            let selection = Selection { accept, prefix, order: Order::Source };
            Inlet::new(Arc::clone(&shared), selection).by_way(way, &ways)
        })
    }

    /// Returns a flow of a session that is new.
    fn begin(&self, source: u32, series: u32) -> Flow {
        let session = self.session.fetch_add(1, Ordering::Relaxed);
        flow(source, series, u32::try_from(session).unwrap())
    }

    /// Returns what the bus has got since the last call.
    fn told(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        loop {
            match self.subscriber.try_receive() {
                Ok(Some(message)) => told.push(message.origin().unwrap().number.to_string()),
                Ok(None) => return told,
                Err(ReceiveError::Lost(lost)) => {
                    let Origin { number, .. } = lost.from;
                    told.push(format!("{:?} {} from {number}", lost.reason, lost.messages));
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Begins a session, and returns where the bus says that it continues.
fn join(inlet: &mut Inlet, flow: Flow) -> Option<u64> {
    join_after(inlet, flow, Past::NONE)
}

/// The same of a session that remembers this of earlier ones.
fn join_after(inlet: &mut Inlet, flow: Flow, past: Past) -> Option<u64> {
    let opening = Opening { patterns: 0, past, taken: past.head };
    let mark = inlet.begins(flow, &opening);
    inlet.topic(flow, TopicNumber::new(0).unwrap(), TableName::new("t").unwrap());
    mark.map(|mark| mark.next.get())
}

fn deliver(inlet: &mut Inlet, flow: Flow, numbers: impl IntoIterator<Item = u64>) {
    for it in numbers {
        deliver_on(inlet, flow, TopicNumber::new(0).unwrap(), it);
    }
}

/// A message on a topic that has this number in the stream.
fn deliver_on(inlet: &mut Inlet, flow: Flow, topic: TopicNumber, at: u64) {
    let number = number(at);
    let start = Wire { topic, number, to_descendants: false, published: None, origin: None };
    let (message, parts) = (MessageNumber::ZERO, Parts::one(b""));
    inlet.message(flow, Message { message, start, sent: None, parts });
}

/// Ends a turn. `mark` is that of the receiver.
fn publish(inlet: &mut Inlet, flow: Flow, mark: u64) {
    let Flow { source, session, stream, series } = flow;
    let mark = Mark { session, series, next: number(mark) };
    inlet.publish([(source, stream, mark)].into_iter()).unwrap();
}

/// What the protocol says if it does not know whether more was sent after this number.
fn perhaps_more(after: u64) -> Loss {
    let (bound, reason) = (Bound::AtLeast, wire::LostReason::Silent);
    let (message, count, until) = (MessageNumber::ZERO, 0, None);
    Loss { message, count, bound, reason, after: Number::new(after), until }
}

#[test]
fn names_of_streams_that_are_gone_are_freed() {
    let scene = Scene::new(256);
    let mut inlet = scene.inlet(Order::Source);
    for source in 1..=5 {
        let flow = scene.begin(source, 1);
        join(&mut inlet, flow);
        assert_eq!(inlet.names, 1);
        inlet.forgets(flow.source, flow.stream);
        inlet.publish(std::iter::empty()).unwrap();
    }
    assert_eq!((inlet.names, inlet.known.len(), inlet.streams.len()), (0, 1, 0));
    assert_eq!(inlet.way.1.count(), 0);
}

/// Without a bound, one source with ever new topics would leave no names to those that come later.
#[test]
fn a_stream_takes_at_most_half_of_the_names_that_others_leave() {
    let mut scene = Scene::new(256);
    let mut inlet = scene.inlet(Order::Source);
    let name = |number: u32| (TopicNumber::new(number).unwrap(), format!("t/{number}"));
    let half = u32::try_from(MAX_NAMES / 2).unwrap();
    let (greedy, later) = (scene.begin(1, 1), scene.begin(2, 1));
    for (numbers, flow) in [([half - 1, half], greedy), ([half / 2 - 1, half / 2], later)] {
        join(&mut inlet, flow);
        for (at, number) in (0..).zip(numbers) {
            let (topic, name) = name(number);
            inlet.topic(flow, topic, TableName::new(&name).unwrap());
            deliver_on(&mut inlet, flow, topic, at);
        }
        publish(&mut inlet, flow, 2);
        assert_eq!(scene.told(), ["0", "Topic 1 from 1"]);
    }
    // What it has room for already, it may still learn. Nor does its own session before count.
    let again = Flow { session: Session(9), ..greedy };
    for (flow, number, at) in [(greedy, 5, 2), (again, half / 2, 3)] {
        let (topic, name) = name(number);
        if flow == again {
            join(&mut inlet, flow);
        }
        inlet.topic(flow, topic, TableName::new(&name).unwrap());
        deliver_on(&mut inlet, flow, topic, at);
        publish(&mut inlet, flow, at + 1);
        assert_eq!(scene.told(), [at.to_string()]);
    }
}

/// The source was restored from a backup, and uses the numbers from 2 on again.
#[test]
fn a_source_that_has_forgotten_its_last_session_is_followed_from_where_it_began() {
    for order in [Order::Source, Order::Arrival] {
        for restarts in [false, true] {
            let mut scene = Scene::new(256);
            let mut inlet = scene.inlet(order);
            let flows = [0; 4].map(|_| scene.begin(1, 1));
            let prior = |of: usize| Session(flows[of].session.0);
            let past = |of, head| Past { head: number(head), prior: prior(of) };
            join(&mut inlet, flows[0]);
            deliver(&mut inlet, flows[0], 0..3);
            publish(&mut inlet, flows[0], 3);
            assert_eq!(join_after(&mut inlet, flows[1], past(0, 3)), Some(3), "it remembers all");
            deliver(&mut inlet, flows[1], 3..5);
            publish(&mut inlet, flows[1], 5);
            if restarts {
                drop(inlet);
                inlet = scene.inlet(order);
            }
            assert_eq!(join_after(&mut inlet, flows[2], past(0, 2)), Some(2));
            deliver(&mut inlet, flows[2], 1..6);
            publish(&mut inlet, flows[2], 6);
            assert_eq!(join_after(&mut inlet, flows[3], past(2, 6)), Some(6));
            publish(&mut inlet, flows[3], 6);
            let told: Vec<&str> = "0 1 2 3 4 Diverged 0 from 5 2 3 4 5".split(' ').collect();
            assert_eq!(scene.told().join(" ").split(' ').collect::<Vec<_>>(), told);
        }
    }
}

/// Two ways bring the source. One still has messages of the session that it has forgotten: they are none of the new one.
#[test]
fn what_another_way_has_of_a_forgotten_session_is_not_published() {
    let mut scene = Scene::new(256);
    let [one, other] = &mut scene.two_ways();
    let (first, second) = (scene.begin(1, 1), scene.begin(1, 1));
    join(one, first);
    join(other, first);
    deliver(one, first, 0..3);
    publish(one, first, 3);
    let exclusive = scene.bus.exclusive().unwrap();
    deliver(other, first, 3..9);
    publish(other, first, 9);
    drop(exclusive);
    let past = Past { head: number(2), prior: Session(0) };
    assert_eq!(join_after(one, second, past), Some(2));
    deliver(one, second, 2..4);
    publish(one, second, 4);
    while other.is_full() {
        publish(other, first, 9);
    }
    deliver(one, second, 4..6);
    publish(one, second, 6);
    assert_eq!(scene.told(), ["0", "1", "2", "Diverged 0 from 3", "2", "3", "4", "5"]);
    // More of the first session waited in its socket.
    deliver(other, first, 9..12);
    other.loss(first, Loss { count: 3, until: Some(self::number(15)), ..perhaps_more(11) });
    publish(other, first, 15);
    assert_eq!(scene.told(), [""; 0]);
    // It begins the second one later, and the protocol says what it knows of the first.
    let loss = Loss { reason: wire::LostReason::Diverged, ..perhaps_more(8) };
    other.loss(first, loss);
    assert_eq!(join_after(other, second, past), Some(6));
    deliver(other, second, 5..8);
    publish(other, second, 8);
    assert_eq!(scene.told(), ["6", "7"]);
}

/// Both ways begin a session while the bus cannot be asked. One of them begins the next session as well, the other one has lost its
/// connection.
#[test]
fn a_way_that_still_has_an_earlier_session_does_not_take_the_bus_back() {
    let mut scene = Scene::new(256);
    let [mut one, mut other] = scene.two_ways();
    let exclusive = scene.bus.exclusive().unwrap();
    let (first, second) = (scene.begin(1, 1), scene.begin(1, 1));
    let new = Past { head: number(0), prior: Session(0) };
    let joined = [&mut one, &mut other].map(|inlet| join_after(inlet, first, new));
    assert_eq!(joined, [None, None]);
    other.ends(first, End::Silent);
    drop(exclusive);
    let past = Past { head: number(4), prior: first.session };
    join_after(&mut one, second, past);
    one.take_over(now().monotonic.after(2 * SECONDS));
    deliver(&mut one, second, 4..7);
    publish(&mut one, second, 7);
    other.take_over(now().monotonic.after(2 * SECONDS));
    publish(&mut other, first, 0);
    deliver(&mut one, second, 7..8);
    publish(&mut one, second, 8);
    assert_eq!(scene.told(), ["4", "5", "6", "7"]);
}

/// In the order of arrival, the source may use numbers again that lie between the mark and the highest one that has come.
#[test]
fn numbers_above_the_mark_that_are_used_again_are_noticed() {
    let mut scene = Scene::new(256);
    let mut inlet = scene.inlet(Order::Arrival);
    let (first, second) = (scene.begin(1, 1), scene.begin(1, 1));
    join(&mut inlet, first);
    deliver(&mut inlet, first, [0, 1, 5]);
    publish(&mut inlet, first, 2);
    drop(inlet);
    let mut inlet = scene.inlet(Order::Arrival);
    let past = Past { head: number(4), prior: first.session };
    assert_eq!(join_after(&mut inlet, second, past), Some(4));
    deliver(&mut inlet, second, 4..7);
    publish(&mut inlet, second, 7);
    assert_eq!(scene.told(), ["0", "1", "5", "Diverged 0 from 6", "4", "5", "6"]);
}

#[test]
fn another_series_of_a_stream_begins_after_the_news_that_more_may_be_missing() {
    let mut scene = Scene::new(256);
    // The same process, and one that has never heard the series before.
    for is_alive in [true, false] {
        let source = if is_alive { 1 } else { 2 };
        let mut inlet = scene.inlet(Order::Source);
        let first = scene.begin(source, 1);
        assert_eq!(join(&mut inlet, first), None);
        deliver(&mut inlet, first, [3, 4]);
        publish(&mut inlet, first, 5);
        if !is_alive {
            inlet = scene.inlet(Order::Source);
        }
        let second = scene.begin(source, 2);
        assert_eq!(join(&mut inlet, second), None);
        deliver(&mut inlet, second, [9]);
        publish(&mut inlet, second, 10);
        assert_eq!(scene.told(), ["3", "4", "Restart 0 from 5", "9"]);
        // It goes back: each change is reported once.
        let third = scene.begin(source, 1);
        assert_eq!(join(&mut inlet, third), Some(5));
        deliver(&mut inlet, third, [4, 5]);
        publish(&mut inlet, third, 6);
        assert_eq!(scene.told(), ["Restart 0 from 10", "5"]);
        assert_eq!(inlet.counters().losses, 2);
    }
}

#[test]
fn a_series_that_is_over_or_of_which_nothing_came_may_be_followed_in_silence() {
    let mut scene = Scene::new(256);
    let mut inlet = scene.inlet(Order::Source);
    let first = scene.begin(1, 1);
    join(&mut inlet, first);
    deliver(&mut inlet, first, [3]);
    inlet.ends(first, End::Sealed);
    let second = scene.begin(1, 2);
    join(&mut inlet, second);
    inlet.loss(second, perhaps_more(0));
    let third = scene.begin(1, 3);
    join(&mut inlet, third);
    deliver(&mut inlet, third, [7]);
    publish(&mut inlet, third, 8);
    assert_eq!(scene.told(), ["3", "7"]);
}

#[test]
fn a_stream_whose_patterns_are_not_known_may_lack_all_that_is_accepted() {
    let accept = ["plant/a", "plant/b/**", "office/*"].map(|it| Pattern::new(it).unwrap()).into();
    let selection = Selection { accept, prefix: String::new(), order: Order::Source };
    let texts = |scope: Vec<Pattern>| scope.iter().map(|it| it.to_string()).collect::<Vec<_>>();
    assert_eq!(texts(selection.scope()), ["plant/**", "office/**"]);
    let prefixed = Selection { prefix: "far/a".to_owned(), ..selection };
    assert_eq!(texts(prefixed.scope()), ["far/**"]);
}

/// Over TCP, a node states the patterns of each stream before what is lost of it. They may be wider than what is wanted.
#[test]
fn a_loss_over_tcp_is_for_subscribers_of_what_the_stream_carries_and_is_wanted() {
    let scope_of = |accept: &[&str], carried: &[&str]| {
        let scene = Scene::new(256);
        let accept = accept.iter().map(|it| Pattern::new(it).unwrap()).collect();
        let selection = Selection { accept, prefix: String::new(), order: Order::Source };
        let inlet = Inlet::new(scene.bus.inlet().unwrap(), selection);
        let mut inlet = inlet.selected_by_the_source();
        let flow = scene.begin(1, 1);
        carried.iter().for_each(|it| inlet.carries(flow, TableName::new(it).unwrap()));
        join(&mut inlet, flow);
        deliver(&mut inlet, flow, [1]);
        let place = inlet.place_of(flow);
        let scope = inlet.scope_of(place);
        // They are those of one stream.
        let other = scene.begin(2, 1);
        join(&mut inlet, other);
        let place = inlet.place_of(other);
        assert_eq!(inlet.scope_of(place).len(), inlet.selection.scope().len());
        scope.iter().map(|it| it.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(scope_of(&["**"], &["plant/a/**", "office/*"]), ["plant/**", "office/**"]);
    assert_eq!(scope_of(&["plant/**"], &["plant/**", "office/*"]), ["plant/**"]);
    assert_eq!(scope_of(&["plant/a", "print/*"], &["**"]), ["plant/**", "print/**"]);
    assert_eq!(scope_of(&["*/a"], &["plant/**"]), ["plant/**"]);
    assert_eq!(scope_of(&["*/a"], &["**"]), ["**"]);
    // What the source says cannot be all.
    assert_eq!(scope_of(&["plant/**"], &["office/*"]), ["plant/**"]);
    assert_eq!(scope_of(&["plant/**"], &[]), ["plant/**"]);
}

/// Many runs of a program that sends, each with a series of its own.
#[test]
fn series_that_follow_one_another_need_no_more_room_than_two() {
    let mut scene = Scene::new(2);
    let mut inlet = scene.inlet(Order::Source);
    for series in 1..=300 {
        let run = scene.begin(1, series);
        join(&mut inlet, run);
        deliver(&mut inlet, run, [0]);
        inlet.ends(run, End::Sealed);
        publish(&mut inlet, run, 1);
        assert_eq!(scene.told(), ["0"], "run {series}");
    }
    assert_eq!(inlet.counters().refused, 0);
}

#[test]
fn a_full_table_is_told_once_for_each_stream_that_it_refuses() {
    let mut scene = Scene::new(1);
    let mut inlet = scene.inlet(Order::Source);
    for source in 1..=20 {
        let flow = scene.begin(source, 1);
        join(&mut inlet, flow);
        deliver(&mut inlet, flow, [4, 5]);
        publish(&mut inlet, flow, 6);
    }
    let told = scene.told();
    assert_eq!(told.len(), 2 + 10, "{told:?}");
    assert_eq!(told[..3], ["4", "5", "Memory 1 from 4"]);
    let refused = inlet.refusal();
    assert!(matches!(refused, Some(PublishError::TooManyArrivals { limit: 1 })), "{refused:?}");
}

#[test]
fn by_arrival_what_came_above_the_mark_does_not_come_again_after_a_death() {
    let mut scene = Scene::new(256);
    let mut inlet = scene.inlet(Order::Arrival);
    let first = scene.begin(1, 1);
    join(&mut inlet, first);
    deliver(&mut inlet, first, [0]);
    publish(&mut inlet, first, 1);
    // 1 is missing.
    deliver(&mut inlet, first, [2, 3]);
    publish(&mut inlet, first, 1);
    assert_eq!(scene.told(), ["0", "2", "3"]);
    drop(inlet);
    let mut inlet = scene.inlet(Order::Arrival);
    let again = scene.begin(1, 1);
    assert_eq!(join(&mut inlet, again), Some(4));
    inlet.publish(std::iter::empty()).unwrap();
    assert_eq!(scene.told(), ["Gone 3 from 1"]);
    // Nothing is missing, so nothing is reported.
    deliver(&mut inlet, again, [4]);
    publish(&mut inlet, again, 5);
    drop(inlet);
    let mut inlet = scene.inlet(Order::Arrival);
    assert_eq!(join(&mut inlet, scene.begin(1, 1)), Some(5));
    inlet.publish(std::iter::empty()).unwrap();
    assert_eq!(scene.told(), ["4"]);
}

#[test]
fn a_stream_that_nobody_brings_is_reported_once() {
    let mut scene = Scene::new(256);
    let mut inlet = scene.inlet(Order::Source);
    let live = scene.begin(1, 1);
    join(&mut inlet, live);
    let silent = scene.begin(2, 1);
    join(&mut inlet, silent);
    deliver(&mut inlet, live, [1]);
    deliver(&mut inlet, silent, [2]);
    publish(&mut inlet, live, 2);
    inlet.ends(silent, End::Complete);
    publish(&mut inlet, live, 2);
    let mut awaited = scene.awaited(&inlet);
    let mut at = |seconds: u64, scene: &mut Scene, inlet: &mut Inlet| {
        awaited.turn(now().monotonic.after(seconds * SECONDS), Some(inlet)).unwrap();
        scene.told()
    };
    assert_eq!(at(0, &mut scene, &mut inlet), ["1", "2"]);
    assert_eq!(at(59, &mut scene, &mut inlet), [""; 0], "it ended in order");
    assert_eq!(at(61, &mut scene, &mut inlet), ["Silent 0 from 3"]);
    assert_eq!(at(300, &mut scene, &mut inlet), [""; 0]);
    assert_eq!(inlet.counters().losses, 1);
    // The process that brought the other one ends: another one waits for `activity`.
    drop((inlet, awaited));
    let mut inlet = scene.inlet(Order::Source);
    let mut awaited = scene.awaited(&inlet);
    let mut at = |seconds: u64, scene: &mut Scene, inlet: &mut Inlet| {
        awaited.turn(now().monotonic.after(seconds * SECONDS), Some(inlet)).unwrap();
        scene.told()
    };
    assert_eq!(at(0, &mut scene, &mut inlet), [""; 0]);
    assert_eq!(at(9, &mut scene, &mut inlet), [""; 0]);
    assert_eq!(at(11, &mut scene, &mut inlet), ["Silent 0 from 2"]);
}

#[test]
fn one_that_stands_by_delivers_nothing_until_the_other_one_has_left() {
    let mut scene = Scene::new(256);
    let (mut first, mut second) = (scene.inlet(Order::Source), scene.inlet(Order::Source));
    let flow = scene.begin(1, 1);
    join(&mut first, flow);
    deliver(&mut first, flow, [1]);
    publish(&mut first, flow, 2);
    join(&mut second, flow);
    deliver(&mut second, flow, [2, 3]);
    second.loss(flow, perhaps_more(3));
    publish(&mut second, flow, 4);
    let later = |seconds: u64| now().monotonic.after(seconds * SECONDS);
    assert!(second.take_over(later(2)).is_empty());
    // A third one does not hear it any more.
    let mut deaf = scene.inlet(Order::Source);
    join(&mut deaf, flow);
    deaf.ends(flow, End::Silent);
    publish(&mut deaf, flow, 2);
    drop(first);
    assert!(second.take_over(later(2)).is_empty(), "it looks once a second");
    assert!(deaf.take_over(later(4)).is_empty());
    let [(source, stream, mark)] = second.take_over(later(4))[..] else { panic!("one stream") };
    assert_eq!((source, stream, mark.next.get()), (Source(1), Stream(1), 2));
    deliver(&mut second, flow, [2, 3, 4]);
    publish(&mut second, flow, 5);
    assert_eq!(scene.told(), ["1", "2", "3", "4"]);
}

#[test]
fn a_stream_keeps_its_lane_while_something_of_it_waits() {
    let scene = Scene::new(256);
    let mut inlet = scene.inlet(Order::Source);
    let first = scene.begin(1, 1);
    inlet.slowest = Some((first.source, first.stream));
    join(&mut inlet, first);
    let at = inlet.streams[&(first.source, first.stream)];
    assert_eq!(inlet.known[at].lane, PATIENT);
    let origin = Origin { source: 1, series: 1, stream: 1, number: 0 };
    inlet.stage_release(at, origin, false);
    assert_eq!(inlet.lane_of((first.source, first.stream)), PATIENT);
    inlet.publish(std::iter::empty()).unwrap();
    assert_eq!(inlet.lane_of((first.source, first.stream)), HASTY);
}

/// Until the exclusive publisher ends, everything waits, as far as there is memory. The rest is one loss for each stream.
#[test]
fn an_exclusive_publisher_makes_the_bus_full_until_it_ends() {
    let mut scene = Scene::new(256);
    let mut inlet = scene.inlet(Order::Source);
    let (one, other) = (scene.begin(1, 1), scene.begin(2, 1));
    join(&mut inlet, one);
    join(&mut inlet, other);
    let mut exclusive = Some(scene.bus.exclusive().unwrap());
    deliver(&mut inlet, one, [1]);
    deliver(&mut inlet, other, [7]);
    publish(&mut inlet, one, 2);
    assert!(inlet.is_full() && !inlet.has_room(one) && inlet.next_attempt().is_some());
    let pid = inlet.exclusive().map(|it| (it.bus.as_str(), it.pid));
    assert_eq!(pid, Some(("bus", std::process::id())));
    inlet.lanes.iter_mut().for_each(|lane| lane.most_bytes = 1);
    for number in 2..100 {
        deliver(&mut inlet, one, [number]);
        deliver(&mut inlet, other, [number + 6]);
    }
    inlet.loss(one, Loss { count: 3, until: Some(self::number(103)), ..perhaps_more(99) });
    assert!(inlet.lanes[HASTY].has(|it| matches!(it.item, stage::Item::Message { .. })));
    assert!(inlet.staged().1.is_some());
    exclusive.take();
    while inlet.is_full() {
        publish(&mut inlet, one, 100);
    }
    assert_eq!(inlet.exclusive(), None);
    deliver(&mut inlet, one, [103]);
    publish(&mut inlet, one, 104);
    assert_eq!(scene.told(), ["1", "7", "Memory 101 from 2", "Memory 98 from 8", "103"]);
}

/// While a process publishes exclusively, the bus does not say how far a stream has arrived.
#[test]
fn a_stream_that_begins_under_an_exclusive_publisher_continues_where_the_bus_is() {
    let mut scene = Scene::new(256);
    let mut inlet = scene.inlet(Order::Source);
    let known = scene.begin(1, 1);
    join(&mut inlet, known);
    deliver(&mut inlet, known, [4]);
    publish(&mut inlet, known, 5);
    drop(inlet);
    let mut inlet = scene.inlet(Order::Source);
    let exclusive = scene.bus.exclusive().unwrap();
    let (again, new) = (scene.begin(1, 1), scene.begin(2, 1));
    assert_eq!((join(&mut inlet, again), join(&mut inlet, new)), (None, None));
    assert!(inlet.is_full() && !inlet.has_room(again) && !inlet.has_room(new));
    // Memory is short, so something is delivered although there is no room.
    deliver(&mut inlet, again, [9]);
    deliver(&mut inlet, new, [2, 3]);
    publish(&mut inlet, again, 10);
    let later = |seconds: u64| now().monotonic.after(seconds * SECONDS);
    assert!(inlet.take_over(later(2)).is_empty() && inlet.exclusive().is_some());
    // The connection by which it comes is lost and made again.
    inlet.ends(again, End::Silent);
    drop(exclusive);
    let again = scene.begin(1, 1);
    assert_eq!(join(&mut inlet, again), None);
    let [(source, _, mark)] = inlet.take_over(later(4))[..] else { panic!("one stream") };
    assert_eq!((source, mark.next.get()), (Source(1), 5));
    assert!(!inlet.is_full() && inlet.has_room(again) && inlet.has_room(new));
    deliver(&mut inlet, new, [4]);
    deliver(&mut inlet, again, [5, 9]);
    publish(&mut inlet, again, 10);
    assert_eq!(scene.told(), ["4", "Memory 2 from 2", "4", "5", "9"]);
}

/// What the source has published meanwhile may be missing, which the bus could not be told at once.
#[test]
fn another_series_that_begins_under_an_exclusive_publisher_is_told_of_later() {
    let mut scene = Scene::new(256);
    let mut inlet = scene.inlet(Order::Source);
    let first = scene.begin(1, 1);
    join(&mut inlet, first);
    deliver(&mut inlet, first, [4]);
    publish(&mut inlet, first, 5);
    let exclusive = scene.bus.exclusive().unwrap();
    let second = scene.begin(1, 2);
    assert_eq!(join(&mut inlet, second), None);
    drop(exclusive);
    let later = |seconds: u64| now().monotonic.after(seconds * SECONDS);
    assert!(inlet.take_over(later(2)).is_empty());
    deliver(&mut inlet, second, [0]);
    publish(&mut inlet, second, 1);
    assert_eq!(scene.told(), ["4", "Restart 0 from 5", "0"]);
}

impl Scene {
    fn awaited(&self, inlet: &Inlet) -> Awaited {
        let ways = inlet.way.1.clone();
        Awaited::new(inlet.bus.clone(), ways, Vec::new(), 10 * SECONDS, now().monotonic)
    }
}
