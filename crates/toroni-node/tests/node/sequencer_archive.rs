//! An archive on a host that is no member: real nodes, whose logs hold less than the archive.

use crate::nodes::start;
use crate::sequencer::{Hosts, leave};
use crate::support::{LIMIT, wait_until};
use serde_json::Value;
use toroni::{BusConfig, Policy, Start, Subscriber};
use toroni_sequencer::commands::Commands;
use toroni_testkit::wait::within;

/// What a log keeps is whole segments of this length.
const SEGMENT_BYTES: usize = 64 << 20;
const MEMBER: usize = 0;
const ARCHIVE: usize = 1;
const LATE: usize = 2;

fn config(hosts: &Hosts, host: usize) -> BusConfig {
    // Before the node does, so that it waits for the subscriber.
    let config = BusConfig::new().directory(hosts.directory(host)).capacity(16 << 20);
    config.policy(Policy::Wait { limit: None })
}

fn subscribe(config: &BusConfig) -> Subscriber {
    let bus = config.open("orders").unwrap();
    bus.subscriber().pattern("**").start(Start::Oldest).gating(true).build().unwrap()
}

#[test]
fn a_host_that_comes_late_gets_from_an_archive_what_members_no_longer_have() {
    const BYTES: usize = 500_000;
    let hosts = Hosts::new(1);
    let address = toroni_testkit::port::free();
    let archive =
        format!("archive = true\narchive_address = '{address}'\narchive_capacity = '2GiB'\n");
    let archives = format!("archives = ['{address}']\n");
    // As little as may be, and synced seldom, since this test is not about disks.
    let member = "retain = '1MiB'\nsync = 'interval'\nsync_interval = '5s'\n";
    let path = hosts.file(MEMBER, "", &format!("{member}{archives}"));
    let leader = start(&hosts.buses, &path);
    hosts.init();
    hosts.wait_for_leader();
    let keeps = start(&hosts.buses, &hosts.file(ARCHIVE, "", &archive));
    keeps.wait_for_error(", and to an archive");

    let config_of_member = config(&hosts, MEMBER);
    let mut reader = subscribe(&config_of_member);
    let commands = Commands::open_with(config_of_member, "orders").unwrap();
    let mut sent = 0;
    let first = || -> u64 {
        let status = hosts.status();
        status["members"][0]["first_event"].as_u64().unwrap_or(0)
    };
    let archive_has_all = || {
        let mut status = Value::Null;
        let is_whole = within(LIMIT, || {
            status = hosts.status();
            let archive = &status["archives"][0];
            let is_whole = archive["first_event"] == 0 && archive["events"] == status["events"];
            archive["address"] == address.to_string() && is_whole
        });
        assert!(is_whole, "the archive lacks events: {status}, {}", keeps.errors());
    };
    // A snapshot is taken after each 64 MiB, and the log is purged up to it.
    while first() == 0 {
        assert!(sent * BYTES < 6 * SEGMENT_BYTES, "the member never purges its log");
        for _ in 0..20 {
            commands.send("t", vec![b'x'; BYTES]).unwrap();
            sent += 1;
            wait_until("the event arrives", || reader.try_receive().unwrap().is_some());
        }
        // On a busy machine, it may come later than those who send, and the member keeps little.
        archive_has_all();
    }
    archive_has_all();
    // On a busy machine, it may not answer in time.
    let says = |what: &str| {
        let line = format!("archive at {address}: {what}");
        wait_until(&line, || hosts.sequencer(&["status"]).contains(&line));
    };
    says("events from 0 on, ");

    // Restarted, the archive still has them.
    leave(keeps);
    says("does not answer");
    let keeps = start(&hosts.buses, &hosts.file(ARCHIVE, "", &archive));
    let mut late = subscribe(&config(&hosts, LATE));
    let node = start(&hosts.buses, &hosts.file(LATE, "", &archives));
    let mut found = 0;
    wait_until("the late host gets all events", || {
        while let Some(message) = late.try_receive().unwrap() {
            assert_eq!(message.payload().len(), BYTES);
            found += 1;
        }
        found == sent
    });
    [node, keeps, leader].into_iter().for_each(leave);
}
