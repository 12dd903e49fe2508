//! Several bridges: loops, relays, history, restarts, hand-over.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use common::*;
use std::collections::HashMap;
use std::time::Duration;
use toroni::{BusConfig, Limit, Lost, LostBound, LostReason, Policy, Publisher, Subscriber};
use toroni_zenoh::config::{Export, Import};
use toroni_zenoh::{Bridge, State};
use zenoh::Wait;

/// Three bridges that all export, import and relay everything: each message arrives once, everywhere.
#[test]
fn a_triangle_of_relays_delivers_once() {
    let sites = [Site::new(), Site::new(), Site::new()];
    let [a, b, c] = &sites;
    let mut bridges = Vec::new();
    for (site, others) in [(a, vec![]), (b, vec![a]), (c, vec![a, b])] {
        let mut config = site.config(&others);
        config.exports.push(relay(&["**"]));
        config.imports.push(import(&["**"]));
        bridges.push(start(&config));
    }
    let mut subscribers = [a, b, c].map(|site| site.subscribe("**"));
    for (from, site) in sites.iter().enumerate() {
        for to in (0..3).filter(|to| *to != from) {
            let topic = format!("from/{from}");
            let publisher = site.bus.publisher(&topic).unwrap();
            let probe = format!("probe {from} {to}");
            wait_until("no connection", || {
                publisher.publish(&probe).unwrap();
                let deadline = Duration::from_millis(50);
                std::iter::from_fn(|| next_within(&mut subscribers[to], deadline))
                    .any(|got| matches!(got, Got::Message { payload, .. } if payload == probe))
            });
        }
    }
    let count = 2_000;
    for number in 0..count {
        for (from, site) in sites.iter().enumerate() {
            site.publish(&format!("from/{from}"), format!("{number}"));
        }
    }
    for (from, site) in sites.iter().enumerate() {
        site.publish(&format!("from/{from}"), "end");
    }
    for subscriber in &mut subscribers {
        let mut next_of = HashMap::new();
        let mut ended = 0;
        while ended < 3 {
            match next(subscriber) {
                Got::Message { payload, .. } if payload == "end" => ended += 1,
                Got::Message { payload, .. } if payload.starts_with("probe") => {}
                Got::Message { topic, payload } => {
                    let next = next_of.entry(topic).or_insert(0);
                    assert_eq!(payload, next.to_string());
                    *next += 1;
                }
                Got::Lost(lost) => panic!("{lost}"),
            }
        }
        assert_eq!(next_of.values().copied().collect::<Vec<_>>(), [count; 3]);
    }
    let all = |count: fn(&toroni_zenoh::Counters) -> u64| -> u64 {
        bridges.iter().map(|bridge| count(&bridge.counters())).sum()
    };
    wait_until("relays come back", || all(|counters| counters.own_source) >= 3 * count);
    wait_until("copies come", || all(|counters| counters.duplicates) >= 3 * count);
    assert_eq!(all(|counters| counters.lost_messages), 0);
}

/// A line: the middle one relays. Its hops are limited at the end.
#[test]
fn a_relay_forwards_what_came_from_elsewhere_with_its_origin_and_its_losses() {
    let [a, b, c] = [(); 3].map(|()| Site::new());
    // Two networks: the middle bus has two bridges, of different realms.
    let _a = a.exporting(export(&["**"]), &[]);
    let mut config = b.config(&[&a]);
    config.imports.push(import(&["**"]));
    config.realm = "left".to_owned();
    let left = start(&config);
    let port = free_port();
    let mut config = b.config_at(port, &[]);
    config.exports.push(relay(&["**"]));
    config.realm = "right".to_owned();
    let right = start(&config);
    let mut config = c.config_at(c.port, &[port]);
    config.imports.push(import(&["**"]));
    let to = start(&config);

    let (mut middle, mut end) = (b.subscribe("**"), c.subscribe("**"));
    connect(&a, "x", &mut middle);
    connect(&b, "y", &mut end);
    a.publish("x", "1");
    // Too long for bridges: lost on the way to the middle, which relays the report.
    a.publish("x", vec![0; (16 << 20) + 1]);
    a.publish("x", "2");
    let got = until(&mut end, "2");
    let expected = ["x=1", "lost 1 gone"];
    assert_eq!(payloads(&got)[got.len() - 2..], expected, "{got:?}");
    let (origin_b, origin_c) = {
        a.publish("x", "3");
        until(&mut middle, "2");
        let at_b = middle.receive().unwrap().origin().unwrap();
        (at_b, end.receive().unwrap().origin().unwrap())
    };
    assert_eq!(origin_b, origin_c);
    assert_eq!((left.state(), right.state()), (State::Active, State::Active));
    assert!(right.counters().relayed_messages >= 3);
    assert_eq!(right.counters().relayed_losses, 1);
    assert_eq!(to.counters().lost_messages, 1);
}

#[test]
fn a_message_that_has_passed_too_many_bridges_is_left_out() {
    let [a, b, c] = [(); 3].map(|()| Site::new());
    let _a = a.exporting(export(&["**"]), &[]);
    let mut config = b.config(&[&a]);
    config.exports.push(relay(&["**"]));
    config.imports.push(import(&["**"]));
    let _b = start(&config);
    let mut config = c.config(&[&b]);
    config.imports.push(import(&["**"]));
    config.hops = 1;
    let to = start(&config);
    let (mut middle, mut end) = (b.subscribe("**"), c.subscribe("**"));
    connect(&a, "x", &mut middle);
    connect(&b, "y", &mut end);
    a.publish("x", "far");
    until(&mut middle, "far");
    b.publish("y", "near");
    let got = until(&mut end, "near");
    assert!(got.is_empty(), "{got:?}");
    wait_until("it was not relayed", || to.counters().too_many_hops > 0);
}

#[test]
fn who_joins_late_gets_the_newest_value_of_each_topic() {
    let (a, b) = (Site::new(), Site::new());
    for number in 0..10 {
        a.publish("plant/pump", format!("{number}"));
        a.publish("plant/boiler", format!("{}", 10 * number));
        a.publish("elsewhere", "not imported");
    }
    let mut exports = export(&["**"]);
    exports.history = true;
    let from = a.exporting(exports, &[]);
    let mut subscriber = b.subscribe("**");
    let mut imports = import(&["plant/**"]);
    imports.history = true;
    let to = b.importing(imports.clone(), &[&a]);
    assert_eq!(next(&mut subscriber).text(), "plant/pump=9");
    assert_eq!(next(&mut subscriber).text(), "plant/boiler=90");
    a.publish("plant/pump", "10");
    assert_eq!(next(&mut subscriber).text(), "plant/pump=10");
    assert_eq!((from.counters().history_messages, to.counters().lost_messages), (2, 0));
    // A bridge that comes back does not bring them again.
    to.stop();
    let to = b.importing(imports, &[&a]);
    a.publish("plant/pump", "11");
    assert_eq!(next(&mut subscriber).text(), "plant/pump=11");
    assert_eq!(to.counters().lost_messages, 0);
}

/// A bus with values of which the ring has no messages any more, with later ones, and with some that were cleared. Returns what
/// is answered for `plant/**`, in order.
fn retained() -> (Site, Vec<&'static str>) {
    let config = BusConfig::new().capacity(64 << 10).policy(Policy::Overwrite).timestamps(true);
    let a = Site::with(config.retained_topics(8).retained_bytes(8 << 10));
    let declare = |topic: &str| a.bus.publisher(topic).unwrap().retained().unwrap();
    let [boiler, pump, valve, lamp, _long] =
        ["boiler", "pump", "valve", "lamp", "long"].map(|name| declare(&format!("plant/{name}")));
    let publish = |publisher: &Publisher, text: &str| _ = publisher.publish(text).unwrap();
    for (publisher, text) in [(&boiler, "350"), (&pump, "on"), (&valve, "open"), (&lamp, "on")] {
        publish(publisher, text);
    }
    valve.clear(Limit::Policy).unwrap();
    a.publish("plant/plain", "overwritten");
    // A publisher that knows nothing of values.
    a.publish("plant/long", vec![7; 3_000]);
    (0..200).for_each(|_| a.publish("noise", [7; 1_000]));
    a.publish("plant/plain", "in the ring");
    publish(&boiler, "351");
    publish(&lamp, "off");
    lamp.clear(Limit::Policy).unwrap();
    (a, vec!["plant/pump=on", "plant/plain=in the ring", "plant/boiler=351"])
}

#[test]
fn who_joins_late_gets_the_values_of_retained_topics_that_the_ring_no_longer_has() {
    let ((a, expected), b) = (retained(), Site::new());
    let from = a.exporting(Export { history: true, ..export(&["**"]) }, &[]);
    let mut subscriber = b.subscribe("**");
    let imports = Import { history: true, ..import(&["plant/**"]) };
    let to = b.importing(imports.clone(), &[&a]);
    let got: Vec<_> = expected.iter().map(|_| next(&mut subscriber).text()).collect();
    assert_eq!(got, expected);
    a.publish("plant/boiler", "352");
    assert_eq!(next(&mut subscriber).text(), "plant/boiler=352");
    assert_eq!(from.counters().history_messages, expected.len() as u64);
    to.stop();
    let to = b.importing(imports, &[&a]);
    a.publish("plant/pump", "off");
    assert_eq!(next(&mut subscriber).text(), "plant/pump=off");
    assert_eq!(to.counters().lost_messages, 0);
}

#[test]
fn programs_of_zenoh_get_the_values_of_retained_topics() {
    let (a, expected) = retained();
    let _bridge = a.exporting(Export { history: true, ..export(&["plant/**"]) }, &[]);
    let peer = peer(&a);
    let ask = |key: &str| -> Vec<String> {
        let replies = peer.get(key).consolidation(zenoh::query::ConsolidationMode::None);
        let replies = replies.wait().unwrap();
        std::iter::from_fn(|| replies.recv().ok())
            .map(|reply| {
                let sample = reply.into_result().unwrap();
                assert!(sample.timestamp().is_some(), "{sample:?}");
                format!("{}={}", sample.key_expr(), sample.payload().try_to_string().unwrap())
            })
            .collect()
    };
    wait_until("no connection", || !ask("plant/*").is_empty());
    assert_eq!(ask("plant/**"), expected);
    assert_eq!(ask("plant/pump"), ["plant/pump=on"]);
    for none in ["plant/valve", "plant/lamp", "plant/long", "plant/never"] {
        assert!(ask(none).is_empty(), "{none}");
    }
    a.publish("plant/pump", "off");
    assert_eq!(ask("plant/pump"), ["plant/pump=off"]);
}

#[test]
fn programs_of_zenoh_ask_for_history() {
    // This bus keeps no values.
    let a = Site::with(BusConfig::new().retained_topics(0));
    for number in 0..5 {
        a.publish("plant/pump", format!("{number}"));
    }
    a.publish("plant/boiler", "351");
    let mut exports = export(&["plant/**"]);
    (exports.history, exports.prefix) = (true, "site".to_owned());
    exports.encoding.insert("plant/boiler".to_owned(), "text/plain".to_owned());
    let bridge = a.exporting(exports, &[]);
    let peer = peer(&a);
    let ask = |selector: &str| -> Vec<String> {
        let replies = peer.get(selector).consolidation(zenoh::query::ConsolidationMode::None);
        let replies = replies.wait().unwrap();
        let mut all = Vec::new();
        while let Ok(reply) = replies.recv() {
            match reply.into_result() {
                Ok(sample) => all.push(format!(
                    "{}={} {}",
                    sample.key_expr(),
                    String::from_utf8_lossy(&sample.payload().to_bytes()),
                    sample.encoding()
                )),
                Err(error) => {
                    all.push(String::from_utf8_lossy(&error.payload().to_bytes()).into_owned());
                }
            }
        }
        all
    };
    wait_until("no connection", || !ask("site/plant/*").is_empty());
    let octets = "application/octet-stream";
    let newest =
        [format!("site/plant/pump=4 {octets}"), "site/plant/boiler=351 text/plain".to_owned()];
    assert_eq!(ask("site/plant/**"), newest);
    assert_eq!(ask("site/plant/pump"), newest[..1]);
    let since = ["site/plant/pump=3", "site/plant/pump=4"].map(|text| format!("{text} {octets}"));
    assert_eq!(ask("site/plant/pump?from=3"), since);
    assert_eq!(ask("site/plant/pump?from=oldest").len(), 5);
    assert!(ask("site/plant/pump?from=yesterday")[0].contains("no sequence"));
    assert!(bridge.counters().history_queries >= 5);
}

/// An exporting bridge is stopped and started again while messages are published: nothing is lost or doubled.
#[test]
fn an_export_that_was_restarted_continues() {
    let Pair { a, b: _b, mut from, to, mut subscriber } = Pair::new();
    let mut number = 0;
    let mut publish = || {
        for _ in 0..500 {
            a.publish(["x", "y"][number % 2], format!("{number}"));
            number += 1;
        }
    };
    for _ in 0..3 {
        publish();
        from.stop();
        publish();
        from = a.exporting(export(&["**"]), &[]);
        publish();
    }
    a.publish("x", "end");
    let mut next_of = HashMap::from([("x".to_owned(), 0), ("y".to_owned(), 1)]);
    for got in until(&mut subscriber, "end") {
        let Got::Message { topic, payload } = got else { panic!("{got:?}") };
        let next = next_of.get_mut(&topic).unwrap();
        assert_eq!(payload, next.to_string());
        *next += 2;
    }
    assert_eq!((next_of["x"], next_of["y"]), (4500, 4501));
    assert_eq!(to.counters().lost_messages, 0);
    drop(from);
}

/// An importing bridge is away while messages are published. When it is back, it gets what it has missed.
#[test]
fn an_import_that_was_restarted_gets_what_it_has_missed() {
    let Pair { a, b, from: _from, mut to, mut subscriber } = Pair::new();
    for round in 0..3 {
        a.publish("x", "1");
        a.publish("y", "2");
        assert_eq!(next(&mut subscriber).text(), "x=1");
        assert_eq!(next(&mut subscriber).text(), "y=2");
        to.stop();
        for number in 0..1000 {
            a.publish(["x", "y"][number % 2], format!("{round} {number}"));
        }
        to = b.importing(import(&["**"]), &[&a]);
        a.publish("x", "end");
        let got = until(&mut subscriber, "end");
        let expected: Vec<_> = (0..1000)
            .map(|number| format!("{}={round} {number}", ["x", "y"][number % 2]))
            .collect();
        assert_eq!(payloads(&got), expected);
        assert_eq!(to.counters().lost_messages, 0);
    }
}

/// As before, but the ring of the source no longer has all.
#[test]
fn what_the_source_no_longer_has_is_reported() {
    let a = Site::with(toroni::BusConfig::new().capacity(64 << 10));
    let Pair { a, b, from, to, mut subscriber } = Pair::of(a, Site::new());
    to.stop();
    let count = 2_000;
    for number in 0..count {
        a.publish("x", format!("{number:0>200}"));
    }
    let exported = from.counters().exported_messages;
    let _to = b.importing(import(&["**"]), &[&a]);
    a.publish("x", "end");
    let got = until(&mut subscriber, "end");
    let Some(Got::Lost(lost)) = got.first() else { panic!("{got:?}") };
    assert_eq!((lost.bound, lost.reason), (LostBound::AtMost, LostReason::Restart));
    assert_eq!(lost.messages + got.len() as u64 - 1, count, "{exported}");
    let last = payloads(&got).pop().unwrap();
    assert_eq!(last, format!("x={:0>200}", count - 1));
}

/// The middle bus relays two others and says nothing itself. Its heartbeats name the place from which on who comes back is
/// sent what it has missed: messages, and a report of a loss, of which only the number of messages can be sent again.
#[test]
fn what_a_relay_sent_while_an_import_was_away_arrives() {
    let [a, b, middle, end] = [(); 4].map(|()| Site::new());
    let _sources = [&a, &b].map(|site| site.exporting(export(&["**"]), &[]));
    let mut config = middle.config(&[&a, &b]);
    config.exports.push(relay(&["**"]));
    config.imports.push(import(&["**"]));
    let relay = start(&config);
    let mut to = end.importing(import(&["**"]), &[&middle]);
    let mut subscriber = end.subscribe("**");
    let sources = [(&a, "a"), (&b, "b")];
    for (source, topic) in sources {
        connect(source, topic, &mut subscriber);
    }
    for round in 0..3 {
        let heard = to.counters().heartbeats_received;
        wait_until("heartbeats", || to.counters().heartbeats_received > heard + 2);
        to.stop();
        let (relayed, losses) =
            (relay.counters().relayed_messages, relay.counters().relayed_losses);
        for (source, topic) in sources {
            for number in 0..5 {
                source.publish(topic, number.to_string());
            }
        }
        let lost = u64::from(round == 1);
        if lost > 0 {
            // Too long for bridges.
            a.publish("a", vec![0; (16 << 20) + 1]);
        }
        wait_until("the relay sends", || {
            let counters = relay.counters();
            counters.relayed_messages >= relayed + 10 && counters.relayed_losses >= losses + lost
        });
        to = end.importing(import(&["**"]), &[&middle]);
        let mut got = Vec::new();
        for (source, topic) in sources {
            source.publish(topic, "next");
            got.extend(until(&mut subscriber, "next"));
        }
        let lost: Vec<_> = got
            .iter()
            .filter_map(|got| match got {
                Got::Lost(lost) => Some((lost.messages, lost.bound)),
                Got::Message { .. } => None,
            })
            .collect();
        let expected: &[_] = if round == 1 { &[(1, LostBound::AtMost)] } else { &[] };
        assert_eq!(lost, expected, "round {round}");
        for (_, topic) in sources {
            let of_topic: Vec<_> = payloads(&got)
                .into_iter()
                .filter(|text| text.starts_with(&format!("{topic}=")))
                .collect();
            let expected: Vec<_> = (0..5).map(|number| format!("{topic}={number}")).collect();
            assert_eq!(of_topic, expected, "round {round}");
        }
    }
}

/// An importing bridge ends while it waits for an earlier message. What it has published meanwhile is above the mark, so the
/// next one gets it again, and the message that was missing as well.
#[test]
fn an_import_that_ends_during_a_gap_delivers_once() {
    let Pair { a, b, from: _from, mut to, mut subscriber } = Pair::new();
    to.stop();
    // Batches would bring the message that is to be missing.
    let import = || Import { batches: false, ..import(&["**"]) };
    to = b.importing(Import { reorder: LONG, ..import() }, &[&a]);
    connect(&a, "x", &mut subscriber);
    // No wildcard of Zenoh matches it, so only a heartbeat shows it.
    a.publish("@missing/y", "missing");
    let heard = to.counters().heartbeats_received;
    // On a busy machine, some that are older are still on their way.
    wait_until("heartbeats", || to.counters().heartbeats_received > heard + 20);
    for number in 0..100 {
        a.publish("x", number.to_string());
    }
    a.publish("x", "before");
    assert_eq!(until(&mut subscriber, "before").len(), 100);
    to.stop();
    to = b.importing(import(), &[&a]);
    a.publish("x", "after");
    assert_eq!(payloads(&until(&mut subscriber, "after")), ["@missing/y=missing"]);
    let counters = to.counters();
    assert_eq!(counters.lost_messages, 0);
    assert!(counters.duplicates >= 101, "the mark was not behind: {counters:?}");
}

/// Zenoh drops a message, messages of other topics follow it, and the importing bridge ends before a heartbeat shows that
/// it is missing.
struct Hole {
    a: Site,
    b: Site,
    _from: Bridge,
    /// `None` while no importer runs.
    to: Option<Bridge>,
    subscriber: Subscriber,
}

/// Batches would bring the message that is to be missing: no wildcard of Zenoh matches its topic.
const MISSING: &str = "@missing/y";

impl Hole {
    fn import() -> Import {
        Import { batches: false, ..import(&["**"]) }
    }

    fn new() -> Self {
        Self::on(Site::new())
    }

    fn on(b: Site) -> Self {
        let a = Site::new();
        let mut config = a.config(&[]);
        config.exports.push(export(&["**"]));
        // None comes while the test runs. The answer of a join has the counts, too.
        config.heartbeat = Duration::from_secs(3600);
        let from = start(&config);
        let to = Some(b.importing(Self::import(), &[&a]));
        let mut subscriber = b.subscribe("**");
        connect(&a, "x", &mut subscriber);
        let mut hole = Self { a, b, _from: from, to, subscriber };
        hole.drop_one("missing");
        hole
    }

    /// A message is dropped, and others that are sent after it pass.
    fn drop_one(&mut self, text: &str) {
        self.a.publish(MISSING, text);
        for number in 0..100 {
            self.a.publish("x", number.to_string());
        }
        for number in 0..100 {
            assert_eq!(next(&mut self.subscriber).text(), format!("x={number}"));
        }
    }

    /// Ends the importer.
    fn end(&mut self) {
        self.to.take().unwrap().stop();
    }

    /// Ends the importer if one runs, and starts another one.
    fn restart(&mut self) {
        if let Some(running) = self.to.take() {
            running.stop();
        }
        self.to = Some(self.b.importing(Self::import(), &[&self.a]));
    }

    /// Publishes until something comes at the end of the importer's join. Returns what came before the messages that this
    /// published, and between them.
    fn meet(&mut self) -> Vec<Got> {
        let mut all = Vec::new();
        wait_until("no connection", || {
            self.a.publish("x", "meet");
            while let Some(got) = next_within(&mut self.subscriber, Duration::from_millis(100)) {
                all.push(got);
            }
            all.iter().any(|got| got.text() == "x=meet")
        });
        self.a.publish("x", "met");
        all.extend(until(&mut self.subscriber, "met"));
        all.retain(|got| got.text() != "x=meet");
        all
    }

    /// Returns the only loss that was reported, if nothing else came.
    fn only_loss(&mut self) -> Lost {
        let got = self.meet();
        let [Got::Lost(lost)] = &got[..] else { panic!("{got:?}") };
        lost.clone()
    }
}

#[test]
fn what_was_dropped_unnoticed_before_an_import_ended_is_reported() {
    let mut hole = Hole::new();
    hole.restart();
    let lost = hole.only_loss();
    assert_eq!((lost.messages, lost.bound), (1, LostBound::Exact), "{lost}");
    assert!(lost.scope.iter().any(|scope| scope.matches(MISSING)), "{lost}");
    let counters = hole.to.unwrap().counters();
    assert_eq!(counters.lost_messages, 1);
    assert!(counters.duplicates >= 100, "it was asked for nothing again: {counters:?}");
}

/// As before, and once more, and then again without a loss.
#[test]
fn what_was_dropped_unnoticed_is_reported_once_whenever_imports_end() {
    let mut hole = Hole::new();
    // The first successor ends at once.
    hole.restart();
    hole.restart();
    assert_eq!(hole.only_loss().messages, 1);
    hole.drop_one("missing, too");
    hole.drop_one("and a third one");
    hole.restart();
    let lost = hole.only_loss();
    assert_eq!((lost.messages, lost.bound), (2, LostBound::Exact), "{lost}");
    for _ in 0..2 {
        hole.restart();
        let got = hole.meet();
        assert!(got.is_empty(), "{got:?}");
    }
}

/// The bus of the importer has overwritten what arrived meanwhile, so which messages were missing is no longer known.
#[test]
fn what_was_dropped_unnoticed_is_bounded_if_the_ring_was_overwritten() {
    let b = Site::with(toroni::BusConfig::new().capacity(64 << 10));
    let mut hole = Hole::on(b);
    hole.end();
    let filler = vec![0; 1000];
    for _ in 0..200 {
        hole.b.publish("local", &filler);
        assert!(matches!(next(&mut hole.subscriber), Got::Message { .. }));
    }
    hole.restart();
    let lost = hole.only_loss();
    assert_eq!(lost.bound, LostBound::AtMost, "{lost}");
    assert!((1..=120).contains(&lost.messages), "{lost}");
    assert!(lost.scope.iter().any(|scope| scope.matches(MISSING)), "{lost}");
}

/// The source no longer has what was dropped, but the newer messages.
#[test]
fn what_was_dropped_unnoticed_is_bounded_if_the_source_no_longer_has_it() {
    let mut hole = Hole::new();
    hole.end();
    let filler = vec![0; 1 << 20];
    for _ in 0..80 {
        hole.a.publish("x", &filler);
    }
    hole.restart();
    let got = hole.meet();
    let lost: Vec<_> = got
        .iter()
        .filter_map(|got| if let Got::Lost(lost) = got { Some(lost) } else { None })
        .collect();
    let [lost] = &lost[..] else { panic!("{lost:?}") };
    assert_eq!(lost.bound, LostBound::AtMost);
    // What had arrived is not counted again.
    assert_eq!(lost.messages + got.len() as u64 - 1, 81, "{lost}");
}

/// A second bridge of the importing bus takes over.
#[test]
fn what_was_dropped_unnoticed_is_reported_by_a_second_bridge() {
    let mut hole = Hole::new();
    let mut second = hole.b.config_at(free_port(), &[hole.a.port, hole.b.port]);
    second.imports.push(Hole::import());
    let standby = Bridge::start(&second).unwrap();
    assert_eq!(standby.wait_for(&State::StandBy, LONG), State::StandBy);
    hole.drop_one("missing, too");
    hole.end();
    assert_eq!(standby.wait_for(&State::Active, LONG), State::Active);
    hole.to = Some(standby);
    let lost = hole.only_loss();
    assert_eq!((lost.messages, lost.bound), (2, LostBound::Exact), "{lost}");
}

/// The message that is dropped is one that a relay sends, and later ones of its source pass it.
#[test]
fn what_a_relay_dropped_unnoticed_is_reported() {
    let [a, middle, end] = [(); 3].map(|()| Site::new());
    let _source = a.exporting(export(&["**", "@missing/**"]), &[]);
    let mut config = middle.config(&[&a]);
    config.exports.push(relay(&["**"]));
    // The relay gets what is dropped after it.
    config.imports.push(import(&["**", "@missing/y"]));
    config.heartbeat = Duration::from_secs(3600);
    let relay = start(&config);
    let mut to = end.importing(Hole::import(), &[&middle]);
    let mut subscriber = end.subscribe("**");
    // A message of its own says whose the relay is.
    connect(&middle, "own", &mut subscriber);
    connect(&a, "x", &mut subscriber);
    for round in 0..2 {
        let sent = relay.counters().relayed_messages;
        a.publish(MISSING, "missing");
        for number in 0..100 {
            a.publish("x", number.to_string());
        }
        wait_until("it is sent", || relay.counters().relayed_messages >= sent + 101);
        for number in 0..100 {
            assert_eq!(next(&mut subscriber).text(), format!("x={number}"));
        }
        to.stop();
        to = end.importing(Hole::import(), &[&middle]);
        let mut got = Vec::new();
        wait_until("no connection", || {
            middle.publish("own", "meet");
            while let Some(more) = next_within(&mut subscriber, Duration::from_millis(100)) {
                got.push(more);
            }
            got.iter().any(|got| got.text() == "own=meet")
        });
        a.publish("x", "met");
        got.extend(until(&mut subscriber, "met"));
        got.retain(|got| got.text() != "own=meet");
        let [Got::Lost(lost)] = &got[..] else { panic!("round {round}: {got:?}") };
        assert_eq!((lost.messages, lost.bound), (1, LostBound::Exact), "{lost}");
    }
}

/// Between two heartbeats of a relay, the mark of its own stream stays. An import that is restarted asks from there, and
/// gets messages again that are on its bus.
#[test]
fn an_import_of_a_relay_that_was_restarted_delivers_once() {
    let [a, middle, end] = [(); 3].map(|()| Site::new());
    let _source = a.exporting(export(&["**"]), &[]);
    let mut config = middle.config(&[&a]);
    config.exports.push(relay(&["**"]));
    config.imports.push(import(&["**"]));
    config.heartbeat = Duration::from_secs(60);
    let relay = start(&config);
    let under = || Import { under: "far".to_owned(), ..import(&["**"]) };
    let mut to = end.importing(under(), &[&middle]);
    let mut subscriber = end.subscribe("**");
    // A message of its own says whose the relay is.
    let sources = [(&middle, "own"), (&a, "relayed")];
    for (source, topic) in sources {
        connect(source, topic, &mut subscriber);
    }
    for round in 0..3 {
        let sent = relay.counters().exported_messages;
        let publish = |from: u32| {
            for number in from..from + 100 {
                for (source, topic) in sources {
                    source.publish(topic, format!("{round} {number}"));
                }
            }
        };
        publish(0);
        let mut got: Vec<_> = (0..200).map(|_| next(&mut subscriber).text()).collect();
        to.stop();
        publish(100);
        wait_until("the relay sends", || relay.counters().exported_messages >= sent + 400);
        to = end.importing(under(), &[&middle]);
        // The next heartbeat is far away: a message begins the join.
        wait_until("the way is open", || {
            middle.publish("own", "probe");
            next_within(&mut subscriber, Duration::from_millis(100)).is_some_and(|first| {
                got.push(first.text());
                true
            })
        });
        for (source, topic) in sources {
            source.publish(topic, "end");
        }
        let mut ends = 0;
        while ends < 2 {
            let text = next(&mut subscriber).text();
            ends += usize::from(text.ends_with("=end"));
            got.push(text);
        }
        got.retain(|text| !text.ends_with("=end") && !text.ends_with("=probe"));
        for (_, topic) in sources {
            let of_topic: Vec<_> =
                got.iter().filter(|text| text.starts_with(&format!("far/{topic}="))).collect();
            let expected: Vec<_> =
                (0..200).map(|number| format!("far/{topic}={round} {number}")).collect();
            assert_eq!(of_topic, expected.iter().collect::<Vec<_>>());
        }
        assert_eq!((got.len(), to.counters().lost_messages), (400, 0));
        assert!(to.counters().duplicates >= 100, "the mark was not behind: {:?}", to.counters());
    }
}

/// Two bridges of one bus: the second stands by, and takes over.
#[test]
fn a_second_bridge_takes_over_where_the_first_one_stood() {
    let (a, b) = (Site::new(), Site::new());
    let to = b.importing(import(&["**"]), &[]);
    let mut first = a.config(&[&b]);
    first.exports.push(export(&["**"]));
    let mut bridge = start(&first);
    let mut subscriber = b.subscribe("**");
    connect(&a, "x", &mut subscriber);
    let mut number = 0;
    for round in 1..=3u64 {
        // Connected to the importer, and to the bridge at work.
        let mut second = a.config_at(free_port(), &[b.port, port_of(&first)]);
        second.exports.clone_from(&first.exports);
        let standby = Bridge::start(&second).unwrap();
        assert_eq!(standby.wait_for(&State::StandBy, LONG), State::StandBy);
        for _ in 0..1000 {
            a.publish(["x", "y"][number % 2], format!("{number}"));
            number += 1;
        }
        bridge.stop();
        for _ in 0..1000 {
            a.publish(["x", "y"][number % 2], format!("{number}"));
            number += 1;
        }
        assert_eq!(standby.wait_for(&State::Active, LONG), State::Active);
        assert_eq!(standby.counters().takeovers, 1, "{round}");
        // Twice if it did not see the other one at first.
        assert!(standby.counters().resumed >= 1, "{round}");
        (bridge, first) = (standby, second);
    }
    a.publish("x", "end");
    let mut next_of = HashMap::from([("x".to_owned(), 0), ("y".to_owned(), 1)]);
    for got in until(&mut subscriber, "end") {
        let Got::Message { topic, payload } = got else { panic!("{got:?}") };
        let next = next_of.get_mut(&topic).unwrap();
        assert_eq!(payload, next.to_string());
        *next += 2;
    }
    assert_eq!((next_of["x"], next_of["y"]), (6000, 6001));
    assert_eq!(to.counters().lost_messages, 0);
    drop(bridge);
}

/// Two bridges of one bus that do not see one another both work. What they export is a part of their bus.
#[test]
fn two_exports_of_the_same_messages_deliver_once() {
    let (a, b) = (Site::new(), Site::new());
    let to = b.importing(import(&["**"]), &[]);
    let mut bridges = Vec::new();
    for _ in 0..2 {
        let mut config = a.config_at(free_port(), &[b.port]);
        config.exports.push(export(&["x"]));
        bridges.push(start(&config));
    }
    let mut subscriber = b.subscribe("**");
    connect(&a, "x", &mut subscriber);
    wait_until("both send", || {
        a.publish("x", "probe");
        bridges.iter().all(|bridge| bridge.counters().exported_messages > 0)
            && to.counters().duplicates > 0
    });
    a.publish("x", "begin");
    until(&mut subscriber, "begin");
    let count = 3_000;
    let beats = to.counters().heartbeats_received;
    for number in 0..count {
        a.publish("x", number.to_string());
        a.publish("elsewhere", "not exported");
        if number % 300 == 0 {
            // Both send heartbeats meanwhile.
            let beats = beats + number / 100;
            wait_until("heartbeats", || to.counters().heartbeats_received >= beats);
        }
    }
    a.publish("x", "end");
    let expected: Vec<_> = (0..count).map(|number| format!("x={number}")).collect();
    assert_eq!(payloads(&until(&mut subscriber, "end")), expected);
    assert_eq!(to.counters().lost_messages, 0);
}

fn port_of(config: &toroni_zenoh::Config) -> u16 {
    let toroni_zenoh::config::ZenohSource::Table(table) = &config.zenoh else { unreachable!() };
    let endpoint = table["listen"]["endpoints"][0].as_str().unwrap();
    endpoint.rsplit(':').next().unwrap().parse().unwrap()
}
