//! Cases, and a network that loses, doubles and reorders, with an inlet that does what the bus's inlet does.

use super::*;
use proptest::prelude::*;

const KEY: StreamKey = StreamKey { source: 1, series: 2, stream: 3 };
const REORDER: Duration = Duration::from_millis(20);

fn item(topic: &str, number: u64, count: u64) -> Item<()> {
    Item { topic: topic.into(), origin: KEY.origin(number), count, loss: None, body: () }
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// What arrives on a bus: the rules of `Inlet` for marks, and what subscribers see.
#[derive(Default)]
struct Bus {
    marks: HashMap<StreamKey, u64>,
    delivered: Vec<(Arc<str>, u64)>,
    lost: u64,
    is_exact: bool,
    duplicates: u64,
    late: u64,
}

impl Bus {
    fn take(&mut self, events: &mut Vec<Event<()>>) -> Vec<String> {
        let mut seen = Vec::new();
        for event in events.drain(..) {
            match event {
                Event::Deliver { item, open_from } => {
                    let number = item.origin.number;
                    let mark = self.marks.entry(StreamKey::of(item.origin)).or_default();
                    assert!(*mark <= number, "the bus drops {number}, its mark is {mark}");
                    *mark = (*mark).max(open_from.unwrap_or(number + 1));
                    seen.push(format!("{}{number}", item.topic));
                    self.delivered.push((item.topic, number));
                }
                Event::Lost(loss) => {
                    let highest = loss.from.number.max(loss.until.saturating_sub(1));
                    let mark = self.marks.entry(StreamKey::of(loss.from)).or_default();
                    assert!(*mark <= highest, "the bus drops {loss:?}, its mark is {mark}");
                    assert!(loss.from.number <= loss.until);
                    *mark = (*mark).max(loss.open_from.unwrap_or(loss.until));
                    self.lost += loss.messages;
                    self.is_exact &= loss.bound == LostBound::Exact;
                    let Loss { from, until, messages, .. } = loss;
                    seen.push(format!("lost {messages} in {}..{until}", from.number));
                }
                Event::Duplicate => self.duplicates += 1,
                Event::Late => self.late += 1,
            }
        }
        seen
    }
}

struct Case {
    order: Order<()>,
    events: Vec<Event<()>>,
    bus: Bus,
}

impl Case {
    fn new() -> Self {
        let mut order = Order::new(1000, 1000);
        order.arrived(KEY, 0);
        Self { order, events: Vec::new(), bus: Bus { is_exact: true, ..Bus::default() } }
    }

    fn open(&mut self, numbering: u32) {
        self.open_as(numbering, None);
    }

    fn open_as(&mut self, numbering: u32, own: Option<StreamKey>) {
        let opening = Opening { numbering, reorder: REORDER, own, since: Duration::ZERO };
        self.order.open(Duration::ZERO, opening, &mut self.events);
    }

    fn message(&mut self, now: u64, numbering: u32, item: Item<()>) -> Vec<String> {
        self.order.message(ms(now), numbering, item, &mut self.events);
        self.bus.take(&mut self.events)
    }

    fn expire(&mut self, now: u64) -> Vec<String> {
        self.order.expire(ms(now), &mut self.events);
        self.bus.take(&mut self.events)
    }

    fn beat(&mut self, now: u64, beat: &Beat<'_>) -> Vec<String> {
        let topics =
            beat.topics.iter().map(|(topic, count)| ((*topic).to_owned(), *count)).collect();
        let told = Told {
            numbering: beat.numbering,
            key: StreamKey { stream: KEY.stream + beat.relay, ..KEY },
            begins: beat.begins,
            until: beat.until,
            overtaken: beat.overtaken,
            relays: beat.relays,
            full: true,
            topics: &topics,
        };
        self.order.told(ms(now), &told, |_| true, &mut self.events);
        self.bus.take(&mut self.events)
    }
}

#[derive(Default)]
struct Beat<'a> {
    /// 0 for the source itself.
    relay: u16,
    numbering: u32,
    begins: u64,
    until: u64,
    overtaken: Option<(u64, u64)>,
    relays: bool,
    topics: Vec<(&'a str, u64)>,
}

#[test]
fn a_gap_is_waited_for_and_then_reported() {
    let mut case = Case::new();
    case.open(7);
    case.beat(0, &Beat { numbering: 7, ..Beat::default() });
    assert_eq!(case.message(0, 7, item("a", 0, 0)), ["a0"]);
    assert!(case.message(1, 7, item("a", 5, 2)).is_empty());
    assert_eq!(case.message(2, 7, item("b", 6, 0)), ["b6"], "other topics do not wait");
    assert_eq!(case.bus.marks[&KEY], 1, "2 is open");
    assert_eq!(case.message(3, 7, item("a", 3, 1)), ["a3", "a5"]);
    assert_eq!(case.order.deadline(), None);
    case.message(4, 7, item("b", 7, 1));
    assert_eq!(case.bus.marks[&KEY], 8);

    assert!(case.message(10, 7, item("a", 12, 5)).is_empty());
    assert_eq!(case.order.deadline(), Some(ms(30)));
    assert!(case.expire(29).is_empty());
    assert_eq!(case.expire(30), ["lost 2 in 6..12", "a12"]);
    assert!(case.message(31, 7, item("a", 9, 3)).is_empty());
    assert_eq!((case.bus.late, case.bus.duplicates), (1, 0));
    assert!(case.message(31, 7, item("a", 12, 5)).is_empty());
    assert_eq!((case.bus.late, case.bus.duplicates), (1, 1));
}

#[test]
fn a_heartbeat_finds_what_was_lost_last() {
    let mut case = Case::new();
    case.open(7);
    case.beat(0, &Beat { numbering: 7, ..Beat::default() });
    case.message(0, 7, item("a", 0, 0));
    let topics = vec![("a", 3), ("b", 2)];
    assert!(case.beat(100, &Beat { numbering: 7, until: 9, topics, ..Beat::default() }).is_empty());
    assert_eq!(case.message(110, 7, item("b", 7, 0)), ["b7"], "it was not lost yet");
    let mut lost = case.expire(200);
    lost.sort();
    assert_eq!(lost, ["lost 1 in 8..9", "lost 2 in 1..9"]);
    assert_eq!(case.order.deadline(), None);
    assert_eq!(case.bus.marks[&KEY], 9);
}

#[test]
fn who_joins_late_misses_nothing_from_before() {
    let mut case = Case::new();
    case.open(7);
    assert_eq!(case.message(0, 7, item("a", 50, 20)), ["a50"]);
    let topics = vec![("a", 21), ("b", 8)];
    case.beat(1, &Beat { numbering: 7, until: 51, topics, ..Beat::default() });
    assert!(case.expire(1000).is_empty());
    assert_eq!(case.message(1001, 7, item("b", 51, 8)), ["b51"]);
    // From now on each topic that is new begins at 0.
    assert!(case.message(1002, 7, item("c", 53, 1)).is_empty());
    assert_eq!(case.expire(2000), ["lost 1 in 0..53", "c53"]);
}

#[test]
fn a_copy_that_comes_another_way_is_dropped_and_fills_a_gap() {
    let mut case = Case::new();
    for (relay, numbering) in [(0, 7), (1, 8)] {
        case.open(numbering);
        case.beat(0, &Beat { relay, numbering, ..Beat::default() });
    }
    case.message(0, 7, item("a", 0, 0));
    case.message(0, 8, item("a", 0, 0));
    assert_eq!(case.bus.duplicates, 1);
    assert!(case.message(1, 7, item("a", 2, 2)).is_empty());
    assert_eq!(case.message(2, 8, item("a", 1, 1)), ["a1"]);
    assert_eq!(case.expire(100), ["a2"], "nothing is lost");
    assert!(case.message(101, 8, item("a", 2, 2)).is_empty());
}

#[test]
fn a_new_numbering_ends_the_old_one() {
    let mut case = Case::new();
    case.open(7);
    let topics = vec![("a", 2)];
    case.beat(0, &Beat { numbering: 7, until: 10, topics, ..Beat::default() });
    case.message(1, 7, item("a", 12, 2));
    case.message(2, 7, item("a", 15, 4));
    case.open(9);
    let seen = case.beat(3, &Beat { numbering: 9, begins: 30, until: 30, ..Beat::default() });
    assert_eq!(seen, ["lost 1 in 13..15", "a15", "lost 18 in 10..30"]);
    // Of 10 to 29, 12 and 15 came; the exact gap counts twice, as it was after the last heartbeat.
    assert!(!case.bus.is_exact);
    // Overtaken: it says how many were overwritten.
    case.open(11);
    let overtaken = Some((30, 5));
    let beat = Beat { numbering: 11, begins: 40, until: 40, overtaken, ..Beat::default() };
    assert_eq!(case.beat(4, &beat), ["lost 5 in 30..40"]);
}

/// Reports have their place among the messages of the stream that they are about, although they come under a topic of their
/// own.
#[test]
fn a_relayed_loss_comes_before_what_follows_it() {
    let mut case = Case::new();
    case.open(7);
    let report = |from, until, count| Item {
        topic: crate::loss::TOPIC.into(),
        origin: StreamKey { stream: u16::MAX, ..KEY }.origin(count),
        count,
        loss: Some((KEY.origin(from), until)),
        body: (),
    };
    let events = &mut case.events;
    case.order.message(ms(0), 7, item("a", 0, 0), events);
    case.order.message(ms(0), 7, report(1, 3, 0), events);
    case.order.message(ms(0), 7, item("a", 3, 1), events);
    // The same loss, by another way.
    case.order.message(ms(0), 7, report(1, 3, 1), events);
    let seen: Vec<_> = events
        .iter()
        .map(|event| match event {
            Event::Deliver { item, open_from } => (item.loss.is_some(), *open_from),
            Event::Duplicate => (false, Some(99)),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(seen, [(false, None), (true, Some(3)), (false, None), (false, Some(99))]);
}

/// Of a source that restarted, everything since its last heartbeat is asked for: the numbers between were not all sent.
#[test]
fn a_join_asks_for_what_came_after_the_last_heartbeat() {
    let mut case = Case::new();
    assert_eq!(case.order.accounted(KEY), None);
    case.open(7);
    case.beat(0, &Beat { numbering: 7, until: 10, ..Beat::default() });
    case.message(1, 7, item("a", 12, 0));
    case.message(1, 7, item("a", 20, 1));
    assert_eq!(case.bus.marks[&KEY], 21);
    let from = case.order.accounted(KEY);
    assert_eq!(from, Some(10));
    case.open(9);
    let topics = BTreeMap::from([("a".to_owned(), 0)]);
    let told = Told {
        numbering: 9,
        key: KEY,
        begins: 40,
        until: 40,
        overtaken: None,
        relays: false,
        full: true,
        topics: &topics,
    };
    let items = vec![item("a", 12, 0), item("a", 20, 0), item("a", 22, 0)];
    let replay = Replay::From { number: 10, unsent: 0 };
    case.order.join(ms(2), &told, replay, items, &mut case.events);
    assert_eq!(case.bus.take(&mut case.events), ["a22"], "nothing was lost");
    assert_eq!(case.bus.duplicates, 2);
}

/// After a restart of the importer, its bus has everything of these streams below 100.
fn restarted(streams: &[StreamKey]) -> Case {
    let mut case = Case::new();
    for key in streams {
        case.order.arrived(*key, 100);
        case.bus.marks.insert(*key, 100);
    }
    case
}

const RELAYED: [StreamKey; 2] =
    [StreamKey { source: 5, series: 2, stream: 3 }, StreamKey { source: 6, series: 2, stream: 3 }];

fn of(key: StreamKey, topic: &str, number: u64, count: u64) -> Item<()> {
    Item { origin: key.origin(number), ..item(topic, number, count) }
}

impl Case {
    /// Ends the join of `KEY`'s path 7, whose counts are these.
    fn join(
        &mut self,
        until: u64,
        topics: &[(&str, u64)],
        replay: Replay,
        items: Vec<Item<()>>,
    ) -> Vec<String> {
        let topics = topics.iter().map(|(topic, count)| ((*topic).to_owned(), *count)).collect();
        let told = Told {
            numbering: 7,
            key: KEY,
            begins: 0,
            until,
            overtaken: None,
            relays: false,
            full: true,
            topics: &topics,
        };
        self.order.join(Duration::ZERO, &told, replay, items, &mut self.events);
        self.bus.take(&mut self.events)
    }
}

/// The sender did not answer, and said nothing in a heartbeat. What lies between the last number and the next one may be
/// lost, of each stream that it sends.
#[test]
fn a_sender_that_does_not_answer_costs_an_upper_bound_of_each_stream() {
    let [one, other] = RELAYED;
    let mut case = restarted(&[KEY, one]);
    case.order.arrived(other, 0);
    case.open_as(7, Some(KEY));
    // Of this stream nothing had come before.
    assert_eq!(case.message(0, 7, of(other, "a", 90, 30)), ["a90"]);
    assert_eq!(case.message(0, 7, item("b", 104, 4)), ["lost 4 in 100..104", "b104"]);
    assert_eq!(case.message(0, 7, of(one, "b", 110, 5)), ["lost 10 in 100..110", "b110"]);
    assert_eq!(case.message(0, 7, item("b", 109, 6)), ["b109"], "counted without a gap");
    // Four between 104 and 114 have another topic, and may have been of this one.
    assert_eq!(case.message(0, 7, item("c", 114, 9)), ["lost 8 in 110..114", "c114"]);
    assert!(!case.bus.is_exact);
    // Two more of unknown topics before the heartbeat, and one that it shows.
    let topics = vec![("a", 31), ("b", 8), ("c", 10), ("d", 2)];
    let seen = case.beat(1, &Beat { numbering: 7, until: 117, topics, ..Beat::default() });
    assert_eq!(seen, ["lost 2 in 115..115"]);
    assert_eq!(case.expire(50), ["lost 1 in 110..117"]);
    assert_eq!(case.message(51, 7, item("d", 117, 2)), ["d117"]);
    // How far it is with what it relays, the heartbeat does not say.
    assert_eq!(case.message(51, 7, of(one, "d", 113, 3)), ["lost 2 in 111..113", "d113"]);
    assert_eq!(case.message(51, 7, of(one, "d", 119, 4)), ["d119"]);
}

/// As before, and a heartbeat is the first that comes.
#[test]
fn a_heartbeat_of_a_sender_that_did_not_answer_shows_what_may_be_lost() {
    let mut case = restarted(&[KEY]);
    case.open_as(7, Some(KEY));
    let topics = vec![("a", 40)];
    let seen = case.beat(0, &Beat { numbering: 7, until: 120, topics, ..Beat::default() });
    assert_eq!(seen, ["lost 20 in 100..100"]);
    assert_eq!(case.message(1, 7, item("a", 120, 40)), ["a120"]);
    let topics = vec![("a", 41)];
    assert!(case.beat(2, &Beat { numbering: 7, until: 130, topics, ..Beat::default() }).is_empty());
}

/// Zenoh has dropped a part of the answer. What has come is delivered, and the rest is bounded.
#[test]
fn a_part_of_an_answer_is_delivered() {
    let mut case = restarted(&[KEY, RELAYED[0]]);
    case.open_as(7, Some(KEY));
    let items = vec![item("a", 99, 0), item("a", 104, 0), item("b", 106, 0), item("b", 106, 3)];
    let seen = case.join(110, &[("a", 9), ("b", 4)], Replay::Part, items);
    assert_eq!(seen, ["lost 8 in 100..104", "a104", "b106"]);
    assert_eq!(case.bus.duplicates, 2);
    assert_eq!(case.message(1, 7, item("b", 111, 4)), ["b111"]);
    // A place of the sender's own stream accounts for what it relays as well.
    assert_eq!(case.message(1, 7, of(RELAYED[0], "a", 150, 9)), ["a150"]);
}

/// Messages that are too long to be sent again are lost, too.
#[test]
fn what_a_sender_cannot_send_again_is_reported() {
    let mut case = restarted(&[KEY]);
    case.open_as(7, Some(KEY));
    let replay = Replay::From { number: 100, unsent: 2 };
    let seen = case.join(110, &[("a", 9)], replay, vec![item("a", 104, 0)]);
    assert_eq!(seen, ["lost 2 in 100..100", "a104"]);
}

/// The sender has published nothing of its own, so it could not be asked for a part of what it has.
#[test]
fn a_sender_that_only_relays_is_joined_with_an_upper_bound() {
    let mut case = restarted(&RELAYED);
    case.order.arrived(KEY, 0);
    case.open_as(7, Some(KEY));
    let [one, other] = RELAYED;
    let items = vec![of(one, "a", 107, 8), of(one, "b", 109, 9)];
    let seen = case.join(30, &[("a", 9), ("b", 10)], Replay::Nothing, items);
    assert_eq!(seen, ["lost 8 in 100..107", "a107", "b109"]);
    assert_eq!(case.message(0, 7, of(other, "b", 104, 10)), ["lost 4 in 100..104", "b104"]);
    assert_eq!(case.message(0, 7, of(other, "b", 108, 11)), ["b108"]);
    assert_eq!(case.message(0, 7, of(one, "b", 111, 12)), ["lost 1 in 110..111", "b111"]);
    assert_eq!(case.message(0, 7, of(one, "c", 115, 0)), ["c115"]);
}

/// Another path brings the stream, and finds what is missing. A relay may be ahead of it.
#[test]
fn a_relay_reports_nothing_of_a_stream_that_another_path_brings() {
    let mut case = restarted(&RELAYED);
    let opening = |own| Opening { numbering: 8, reorder: REORDER, own, since: Duration::ZERO };
    case.order.open(Duration::ZERO, opening(None), &mut case.events);
    assert_eq!(case.message(1, 8, of(RELAYED[0], "a", 100, 0)), ["a100"]);
    case.open_as(7, Some(KEY));
    assert_eq!(case.message(2, 7, of(RELAYED[0], "a", 105, 0)), ["a105"]);
    // This path was last heard before the new one was opened.
    let opening = Opening { numbering: 9, reorder: REORDER, own: Some(KEY), since: ms(5) };
    case.order.open(ms(5), opening, &mut case.events);
    let seen = case.message(5, 9, of(RELAYED[0], "b", 111, 0));
    assert_eq!(seen, ["lost 5 in 106..111", "b111"]);
}

/// A message of a relayed stream is missing, and the relay's own messages pass it. An importer that is killed then asks for
/// what follows the mark of the relay's own stream, so that must stay before the place of the missing message.
#[test]
fn the_mark_of_a_relay_waits_for_what_it_relays() {
    let relayed = RELAYED[0];
    let mut case = Case::new();
    case.order.arrived(relayed, 0);
    case.open(7);
    let beat = |until, a, own| Beat {
        numbering: 7,
        until,
        relays: true,
        topics: vec![("a", a), ("own", own)],
        ..Beat::default()
    };
    case.beat(0, &beat(10, 0, 0));
    assert_eq!(case.message(1, 7, of(relayed, "a", 70, 0)), ["a70"]);
    assert_eq!(case.message(1, 7, item("own", 11, 0)), ["own11"]);
    assert_eq!(
        case.bus.marks[&KEY], 10,
        "a message that was relayed after the heartbeat may be missing"
    );
    // `a` 71 is lost. Nothing shows it yet.
    assert_eq!(case.message(2, 7, item("own", 13, 1)), ["own13"]);
    assert!(case.message(2, 7, of(relayed, "a", 72, 2)).is_empty());
    assert_eq!(case.message(3, 7, item("own", 15, 2)), ["own15"]);
    assert!(case.beat(4, &beat(16, 3, 3)).is_empty());
    assert_eq!(case.message(5, 7, item("own", 16, 3)), ["own16"]);
    assert_eq!((case.bus.marks[&KEY], case.bus.marks[&relayed]), (10, 71), "the gap is open");
    assert_eq!(case.expire(22), ["lost 1 in 71..72", "a72"]);
    assert_eq!(case.message(23, 7, item("own", 17, 4)), ["own17"]);
    assert_eq!((case.bus.marks[&KEY], case.bus.marks[&relayed]), (16, 73));

    // A message that is only late closes the gap as well.
    assert!(case.message(24, 7, of(relayed, "a", 75, 4)).is_empty());
    assert!(case.beat(25, &beat(20, 5, 5)).is_empty());
    assert_eq!(case.message(26, 7, of(relayed, "a", 74, 3)), ["a74", "a75"]);
    assert_eq!(case.message(27, 7, item("own", 20, 5)), ["own20"]);
    assert_eq!(case.bus.marks[&KEY], 20);
}

/// While what was missed is delivered, the mark of the relay stays: the answer is not in the order of its bus.
#[test]
fn the_mark_of_a_relay_stays_until_a_join_is_delivered() {
    let mut case = restarted(&[KEY, RELAYED[0]]);
    case.open_as(7, Some(KEY));
    let topics = BTreeMap::from([("a".to_owned(), 4), ("own".to_owned(), 2)]);
    let told = Told {
        numbering: 7,
        key: KEY,
        begins: 0,
        until: 110,
        overtaken: None,
        relays: true,
        full: true,
        topics: &topics,
    };
    let items = vec![item("own", 105, 0), of(RELAYED[0], "a", 100, 0)];
    let replay = Replay::From { number: 100, unsent: 0 };
    case.order.join(ms(0), &told, replay, items, &mut case.events);
    assert_eq!(case.bus.take(&mut case.events), ["own105", "a100"]);
    assert_eq!(case.bus.marks[&KEY], 100);
    assert_eq!(case.message(1, 7, item("own", 112, 2)), ["own112"]);
    assert_eq!(case.bus.marks[&KEY], 110);
}

#[test]
fn what_arrived_before_a_restart_is_dropped() {
    let mut case = Case::new();
    case.order.arrived(KEY, 100);
    case.bus.marks.insert(KEY, 100);
    case.open(7);
    assert!(case.message(0, 7, item("a", 99, 5)).is_empty());
    assert_eq!(case.message(0, 7, item("a", 101, 6)), ["a101"]);
    assert_eq!(case.bus.duplicates, 1);
}

#[test]
fn a_join_brings_what_was_missed_and_says_what_is_gone() {
    let mut case = Case::new();
    case.order.arrived(KEY, 100);
    case.bus.marks.insert(KEY, 100);
    case.open(7);
    let topics = BTreeMap::from([("a".to_owned(), 9), ("b".to_owned(), 4)]);
    let told = Told {
        numbering: 7,
        key: KEY,
        begins: 0,
        until: 120,
        overtaken: None,
        relays: false,
        full: true,
        topics: &topics,
    };
    let items = vec![item("a", 99, 0), item("b", 110, 0), item("a", 112, 0)];
    let replay = Replay::From { number: 105, unsent: 0 };
    case.order.join(ms(0), &told, replay, items, &mut case.events);
    assert_eq!(case.bus.take(&mut case.events), ["lost 5 in 100..105", "b110", "a112"]);
    assert_eq!(case.message(1, 7, item("a", 121, 9)), ["a121"]);
    assert!(case.message(1, 7, item("b", 125, 5)).is_empty());
    assert_eq!(case.expire(100), ["lost 1 in 120..125", "b125"]);
}

#[test]
fn memory_is_bounded() {
    let mut order = Order::new(100, 50);
    let mut out = Vec::new();
    order.arrived(KEY, 0);
    for numbering in 0..3000 {
        let now = ms(numbering.into());
        let opening = Opening { numbering, reorder: REORDER, own: None, since: now };
        order.open(now, opening, &mut out);
        for topic in 0..3 {
            order.message(
                ms(numbering.into()),
                numbering,
                item(&format!("t{topic}/{numbering}"), 0, 1),
                &mut out,
            );
            order.message(
                ms(numbering.into()),
                numbering,
                item(&format!("t{topic}/{numbering}"), 9, 5),
                &mut out,
            );
        }
        assert!(order.waiting <= 51 && order.paths.len() <= PATHS, "{} waiting", order.waiting);
        assert!(order.topics <= 100 + 52, "{} topics", order.topics);
        assert!(order.streams[&KEY].topics.len() <= 100);
    }
    assert!(order.take_forgotten() > 1000);
    for source in 0..10_000 {
        order.arrived(StreamKey { source, ..KEY }, 0);
        assert!(order.streams.len() <= STREAMS);
    }
}

/// A message of the list, on its way.
#[derive(Clone, Debug)]
struct Fate {
    topic: usize,
    is_lost: [bool; 2],
    is_doubled: bool,
    delay: u64,
}

fn fates(most_delay: u64) -> impl Strategy<Value = Vec<Fate>> {
    let fate = (
        0..4usize,
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.2),
        any::<bool>(),
        0..=most_delay,
    );
    let fate = fate.prop_map(|(topic, one, other, is_doubled, delay)| Fate {
        topic,
        is_lost: [one, other],
        is_doubled,
        delay,
    });
    proptest::collection::vec(fate, 1..60)
}

/// Sends messages over `ways`, and returns what the bus got. Message `n` has number `2 n`, and is sent at time `n` ms.
fn send(fates: &[Fate], ways: usize) -> Bus {
    let mut case = Case::new();
    let mut arriving: Vec<(u64, u32, Item<()>)> = Vec::new();
    let mut counts = [0; 4];
    for (at, fate) in fates.iter().enumerate() {
        let topic = ["a", "b", "c", "d"][fate.topic];
        for way in 0..ways {
            let item = item(topic, 2 * at as u64, counts[fate.topic]);
            let time = at as u64 + fate.delay + 3 * way as u64;
            let numbering = u32::try_from(way).unwrap();
            if !fate.is_lost[way] {
                arriving.push((time, numbering, item.clone()));
                if fate.is_doubled {
                    arriving.push((time + 1, numbering, item));
                }
            }
        }
        counts[fate.topic] += 1;
    }
    arriving.sort_by_key(|(time, ..)| *time);
    for way in 0..ways {
        let numbering = u32::try_from(way).unwrap();
        case.open(numbering);
        let relay = u16::try_from(way).unwrap();
        case.beat(0, &Beat { relay, numbering, ..Beat::default() });
    }
    for (time, numbering, item) in arriving {
        case.expire(time);
        case.message(time, numbering, item);
    }
    let topics: Vec<_> = ["a", "b", "c", "d"].into_iter().zip(counts).collect();
    let until = 2 * fates.len() as u64;
    for way in 0..ways {
        let numbering = u32::try_from(way).unwrap();
        let topics = topics.clone();
        let relay = u16::try_from(way).unwrap();
        case.beat(1000, &Beat { relay, numbering, until, topics, ..Beat::default() });
    }
    while let Some(deadline) = case.order.deadline() {
        case.order.expire(deadline, &mut case.events);
        case.bus.take(&mut case.events);
    }
    assert_eq!(case.order.waiting, 0);
    case.bus
}

fn check_order(bus: &Bus) -> Result<(), TestCaseError> {
    let mut last = HashMap::new();
    for (topic, number) in &bus.delivered {
        prop_assert!(last.insert(topic.clone(), number) < Some(number), "{:?}", bus.delivered);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// The messages and the reported losses are together what was sent, whatever the network does.
    #[test]
    fn one_way_counts_exactly(fates in fates(40)) {
        let bus = send(&fates, 1);
        check_order(&bus)?;
        prop_assert!(bus.is_exact);
        prop_assert_eq!(bus.delivered.len() as u64 + bus.lost, fates.len() as u64);
    }

    /// Without delays, what is reported is what was lost.
    #[test]
    fn what_is_not_lost_is_delivered(fates in fates(0)) {
        let bus = send(&fates, 1);
        let lost = fates.iter().filter(|fate| fate.is_lost[0]).count() as u64;
        prop_assert_eq!((bus.lost, bus.late), (lost, 0));
    }

    /// By two ways each message is delivered once or reported.
    #[test]
    fn two_ways_lose_nothing_silently(fates in fates(40)) {
        let bus = send(&fates, 2);
        check_order(&bus)?;
        prop_assert!(bus.delivered.len() as u64 + bus.lost >= fates.len() as u64);
        let everywhere = fates.iter().filter(|fate| fate.is_lost == [true; 2]).count() as u64;
        prop_assert!(bus.lost >= everywhere);
    }
}
