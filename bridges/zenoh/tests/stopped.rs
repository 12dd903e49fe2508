//! A bridge whose process is stopped for longer than Zenoh's lease, again and again.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use common::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use toroni::LostBound;
use toroni_testkit::{Program, wait};
use toroni_zenoh::Config;
use toroni_zenoh::config::{Export, ZenohSource};

const STOPS: usize = 3;
const LEASE: Duration = Duration::from_secs(2);

/// Starts a bridge in a process of its own, with Zenoh's lease made short.
fn start_process(site: &Site, other: &Site, what: &str) -> Program {
    let file = site.directory.join("bridge.toml");
    let text = format!(
        "bus = {{ name = 'default', directory = {directory:?} }}\nheartbeat = '100ms'\nsettle = '300ms'\n\
         [[{what}]]\npatterns = ['**']\n\
         [zenoh]\nlisten = {{ endpoints = ['tcp/127.0.0.1:{port}'] }}\n\
         connect = {{ endpoints = ['tcp/127.0.0.1:{other}'] }}\n\
         scouting = {{ multicast = {{ enabled = false }}, gossip = {{ enabled = false }} }}\n\
         transport = {{ link = {{ tx = {{ lease = {lease} }} }} }}\n",
        directory = site.directory.path(),
        port = site.port,
        other = other.port,
        lease = LEASE.as_millis(),
    );
    let mut bridge = common::start_program(&file, &text);
    bridge.wait_ready();
    bridge
}

fn stop_again_and_again(bridge: &Program) {
    for stop in 1..=STOPS {
        bridge.stop();
        std::thread::sleep(LEASE * 5 / 4);
        bridge.resume();
        let has_renewed = || {
            let errors = bridge.errors();
            errors.matches("the bridge has a new session").count() >= stop
                && errors.matches("state=Active").count() > stop
        };
        assert!(wait::within(wait::LIMIT, has_renewed), "{}", bridge.errors());
    }
}

/// Publishes numbers until `end` is set. Returns how many.
fn publish_until(site: &Site, end: &Arc<AtomicBool>) -> std::thread::JoinHandle<u64> {
    let (bus, end) = (site.bus.clone(), end.clone());
    std::thread::spawn(move || {
        let publisher = bus.publisher("line").unwrap();
        let mut number = 0_u64;
        while !end.load(Ordering::Acquire) {
            publisher.publish(number.to_string()).unwrap();
            number += 1;
            std::thread::sleep(Duration::from_millis(1));
        }
        number
    })
}

/// Publishes numbers from this one on until one arrives, and checks that all before it arrived in order, or were reported.
fn balance(from: &Site, first: u64, subscriber: &mut toroni::Subscriber) {
    let publisher = from.bus.publisher("line").unwrap();
    let (mut after, mut received, mut reported) = (0, 0, 0);
    let mut is_exact = true;
    let mut published = first;
    wait_until("what is published last does not arrive", || {
        publisher.publish(published.to_string()).unwrap();
        published += 1;
        while let Some(got) = next_within(subscriber, Duration::from_millis(100)) {
            match got {
                Got::Message { topic, payload } if topic == "line" => {
                    let number: u64 = payload.parse().unwrap();
                    assert!(number >= after, "{number} came when {after} was next");
                    (after, received) = (number + 1, received + 1);
                }
                Got::Message { .. } => {}
                Got::Lost(lost) => {
                    is_exact &= lost.bound == LostBound::Exact;
                    reported += lost.messages;
                }
            }
        }
        after > first
    });
    let missing = after - received;
    eprintln!("{missing} of {after} messages are missing, {reported} are reported");
    assert!(received > 0 && missing <= reported, "{missing} are missing, {reported} reported");
    assert!(!is_exact || missing == reported, "{missing} are missing, {reported} reported");
}

#[test]
fn a_stopped_importer_opens_new_sessions_and_goes_on() {
    let (a, b) = (Site::new(), Site::new());
    let mut subscriber = b.subscribe("**");
    let bridge = start_process(&b, &a, "import");
    let export = Export { gating: true, ..Export::new(["**"]) };
    // Each connects to the other one: that is where Zenoh adds a connection to one that is gone.
    let _from = a.exporting(export, &[&b]);
    connect(&a, "x", &mut subscriber);
    let end = Arc::new(AtomicBool::new(false));
    let publisher = publish_until(&a, &end);
    stop_again_and_again(&bridge);
    end.store(true, Ordering::Release);
    balance(&a, publisher.join().unwrap(), &mut subscriber);
}

#[test]
fn a_stopped_exporter_continues_its_numbers_in_new_sessions() {
    let (a, b) = (Site::new(), Site::new());
    let mut subscriber = b.subscribe("**");
    let bridge = start_process(&a, &b, "export");
    let _to = start(&Config {
        imports: vec![import(&["**"])],
        zenoh: ZenohSource::Table(zenoh(b.port, &[a.port])),
        ..b.config(&[])
    });
    connect(&a, "x", &mut subscriber);
    let end = Arc::new(AtomicBool::new(false));
    let publisher = publish_until(&a, &end);
    stop_again_and_again(&bridge);
    end.store(true, Ordering::Release);
    balance(&a, publisher.join().unwrap(), &mut subscriber);
    let errors = bridge.errors();
    assert!(errors.matches("the export continues").count() >= STOPS, "{errors}");
}
