//! What an exporting bridge leaves to its successor, and what importers get that join it.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use common::*;
use rustix::process::Signal;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use toroni::{BusConfig, Policy};
use toroni_testkit::Directory;
use toroni_zenoh::Config;
use toroni_zenoh::config::{BusSettings, Export, Import, Priority};

/// Exports, each with a prefix and patterns.
type Exports<'a> = &'a [(&'a str, &'a [&'a str])];

fn exports(of: Exports<'_>) -> Vec<Export> {
    let one = |(prefix, patterns): &(&str, &[&str])| Export {
        prefix: (*prefix).to_owned(),
        ..export(patterns)
    };
    of.iter().map(one).collect()
}

/// Returns how many messages a message or a loss accounts for.
fn messages(got: &Got) -> u64 {
    match got {
        Got::Lost(lost) => lost.messages,
        Got::Message { .. } => 1,
    }
}

/// The configuration is edited while the bridge is away. What was published meanwhile arrives once, on topics that were
/// exported before or are now.
#[test]
fn an_edited_configuration_loses_nothing() {
    let cases: &[(&str, Exports<'_>, Exports<'_>)] = &[
        ("a pattern is added", &[("", &["x", "y"])], &[("", &["x", "y", "z"])]),
        ("a pattern is removed", &[("", &["x", "y", "z"])], &[("", &["x", "y"])]),
        (
            "a pattern moves to another export",
            &[("", &["x", "y"]), ("p", &["z"])],
            &[("", &["x"]), ("p", &["y", "z"])],
        ),
        ("two exports are swapped", &[("", &["x"]), ("", &["y"])], &[("", &["y"]), ("", &["x"])]),
        (
            "two exports with prefixes are swapped",
            &[("", &["x"]), ("p", &["y"])],
            &[("p", &["y"]), ("", &["x"])],
        ),
        ("an export is added before", &[("", &["x", "y"])], &[("p", &["z"]), ("", &["x", "y"])]),
        ("an export is split", &[("", &["x", "y"])], &[("", &["x"]), ("", &["y"])]),
        ("two exports become one", &[("", &["x"]), ("", &["y"])], &[("", &["x", "y"])]),
        ("the prefix is edited", &[("", &["x", "y"])], &[("p", &["x", "y"])]),
    ];
    for (what, before, after) in cases {
        let (a, b) = (Site::new(), Site::new());
        let mut config = b.config(&[]);
        for prefix in ["", "p"] {
            let import = import(&["x", "y", "z"]);
            config.imports.push(Import { prefix: prefix.into(), ..import });
        }
        let to = start(&config);
        let mut subscriber = b.subscribe("**");
        let from = start(&Config { exports: exports(before), ..a.config(&[&b]) });
        connect(&a, "x", &mut subscriber);
        let topics = ["x", "y"];
        let mut expected = Vec::new();
        let mut publish = |tag: &str| {
            // The export of x is busier than the one of y.
            for number in 0..20 {
                let topic = topics[usize::from(number % 5 == 0)];
                a.publish(topic, format!("{tag} {number}"));
                expected.push(format!("{topic}={tag} {number}"));
            }
        };
        publish("before");
        // The importer has met each export.
        let mut got: Vec<_> = (0..20).map(|_| next(&mut subscriber).text()).collect();
        from.stop();
        publish("meanwhile");
        let from = start(&Config { exports: exports(after), ..a.config(&[&b]) });
        publish("after");
        a.publish("x", "end of x");
        a.publish("y", "end of y");
        let mut ends = 0;
        while ends < 2 {
            let text = next(&mut subscriber).text();
            if text.contains("end of") { ends += 1 } else { got.push(text) }
        }
        // Of each topic in order, but topics of several exports are not in one order.
        let of = |all: &[String], topic: &str| -> Vec<String> {
            all.iter().filter(|text| text.starts_with(topic)).cloned().collect()
        };
        for topic in ["x=", "y="] {
            assert_eq!(of(&got, topic), of(&expected, topic), "{what}");
        }
        assert_eq!(got.len(), expected.len(), "{what}: {got:?}");
        let counters = to.counters();
        assert_eq!((counters.lost_messages, counters.duplicates), (0, 0), "{what}");
        drop(from);
    }
}

/// Importers meet an export for the first time while it sends as fast as it can. What came before is not theirs. From
/// the first message on, all arrive.
#[test]
fn an_importer_that_joins_under_load_misses_nothing_unreported() {
    // What is sent with a low priority must not be overtaken by the counts.
    for (batches, priority) in [(true, Priority::Data), (false, Priority::Background)] {
        let a = Site::new();
        let from = a.exporting(Export { priority, ..export(&["**"]) }, &[]);
        let end = Arc::new(AtomicBool::new(false));
        let publisher = {
            let (bus, end) = (a.bus.clone(), end.clone());
            std::thread::spawn(move || {
                let publisher = bus.publisher("x").unwrap();
                for number in 0u64.. {
                    publisher.publish(number.to_string()).unwrap();
                    if number % 64 == 63 {
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    if end.load(Ordering::Relaxed) {
                        publisher.publish("end").unwrap();
                        return number + 1;
                    }
                }
                unreachable!()
            })
        };
        let mut joined = Vec::new();
        for _ in 0..2 {
            let b = Site::new();
            let mut subscriber = b.subscribe("**");
            let bridge = b.importing(Import { batches, ..import(&["**"]) }, &[&a]);
            let Got::Message { payload, .. } = next(&mut subscriber) else { panic!("the first") };
            let first: u64 = payload.parse().unwrap();
            // It reads on, so that its bus does not hold up the others.
            let reader = std::thread::spawn(move || {
                let got = until(&mut subscriber, "end");
                (first, got.iter().map(messages).sum::<u64>() + 1)
            });
            joined.push((reader, bridge, b));
        }
        end.store(true, Ordering::Relaxed);
        let published = publisher.join().unwrap();
        for (reader, bridge, _b) in joined {
            let (first, messages) = reader.join().unwrap();
            assert_eq!(messages, published - first, "{batches}: {:?}", bridge.counters());
        }
        drop(from);
    }
}

/// An importer's bus is full when the export is stopped. The bridge ends when the importer has its last heartbeat, or says
/// that it has not.
#[test]
fn a_bridge_that_ends_says_what_importers_have_not_confirmed() {
    let a = Site::new();
    let b = Site::with(BusConfig::new().capacity(64 << 10).policy(Policy::Wait { limit: None }));
    let _to = b.importing(import(&["**"]), &[]);
    let mut subscriber = b.subscribe("**");
    for (is_full, drain, signals) in [(true, "1s", 1), (false, "60s", 1), (true, "60s", 2)] {
        let file = a.directory.join("bridge.toml");
        let text = format!(
            "bus = {{ name = 'default', directory = {:?} }}\nheartbeat = '100ms'\nsettle = '300ms'\ndrain = '{drain}'\n\
             [[export]]\npatterns = ['**']\n[zenoh]\nlisten = {{ endpoints = ['tcp/127.0.0.1:{}'] }}\n\
             connect = {{ endpoints = ['tcp/127.0.0.1:{}'] }}\n\
             scouting = {{ multicast = {{ enabled = false }}, gossip = {{ enabled = false }} }}\n",
            a.directory.path(),
            a.port,
            b.port
        );
        let mut from = common::start_program(&file, &text);
        from.wait_ready();
        connect(&a, "x", &mut subscriber);
        let count = if is_full { 1000 } else { 10 };
        for number in 0..count {
            a.publish("x", format!("{number:0>500}"));
        }
        a.publish("x", "end");
        from.signal(Signal::TERM);
        if signals == 2 {
            from.wait_for_error("the bridge stops");
            from.signal(Signal::TERM);
        }
        let output = from.finish();
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        if signals == 2 {
            assert!(log.contains("a second signal ended it"), "{log}");
            break;
        }
        assert_eq!(output.status.code(), Some(0));
        let warns = log.contains("importers have not confirmed the last heartbeat");
        assert_eq!(warns, is_full, "{log}");
        let got = until(&mut subscriber, "end");
        assert_eq!(got.iter().map(messages).sum::<u64>(), count);
    }
}

/// What an importer has missed is longer than its queue, and messages come meanwhile. It asks for one part after the
/// other, and its successor continues.
#[test]
fn an_importer_catches_up_in_parts() {
    for batches in [true, false] {
        let (a, b) = (Site::new(), Site::new());
        let from = a.exporting(export(&["**"]), &[]);
        let mut config = b.config(&[&a]);
        config.imports.push(Import { batches, ..import(&["**"]) });
        let to = start(&config);
        let mut subscriber = b.subscribe("**");
        connect(&a, "x", &mut subscriber);
        to.stop();
        let count = 10_000u64;
        for number in 0..count {
            a.publish(["x", "y"][usize::from(number % 3 == 0)], format!("{number:0>1000}"));
        }
        (config.queue.messages, config.queue.bytes) = (400, 400 << 10);
        let before = from.counters().history_queries;
        let to = start(&config);
        wait_until("some arrive", || to.counters().imported_messages > count / 5);
        to.stop();
        let to = start(&config);
        let arrived = std::thread::spawn(move || until(&mut subscriber, "end"));
        let mut later = 0;
        // At least as long as the join takes.
        while from.counters().history_messages < count {
            a.publish("y", format!("{:0>1000}", count + later));
            later += 1;
            std::thread::sleep(Duration::from_millis(2));
        }
        a.publish("x", "between");
        a.publish("y", "end");
        let got = arrived.join().unwrap();
        let lost = to.counters().lost_messages;
        assert_eq!((got.len() as u64, lost), (count + later + 1, 0), "{batches}");
        let parts = from.counters().history_queries - before;
        assert!(parts > 10, "{parts} parts");
        // Of each topic in order.
        for topic in ["x", "y"] {
            let of = |got: &Got| match got {
                Got::Message { topic: of, payload } if of == topic => payload.parse::<u64>().ok(),
                _ => None,
            };
            assert!(got.iter().filter_map(of).is_sorted(), "{topic}");
        }
    }
}

/// Copies the files of a bus, over those that are there.
fn copy_bus(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        let to = to.join(file.file_name());
        match file.file_type().unwrap() {
            kind if kind.is_dir() => copy_bus(&file.path(), &to),
            kind if kind.is_file() => drop(std::fs::copy(file.path(), to).unwrap()),
            // A socket of a process.
            _ => {}
        }
    }
}

/// A bus is replaced by a copy of an earlier time, and then put back in place. What is published afterwards has sequences
/// that were used before, and arrives. Each time, more may be missing of what was there before.
#[test]
fn a_bus_that_has_gone_back_sends_with_new_numbers() {
    let b = Site::new();
    let to = b.importing(import(&["**"]), &[]);
    let mut subscriber = b.subscribe("**");
    let root = Directory::new();
    let [first, copy] = ["first", "copy"].map(|name| root.join(name));
    let open = |directory: &Path| BusConfig::new().directory(directory).open("default").unwrap();
    // Publishes while a bridge exports, and compares what arrives before and after that.
    let mut export_from = |directory: &Path, tag: &str, count: usize, told: &[&str]| {
        let bus = open(directory);
        let from = start(&Config {
            bus: BusSettings { name: "default".to_owned(), directory: Some(directory.to_owned()) },
            source: Some("site-a".to_owned()),
            exports: vec![export(&["**"])],
            ..b.config_at(free_port(), &[b.port])
        });
        let publisher = bus.publisher("x").unwrap();
        let expected: Vec<String> = (0..count).map(|number| format!("{tag} {number}")).collect();
        for text in &expected {
            publisher.publish(text).unwrap();
        }
        publisher.publish(format!("end of {tag}")).unwrap();
        let got = until(&mut subscriber, &format!("end of {tag}"));
        let told = told.iter().map(|text| (*text).to_owned());
        let expected: Vec<_> =
            told.chain(expected.iter().map(|text| format!("x={text}"))).collect();
        assert_eq!(payloads(&got), expected);
        from.stop();
    };
    let [first_path, copy_path] = [&first, &copy].map(|at| open(at).path().to_owned());
    let restart = &["lost 0 restart"];
    export_from(&first, "before the copy", 10, &[]);
    copy_bus(&first_path, &copy_path);
    export_from(&first, "after the copy", 20, &[]);
    export_from(&copy, "from the copy", 5, restart);
    // In place: the file stays the same.
    copy_bus(&copy_path, &first_path);
    export_from(&first, "gone back", 5, restart);
    export_from(&first, "later", 30, &[]);
    assert_eq!((to.counters().lost_messages, to.counters().duplicates), (0, 0));
}

/// A bus is put back in place while no importer is connected. The exporter learns that from the question of an importer that
/// has later messages: the bus ends before them, or has grown beyond them since, or another importer has joined meanwhile,
/// which gets nothing twice.
#[test]
fn a_bus_that_has_gone_back_is_noticed_when_an_importer_asks() {
    for (what, count, is_new_importer_first) in
        [("is shorter", 5, false), ("has grown", 100, false), ("has another importer", 5, true)]
    {
        let [a, b, other] = [(); 3].map(|()| Site::new());
        let copy = Directory::new();
        let (path, copy) = (a.bus.path().to_owned(), copy.join("copy"));
        let exporting = || a.exporting(export(&["**"]), &[]);
        let publish = |tag: &str, count: u32| {
            (0..count).for_each(|number| a.publish("x", format!("{tag} {number}")));
        };
        let from = exporting();
        let to = b.importing(import(&["**"]), &[&a]);
        let mut subscriber = b.subscribe("**");
        connect(&a, "x", &mut subscriber);
        from.stop();
        copy_bus(&path, &copy);
        let from = exporting();
        publish("lost", 50);
        publish("end", 1);
        until(&mut subscriber, "end 0");
        to.stop();
        from.stop();
        copy_bus(&copy, &path);
        let from = exporting();
        let mut others = other.subscribe("**");
        let another = is_new_importer_first.then(|| {
            let to = other.importing(import(&["**"]), &[&a]);
            connect(&a, "x", &mut others);
            to
        });
        publish("back", count);
        let to = b.importing(import(&["**"]), &[&a]);
        let mut got = Vec::new();
        let mut probes = 0;
        wait_until(what, || {
            publish(&format!("probe {probes}"), 1);
            probes += 1;
            got.extend(next_within(&mut subscriber, Duration::from_millis(100)));
            got.last().is_some_and(|got| got.text().starts_with("x=probe"))
        });
        publish("end", 1);
        got.extend(until(&mut subscriber, "end 0"));
        assert_eq!(got[0].text(), "lost 0 restart", "{what}: {got:?}");
        assert!(got[1..].iter().all(|got| matches!(got, Got::Message { .. })), "{what}: {got:?}");
        assert_eq!(to.counters().loss_reports, 1, "{what}");
        // What it misses from now on is sent again with the new numbers.
        to.stop();
        publish("missed", 20);
        let to = b.importing(import(&["**"]), &[&a]);
        publish("end", 1);
        let missed: Vec<_> = (0..20).map(|number| format!("x=missed {number}")).collect();
        assert_eq!(payloads(&until(&mut subscriber, "end 0")), missed, "{what}");
        assert_eq!(to.counters().loss_reports, 0, "{what}");
        if is_new_importer_first {
            let mut got = payloads(&until(&mut others, "end 0"));
            got.extend(payloads(&until(&mut others, "end 0")));
            let restarts = got.iter().filter(|text| *text == "lost 0 restart").count();
            let distinct: std::collections::BTreeSet<_> = got.iter().collect();
            assert_eq!((restarts, distinct.len()), (1, got.len()), "{got:?}");
        }
        drop((from, another));
    }
}
