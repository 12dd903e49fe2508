//! What an importer does with messages that its bus does not take: nothing of them vanishes silently.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use common::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use toroni::{BusConfig, Limit, LostBound, LostReason, Origin, Policy, StreamKey};
use toroni_zenoh::Bridge;
use toroni_zenoh::attachment::Attachment;
use toroni_zenoh::config::Import;
use zenoh::Wait;

fn expected(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|number| format!("x={number}")).collect()
}

/// The importer's bus waits for a subscriber that reads nothing. The bridge ends nevertheless, and its successor brings all
/// that it has left.
#[test]
fn an_import_that_ends_while_its_bus_is_full_settles_nothing_that_it_has_not_published() {
    let full = Site::with(BusConfig::new().capacity(64 << 10).policy(Policy::Wait { limit: None }));
    let Pair { a, b, from, to, mut subscriber } = Pair::of(Site::new(), full);
    let before = to.counters();
    send(&a, &from, 3_000);
    let heard = from.counters().heartbeats_sent;
    wait_until("heartbeats follow", || from.counters().heartbeats_sent >= heard + 3);
    let mut imported = before.imported_messages;
    wait_until("the bus is full", || {
        let last = std::mem::replace(&mut imported, to.counters().imported_messages);
        std::thread::sleep(Duration::from_millis(100));
        imported > before.imported_messages && imported == last
    });
    let began = Instant::now();
    to.stop();
    assert!(began.elapsed() < LONG / 2, "it waits for the bus: {:?}", began.elapsed());
    let to = std::thread::scope(|scope| {
        let started = scope.spawn(|| b.importing(import(&["**"]), &[&a]));
        a.publish("x", "end");
        assert_eq!(payloads(&until(&mut subscriber, "end")), expected(0..3_000));
        started.join().unwrap()
    });
    assert_eq!(to.counters().lost_messages, 0);
}

/// Another program keeps the bus for itself for a while. What comes meanwhile waits.
#[test]
fn messages_wait_for_an_exclusive_publisher() {
    let Pair { a, b, from, to, mut subscriber } = Pair::new();
    let exclusive = b.bus.exclusive().unwrap();
    send(&a, &from, 100);
    let heard = from.counters().heartbeats_sent;
    wait_until("heartbeats follow", || from.counters().heartbeats_sent >= heard + 3);
    assert!(next_within(&mut subscriber, Duration::from_millis(100)).is_none());
    drop(exclusive);
    a.publish("x", "end");
    assert_eq!(payloads(&until(&mut subscriber, "end")), expected(0..100));
    let counters = to.counters();
    assert_eq!((counters.lost_messages, counters.import_failed), (0, 0));
}

/// Late subscribers of the importer's bus have the newest message of each topic that arrived, as far as it has room for values.
#[test]
fn an_import_retains_what_arrives() {
    let config = BusConfig::new().capacity(64 << 10).policy(Policy::Overwrite);
    let (a, b) = (Site::new(), Site::with(config.retained_topics(3).retained_bytes(4 << 10)));
    let retaining = Import { retain: true, under: "a".to_owned(), ..Import::new(["**"]) };
    let to = b.importing(retaining, &[]);
    let _from = a.exporting(export(&["**"]), &[&b]);
    let mut subscriber = b.subscribe("**");
    connect(&a, "x", &mut subscriber);
    // A program that is no bridge.
    let peer = peer(&b);
    connect_peer(&peer, "w", &mut subscriber);
    let exclusive = b.bus.exclusive().unwrap();
    a.publish("y", "1");
    std::thread::sleep(Duration::from_millis(300));
    drop(exclusive);
    assert_eq!(next(&mut subscriber).text(), "a/y=1");
    a.publish("z", "2");
    assert_eq!(next(&mut subscriber).text(), "a/z=2");
    assert_eq!(to.counters().unretained, 1);
    (0..200).for_each(|_| b.publish("noise", [7; 1_000]));
    let mut late = b.bus.subscriber().pattern("a/**").retained(true).build().unwrap();
    let got: Vec<_> = (0..3).map(|_| next(&mut late).text()).collect();
    assert_eq!(got, ["a/x=connected", "a/w=connected", "a/y=1"]);
    assert!(late.is_current() && late.try_receive().unwrap().is_none());
}

/// Publishes as many numbers from 0 on, and waits until the bridge has sent them.
fn send(site: &Site, from: &Bridge, count: u64) {
    let sent = from.counters().exported_messages;
    for number in 0..count {
        site.publish("x", number.to_string());
    }
    wait_until("all is sent", || from.counters().exported_messages >= sent + count);
}

/// Returns the stream of the next message.
fn stream_of_next(subscriber: &mut toroni::Subscriber) -> StreamKey {
    let Origin { source, series, stream, .. } = subscriber.receive().unwrap().origin().unwrap();
    StreamKey { source, series, stream }
}

/// Another inlet has the stream, as that of a bridge that hangs. When it ends, everything that the bus does not have comes.
#[test]
fn what_is_refused_is_asked_for_again() {
    let Pair { a, b, from, to, mut subscriber } = Pair::new();
    a.publish("x", "first");
    let stream = stream_of_next(&mut subscriber);
    to.stop();
    let rival = b.bus.inlet().unwrap();
    rival.claim(stream, Limit::Policy).unwrap();
    let to = b.importing(import(&["**"]), &[&a]);
    wait_until("it is refused", || to.counters().taken == 1);
    send(&a, &from, 100);
    let heard = to.counters().heartbeats_received;
    wait_until("heartbeats follow", || to.counters().heartbeats_received >= heard + 3);
    drop(rival);
    a.publish("x", "end");
    assert_eq!(payloads(&until(&mut subscriber, "end")), expected(0..100));
    let counters = to.counters();
    assert_eq!((counters.taken, counters.lost_messages), (1, 0), "it stood by once");
}

/// Two realms of one bus import different topics of one export. The second stands by, and takes over when the first ends.
#[test]
fn a_second_realm_takes_over_when_the_first_one_ends() {
    let (a, b) = (Site::new(), Site::new());
    let _from = a.exporting(export(&["**"]), &[]);
    let mut subscriber = b.subscribe("**");
    let realm = |realm: &str, topics: &str, port| {
        let mut config = b.config_at(port, &[a.port]);
        config.realm = realm.to_owned();
        config.imports.push(import(&[topics]));
        start(&config)
    };
    let first = realm("first", "other/**", b.port);
    connect(&a, "other/a", &mut subscriber);
    let second = realm("second", "x/**", free_port());
    wait_until("it is refused", || second.counters().taken == 1);
    first.stop();
    connect(&a, "x", &mut subscriber);
    a.publish("x", "0");
    assert_eq!(next(&mut subscriber).text(), "x=0");
    assert_eq!(second.counters().lost_messages, 0);
}

/// A relay brings a stream among others that another inlet brings. The others arrive. What that inlet has not brought when it
/// ends is reported.
#[test]
fn what_is_refused_of_a_relayed_stream_is_reported() {
    let [a, middle, end] = [(); 3].map(|()| Site::new());
    let _source = a.exporting(export(&["**"]), &[]);
    let mut config = middle.config(&[&a]);
    config.exports.push(relay(&["**"]));
    config.imports.push(import(&["**"]));
    let _relay = start(&config);
    let to = end.importing(import(&["**"]), &[&middle]);
    let mut subscriber = end.subscribe("**");
    connect(&a, "x", &mut subscriber);
    a.publish("x", "first");
    let stream = stream_of_next(&mut subscriber);
    to.stop();
    let rival = end.bus.inlet().unwrap();
    rival.claim(stream, Limit::Policy).unwrap();
    let to = end.importing(import(&["**"]), &[&middle]);
    connect(&middle, "own", &mut subscriber);
    let mut there = middle.subscribe("x");
    for number in 0..5 {
        a.publish("x", number.to_string());
    }
    until(&mut there, "4");
    middle.publish("own", "after");
    assert_eq!(until(&mut subscriber, "after"), []);
    drop(rival);
    let Got::Lost(lost) = next(&mut subscriber) else { panic!("no loss") };
    assert_eq!((lost.messages, lost.bound), (5, LostBound::AtMost), "{lost}");
    a.publish("x", "5");
    assert_eq!(next(&mut subscriber).text(), "x=5");
    assert_eq!(to.counters().taken, 1);
}

/// Returns what an open end says.
fn open_end(got: &Got) -> Option<LostReason> {
    let Got::Lost(lost) = got else { return None };
    let is_open = (lost.messages, lost.bound) == (0, LostBound::AtLeast);
    (is_open && lost.until == lost.from.number).then_some(lost.reason)
}

/// The bus of the exporter is made again, with messages that no bridge has sent.
#[test]
fn another_series_of_a_sender_begins_after_an_open_end() {
    for is_restarted in [false, true] {
        let (a, b) = (Site::new(), Site::new());
        let exporting = |site: &Site| {
            let mut config = site.config_at(a.port, &[]);
            config.source = Some("site-a".to_owned());
            config.exports.push(export(&["**"]));
            start(&config)
        };
        let from = exporting(&a);
        let mut to = Some(b.importing(import(&["**"]), &[&a]));
        let mut subscriber = b.subscribe("**");
        connect(&a, "x", &mut subscriber);
        if is_restarted {
            to = None;
        }
        from.stop();
        for number in 0..10 {
            a.publish("x", number.to_string());
        }
        let again = Site::new();
        let _from = exporting(&again);
        if is_restarted {
            to = Some(b.importing(import(&["**"]), &[&a]));
        }
        let mut got = Vec::new();
        wait_until("no connection", || {
            again.publish("x", "probe");
            got.extend(next_within(&mut subscriber, Duration::from_millis(100)));
            got.last().is_some_and(|got| got.text() == "x=probe")
        });
        again.publish("x", "end");
        got.extend(until(&mut subscriber, "end"));
        assert_eq!(open_end(&got[0]), Some(LostReason::Restart), "{got:?}");
        assert!(got[1..].iter().all(|got| got.text() == "x=probe"), "{got:?}");
        assert_eq!(to.unwrap().counters().loss_reports, 1);
    }
}

/// An exporter is cut off and ends, and does not come back for a while: once while the importer lives, and once while it is restarted. Programs
/// that are no bridges count nothing, so nothing is known to be missing of them.
#[test]
fn a_silent_sender_has_an_open_end_once() {
    let silent = |is_restarted: bool| {
        let (a, b) = (Site::new(), Site::new());
        let from = a.exporting(export(&["**"]), &[]);
        let plain = || Import { batches: false, ..import(&["**"]) };
        let mut to = b.importing(plain(), &[&a]);
        let mut subscriber = b.subscribe("**");
        connect(&a, "x", &mut subscriber);
        let peer = peer(&b);
        connect_peer(&peer, "foreign", &mut subscriber);
        // Nothing says that it has sent all.
        from.session().close().wait().unwrap();
        from.stop();
        if is_restarted {
            to.stop();
            to = b.importing(plain(), &[&a]);
        }
        let got = next(&mut subscriber);
        assert_eq!(open_end(&got), Some(LostReason::Silent), "{got:?}");
        assert!(next_within(&mut subscriber, Duration::from_secs(3)).is_none());
        a.publish("x", "0");
        let _from = a.exporting(export(&["**"]), &[&b]);
        assert_eq!(next(&mut subscriber).text(), "x=0");
        assert_eq!((to.counters().loss_reports, to.counters().taken), (1, 0));
    };
    std::thread::scope(|scope| {
        scope.spawn(|| silent(false));
        scope.spawn(|| silent(true));
    });
}

/// Opens a session of a program that is no bridge. It is connected as soon as a bridge that names the port starts.
fn listening_peer() -> (u16, zenoh::Session) {
    let port = free_port();
    let table = serde_json::Value::Object(zenoh(port, &[])).to_string();
    (port, zenoh::open(zenoh::Config::from_json5(&table).unwrap()).wait().unwrap())
}

/// Publishes until a program of Zenoh hears it, and returns what the export attached.
fn genuine(site: &Site, listener: &zenoh::Session) -> Attachment {
    let samples = listener.declare_subscriber("x").wait().unwrap();
    let mut sample = None;
    wait_until("no connection", || {
        site.publish("x", "probe");
        sample = samples.recv_timeout(Duration::from_millis(100)).unwrap();
        sample.is_some()
    });
    Attachment::parse(&sample.unwrap().attachment().unwrap().to_bytes()).unwrap()
}

/// A program of Zenoh sends a message and a heartbeat whose numbers are far ahead. Neither silences the sender, nor hides what
/// it sends while the importer is away.
#[test]
fn forged_numbers_are_not_believed() {
    let Pair { a, b, from: _from, to, mut subscriber } = Pair::new();
    let listener = peer(&a);
    let beats = listener.declare_subscriber("@bridge/beat/*/*").wait().unwrap();
    let genuine = genuine(&a, &listener);
    let beat = beats.recv().unwrap();
    let forger = peer(&b);
    // The way is open, and what comes by it is not doubted.
    connect_peer(&forger, "foreign", &mut subscriber);
    let far = Origin { number: Origin::NUMBER_LIMIT - 2, ..genuine.origin };
    let forged = [
        Attachment { origin: far, numbering: genuine.numbering ^ 1, count: 0, ..genuine },
        Attachment { origin: far, ..genuine },
        Attachment { count: far.number, ..genuine },
    ];
    for (at, attachment) in forged.into_iter().enumerate() {
        forger.put("x", "forged").attachment(attachment.to_bytes().to_vec()).wait().unwrap();
        wait_until("it is not doubted", || to.counters().doubted > at as u64);
    }
    let mut table: serde_json::Value = serde_json::from_slice(&beat.payload().to_bytes()).unwrap();
    table["until"] = far.number.into();
    wait_until("it is not doubted", || {
        // Heartbeats do not count while the sender is asked because of the messages.
        forger.put(beat.key_expr(), table.to_string()).wait().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        to.counters().doubted > 3
    });
    a.publish("x", "begin");
    assert!(until(&mut subscriber, "begin").iter().all(|got| got.text() == "x=probe"));
    for number in 0..50 {
        a.publish("x", number.to_string());
    }
    a.publish("x", "middle");
    assert_eq!(payloads(&until(&mut subscriber, "middle")), expected(0..50));
    to.stop();
    for number in 0..50 {
        a.publish("x", number.to_string());
    }
    let to = b.importing(import(&["**"]), &[&a]);
    a.publish("x", "end");
    assert_eq!(payloads(&until(&mut subscriber, "end")), expected(0..50));
    assert_eq!(to.counters().lost_messages, 0);
}

/// A program of Zenoh invents a numbering, with which it sends messages of exports that the importer has not met yet. No export
/// confirms it, so nothing of it arrives, and the exports are joined as if there had been none.
#[test]
fn a_numbering_that_no_export_confirms_is_set_aside() {
    let (a, b) = (Site::new(), Site::new());
    let from = a.exporting(export(&["**"]), &[]);
    let listener = peer(&a);
    let genuine = genuine(&a, &listener);
    from.stop();
    let to = b.importing(import(&["**"]), &[]);
    let mut subscriber = b.subscribe("**");
    let forger = peer(&b);
    connect_peer(&forger, "foreign", &mut subscriber);
    let Origin { source, series, stream, number } = genuine.origin;
    let forge = |number: u64, numbering: u32| {
        let origin = Origin { number, ..genuine.origin };
        let forged = Attachment { origin, numbering, count: 0, ..genuine };
        forger.put("x", "forged").attachment(forged.to_bytes().to_vec()).wait().unwrap();
    };
    for (at, number) in (0..).zip([Origin::NUMBER_LIMIT - 2, number + 1]) {
        forge(number, genuine.numbering ^ 1);
        wait_until("it is believed", || {
            assert_eq!(next_within(&mut subscriber, Duration::from_millis(20)), None);
            to.counters().doubted > at
        });
    }
    // A heartbeat is as easily invented.
    let numbering = genuine.numbering ^ 2;
    let beat = serde_json::json!({
        "bus": "aa", "source": source, "series": series, "stream": stream, "numbering": numbering,
        "beat": 1, "begins": 0, "until": number, "full": true, "topics": {},
    });
    for number in number..number + 20 {
        forge(number, numbering);
        forger.put("@bridge/beat/aa/0009", beat.to_string()).wait().unwrap();
        assert_eq!(next_within(&mut subscriber, Duration::from_millis(50)), None);
    }
    forger.close().wait().unwrap();
    let from = a.exporting(export(&["**"]), &[&b]);
    connect(&a, "x", &mut subscriber);
    send(&a, &from, 50);
    a.publish("x", "end");
    assert_eq!(payloads(&until(&mut subscriber, "end")), expected(0..50));
    assert_eq!(to.counters().loss_reports, 0);
}

/// An importer is away while messages are published. When it is back, the first that it gets with the numbering of the export is
/// a message that names another stream. What was published comes nevertheless.
#[test]
fn a_stream_that_a_stranger_names_hides_nothing_that_was_missed() {
    let (a, b) = (Site::new(), Site::new());
    let mut config = a.config(&[]);
    config.exports.push(export(&["**"]));
    // None comes while the test runs: a heartbeat would say whose the numbering is.
    config.heartbeat = Duration::from_secs(3600);
    let _from = start(&config);
    let listener = peer(&a);
    let genuine = genuine(&a, &listener);
    let (port, forger) = listening_peer();
    let mut config = b.config_at(b.port, &[a.port, port]);
    config.imports.push(import(&["**"]));
    let to = start(&config);
    let mut subscriber = b.subscribe("**");
    connect(&a, "x", &mut subscriber);
    to.stop();
    for number in 0..50 {
        a.publish("x", number.to_string());
    }
    let origin = Origin { series: genuine.origin.series ^ 1, ..genuine.origin };
    let forged = Attachment { origin, count: 0, ..genuine }.to_bytes().to_vec();
    let is_over = AtomicBool::new(false);
    let got = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                forger.put("y", "forged").attachment(forged.clone()).wait().unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let _to = start(&config);
        // It comes once the numbering is joined.
        let mut got = until(&mut subscriber, "forged");
        is_over.store(true, Ordering::Relaxed);
        a.publish("x", "end");
        got.extend(until(&mut subscriber, "end"));
        got
    });
    assert_eq!(payloads(&got), expected(0..50));
}

/// A program of Zenoh sends a message whose number the sender has not reached yet, as that of a virtual machine which was reverted
/// while it ran. The next heartbeat shows that, and the sender begins a new series.
#[test]
fn a_number_that_the_sender_has_not_reached_is_noticed_by_its_heartbeat() {
    let Pair { a, b, from, to, mut subscriber } = Pair::new();
    let listener = peer(&a);
    let genuine = genuine(&a, &listener);
    let forger = peer(&b);
    connect_peer(&forger, "foreign", &mut subscriber);
    let origin = Origin { number: genuine.origin.number + 100_000, ..genuine.origin };
    let forged = Attachment { origin, count: 0, ..genuine };
    forger.put("y", "forged").attachment(forged.to_bytes().to_vec()).wait().unwrap();
    assert!(until(&mut subscriber, "forged").iter().all(|got| got.text() == "x=probe"));
    let mut got = Vec::new();
    wait_until("the sender stays silenced", || {
        a.publish("x", "probe");
        got.extend(next_within(&mut subscriber, Duration::from_millis(100)));
        got.last().is_some_and(|got| got.text() == "x=probe")
    });
    send(&a, &from, 50);
    a.publish("x", "end");
    got.extend(until(&mut subscriber, "end"));
    got.retain(|got| got.text() != "x=probe");
    // Until then, each genuine message is reported as lost.
    let losses = got.iter().take_while(|got| matches!(got, Got::Lost(_))).count();
    assert_eq!(open_end(&got[losses - 1]), Some(LostReason::Restart), "{got:?}");
    assert_eq!(payloads(&got[losses..]), expected(0..50));
    // Each heartbeat counts that comes before the sender answers.
    assert!(to.counters().doubted >= 1);
}

/// As before, while the sender sends, and once with a number that is not believed after it. Each message arrives, or is counted
/// in a report before the next one.
#[test]
fn what_a_sender_sends_around_a_new_series_arrives_or_is_counted() {
    for is_doubted in [false, true] {
        let Pair { a, b, from: _from, to: _to, mut subscriber } = Pair::new();
        let listener = peer(&a);
        let samples = listener.declare_subscriber("x").wait().unwrap();
        let forger = peer(&b);
        connect_peer(&forger, "foreign", &mut subscriber);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0.. {
                    a.publish("x", number.to_string());
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    std::thread::sleep(Duration::from_micros(50));
                }
                a.publish("x", "end");
            });
            let mut last = None;
            for round in 0..4 {
                let mut genuine = None;
                wait_until("no new series", || {
                    let sample = samples.drain().last().or_else(|| samples.recv().ok()).unwrap();
                    genuine = Attachment::parse(&sample.attachment().unwrap().to_bytes()).ok();
                    genuine.is_some_and(|genuine| last != Some(genuine.origin.series))
                });
                let genuine = genuine.unwrap();
                last = Some(genuine.origin.series);
                // What follows the last one is sent in the last series.
                let most = if round < 3 { 1 + usize::from(is_doubted) } else { 0 };
                for ahead in [100_000, 1 << 40].into_iter().take(most) {
                    let number = genuine.origin.number + ahead;
                    let origin = Origin { number, ..genuine.origin };
                    let forged = Attachment { origin, count: 0, ..genuine };
                    forger
                        .put("y", "forged")
                        .attachment(forged.to_bytes().to_vec())
                        .wait()
                        .unwrap();
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let (mut next, mut missing, mut reported) = (0, 0, 0);
        for got in until(&mut subscriber, "end") {
            match got {
                Got::Lost(lost) => reported += lost.messages,
                Got::Message { topic, payload } if topic == "x" => {
                    let Ok(number) = payload.parse::<u64>() else { continue };
                    assert!(number >= next, "{number} comes after {next}");
                    missing += number - next;
                    next = number + 1;
                    assert!(
                        missing <= reported,
                        "before {number}, {missing} are missing, and {reported} are reported"
                    );
                }
                Got::Message { .. } => {}
            }
        }
    }
}

/// An export continues at an old heartbeat, so it sends again what the importer has. A stranger's question makes it begin a new
/// series meanwhile. Nothing comes twice.
#[test]
fn a_series_that_begins_while_much_is_sent_again_doubles_nothing() {
    let (a, b) = (Site::new(), Site::new());
    let _to = b.importing(import(&["**"]), &[]);
    let (port, stranger) = listening_peer();
    let mut config = a.config_at(a.port, &[b.port, port]);
    config.exports.push(export(&["**"]));
    let from = start(&config);
    let mut subscriber = b.subscribe("**");
    connect(&a, "x", &mut subscriber);
    let beats = stranger.declare_subscriber("@bridge/beat/*/*").wait().unwrap();
    let beat = beats.recv().unwrap().payload().to_bytes().into_owned();
    let key = format!("@bridge/join/{:08x}", genuine(&a, &stranger).numbering);
    for number in 0..10_000 {
        a.publish("x", number.to_string());
    }
    a.publish("x", "middle");
    until(&mut subscriber, "middle");
    let witnesses = stranger.declare_queryable("@bridge/witness/*/*");
    let answer = move |query: zenoh::query::Query| {
        _ = query.reply(query.key_expr().as_str().replace('*', "0"), beat.clone()).wait();
    };
    let witnesses = witnesses.callback(answer).wait().unwrap();
    from.stop();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let question =
                serde_json::json!({ "has": 1_u64 << 40, "newest": false, "patterns": [] });
            while !is_over.load(Ordering::Relaxed) {
                let get = stranger.get(&key).payload(question.to_string());
                let any = zenoh::query::ReplyKeyExpr::Any;
                _ = get.accept_replies(any).wait().unwrap().recv();
            }
        });
        let _from = start(&config);
        drop(witnesses);
        let mut got = Vec::new();
        wait_until("no new series", || {
            a.publish("x", "probe");
            got.extend(next_within(&mut subscriber, Duration::from_millis(100)));
            got.iter().any(|got| open_end(got).is_some())
        });
        is_over.store(true, Ordering::Relaxed);
        got.extend(until(&mut subscriber, "probe"));
        got.retain(|got| got.text() != "x=probe" && open_end(got).is_none());
        assert_eq!(got, []);
    });
}

/// Imports with one prefix share what an export sends, and what it sends again: each gets its topics, and what is posted to
/// descendants of a topic above both comes under both.
#[test]
fn imports_with_one_prefix_share_what_comes() {
    let (a, b) = (Site::new(), Site::new());
    let _from = a.exporting(export(&["**"]), &[]);
    let importing = || {
        let mut config = b.config(&[&a]);
        for (pattern, under) in [("plant/a/c", "x"), ("plant/b", "y"), ("plant/a", "z")] {
            config.imports.push(Import { under: under.to_owned(), ..import(&[pattern]) });
        }
        start(&config)
    };
    let mut to = Some(importing());
    let topics = ["x/plant/a/c", "y/plant/b", "z/plant/a"];
    let mut subscribers = topics.map(|topic| b.subscribe(topic));
    for (topic, subscriber) in topics.iter().zip(&mut subscribers) {
        connect(&a, &topic[2..], subscriber);
    }
    for round in 0..2 {
        if round == 1 {
            to = None;
        }
        for (at, topic) in topics.iter().enumerate() {
            a.publish(&topic[2..], at.to_string());
        }
        a.bus.publisher("plant").unwrap().to_descendants(true).publish("all").unwrap();
        if round == 1 {
            to = Some(importing());
        }
        for (at, (topic, subscriber)) in topics.iter().zip(&mut subscribers).enumerate() {
            assert_eq!(next(subscriber).text(), format!("{topic}={at}"));
            assert_eq!(next(subscriber).text(), format!("{}/plant=all", &topic[..1]));
        }
    }
    assert_eq!(to.unwrap().counters().lost_messages, 0);
}

#[test]
fn imports_of_batches_and_of_samples_have_prefixes_of_their_own() {
    let mut config = Site::new().config(&[]);
    let batches = |pattern: &str, batches| Import { batches, ..Import::new([pattern]) };
    config.imports = vec![batches("a", true), batches("b", false)];
    let error = toroni_zenoh::check_config(&config).unwrap_err().to_string();
    assert!(error.starts_with("import 2: batches: import 1 has the same prefix"), "{error}");
    config.imports[1].prefix = "site".to_owned();
    toroni_zenoh::check_config(&config).unwrap();
}

/// The last messages of several topics are missing. One heartbeat shows all of them, and each is reported.
#[test]
fn what_is_missing_last_is_reported_for_each_topic() {
    // Batches would bring the messages: no wildcard of Zenoh matches their topics.
    let Pair { a, b: _b, from: _from, to, mut subscriber } = Pair::new();
    for round in 1..=3 {
        for topic in 0..6 {
            a.publish(&format!("@{topic}/x"), "missing");
        }
        // All of them were published before it.
        a.publish("x", "after");
        let mut lost = 0;
        while lost < 6 {
            if let Got::Lost(report) = next(&mut subscriber) {
                assert_eq!(report.bound, LostBound::Exact, "{report}");
                lost += report.messages;
            }
        }
        assert_eq!((lost, to.counters().lost_messages), (6, 6 * round));
    }
}
