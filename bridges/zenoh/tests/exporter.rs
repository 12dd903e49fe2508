//! What an exporting bridge leaves to its successor, and what importers get that join it.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use common::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use toroni_zenoh::Config;
use toroni_zenoh::config::{Export, Import};

/// Exports, each with a prefix and patterns.
fn exports(of: &[(&str, &[&str])]) -> Vec<Export> {
    let one = |(prefix, patterns): &(&str, &[&str])| Export {
        prefix: (*prefix).to_owned(),
        ..export(patterns)
    };
    of.iter().map(one).collect()
}

/// The configuration is edited while the bridge is away. What was published meanwhile arrives once, on topics that were
/// exported before or are now.
#[test]
fn an_edited_configuration_loses_nothing() {
    let cases: &[(&str, &[(&str, &[&str])], &[(&str, &[&str])])] = &[
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
        from.stop();
        publish("meanwhile");
        let from = start(&Config { exports: exports(after), ..a.config(&[&b]) });
        publish("after");
        a.publish("x", "end of x");
        a.publish("y", "end of y");
        let mut got = Vec::new();
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
    for batches in [true, false] {
        let a = Site::new();
        let from = a.exporting(export(&["**"]), &[]);
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
        for _ in 0..4 {
            let b = Site::new();
            let mut subscriber = b.subscribe("**");
            let bridge = b.importing(Import { batches, ..import(&["**"]) }, &[&a]);
            let Got::Message { payload, .. } = next(&mut subscriber) else { panic!("the first") };
            let first: u64 = payload.parse().unwrap();
            // It reads on, so that its bus does not hold up the others.
            let reader = std::thread::spawn(move || {
                let lost = |got: &Got| match got {
                    Got::Lost(lost) => lost.messages,
                    Got::Message { .. } => 0,
                };
                let got = until(&mut subscriber, "end");
                let reported: u64 = got.iter().map(lost).sum();
                let messages = got.iter().filter(|got| matches!(got, Got::Message { .. })).count();
                (first, messages as u64 + 1, reported)
            });
            joined.push((reader, b, bridge));
        }
        end.store(true, Ordering::Relaxed);
        let published = publisher.join().unwrap();
        for (reader, ..) in joined {
            let (first, messages, reported) = reader.join().unwrap();
            assert_eq!(messages + reported, published - first, "{batches}: {reported} reported");
        }
        drop(from);
    }
}
