//! `retain`: late subscribers of a receiving host have the newest message of each topic that arrived.

use crate::node_observed;
use crate::node_tcp::{address, listen};
use crate::nodes::{file, group, receiving, sending, start};
use crate::support::{Buses, LIMIT};
use std::time::Duration;
use toroni::{Bus, BusConfig, Policy, ValueStats};
use toroni_testkit::Program;
use toroni_testkit::wait::until;

/// Two hosts, of which one sends all to the other.
struct Pair {
    from: Bus,
    to: Bus,
    receiver: Program,
    _sender: Program,
    _buses: Buses,
}

impl Pair {
    /// The receiving bus has room for that many retained topics.
    fn new(retained: u32, receive: &str) -> Self {
        let (buses, group) = (Buses::new(), group());
        let receive = format!("{}{receive}\n", receiving(&group));
        Self::with(buses, retained, &sending(&group), &receive, "follows stream 1 of from")
    }

    fn with(buses: Buses, retained: u32, send: &str, receive: &str, begins: &str) -> Self {
        let config = BusConfig::new().directory(buses.path()).policy(Policy::Overwrite);
        let config = config.capacity(64 << 10);
        let from = config.clone().open("from").unwrap();
        let to = config
            .retained_topics(retained)
            .retained_bytes(u64::from(retained) * 4096)
            .open("to")
            .unwrap();
        let receiver = start(&buses, &file(&buses, "to", receive));
        let sender = start(&buses, &file(&buses, "from", send));
        receiver.wait_for_error(begins);
        Self { from, to, receiver, _sender: sender, _buses: buses }
    }

    /// Publishes a message on the first host, and waits until the other one has it.
    fn publish(&self, topic: &str, text: &str) {
        let mut subscriber = self.to.subscribe("**").unwrap();
        self.from.publisher(topic).unwrap().publish(text).unwrap();
        let message = subscriber.receive_timeout(LIMIT).unwrap().expect("a message");
        assert!(message.topic().ends_with(topic) && message.text() == text, "{message:?}");
    }

    /// Returns what a subscriber that joins now gets at once. All of it must be values from elsewhere.
    fn late(&self) -> Vec<String> {
        let mut subscriber = self.to.subscriber().pattern("**").retained(true).build().unwrap();
        let mut found = Vec::new();
        while let Some(message) = subscriber.try_receive().unwrap() {
            assert!(message.is_retained() && message.origin().is_some());
            found.push(format!("{}={}", message.topic(), message.text()));
        }
        found
    }

    /// Overwrites all that is in the ring of the receiving host.
    fn lap(&self) {
        let noise = self.to.publisher("noise").unwrap();
        (0..300).for_each(|_| _ = noise.publish([7; 1_000]).unwrap());
    }
}

#[test]
fn late_subscribers_have_the_newest_message_of_each_topic_that_arrived() {
    let pair = Pair::new(8, "retain = true\nprefix = 'site'\naccept = ['a', 'b', 'below/*']");
    for (topic, text) in [("a", "1"), ("b", "2"), ("a", "3")] {
        pair.publish(topic, text);
    }
    pair.lap();
    assert_eq!(pair.late(), ["site/b=2", "site/a=3"]);
    // What is cleared on its own host keeps its value here, which this host can clear.
    let clears = pair.from.publisher("a").unwrap().retained().unwrap();
    clears.clear(toroni::Limit::Policy).unwrap();
    pair.publish("b", "4");
    assert_eq!(pair.late(), ["site/a=3", "site/b=4"]);
    let here = pair.to.publisher("site/a").unwrap().retained().unwrap();
    here.clear(toroni::Limit::Policy).unwrap();
    assert_eq!(pair.late(), ["site/b=4"]);
    pair.publish("a", "5");
    assert_eq!(pair.late(), ["site/b=4", "site/a=5"]);
    // Of the topic `below`, `accept` takes only what is posted to the descendants.
    let above = pair.from.publisher("below").unwrap().to_descendants(true);
    above.publish("6").unwrap();
    until("the value arrives", || pair.late().last().is_some_and(|it| it == "site/below=6"));
}

#[test]
fn over_tcp_it_is_the_same() {
    let (buses, address) = (Buses::new(), address());
    let connect = format!("[[connect]]\naddress = '{address}'\nretry = '20ms'\nretain = true\n");
    let pair = Pair::with(buses, 8, &listen(address), &connect, "connected to");
    pair.publish("a", "1");
    pair.lap();
    assert_eq!(pair.late(), ["a=1"]);
}

/// What was published before the node met the sender: the ring of the sender still has it.
#[test]
fn a_node_that_begins_with_the_window_retains_what_the_sender_still_has() {
    let (buses, group, address) = (Buses::new(), group(), address());
    let from = BusConfig::new().directory(buses.path()).open("from").unwrap();
    for (topic, text) in [("a", "1"), ("b", "2"), ("a", "3")] {
        from.publisher(topic).unwrap().publish(text).unwrap();
    }
    let (send, listen) = (sending(&group), listen(address));
    let send = format!("{send}session_max = '200ms'\n{listen}");
    let receive = format!("{}join = 'window'\nretain = true\n", receiving(&group));
    let pair = Pair::with(buses, 8, &send, &receive, "follows stream 1 of from");
    until("the history arrives", || pair.late() == ["b=2", "a=3"]);
}

#[test]
fn a_bus_without_room_for_a_value_has_the_messages_and_the_node_says_why_once() {
    let (buses, group) = (Buses::new(), group());
    let receive = format!("metrics = '127.0.0.1:0'\n{}retain = true\n", receiving(&group));
    let pair = Pair::with(buses, 1, &sending(&group), &receive, "follows stream 1 of from");
    for topic in ["a", "b", "c", "b"] {
        pair.publish(topic, "1");
    }
    pair.receiver.wait_for_error(
        "cannot retain b on bus to: 1 topics are retained: create the bus with more `retained_topics`; what arrives is \
         published, and the bus does not keep it for late subscribers level=warn event=unretained bus=\"to\" topic=\"b\"",
    );
    assert_eq!(pair.late(), ["a=1"]);
    let said = pair.receiver.errors();
    assert_eq!(said.matches("event=unretained").count(), 1, "{said}");
    let served = node_observed::address(&pair.receiver);
    until("both topics are counted", || {
        let samples = node_observed::metrics(&served);
        samples.value("toroni_net_unretained_topics_total", &[("realm", "test")]) == Some(2.0)
    });
}

#[test]
fn a_bus_without_values_has_the_messages_and_the_node_says_so_when_it_starts() {
    let pair = Pair::new(0, "retain = true");
    pair.receiver.wait_for_error(
        "cannot retain topics on bus to: the bus keeps no values: create it with `retained_topics` above 0; ",
    );
    pair.publish("a", "1");
}

/// While a publisher is exclusive, the node can neither declare a topic nor publish its messages.
#[test]
fn a_topic_that_arrives_while_a_publisher_is_exclusive_is_retained_before_its_first_message() {
    let pair = Pair::new(8, "retain = true");
    let mut subscriber = pair.to.subscribe("**").unwrap();
    let exclusive = pair.to.exclusive().unwrap();
    pair.from.publisher("a").unwrap().publish("1").unwrap();
    pair.from.publisher("b").unwrap().publish("x".repeat(20_000)).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(subscriber.try_receive().unwrap().is_none());
    drop(exclusive);
    for topic in ["a", "b"] {
        let message = subscriber.receive_timeout(LIMIT).unwrap().expect("a message");
        assert_eq!(message.topic(), topic);
    }
    let value = |name: &str| {
        let topics = pair.to.topics().unwrap();
        topics.into_iter().find(|topic| topic.name == name).unwrap().value
    };
    assert!(matches!(value("a"), Some(ValueStats::Kept { bytes: 1, .. })), "{:?}", value("a"));
    assert!(value("b").is_some());
}
