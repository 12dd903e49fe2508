//! Events on the buses of hosts: real nodes, of which one is killed, and `toroni sequencer rewind`.

use crate::sequencer::Hosts;
use crate::support::wait_until;
use toroni::{BusConfig, Origin, Policy, Start, Subscriber};
use toroni_sequencer::commands::Commands;

fn config(hosts: &Hosts, host: usize) -> BusConfig {
    // Before the node does, so that it waits for the subscriber.
    BusConfig::new().directory(hosts.directory(host)).policy(Policy::Wait { limit: None })
}

fn subscribe(config: &BusConfig, bus: &str) -> Subscriber {
    let bus = config.open(bus).unwrap();
    bus.subscriber().pattern("**").start(Start::Oldest).gating(true).build().unwrap()
}

/// The next events: number, origin, topic and text.
fn take(subscriber: &mut Subscriber, count: usize) -> Vec<(u64, Origin, String)> {
    let mut events = vec![];
    wait_until("the events arrive", || {
        while let Some(message) = subscriber.try_receive().unwrap() {
            let text = format!("{} {}", message.topic(), message.text());
            events.push((message.number().unwrap(), message.origin().unwrap(), text));
        }
        events.len() >= count
    });
    events
}

#[test]
fn every_host_has_the_events_on_its_bus_and_can_rewind_them() {
    let hosts = Hosts::new(3);
    // The fourth host has no member.
    let configs: Vec<_> = (0..4).map(|host| config(&hosts, host)).collect();
    (0..4).for_each(|host| drop(hosts.file(host, "", "")));
    let mut readers: Vec<_> = configs.iter().map(|config| subscribe(config, "orders")).collect();
    let mut nodes = hosts.begin();
    nodes.push(hosts.start(3));
    let mut commands: Vec<_> = configs
        .iter()
        .map(|config| Commands::open_with(config.clone(), "orders").unwrap())
        .collect();
    let mut send = |round: usize| {
        let mut sent = vec![];
        for (host, commands) in commands.iter_mut().enumerate() {
            for number in 0..5 {
                let text = format!("{round} {host} {number}");
                sent.push((host, commands.send("new/order", &text).unwrap(), text));
            }
        }
        sent
    };
    let mut sent = send(0);
    let mut all: Vec<_> = readers.iter_mut().map(|reader| take(reader, 20)).collect();
    // A node dies: what happens meanwhile is on its bus when it is back.
    let dies = hosts.wait_for_leader();
    nodes[dies].kill();
    sent.extend(send(1));
    let other = (dies + 1) % 3;
    all[other].extend(take(&mut readers[other], 15));
    nodes[dies] = hosts.start(dies);
    for (all, reader) in all.iter_mut().zip(&mut readers) {
        let missing = 40 - all.len();
        all.extend(take(reader, missing));
    }
    for host in 1..4 {
        assert_eq!(all[host], all[0], "host {host}");
    }
    assert!(all[0].windows(2).all(|pair| pair[0].0 < pair[1].0));
    for (host, sent, text) in sent {
        let echoes = all[host].iter().filter(|(_, origin, _)| sent.is_echo(origin));
        let texts: Vec<_> = echoes.map(|(_, _, text)| text.clone()).collect();
        assert_eq!(texts, [format!("new/order {text}")]);
    }

    let directory = hosts.directory(3);
    let directory = directory.to_str().unwrap();
    let path = hosts.buses.path().join("host-3.toml");
    let path = path.to_str().unwrap();
    let rewind = |arguments: &[&str]| {
        let start = ["--dir", directory, "sequencer", "rewind"];
        hosts.buses.run(&[&start, arguments, &["--config", path]].concat())
    };
    let again = rewind(&["again", "--capacity", "1MiB"]);
    assert!(again.status.success(), "{again:?}");
    assert_eq!(take(&mut subscribe(&configs[3], "again"), 40), all[0]);
    let shown =
        ["--dir", directory, "sub", "--bus", "again", "--from", "oldest", "-n", "1", "--json"];
    let shown: serde_json::Value = serde_json::from_str(&hosts.buses.succeed(&shown)).unwrap();
    let (number, origin, _) = &all[0][0];
    assert_eq!(shown["number"], number.to_string());
    let (source, series) = (format!("{:08x}", origin.source), format!("{:08x}", origin.series));
    let fields = serde_json::json!({ "source": source, "series": series, "stream": origin.stream, "number": origin.number.to_string() });
    assert_eq!(shown["origin"], fields);
    let from = all[0][30].0;
    let part = rewind(&["part", "--from", &from.to_string()]);
    assert!(part.status.success(), "{part:?}");
    assert_eq!(take(&mut subscribe(&configs[3], "part"), 10), all[0][30..]);
    let twice = rewind(&["again"]);
    assert_eq!(twice.status.code(), Some(1));
    let error = String::from_utf8(twice.stderr).unwrap();
    assert!(error.contains("the bus again has messages: rewind into a new one"), "{error}");

    // More than fits into the ring is not passed over in silence.
    for _ in 0..10 {
        commands[3].send("new/order", "x".repeat(10 << 10)).unwrap();
    }
    let last = take(&mut readers[3], 10);
    let small = rewind(&["small", "--capacity", "64KiB"]);
    let error = String::from_utf8(small.stderr).unwrap();
    let kept = take(&mut subscribe(&configs[3], "small"), 1)[0].0;
    assert!(last.iter().any(|(number, ..)| *number == kept), "{kept}");
    let overwritten = format!("its ring no longer has the events before {kept},");
    assert!(error.contains(&overwritten), "{error}");
}
