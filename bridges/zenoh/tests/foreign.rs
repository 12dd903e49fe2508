//! Programs of Zenoh that are no bridges, and those that send what no bridge sends.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test fails by a panic")]

mod common;

use common::*;
use std::time::Duration;
use toroni::{LostBound, Origin, Subscriber};
use toroni_zenoh::Config;
use toroni_zenoh::attachment::{Attachment, BYTES};
use toroni_zenoh::config::{Congestion, Deletes, Import, Priority};
use zenoh::{Session, Wait};

fn importer() -> (Site, toroni_zenoh::Bridge, Session, Subscriber) {
    let site = Site::new();
    let mut config = site.config(&[]);
    config.imports.push(import(&["**"]));
    config.exports.push(export(&["**"]));
    let bridge = start(&config);
    let peer = peer(&site);
    let mut subscriber = site.subscribe("**");
    connect_peer(&peer, "probe", &mut subscriber);
    (site, bridge, peer, subscriber)
}

#[test]
fn programs_of_zenoh_publish_and_subscribe() {
    let (site, bridge, peer, mut subscriber) = importer();
    let received = peer.declare_subscriber("plant/**").wait().unwrap();
    let before = bridge.counters().unnumbered;
    let put = |payload: &str| {
        peer.put("plant/pump", payload).allowed_destination(zenoh::sample::Locality::Remote)
    };
    put("on").wait().unwrap();
    put("off").attachment("what it likes").wait().unwrap();
    assert_eq!(next(&mut subscriber).text(), "plant/pump=on");
    let message = subscriber.receive().unwrap();
    assert_eq!((message.text().as_ref(), message.origin().is_some()), ("off", true));
    let counters = bridge.counters();
    assert_eq!((counters.unnumbered - before, counters.foreign_attachment), (2, 1));

    wait_until("no connection", || {
        site.publish("plant/probe", "probe");
        received.recv_timeout(Duration::from_millis(100)).unwrap().is_some()
    });
    site.publish("plant/boiler", "351");
    let sample = loop {
        let sample = received.recv().unwrap();
        // What it has published itself does not come back.
        assert_ne!(sample.key_expr().as_str(), "plant/pump");
        if sample.key_expr().as_str() == "plant/boiler" {
            break sample;
        }
    };
    assert_eq!(sample.payload().to_bytes(), &b"351"[..]);
    assert_eq!(*sample.encoding(), zenoh::bytes::Encoding::APPLICATION_OCTET_STREAM);
    let attachment = Attachment::parse(&sample.attachment().unwrap().to_bytes()).unwrap();
    assert_eq!((attachment.hops, attachment.to_descendants, attachment.count), (0, false, 0));
}

/// The settings of an export are those of each sample that leaves it, also when there are too many topics for each to
/// have a publisher of its own in Zenoh.
#[test]
fn an_export_decides_priority_congestion_and_express() {
    use zenoh::qos::{CongestionControl, Priority as Zenohs};
    let site = Site::new();
    let of = |topic: &str, priority, congestion| {
        let mut export = export(&[&format!("{topic}/**")]);
        (export.priority, export.congestion) = (priority, congestion);
        export.express = vec!["*/express/**".to_owned()];
        export
    };
    let exports = vec![
        of("default", Priority::default(), Congestion::default()),
        of("first", Priority::RealTime, Congestion::Block),
        of("last", Priority::Background, Congestion::Drop),
    ];
    let _bridge = start(&Config { exports, ..site.config(&[]) });
    let peer = peer(&site);
    let received = peer.declare_subscriber("**").wait().unwrap();
    let kinds = [
        ("default", Zenohs::Data, CongestionControl::Drop),
        ("first", Zenohs::RealTime, CongestionControl::Block),
        ("last", Zenohs::Background, CongestionControl::Drop),
    ];
    for (name, priority, congestion) in kinds {
        wait_until("no connection", || {
            site.publish(&format!("{name}/probe"), "");
            received.recv_timeout(Duration::from_millis(100)).unwrap().is_some()
        });
        // Zenoh may drop some of a flood, so those of interest are the last.
        let publisher = |topic: String| site.bus.publisher(&topic).unwrap().publish("").unwrap();
        (0..1_100).for_each(|number| _ = publisher(format!("{name}/many/{number}")));
        for (topic, is_express) in [("late", false), ("express/late", true)] {
            let key = format!("{name}/{topic}");
            let mut found = None;
            wait_until("it does not come", || {
                site.publish(&key, "");
                let samples = std::iter::from_fn(|| {
                    received.recv_timeout(Duration::from_millis(100)).unwrap()
                });
                found = samples.filter(|sample| sample.key_expr().as_str() == key).last();
                found.is_some()
            });
            let sample = found.unwrap();
            let seen = (sample.priority(), sample.congestion_control(), sample.express());
            assert_eq!(seen, (priority, congestion, is_express), "{key}");
        }
    }
}

/// What a program that counts as a bridge does first publishes itself.
const OWN: Origin = Origin { source: 7, series: 8, stream: 9, number: 0 };

/// Returns the attachment of a message that such a program publishes, or relays.
fn attachment(origin: Origin, count: u64) -> Attachment {
    Attachment {
        origin,
        count,
        numbering: 77,
        to_descendants: false,
        replayed: false,
        stamped: false,
        hops: u8::from(origin.source != OWN.source),
    }
}

/// Answers importers that join numbering 77: it is that of `OWN`, and so far nothing was sent.
fn answer_joins(peer: &Session) -> zenoh::query::Queryable<()> {
    let Origin { source, series, stream, .. } = OWN;
    let counts = serde_json::json!({
        "bus": "aa", "source": source, "series": series, "stream": stream, "numbering": 77,
        "beat": 0, "begins": 0, "until": 10, "full": true, "topics": {},
    });
    let answer = move |query: zenoh::query::Query| {
        query.reply(query.key_expr(), counts.to_string()).wait().unwrap();
    };
    peer.declare_queryable("@bridge/join/0000004d").callback(answer).wait().unwrap()
}

/// A program that knows the attachment, and answers who joins, is treated as a bridge is: order, duplicates, losses.
#[test]
fn a_program_that_counts_gets_order_and_exact_losses() {
    let (_site, bridge, peer, mut subscriber) = importer();
    let _queryable = answer_joins(&peer);
    let publisher = peer.declare_publisher("counted").wait().unwrap();
    let send = |count: u64| {
        let origin = Origin { number: 10 * count, ..OWN };
        let attachment = attachment(origin, count).to_bytes().to_vec();
        publisher.put(count.to_string()).attachment(attachment).wait().unwrap();
    };
    for count in [0, 1, 1, 3, 2, 4, 0, 8] {
        send(count);
    }
    for expected in ["0", "1", "2", "3", "4"] {
        assert_eq!(next(&mut subscriber).text(), format!("counted={expected}"));
    }
    let Got::Lost(lost) = next(&mut subscriber) else { panic!("5, 6 and 7 are missing") };
    assert_eq!((lost.messages, lost.bound), (3, LostBound::Exact));
    assert_eq!((lost.from.number, lost.until), (41, 80));
    assert_eq!(next(&mut subscriber).text(), "counted=8");
    send(6);
    send(9);
    assert_eq!(next(&mut subscriber).text(), "counted=9");
    let counters = bridge.counters();
    assert_eq!((counters.duplicates, counters.late, counters.lost_messages), (2, 1, 3));
    assert_eq!(counters.reordered, 2, "3 and 8 waited");
}

/// A bridge that comes back asks for what it has missed. An export that neither answers nor sends heartbeats costs an upper
/// bound for each stream that it sends. With the heartbeat alone, the bound is one for all.
#[test]
fn an_export_that_does_not_answer_costs_an_upper_bound() {
    let (site, mut bridge, peer, mut subscriber) = importer();
    let queryable = answer_joins(&peer);
    let others = [1, 2].map(|source| Origin { source, ..OWN });
    let send = |origin: Origin, number: u64, count: u64| {
        let attachment = attachment(Origin { number, ..origin }, count).to_bytes().to_vec();
        let put = peer.put(format!("from/{}", origin.source), number.to_string());
        put.attachment(attachment).wait().unwrap();
    };
    // For three heartbeats and a second the next heartbeat is waited for.
    let restart = |bridge: toroni_zenoh::Bridge, heartbeat, subscriber: &mut Subscriber| {
        bridge.stop();
        let imports = vec![import(&["**"])];
        let bridge = start(&Config { imports, heartbeat, ..site.config(&[]) });
        connect_peer(&peer, "probe", subscriber);
        bridge
    };
    let origins = [OWN, others[0], others[1]];
    for origin in origins {
        send(origin, 10, 0);
        assert_eq!(next(&mut subscriber).text(), format!("from/{}=10", origin.source));
    }
    queryable.undeclare().wait().unwrap();
    bridge = restart(bridge, Duration::from_millis(100), &mut subscriber);
    for (origin, number) in origins.into_iter().zip([14, 15, 16]) {
        send(origin, number, 2);
    }
    for (origin, number) in origins.into_iter().zip([14, 15, 16]) {
        let Got::Lost(lost) = next(&mut subscriber) else { panic!("{origin}") };
        assert_eq!((lost.messages, lost.bound), (number - 11, LostBound::AtMost), "{lost}");
        assert_eq!((lost.from.source, lost.from.number, lost.until), (origin.source, 11, number));
        assert_eq!(next(&mut subscriber).text(), format!("from/{}={number}", origin.source));
    }
    assert_eq!(bridge.counters().lost_messages, 3 + 4 + 5);

    bridge = restart(bridge, LONG, &mut subscriber);
    send(OWN, 30, 5);
    send(others[0], 40, 6);
    let Origin { source, series, stream, .. } = OWN;
    let beat = serde_json::json!({
        "bus": "aa", "source": source, "series": series, "stream": stream, "numbering": 77,
        "beat": 1, "begins": 0, "until": 35, "full": true, "topics": { "from/7": 6, "from/1": 7 },
    });
    let mut got = None;
    wait_until("a heartbeat ends the join", || {
        peer.put("@bridge/beat/aa/0009", beat.to_string()).wait().unwrap();
        got = next_within(&mut subscriber, Duration::from_millis(100));
        got.is_some()
    });
    let Some(Got::Lost(lost)) = got else { panic!("15 to 34, but for 30: {got:?}") };
    assert_eq!((lost.messages, lost.bound), (19, LostBound::AtMost), "{lost}");
    let mut rest = [next(&mut subscriber).text(), next(&mut subscriber).text()];
    rest.sort();
    assert_eq!(rest, ["from/1=40", "from/7=30"]);
    assert_eq!(bridge.counters().lost_messages, 19);
}

/// An export sends a number that is too far ahead, so it is asked, and does not answer. What waited for others by then comes with
/// what is sent meanwhile, also after another such number.
#[test]
fn what_was_held_for_an_export_that_does_not_answer_comes() {
    let site = Site::new();
    let bridge = site.importing(Import { reorder: LONG, ..import(&["**"]) }, &[]);
    let peer = peer(&site);
    let mut subscriber = site.subscribe("**");
    connect_peer(&peer, "probe", &mut subscriber);
    let queryable = answer_joins(&peer);
    let send = |topic: &str, number: u64, count: u64| {
        let attachment = attachment(Origin { number, ..OWN }, count).to_bytes().to_vec();
        peer.put(topic, number.to_string()).attachment(attachment).wait().unwrap();
    };
    send("x", 10, 0);
    assert_eq!(next(&mut subscriber).text(), "x=10");
    queryable.undeclare().wait().unwrap();
    let far = Origin::NUMBER_LIMIT - 2;
    send("x", 12, 2);
    send("y", far, 0);
    wait_until("it is not doubted", || bridge.counters().doubted == 1);
    send("x", 13, 3);
    send("y", far, 0);
    send("x", 14, 4);
    let Got::Lost(lost) = next(&mut subscriber) else { panic!("11 is missing") };
    assert_eq!(lost.bound, LostBound::AtMost, "{lost}");
    for number in 12..15 {
        assert_eq!(next(&mut subscriber).text(), format!("x={number}"));
    }
    assert_eq!(bridge.counters().doubted, 2);
}

/// An importer is away, and comes back. Heartbeats with the numbering of the export name another stream, and the export does not
/// answer. Its own heartbeat ends the join, and what was missed is reported.
#[test]
fn a_heartbeat_that_names_another_stream_hides_nothing_that_was_missed() {
    let (site, bridge, peer, mut subscriber) = importer();
    let queryable = answer_joins(&peer);
    let send = |number: u64, count: u64| {
        let attachment = attachment(Origin { number, ..OWN }, count).to_bytes().to_vec();
        peer.put("x", number.to_string()).attachment(attachment).wait().unwrap();
    };
    send(10, 0);
    assert_eq!(next(&mut subscriber).text(), "x=10");
    queryable.undeclare().wait().unwrap();
    bridge.stop();
    let _bridge = site.importing(import(&["**"]), &[]);
    connect_peer(&peer, "probe", &mut subscriber);
    let Origin { source, series, stream, .. } = OWN;
    let mut beat = serde_json::json!({
        "bus": "aa", "source": source, "series": series, "stream": stream, "numbering": 77,
        "beat": 1, "begins": 0, "until": 35, "full": true, "topics": { "x": 6 },
    });
    let mut put = |series: u32| {
        beat["series"] = series.into();
        peer.put("@bridge/beat/aa/0009", beat.to_string()).wait().unwrap();
    };
    for _ in 0..10 {
        put(series + 1);
        assert_eq!(next_within(&mut subscriber, Duration::from_millis(50)), None);
    }
    send(40, 6);
    let mut got = None;
    wait_until("a heartbeat ends the join", || {
        put(series);
        got = next_within(&mut subscriber, Duration::from_millis(100));
        got.is_some()
    });
    let Some(Got::Lost(lost)) = got else { panic!("11 to 34 may be missing: {got:?}") };
    assert_eq!((lost.messages, lost.bound), (24, LostBound::AtMost), "{lost}");
    assert_eq!(next(&mut subscriber).text(), "x=40");
}

/// A relay whose messages are lost on the way: the test sends what the relay would. An import ends while a message of a
/// relayed stream is missing, and after messages of the relay itself have passed it. The next one asks for it.
#[test]
fn what_a_relay_sent_in_an_open_gap_is_asked_for() {
    let (site, bridge, peer, mut subscriber) = importer();
    bridge.stop();
    let relayed = Origin { source: 1, ..OWN };
    let put = |origin: Origin, number: u64, count: u64| {
        let attachment = attachment(Origin { number, ..origin }, count);
        let put = peer.put(format!("from/{}", origin.source), number.to_string());
        put.attachment(attachment.to_bytes().to_vec()).wait().unwrap();
    };
    let answers = peer.declare_queryable("@bridge/join/*").wait().unwrap();
    // Answers a join with messages and counts. Returns from where on it was to have all.
    let answer = |until: u64, own: u64, others: u64, messages: &[(Origin, u64)]| {
        let query = answers.recv_timeout(LONG).unwrap().unwrap();
        let request: serde_json::Value =
            serde_json::from_slice(&query.payload().unwrap().to_bytes()).unwrap();
        for (origin, number) in messages {
            let origin = Origin { number: *number, ..*origin };
            let attachment = Attachment { replayed: true, ..attachment(origin, 0) };
            query
                .reply(format!("from/{}", origin.source), number.to_string())
                .attachment(attachment.to_bytes().to_vec())
                .wait()
                .unwrap();
        }
        let Origin { source, series, stream, .. } = OWN;
        let counts = serde_json::json!({
            "bus": "aa", "source": source, "series": series, "stream": stream, "numbering": 77,
            "beat": 1, "begins": 0, "until": until, "full": true,
            "topics": { "from/7": own, "from/1": others },
            "replayed": messages.len(), "replayed_from": request["from"],
        });
        query.reply(query.key_expr(), counts.to_string()).wait().unwrap();
        request["from"].as_u64()
    };
    let restart = |reorder, subscriber: &mut Subscriber| {
        let imports = vec![toroni_zenoh::config::Import { reorder, ..import(&["**"]) }];
        let bridge = start(&Config { imports, ..site.config(&[]) });
        connect_peer(&peer, "probe", subscriber);
        bridge
    };
    let bridge = restart(LONG, &mut subscriber);
    put(OWN, 10, 0);
    assert_eq!(answer(11, 1, 0, &[]), None);
    put(relayed, 20, 0);
    // 21 is lost, which has place 12 on the bus of the relay.
    put(OWN, 13, 1);
    put(relayed, 22, 2);
    put(OWN, 15, 2);
    for text in ["from/7=10", "from/1=20", "from/7=13", "from/7=15"] {
        assert_eq!(next(&mut subscriber).text(), text);
    }
    bridge.stop();

    let bridge = restart(Duration::from_millis(20), &mut subscriber);
    put(OWN, 16, 3);
    let messages = [(relayed, 21), (OWN, 13), (relayed, 22), (OWN, 15)];
    let from = answer(16, 3, 3, &messages);
    assert!(from.is_some_and(|from| from <= 12), "it asked from {from:?} on");
    for text in ["from/1=21", "from/1=22", "from/7=16"] {
        assert_eq!(next(&mut subscriber).text(), text);
    }
    assert_eq!(bridge.counters().lost_messages, 0);
}

#[test]
fn any_bytes_are_handled() {
    let (_site, bridge, peer, mut subscriber) = importer();
    let mut seed = 1u64;
    let mut random = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        seed >> 33
    };
    let count = 2_000;
    let keys = ["x", "y/@z", "w/+/v", "@bridge/beat/aa/bb", "@bridge/loss/aa/bb", "@bridge/other"];
    for _ in 0..count {
        let length = (random() % 40) as usize;
        let mut attachment: Vec<u8> = (0..length).map(|_| random() as u8).collect();
        if random() % 2 == 0 {
            attachment.resize(BYTES, 0);
            attachment[22..24].copy_from_slice(b"TZ");
            // Often all that is checked is valid.
            if random() % 2 == 0 {
                attachment[28] &= 5;
                attachment[30..].fill(0);
                attachment[..10].fill((random() % 3) as u8);
                attachment[24..28].fill((random() % 3) as u8);
            }
        }
        let payload: Vec<u8> = (0..random() % 64).map(|_| random() as u8).collect();
        let key = keys[(random() % keys.len() as u64) as usize];
        peer.put(key, payload).attachment(attachment).wait().unwrap();
    }
    peer.put("x", "end").wait().unwrap();
    loop {
        match subscriber.receive_timeout(LONG) {
            Ok(Some(message)) if message.payload() == b"end" => break,
            Ok(Some(_)) | Err(toroni::ReceiveError::Lost(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    let counters = bridge.counters();
    assert!(counters.bad_attachment > 0 && counters.foreign_attachment > 0);
    assert!(counters.not_a_topic > 0 && counters.bad_control > 0, "{counters:?}");
    assert!(!bridge.state().is_over());
}

/// A program that begins a numbering with each message does not make the bridge remember all of them.
#[test]
fn numberings_without_end_are_limited() {
    let site = Site::new();
    let imports = vec![import(&["**"])];
    // Exports that do not answer are waited for until the end of the test.
    let bridge = start(&Config { imports, heartbeat: LONG, ..site.config(&[]) });
    let peer = peer(&site);
    let mut subscriber = site.subscribe("**");
    connect_peer(&peer, "probe", &mut subscriber);
    for number in 0..3_000 {
        let attachment = Attachment { numbering: number, ..attachment(OWN, 0) };
        let put = peer.put("x", "1").attachment(attachment.to_bytes().to_vec());
        put.congestion_control(zenoh::qos::CongestionControl::Block).wait().unwrap();
    }
    peer.put("x", "end").wait().unwrap();
    assert_eq!(next(&mut subscriber).text(), "x=end");
    assert_eq!(bridge.counters().queue_full, 3_000 - 1_024);
}

/// Keys and payloads that the bus cannot take.
#[test]
fn what_no_topic_and_no_message_can_be_is_counted() {
    let (_site, bridge, peer, mut subscriber) = importer();
    peer.put(format!("long/{}", "x".repeat(255)), "key").wait().unwrap();
    peer.put("with+plus", "key").wait().unwrap();
    let block = zenoh::qos::CongestionControl::Block;
    peer.put("x", vec![b'x'; 40 << 20]).congestion_control(block).wait().unwrap();
    peer.put("x", "end").wait().unwrap();
    let Got::Lost(lost) = next(&mut subscriber) else { panic!("40 MiB are too long") };
    assert_eq!((lost.messages, lost.reason), (1, toroni::LostReason::TooLong));
    assert_eq!(next(&mut subscriber).text(), "x=end");
    let counters = bridge.counters();
    assert_eq!((counters.not_a_topic, counters.import_too_long), (2, 1));
}

#[test]
fn deletions_are_left_out_or_become_empty_messages() {
    for deletes in [Deletes::Ignore, Deletes::Empty] {
        let b = Site::new();
        let mut config = b.config(&[]);
        let mut imports = import(&["**"]);
        imports.deletes = deletes;
        config.imports.push(imports);
        let to = start(&config);
        let mut subscriber = b.subscribe("**");
        let peer = peer(&b);
        connect_peer(&peer, "k", &mut subscriber);
        peer.delete("k").wait().unwrap();
        peer.put("k", "value").wait().unwrap();
        if deletes == Deletes::Empty {
            assert_eq!(next(&mut subscriber).text(), "k=");
        }
        assert_eq!(next(&mut subscriber).text(), "k=value");
        assert_eq!(to.counters().deletes, 1);
    }
}
