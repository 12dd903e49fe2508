//! What `sub` prints.

use crate::support::{Buses, json_lines};
use serde_json::json;

fn lines(buses: &Buses, arguments: &[&str]) -> String {
    let mut all = vec!["sub", "--from", "oldest", "--timeout", "0.2"];
    all.extend(arguments);
    buses.succeed(&all)
}

#[test]
fn text_is_topic_tab_payload() {
    let buses = Buses::new();
    buses.run_with_input(&["pub", "plant/boiler"], b"1\n\nthree words here\n");
    assert_eq!(
        lines(&buses, &[]),
        "plant/boiler\t1\nplant/boiler\t\nplant/boiler\tthree words here\n"
    );
    assert_eq!(lines(&buses, &["--payload-only"]), "1\n\nthree words here\n");
}

#[test]
fn hexadecimal_and_raw_are_exact() {
    let buses = Buses::new();
    let bytes: Vec<u8> = (0..=255).collect();
    assert!(buses.run_with_input(&["pub", "t", "--raw"], &bytes).status.success());
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(lines(&buses, &["--format", "hex"]), format!("t\t{hex}\n"));
    let raw = buses.run(&["sub", "--from", "oldest", "--count", "1", "--format", "raw"]);
    assert_eq!(raw.stdout, bytes);
}

#[test]
fn json_has_every_field() {
    let buses = Buses::new();
    buses.run_with_input(&["pub", "t"], b"quote \" and \xc3\xa4\n\xff\x00\n");
    let found = json_lines(lines(&buses, &["--json"]).as_bytes());
    assert_eq!(found.len(), 2);
    assert_eq!(found[0]["topic"], "t");
    assert_eq!(found[0]["payload"], "quote \" and ä");
    assert_eq!(found[0]["length"], 14);
    assert_eq!(found[0]["sequence"], 0);
    assert_eq!(found[1]["payload_hex"], "ff00");
    assert_eq!(found[1]["sequence"], 1);
    assert!(found[1].get("payload").is_none());
    assert!(found[0]["position"].as_u64() < found[1]["position"].as_u64());
    assert_eq!(lines(&buses, &["--json"]), lines(&buses, &["--format", "json"]));
    let bare = json_lines(lines(&buses, &["--json", "--payload-only"]).as_bytes());
    assert_eq!(bare[0].get("topic"), None);
}

#[test]
fn a_position_starts_there() {
    let buses = Buses::new();
    buses.run_with_input(&["pub", "t"], b"a\nb\nc\n");
    let all = json_lines(lines(&buses, &["--json"]).as_bytes());
    let second = all[1]["position"].to_string();
    let output = buses.succeed(&["sub", "--from", &second, "--count", "2", "--payload-only"]);
    assert_eq!(output, "b\nc\n");
    let ahead = buses.run(&["sub", "--from", "1000000000"]);
    assert_eq!(ahead.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&ahead.stderr).contains("beyond the end"));
}

#[test]
fn patterns_choose() {
    let buses = Buses::new();
    for topic in ["plant/boiler/heat", "plant/pump", "plants/x", "office/alarm"] {
        buses.succeed(&["pub", topic, topic]);
    }
    let chosen = lines(&buses, &["plant/**", "*/alarm", "--payload-only"]);
    assert_eq!(chosen, "plant/boiler/heat\nplant/pump\noffice/alarm\n");
    assert_eq!(lines(&buses, &["plant/*", "--payload-only"]), "plant/pump\n");
    let twice = lines(&buses, &["plant/*", "**", "plant/pump", "--payload-only"]);
    assert_eq!(twice.lines().count(), 4, "delivered once, however many patterns match");
    assert!(!buses.run(&["sub", "a//b"]).status.success());
}

#[test]
fn stamps_and_descendants_show() {
    let buses = Buses::new();
    let subscriber = buses.subscribe(&["plant/boiler/*", "--count", "1", "--json"]);
    buses.succeed(&["pub", "plant", "all", "--to-descendants", "--timestamps"]);
    let output = subscriber.finish();
    let found = &json_lines(&output.stdout)[0];
    assert_eq!(found["topic"], "plant");
    assert_eq!(found["to_descendants"], json!(true));
    let stamp = u128::from(found["timestamp_ns"].as_u64().unwrap());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!(now.as_nanos().abs_diff(stamp) < 3_600_000_000_000, "{stamp}");
}

#[test]
fn counts_and_time_outs_set_the_exit_code() {
    let buses = Buses::new();
    buses.succeed(&["pub", "t", "one"]);
    let run = |arguments: &[&str]| buses.run(arguments).status.code();
    assert_eq!(run(&["sub", "--from", "oldest", "--count", "1"]), Some(0));
    assert_eq!(run(&["sub", "--count", "0"]), Some(0));
    assert_eq!(run(&["sub", "--timeout", "0.1"]), Some(0));
    assert_eq!(run(&["sub", "--from", "oldest", "--count", "2", "--timeout", "0.1"]), Some(1));
    assert_eq!(run(&["echo", "--from", "oldest", "--count", "1"]), Some(0));
}
