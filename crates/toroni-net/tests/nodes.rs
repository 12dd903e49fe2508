//! Two nodes on one host, over real sockets on the loopback interface.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;

use common::{Running, buses, config, group, receive, receiving, sending, settings};
use std::sync::Arc;
use toroni::Bus;
use toroni_net::node::state::State;
use toroni_proto::time::{SECOND, Wall};
use toroni_testkit::Directory;

#[test]
fn a_message_passes_from_bus_to_bus() {
    let directory = Directory::new();
    let [from, to] = buses(&directory);
    let (group, config) = (group(), config(400_000_000));
    let mut subscriber = to.subscribe("**").unwrap();
    let receiver = Running::start(&to, &receiving(settings(&["lo"], "b", 2), group, &config));
    let _sender = Running::start(&from, &sending(settings(&["lo"], "a", 1), group, &config));
    receiver.has_joined(1);
    let publisher = from.publisher("plant/a").unwrap();
    let count = 50_000;
    let mut wanted = Vec::new();
    for number in 0..count {
        let payload = format!("{number}{}", ".".repeat(number % 100)).into_bytes();
        publisher.publish(&payload).unwrap();
        wanted.push(("plant/a".to_owned(), payload));
    }
    let large = vec![7; 1_000_000];
    publisher.publish(&large).unwrap();
    wanted.push(("plant/a".to_owned(), large));
    let received = receive(&mut subscriber, wanted.len());
    assert!(received == wanted, "the same messages in the same order");
}

/// Each sends and receives: what a node has brought, it does not send again.
#[test]
fn two_nodes_exchange_messages_and_none_circulates() {
    let directory = Directory::new();
    let all: [Bus; 2] = buses(&directory);
    let (group, config) = (group(), config(100_000_000));
    let mut subscribers = all.clone().map(|bus| bus.subscribe("**").unwrap());
    let nodes = [("a", 1), ("b", 2)].map(|(name, source)| {
        let both =
            receiving(sending(settings(&["lo"], name, source), group, &config), group, &config);
        Running::start(&all[source as usize - 1], &both)
    });
    nodes.iter().for_each(|node| node.has_joined(1));
    let publishers = all.clone().map(|bus| bus.publisher("t").unwrap());
    let count = 1_000;
    for number in 0..count {
        for (at, publisher) in publishers.iter().enumerate() {
            publisher.publish(format!("{at}/{number}")).unwrap();
        }
    }
    for subscriber in &mut subscribers {
        let received = receive(subscriber, 2 * count);
        for at in 0..2 {
            let prefix = format!("{at}/");
            let of_one = received.iter().filter(|(_, text)| text.starts_with(prefix.as_bytes()));
            let wanted = (0..count).map(|number| format!("{at}/{number}").into_bytes());
            assert!(of_one.map(|(_, text)| text.clone()).eq(wanted));
        }
        // A message that went round would be back by now: those after it are.
        publishers[0].publish("last").unwrap();
        assert_eq!(receive(subscriber, 1)[0].1, b"last");
    }
}

/// A node that dies in the middle of its work and comes back sends what is missing, and nothing arrives twice.
#[test]
fn a_sender_that_dies_and_comes_back_loses_and_doubles_nothing() {
    let directory = Directory::new();
    let [from, to] = buses(&directory);
    let (group, config) = (group(), config(50_000_000));
    let mut subscriber = to.subscribe("**").unwrap();
    let receiver = Running::start(&to, &receiving(settings(&["lo"], "b", 2), group, &config));
    let publisher = from.publisher("t").unwrap();
    let text = |number: usize| format!("{number:>900}").into_bytes();
    let (mut published, mut received) = (0, Vec::new());
    for life in 0..6 {
        let state = Arc::new(State::open(&directory.path().join("state")).unwrap());
        // Later lives believe that it is earlier.
        let session = state.begin_session(Wall::from_ns((2_000_000_000 - life) * SECOND)).unwrap();
        let mut settings = sending(settings(&["lo"], "a", 1), group, &config);
        settings.member.session = session;
        settings.state = Some(state);
        let sender = Running::start(&from, &settings);
        receiver.has_joined(1);
        for _ in 0..300 {
            publisher.publish(text(published)).unwrap();
            published += 1;
        }
        let missing = published - received.len();
        if life < 5 {
            received.extend(receive(&mut subscriber, missing - 200));
            sender.die();
            // No node runs: the next one sends them.
            for _ in 0..50 {
                publisher.publish(text(published)).unwrap();
                published += 1;
            }
        } else {
            received.extend(receive(&mut subscriber, missing));
        }
    }
    for (number, (_, payload)) in received.iter().enumerate() {
        assert_eq!(String::from_utf8_lossy(payload).trim(), number.to_string());
    }
}
