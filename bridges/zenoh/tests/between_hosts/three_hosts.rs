//! Three hosts, each of which exports what its own publishers say and imports what the others export.

use crate::hosts::{Host, Listener, Network, meet};
use toroni_testkit::{Program, long, wait};

/// How many messages each host publishes. The run of the guide has a million.
fn count() -> u64 {
    match std::env::var("TORONI_ZENOH_MESSAGES") {
        Ok(text) => text.parse().unwrap(),
        Err(_) => long::repetitions(50_000, 1_000_000).into(),
    }
}

fn rate() -> String {
    std::env::var("TORONI_ZENOH_RATE").unwrap_or_else(|_| "10k/s".to_owned())
}

struct Site<'a> {
    host: &'a Host,
    topic: String,
    listener: Listener,
    bridge: Program,
}

fn sites(network: &Network) -> Vec<Site<'_>> {
    network
        .hosts
        .iter()
        .enumerate()
        .map(|(index, host)| {
            host.create_bus();
            let listener = host.listen(&["**"]);
            let bridge = host.bridge(&["--export", "**", "--import", "**"]);
            Site { host, topic: format!("site-{}/line", index + 1), listener, bridge }
        })
        .collect()
}

fn all_meet(sites: &[Site<'_>]) {
    let listeners: Vec<&Listener> = sites.iter().map(|site| &site.listener).collect();
    for (number, site) in sites.iter().enumerate() {
        meet(site.host, &format!("hello/{number}"), &listeners);
    }
}

/// All export and import the same keys, so each message could circulate.
#[test]
fn nothing_circulates_and_nothing_is_doubled() {
    let Some(network) = Network::new(3) else { return };
    let sites = sites(&network);
    all_meet(&sites);
    let mut publishers: Vec<Program> = sites
        .iter()
        .map(|site| site.host.start_publishing(&site.topic, 0..count(), &["--rate", &rate()]))
        .collect();
    for publisher in &mut publishers {
        assert!(publisher.finish_within(10 * wait::LIMIT).status.success());
    }
    for receiver in &sites {
        for sender in &sites {
            receiver.listener.wait_settled(&sender.topic, count());
            let missing = receiver.listener.account().balance(&sender.topic, count());
            eprintln!("{} → host of {}: {missing} lost", sender.topic, receiver.topic);
        }
        assert_eq!(receiver.listener.account().balance(&receiver.topic, count()), 0, "its own bus");
    }
}

/// The last test of the guide: while all publish, one bridge is killed and restarted five times.
#[test]
fn a_bridge_that_is_killed_five_times_loses_nothing_silently() {
    let Some(network) = Network::new(3) else { return };
    let mut sites = sites(&network);
    all_meet(&sites);
    let count = count();
    let mut publishers: Vec<Program> = sites
        .iter()
        .map(|site| site.host.start_publishing(&site.topic, 0..count, &["--rate", &rate()]))
        .collect();
    for kill in 1..=5_u64 {
        let reached = count * kill / 6;
        let own = sites[0].topic.clone();
        let is_reached = || sites[0].listener.account().received(&own) >= reached;
        assert!(wait::within(10 * wait::LIMIT, is_reached), "publishing stops");
        sites[0].bridge.kill();
        sites[0].bridge = sites[0].host.bridge(&["--export", "**", "--import", "**"]);
    }
    for publisher in &mut publishers {
        assert!(publisher.finish_within(20 * wait::LIMIT).status.success());
    }
    for receiver in &sites {
        for sender in &sites {
            receiver.listener.wait_settled(&sender.topic, count);
            let account = receiver.listener.account();
            let missing = account.balance_within_bounds(&sender.topic, count);
            eprintln!("{} → host of {}: {missing} of {count} lost", sender.topic, receiver.topic);
            assert!(account.received(&sender.topic) > 0, "{}", account.summary());
            let is_own = sender.topic == receiver.topic;
            assert!(!is_own || missing == 0, "on its own bus nothing is lost");
        }
    }
    // Between the two that lived, the losses are exact.
    for (receiver, sender) in [(1, 2), (2, 1)] {
        sites[receiver].listener.account().balance(&sites[sender].topic, count);
    }
}
