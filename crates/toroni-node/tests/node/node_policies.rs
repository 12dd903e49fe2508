//! Nodes on hosts of their own, and slow receivers: who waits for them, and what the others notice.

use crate::hosts;
use crate::support::{Buses, LIMIT, wait_until};
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use toroni::{Bus, BusConfig, LostBound, Policy, Publisher, ReceiveError, Subscriber};
use toroni_testkit::Program;
use toroni_testkit::network::{Host, Setup};

const FOREVER: Policy = Policy::Wait { limit: None };

/// A bus of a test, which its node finds there.
fn bus(buses: &Buses, name: &str, policy: Policy) -> Bus {
    let config = BusConfig::new().directory(buses.path()).policy(policy);
    config.capacity(1 << 20).open(name).unwrap()
}

/// Starts the node of a host, whose name is also that of its bus.
fn start(buses: &Buses, host: &Host, name: &str, more: &str) -> Program {
    let mut node = Program::start_with_ready_fd(command(buses, host, name, more));
    node.wait_ready();
    node
}

fn command(buses: &Buses, host: &Host, name: &str, more: &str) -> Command {
    let path = buses.path().join(format!("{name}.toml"));
    let node = format!("[node]\nrealm = 'test'\nname = '{name}'\nbus = '{name}'\n{more}");
    std::fs::write(&path, node).unwrap();
    hosts::on(host, buses, &["node", "--config", path.to_str().unwrap()])
}

/// A stream whose sender keeps 2 MiB, and its receivers 512 KiB.
fn sending(more: &str) -> String {
    format!(
        "[[send]]\nstream = 1\npatterns = ['**']\ndata_rate = '20Mbit/s'\nwindow = '2MiB'\nmessage_max = '64KiB'\n{more}"
    )
}

fn receiving(more: &str) -> String {
    format!("[[receive]]\nmessage_max = '64KiB'\nreorder_memory = '512KiB'\n{more}")
}

fn slowest(hold_limit: &str) -> String {
    sending(&format!(
        "policy = 'slowest'\nrequired = ['b']\ngroup_min = 1\nhold_limit = '{hold_limit}'\n"
    ))
}

fn payload(number: u64) -> Vec<u8> {
    format!("{number:>1000}").into_bytes()
}

/// Publishes these numbers, and counts them.
fn publish(publisher: &Publisher, numbers: std::ops::Range<u64>, published: &AtomicU64) {
    for number in numbers {
        publisher.publish(payload(number)).unwrap();
        published.store(number + 1, Ordering::Release);
    }
}

/// What a subscriber was given: numbers that grow, and exact losses between them.
#[derive(Debug, Default)]
struct Given {
    messages: u64,
    lost: u64,
    lapped: u64,
}

impl Given {
    /// How many messages were received or reported: the number of the next.
    fn next(&self) -> u64 {
        self.messages + self.lost + self.lapped
    }

    /// Takes all up to the message with this number. Each one that is missing must have been reported.
    fn until(&mut self, last: u64, subscriber: &mut Subscriber) {
        let begin = Instant::now();
        while self.next() <= last {
            assert!(begin.elapsed() < LIMIT, "{self:?}, and not {last}");
            match subscriber.receive_timeout(Duration::from_secs(1)) {
                Ok(Some(message)) => {
                    let number: u64 = message.text().trim().parse().unwrap();
                    assert_eq!(number, self.next(), "after {self:?}");
                    self.messages += 1;
                }
                Ok(None) => {}
                Err(ReceiveError::Lost(lost)) => {
                    assert_eq!(lost.bound, LostBound::Exact, "{lost}");
                    self.lost += lost.messages;
                }
                Err(ReceiveError::Lapped { lost_messages, .. }) => self.lapped += lost_messages,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn waits(bus: &Bus) -> u64 {
    bus.stats().unwrap().publishers.unwrap().iter().map(|publisher| publisher.waits).sum()
}

#[test]
fn a_slow_required_receiver_holds_the_sender_and_nothing_is_lost() {
    let Some(network) = Setup::new(2).bridged() else { return };
    let [near, far] = &network.hosts[..] else { panic!() };
    let buses = Buses::new();
    let [from, to] = ["a", "b"].map(|name| bus(&buses, name, FOREVER));
    let mut subscriber = to.subscribe("**").unwrap();
    let receiver = start(&buses, far, "b", &receiving("required = true\n"));
    let _sender = start(&buses, near, "a", &slowest("60s"));
    receiver.wait_for_error("follows stream 1 of a ");
    let published = AtomicU64::new(0);
    // Ten times what both rings and the receive buffers hold.
    let last = 20_000;
    std::thread::scope(|scope| {
        scope.spawn(|| publish(&from.publisher("t").unwrap(), 0..last, &published));
        // The other bus is full, so the receiver's buffers fill, the sender waits, and the publisher waits for it.
        wait_until("the publisher waits", || waits(&from) > 0);
        let held = published.load(Ordering::Acquire);
        assert!(held < last / 2, "{held} were published while none was received");
        let mut given = Given::default();
        given.until(last - 1, &mut subscriber);
        assert_eq!((given.messages, given.lost, given.lapped), (last, 0, 0));
    });
}

#[test]
fn a_required_receiver_that_takes_nothing_is_put_out_and_comes_back() {
    let Some(network) = Setup::new(2).bridged() else { return };
    let [near, far] = &network.hosts[..] else { panic!() };
    let buses = Buses::new();
    let [from, to] = ["a", "b"].map(|name| bus(&buses, name, FOREVER));
    let mut subscriber = to.subscribe("**").unwrap();
    let receiver = start(&buses, far, "b", &receiving("required = true\n"));
    let sender = start(&buses, near, "a", &slowest("2s"));
    receiver.wait_for_error("follows stream 1 of a ");
    let publisher = from.publisher("t").unwrap();
    let published = AtomicU64::new(0);
    let last = 10_000;
    // Nothing is received, and all is published: after two seconds the sender goes on without the other node.
    publish(&publisher, 0..last, &published);
    sender.wait_for_error("no longer waits for b: it takes nothing");
    let mut given = Given::default();
    // It learns of its loss when it has taken what it had. Once it has caught up, the sender waits for it again.
    std::thread::scope(|scope| {
        let more = scope.spawn(|| {
            let mut numbers = last..;
            while !sender.errors().contains("waits for b again") {
                let number = numbers.next().unwrap();
                publish(&publisher, number..number + 1, &published);
                std::thread::sleep(Duration::from_millis(5));
            }
            numbers.next().unwrap()
        });
        while !more.is_finished() {
            let target = published.load(Ordering::Acquire) - 1;
            given.until(target, &mut subscriber);
        }
        let next = more.join().unwrap();
        publish(&publisher, next..next + 100, &published);
        given.until(next + 99, &mut subscriber);
    });
    assert!(given.lost > 0 && given.lapped == 0, "{given:?}");
}

#[test]
fn a_required_receiver_that_is_stopped_is_put_out_and_comes_back() {
    let Some(network) = Setup::new(2).bridged() else { return };
    let [near, far] = &network.hosts[..] else { panic!() };
    let buses = Buses::new();
    let [from, to] = ["a", "b"].map(|name| bus(&buses, name, FOREVER));
    let mut subscriber = to.subscribe("**").unwrap();
    let receiver = start(&buses, far, "b", &receiving("required = true\n"));
    let sender = start(&buses, near, "a", &slowest("30s"));
    receiver.wait_for_error("follows stream 1 of a ");
    let (publisher, published) = (from.publisher("t").unwrap(), AtomicU64::new(0));
    let mut given = Given::default();
    publish(&publisher, 0..100, &published);
    given.until(99, &mut subscriber);
    receiver.stop();
    // More than the sender's window, and than the socket of the other one holds.
    publish(&publisher, 100..20_000, &published);
    sender.wait_for_error("no longer waits for b: it is silent");
    receiver.resume();
    let mut number = 20_000;
    while !sender.errors().contains("waits for b again") {
        publish(&publisher, number..number + 1, &published);
        given.until(number, &mut subscriber);
        number += 1;
    }
    publish(&publisher, number..number + 100, &published);
    given.until(number + 99, &mut subscriber);
    assert!(given.lost > 0 && given.lapped == 0, "{given:?}");
}

/// Its log, its notices and systemd learn why nothing is sent.
#[test]
fn a_sender_says_that_it_waits_for_its_group() {
    let Some(network) = Setup::new(2).bridged() else { return };
    let [near, far] = &network.hosts[..] else { panic!() };
    let buses = Buses::new();
    let [from, to] = ["a", "b"].map(|name| bus(&buses, name, FOREVER));
    let mut subscriber = to.subscribe("**").unwrap();
    let systemd = UnixDatagram::bind(buses.path().join("notify")).unwrap();
    systemd.set_read_timeout(Some(LIMIT)).unwrap();
    let told = |wanted: &str| {
        let mut bytes = [0; 1_000];
        loop {
            let length = systemd.recv(&mut bytes).unwrap();
            if String::from_utf8_lossy(&bytes[..length]).contains(wanted) {
                return;
            }
        }
    };
    let mut command = command(&buses, near, "a", &slowest("60s"));
    command.env("NOTIFY_SOCKET", buses.path().join("notify"));
    let mut sender = Program::start_with_ready_fd(command);
    sender.wait_ready();
    sender.wait_for_error(
        "stream 1: sends nothing yet: its group lacks 1 required receiver; not there: b level=warn event=group_waits",
    );
    told(
        "STATUS=sends 1 stream to 0 receivers, follows 0 streams, lost 0 messages; stream 1 waits for b",
    );
    from.publisher("t").unwrap().publish("1").unwrap();
    let _receiver = start(&buses, far, "b", &receiving("required = true\n"));
    sender.wait_for_error("stream 1: its group is complete");
    told("STATUS=sends 1 stream to 1 receiver, follows 0 streams, lost 0 messages");
    assert_eq!(subscriber.receive_timeout(LIMIT).unwrap().unwrap().text(), "1");
    let notices = BusConfig::new().directory(buses.path()).open_existing("node.test").unwrap();
    let builder = notices.subscriber().start(toroni::Start::Oldest);
    let mut notices = builder.pattern("receiver/group").build().unwrap();
    for missing in [1, 0] {
        let notice = notices.receive_timeout(LIMIT).unwrap().expect("a notice").text().into_owned();
        assert!(notice.contains(&format!("\"stream\":1,\"missing\":{missing}")), "{notice}");
    }
}

/// The third host has a subscriber that takes nothing, although its bus waits for ever.
#[test]
fn a_slow_receiver_that_is_not_required_harms_no_other() {
    let Some(network) = Setup::new(3).bridged() else { return };
    let [near, far, slow] = &network.hosts[..] else { panic!() };
    let buses = Buses::new();
    let [from, to, stuck] = ["a", "b", "c"].map(|name| bus(&buses, name, FOREVER));
    let mut subscriber = to.subscribe("**").unwrap();
    let mut lapped = stuck.subscribe("**").unwrap();
    let receivers = [(far, "b"), (slow, "c")]
        .map(|(host, name)| start(&buses, host, name, &receiving("required = true\n")));
    let _sender = start(&buses, near, "a", &sending("generation = '800ms'\n"));
    receivers.iter().for_each(|node| node.wait_for_error("follows stream 1 of a "));
    let (publisher, published) = (from.publisher("t").unwrap(), AtomicU64::new(0));
    let mut given = Given::default();
    let last = 5_000;
    for first in (0..last).step_by(100) {
        publish(&publisher, first..first + 100, &published);
        given.until(first + 99, &mut subscriber);
    }
    assert_eq!((given.messages, given.lost, given.lapped), (last, 0, 0));
    // Its own node was not blocked: it overtook the subscriber, which learns exactly what it has missed.
    wait_until("the node of the slow one has everything", || {
        stuck.stats().unwrap().sequence >= last
    });
    let mut given = Given::default();
    given.until(last - 1, &mut lapped);
    assert!(given.lapped > 0 && given.lost == 0, "{given:?}");
}

#[test]
fn each_group_has_its_own_bus_topics_and_sources() {
    let Some(network) = Setup::new(3).bridged() else { return };
    let [one, other, far] = &network.hosts[..] else { panic!() };
    let buses = Buses::new();
    let [a, b, to, apart] = ["a", "b", "c", "apart"].map(|name| bus(&buses, name, FOREVER));
    let mut subscriber = to.subscribe("**").unwrap();
    let mut separate = apart.subscribe("**").unwrap();
    let receiver = start(
        &buses,
        far,
        "c",
        "[[receive]]\nsources = ['a']\naccept = ['plant/**']\nprefix = 'site'\n\
         [[receive]]\ngroup = '239.192.84.80'\ninto = 'apart'\n",
    );
    let nodes = [(one, "a"), (other, "b")].map(|(host, name)| {
        let second = "[[send]]\nstream = 2\npatterns = ['office']\ngroup = '239.192.84.80'\ndata_rate = '1Mbit/s'\n";
        let first = "[[send]]\nstream = 1\npatterns = ['plant/**', 'other']\ndata_rate = '1Mbit/s'\n";
        start(&buses, host, name, &format!("{first}{second}"))
    });
    receiver.wait_for_error("follows stream 1 of a ");
    for name in ["a", "b"] {
        receiver.wait_for_error(&format!("follows stream 2 of {name} "));
    }
    for (bus, name) in [(&a, "a"), (&b, "b")] {
        for topic in ["plant/x", "other", "office"] {
            bus.publisher(topic).unwrap().publish(format!("{topic} of {name}")).unwrap();
        }
    }
    let take = |subscriber: &mut Subscriber, count: usize| {
        let mut list: Vec<_> = (0..count)
            .map(|_| {
                let message = subscriber.receive_timeout(LIMIT).unwrap().expect("a message");
                (message.topic().to_owned(), message.text().into_owned())
            })
            .collect();
        list.sort();
        list
    };
    let pair = |topic: &str, text: &str| (topic.to_owned(), text.to_owned());
    let wanted = [pair("office", "office of a"), pair("office", "office of b")];
    assert_eq!(take(&mut separate, 2), wanted);
    assert_eq!(take(&mut subscriber, 1), [pair("site/plant/x", "plant/x of a")]);
    assert!(!receiver.errors().contains("follows stream 1 of b "));
    // Two nodes with one id: also those that only send notice it.
    drop(nodes);
    let same = "id = 7\n";
    let send = "[[send]]\nstream = 1\npatterns = ['**']\ndata_rate = '1Mbit/s'\n";
    let nodes = [(one, "a"), (other, "b")]
        .map(|(host, name)| start(&buses, host, name, &format!("{same}{send}")));
    for node in &nodes {
        node.wait_for_error("has the same source id");
    }
}
