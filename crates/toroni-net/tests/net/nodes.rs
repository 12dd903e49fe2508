//! Two nodes on one host, over real sockets on the loopback interface.

use crate::support::{Running, buses, config, group, receive, receiving, sending, settings};
use std::sync::{Arc, Barrier};
use toroni::{Bus, Pattern};
use toroni_net::node::overlap::Overlap;
use toroni_net::node::state::State;
use toroni_net::node::{Node, NodeError};
use toroni_proto::id::{Realm, Stream};
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

/// Receivers would get the same messages of two sources.
#[test]
fn of_two_nodes_that_would_send_a_topic_of_a_bus_the_second_does_not_start() {
    let directory = Directory::new();
    let [one, other] = buses(&directory);
    let config = config(1_000_000);
    let settings = |source: u32, patterns: &[&str]| {
        let name = format!("n{source}");
        // Each has a group of its own.
        let mut settings = sending(settings(&["lo"], &name, source), group(), &config);
        let patterns = patterns.iter().map(|it| Pattern::new(it).unwrap());
        settings.send[0].selection.patterns = patterns.collect();
        settings
    };
    let first = Node::new(&one, &settings(1, &["a/*", "plant/**"])).unwrap();
    let second = settings(2, &["office", "plant/*/speed"]);
    let overlap = match Node::new(&one, &second) {
        Err(NodeError::Overlap(overlap)) => *overlap,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it has started"),
    };
    let wanted = Overlap {
        stream: Stream(1),
        pattern: Pattern::new("plant/*/speed").unwrap(),
        bus: "bus0".to_owned(),
        node: "n1".to_owned(),
        process: Some(std::process::id()),
        other: Pattern::new("plant/**").unwrap(),
    };
    assert_eq!(overlap, wanted);
    let text = format!(
        "the node n1 (process {}) sends \"plant/**\" of the bus bus0 to this realm already, and a topic can match that and \
         \"plant/*/speed\" of [[send]] 1: ",
        std::process::id()
    );
    assert!(overlap.to_string().starts_with(&text), "{overlap}");
    // Other topics, another bus, another realm, and no topics at all.
    let _apart = Node::new(&one, &settings(3, &["office/**"])).unwrap();
    let _of_another_bus = Node::new(&other, &second).unwrap();
    let mut elsewhere = settings(4, &["plant/**"]);
    elsewhere.member.realm = Realm(elsewhere.member.realm.0 ^ 1);
    let _elsewhere = Node::new(&one, &elsewhere).unwrap();
    let receiver = receiving(settings(5, &["**"]), group(), &config);
    let _receiver = Node::new(&one, &toroni_net::node::Settings { send: Vec::new(), ..receiver });
    drop(first);
    Node::new(&one, &settings(6, &["plant/*/speed"])).unwrap();
}

/// Each would see the other one too late if nothing kept them apart.
#[test]
fn of_nodes_that_start_at_once_one_sends() {
    let directory = Directory::new();
    let [bus] = buses(&directory);
    let config = config(1_000_000);
    let realm = Realm::of(&format!("at once {}", std::process::id()));
    for round in 0..10 {
        let settings = [1, 2, 3].map(|source| {
            let name = format!("n{source}");
            let mut settings = sending(settings(&["lo"], &name, source), group(), &config);
            settings.member.realm = realm;
            settings
        });
        let all = Barrier::new(settings.len());
        let nodes: Vec<_> = std::thread::scope(|scope| {
            let (bus, all) = (&bus, &all);
            let start = |settings| {
                scope.spawn(move || {
                    all.wait();
                    Node::new(bus, settings)
                })
            };
            let starting = settings.each_ref().map(start);
            starting.into_iter().map(|it| it.join().unwrap()).collect()
        });
        let refused = nodes.iter().filter(|it| matches!(it, Err(NodeError::Overlap(_))));
        assert_eq!(refused.count(), 2, "round {round}");
        assert!(nodes.iter().any(Result::is_ok), "round {round}");
    }
}
