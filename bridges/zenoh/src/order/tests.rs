//! Cases, and a network that loses, doubles and reorders, with an inlet that does what the bus's inlet does.

use super::*;
use proptest::prelude::*;

const KEY: StreamKey = StreamKey { source: 1, series: 2, stream: 3 };
const REORDER: Duration = Duration::from_millis(20);

fn item(topic: &str, number: u64, count: u64) -> Item<()> {
    Item {
        topic: topic.into(),
        origin: KEY.origin(number),
        count,
        loss: None,
        missed: None,
        body: (),
    }
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// What arrives on a bus: the rules of `Inlet` for marks, and what subscribers see.
#[derive(Default)]
struct Bus {
    marks: HashMap<StreamKey, u64>,
    settled: HashMap<StreamKey, u64>,
    delivered: Vec<(Arc<str>, u64)>,
    lost: u64,
    /// The first number of each report, and the one after the last.
    reports: Vec<(u64, u64)>,
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
                    self.reports.push((loss.from.number, loss.until));
                    self.is_exact &= loss.bound == LostBound::Exact;
                    let Loss { from, until, messages, .. } = loss;
                    seen.push(format!("lost {messages} in {}..{until}", from.number));
                }
                Event::Settled(next) => {
                    let settled = self.settled.insert(StreamKey::of(next), next.number);
                    assert!(settled < Some(next.number), "{settled:?} is followed by {next}");
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
            beat: 0,
            key: StreamKey { stream: KEY.stream + beat.relay, ..KEY },
            begins: beat.begins,
            until: beat.until,
            overtaken: beat.overtaken,
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
    assert!(case.join(50, &[("a", 20)], Replay::Nothing, Vec::new()).is_empty());
    assert_eq!(case.message(0, 7, item("a", 50, 20)), ["a50"]);
    let topics = vec![("a", 21), ("b", 0)];
    case.beat(1, &Beat { numbering: 7, until: 51, topics, ..Beat::default() });
    assert!(case.expire(1000).is_empty());
    assert_eq!(case.message(1001, 7, item("b", 51, 0)), ["b51"]);
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
    case.beat(0, &Beat { numbering: 7, ..Beat::default() });
    let report = |from, until, count| Item {
        topic: crate::loss::TOPIC.into(),
        origin: StreamKey { stream: u16::MAX, ..KEY }.origin(count),
        count,
        loss: Some((KEY.origin(from), until)),
        missed: None,
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
        beat: 0,
        key: KEY,
        begins: 40,
        until: 40,
        overtaken: None,
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
            beat: 0,
            key: KEY,
            begins: 0,
            until,
            overtaken: None,
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
    // Of this stream nothing had come before, so it may be another sender's.
    assert!(!case.order.message(ms(0), 7, of(other, "a", 90, 30), &mut case.events));
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
    // A relay had an open end meanwhile: nothing bounds what is missing.
    let mut case = restarted(&[KEY]);
    case.open_as(7, Some(KEY));
    let replay = Replay::From { number: 100, unsent: Origin::NUMBER_LIMIT };
    let (topics, key) = (&BTreeMap::new(), KEY);
    let (numbering, beat, begins, until, overtaken, full) = (7, 0, 0, 110, None, true);
    let told = Told { numbering, beat, key, begins, until, overtaken, full, topics };
    case.order.join(Duration::ZERO, &told, replay, Vec::new(), &mut case.events);
    let Event::Lost(loss) = &case.events[0] else { panic!("{:?}", case.events) };
    assert_eq!((loss.messages, loss.bound), (0, LostBound::AtLeast));
}

/// A part settles what it has. If the rest does not come, a heartbeat reports it; else the join continues after the part.
#[test]
fn what_a_sender_sends_again_comes_in_parts() {
    for is_complete in [true, false] {
        let mut case = restarted(&[KEY]);
        let topics = BTreeMap::new();
        let mut part = |until, number, unsent, items: Vec<Item<()>>| {
            let (numbering, key, overtaken) = (7, KEY, None);
            let (beat, begins, full, topics) = (1, 0, false, &topics);
            let told = Told { numbering, beat, key, begins, until, overtaken, full, topics };
            let replay = Replay::From { number, unsent };
            case.order.catch_up(ms(1), &told, replay, items, &mut case.events);
            assert!(!case.order.knows_path(7));
            let seen = case.bus.take(&mut case.events);
            assert_eq!(case.bus.settled[&KEY], until);
            seen
        };
        let seen = part(105, 100, 0, vec![item("a", 100, 0), item("b", 104, 0)]);
        assert_eq!(seen, ["a100", "b104"]);
        // 105 and 106 were overwritten, and one cannot be sent.
        assert_eq!(part(110, 107, 1, vec![item("a", 108, 0)]), ["lost 3 in 105..107", "a108"]);
        case.open_as(7, Some(KEY));
        if is_complete {
            let replay = Replay::From { number: 110, unsent: 0 };
            let seen = case.join(115, &[("a", 9)], replay, vec![item("a", 112, 0)]);
            assert_eq!(seen, ["a112"]);
        } else {
            let beat = Beat { numbering: 7, until: 115, topics: vec![("a", 9)], ..Beat::default() };
            assert_eq!(case.beat(2, &beat), ["lost 5 in 110..110"]);
        }
        assert_eq!(case.bus.settled[&KEY], 115);
        assert_eq!(case.message(3, 7, item("a", 120, 9)), ["a120"]);
    }
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

/// A message of a relayed stream is missing, and the relay's own messages pass it. An importer that is killed then continues
/// where the relay's own stream is settled, so that must be before the place of the missing message.
#[test]
fn a_stream_is_settled_by_heartbeats_without_gaps() {
    let relayed = RELAYED[0];
    let mut case = Case::new();
    case.order.arrived(relayed, 0);
    case.open(7);
    let beat = |until, a, own| Beat {
        numbering: 7,
        until,
        topics: vec![("a", a), ("own", own)],
        ..Beat::default()
    };
    case.beat(0, &beat(10, 0, 0));
    assert_eq!(case.message(1, 7, of(relayed, "a", 70, 0)), ["a70"]);
    assert_eq!(case.message(1, 7, item("own", 11, 0)), ["own11"]);
    // `a` 71 is lost. Nothing shows it yet.
    assert_eq!(case.message(2, 7, item("own", 13, 1)), ["own13"]);
    assert!(case.message(2, 7, of(relayed, "a", 72, 2)).is_empty());
    assert_eq!(case.message(3, 7, item("own", 15, 2)), ["own15"]);
    assert_eq!((case.bus.settled[&KEY], case.order.accounted(KEY)), (10, Some(10)));
    assert!(case.beat(4, &beat(16, 3, 3)).is_empty());
    assert_eq!(case.message(5, 7, item("own", 16, 3)), ["own16"]);
    assert_eq!((case.bus.settled[&KEY], case.bus.marks[&relayed]), (10, 71), "the gap is open");
    assert_eq!(case.expire(22), ["lost 1 in 71..72", "a72"]);
    assert_eq!((case.bus.settled[&KEY], case.bus.marks[&relayed]), (16, 73));

    // A message that is only late closes the gap as well.
    assert!(case.message(24, 7, of(relayed, "a", 75, 4)).is_empty());
    assert!(case.beat(25, &beat(20, 5, 5)).is_empty());
    assert_eq!(case.bus.settled[&KEY], 16);
    assert_eq!(case.message(26, 7, of(relayed, "a", 74, 3)), ["a74", "a75"]);
    assert_eq!(case.bus.settled[&KEY], 16, "one of its own is on the way");
    assert_eq!(case.message(27, 7, item("own", 17, 4)), ["own17"]);
    assert_eq!(case.bus.settled[&KEY], 20);
}

/// While what was missed is delivered, the stream is not settled: the answer is not in the order of the sender's bus.
#[test]
fn a_stream_is_settled_after_a_join_was_delivered() {
    let mut case = restarted(&[KEY, RELAYED[0]]);
    case.open_as(7, Some(KEY));
    let items = vec![item("own", 105, 0), of(RELAYED[0], "a", 100, 0)];
    let topics = BTreeMap::from([("a".to_owned(), 4), ("own".to_owned(), 2)]);
    let told = Told {
        numbering: 7,
        beat: 0,
        key: KEY,
        begins: 0,
        until: 110,
        overtaken: None,
        full: true,
        topics: &topics,
    };
    let replay = Replay::From { number: 100, unsent: 0 };
    case.order.join(ms(0), &told, replay, items, &mut case.events);
    assert!(matches!(case.events[..], [.., Event::Settled(Origin { number: 110, .. })]));
    assert_eq!(case.bus.take(&mut case.events), ["own105", "a100"]);
    assert_eq!(case.message(1, 7, item("own", 112, 2)), ["own112"]);
    assert_eq!((case.bus.marks[&KEY], case.bus.settled[&KEY]), (113, 110));
}

/// The heartbeats of an export of many topics tell in turn what has changed. If too many of them are missing, the counts of
/// some topics are unknown.
#[test]
fn a_stream_is_not_settled_while_counts_are_unknown() {
    let mut case = Case::new();
    case.open(7);
    let mut beat = |beat, until, full| {
        let topics = BTreeMap::new();
        let (begins, overtaken) = (0, None);
        let (numbering, key, topics) = (7, KEY, &topics);
        let told = Told { numbering, beat, key, begins, until, overtaken, full, topics };
        case.order.told(ms(beat), &told, |_| true, &mut case.events);
        case.bus.take(&mut case.events);
        (case.bus.settled.get(&KEY).copied(), case.order.is_synced(7))
    };
    assert_eq!(beat(1, 10, false), (None, false));
    assert_eq!(beat(2, 20, true), (Some(20), true));
    assert_eq!(beat(2 + REPEATS, 30, false), (Some(30), true));
    assert_eq!(beat(3 + 2 * REPEATS, 40, false), (Some(30), false));
    assert_eq!(beat(4 + 2 * REPEATS, 50, false), (Some(30), false));
    // The answer is older than the last heartbeat.
    assert_eq!(beat(3 + 2 * REPEATS, 45, true), (Some(45), true));
    assert_eq!(beat(4 + 2 * REPEATS, 50, false), (Some(50), true));
}

/// A heartbeat without topics says whose the numbering is.
fn tell(order: &mut Order<()>, numbering: u32, key: StreamKey) {
    let (beat, begins, until, overtaken, full) = (0, 0, 0, None, false);
    let topics = &BTreeMap::new();
    let told = Told { numbering, beat, key, begins, until, overtaken, full, topics };
    order.told(Duration::ZERO, &told, |_| true, &mut Vec::new());
}

/// Before all counts are known, the first message settles what was before it: who joins late misses nothing.
#[test]
fn a_stream_is_settled_before_its_first_message() {
    let mut case = Case::new();
    case.open_as(7, Some(KEY));
    assert!(
        !case.order.message(ms(0), 7, item("a", 49, 2), &mut case.events),
        "nothing confirms it"
    );
    tell(&mut case.order, 7, KEY);
    case.order.message(ms(0), 7, item("a", 50, 3), &mut case.events);
    assert_eq!(case.events[0], Event::Settled(KEY.origin(50)));
    assert_eq!(case.bus.take(&mut case.events), ["a50"]);
    case.message(1, 7, item("b", 52, 1));
    assert_eq!((case.bus.settled[&KEY], case.order.accounted(KEY)), (50, Some(50)));
}

/// An importer was killed before a heartbeat showed what it had missed: 92 and 95 of those below the mark.
#[test]
fn what_an_earlier_import_has_missed_is_reported_once() {
    let missed = |topic, number, missed| Item { missed: Some(missed), ..item(topic, number, 0) };
    let items = || {
        vec![
            item("a", 91, 0),
            missed("b", 92, LostBound::Exact),
            missed("a", 95, LostBound::Exact),
            item("a", 104, 0),
        ]
    };
    let begin = || {
        let mut case = restarted(&[KEY]);
        case.order.settled(KEY, 90, vec![90, 91, 93, 94, 96, 97, 98, 99, 104]);
        assert_eq!(case.order.accounted(KEY), Some(90));
        case.open_as(7, Some(KEY));
        case
    };
    let topics = [("a", 9), ("b", 4)];
    let mut case = begin();
    let seen = case.join(105, &topics, Replay::From { number: 90, unsent: 0 }, items());
    // The bus takes no loss below its mark, but one without numbers.
    assert_eq!(seen, ["lost 1 in 100..100", "lost 1 in 100..100", "a104"]);
    assert!(case.bus.is_exact);
    assert_eq!(case.bus.settled[&KEY], 105);
    // Another sender brings them as well.
    case.open_as(8, Some(RELAYED[0]));
    let told = Told {
        numbering: 8,
        beat: 0,
        key: RELAYED[0],
        begins: 0,
        until: 105,
        overtaken: None,
        full: true,
        topics: &BTreeMap::new(),
    };
    let replay = Replay::From { number: 80, unsent: 0 };
    case.order.join(ms(1), &told, replay, items(), &mut case.events);
    assert!(case.bus.take(&mut case.events).is_empty());

    // The source no longer has the first ones: of 90 to 95, two are not on the bus.
    let mut case = begin();
    let seen = case.join(105, &topics, Replay::From { number: 96, unsent: 0 }, vec![]);
    assert_eq!(seen, ["lost 2 in 100..100"]);
    assert!(!case.bus.is_exact);
    // A part of the answer is missing. Of 90 to 104, these are not on the bus: 92, 95, 100 to 103.
    let mut case = begin();
    assert_eq!(case.join(105, &topics, Replay::Part, items()), ["lost 6 in 90..104", "a104"]);
    // There is no answer.
    let mut case = begin();
    assert_eq!(case.message(0, 7, item("a", 106, 5)), ["lost 7 in 100..106", "a106"]);
    // Nothing is known of the ring.
    let mut case = begin();
    let items = vec![
        missed("b", 92, LostBound::AtMost),
        missed("a", 95, LostBound::AtMost),
        item("a", 100, 0),
    ];
    let seen = case.join(101, &topics, Replay::From { number: 90, unsent: 0 }, items);
    assert_eq!(seen, ["lost 2 in 100..100", "a100"]);
    assert!(!case.bus.is_exact);
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
        beat: 0,
        key: KEY,
        begins: 0,
        until: 120,
        overtaken: None,
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
        tell(&mut order, numbering, StreamKey { source: 9 + numbering, ..KEY });
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

/// What happens after a message was sent.
#[derive(Clone, Debug)]
struct Then {
    has_beat: bool,
    is_killed: bool,
    /// What the ring of the importer's bus has overwritten before the next importer begins.
    is_overwritten: bool,
    /// As many of the newest messages the source still has.
    kept: usize,
    answer: Answer,
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Whole,
    /// Every other message.
    Part,
    Nothing,
}

fn deeds() -> impl Strategy<Value = Vec<Then>> {
    let answer = prop_oneof![
        6 => Just(Answer::Whole),
        1 => Just(Answer::Part),
        1 => Just(Answer::Nothing)
    ];
    let kept = prop_oneof![4 => Just(usize::MAX), 1 => 0..30_usize];
    let then = (
        prop::bool::weighted(0.15),
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.1),
        kept,
        answer,
    );
    let then = then.prop_map(|(has_beat, is_killed, is_overwritten, kept, answer)| Then {
        has_beat,
        is_killed,
        is_overwritten,
        kept,
        answer,
    });
    proptest::collection::vec(then, 60)
}

/// Sends messages to importers that are killed, and returns what the bus got. Message `n` has number `2 n`, and is sent at
/// time `10 n` ms. What is on the way when an importer is killed is gone.
fn send_to_mortals(fates: &[Fate], deeds: &[Then]) -> Bus {
    const TOPICS: [&str; 4] = ["a", "b", "c", "d"];
    let mut case = Case::new();
    case.open_as(7, Some(KEY));
    case.beat(0, &Beat { numbering: 7, ..Beat::default() });
    let mut counts = [0_u64; 4];
    let mut sent: Vec<Item<()>> = Vec::new();
    let mut on_the_way: Vec<(u64, Item<()>)> = Vec::new();
    // From where on the ring has the messages, and whether it has those of all times.
    let (mut ring, mut is_whole) = (0, true);
    let told = |case: &mut Case, now, counts: &[u64; 4], until| {
        let topics = TOPICS.into_iter().zip(*counts).collect();
        case.beat(now, &Beat { numbering: 7, until, topics, ..Beat::default() });
    };
    for (at, (fate, then)) in fates.iter().zip(deeds).enumerate() {
        let (now, number) = (10 * at as u64, 2 * at as u64);
        let item = item(TOPICS[fate.topic], number, counts[fate.topic]);
        sent.push(item.clone());
        if !fate.is_lost[0] {
            on_the_way.push((now + fate.delay, item));
        }
        counts[fate.topic] += 1;
        on_the_way.sort_by_key(|(time, _)| *time);
        while on_the_way.first().is_some_and(|(time, _)| *time <= now) {
            let (time, item) = on_the_way.remove(0);
            case.expire(time);
            case.message(time, 7, item);
        }
        case.expire(now);
        if then.has_beat {
            told(&mut case, now, &counts, number + 1);
        }
        if !then.is_killed {
            continue;
        }
        on_the_way.clear();
        let mark = case.bus.marks.get(&KEY).copied().unwrap_or(0);
        if then.is_overwritten {
            // What is above the mark may arrive twice otherwise.
            let above = case.bus.delivered.iter().position(|(_, number)| *number >= mark);
            (ring, is_whole) = (above.unwrap_or(case.bus.delivered.len()).max(ring), false);
        }
        let (seen, settled) = (&case.bus.delivered[ring..], case.bus.settled[&KEY]);
        let reported = case.bus.reports.clone();
        // While another gap is open, what was reported is above the mark, and still arrives when it is sent again.
        case.bus.is_exact &= reported.iter().all(|(_, until)| *until <= mark);
        let mut came: Vec<u64> = seen.iter().map(|(_, number)| *number).collect();
        came.retain(|number| *number >= settled);
        came.sort_unstable();
        let mut order = Order::new(1000, 1000);
        order.arrived(KEY, mark);
        order.settled(KEY, settled, came);
        let from = order.accounted(KEY).unwrap();
        let oldest = sent.len().saturating_sub(then.kept) as u64 * 2;
        let mut items = Vec::new();
        for (at, mut item) in sent.iter().filter(|i| i.origin.number >= from).cloned().enumerate() {
            let number = item.origin.number;
            let is_dropped = matches!(then.answer, Answer::Part) && at % 2 == 0;
            if number < oldest || is_dropped {
                continue;
            }
            let of_topic = seen.iter().filter(|(topic, _)| *topic == item.topic);
            let last = of_topic.map(|(_, number)| *number).max();
            if last >= Some(number) {
                // The import takes its body, and counts a duplicate.
                if number >= mark {
                    continue;
                }
            } else if number < mark {
                let may_be_told = reported.iter().any(|(from, until)| {
                    (*from..*until).contains(&number) || from == until && number < *from
                });
                let is_sure = (is_whole || last.is_some()) && !may_be_told;
                item.missed = Some(if is_sure { LostBound::Exact } else { LostBound::AtMost });
            }
            items.push(item);
        }
        case.order = order;
        case.open_as(7, Some(KEY));
        let topics: Vec<_> = TOPICS.into_iter().zip(counts).collect();
        match then.answer {
            Answer::Whole => {
                let replay = Replay::From { number: from.max(oldest), unsent: 0 };
                case.join(number + 1, &topics, replay, items);
            }
            Answer::Part => {
                case.join(number + 1, &topics, Replay::Part, items);
            }
            Answer::Nothing => {}
        }
    }
    for (time, item) in on_the_way {
        case.expire(time);
        case.message(time, 7, item);
    }
    told(&mut case, 10_000, &counts, 2 * fates.len() as u64);
    while let Some(deadline) = case.order.deadline() {
        case.order.expire(deadline, &mut case.events);
        case.bus.take(&mut case.events);
    }
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

    /// Whenever importers are killed, each message is delivered once or reported. The number is exact if nothing was
    /// overwritten and all is answered.
    #[test]
    fn killed_importers_lose_nothing_silently(
        fates in fates(25),
        mut deeds in deeds(),
        is_mild in any::<bool>(),
    ) {
        if is_mild {
            for then in &mut deeds {
                (then.is_overwritten, then.kept) = (false, usize::MAX);
                then.answer = Answer::Whole;
            }
        }
        let bus = send_to_mortals(&fates, &deeds);
        check_order(&bus)?;
        let accounted = bus.delivered.len() as u64 + bus.lost;
        prop_assert!(accounted >= fates.len() as u64, "{accounted} of {}", fates.len());
        if is_mild && bus.is_exact {
            prop_assert_eq!(accounted, fates.len() as u64);
        }
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

/// Another inlet brings the stream. Nothing is reported of what was missing or waited, and what waited is handed out.
#[test]
fn an_abandoned_path_leaves_nothing() {
    let mut case = Case::new();
    case.open(7);
    case.beat(0, &Beat { numbering: 7, ..Beat::default() });
    case.message(0, 7, item("a", 0, 0));
    assert!(case.message(1, 7, item("a", 5, 2)).is_empty());
    assert_eq!(case.order.paths_of(|own| own == KEY), [7]);
    let waited = case.order.abandon(7);
    assert_eq!(waited.iter().map(|item| item.count).collect::<Vec<_>>(), [2]);
    case.order.forget_stream(KEY);
    assert!(!case.order.knows_path(7) && !case.order.knows_stream(KEY));
    assert_eq!((case.order.deadline(), case.order.waiting, case.order.topics), (None, 0, 0));
    assert!(case.expire(1_000).is_empty());
    // It is claimed with all that the other one has brought.
    case.order.arrived(KEY, 3);
    case.bus.marks.insert(KEY, 3);
    case.order.missed_before(KEY, 6, 2, &mut case.events);
    assert_eq!(case.bus.take(&mut case.events), ["lost 2 in 3..6"]);
}

/// The sender is silent. What is missing is lost, and what only it brought can be left to others.
#[test]
fn a_path_that_ends_reports_what_is_missing() {
    let mut case = Case::new();
    for (relay, numbering) in [(0, 7), (1, 8)] {
        case.open(numbering);
        case.beat(0, &Beat { relay, numbering, ..Beat::default() });
    }
    let [elsewhere, both] = RELAYED;
    for (numbering, key) in [(7, elsewhere), (7, both), (8, both)] {
        let topic = format!("{}", key.source);
        case.message(0, numbering, of(key, &topic, 0, 0));
    }
    case.message(1, 7, item("a", 5, 1));
    let brought = case.order.end(7, &mut case.events);
    assert_eq!(brought, [KEY, elsewhere]);
    assert_eq!(case.bus.take(&mut case.events), ["lost 1 in 0..5", "a5"]);
    assert_eq!(case.order.heard(8), Some(ms(0)));
    assert_eq!(case.order.own_stream(7), None);
}

#[test]
fn numbers_that_are_far_ahead_are_not_believed() {
    let mut case = Case::new();
    case.open(7);
    case.beat(0, &Beat { numbering: 7, until: 5, topics: vec![("a", 1)], ..Beat::default() });
    let takes = |case: &mut Case, item| {
        let takes = case.order.message(ms(1), 7, item, &mut case.events);
        case.bus.take(&mut case.events);
        takes
    };
    assert!(!takes(&mut case, item("a", 6 + FAR, 1)), "the sender has told 5");
    assert!(!takes(&mut case, item("a", 5, 2 + FAR)));
    assert!(!takes(&mut case, item("b", 5, 1 + FAR)), "it begins at 0");
    let report = Item { loss: Some((KEY.origin(5), 6 + FAR)), ..item("l", 0, 0) };
    assert!(!takes(&mut case, report));
    assert_eq!(case.bus.marks.get(&KEY), None);
    assert!(takes(&mut case, item("a", 5 + FAR, 1)));
    assert_eq!(case.bus.marks[&KEY], 6 + FAR);
    // Of what it relays nothing is known at first.
    let [relayed, _] = RELAYED;
    assert!(takes(&mut case, of(relayed, "c", 2 * FAR, 0)));
    assert!(!takes(&mut case, of(relayed, "c", 4 * FAR, 1)));

    let topics = |topic: &str, count| BTreeMap::from([(topic.to_owned(), count)]);
    let doubts = |case: &Case, numbering, until, topics: &BTreeMap<String, u64>| {
        let (beat, begins, overtaken, full) = (1, 0, None, true);
        let told = Told { numbering, beat, key: KEY, begins, until, overtaken, full, topics };
        case.order.is_doubtful(&told)
    };
    assert!(!doubts(&case, 7, 6 + 2 * FAR, &topics("a", 2 + FAR)));
    assert!(doubts(&case, 7, 7 + 2 * FAR, &topics("a", 2)));
    assert!(doubts(&case, 7, 6, &topics("a", 3 + FAR)));
    assert!(doubts(&case, 7, 6, &topics("d", 1 + FAR)));
    case.open(9);
    assert!(!doubts(&case, 9, 9 * FAR, &topics("a", 0)), "it is the first one");
}
