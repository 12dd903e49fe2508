//! Hosts whose bus and state are restored from a backup: what is published then has numbers that receivers have met already.

use crate::node_tcp::{address, bus, connect, leave, listen};
use crate::nodes::{file, start};
use crate::support::Buses;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use toroni::{BusConfig, LostReason, ReceiveError, Subscriber};
use toroni_testkit::{Directory, wait};

fn receive(subscriber: &mut Subscriber, count: usize) -> Vec<String> {
    let mut got = Vec::new();
    while got.len() < count {
        match subscriber.receive_timeout(wait::LIMIT) {
            Ok(Some(message)) => got.push(message.text().into_owned()),
            Ok(None) => panic!("no more than {got:?}"),
            Err(ReceiveError::Lost(lost)) => got.push(match lost.reason {
                LostReason::Restart => format!("{:?}", lost.reason),
                _ => panic!("{lost:?} after {got:?}"),
            }),
            Err(error) => panic!("{error}"),
        }
    }
    got
}

/// Sessions are seconds: a backup is not restored within one.
pub(crate) fn next_second() {
    let second = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let begun = second();
    while second() == begun {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Nothing says what was sent before. With `state`, there would be no loss.
#[test]
fn a_bus_on_a_disk_is_another_series_after_each_start_without_state() {
    let disk = Directory::below(env!("CARGO_TARGET_TMPDIR"));
    let (buses, address) = (Buses::new(), address());
    let config = BusConfig::new().directory(disk.path()).capacity(1 << 20);
    let (a, b) = (config.open("a").unwrap(), bus(&buses, "b", 1 << 20));
    let mut subscriber = b.subscribe("**").unwrap();
    let to = file(&buses, "b", &connect(address));
    let from = file(&buses, "a", &(listen(address) + "patterns = ['**']\n"));
    let directory = disk.path().to_str().unwrap();
    let text = std::fs::read_to_string(&from).unwrap();
    let on_disk = format!("bus = {{ name = 'a', directory = '{directory}' }}\n");
    let text = text.replace("bus = 'a'\n", &on_disk).replace("state = 'state-a'\n", "");
    std::fs::write(&from, text).unwrap();
    let receiver = start(&buses, &to);
    let publisher = a.publisher("t").unwrap();
    for (text, told) in [("first", &[][..]), ("second", &["Restart"])] {
        let sender = start(&buses, &from);
        if told.is_empty() {
            receiver.wait_for_error("connected to");
        } else {
            sender.wait_for_error("this node has no `state` that knows it");
        }
        publisher.publish(text.as_bytes()).unwrap();
        assert_eq!(receive(&mut subscriber, told.len() + 1), [told, &[text]].concat());
        leave(sender);
        next_second();
    }
    leave(receiver);
}
