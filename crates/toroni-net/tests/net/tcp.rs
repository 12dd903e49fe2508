//! Nodes on TCP: beside multicast, and over a cable that is cut.

use crate::support::{
    PATIENCE, Running, buses, config, everything, group, receive, receiving, sending, settings,
};
use std::net::SocketAddr;
use std::time::Duration;
use toroni::{LostBound, LostReason, ReceiveError};
use toroni_net::node::Settings;
use toroni_net::node::tcp::{Connect, Listen};
use toroni_proto::config::tcp::TcpConfig;
use toroni_proto::time::{MILLISECOND, SECOND};
use toroni_testkit::Directory;
use toroni_testkit::network::Setup;
use toroni_testkit::port::free;

/// Connections are given up early, and nothing becomes too old: a busy machine may be late.
fn tcp() -> TcpConfig {
    TcpConfig {
        latency_bound_ns: 9 * SECOND,
        heartbeat_ns: 100 * MILLISECOND,
        silence_ns: SECOND,
        retry_ns: 20 * MILLISECOND,
        retry_max_ns: 100 * MILLISECOND,
        clients: 8,
        sets: 8,
        ..TcpConfig::default()
    }
}

fn listening(settings: Settings, address: SocketAddr) -> Settings {
    let listen = Listen { address, patterns: everything(), config: tcp() };
    Settings { listen: Some(listen), ..settings }
}

fn connecting(settings: Settings, address: SocketAddr) -> Settings {
    let connect = Connect {
        address: address.into(),
        patterns: everything(),
        bind: None,
        activity: Duration::from_secs(10),
        lost_scope: None,
        retains: false,
        config: tcp(),
    };
    Settings { connect: vec![connect], ..settings }
}

fn text(number: usize) -> Vec<u8> {
    format!("{number:>200}").into_bytes()
}

/// The same stream comes by multicast and over TCP, and each message arrives once, in order.
#[test]
fn what_comes_by_two_ways_arrives_once() {
    let directory = Directory::new();
    let [from, to] = buses(&directory);
    let (group, address, config) = (group(), free(), config(400_000_000));
    let mut subscriber = to.subscribe("**").unwrap();
    let both = listening(sending(settings(&["lo"], "a", 1), group, &config), address);
    let _sender = Running::start(&from, &both);
    let both = connecting(receiving(settings(&["lo"], "b", 2), group, &config), address);
    let receiver = Running::start(&to, &both);
    receiver.has_joined(1);
    receiver.has_connected(1);
    let publisher = from.publisher("t").unwrap();
    let count = 20_000;
    for number in 0..count {
        publisher.publish(text(number)).unwrap();
    }
    let received = receive(&mut subscriber, count);
    assert!(
        received
            .iter()
            .map(|(_, payload)| payload)
            .eq((0..count).map(text).collect::<Vec<_>>().iter())
    );
    // What came again by the slower way would stand before this.
    publisher.publish("last").unwrap();
    assert_eq!(receive(&mut subscriber, 1)[0].1, b"last");
}

/// What is too long for it is lost, and only that. Other clients get it.
#[test]
fn a_client_that_takes_shorter_messages_than_the_server_sends_keeps_its_connection() {
    const MOST: u64 = 1_000;
    let directory = Directory::new();
    let [from, to] = buses(&directory);
    let other = toroni::BusConfig::new().directory(directory.path()).open("other").unwrap();
    let mut subscribers = [&to, &other].map(|bus| bus.subscribe("**").unwrap());
    let address = free();
    let server = Running::start(&from, &listening(settings(&["lo"], "a", 1), address));
    let mut short = connecting(settings(&["lo"], "b", 2), address);
    short.connect[0].config.message_max_bytes = MOST;
    let clients = [
        Running::start(&to, &short),
        Running::start(&other, &connecting(settings(&["lo"], "c", 3), address)),
    ];
    clients.iter().for_each(|client| client.has_connected(1));
    let publisher = from.publisher("t").unwrap();
    // Of each length, some that share a frame with others, and some that go in parts.
    let lengths = [10, MOST, MOST + 1, 20, 100_000, 30];
    let lengths: Vec<usize> = lengths.map(|it| usize::try_from(it).unwrap()).repeat(10);
    for length in &lengths {
        publisher.publish(vec![7; *length]).unwrap();
    }
    let most = usize::try_from(MOST).unwrap();
    for (at, subscriber) in subscribers.iter_mut().enumerate() {
        for length in &lengths {
            match subscriber.receive_timeout(PATIENCE) {
                Ok(message) => assert_eq!(message.unwrap().payload().len(), *length),
                Err(ReceiveError::Lost(lost)) => {
                    assert!(at == 0 && *length > most, "{lost}");
                    let said = (lost.messages, lost.bound, lost.reason);
                    assert_eq!(said, (1, LostBound::Exact, LostReason::TooLong));
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    clients.iter().for_each(|client| assert_eq!(client.disconnections(), 0));
    drop(server);
}

/// While the cable is cut, messages wait in the ring of the source.
#[test]
fn a_connection_that_is_cut_continues_where_it_was() {
    let Some(network) = Setup::new(2).bridged() else { return };
    let [near, far] = &network.hosts[..] else { panic!() };
    let directory = Directory::new();
    let [from, to] = buses(&directory);
    let mut subscriber = to.subscribe("**").unwrap();
    let address = SocketAddr::new(near.address().into(), 4480);
    let listening = near.enter(|| listening(settings(&["eth0"], "a", 1), address));
    let _server = near.enter(|| Running::start(&from, &listening));
    let connecting = far.enter(|| connecting(settings(&["eth0"], "b", 2), address));
    let client = far.enter(|| Running::start(&to, &connecting));
    let publisher = from.publisher("t").unwrap();
    let mut published = 0;
    for round in 1..4 {
        client.has_connected(round);
        for _ in 0..2_000 {
            publisher.publish(text(published)).unwrap();
            published += 1;
        }
        // The rest may be on the cable.
        let come = receive(&mut subscriber, 1_000);
        network.cut(1, 0);
        for _ in 0..2_000 {
            publisher.publish(text(published)).unwrap();
            published += 1;
        }
        client.has_disconnected(round);
        network.rejoin(1, 0);
        let received = [come, receive(&mut subscriber, 3_000)].concat();
        for (at, (_, payload)) in received.into_iter().enumerate() {
            assert_eq!(payload, text(published - 4_000 + at), "round {round}");
        }
    }
}
