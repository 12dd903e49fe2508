//! Two hosts, of which nodes end, come back, or do not, and what subscribers of the receiving one learn: real processes on the
//! loopback interface. `node_matrix.rs` has the table of all that may become of them.

use crate::node_tcp::{address, bus, leave, listen};
use crate::nodes::{file, group, start};
use crate::support::{Buses, LIMIT, wait_until};
use rustix::process::Signal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use toroni::{Bus, LostBound, ReceiveError, Subscriber};
use toroni_testkit::Program;
use toroni_testkit::directory::copy;
use toroni_testkit::reports::{End, Restored, Way};

const CAPACITY: u64 = 1 << 20;
/// After this time without a source, its silence is reported, where a test waits for that.
pub(crate) const SHORT: Duration = Duration::from_secs(3);
/// Longer than a node is away on any machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Two hosts, of which one sends to the other.
pub(crate) struct Pair {
    pub(crate) buses: Buses,
    way: Way,
    group: String,
    address: SocketAddr,
    activity: Duration,
    order: &'static str,
    pub(crate) from: Option<Bus>,
    pub(crate) to: Bus,
    subscriber: Subscriber,
    pub(crate) sender: Option<Program>,
    pub(crate) receiver: Option<Program>,
    pub(crate) next: u32,
}

impl Pair {
    /// Five messages are delivered. A source that is silent for `activity` is gone.
    pub(crate) fn new(way: Way, activity: Duration) -> Self {
        Self::in_order(way, activity, "source")
    }

    pub(crate) fn in_order(way: Way, activity: Duration, order: &'static str) -> Self {
        let buses = Buses::new();
        let to = bus(&buses, "b", CAPACITY);
        let subscriber = to.subscribe("**").unwrap();
        let mut pair = Self {
            from: Some(bus(&buses, "a", CAPACITY)),
            buses,
            way,
            group: group(),
            address: address(),
            activity,
            order,
            to,
            subscriber,
            sender: None,
            receiver: None,
            next: 0,
        };
        pair.start_sender();
        pair.start_receiver();
        pair.publish(5);
        assert_eq!(pair.told(5), ["0", "1", "2", "3", "4"]);
        pair
    }

    pub(crate) fn start_sender(&mut self) {
        self.start_sender_with("20Mbit/s", "");
    }

    /// The rate is that of the stream, and of history over TCP.
    pub(crate) fn start_sender_with(&mut self, rate: &str, of_node: &str) {
        let (group, activity) = (&self.group, self.activity.as_secs());
        let mut sections = String::new();
        if self.way != Way::Tcp {
            sections += &format!(
                "[[send]]\nstream = 1\npatterns = ['**']\ngroup = '{group}'\ndata_rate = '{rate}'\n\
                 generation = '500ms'\nsession_max = '200ms'\nactivity = '{activity}s'\nttl = 0\nloop = true\n"
            );
        }
        if self.way != Way::Multicast {
            sections += &listen(self.address);
            sections += &format!("patterns = ['**']\nreplay_rate = '{rate}'\n");
        }
        let path = file(&self.buses, "a", &format!("{of_node}\n{sections}"));
        self.sender = Some(start(&self.buses, &path));
    }

    pub(crate) fn start_receiver(&mut self) {
        let receiver = self.start_receiver_as("b");
        if self.sender.is_some() {
            let begins = if self.way == Way::Tcp { "connected to" } else { "follows" };
            receiver.wait_for_error(begins);
        }
        self.receiver = Some(receiver);
    }

    /// Starts a node of this name that receives to the bus.
    pub(crate) fn start_receiver_as(&self, name: &str) -> Program {
        let Self { group, address, activity, order, .. } = self;
        let activity = activity.as_secs();
        let mut sections = String::new();
        if self.way != Way::Tcp {
            sections += &format!(
                "[[receive]]\ngroup = '{group}'\ngeneration = '500ms'\nsession_max = '200ms'\n\
                 activity = '{activity}s'\norder = '{order}'\n"
            );
        }
        if self.way != Way::Multicast {
            sections += &format!(
                "[[connect]]\naddress = '{address}'\nretry = '20ms'\nactivity = '{activity}s'\n"
            );
        }
        let path = file(&self.buses, name, &sections);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace(&format!("bus = '{name}'"), "bus = 'b'")).unwrap();
        start(&self.buses, &path)
    }

    pub(crate) fn publish(&mut self, count: u32) {
        self.publish_padded(count, 0);
    }

    /// Publishes the next numbers, each with that many spaces after it.
    pub(crate) fn publish_padded(&mut self, count: u32, spaces: usize) {
        let publisher = self.from.as_ref().unwrap().publisher("t/a").unwrap();
        for _ in 0..count {
            publisher.publish(self.next.to_string() + &" ".repeat(spaces)).unwrap();
            self.next += 1;
        }
    }

    pub(crate) fn end_sender(&mut self, end: End) {
        self::end(self.sender.take().unwrap(), end);
    }

    pub(crate) fn end_receiver(&mut self, end: End) {
        self::end(self.receiver.take().unwrap(), end);
    }

    /// As after a reboot: the bus of the sending host is a new one.
    pub(crate) fn empty_bus(&mut self) {
        self.from = None;
        std::fs::remove_dir_all(self.buses.path().join("a")).unwrap();
        self.from = Some(bus(&self.buses, "a", CAPACITY));
    }

    /// Copies the bus and the state of the sending host, which no process uses.
    pub(crate) fn back_up(&mut self) {
        self.from = None;
        self.kept().iter().for_each(|(path, backup)| copy(path, backup));
        self.from = Some(bus(&self.buses, "a", CAPACITY));
    }

    /// Puts both back.
    pub(crate) fn restore(&mut self, how: Restored) {
        self.from = None;
        for (path, backup) in self.kept() {
            if how == Restored::Copied {
                std::fs::remove_dir_all(&path).unwrap();
            }
            copy(&backup, &path);
        }
        self.from = Some(bus(&self.buses, "a", CAPACITY));
    }

    pub(crate) fn restore_state(&mut self) {
        let [_, (path, backup)] = self.kept();
        copy(&backup, &path);
    }

    pub(crate) fn lose_state(&mut self) {
        let [_, (path, _)] = self.kept();
        std::fs::remove_dir_all(path).unwrap();
    }

    /// The directories of the bus and of the state, and where copies of them are.
    fn kept(&self) -> [(PathBuf, PathBuf); 2] {
        let path = |name: &str| self.buses.path().join(name);
        ["a", "state-a"].map(|name| (path(name), path(&format!("{name}.bak"))))
    }

    /// As after a reboot of the receiving host: its bus and the subscriber are new ones.
    pub(crate) fn empty_receiving_bus(&mut self) {
        std::fs::remove_dir_all(self.buses.path().join("b")).unwrap();
        self.to = bus(&self.buses, "b", CAPACITY);
        self.subscriber = self.to.subscribe("**").unwrap();
    }

    /// Returns the next messages and losses, until there are that many messages.
    pub(crate) fn told(&mut self, messages: usize) -> Vec<String> {
        let mut all = Vec::new();
        while all.iter().filter(|it: &&String| it.parse::<u32>().is_ok()).count() < messages {
            all.extend(self.next(LIMIT));
        }
        all
    }

    /// Returns the next messages and losses, until all of these are among them, or to the time when there should have been one.
    /// In the order of arrival, a message that is repaired may come after the last one.
    pub(crate) fn told_all(&mut self, wanted: &[&str]) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        while !wanted.iter().all(|wanted| all.iter().any(|it| it == wanted))
            && let Some(next) = self.next(LIMIT)
        {
            all.push(next);
        }
        all
    }

    /// Returns the next message or loss, if there is one in time.
    pub(crate) fn next(&mut self, limit: Duration) -> Option<String> {
        match self.subscriber.receive_timeout(limit) {
            Ok(message) => Some(message?.text().trim().to_owned()),
            Err(ReceiveError::Lost(lost)) => {
                let bound = match lost.bound {
                    LostBound::AtLeast => ">=",
                    LostBound::AtMost => "<=",
                    _ => "=",
                };
                assert!(
                    lost.scope.iter().all(|it| ["t/**", "**"].contains(&it.as_str())),
                    "{lost}"
                );
                Some(format!("{bound}{} {:?}", lost.messages, lost.reason))
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Nothing more is reported, for longer than it takes to notice that a source is silent.
    pub(crate) fn nothing_more(&mut self) {
        assert_eq!(self.next(SHORT + Duration::from_secs(2)), None);
    }

    pub(crate) fn leave(mut self) {
        for node in [self.receiver.take(), self.sender.take()].into_iter().flatten() {
            leave(node);
        }
        assert_eq!(self.next(Duration::ZERO), None);
        drop(self.to);
    }
}

pub(crate) fn end(mut node: Program, end: End) {
    match end {
        End::InOrder => leave(node),
        End::Killed => {
            node.signal(Signal::KILL);
            assert!(!node.wait().success());
        }
    }
}

const WAYS: [Way; 2] = [Way::Multicast, Way::Tcp];
const ENDS: [End; 2] = [End::Killed, End::InOrder];

/// Does this for each way and each end at the same time.
fn each(test: impl Fn(Way, End) + Sync) {
    std::thread::scope(|scope| {
        for way in WAYS {
            for end in ENDS {
                let test = &test;
                scope.spawn(move || test(way, end));
            }
        }
    });
}

/// Does this for each way at the same time.
fn each_way(test: impl Fn(Way) + Sync) {
    std::thread::scope(|scope| {
        for way in WAYS {
            let test = &test;
            scope.spawn(move || test(way));
        }
    });
}

/// A sender that needs seconds for what is on its bus when its node is stopped. Returns that, too.
fn lagging(way: Way, rate: &str, drain: &str) -> (Pair, Vec<String>) {
    let mut pair = Pair::new(way, SHORT);
    pair.end_sender(End::InOrder);
    let start = |pair: &mut Pair| {
        pair.start_sender_with(rate, &format!("drain = '{drain}'"));
    };
    if way == Way::Multicast {
        start(&mut pair);
        pair.publish(1);
        pair.told(1);
    } else {
        pair.publish(1);
    }
    let publisher = pair.from.as_ref().unwrap().publisher("t/a").unwrap();
    let wanted: Vec<_> = (6..56).map(|number: u32| number.to_string()).collect();
    for number in &wanted {
        publisher.publish(format!("{number}{:1000}", "")).unwrap();
    }
    pair.next = 56;
    if way == Way::Tcp {
        // What a client has missed is history, and only that has a rate.
        start(&mut pair);
        assert_eq!(pair.told(1), ["5"]);
    }
    (pair, wanted)
}

#[test]
fn a_sender_that_is_stopped_sends_what_is_on_its_bus_first() {
    each_way(|way| {
        let (mut pair, wanted) = lagging(way, "200kbit/s", "60s");
        pair.end_sender(End::InOrder);
        assert_eq!(pair.told(50), wanted, "{way:?}");
        pair.nothing_more();
        pair.leave();
    });
}

impl Pair {
    /// The sender was stopped before it had sent all of this. Then it ends as if it were killed, and continues where it stopped.
    fn gets_the_rest_later(mut self, wanted: &[String]) {
        let mut told = Vec::new();
        while told.last().is_none_or(|last: &String| last != ">=0 Silent") {
            told.push(self.next(LIMIT).expect("its silence is reported"));
        }
        told.pop();
        assert!(wanted.starts_with(&told), "{:?}: {told:?}", self.way);
        self.start_sender();
        told.extend(self.told(wanted.len() - told.len()));
        assert_eq!(told, wanted, "{:?}", self.way);
        self.leave();
    }
}

#[test]
fn a_sender_that_is_stopped_and_has_no_time_to_send_everything_says_so() {
    each_way(|way| {
        let (mut pair, wanted) = lagging(way, "50kbit/s", "0s");
        let sender = pair.sender.take().unwrap();
        sender.signal(Signal::TERM);
        sender.wait_for_error("messages of the bus unsent");
        leave(sender);
        pair.gets_the_rest_later(&wanted);
    });
}

#[test]
fn a_sender_that_is_stopped_twice_does_not_take_its_time() {
    each_way(|way| {
        let (mut pair, wanted) = lagging(way, "50kbit/s", "60s");
        let sender = pair.sender.take().unwrap();
        // A signal that comes with the first one does not count.
        wait_until("it has said what is left", || {
            sender.signal(Signal::TERM);
            sender.errors().contains("messages of the bus unsent")
        });
        leave(sender);
        pair.gets_the_rest_later(&wanted);
    });
}

/// It learns that once, however often the receiver starts again.
#[test]
fn a_receiver_that_was_away_and_never_hears_its_sender_again_is_told_once() {
    each(|way, end| {
        let mut pair = Pair::new(way, SHORT);
        pair.end_receiver(end);
        pair.publish(5);
        pair.end_sender(end);
        pair.start_receiver();
        assert_eq!(pair.next(LIMIT).as_deref(), Some(">=0 Silent"));
        pair.end_receiver(end);
        pair.start_receiver();
        pair.nothing_more();
        pair.end_receiver(end);
        // It comes back after all, and has lost what it had.
        pair.empty_bus();
        pair.start_sender();
        pair.start_receiver();
        pair.publish(1);
        assert_eq!(pair.told(1), ["10"], "it was told: {way:?}, {end:?}");
        pair.leave();
    });
}

#[test]
fn a_sender_that_does_not_come_back_is_reported_at_once_only_if_it_was_killed() {
    each(|way, end| {
        let mut pair = Pair::new(way, SHORT);
        pair.end_sender(end);
        // After an end in order, it takes longer: most senders come back.
        if end == End::Killed {
            assert_eq!(pair.next(LIMIT).as_deref(), Some(">=0 Silent"), "{way:?}");
        }
        pair.nothing_more();
        pair.start_sender();
        pair.publish(1);
        assert_eq!(pair.told(1), ["5"], "{way:?}");
        pair.leave();
    });
}

/// The node that receives waits until that publisher has ended, and says which one it is.
#[test]
fn an_exclusive_publisher_of_the_receiving_bus_delays_messages_and_ends_no_node() {
    each(|way, end| {
        let mut pair = Pair::new(way, LONG);
        let exclusive = pair.to.exclusive().unwrap();
        pair.publish(5);
        let pid = std::process::id();
        let receiver = pair.receiver.as_ref().unwrap();
        receiver.wait_for_error(&format!("event=waiting for=exclusive bus=b pid={pid}"));
        assert!(receiver.errors().contains("because it publishes exclusively"));
        receiver.signal(Signal::USR1);
        receiver.wait_for_error("for=\"exclusive\"} 1");
        if end == End::Killed {
            // One that starts meanwhile does not know yet what the bus has.
            pair.end_receiver(end);
            pair.publish(5);
            pair.start_receiver();
            pair.receiver.as_ref().unwrap().wait_for_error("event=waiting for=exclusive bus=b");
        }
        // A connection that is not read for longer than 5 s is not silent.
        let is_long = way == Way::Tcp && end == End::InOrder;
        assert_eq!(pair.next(Duration::from_millis(if is_long { 6_500 } else { 200 })), None);
        let said = pair.receiver.as_ref().unwrap().errors();
        assert!(!said.contains("event=disconnected"), "{said}");
        drop(exclusive);
        pair.publish(1);
        let wanted: Vec<_> = (5..pair.next).map(|number| number.to_string()).collect();
        assert_eq!(pair.told(wanted.len()), wanted, "{way:?}, {end:?}");
        pair.receiver.as_ref().unwrap().wait_for_error("event=waited for=exclusive bus=b");
        pair.leave();
    });
}
