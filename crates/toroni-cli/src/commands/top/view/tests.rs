//! Screens at several sizes, compared with the files in `tests/top`. `TORONI_BLESS=1` writes them.

use super::super::keys::{Choices, Sort, View};
use super::super::model::{
    BusModel, BusRow, Holder, ListModel, Lock, LockState, LossModel, PublisherModel, State,
    SubscriberModel, TopicModel, TopicsModel, Who,
};
use super::super::network::{
    FeedModel, HeardModel, NetworkModel, NodeModel, ReceiverModel, SentModel,
};
use super::super::sample::{Age, How};
use super::theme::Theme;
use super::{Shown, as_text, draw, lines};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;
use toroni_shell::age::Summary;
use toroni_shell::notice::{FeedMulticast, OrderMember, Sequencer};

const SIZES: [(u16, u16); 4] = [(80, 24), (120, 40), (160, 24), (40, 10)];
/// 2026-11-22 12:00:31 UTC.
const TIME: f64 = 1_795_348_831.0;

fn who(slot: u32, name: &str, pid: u32, state: State) -> Who {
    Who { slot, name: name.to_owned(), pid, same_pid_namespace: true, state }
}

fn publisher(slot: u32, name: &str, rate: f64, bytes: f64, waited: f64) -> PublisherModel {
    PublisherModel {
        who: who(slot, name, 4711 + slot, State::Alive),
        messages: 1000,
        messages_per_second: Some(rate),
        bytes_per_second: Some(bytes),
        waited_share: Some(waited),
        overwrites: 0,
        wakes_per_second: Some(rate / 1000.0),
    }
}

fn subscriber(slot: u32, name: &str, lag_bytes: u64, seconds: f64) -> SubscriberModel {
    SubscriberModel {
        who: who(slot, name, 4790 + slot, State::Alive),
        gating: true,
        lag_bytes,
        lag_share: f64::from(u32::try_from(lag_bytes).unwrap()) / f64::from(4 << 20),
        behind: Some(Age { seconds, how: How::Measured }),
        received_per_second: Some(910_000.0),
        ..SubscriberModel::default()
    }
}

/// Four publishers, one of which waits for a subscriber that is stopped.
fn plant() -> BusModel {
    let mut slow = subscriber(4, "vision", 4_089_446, 2.1);
    (slow.in_the_way, slow.who.state, slow.received_per_second) = (true, State::Stopped, Some(0.0));
    let mut guest = subscriber(9, "recorder", 812_000, 0.4);
    (guest.gating, guest.lost_messages, guest.lost_last_minute) = (false, 12_031, 31);
    (guest.lapses, guest.lost_on_the_way) = (3, 4);
    let mut overwriting = publisher(3, "quality-control", 12.0, 1.2e6, 0.0);
    overwriting.overwrites = 3;
    let topic = |topic: &str, rate: f64, size: f64| TopicModel {
        topic: topic.to_owned(),
        messages_per_second: rate,
        bytes_per_second: rate * size,
        mean_bytes: (size > 0.0).then_some(size),
        age: None,
    };
    let lost = |ago: f64, slot, who: &str, messages, bound: &str, reason: &str| LossModel {
        time: TIME - ago,
        who: who.to_owned(),
        slot,
        messages,
        bound: bound.to_owned(),
        reason: reason.to_owned(),
    };
    BusModel {
        name: "plant".to_owned(),
        time: TIME,
        interval_seconds: Some(0.5),
        capacity: 4 << 20,
        policy: "wait:100ms".to_owned(),
        lock_kind: "lease".to_owned(),
        lock: Lock { state: LockState::InUse, holder: Some(Holder::default()), held_seconds: None },
        messages: 123_456_789,
        bytes: 9_876_543_210,
        messages_per_second: Some(1_820_000.0),
        bytes_per_second: Some(126_877_696.0),
        recent_rates: vec![1e5, 4e5, 9e5, 1.5e6, 1.9e6, 1.9e6, 1.82e6],
        unread_share: Some(0.975),
        history: Some(Age { seconds: 3.1, how: How::Measured }),
        waited_per_second: Some(0.012),
        wakes_per_second: Some(3100.0),
        in_the_way: Some(4),
        lost_messages: 12_031,
        lost_last_minute: 31,
        max_publishers: 128,
        max_subscribers: 128,
        publishers: Some(vec![
            publisher(0, "camera", 1_200_000.0, 80.0 * 1_048_576.0, 0.009),
            publisher(1, "plc", 620_000.0, 41.2 * 1_048_576.0, 0.0),
            overwriting,
            publisher(2, "plc-backup", 0.0, 0.0, 0.0),
        ]),
        subscribers: Some(vec![subscriber(7, "logger", 12_288, 0.006), slow, guest]),
        topics_known: 5,
        topics: Some(TopicsModel {
            approximate: false,
            rows: vec![
                topic("plant/camera/frame", 1_200_000.0, 69.9),
                topic("plant/plc/state", 620_000.0, 69.7),
                topic("plant/quality-control/verdict/line-1/with/a/rather/long/name", 12.0, 1e5),
                topic("plant/plc-backup/state", 0.0, 0.0),
            ],
        }),
        losses: vec![
            lost(2.0, Some(9), "recorder", 31, "exact", "overtaken: it read too slowly"),
            lost(3700.0, None, "from 3fa2/7", 4, "at_least", "silent: lost on the way to this bus"),
            lost(
                3701.0,
                Some(9),
                "recorder",
                12_000,
                "exact",
                "overtaken 2 times: it read too slowly",
            ),
        ],
        ..BusModel::default()
    }
}

fn choices(view: View) -> Choices {
    Choices::new(view, Duration::from_millis(500))
}

fn drawn(shown: Shown<'_>, choices: &Choices, theme: &Theme, size: (u16, u16)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    let area = |frame: &mut ratatui::Frame<'_>| {
        draw(shown, choices, theme, true, frame.area(), frame.buffer_mut());
    };
    terminal.draw(area).unwrap();
    terminal.backend().buffer().clone()
}

/// What `top` shows of a small bus with stamps. A publisher of 30 images a second waits for a subscriber that is stopped. The bus
/// carries 1.86 MiB/s, of which its ring holds 2.1 s. Ages include the time until a poll of `top`, up to 10 ms.
fn small_plant() -> BusModel {
    let publisher = |slot, name: &str, rate: f64, size: f64, waited: f64| PublisherModel {
        // Two subscribers sleep until the next message.
        wakes_per_second: Some(2.0 * rate),
        ..publisher(slot, name, rate, rate * size, waited)
    };
    let subscriber = |slot, name: &str, lag: u64, seconds: f64| SubscriberModel {
        received_per_second: Some(542.0),
        ..subscriber(slot, name, lag, seconds)
    };
    let topic = |topic: &str, rate: f64, size: f64, [p50, p99, longest]: [f64; 3]| TopicModel {
        topic: topic.to_owned(),
        messages_per_second: rate,
        bytes_per_second: rate * size,
        mean_bytes: (rate > 0.0).then_some(size),
        age: (rate > 0.0).then_some(Summary { p50, p99, longest }),
    };
    let mut vision = subscriber(4, "vision", 4_089_446, 2.1);
    (vision.in_the_way, vision.who.state) = (true, State::Stopped);
    vision.received_per_second = Some(0.0);
    let mut recorder = subscriber(9, "recorder", 812_000, 0.4);
    (recorder.gating, recorder.lost_messages, recorder.lapses) = (false, 31, 1);
    recorder.lost_last_minute = 31;
    let [image, state, verdict] = [61_440.0, 120.0, 4_096.0];
    BusModel {
        messages_per_second: Some(542.0),
        bytes_per_second: Some(30.0 * image + 500.0 * state + 12.0 * verdict),
        recent_rates: vec![538.0, 542.0, 541.0, 544.0, 542.0, 540.0, 542.0],
        history: Some(Age { seconds: 2.15, how: How::Measured }),
        wakes_per_second: Some(1084.0),
        lost_messages: 31,
        lost_last_minute: 31,
        publishers: Some(vec![
            publisher(0, "camera", 30.0, image, 0.012),
            publisher(1, "plc", 500.0, state, 0.0),
            publisher(3, "quality-control", 12.0, verdict, 0.0),
            publisher(2, "plc-backup", 0.0, 0.0, 0.0),
        ]),
        subscribers: Some(vec![subscriber(7, "logger", 12_288, 0.006), vision, recorder]),
        topics_known: 4,
        topics: Some(TopicsModel {
            approximate: false,
            rows: vec![
                topic("plant/plc/state", 500.0, state, [0.005_1, 0.009_9, 0.010_4]),
                topic("plant/camera/frame", 30.0, image, [0.005_4, 0.015_8, 0.015_8]),
                topic("plant/quality-control/verdict", 12.0, verdict, [0.004_6, 0.009_1, 0.009_1]),
                topic("plant/plc-backup/state", 0.0, state, [0.0; 3]),
            ],
        }),
        ..plant()
    }
}

/// The picture of README: a subscriber is stopped, and a publisher waits for it.
#[test]
fn the_picture_of_the_documents_is_up_to_date() {
    let model = small_plant();
    let buffer = drawn(Shown::Bus(&model), &choices(View::Bus), &Theme::new(true), (120, 21));
    let description = "The screen of toroni top: the publisher camera waits for the subscriber vision, which is stopped";
    let picture = super::picture::svg(&buffer, description);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images/top.svg");
    // A package of the crate has no documents.
    if !path.parent().unwrap().exists() {
        return;
    }
    if std::env::var_os("TORONI_BLESS").is_some() {
        std::fs::write(&path, &picture).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == picture, "{} is another picture: TORONI_BLESS=1 draws it", path.display());
}

fn check(name: &str, shown: Shown<'_>, choices: &Choices) {
    let mut text = String::new();
    for (width, height) in SIZES {
        let buffer = drawn(shown, choices, &Theme::new(true), (width, height));
        writeln!(text, "{:═<width$}", format!("{width}x{height} "), width = width.into()).unwrap();
        text.push_str(&lines(&buffer));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/top").join(name);
    if std::env::var_os("TORONI_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &text).unwrap();
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text == wanted, "{name} is not as in {}:\n{text}", path.display());
}

#[test]
fn a_bus_and_who_is_in_the_way() {
    check("bus.txt", Shown::Bus(&plant()), &choices(View::Bus));
}

/// A process id is what a person needs to look further.
#[test]
fn process_ids_are_shown_where_there_is_room() {
    let mut model = plant();
    let ids = |model: &BusModel, width: u16| {
        let theme = Theme::new(true);
        lines(&drawn(Shown::Bus(model), &choices(View::Bus), &theme, (width, 40)))
            .matches(" 471")
            .count()
    };
    assert_eq!(ids(&model, 160), 4);
    model.publishers.as_mut().unwrap()[2].overwrites = 0;
    // With everything that subscribers show on an ordinary day, both panels fit.
    let subscribers = model.subscribers.as_mut().unwrap();
    subscribers.truncate(1);
    assert_eq!(ids(&model, 150), 4);
    let text = as_text(Shown::Bus(&model), &choices(View::Bus), 160);
    for wanted in ["OVERWRITES", "LAST MIN", "OF RING"] {
        assert!(text.contains(wanted), "{wanted}\n{text}");
    }
}

#[test]
fn the_keys_over_the_panels() {
    let choices = Choices { has_help: true, ..choices(View::Bus) };
    check("keys.txt", Shown::Bus(&plant()), &choices);
    // With space for one line more, or two, or three.
    for height in 10..20 {
        let buffer = drawn(Shown::Bus(&plant()), &choices, &Theme::new(true), (100, height));
        let text = lines(&buffer);
        let has_all = text.contains("KEY  ") && text.contains("quit; so does Ctrl-C");
        assert_eq!(has_all, height >= 14, "{height}\n{text}");
    }
}

#[test]
fn what_a_key_could_not_do_is_said_instead_of_the_keys() {
    let choices = Choices { note: Some("no shell"), ..choices(View::Bus) };
    let text = lines(&drawn(Shown::Bus(&plant()), &choices, &Theme::new(true), (80, 24)));
    assert!(text.contains("no shell") && !text.contains("q quit"), "{text}");
}

#[test]
fn what_may_not_be_read() {
    let hidden = BusModel {
        publishers: None,
        subscribers: None,
        topics: None,
        topics_problem: Some("no rates per topic: permission denied".to_owned()),
        waited_per_second: None,
        wakes_per_second: None,
        unread_share: None,
        in_the_way: None,
        ..plant()
    };
    check("hidden.txt", Shown::Bus(&hidden), &choices(View::Bus));
}

#[test]
fn a_stopped_owner_of_the_lock_the_dead_and_a_removed_bus() {
    let mut model = plant();
    let holder = Holder {
        slot: Some(0),
        pid: Some(4711),
        name: Some("camera".to_owned()),
        state: State::Stopped,
    };
    model.lock = Lock { state: LockState::Held, holder: Some(holder), held_seconds: Some(12.0) };
    model.dead = 1;
    model.problem = Some("there is no bus at /dev/shm/toroni/plant".to_owned());
    let publishers = model.publishers.as_mut().unwrap();
    publishers[0].who.state = State::Stopped;
    publishers[1].who.state = State::Dead;
    check("alarms.txt", Shown::Bus(&model), &choices(View::Bus));
}

#[test]
fn an_empty_bus_after_the_first_look() {
    let empty = BusModel {
        name: "plant".to_owned(),
        time: TIME,
        capacity: 64 << 10,
        policy: "overwrite".to_owned(),
        max_publishers: 128,
        max_subscribers: 128,
        publishers: Some(Vec::new()),
        subscribers: Some(Vec::new()),
        ..BusModel::default()
    };
    check("empty.txt", Shown::Bus(&empty), &choices(View::Bus));
}

#[test]
fn topics_from_samples_by_bytes() {
    let mut model = plant();
    model.topics.as_mut().unwrap().approximate = true;
    let choices = Choices { sort: Sort::Bytes, is_paused: true, ..choices(View::Topics) };
    check("topics.txt", Shown::Bus(&model), &choices);
}

/// One topic has stamps of another clock, and one has none.
#[test]
fn ages_of_topics_whose_messages_have_stamps() {
    let mut model = plant();
    let rows = &mut model.topics.as_mut().unwrap().rows;
    rows[0].age = Some(Summary { p50: 0.000_021, p99: 0.001_3, longest: 0.32 });
    rows[1].age = Some(Summary { p50: -0.75, p99: -0.001, longest: 0.000_4 });
    check("ages.txt", Shown::Bus(&model), &choices(View::Topics));
}

#[test]
fn more_topics_than_fit() {
    let mut model = plant();
    let rows = (0..60_u32).map(|number| TopicModel {
        topic: format!("line/{number}"),
        messages_per_second: f64::from(1000 - number),
        bytes_per_second: 1e6,
        mean_bytes: Some(100.0),
        age: None,
    });
    model.topics.as_mut().unwrap().rows = rows.collect();
    let choices = Choices { offset: 3, ..choices(View::Topics) };
    check("many-topics.txt", Shown::Bus(&model), &choices);
}

#[test]
fn losses_with_the_newest_first() {
    let choices = Choices { filter: "re".to_owned(), ..choices(View::Losses) };
    check("losses.txt", Shown::Bus(&plant()), &choices);
    let typed = Choices { filter: "rec".to_owned(), is_typing: true, ..choices };
    check("filter.txt", Shown::Bus(&plant()), &typed);
}

/// Two nodes, one of which is silent; a crybaby; a name that would steer the terminal.
fn network() -> NetworkModel {
    let sent = |stream, rate: f64, repeated, overtaken| SentModel {
        stream,
        messages_per_second: Some(rate),
        datagrams_per_second: Some(rate / 20.0),
        repaired_share: Some(repeated),
        naks_per_second: Some(3.0),
        receivers: 2,
        lag_bytes: 81_920,
        overtaken,
    };
    let receiver = |name: &str, lost, kernel_dropped, is_crybaby| ReceiverModel {
        stream: 1,
        name: name.to_owned(),
        address: "192.168.100.107:40123".to_owned(),
        lag_datagrams: 12,
        lost,
        naks: 10 * lost,
        kernel_dropped,
        rtt_seconds: 0.000_41,
        is_crybaby,
    };
    let heard = |name: &str, lost, open_gaps| HeardModel {
        name: name.to_owned(),
        stream: 1,
        messages_per_second: Some(12_500.0),
        lost,
        naks: 61,
        repaired: 1_031,
        open_gaps,
        held_datagrams: 8 * open_gaps,
    };
    let first = NodeModel {
        node: "line-3".to_owned(),
        realm: "plant".to_owned(),
        silent_seconds: None,
        kernel_dropped: 12_031,
        left_out: 0,
        sent: vec![sent(1, 120_000.0, 0.0003, 0), sent(2, 10.0, 0.21, 17)],
        receivers: vec![
            receiver("line-4", 0, 0, false),
            receiver("line-7-with-a-rather-long-name\u{1b}[2J", 1_200, 12_031, true),
        ],
        heard: vec![heard("line-4", 0, 0), heard("line-7", 44, 3)],
        feed: None,
    };
    let second = NodeModel {
        node: "line-3-test".to_owned(),
        silent_seconds: Some(12.2),
        ..NodeModel::default()
    };
    NetworkModel { nodes: vec![first, second] }
}

/// A leader, a follower, a member without a leader, a host without a member, and one that multicast does not reach.
fn feeds() -> NetworkModel {
    let feed = |node: &str, rate, now: Sequencer| NodeModel {
        node: node.to_owned(),
        feed: Some(FeedModel {
            commands_per_second: Some(rate),
            events_per_second: Some(3.0 * rate),
            came_per_second: Some(if now.is_live { 3.0 * rate } else { 0.0 }),
            asked_per_second: Some(if now.is_live { 0.0 } else { 3.0 * rate }),
            now: Sequencer {
                feed: "orders".to_owned(),
                waiting_bytes: 4_096,
                delivered: 1_200_000,
                ..now
            },
        }),
        ..NodeModel::default()
    };
    let member = |name: &str, leader: Option<&str>| {
        let member = OrderMember {
            name: name.to_owned(),
            leader: leader.map(str::to_owned),
            leads: leader == Some(name),
            term: 12,
            events: 1_234_567,
            ..OrderMember::default()
        };
        Sequencer { member: Some(member), is_live: leader.is_some(), ..Sequencer::default() }
    };
    let with_group = |is_live| {
        let multicast = Some(FeedMulticast::default());
        Sequencer { multicast, is_live, ..Sequencer::default() }
    };
    let nodes = vec![
        feed("host-1", 12_000.0, member("a", Some("a"))),
        feed("host-2", 20.0, member("b", Some("a"))),
        feed("host-3", 0.0, member("c", None)),
        feed("host-4-with-a-rather-long-name", 150.0, with_group(true)),
        feed("host-5", 150.0, with_group(false)),
    ];
    NetworkModel { nodes }
}

#[test]
fn the_feeds_that_nodes_take_part_in() {
    let model = BusModel { network: Some(feeds()), ..plant() };
    check("feeds.txt", Shown::Bus(&model), &choices(View::Network));
    let text = as_text(Shown::Bus(&model), &choices(View::Bus), 120);
    for wanted in ["FEEDS", "orders at host-1", "leads", "follows a", "no member", "multicast"] {
        assert!(text.contains(wanted), "{wanted}\n{text}");
    }
}

#[test]
fn why_a_host_does_not_take_part_in_a_feed_is_said() {
    let mut network = feeds();
    let now = &mut network.nodes[4].feed.as_mut().unwrap().now;
    now.refused = Some("another host has opened this source".to_owned());
    now.multicast.as_mut().unwrap().problem = Some("no such device".to_owned());
    let now = &mut network.nodes[3].feed.as_mut().unwrap().now;
    now.stopped = Some("the events 3 to 9 of this host are not those of the order".to_owned());
    let model = BusModel { network: Some(network), ..plant() };
    let text = as_text(Shown::Bus(&model), &choices(View::Network), 120);
    for wanted in [
        "node host-5: the order of the feed orders takes no commands of this host: another host has opened this source",
        "node host-5: events of the feed orders go over TCP alone, because multicast fails: no such device",
        "node host-4-with-a-rather-long-name: the events 3 to 9 of this host are not those of the order",
        "stopped ",
    ] {
        assert!(text.contains(wanted), "{wanted}\n{text}");
    }
}

#[test]
fn the_nodes_that_connect_a_bus() {
    let model = BusModel { network: Some(network()), ..plant() };
    check("network.txt", Shown::Bus(&model), &choices(View::Network));
    let mut shortened = model.clone();
    shortened.network.as_mut().unwrap().nodes[0].left_out = 1_204;
    let text = as_text(Shown::Bus(&shortened), &choices(View::Network), 120);
    let note = "node line-3: its notices have no room for 1,204 entries";
    assert!(text.contains(note), "{text}");
    let none = BusModel { network: Some(NetworkModel::default()), ..plant() };
    check("no-network.txt", Shown::Bus(&none), &choices(View::Network));
    let text = as_text(Shown::Bus(&model), &choices(View::Bus), 120);
    for wanted in ["STREAMS SENT", "line-4 stream 1", "◄ crybaby", "node line-3-test: no notice"]
    {
        assert!(text.contains(wanted), "{wanted}\n{text}");
    }
    assert!(!as_text(Shown::Bus(&none), &choices(View::Bus), 120).contains("STREAMS SENT"));
}

fn list() -> ListModel {
    let broken = BusRow {
        name: "broken".to_owned(),
        problem: Some("the header is damaged: the magic number is missing".to_owned()),
        ..BusRow::default()
    };
    let mut idle = plant();
    idle.name = "test-bench-with-a-long-name".to_owned();
    (idle.messages_per_second, idle.bytes_per_second) = (Some(0.0), Some(0.0));
    (idle.unread_share, idle.waited_per_second, idle.lost_messages) = (None, Some(0.0), 0);
    idle.lost_last_minute = 0;
    idle.publishers.as_mut().unwrap()[0].who.state = State::Dead;
    idle.subscribers.as_mut().unwrap()[0].who.state = State::Dead;
    idle.dead = 2;
    ListModel {
        directory: "/dev/shm/toroni".to_owned(),
        time: TIME,
        problem: None,
        buses: vec![broken, BusRow::of(&plant()), BusRow::of(&idle)],
    }
}

#[test]
fn the_list_of_buses() {
    let choices = Choices { selected: 1, ..choices(View::List) };
    check("list.txt", Shown::List(&list()), &choices);
    let gone = ListModel {
        problem: Some("/dev/shm/toroni: permission denied".to_owned()),
        buses: Vec::new(),
        ..list()
    };
    check("no-list.txt", Shown::List(&gone), &choices);
}

/// The chosen row is always on the screen.
#[test]
fn a_long_list_scrolls_with_the_chosen_row() {
    let mut model = list();
    model.buses = (0..50)
        .map(|number| BusRow { name: format!("bus-{number:02}"), ..BusRow::default() })
        .collect();
    for selected in [0, 5, 17, 30, 49, 99] {
        for size in SIZES {
            let choices = Choices { selected, ..choices(View::List) };
            let text = lines(&drawn(Shown::List(&model), &choices, &Theme::new(true), size));
            let wanted = format!("bus-{:02}", selected.min(49));
            assert!(text.contains(&wanted), "{size:?}\n{text}");
        }
    }
}

#[test]
fn without_colors_the_marks_remain() {
    for (is_colored, colors) in [(true, true), (false, false)] {
        let theme = Theme::new(is_colored);
        let buffer = drawn(Shown::Bus(&plant()), &choices(View::Bus), &theme, (80, 24));
        let has_colors =
            buffer.content.iter().any(|cell| (cell.fg, cell.bg) != (Color::Reset, Color::Reset));
        assert_eq!(has_colors, colors);
        let mark = buffer.content.iter().find(|cell| cell.symbol() == "◄").unwrap();
        assert!(mark.modifier.contains(Modifier::BOLD));
    }
}

/// Names are chosen by other processes.
#[test]
fn names_do_not_steer_the_terminal() {
    let mut model = plant();
    let evil = "a\u{1b}[2J\u{202e}b\n";
    model.publishers.as_mut().unwrap()[0].who.name = evil.to_owned();
    model.subscribers.as_mut().unwrap()[0].who.name = evil.to_owned();
    model.topics.as_mut().unwrap().rows[0].topic = evil.to_owned();
    model.losses[0].who = evil.to_owned();
    model.lock.holder = Some(Holder { name: Some(evil.to_owned()), ..Holder::default() });
    model.lock.state = LockState::Held;
    (model.name, model.problem) = (evil.to_owned(), Some(evil.to_owned()));
    model.network = Some(network());
    for view in [View::Bus, View::Topics, View::Losses, View::Network] {
        for size in SIZES {
            let text = lines(&drawn(Shown::Bus(&model), &choices(view), &Theme::new(true), size));
            let steers = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
            assert!(!text.contains(steers), "{text:?}");
        }
    }
}

/// Any size must be drawn, also that of a terminal that is being made smaller.
#[test]
fn every_size_is_drawn() {
    for width in [1, 2, 7, 20, 39, 60, 119, 120, 300] {
        for height in [1, 2, 3, 4, 5, 6, 7, 8, 13, 14, 15, 60] {
            let theme = Theme::new(true);
            for view in [View::Bus, View::Topics, View::Losses, View::Network] {
                let choices = Choices { offset: 1000, ..choices(view) };
                drawn(Shown::Bus(&plant()), &choices, &theme, (width, height));
            }
            let choices = Choices { has_help: true, ..choices(View::List) };
            drawn(Shown::List(&list()), &choices, &theme, (width, height));
        }
    }
}

#[test]
fn a_printed_screen_has_everything_and_no_keys() {
    let text = as_text(Shown::Bus(&plant()), &choices(View::Bus), 120);
    for wanted in ["in the way", "plc-backup", "recorder #9", "rather/long", "lost 12,031"] {
        assert!(text.contains(wanted), "{wanted}\n{text}");
    }
    assert!(!text.contains("quit") && text.ends_with('\n') && !text.ends_with("\n\n"), "{text}");
}
