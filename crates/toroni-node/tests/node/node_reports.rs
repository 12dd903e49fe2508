//! What the subscribers of a receiving host learn when nodes end, come back, or do not: real processes on the loopback
//! interface. Five messages have been delivered, and others are published while a node is away.

use crate::node_tcp::{address, bus, leave, listen};
use crate::nodes::{file, group, start};
use crate::support::{Buses, LIMIT, wait_until};
use rustix::process::Signal;
use std::net::SocketAddr;
use std::time::Duration;
use toroni::{Bus, LostBound, ReceiveError, Subscriber};
use toroni_testkit::Program;

const CAPACITY: u64 = 1 << 20;
/// After this time without a source, its silence is reported, where a test waits for that.
const SHORT: Duration = Duration::from_secs(3);
/// Longer than a node is away on any machine.
const LONG: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Multicast,
    Tcp,
}

/// How a node ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Killed,
    InOrder,
}

/// Two hosts, of which one sends to the other.
struct Pair {
    buses: Buses,
    way: Way,
    group: String,
    address: SocketAddr,
    activity: Duration,
    order: &'static str,
    /// The name of the receiving node.
    name: &'static str,
    from: Option<Bus>,
    to: Bus,
    subscriber: Subscriber,
    sender: Option<Program>,
    receiver: Option<Program>,
    next: u32,
}

impl Pair {
    /// Five messages are delivered. A source that is silent for `activity` is gone.
    fn new(way: Way, activity: Duration) -> Self {
        Self::in_order(way, activity, "source")
    }

    fn in_order(way: Way, activity: Duration, order: &'static str) -> Self {
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
            name: "b",
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

    fn start_sender(&mut self) {
        self.start_sender_with("20Mbit/s", "");
    }

    /// The rate is that of the stream, or of history over TCP.
    fn start_sender_with(&mut self, rate: &str, of_node: &str) {
        let (group, activity) = (&self.group, self.activity.as_secs());
        let section = match self.way {
            Way::Multicast => format!(
                "[[send]]\nstream = 1\npatterns = ['**']\ngroup = '{group}'\ndata_rate = '{rate}'\n\
                 generation = '500ms'\nsession_max = '200ms'\nactivity = '{activity}s'\nttl = 0\nloop = true\n"
            ),
            Way::Tcp => format!("{}replay_rate = '{rate}'\n", listen(self.address)),
        };
        self.sender =
            Some(start(&self.buses, &file(&self.buses, "a", &format!("{of_node}\n{section}"))));
    }

    fn start_receiver(&mut self) {
        let Self { group, address, activity, order, .. } = &*self;
        let activity = activity.as_secs();
        let (section, begins) = match self.way {
            Way::Multicast => (
                format!(
                    "[[receive]]\ngroup = '{group}'\ngeneration = '500ms'\nsession_max = '200ms'\n\
                     activity = '{activity}s'\norder = '{order}'\n"
                ),
                "follows",
            ),
            Way::Tcp => (
                format!(
                    "[[connect]]\naddress = '{address}'\nretry = '20ms'\nactivity = '{activity}s'\n"
                ),
                "connected to",
            ),
        };
        let path = file(&self.buses, self.name, &section);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("bus = 'c'", "bus = 'b'")).unwrap();
        let receiver = start(&self.buses, &path);
        if self.sender.is_some() {
            receiver.wait_for_error(begins);
        }
        self.receiver = Some(receiver);
    }

    fn publish(&mut self, count: u32) {
        let publisher = self.from.as_ref().unwrap().publisher("t/a").unwrap();
        for _ in 0..count {
            publisher.publish(self.next.to_string()).unwrap();
            self.next += 1;
        }
    }

    fn end_sender(&mut self, end: End) {
        self::end(self.sender.take().unwrap(), end);
    }

    fn end_receiver(&mut self, end: End) {
        self::end(self.receiver.take().unwrap(), end);
    }

    /// As after a reboot: the bus of the sending host is a new one.
    fn empty_bus(&mut self) {
        self.from = None;
        std::fs::remove_dir_all(self.buses.path().join("a")).unwrap();
        self.from = Some(bus(&self.buses, "a", CAPACITY));
    }

    /// Returns the next messages and losses, until there are that many messages.
    fn told(&mut self, messages: usize) -> Vec<String> {
        let mut all = Vec::new();
        while all.iter().filter(|it: &&String| it.parse::<u32>().is_ok()).count() < messages {
            all.extend(self.next(LIMIT));
        }
        all
    }

    /// Returns the next message or loss, if there is one in time.
    fn next(&mut self, limit: Duration) -> Option<String> {
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
    fn nothing_more(&mut self) {
        assert_eq!(self.next(SHORT + Duration::from_secs(2)), None);
    }

    fn leave(mut self) {
        for node in [self.receiver.take(), self.sender.take()].into_iter().flatten() {
            leave(node);
        }
        assert_eq!(self.next(Duration::ZERO), None);
        drop(self.to);
    }
}

fn end(mut node: Program, end: End) {
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

#[test]
fn a_sender_that_comes_back_on_its_bus_loses_nothing() {
    each(|way, end| {
        let mut pair = Pair::new(way, LONG);
        pair.end_sender(end);
        pair.publish(5);
        pair.start_sender();
        pair.publish(1);
        assert_eq!(pair.told(6), ["5", "6", "7", "8", "9", "10"], "{way:?}, {end:?}");
        pair.leave();
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
            told.extend(self.next(LIMIT));
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

/// What was published last may be lost with the bus, however the session has ended.
#[test]
fn a_sender_that_comes_back_with_an_empty_bus_may_have_lost_messages() {
    each(|way, end| {
        let mut pair = Pair::new(way, LONG);
        pair.end_sender(end);
        pair.publish(5);
        pair.empty_bus();
        pair.start_sender();
        assert_eq!(pair.next(LIMIT).as_deref(), Some(">=0 Restart"), "{way:?}, {end:?}");
        pair.publish(2);
        assert_eq!(pair.told(2), ["10", "11"], "{way:?}, {end:?}");
        pair.leave();
    });
}

#[test]
fn a_receiver_that_was_away_gets_what_its_sender_still_has() {
    each(|way, end| {
        let mut pair = Pair::new(way, LONG);
        pair.end_receiver(end);
        pair.publish(5);
        pair.start_receiver();
        pair.publish(1);
        assert_eq!(pair.told(6), ["5", "6", "7", "8", "9", "10"], "{way:?}, {end:?}");
        pair.leave();
    });
}

#[test]
fn a_receiver_that_was_away_while_its_sender_came_back_with_an_empty_bus_is_told() {
    each(|way, end| {
        let mut pair = Pair::new(way, LONG);
        pair.end_receiver(end);
        pair.publish(5);
        pair.end_sender(end);
        pair.empty_bus();
        pair.start_sender();
        pair.start_receiver();
        pair.publish(2);
        assert_eq!(pair.told(2), [">=0 Restart", "10", "11"], "{way:?}, {end:?}");
        pair.leave();
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

/// In the order of arrival, only the bus knows what was delivered above the mark.
#[test]
fn in_the_order_of_arrival_a_receiver_that_was_killed_delivers_nothing_twice() {
    let mut pair = Pair::in_order(Way::Multicast, LONG, "arrival");
    for _ in 0..3 {
        pair.end_receiver(End::Killed);
        pair.publish(5);
        pair.start_receiver();
        pair.publish(1);
        let first = pair.next - 6;
        let wanted: Vec<_> = (first..pair.next).map(|number| number.to_string()).collect();
        let mut told = pair.told(6);
        told.sort_by_key(|it| it.parse::<u32>().ok());
        assert_eq!(told, wanted);
    }
    pair.leave();
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

/// Two nodes of one host bring the same streams to its bus. The one that has come first is killed; the other one knows what it
/// had brought.
#[test]
fn a_second_node_takes_over_from_one_that_is_killed_and_loses_nothing() {
    each(|way, end| {
        let mut pair = Pair::new(way, LONG);
        let first = pair.receiver.take().unwrap();
        pair.name = "c";
        pair.start_receiver();
        pair.receiver.as_ref().unwrap().wait_for_error("already brings");
        pair.publish(5);
        assert_eq!(pair.told(5), ["5", "6", "7", "8", "9"], "{way:?}, {end:?}");
        self::end(first, end);
        pair.publish(5);
        assert_eq!(pair.told(5), ["10", "11", "12", "13", "14"], "{way:?}, {end:?}");
        pair.leave();
    });
}
