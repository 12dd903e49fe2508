//! Programs that send and receive without a bus, over real sockets on the loopback interface.

use crate::support::{PATIENCE, config, group, settings};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use toroni_net::direct::{Direct, DirectError, Receive, Received, Send, SendError, Settings};
use toroni_net::membership::Membership;
use toroni_proto::config::Config;
use toroni_proto::id::{Source, Stream};

fn member(name: &str, source: u32) -> Membership {
    settings(&["lo"], name, source).member
}

fn sender(group: SocketAddr, config: &Config) -> Direct {
    let (patterns, to) = (vec!["**".to_owned()], vec![group]);
    let send = Send { stream: Stream(1), patterns, config: config.clone(), to };
    Direct::open(&Settings { member: member("a", 1), send: Some(send), receive: None }).unwrap()
}

fn receiver(group: SocketAddr, source: u32, config: &Config) -> Direct {
    let receive = Receive { groups: vec![group], config: config.clone() };
    let member = member(&format!("b{source}"), source);
    Direct::open(&Settings { member, send: None, receive: Some(receive) }).unwrap()
}

/// Lets both work until the receivers follow the sender.
fn meet(sender: &mut Direct, receivers: &mut [Direct]) {
    let begin = Instant::now();
    while receivers.iter().any(|it| it.streams() == 0) {
        assert!(begin.elapsed() < PATIENCE, "the receivers hear nothing");
        sender.turn().unwrap();
        receivers.iter_mut().for_each(|it| it.turn().unwrap());
    }
}

#[test]
fn every_receiver_gets_every_message_in_order() {
    let (group, config) = (group(), config(200_000_000));
    let mut sending = sender(group, &config);
    let mut receivers = [2, 3].map(|source| receiver(group, source, &config));
    meet(&mut sending, &mut receivers);
    let count = 20_000_u64;
    let length = |number: u64| usize::try_from(number % 300).unwrap() + 8;
    let finished = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for mut receiver in receivers {
            let finished = &finished;
            scope.spawn(move || {
                let mut next = 0_u64;
                let begin = Instant::now();
                while next < count {
                    assert!(begin.elapsed() < PATIENCE, "{next} of {count} came");
                    match receiver.receive(Duration::from_secs(1)).unwrap() {
                        None => {}
                        Some(Received::Lost { loss, .. }) => panic!("after {next}: {loss:?}"),
                        Some(Received::Message { topic, payload, number, flow, .. }) => {
                            assert_eq!((flow.source, number.get()), (Source(1), next));
                            assert_eq!(topic, format!("t/{}", next % 10));
                            assert_eq!(payload.len(), length(next));
                            assert_eq!(payload[..8], next.to_le_bytes());
                            next += 1;
                        }
                    }
                }
                finished.fetch_add(1, Ordering::Relaxed);
            });
        }
        for number in 0..count {
            let mut payload = vec![7; length(number)];
            payload[..8].copy_from_slice(&number.to_le_bytes());
            sending.send(&format!("t/{}", number % 10), &payload).unwrap();
        }
        // Until then they may ask for repairs.
        let begin = Instant::now();
        while finished.load(Ordering::Relaxed) < 2 && begin.elapsed() < PATIENCE {
            sending.turn().unwrap();
            sending.sleep(Some(Duration::from_millis(10))).unwrap();
        }
    });
}

#[test]
fn what_cannot_be_sent_is_refused_and_the_rest_goes_on() {
    let small = Config { window_bytes: 1 << 16, message_max_bytes: 1 << 14, ..config(1_000_000) };
    let group = group();
    let mut sending = sender(group, &small);
    let refused = |outcome: Result<(), SendError>, wanted: &str| {
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    };
    refused(sending.send("a/*", b""), "\"a/*\" is no topic");
    refused(sending.send("", b""), "\"\" is no topic");
    refused(sending.send("a", &[0; 20_000]), "20000 bytes is longer than message_max, 16384 bytes");
    let mut sent = 0;
    let outcome = loop {
        match sending.try_send("a", &[0; 1_000]) {
            Ok(()) => sent += 1,
            other => break other,
        }
    };
    assert!(matches!(outcome, Err(SendError::Full)) && sent >= 30, "{sent}");
    // It waits for the rate, and has room again.
    sending.send("a", &[0; 1_000]).unwrap();
    sending.end();
    refused(sending.send("a", b""), "has ended");
    let mut deaf = receiver(group, 2, &small);
    refused(deaf.send("a", b""), "sends nothing");
    assert_eq!(deaf.receive(Duration::from_millis(1)).unwrap(), None);
}

#[test]
fn what_is_wrong_is_said_when_it_is_opened() {
    let (group, config) = (group(), config(1_000_000));
    let open = |name: &str, patterns: &[&str], to: &[&str]| {
        let patterns = patterns.iter().map(|it| (*it).to_owned()).collect();
        let to = to.iter().map(|it| it.parse().unwrap()).collect();
        let send = Send { stream: Stream(1), patterns, config: config.clone(), to };
        let settings = Settings { member: member(name, 1), send: Some(send), receive: None };
        Direct::open(&settings).map(drop).map_err(|error: DirectError| error.to_string())
    };
    let group = group.to_string();
    open("a", &["**"], &[&group]).unwrap();
    for (name, patterns, to, wanted) in [
        ("a\n", &["**"][..], &[&group[..]][..], "\"a\\n\" is no name of a node"),
        ("a", &["a//b"], &[&group], "\"a//b\" is no pattern"),
        ("a", &["a"; 17], &[&group], "at most 16 patterns"),
        ("a", &["a"], &[&group, "[::1]:5"], "by IPv4 or by IPv6"),
        ("a", &["a"], &[], "by IPv4 or by IPv6"),
    ] {
        let error = open(name, patterns, to).unwrap_err();
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn messages_of_one_call_share_datagrams() {
    let (group, config) = (group(), config(200_000_000));
    let mut sending = sender(group, &config);
    let mut receivers = [receiver(group, 2, &config)];
    meet(&mut sending, &mut receivers);
    let payloads: Vec<String> = (0..3_000).map(|number| format!("{number:>16}")).collect();
    let before = sending.sender_counters().unwrap().data;
    for burst in payloads.chunks(100) {
        sending.send_all("t", burst).unwrap();
    }
    // 100 messages of 16 bytes need two datagrams.
    let datagrams = sending.sender_counters().unwrap().data - before;
    assert!(datagrams <= 2 * 30 + 1, "{datagrams} datagrams");
    let (begin, mut next) = (Instant::now(), 0);
    while next < payloads.len() {
        assert!(begin.elapsed() < PATIENCE, "{next} came");
        sending.turn().unwrap();
        match receivers[0].try_receive().unwrap() {
            None => {}
            Some(Received::Message { payload, .. }) => {
                assert_eq!(payload, payloads[next].as_bytes());
                next += 1;
            }
            Some(lost) => panic!("{lost:?}"),
        }
    }
}

#[test]
fn a_message_that_is_refused_stops_the_ones_behind_it() {
    let limited = Config { message_max_bytes: 1_000, ..config(200_000_000) };
    let mut sending = sender(group(), &limited);
    let payloads = [vec![1; 10], vec![2; 10], vec![3; 1_001], vec![4; 10]];
    assert_eq!(sending.try_send_all("t", &payloads).unwrap(), 2);
    let refused = sending.try_send_all("t", &payloads[2..]);
    assert!(matches!(refused, Err(SendError::TooLong { length: 1_001, limit: 1_000 })));
    assert_eq!(sending.try_send_all::<&[u8]>("t", &[]).unwrap(), 0);
}
