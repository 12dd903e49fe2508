//! How long repairs and the order take.

use super::*;
use crate::budget::{Limits, Part};

#[test]
fn repairs_and_what_waits_for_them_are_measured_and_reported_with_the_worst_case() {
    let mut source = ORIGIN.start();
    let mut sink = Sink::new(&config());
    let mut limits = Limits::default();
    limits.set(Part::Order, Some(25 * MILLISECOND));
    sink.arrivals.set_limits(&limits);
    let first = source.publish(0, 40, 5);
    sink.hears_all(0, &first);
    let missing = source.publish(1, 41, 5);
    for ms in [2, 12, 22] {
        let later = source.publish(ms, 40 + ms, 5);
        sink.hears_all(ms, &later);
    }
    sink.hears_all(32, &missing);
    assert_eq!(sink.given(32), ["M40", "M41", "M42", "M52", "M62"]);

    let (_, stream, [repair, order]) = sink.arrivals.budgets().next().unwrap();
    assert_eq!(repair.histogram().count(), 1);
    assert_eq!(repair.histogram().longest_ns(), 30 * MILLISECOND, "from 2 to 32 ms");
    // Three waited, for 30, 20 and 10 ms.
    assert_eq!(order.histogram().count(), 3);
    let close = |found: u64, ms: u64| found.abs_diff(ms * MILLISECOND) < ms * MILLISECOND / 1_000;
    assert!(close(order.histogram().at(500_000), 20), "{order:?}");
    assert_eq!(order.histogram().longest_ns(), 30 * MILLISECOND);
    assert_eq!((repair.exceeded(), order.exceeded()), (0, 1));

    let events: Vec<Event> = std::iter::from_fn(|| sink.arrivals.poll_event()).collect();
    let [Event::Joined(flow), Event::Exceeded(exceeded)] = events[..] else { panic!("{events:?}") };
    assert_eq!((exceeded.part, exceeded.times), (Part::Order, 1));
    let worst = exceeded.worst;
    assert_eq!((worst.source, worst.stream), (flow.source, stream));
    assert_eq!((worst.number, worst.took_ns), (1_002, 30 * MILLISECOND));
}

#[test]
fn what_comes_in_order_waits_for_nothing() {
    let mut source = ORIGIN.start();
    let mut sink = Sink::new(&config());
    for ms in 0..50 {
        let sent = source.publish(ms, 40 + ms, 5);
        sink.hears_all(ms, &sent);
    }
    let (.., budgets) = sink.arrivals.budgets().next().unwrap();
    assert_eq!(budgets.map(|budget| budget.histogram().count()), [0, 0]);
}

#[test]
fn who_sends_a_stream_and_what_is_missing_of_it_can_be_seen() {
    let mut source = ORIGIN.start();
    let mut sink = Sink::new(&config());
    sink.hears_all(0, &source.publish(0, 40, 5));
    let names: Vec<&str> = sink.arrivals.names().map(|(.., name)| name.as_str()).collect();
    assert_eq!(names, ["line-3"]);
    let _missing = source.publish(1, 41, 5);
    sink.hears_all(2, &source.publish(2, 42, 5));
    sink.hears_all(3, &source.publish(3, 43, 5));
    let backlogs: Vec<Backlog> = sink.arrivals.backlogs().map(|(.., backlog)| backlog).collect();
    assert_eq!(backlogs, [Backlog { held: 2, held_since: Some(now(2).monotonic), open_gaps: 1 }]);
}
