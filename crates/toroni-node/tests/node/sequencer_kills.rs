//! Three members under load whose leader dies by SIGKILL again and again, on hosts that are network namespaces where that is
//! possible. Afterwards, a reader of the logs alone finds each command once.

use crate::sequencer::Hosts;
use crate::support::{json_lines, wait_until};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use system_tests::sequencer_soak::trace::{Reader, event_of, id_of};
use toroni::{Bus, BusConfig};
use toroni_sequencer::commands::Commands;
use toroni_testkit::history::{History, Id, Sent, Trace, now};
use toroni_testkit::network::Setup;
use toroni_testkit::{OnDrop, Random};

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
    let readers =
        [0, 1, 2].map(|host| Reader::start(events_bus(&hosts, host).subscribe("**").unwrap(), 0));
    let mut nodes = hosts.begin();
    let ends = AtomicBool::new(false);
    let stall_ms = AtomicU64::new(0);
    let (mut sent, mut seen) = std::thread::scope(|scope| {
        // Also if this thread panics: the others are waited for.
        let end = OnDrop(|| ends.store(true, Ordering::Relaxed));
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
        drop(end);
        let sent = senders.into_iter().flat_map(|sender| sender.join().unwrap());
        (sent.collect::<Vec<_>>(), observer.join().unwrap())
    });
    let events = |host: usize| -> Vec<Value> {
        let printed = hosts.buses.succeed(&["sequencer", "log", &hosts.log(host), "--json"]);
        let all = json_lines(printed.as_bytes());
        all.into_iter().filter(|command| command["outcome"] == "event").collect()
    };
    let is_of_sender =
        |event: &Value| event["topic"].as_str().is_some_and(|topic| topic.starts_with("from/"));
    wait_until("all members have all commands", || {
        hosts.are_equal()
            && events(0).iter().filter(|event| is_of_sender(event)).count() >= sent.len()
    });
    for reader in &readers {
        wait_until("each host has all events", || reader.count() >= sent.len() + seen.len());
    }
    let digest = hosts.digests();
    assert_eq!(digest["equal"], true, "{digest}");
    nodes.clear();

    let all = events(0);
    for host in 1..3 {
        let others = events(host);
        // The same event may be in an entry of another term only if it is the same entry.
        assert_eq!(others, all, "the logs of members 0 and {host} differ");
    }
    let (senders, watched) = (sent.len(), seen.len());
    assert!(watched > 0);
    // All of these are events by now.
    sent.iter_mut().for_each(|sent| sent.answered = Some(now()));
    sent.append(&mut seen);
    let log: Vec<_> = all.iter().filter_map(event_of).collect();
    let sources: BTreeMap<_, _> =
        log.iter().filter_map(|event| event.command).map(|id| (id.series, id.source)).collect();
    assert_eq!(sources.len(), 3, "each host has one series");
    for sent in &mut sent {
        sent.id.source = sources[&sent.id.series];
    }
    let contents: BTreeSet<_> = log.iter().map(|event| event.content).collect();
    assert_eq!(contents.len(), log.len(), "a payload is there twice");
    let mut traces = vec![Trace::new("the log", 0..all.len() as u64, log)];
    for (host, reader) in readers.iter().enumerate() {
        let seen = reader.seen();
        assert_eq!(seen.problems, [""; 0], "host {host}");
        traces.push(Trace::new(format!("host {host}"), 0..reader.next(), seen.events));
    }
    History { sent, traces, ..History::default() }.check();
    println!(
        "{senders} commands of {SENDERS} senders, {watched} more watched, {KILLS} kills of the leader: longest stall {} ms",
        stall_ms.load(Ordering::Relaxed)
    );
}

/// The bus of events of a host. Before the node does, so that it is large: when a node is back, it brings everything at once,
/// and a reader may not run for long.
fn events_bus(hosts: &Hosts, host: usize) -> Bus {
    BusConfig::new().directory(hosts.directory(host)).capacity(64 << 20).open("orders").unwrap()
}

/// Sends commands from one of the hosts, and returns them.
fn send(hosts: &Hosts, sender: usize, ends: &AtomicBool) -> Vec<Sent> {
    let config = BusConfig::new().directory(hosts.directory(sender % 3));
    let commands = Commands::open_with(config, "orders").unwrap();
    let topic = format!("from/{sender}");
    let mut all = vec![];
    while !ends.load(Ordering::Relaxed) {
        let payload = format!("{sender} {}", all.len());
        let before = now();
        let command = commands.send(&topic, &payload).unwrap();
        let id = Id { source: 0, series: command.series, number: command.number };
        all.push(Sent::new(id, &topic, payload.as_bytes(), before));
        // Few enough that the ring does not fill while no node takes them, even if a node starts slowly.
        std::thread::sleep(Duration::from_millis(10));
    }
    all
}

/// Sends commands one after another, each when the event of the last one was seen. Returns those whose events were seen.
fn observe(hosts: &Hosts, ends: &AtomicBool, stall_ms: &AtomicU64) -> Vec<Sent> {
    let mut seen = vec![];
    let mut last = Instant::now();
    for number in 0.. {
        if ends.load(Ordering::Relaxed) {
            break;
        }
        let payload = format!("observed {number}");
        let before = now();
        let output =
            hosts.try_sequencer(number % 3, &["send", "t", &payload, "--json", "--timeout", "30"]);
        // Between the kill of a member and its return, no member may have answered.
        if output.status.success() {
            let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
            let sent = Sent::new(id_of(&printed), "t", payload.as_bytes(), before);
            let event = printed["event"].as_u64();
            seen.push(Sent { answered: Some(now()), event, ..sent });
            let stall = u64::try_from(last.elapsed().as_millis()).unwrap();
            stall_ms.fetch_max(stall, Ordering::Relaxed);
            last = Instant::now();
        }
    }
    seen
}
