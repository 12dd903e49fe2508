//! Groups of real nodes that change: another member leads, members come and go, and one log becomes a new group.

use crate::node_observed;
use crate::nodes::start;
use crate::sequencer::{Hosts, error, leave};
use crate::support::wait_until;
use toroni::{BusConfig, LostReason, Policy, ReceiveError, Start, Subscriber};
use toroni_testkit::Program;

fn members(hosts: &Hosts) -> usize {
    let status = hosts.status();
    let answers = status["members"].as_array().into_iter().flatten();
    answers.filter(|member| member["problem"].is_null()).count()
}

fn send(hosts: &Hosts, host: usize, payload: &str) {
    let output = hosts.try_sequencer(host, &["send", "t", payload, "--timeout", "60"]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn the_member_that_is_named_leads() {
    let hosts = Hosts::new(3);
    let nodes = hosts.begin();
    let next = (hosts.wait_for_leader() + 1) % 3;
    hosts.refused(0, &["elect", "--member", "x"], "there is no member x");
    // On a busy machine the member may not be elected in time. Then the leader stays. Or a third one follows it.
    wait_until("the other one leads", || {
        hosts.try_sequencer(0, &["elect", "--member", &format!("m{next}")]).status.success()
            && hosts.leader() == Some(next)
    });
    send(&hosts, 0, "after");
    nodes.into_iter().for_each(leave);
}

#[test]
fn members_are_removed_and_added_while_commands_flow() {
    let hosts = Hosts::new(3);
    let mut nodes: Vec<Option<Program>> = hosts.begin().into_iter().map(Some).collect();
    send(&hosts, 0, "of three");
    let goes = (hosts.wait_for_leader() + 1) % 3;
    let name = format!("m{goes}");
    hosts.change(&["members", "remove", &name]);
    hosts.table_with(&[&format!("{name} ({goes}) is in the list, and no member of the group")]);
    hosts.refused(0, &["members", "remove", &name], &format!("there is no member {name}"));
    send(&hosts, (goes + 1) % 3, "of two");

    let member = format!("{name}={}", hosts.addresses[goes]);
    hosts.refused(0, &["members", "add", &member], "start it with an empty directory");
    nodes[goes].take().unwrap().kill();
    std::fs::remove_dir_all(hosts.log(goes)).unwrap();
    nodes[goes] = Some(hosts.start(goes));
    hosts.change(&["members", "add", &member]);
    wait_until("the new member has all events", || {
        let status = hosts.status();
        let own = &status["members"][goes];
        let has_all = own["events"].is_u64() && own["events"] == status["events"];
        has_all && status["differences"].as_array().is_some_and(Vec::is_empty)
    });
    // It counts: the group stands without another one.
    let dies = hosts.wait_for_leader();
    nodes[dies].take().unwrap().kill();
    let alive = (dies + 1) % 3;
    send(&hosts, alive, "without one");
    nodes.into_iter().flatten().for_each(leave);
}

#[test]
fn one_log_becomes_a_group_that_others_join() {
    let hosts = Hosts::new(3);
    let nodes = hosts.begin();
    send(&hosts, 0, "before");
    hosts.wait_until_equal();
    let log = hosts.log(0);
    let running = hosts.buses.run(&["sequencer", "recover", "--accept-loss", &log]);
    assert_eq!(running.status.code(), Some(1), "{running:?}");
    nodes.into_iter().for_each(leave);
    assert_eq!(hosts.buses.run(&["sequencer", "recover", &log]).status.code(), Some(2));
    let elsewhere = hosts.buses.path().join("nothing");
    let nothing =
        hosts.buses.run(&["sequencer", "recover", "--accept-loss", elsewhere.to_str().unwrap()]);
    assert_eq!(nothing.status.code(), Some(1), "{nothing:?}");
    assert!(error(&nothing).contains("is no log of a sequencer") && !elsewhere.exists());

    for host in 1..3 {
        std::fs::remove_dir_all(hosts.log(host)).unwrap();
    }
    let recovered = hosts.buses.run(&["sequencer", "recover", "--accept-loss", &log]);
    assert!(recovered.status.success(), "{recovered:?}");
    assert!(error(&recovered).contains("m0 at 127.0.0.1:"), "{recovered:?}");
    let first = hosts.start(0);
    wait_until("it leads alone", || hosts.leader() == Some(0));
    wait_until("it is alone", || members(&hosts) == 1);
    send(&hosts, 0, "alone");
    let others = [1, 2].map(|host| {
        let node = hosts.start(host);
        hosts.change(&["members", "add", &format!("m{host}={}", hosts.addresses[host])]);
        node
    });
    send(&hosts, 2, "of three again");
    hosts.wait_until_equal();
    leave(first);
    others.into_iter().for_each(leave);
}

/// A message on the bus of a host, with its number, or the numbers of a divergence.
#[derive(Debug, PartialEq)]
enum Found {
    Event(u64, String),
    Diverged(u64, u64),
}

/// Returns what is there now.
fn read(subscriber: &mut Subscriber) -> Vec<Found> {
    let mut found = vec![];
    loop {
        match subscriber.try_receive() {
            Ok(Some(message)) => {
                found.push(Found::Event(message.number().unwrap(), message.text().into_owned()));
            }
            Err(ReceiveError::Lost(lost)) if lost.reason == LostReason::Diverged => {
                found.push(Found::Diverged(lost.from.number, lost.until));
            }
            // Commands that the recovery has taken from their host.
            Err(ReceiveError::Lost(_)) => {}
            Ok(None) => return found,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_host_that_was_down_during_a_recovery_learns_which_of_its_events_are_no_more() {
    let hosts = Hosts::new(3);
    hosts.file(3, "", "");
    let config = BusConfig::new().directory(hosts.directory(3));
    let bus = config.policy(Policy::Wait { limit: None }).open("orders").unwrap();
    let mut subscriber =
        bus.subscriber().pattern("**").start(Start::Oldest).gating(true).build().unwrap();
    let mut nodes: Vec<Option<Program>> = hosts.begin().into_iter().map(Some).collect();
    let host = hosts.start(3);
    send(&hosts, 0, "common");
    hosts.wait_until_equal();
    // The last member does not have what the others accept now.
    nodes[2].take().unwrap().kill();
    (0..5).for_each(|number| send(&hosts, 0, &format!("old {number}")));
    let mut before = vec![];
    wait_until("the host has all events", || {
        before.extend(read(&mut subscriber));
        before.len() == 6
    });
    let numbers: Vec<_> = before
        .iter()
        .map(|found| match found {
            Found::Event(number, text) if text == "common" || text.starts_with("old ") => *number,
            found => panic!("{found:?}"),
        })
        .collect();
    let (from, until) = (numbers[0] + 1, numbers[5] + 1);
    leave(host);
    for member in &mut nodes[..2] {
        member.take().unwrap().kill();
    }

    // Their buses have the same events.
    (0..2).for_each(|host| std::fs::remove_dir_all(hosts.log(host)).unwrap());
    std::fs::remove_dir_all(hosts.directory(1).join("orders")).unwrap();
    let recovered = hosts.buses.run(&["sequencer", "recover", "--accept-loss", &hosts.log(2)]);
    assert!(recovered.status.success(), "{recovered:?}");
    nodes[2] = Some(hosts.start(2));
    wait_until("it leads alone", || hosts.leader() == Some(2));
    for (host, node) in nodes[..2].iter_mut().enumerate() {
        *node = Some(hosts.start_with(host, ["metrics = '127.0.0.1:0'", ""][host]));
        hosts.change(&["members", "add", &format!("m{host}={}", hosts.addresses[host])]);
    }
    // Enough that all numbers of the host are used again.
    (0..10).for_each(|number| send(&hosts, 2, &format!("new {number}")));
    hosts.wait_until_equal();

    let said =
        format!("the events {from} to {} of this host are not those of the order", until - 1);
    for is_first in [true, false] {
        let mut host = hosts.start(3);
        assert_eq!(host.wait().code(), Some(1));
        assert!(host.errors().contains(&said), "{}", host.errors());
        let loss = is_first.then_some(Found::Diverged(from, until));
        assert_eq!(read(&mut subscriber), Vec::from_iter(loss), "{is_first}");
    }
    // One that is to continue has what comes after that, and learns it once.
    let host = start(&hosts.buses, &hosts.file(3, "", "on_divergence = 'report'"));
    let mut after = vec![];
    wait_until("the last event is there", || {
        after.extend(read(&mut subscriber));
        matches!(after.last(), Some(Found::Event(_, text)) if text == "new 9")
    });
    assert!(after.iter().all(|found| matches!(found, Found::Event(number, _) if *number >= until)));
    leave(host);
    // A member is not taken from its group by the bus of its host, which gets nothing more.
    let first = nodes[0].take().unwrap();
    first.wait_for_error("of this host are not those of the order");
    let address = node_observed::address(&first);
    let realm = hosts.realm();
    let value = |name: &str| {
        let labels = [("realm", &*realm), ("feed", "orders")];
        node_observed::metrics(&address).value(name, &labels)
    };
    wait_until("the metrics say so", || value("toroni_sequencer_feed_stopped") == Some(1.0));
    leave(first);
    nodes.into_iter().flatten().for_each(leave);
}
