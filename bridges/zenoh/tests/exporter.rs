//! What an exporting bridge leaves to its successor, and what importers get that join it.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use common::*;
use toroni_zenoh::Config;
use toroni_zenoh::config::Export;

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
            config.imports.push(toroni_zenoh::config::Import { prefix: prefix.into(), ..import });
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
