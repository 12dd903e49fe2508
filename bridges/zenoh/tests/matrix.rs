//! What subscribers of a receiving bus learn, whatever becomes of the two bridges and of their hosts: real processes on the loopback
//! interface. The table is in [`toroni_testkit::reports`].
//!
//! A bridge keeps no state beside the bus, so nothing becomes of that. One that has no time to send all needs a slow link:
//! see `exporter.rs`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{LONG, free_port, wait_until};
use rustix::process::Signal;
use std::time::Duration;
use toroni::{Bus, BusConfig, LostBound, ReceiveError, Subscriber};
use toroni_testkit::directory::copy;
use toroni_testkit::reports::{
    self, Back, Case, End, LATER, MISSED, Receiver, Restored, Sender, State, Way,
};
use toroni_testkit::{Directory, Program, Random};

/// The port of the bridge that relays.
const RELAY: usize = 3;
/// Longer than it takes to notice that an exporter is silent.
const SILENCE: Duration = Duration::from_secs(14);

/// Two hosts, of which one sends to the other: directly, or to a third one between them, which relays.
struct Pair {
    root: Directory,
    batches: bool,
    ports: [u16; 4],
    relay: Option<Program>,
    from: Option<Bus>,
    to: Bus,
    subscriber: Subscriber,
    sender: Option<Program>,
    receiver: Option<Program>,
    next: u32,
}

impl Pair {
    /// Five messages are delivered.
    fn new(batches: bool, is_relayed: bool) -> Self {
        let root = Directory::new();
        let (from, to) = (bus(&root, "a"), bus(&root, "b"));
        let mut pair = Self {
            batches,
            ports: [(); 4].map(|()| free_port()),
            relay: None,
            from: Some(from),
            subscriber: to.subscribe("t/**").unwrap(),
            to,
            root,
            sender: None,
            receiver: None,
            next: 0,
        };
        pair.start_sender();
        if is_relayed {
            drop(bus(&pair.root, "relay"));
            let section = format!("[[export]]\npatterns = ['**']\nrelay = true\n{}", pair.import());
            let mut relay = pair.start("relay", &section, RELAY, &[0]);
            relay.wait_ready();
            pair.relay = Some(relay);
        }
        pair.receiver = Some(pair.start_receiver(1));
        pair.connect();
        pair.publish(5);
        assert_eq!(pair.told_until("4"), ["0", "1", "2", "3", "4"]);
        pair
    }

    /// Starts a bridge of a bus that listens at one of the ports, and connects to some.
    fn start(&self, bus: &str, section: &str, listens: usize, connects: &[usize]) -> Program {
        let endpoint = |at: usize| format!("'tcp/127.0.0.1:{}'", self.ports[at]);
        let ends: Vec<_> = connects.iter().copied().map(endpoint).collect();
        let text = format!(
            "bus = {{ name = 'default', directory = '{}' }}\nheartbeat = '200ms'\nsettle = '300ms'\n{section}\n\
             [zenoh]\nlisten = {{ endpoints = [{}] }}\nconnect = {{ endpoints = [{}] }}\n\
             scouting = {{ multicast = {{ enabled = false }}, gossip = {{ enabled = false }} }}\n",
            self.root.join(bus).display(),
            endpoint(listens),
            ends.join(", ")
        );
        let path = self.root.join(format!("bridge-{listens}.toml"));
        common::start_program(&path, &text)
    }

    fn start_sender(&mut self) {
        let mut sender = self.start("a", "[[export]]\npatterns = ['**']\n", 0, &[]);
        sender.wait_ready();
        self.sender = Some(sender);
    }

    fn import(&self) -> String {
        format!("[[import]]\npatterns = ['**']\nbatches = {}\n", self.batches)
    }

    /// Starts a bridge that imports, at the second port or the third.
    fn start_receiver(&self, port: usize) -> Program {
        let from = if self.relay.is_some() { RELAY } else { 0 };
        let connects: Vec<_> = std::iter::once(from).chain(1..port).collect();
        let mut receiver = self.start("b", &self.import(), port, &connects);
        if port == 1 {
            receiver.wait_ready();
        } else {
            receiver.wait_for_error("StandBy");
        }
        receiver
    }

    /// Publishes beside the messages until one arrives: the receiver has joined the sender.
    fn connect(&self) {
        let mut subscriber = self.to.subscribe("probe").unwrap();
        let publisher = self.from.as_ref().unwrap().publisher("probe").unwrap();
        wait_until("the receiver has joined the sender", || {
            publisher.publish(b"").unwrap();
            loop {
                match subscriber.receive_timeout(Duration::from_millis(100)) {
                    Ok(message) => return message.is_some(),
                    Err(ReceiveError::Lost(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
    }

    /// Publishes the next numbers.
    fn publish(&mut self, count: u32) {
        let publisher = self.from.as_ref().unwrap().publisher("t/a").unwrap();
        for _ in 0..count {
            publisher.publish(self.next.to_string()).unwrap();
            self.next += 1;
        }
    }

    /// As after a reboot: the bus of the sending host is a new one.
    fn empty_bus(&mut self) {
        self.from = None;
        std::fs::remove_dir_all(self.root.join("a")).unwrap();
        self.from = Some(bus(&self.root, "a"));
    }

    fn back_up(&mut self) {
        self.from = None;
        copy(&self.root.join("a"), &self.root.join("copy"));
        self.from = Some(bus(&self.root, "a"));
    }

    fn restore(&mut self, how: Restored) {
        self.from = None;
        if how == Restored::Copied {
            std::fs::remove_dir_all(self.root.join("a")).unwrap();
        }
        copy(&self.root.join("copy"), &self.root.join("a"));
        self.from = Some(bus(&self.root, "a"));
    }

    fn empty_receiving_bus(&mut self) {
        std::fs::remove_dir_all(self.root.join("b")).unwrap();
        self.to = bus(&self.root, "b");
        self.subscriber = self.to.subscribe("t/**").unwrap();
    }

    /// Returns the next messages and losses, up to this one, or to the time when there should have been one.
    fn told_until(&mut self, last: &str) -> Vec<String> {
        let mut all = Vec::new();
        while all.last().is_none_or(|it| it != last)
            && let Some(next) = self.next(LONG)
        {
            all.push(next);
        }
        all
    }

    /// Returns the next message or loss, if there is one in time.
    fn next(&mut self, limit: Duration) -> Option<String> {
        match self.subscriber.receive_timeout(limit) {
            Ok(message) => Some(message?.text().into_owned()),
            Err(ReceiveError::Lost(lost)) => {
                let bound = match lost.bound {
                    LostBound::AtLeast => ">=",
                    LostBound::AtMost => "<=",
                    _ => "=",
                };
                Some(format!("{bound}{} {:?}", lost.messages, lost.reason))
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn bus(root: &Directory, name: &str) -> Bus {
    BusConfig::new().directory(root.join(name)).capacity(1 << 20).open("default").unwrap()
}

fn end(bridge: &mut Option<Program>, end: End) {
    let mut bridge = bridge.take().unwrap();
    bridge.signal(if end == End::Killed { Signal::KILL } else { Signal::TERM });
    assert_eq!(bridge.wait().success(), end == End::InOrder);
}

/// Returns the case whose reports come by a relay, which lives.
fn told_by_a_relay(case: Case) -> Case {
    let receiver = match (case.receiver, case.sender) {
        // It knows that the sender has sent all.
        (Receiver::Killed | Receiver::BringerKilled, Sender::Drained(Back::Never))
        // It tells a new bus what it has noticed.
        | (
            Receiver::Emptied,
            Sender::Emptied(_) | Sender::Restored(_) | Sender::Killed(Back::Never),
        ) => Receiver::Lives,
        (receiver, _) => receiver,
    };
    Case { receiver, ..case }
}

fn play(case: &Case, batches: bool, is_relayed: bool) {
    let mut pair = Pair::new(batches, is_relayed);
    let expected = if is_relayed { told_by_a_relay(*case) } else { *case };
    let mut standby = None;
    if matches!(case.receiver, Receiver::StandbyKilled | Receiver::BringerKilled) {
        standby = Some(pair.start_receiver(2));
    }
    if case.sender.goes_back() {
        end(&mut pair.sender, End::InOrder);
        pair.back_up();
        pair.start_sender();
        pair.publish(5);
        assert_eq!(pair.told_until("9"), MISSED, "{case:?}");
    }
    match case.receiver {
        Receiver::Lives => {}
        Receiver::StandbyKilled => end(&mut standby, End::Killed),
        _ => end(&mut pair.receiver, End::Killed),
    }
    if case.receiver == Receiver::BringerKilled {
        pair.receiver = standby.take();
    }
    match case.sender {
        Sender::Lives => pair.publish(5),
        Sender::Drained(_) => {
            end(&mut pair.sender, End::InOrder);
            pair.publish(5);
        }
        Sender::Killed(_) => {
            end(&mut pair.sender, End::Killed);
            pair.publish(5);
        }
        Sender::Emptied(how) => {
            end(&mut pair.sender, how);
            pair.publish(5);
            pair.empty_bus();
        }
        Sender::Restored(how) => {
            end(&mut pair.sender, End::Killed);
            pair.restore(how);
        }
        Sender::Undrained(_) | Sender::OldState => unreachable!("not in this table"),
    }
    if case.sender.comes_back() && case.sender != Sender::Lives {
        pair.start_sender();
    }
    if case.receiver == Receiver::Emptied {
        pair.empty_receiving_bus();
    }
    if matches!(case.receiver, Receiver::Killed | Receiver::Emptied) {
        pair.receiver = Some(pair.start_receiver(1));
    }
    let (_, wanted) = expected.expected();
    if case.sender.comes_back() {
        pair.connect();
        // Only who waits for what was said before publishes what follows it.
        let first: Vec<_> = wanted.iter().copied().take_while(|it| *it != LATER[0]).collect();
        let mut told = first.last().map_or_else(Vec::new, |last| pair.told_until(last));
        pair.next = 10;
        pair.publish(2);
        told.extend(pair.told_until(LATER[1]));
        expected.compare(&told);
    } else {
        let told = wanted.last().map_or_else(Vec::new, |last| pair.told_until(last));
        expected.compare(&told);
        assert_eq!(pair.next(SILENCE), None, "{case:?}");
    }
    for bridge in [&mut pair.receiver, &mut pair.relay, &mut pair.sender] {
        if bridge.is_some() {
            end(bridge, End::InOrder);
        }
    }
    assert_eq!(pair.next(Duration::ZERO), None, "{case:?}");
}

const SENDERS: [Sender; 9] = [
    Sender::Lives,
    Sender::Drained(Back::Comes),
    Sender::Drained(Back::Never),
    Sender::Killed(Back::Comes),
    Sender::Killed(Back::Never),
    Sender::Emptied(End::InOrder),
    Sender::Emptied(End::Killed),
    Sender::Restored(Restored::Copied),
    Sender::Restored(Restored::Reverted),
];

/// The whole table, with samples and with batches.
fn cases() -> Vec<(Case, bool)> {
    let receivers = [
        Receiver::Lives,
        Receiver::Killed,
        Receiver::Emptied,
        Receiver::StandbyKilled,
        Receiver::BringerKilled,
    ];
    let mut all = Vec::new();
    for receiver in receivers {
        for sender in SENDERS {
            let case = Case { receiver, sender, state: State::Kept, way: Way::Zenoh };
            all.extend([(case, false), (case, true)]);
        }
    }
    all
}

/// Some cases, or all as a long test, or those whose text contains `$TORONI_CASE`.
#[test]
fn subscribers_learn_what_the_table_says() {
    // A sender that has sent all is the only one of which nothing is reported.
    let is_all = |Case { receiver, sender, .. }: &Case| {
        (*receiver, *sender) == (Receiver::Lives, Sender::Drained(Back::Never))
    };
    let is_drawn = |random: &mut Random, (case, batches): &(Case, bool)| {
        is_all(case) && *batches || random.below(12) == 0
    };
    reports::play(cases(), 2, is_drawn, |(case, batches)| play(case, *batches, false));
}

/// As before, with a relay between the two.
#[test]
fn subscribers_behind_a_relay_learn_what_the_table_says() {
    let is_drawn = |random: &mut Random, _: &(Case, bool)| random.below(24) == 0;
    reports::play(cases(), 2, is_drawn, |(case, batches)| play(case, *batches, true));
}
