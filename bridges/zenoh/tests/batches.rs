//! Importers that take batches: the tests of `two_buses` and `network` once more, and what is special to batches.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]
#![allow(clippy::duplicate_mod, reason = "each of the included programs has it")]

mod common;
#[path = "network.rs"]
mod network;
#[path = "two_buses.rs"]
mod two_buses;

use common::*;
use std::time::Duration;
use toroni_zenoh::config::Import;
use zenoh::Wait;

/// Importers of batches and of samples, and a program of Zenoh: each gets every message once.
#[test]
fn each_gets_what_it_takes() {
    let [a, b, c] = [(); 3].map(|()| Site::new());
    let mut config = a.config(&[]);
    config.exports.push(export(&["**"]));
    let from = start(&config);
    let mut config = b.config(&[&a]);
    config.imports.push(import(&["x/**"]));
    let batches = start(&config);
    let mut there = b.subscribe("**");
    connect(&a, "x/probe", &mut there);
    wait_until("nothing takes samples, but they are sent", || {
        let before = from.counters();
        a.publish("x/1", "before");
        until(&mut there, "before");
        let after = from.counters();
        after.exported_batches > before.exported_batches
            && after.exported_samples == before.exported_samples
    });

    let mut config = c.config(&[&a]);
    config.imports.push(Import { batches: false, ..import(&["x/**"]) });
    let samples = start(&config);
    let mut elsewhere = c.subscribe("**");
    connect(&a, "x/probe", &mut elsewhere);
    let table = serde_json::Value::Object(zenoh(free_port(), &[a.port, b.port])).to_string();
    let peer = zenoh::open(zenoh::Config::from_json5(&table).unwrap()).wait().unwrap();
    let received = peer.declare_subscriber("x/**").wait().unwrap();
    wait_until("no connection", || {
        a.publish("x/probe", "probe");
        received.recv_timeout(Duration::from_millis(100)).unwrap().is_some()
    });
    a.publish("x/probe", "begin");
    until(&mut there, "begin");
    until(&mut elsewhere, "begin");
    while received.recv().unwrap().payload().to_bytes() != &b"begin"[..] {}

    let foreign = peer.put("x/foreign", "for importers of samples");
    foreign.allowed_destination(zenoh::sample::Locality::Remote).wait().unwrap();
    let count = 5_000;
    for number in 0..count {
        a.publish(["x/1", "x/2", "y"][number % 3], number.to_string());
    }
    a.publish("x/1", "end");
    let expected: Vec<String> = (0..count)
        .filter(|number| number % 3 < 2)
        .map(|number| format!("{}={number}", ["x/1", "x/2"][number % 3]))
        .collect();
    for subscriber in [&mut there, &mut elsewhere] {
        let got = until(subscriber, "end");
        for (got, expected) in got.iter().zip(&expected) {
            assert_eq!(got.text(), *expected);
        }
        assert_eq!(got.len(), expected.len());
    }
    for expected in &expected {
        let sample = received.recv().unwrap();
        let payload = sample.payload().try_to_string().unwrap().into_owned();
        assert_eq!(format!("{}={payload}", sample.key_expr()), *expected);
    }
    for counters in [batches.counters(), samples.counters()] {
        assert_eq!((counters.lost_messages, counters.duplicates, counters.unnumbered), (0, 0, 0));
    }
    assert_eq!(samples.counters().imported_batches, 0);
    assert!(batches.counters().imported_batches < count as u64, "there are many in one");
}

#[test]
fn any_bytes_are_handled() {
    let site = Site::new();
    let mut config = site.config(&[]);
    config.imports.push(import(&["**"]));
    let bridge = start(&config);
    let table = serde_json::Value::Object(zenoh(free_port(), &[site.port])).to_string();
    let peer = zenoh::open(zenoh::Config::from_json5(&table).unwrap()).wait().unwrap();
    let mut seed = 1_u64;
    let mut random = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        seed.to_be_bytes()[0]
    };
    wait_until("bad batches are counted", || {
        for _ in 0..100 {
            let mut bytes = b"TB\x01\0".to_vec();
            bytes.extend((0..random() % 120).map(|_| random()));
            if bytes.len() >= 52 {
                // Often all that is checked is valid: the attachment, and the lengths.
                bytes[26..28].copy_from_slice(b"TZ");
                bytes[32] &= 5;
                bytes[34..36].fill(0);
                bytes[45..48].fill(0);
                bytes[49..52].fill(0);
            }
            peer.put("@bridge/batch/aa/0001", bytes).wait().unwrap();
        }
        bridge.counters().bad_batch > 1_000
    });
    assert!(!bridge.state().is_over());
}
