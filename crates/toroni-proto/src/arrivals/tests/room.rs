//! What happens while the inbox has no room, and which sources and nodes are looked at at all.

use super::*;
use crate::config::Order;
use crate::wire::{Body, Policy, SessionInfo, parse};

/// An inbox that has room for `room` messages, and takes streams of some nodes only.
struct Narrow {
    seen: Seen,
    room: usize,
    unwanted: Option<&'static str>,
}

impl Inbox for Narrow {
    fn wants(&mut self, _: Flow, _: Address, session: &SessionInfo<'_>) -> bool {
        Some(session.name.as_str()) != self.unwanted
    }

    fn has_room(&mut self, _: Flow) -> bool {
        self.room > 0
    }

    fn message(&mut self, flow: Flow, message: Message<'_>) {
        self.room = self.room.saturating_sub(1);
        Inbox::message(&mut self.seen, flow, message);
    }

    fn topic(&mut self, _: Flow, _: TopicNumber, _: TableName<'_>) {}

    fn loss(&mut self, flow: Flow, loss: Loss) {
        Inbox::loss(&mut self.seen, flow, loss);
    }
}

struct Full {
    arrivals: Arrivals,
    inbox: Narrow,
}

impl Full {
    fn new(config: &Config, room: usize) -> Self {
        let Sink { arrivals, seen } = Sink::new(config);
        Self { arrivals, inbox: Narrow { seen, room, unwanted: None } }
    }

    fn hears(&mut self, ms: u64, list: &[Vec<u8>]) {
        for bytes in list {
            let now = now(ms).monotonic;
            let _ = self.arrivals.handle_datagram(now, Path::default(), bytes, &mut self.inbox);
        }
    }

    fn given(&mut self, ms: u64) -> Vec<String> {
        self.arrivals.handle_timeout(now(ms).monotonic, &mut self.inbox);
        core::mem::take(&mut self.inbox.seen.0)
    }

    fn has_room(&mut self, ms: u64, room: usize) -> Vec<String> {
        self.inbox.room = room;
        self.arrivals.deliver_held(now(ms).monotonic, &mut self.inbox);
        self.given(ms)
    }

    /// The types of what it sends, and the window that the last STATUS states.
    fn sent(&mut self, ms: u64) -> (Vec<u8>, Option<u32>) {
        let (mut kinds, mut window) = (Vec::new(), None);
        while let Some((_, bytes)) = self.arrivals.poll_transmit(now(ms).monotonic) {
            kinds.push(bytes[3]);
            if let Ok(datagram) = parse(bytes, &RULES, |_, _| Ok(()))
                && let Body::Status(status) = datagram.body
            {
                window = Some(status.window);
            }
        }
        (kinds, window)
    }
}

fn by(order: Order) -> Config {
    Config { order, ..config() }
}

#[test]
fn what_finds_no_room_waits_and_follows_in_order() {
    for order in [Order::Source, Order::Arrival] {
        let mut source = ORIGIN.start();
        let mut sink = Full::new(&by(order), 2);
        for number in 40..50 {
            sink.hears(0, &source.publish(0, number, 5));
        }
        assert_eq!(sink.given(0), ["M40", "M41"], "{order:?}");
        assert_eq!(sink.arrivals.paused(), 1);
        assert_eq!(sink.has_room(1, 0), [""; 0]);
        assert_eq!(sink.has_room(2, 3), ["M42", "M43", "M44"]);
        assert_eq!(sink.arrivals.paused(), 1);
        // What arrives meanwhile does not overtake it, if it is to be in order.
        sink.inbox.room = 1;
        sink.hears(3, &source.publish(3, 50, 5));
        let is_ordered = order == Order::Source;
        assert_eq!(sink.given(3), if is_ordered { vec![] } else { vec!["M50"] });
        let rest = sink.has_room(4, 100);
        let last = if is_ordered { 51 } else { 50 };
        let wanted: Vec<_> = (45..last).map(|number| format!("M{number}")).collect();
        assert_eq!((rest, sink.arrivals.paused()), (wanted, 0));
    }
}

#[test]
fn a_full_inbox_closes_the_window_and_asks_for_nothing_else() {
    let mut source = ORIGIN.start();
    let mut sink = Full::new(&config(), 1);
    sink.hears(0, &source.publish(0, 40, 5));
    let (_, open) = sink.sent(0);
    for number in 41..61 {
        sink.hears(1, &source.publish(1, number, 5));
    }
    assert_eq!(sink.given(1), ["M40"]);
    // No name is missing: what waits does so for room alone, also after the generation interval.
    for ms in [2, 100, 600, 1_500] {
        sink.hears(ms, &source.sent(ms));
        let (kinds, _) = sink.sent(ms);
        assert!(kinds.iter().all(|kind| *kind == 5), "only STATUS: {kinds:?}");
        assert_eq!(sink.given(ms), [""; 0]);
    }
    let (_, closed) = sink.sent(2_100);
    assert_eq!(closed.unwrap(), open.unwrap() - 20 * 1_408);
    assert_eq!(sink.has_room(2_200, 100).len(), 20);
}

/// A sender that waits for its receivers learns at once that there is room again.
#[test]
fn the_sender_of_the_policy_slowest_learns_at_once_of_new_room() {
    let slowest = Config { policy: Policy::Slowest, ..config() };
    let mut source = ORIGIN.with(&slowest, Flags::NONE, crate::wire::Repairers::default());
    let mut sink = Full::new(&config(), 1);
    // The first SESSION comes before the receivers that are waited for.
    sink.hears(0, &source.publish(0, 40, 5));
    sink.hears(0, &source.publish(0, 41, 5));
    sink.given(0);
    sink.sent(0);
    assert_eq!(sink.sent(50).0, [0; 0]);
    assert_eq!(sink.has_room(50, 9).len(), 1);
    assert_eq!(sink.sent(50).0, [5]);
}

/// If it is put out, or is not required, the sender does not wait: what no buffer can hold is lost, and that is said.
#[test]
fn what_neither_inbox_nor_buffers_can_hold_is_reported_at_its_place() {
    let mut source = ORIGIN.start();
    let mut sink = Full::new(&config(), 1);
    sink.hears(0, &source.publish(0, 40, 5));
    assert_eq!(sink.given(0), ["M40"]);
    // It has 93 buffers.
    for number in 41..200 {
        sink.hears(number - 40, &source.publish(number - 40, number, 5));
    }
    let (_, stream, backlog) = sink.arrivals.backlogs().next().unwrap();
    let (.., counters) = sink.arrivals.counters().find(|it| it.1 == stream).unwrap();
    assert_eq!((backlog.held, backlog.held_since), (93, Some(now(1).monotonic)));
    assert_eq!(counters.dropped + sink.arrivals.dropped().0, 159 - 93);
    assert!(counters.dropped > 0, "{counters:?}");
    sink.sent(160);
    for ms in (161..1_000).step_by(7) {
        assert_eq!(sink.given(ms), [""; 0]);
        let (kinds, _) = sink.sent(ms);
        assert!(!kinds.contains(&3), "it asks for what it cannot hold");
        let due = sink.arrivals.poll_timeout().unwrap();
        assert!(due > now(ms).monotonic, "it would not sleep");
    }
    let wanted: Vec<_> = (41..41 + 93).map(|number| format!("M{number}")).collect();
    assert_eq!(sink.has_room(1_001, 1_000), wanted);
    sink.hears(1_002, &source.publish(1_002, 200, 5));
    assert_eq!(sink.given(1_002), ["Budget=66 in 134..200", "M200"]);
}

#[test]
fn a_source_that_is_not_wanted_costs_nothing_after_its_first_session() {
    let mut source = ORIGIN.start();
    let mut sink = Full::new(&config(), 100);
    sink.inbox.unwanted = Some("line-3");
    for number in 40..50 {
        sink.hears(0, &source.publish(0, number, 5));
    }
    assert_eq!(sink.given(0), [""; 0]);
    assert_eq!(sink.sent(0).0, [0; 0]);
    assert_eq!(sink.arrivals.buffers().1, 0, "it holds nothing");
    // It is asked again when it comes back.
    sink.inbox.unwanted = None;
    let mut again = Origin { session: 101, ..ORIGIN }.start();
    sink.hears(500, &again.publish(500, 50, 5));
    assert_eq!(sink.given(500), ["M50"]);
    assert_eq!(sink.arrivals.name_of(crate::id::Source(1)), Some("line-3"));
}

#[test]
fn a_node_that_only_sends_notices_another_with_its_source_id() {
    let id = Id { source: crate::id::Source(1), session: Session(100) };
    let me = Me { id, name: Name::new(NodeName::new("line-9").unwrap()), required: false };
    let from = Path::single(Address { ip: [7; 16], port: 7 });
    let sessions = |own: &mut Collisions, other: &mut Source, all: &[u64]| -> Vec<Event> {
        let heard = all.iter().flat_map(|ms| other.sent(*ms).into_iter().map(|bytes| (*ms, bytes)));
        heard
            .filter_map(|(ms, bytes)| own.handle_datagram(now(ms).monotonic, from, &bytes))
            .collect()
    };
    let collision = [Event::Collision { address: from.address, stop: false }];
    let new = |instance| Collisions::new(me, [instance; 16], RULES.realm, None, 1);
    let mut other = ORIGIN.start();
    // Without a key, it only reports.
    assert_eq!(sessions(&mut new(9), &mut other, &[0, 21, 62, 143, 304]), collision);
    assert_eq!(sessions(&mut new(1), &mut ORIGIN.start(), &[0, 21, 62, 143, 304]), [], "its own");
    // The other one may have sent nothing else for a long time, so that its SESSIONs are far apart. One of them may be lost.
    let mut own = new(9);
    for ms in (700..20_000).step_by(100) {
        other.sent(ms);
    }
    assert_eq!(sessions(&mut own, &mut other, &[22_000, 24_000]), []);
    assert_eq!(sessions(&mut own, &mut other, &[28_000]), collision);
    assert_eq!(sessions(&mut own, &mut other, &[30_000, 32_000, 38_001]), []);
}
