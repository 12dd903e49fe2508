//! Settings of a node whose effect only real processes show.

use crate::nodes::{file, group, receiving, sending, start};
use crate::support::{Buses, LIMIT};
use std::process::Command;
use toroni::{Bus, BusConfig, Policy, ReceiveError, Subscriber};

fn bus(buses: &Buses, name: &str, policy: Policy, capacity: u64) -> Bus {
    let config = BusConfig::new().directory(buses.path()).policy(policy).capacity(capacity);
    config.open(name).unwrap()
}

/// Receives until this text comes. Returns how often a loss was reported before it.
fn losses_before(subscriber: &mut Subscriber, last: &str) -> usize {
    let mut losses = 0;
    loop {
        match subscriber.receive_timeout(LIMIT) {
            Ok(Some(message)) if message.text() == last => return losses,
            Ok(Some(_)) => {}
            Ok(None) => panic!("{last:?} never came"),
            Err(ReceiveError::Lost(_)) => losses += 1,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn realtime_gives_the_node_its_class_and_priority() {
    let buses = Buses::new();
    let path = file(&buses, "a", &format!("realtime = 5\n{}", receiving(&group())));
    let may = Command::new("chrt").args(["-f", "5", "true"]).status().unwrap().success();
    if !may {
        // A container may lack the right. Then the node says what it needs.
        return crate::nodes::refused(&buses, &path, "cannot run with SCHED_FIFO, priority 5: ");
    }
    let node = start(&buses, &path);
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", node.id())).unwrap();
    // man 5 proc: after the name in parentheses comes field 3; 40 is the priority, and 41 the class, where FIFO is 1.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    assert_eq!((fields[40 - 3], fields[41 - 3]), ("5", "1"), "{stat}");
}

/// Those who want one of these topics learn of a loss, and others do not, although the stream may bring them.
#[test]
fn lost_scope_chooses_who_learns_of_a_loss() {
    let buses = Buses::new();
    let group = group();
    let from = bus(&buses, "from", Policy::Overwrite, 64 << 10);
    let to = bus(&buses, "to", Policy::default(), 8 << 20);
    let [mut alarms, mut plant] = ["alarm/**", "plant/**"].map(|it| to.subscribe(it).unwrap());
    let scope = format!("{}lost_scope = ['alarm/**']\n", receiving(&group));
    let receiver = start(&buses, &file(&buses, "to", &scope));
    let sender = start(&buses, &file(&buses, "from", &sending(&group)));
    receiver.wait_for_error("follows stream 1 of from (source ");
    let publish = |topic: &str, text: &str| from.publisher(topic).unwrap().publish(text).unwrap();
    for topic in ["alarm/a", "plant/a"] {
        publish(topic, "first");
    }
    for subscriber in [&mut alarms, &mut plant] {
        assert_eq!(losses_before(subscriber, "first"), 0);
    }
    // More than the ring holds, while the node does not read.
    sender.stop();
    for _ in 0..2_000 {
        publish("plant/a", &"x".repeat(100));
    }
    for topic in ["alarm/a", "plant/a"] {
        publish(topic, "last");
    }
    sender.resume();
    assert_eq!(losses_before(&mut alarms, "last"), 1);
    assert_eq!(losses_before(&mut plant, "last"), 0);
}

#[test]
fn an_uncontrolled_stream_has_no_rate_and_is_repaired() {
    let buses = Buses::new();
    let group = group();
    let wait = Policy::Wait { limit: Some(LIMIT) };
    let [from, to] = ["from", "to"].map(|name| bus(&buses, name, wait, 8 << 20));
    let mut subscriber = to.subscribe("**").unwrap();
    let uncontrolled = sending(&group).replace(
        "data_rate = '20Mbit/s'",
        "policy = 'uncontrolled'\ngating = true\nretransmit_rate = '50Mbit/s'",
    );
    assert!(uncontrolled.contains("uncontrolled"));
    let receiver = start(&buses, &file(&buses, "to", &receiving(&group)));
    let _sender = start(&buses, &file(&buses, "from", &uncontrolled));
    receiver.wait_for_error("follows stream 1 of from (source ");
    let publisher = from.publisher("t").unwrap();
    let publishing = std::thread::spawn(move || {
        for number in 0..3_000 {
            publisher.publish(format!("{number:>500}")).unwrap();
        }
    });
    for number in 0..3_000 {
        let message = subscriber.receive_timeout(LIMIT).unwrap().expect("a message");
        assert_eq!(message.text().trim_start(), number.to_string());
    }
    publishing.join().unwrap();
}
