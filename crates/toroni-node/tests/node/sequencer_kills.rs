//! Three members under load whose leader dies by SIGKILL again and again, on hosts that are network namespaces where that is
//! possible. Afterwards, a reader of the logs alone finds each command once.

use crate::sequencer::Hosts;
use crate::support::{json_lines, wait_until};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use toroni::{Bus, BusConfig};
use toroni_sequencer::commands::Commands;
use toroni_testkit::Random;
use toroni_testkit::network::Setup;

const SENDERS: usize = 10;
const KILLS: usize = 10;

#[test]
fn the_leader_dies_ten_times_and_every_command_is_in_the_order_once() {
    let mut random = Random::from_environment();
    let hosts = match Setup::new(3).bridged() {
        Some(network) => Hosts::on(network, 3),
        None => Hosts::new(3),
    };
    (0..3).for_each(|host| drop(hosts.file(host, "", "")));
    let readers = [0, 1, 2].map(|host| Reader::start(&hosts, host));
    let mut nodes = hosts.begin();
    let ends = AtomicBool::new(false);
    let stall_ms = AtomicU64::new(0);
    let (sent, seen) = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                let (hosts, ends) = (&hosts, &ends);
                scope.spawn(move || send(hosts, sender, ends))
            })
            .collect();
        let observer = scope.spawn(|| observe(&hosts, &ends, &stall_ms));
        for kill in 0..KILLS {
            std::thread::sleep(Duration::from_millis(random.between(200, 600)));
            let leader = hosts.wait_for_leader();
            nodes[leader].kill();
            // The nodes of senders die, too, while there is a majority or not.
            if kill % 3 == 2 {
                let other = (leader + 1 + random.index(2)) % 3;
                nodes[other].kill();
                nodes[other] = hosts.start(other);
            }
            std::thread::sleep(Duration::from_millis(random.below(600)));
            nodes[leader] = hosts.start(leader);
        }
        ends.store(true, Ordering::Relaxed);
        let sent: usize = senders.into_iter().map(|sender| sender.join().unwrap()).sum();
        (sent, observer.join().unwrap())
    });
    let events = |host: usize| -> Vec<Value> {
        let printed = hosts.buses.succeed(&["sequencer", "log", &hosts.log(host), "--json"]);
        let all = json_lines(printed.as_bytes());
        all.into_iter().filter(|command| command["outcome"] == "event").collect()
    };
    wait_until("all members have all commands", || {
        hosts.are_equal()
            && events(0).iter().filter(|event| event["kind"] == "publish").count() >= sent
    });
    for reader in &readers {
        wait_until("each host has all events", || reader.events().len() >= sent + seen.len());
    }
    let digest = hosts.digests();
    assert_eq!(digest["equal"], true, "{digest}");
    nodes.clear();

    let all = events(0);
    for (number, event) in all.iter().enumerate() {
        assert_eq!(event["event"], number);
    }
    for host in 1..3 {
        let others = events(host);
        // The same event may be in an entry of another term only if it is the same entry.
        assert_eq!(others, all, "the logs of members 0 and {host} differ");
    }
    let published = all.iter().filter(|event| event["kind"] == "publish");
    let published: Vec<(u64, String)> = published
        .map(|event| {
            (event["event"].as_u64().unwrap(), event["payload"].as_str().unwrap().to_owned())
        })
        .collect();
    for (host, reader) in readers.iter().enumerate() {
        let events = reader.events();
        assert_eq!(events[..], published[..events.len()], "host {host} saw another order");
    }
    // By source and series: the number that comes next.
    let mut places = BTreeMap::new();
    let mut payloads = BTreeSet::new();
    for event in all.iter().filter(|event| event["kind"] != "open" && event["kind"] != "begin") {
        assert_eq!(event["kind"], "publish", "commands were lost: {event}");
        let series = (event["source"].as_u64().unwrap(), event["series"].as_u64().unwrap());
        let next = places.entry(series).or_insert(0);
        assert_eq!(event["number"], *next, "{event}");
        *next += 1;
        assert!(payloads.insert(event["payload"].as_str().unwrap().to_owned()), "twice: {event}");
    }
    assert_eq!(places.len(), 3, "each host has one series");
    let (own, others): (Vec<_>, Vec<_>) =
        payloads.iter().partition(|payload| payload.starts_with("observed "));
    assert_eq!(others.len(), sent);
    for (payload, event) in &seen {
        let found = &all[usize::try_from(*event).unwrap()];
        assert_eq!(found["payload"], **payload, "event {event} was seen with another payload");
    }
    assert!(own.len() >= seen.len() && !seen.is_empty());
    println!(
        "{sent} commands of {SENDERS} senders, {} of them watched, {KILLS} kills of the leader: longest stall {} ms",
        seen.len(),
        stall_ms.load(Ordering::Relaxed)
    );
}

/// The bus of events of a host. Before the node does, so that it is large: when a node is back, it brings everything at once,
/// and a reader may not run for long.
fn events_bus(hosts: &Hosts, host: usize) -> Bus {
    BusConfig::new().directory(hosts.directory(host)).capacity(64 << 20).open("orders").unwrap()
}

/// Reads all events from the bus of a host, over all deaths of its node.
struct Reader(Arc<Mutex<Vec<(u64, String)>>>);

impl Reader {
    fn start(hosts: &Hosts, host: usize) -> Self {
        let mut subscriber = events_bus(hosts, host).subscribe("**").unwrap();
        let events = Arc::new(Mutex::new(vec![]));
        let seen = Arc::downgrade(&events);
        std::thread::spawn(move || {
            while let Some(seen) = seen.upgrade() {
                let event = subscriber.receive_timeout(Duration::from_millis(200)).unwrap();
                let event = event.map(|event| (event.number().unwrap(), event.text().into_owned()));
                seen.lock().unwrap().extend(event);
            }
        });
        Self(events)
    }

    fn events(&self) -> Vec<(u64, String)> {
        self.0.lock().unwrap().clone()
    }
}

/// Sends commands from one of the hosts. Returns how many.
fn send(hosts: &Hosts, sender: usize, ends: &AtomicBool) -> usize {
    let config = BusConfig::new().directory(hosts.directory(sender % 3));
    let commands = Commands::open_with(config, "orders").unwrap();
    let mut count = 0;
    while !ends.load(Ordering::Relaxed) {
        let topic = format!("from/{sender}");
        commands.send(&topic, format!("{sender} {count}")).unwrap();
        count += 1;
        // Few enough that the ring does not fill while no node takes them, even if a node starts slowly.
        std::thread::sleep(Duration::from_millis(10));
    }
    count
}

/// Sends commands one after another, each when the event of the last one was seen. Returns their payloads and events.
fn observe(hosts: &Hosts, ends: &AtomicBool, stall_ms: &AtomicU64) -> Vec<(String, u64)> {
    let mut seen = vec![];
    let mut last = Instant::now();
    for number in 0.. {
        if ends.load(Ordering::Relaxed) {
            break;
        }
        let payload = format!("observed {number}");
        let output =
            hosts.try_sequencer(number % 3, &["send", "t", &payload, "--json", "--timeout", "30"]);
        // Between the kill of a member and its return, no member may have answered.
        if output.status.success() {
            let sent: Value = serde_json::from_slice(&output.stdout).unwrap();
            seen.push((payload, sent["event"].as_u64().unwrap()));
            let stall = u64::try_from(last.elapsed().as_millis()).unwrap();
            stall_ms.fetch_max(stall, Ordering::Relaxed);
            last = Instant::now();
        }
    }
    seen
}
