//! Each key of the schema is read, changes the configuration, and is in the effective one.

use super::super::schema::{
    Default, Key, Kind, OF_NODES, OF_RECEIVERS, OF_SENDERS, Section, sections,
};
use super::super::units::Quantity;
use super::{LEAST, accepted, reading};
use toroni_proto::config::PARAMETERS;

/// One section of each kind, with what any key needs.
const BASE: [(&str, &[&str]); 8] = [
    ("node", &["realm = 'plant'", "key_file = 'k'", "state = 's'"]),
    ("node.bus", &[]),
    (
        "send",
        &[
            "stream = 1",
            "patterns = ['plant/**']",
            "data_rate = '200Mbit/s'",
            "window = '128MiB'",
            "required = ['line-9']",
        ],
    ),
    ("receive", &[]),
    ("listen", &["address = '127.0.0.1:4480'"]),
    ("connect", &["address = '10.0.0.9:4480'"]),
    (
        "sequencer",
        &[
            "feed = 'orders'",
            "members = ['a=10.0.0.1:1']",
            "group = '239.1.2.3'",
            "data_rate = '2Mbit/s'",
            "sync = 'interval'",
            "archive_address = '127.0.0.1:7001'",
            "archive_capacity = '1GiB'",
        ],
    ),
    ("budget", &[]),
];

/// The base with another line for a key of one section.
fn file(section: &Section, key: &str, line: &str) -> String {
    let mut text = String::new();
    for (name, lines) in BASE {
        // The table would stand for the key `bus`.
        if (section.name, key, name) == ("node", "bus", "node.bus") {
            continue;
        }
        let described = sections().into_iter().find(|section| section.name == name).unwrap();
        text.push_str(&format!("{}\n", described.header()));
        let is_other = |line: &&&str| name != section.name || line.split(' ').next() != Some(key);
        for line in lines.iter().filter(is_other) {
            text.push_str(&format!("{line}\n"));
        }
        if name == section.name {
            text.push_str(&format!("{line}\n"));
        }
    }
    text
}

/// A value that is not the default, and agrees with all other defaults.
fn sample(section: &Section, key: &Key) -> String {
    match (section.name, key.name, key.kind) {
        ("node", "realm", _) => return "\"other\"".to_owned(),
        ("node", "key_file", _) => return "\"other.key\"".to_owned(),
        ("send", "policy", _) => return "\"slowest\"".to_owned(),
        ("send", "data_rate", _) => return "\"100Mbit/s\"".to_owned(),
        ("send", "batch_bytes", _) => return "\"1000B\"".to_owned(),
        ("send", "naks_all", _) => return "30000".to_owned(),
        (_, "nak_backoff", _) => return "\"30ms\"".to_owned(),
        (_, "activity", _) => return "\"20s\"".to_owned(),
        (_, "session_max" | "session_min", _) => return "\"1s\"".to_owned(),
        (_, "generation", _) => return "\"400ms\"".to_owned(),
        (_, "ignore", _) => return "\"5ms\"".to_owned(),
        (_, "message_max", _) => return "\"1MiB\"".to_owned(),
        (_, "reorder_memory", _) => return "\"128MiB\"".to_owned(),
        ("node", "receive_memory", _) => return "\"512MiB\"".to_owned(),
        ("sequencer", "heartbeat", _) => return "\"60ms\"".to_owned(),
        ("sequencer", "member", _) => return "\"a\"".to_owned(),
        ("sequencer", "sync", _) => return "\"always\"".to_owned(),
        (_, "window", _) => return "\"96MiB\"".to_owned(),
        ("listen", "replay_rate", _) => return "\"2Gbit/s\"".to_owned(),
        _ => {}
    }
    match key.kind {
        Kind::Text => "'staff'".to_owned(),
        Kind::Segment | Kind::Bus => "'line-4'".to_owned(),
        Kind::Prefix => "'site-a/hall'".to_owned(),
        Kind::Path => "'folder/file'".to_owned(),
        Kind::Quantity(quantity, least, most) => {
            let default = match &key.default {
                Default::Value(text) => quantity.parse(text.trim_matches('"')).unwrap(),
                _ => least,
            };
            let other = if default + 1_000_000 <= most { default + 1_000_000 } else { default - 1 };
            format!("{:?}", quantity.show(other))
        }
        Kind::TimeRange => "'200ms..400ms'".to_owned(),
        Kind::Count(least, most) => (least + 7).min(most).to_string(),
        Kind::Flag => match &key.default {
            Default::Value(text) if text == "true" => "false".to_owned(),
            _ => "true".to_owned(),
        },
        Kind::Choice(words) => {
            let is_default = |word: &&&str| key.default == Default::Value(format!("\"{word}\""));
            format!("{:?}", words.iter().find(|word| !is_default(word)).unwrap())
        }
        Kind::Names => "['line-1', 'line-2']".to_owned(),
        Kind::Patterns => "['plant/boiler/*', 'b']".to_owned(),
        Kind::Address => "'127.0.0.1:7000'".to_owned(),
        Kind::Host => "'line-3:7000'".to_owned(),
        Kind::Hosts => "['line-3:4482', '10.0.0.2:4482']".to_owned(),
        Kind::Addresses => "['10.0.0.2:4479']".to_owned(),
        Kind::Group => "'239.192.1.2:5000'".to_owned(),
        Kind::Datagram(..) => "'1200B'".to_owned(),
        Kind::Join => "'window'".to_owned(),
        Kind::BusPolicy => "'wait:10s'".to_owned(),
        Kind::Members => "['x=10.0.0.7:1', 'y=line-3:1', 'z=[fd00::1]:1']".to_owned(),
    }
}

#[test]
fn each_key_is_accepted_and_changes_something_and_the_effective_file_means_the_same() {
    for section in sections() {
        for key in &section.keys {
            let line = format!("{} = {}", key.name, sample(&section, key));
            let text = file(&section, key.name, &line);
            let node = accepted(&text);
            let base = accepted(&file(&section, "", ""));
            assert_ne!(format!("{node:?}"), format!("{base:?}"), "{line} changes nothing");
            let effective = reading(&text).effective;
            assert!(effective.contains(&format!("\n{} = ", key.name)), "{line}\n{effective}");
            let again = reading(&effective);
            let again = again.node.unwrap_or_else(|| panic!("{effective}\n{:?}", again.findings));
            assert_eq!(format!("{again:?}"), format!("{node:?}"), "{effective}");
        }
    }
}

#[test]
fn the_forms_that_a_value_can_have_are_read() {
    let node = accepted(
        "[node]\nrealm = 'plant'\nbus = 'line'\n[[send]]\nstream = 0\npatterns = ['**']\nto = ['10.0.0.2:4479']\n\
         data_rate = '1.5Gbit/s'\nwindow = '128MiB'\ngeneration = 0\ndatagram = 'mtu'\n[[receive]]\njoin = 7\n",
    );
    assert_eq!(node.bus.name, "line");
    let send = &node.sends[0];
    assert_eq!((send.config.data_rate, send.config.generation_ns), (Some(1_500_000_000), 0));
    assert!(send.fills_mtu && !send.is_gating);
    assert_eq!(node.receives[0].join, super::super::Join::Number(7));
    assert_eq!(node.receives[0].group, crate::host::address::DEFAULT_GROUP);
    let group =
        accepted("[node]\nrealm = 'x'\n[[receive]]\ngroup = 'ff18::5452:4f4e'\n").receives[0].group;
    assert_eq!(group, crate::host::address::DEFAULT_GROUP_IPV6);
    let state = accepted("[node]\nrealm = 'x'\nstate = 'plant'\n[[receive]]\n").state.unwrap();
    assert_eq!(state, std::path::Path::new("/etc/toroni/plant"));
    assert_eq!(accepted(LEAST).sends.len(), 0);
}

#[test]
fn the_file_can_set_every_parameter_of_the_protocol() {
    for parameter in PARAMETERS {
        let lists = [OF_SENDERS, OF_RECEIVERS, OF_NODES];
        assert!(lists.iter().any(|list| list.contains(&parameter.name)), "{}", parameter.name);
    }
    for list in [OF_SENDERS, OF_RECEIVERS, OF_NODES] {
        for name in list {
            assert!(PARAMETERS.iter().any(|parameter| parameter.name == *name), "{name}");
        }
    }
}

#[test]
fn names_and_texts_of_the_schema_are_as_the_documents_need_them() {
    for section in sections() {
        for key in &section.keys {
            assert!(!key.about.ends_with('.'), "{}: {}", section.name, key.name);
            if let Default::Value(text) = &key.default {
                let unit = matches!(key.kind, Kind::Quantity(Quantity::Time | Quantity::Bytes, ..));
                assert!(!unit || text.starts_with('"'), "{text}");
            }
        }
    }
}
