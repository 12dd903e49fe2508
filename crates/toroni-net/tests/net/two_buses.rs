//! Two buses, joined by a stream: the outlet of one, the inlet of the other, and a link between them that loses
//! datagrams by a seed. Buses and machines are real; only time and the network are made here.

use std::collections::VecDeque;
use std::os::unix::fs::FileExt;
use toroni::{Bus, BusConfig, LostBound, LostReason, Pattern, Policy, ReceiveError, Start};
use toroni_net::inlet::{self, Inlet};
use toroni_net::outlet::{self, Outlet};
use toroni_proto::arrivals::Arrivals;
use toroni_proto::audience::Name;
use toroni_proto::batcher::Now;
use toroni_proto::config::{Config, Order};
use toroni_proto::id::{Number, Realm, Sequence, Series, Session, Source, Stream};
use toroni_proto::legs::Path;
use toroni_proto::past::Past;
use toroni_proto::random::Random;
use toroni_proto::receiver::Me;
use toroni_proto::sender::Identity;
use toroni_proto::time::{MILLISECOND, Monotonic, SECOND, Wall};
use toroni_proto::wire::{Address, Flags, Header, LegAddresses, NodeName, Receiver, Repairers};
use toroni_testkit::Directory;

const REALM: Realm = Realm(7);
const SENDER: Source = Source(1);
const RECEIVER: Source = Source(2);

fn config() -> Config {
    Config {
        window_bytes: 8 << 20,
        message_max_bytes: 1 << 18,
        receive_memory_bytes: 16 << 20,
        reorder_memory_bytes: 8 << 20,
        ..Config::with_rate(100_000_000)
    }
}

fn patterns(texts: &[&str]) -> Vec<Pattern> {
    texts.iter().map(|text| Pattern::new(text).unwrap()).collect()
}

fn selection(texts: &[&str]) -> outlet::Selection {
    outlet::Selection { patterns: patterns(texts), prefix: String::new(), express: Vec::new() }
}

fn accepting(texts: &[&str]) -> inlet::Selection {
    inlet::Selection { accept: patterns(texts), prefix: String::new(), order: Order::Source }
}

/// What a subscriber was given.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Given {
    /// Its topic, its length, and what stands at its beginning.
    Message(String, usize, String),
    Lost {
        messages: u64,
        bound: LostBound,
        reason: LostReason,
    },
}

fn message(topic: &str, payload: &[u8]) -> Given {
    let head = String::from_utf8_lossy(&payload[..payload.len().min(8)]).into_owned();
    Given::Message(topic.to_owned(), payload.len(), head)
}

fn given(subscriber: &mut toroni::Subscriber) -> Vec<Given> {
    let mut all = Vec::new();
    loop {
        match subscriber.try_receive() {
            Ok(Some(received)) => all.push(message(received.topic(), received.payload())),
            Ok(None) => return all,
            Err(ReceiveError::Lost(lost)) => all.push(Given::Lost {
                messages: lost.messages,
                bound: lost.bound,
                reason: lost.reason,
            }),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Two buses in a directory of their own, and the time.
struct Rig {
    directory: Directory,
    from: Bus,
    to: Bus,
    ns: u64,
    random: Random,
    /// How many of 100 datagrams are lost, each way.
    loss: u64,
    /// Of each way.
    links: [VecDeque<Vec<u8>>; 2],
}

impl Rig {
    fn new(seed: u64) -> Self {
        Self::with(seed, |config| config, |config| config)
    }

    fn with(
        seed: u64,
        from: impl FnOnce(BusConfig) -> BusConfig,
        to: impl FnOnce(BusConfig) -> BusConfig,
    ) -> Self {
        let directory = Directory::new();
        let config = || BusConfig::new().directory(directory.path());
        let (from, to) = (from(config()).open("from").unwrap(), to(config()).open("to").unwrap());
        let random = Random::new(seed);
        let links = [VecDeque::new(), VecDeque::new()];
        Self { directory, from, to, ns: 1_000 * SECOND, random, loss: 0, links }
    }

    fn now(&self) -> Now {
        let wall = Wall::from_ns(1_800_000_000 * SECOND + self.ns);
        Now { monotonic: Monotonic::from_ns(self.ns), wall }
    }

    fn outlet(&self, session: u32, start: Start, selection: &outlet::Selection) -> Outlet {
        let header = Header {
            flags: Flags::NONE,
            ttl: 16,
            realm: REALM,
            stream: Stream(1),
            source: SENDER,
            session: Session(session),
            sequence: Sequence::new(1_000_000).unwrap(),
        };
        let identity = Identity {
            header,
            keys: None,
            name: NodeName::new("from").unwrap(),
            instance: [1; 16],
            series: Series::of_bus(&self.from.id().to_string()),
            begins: Number::ZERO,
            past: Past::NONE,
            patterns: &[],
            legs: LegAddresses::NONE,
            repairers: Repairers::default(),
            listen: 0,
            required: &[],
        };
        let now = self.now().monotonic;
        Outlet::new(&self.from, selection, &config(), &identity, start, false, now).unwrap()
    }

    fn inlet(&mut self, selection: inlet::Selection) -> (Arrivals, Inlet) {
        let id = Receiver { source: RECEIVER, session: Session(1) };
        let name = Name::new(NodeName::new("to").unwrap());
        let me = Me { id, name, required: false };
        let config = Config { order: selection.order, ..config() };
        let random = Random::new(self.random.number());
        let arrivals = Arrivals::new(&config, REALM, None, me, [2; 16], random);
        (arrivals, Inlet::new(self.to.inlet().unwrap(), selection))
    }

    /// Lets so much time go by, a millisecond at a time.
    fn run(&mut self, ms: u64, outlet: &mut Outlet, arrivals: &mut Arrivals, inlet: &mut Inlet) {
        for _ in 0..ms {
            self.ns += MILLISECOND;
            let now = self.now();
            while outlet.turn(now).unwrap() {}
            let sender = outlet.sender();
            sender.handle_timeout(now);
            while let Some(datagram) = sender.poll_transmit(now) {
                let datagram = datagram.to_vec();
                if self.random.below(100) >= self.loss {
                    self.links[0].push_back(datagram);
                }
            }
            let from = Path::single(Address::default());
            for datagram in std::mem::take(&mut self.links[0]) {
                // A new session is refused while the one before may still be alive.
                let _ = arrivals.handle_datagram(now.monotonic, from, &datagram, inlet);
            }
            arrivals.handle_timeout(now.monotonic, inlet);
            inlet.publish(arrivals.marks()).unwrap();
            while let Some((_, datagram)) = arrivals.poll_transmit(now.monotonic) {
                let datagram = datagram.to_vec();
                if self.random.below(100) >= self.loss {
                    self.links[1].push_back(datagram);
                }
            }
            for datagram in std::mem::take(&mut self.links[1]) {
                // A sender refuses what asks another session.
                let _ = sender.handle_datagram(now, from.address, &datagram);
            }
        }
    }
}

/// A message of each length class: small, of several datagrams, longer than the stage takes.
fn payload(number: usize) -> Vec<u8> {
    let length = [12, 0, 700, 5_000, 40_000][number % 5];
    let mut payload = vec![b'.'; length];
    let text = number.to_string();
    if let Some(head) = payload.get_mut(..text.len()) {
        head.copy_from_slice(text.as_bytes());
    }
    payload
}

#[test]
fn what_one_bus_publishes_the_other_receives_in_its_order() {
    for (seed, loss) in [(1, 0), (2, 5), (3, 20)] {
        let mut rig = Rig::new(seed);
        rig.loss = loss;
        let mut subscriber = rig.to.subscribe("**").unwrap();
        let mut outlet = rig.outlet(1, Start::Latest, &selection(&["plant/**"]));
        let (mut arrivals, mut inlet) = rig.inlet(accepting(&["**"]));
        let publishers = ["plant/a", "plant/b"].map(|topic| rig.from.publisher(topic).unwrap());
        let other = rig.from.publisher("office").unwrap();
        // Until the other side knows the stream: what is sent before is no loss.
        publishers[0].publish("first").unwrap();
        rig.run(300, &mut outlet, &mut arrivals, &mut inlet);
        let mut wanted = Vec::new();
        for number in 0..300 {
            let at = number % 2;
            publishers[at].publish(payload(number)).unwrap();
            wanted.push(message(["plant/a", "plant/b"][at], &payload(number)));
            other.publish("not on the stream").unwrap();
            if number % 7 == 0 {
                rig.run(1, &mut outlet, &mut arrivals, &mut inlet);
            }
        }
        rig.run(3_000, &mut outlet, &mut arrivals, &mut inlet);
        let mut got = given(&mut subscriber);
        got.retain(|one| *one != message("plant/a", b"first"));
        assert_eq!(got, wanted, "seed {seed}");
        assert_eq!(outlet.counters().overtaken, 0);
    }
}

#[test]
fn origin_time_and_reach_of_a_message_arrive() {
    let mut rig = Rig::with(1, |from| from.timestamps(true), |to| to);
    let mut subscriber = rig.to.subscribe("plant/boiler/temperature").unwrap();
    let mut outlet = rig.outlet(1, Start::Latest, &selection(&["**"]));
    let (mut arrivals, mut inlet) = rig.inlet(accepting(&["**"]));
    rig.run(50, &mut outlet, &mut arrivals, &mut inlet);
    let publisher = rig.from.publisher("plant").unwrap();
    publisher.publish("passed over").unwrap();
    publisher.clone().to_descendants(true).publish("for all of the plant").unwrap();
    let sent = rig.from.stats().unwrap().sequence - 1;
    rig.run(100, &mut outlet, &mut arrivals, &mut inlet);
    let message = subscriber.try_receive().unwrap().unwrap();
    assert_eq!((message.topic(), message.payload()), ("plant", &b"for all of the plant"[..]));
    assert!(message.to_descendants() && message.timestamp().is_some());
    let origin = message.origin().unwrap();
    let series = Series::of_bus(&rig.from.id().to_string());
    assert_eq!((origin.source, origin.series, origin.stream), (SENDER.0, series.0, 1));
    assert_eq!(origin.number, sent);
}

/// The blocks index of the ring says that the stream has come to its last number.
#[test]
fn a_sequence_beyond_all_numbers_of_a_stream_is_its_last_number() {
    const INDEX: u64 = 4096 + 1024;
    let mut rig = Rig::new(1);
    let publisher = rig.from.publisher("plant").unwrap();
    publisher.publish("first").unwrap();
    let path = rig.directory.path().join("from/ring");
    let ring = std::fs::File::options().write(true).open(path).unwrap();
    for block in 0..64 {
        ring.write_all_at(&(u64::MAX - 1).to_ne_bytes(), INDEX + 16 * block + 8).unwrap();
    }
    let too_long = vec![7; (1 << 18) + 1];
    let mut outlet = rig.outlet(1, Start::Latest, &selection(&["**"]));
    publisher.publish(&too_long).unwrap();
    rig.ns += SECOND;
    outlet.turn(rig.now()).unwrap();
    assert_eq!(outlet.counters().too_long, 1);
}

#[test]
fn a_message_of_another_host_is_not_sent_on() {
    let rig = Rig::new(1);
    let mut outlet = rig.outlet(1, Start::Latest, &selection(&["**"]));
    let elsewhere = rig.from.inlet().unwrap();
    let topic = elsewhere.topic("a").unwrap();
    let origin = toroni::Origin { source: 9, series: 1, stream: 0, number: 5 };
    let entry = toroni::Entry::new(&topic, &[b"from elsewhere"]);
    let entry = toroni::Entry { origin: Some(origin), ..entry };
    elsewhere.publish(&[entry], toroni::Limit::Policy).unwrap();
    rig.from.publisher("a").unwrap().publish("own").unwrap();
    assert!(!outlet.turn(rig.now()).unwrap());
    assert_eq!(outlet.counters().messages, 1);
}

#[test]
fn what_was_overwritten_before_it_was_sent_is_at_most_what_the_bus_carried() {
    let small = |config: BusConfig| config.capacity(64 << 10).policy(Policy::Overwrite);
    let mut rig = Rig::with(1, small, |to| to);
    let mut subscriber = rig.to.subscribe("**").unwrap();
    let mut outlet = rig.outlet(1, Start::Latest, &selection(&["a"]));
    let (mut arrivals, mut inlet) = rig.inlet(accepting(&["**"]));
    let publishers = ["a", "not sent"].map(|topic| rig.from.publisher(topic).unwrap());
    publishers[0].publish("first").unwrap();
    rig.run(300, &mut outlet, &mut arrivals, &mut inlet);
    let count = 500;
    for number in 0..count {
        for publisher in &publishers {
            publisher.publish(format!("{number:>200}")).unwrap();
        }
    }
    rig.run(1_000, &mut outlet, &mut arrivals, &mut inlet);
    let got = given(&mut subscriber);
    assert_eq!(got[0], message("a", b"first"));
    let Given::Lost { messages, bound, reason } = got[1] else { panic!("{:?}", got[1]) };
    assert_eq!((bound, reason), (LostBound::AtMost, LostReason::Overtaken));
    assert_eq!(outlet.counters().overtaken, messages);
    let lost = count - (got.len() as u64 - 2);
    assert!(lost > 0 && lost <= messages, "{lost} were lost, and at most {messages} reported");
    assert_eq!(got[2], message("a", format!("{lost:>200}").as_bytes()));
}

#[test]
fn what_cannot_be_sent_or_brought_is_reported_at_its_place() {
    // The record of a message takes at most half of a ring.
    let mut rig = Rig::with(1, |from| from.capacity(4 << 20), |to| to.capacity(64 << 10));
    let mut subscriber = rig.to.subscriber().pattern("**").gating(false).build().unwrap();
    let mut outlet = rig.outlet(1, Start::Latest, &selection(&["**"]));
    let (mut arrivals, mut inlet) = rig.inlet(accepting(&["**"]));
    let publisher = rig.from.publisher("a").unwrap();
    publisher.publish("first").unwrap();
    rig.run(300, &mut outlet, &mut arrivals, &mut inlet);
    publisher.publish(vec![1; 300_000]).unwrap(); // longer than the stream takes
    publisher.publish("between").unwrap();
    publisher.publish(vec![2; 40_000]).unwrap(); // longer than the other ring takes
    publisher.publish("last").unwrap();
    rig.run(1_000, &mut outlet, &mut arrivals, &mut inlet);
    let lost = Given::Lost { messages: 1, bound: LostBound::Exact, reason: LostReason::TooLong };
    let [first, between, last] = ["first", "between", "last"].map(|it| message("a", it.as_bytes()));
    assert_eq!(given(&mut subscriber), [first, lost.clone(), between, lost, last]);
    assert_eq!((outlet.counters().too_long, inlet.counters().too_long), (1, 1));
}

#[test]
fn topics_are_selected_and_prefixed_on_both_sides() {
    let mut rig = Rig::new(1);
    let mut subscriber = rig.to.subscribe("**").unwrap();
    let sent = outlet::Selection { prefix: "line-3".to_owned(), ..selection(&["a/*", "c"]) };
    let mut outlet = rig.outlet(1, Start::Latest, &sent);
    let taken = inlet::Selection { prefix: "hall".to_owned(), ..accepting(&["line-3/a/*"]) };
    let (mut arrivals, mut inlet) = rig.inlet(taken);
    rig.run(50, &mut outlet, &mut arrivals, &mut inlet);
    for topic in ["a/x", "b", "c", "a/y"] {
        rig.from.publisher(topic).unwrap().publish(topic).unwrap();
    }
    rig.run(500, &mut outlet, &mut arrivals, &mut inlet);
    let wanted = [message("hall/line-3/a/x", b"a/x"), message("hall/line-3/a/y", b"a/y")];
    assert_eq!(given(&mut subscriber), wanted);
    assert_eq!((inlet.counters().messages, inlet.counters().filtered), (2, 1));
    let wrong = outlet::Selection { prefix: "a//b".to_owned(), ..selection(&["**"]) };
    let header = rig.outlet(2, Start::Latest, &sent);
    drop(header);
    let error = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        rig.outlet(3, Start::Latest, &wrong)
    }));
    assert!(error.is_err(), "a prefix that is no topic");
}

#[test]
fn a_post_to_descendants_is_accepted_where_a_local_subscriber_receives_it() {
    let accept = ["plant/boiler/*"];
    let mut rig = Rig::new(1);
    let mut subscriber = rig.to.subscribe("**").unwrap();
    let mut local = rig.from.subscribe(accept[0]).unwrap();
    let mut outlet = rig.outlet(1, Start::Latest, &selection(&["**"]));
    let (mut arrivals, mut inlet) = rig.inlet(accepting(&accept));
    rig.run(50, &mut outlet, &mut arrivals, &mut inlet);
    for topic in ["plant", "plant/boiler/temperature", "plant/boiler/a/b", "office"] {
        let publisher = rig.from.publisher(topic).unwrap();
        publisher.publish("a post").unwrap();
        publisher.clone().to_descendants(true).publish("also for what is below").unwrap();
    }
    rig.run(500, &mut outlet, &mut arrivals, &mut inlet);
    let wanted = given(&mut local);
    assert!(wanted.contains(&message("plant", b"also for what is below")), "{wanted:?}");
    assert_eq!(given(&mut subscriber), wanted);
    assert_eq!(inlet.counters().filtered, 8 - wanted.len() as u64);
}

#[test]
fn the_loss_of_posts_to_descendants_is_reported_to_those_below() {
    let small = |config: BusConfig| config.capacity(64 << 10).policy(Policy::Overwrite);
    let mut rig = Rig::with(1, small, |to| to);
    let mut subscriber = rig.to.subscribe("plant/boiler/temperature").unwrap();
    let mut outlet = rig.outlet(1, Start::Latest, &selection(&["plant"]));
    let (mut arrivals, mut inlet) = rig.inlet(accepting(&["plant/boiler/*"]));
    rig.run(50, &mut outlet, &mut arrivals, &mut inlet);
    let publisher = rig.from.publisher("plant").unwrap();
    for number in 0..500 {
        publisher.clone().to_descendants(true).publish(format!("{number:>200}")).unwrap();
    }
    rig.run(1_000, &mut outlet, &mut arrivals, &mut inlet);
    let first = given(&mut subscriber).into_iter().next();
    assert!(matches!(first, Some(Given::Lost { messages: 1.., .. })), "{first:?}");
}

/// A receiving node that is replaced goes on where the bus is: nothing twice, and nothing missing that the sender still
/// has.
#[test]
fn another_inlet_continues_at_the_mark_of_the_bus() {
    let mut rig = Rig::new(4);
    rig.loss = 5;
    let mut subscriber = rig.to.subscribe("**").unwrap();
    let mut outlet = rig.outlet(1, Start::Latest, &selection(&["**"]));
    let publisher = rig.from.publisher("a").unwrap();
    let (mut arrivals, mut inlet) = rig.inlet(accepting(&["**"]));
    publisher.publish("first").unwrap();
    rig.run(300, &mut outlet, &mut arrivals, &mut inlet);
    let mut wanted = vec![message("a", b"first")];
    for life in 0..5 {
        for number in 0..40 {
            let text = format!("{life}/{number}");
            publisher.publish(&text).unwrap();
            wanted.push(message("a", text.as_bytes()));
            rig.run(1, &mut outlet, &mut arrivals, &mut inlet);
        }
        // As after a SIGKILL: nothing of the old one is kept but what the bus knows.
        drop((arrivals, inlet));
        (arrivals, inlet) = rig.inlet(accepting(&["**"]));
        rig.run(20, &mut outlet, &mut arrivals, &mut inlet);
    }
    rig.run(3_000, &mut outlet, &mut arrivals, &mut inlet);
    assert_eq!(given(&mut subscriber), wanted);
}

/// A sending node that is replaced begins a new session within the same series. What was sent before and is sent again
/// is dropped by its number.
#[test]
fn another_outlet_of_the_same_bus_continues_the_series() {
    let mut rig = Rig::new(5);
    let mut subscriber = rig.to.subscribe("**").unwrap();
    let (mut arrivals, mut inlet) = rig.inlet(accepting(&["**"]));
    let publisher = rig.from.publisher("a").unwrap();
    let mut outlet = rig.outlet(1, Start::Latest, &selection(&["**"]));
    publisher.publish("first").unwrap();
    rig.run(300, &mut outlet, &mut arrivals, &mut inlet);
    let mut wanted = vec![message("a", b"first")];
    for session in 2..5 {
        for number in 0..20 {
            let text = format!("{session}/{number}");
            publisher.publish(&text).unwrap();
            wanted.push(message("a", text.as_bytes()));
        }
        // Some of them were sent, and the node begins with older ones again.
        rig.run(2, &mut outlet, &mut arrivals, &mut inlet);
        let again = rig.from.stats().unwrap().sequence - 30.min(wanted.len() as u64);
        drop(outlet);
        outlet = rig.outlet(session, Start::Sequence(again), &selection(&["**"]));
        rig.run(3_000, &mut outlet, &mut arrivals, &mut inlet);
    }
    assert_eq!(given(&mut subscriber), wanted);
}

/// Complete messages do not wait for those before. None is dropped because a later one came first.
#[test]
fn in_the_order_of_arrival_nothing_is_missing_or_doubled() {
    let mut rig = Rig::new(6);
    rig.loss = 10;
    let mut subscriber = rig.to.subscribe("**").unwrap();
    let mut outlet = rig.outlet(1, Start::Latest, &selection(&["**"]));
    let (mut arrivals, mut inlet) =
        rig.inlet(inlet::Selection { order: Order::Arrival, ..accepting(&["**"]) });
    let publisher = rig.from.publisher("a").unwrap();
    publisher.publish("first").unwrap();
    rig.run(300, &mut outlet, &mut arrivals, &mut inlet);
    let mut wanted = vec![message("a", b"first")];
    for number in 0..400 {
        let text = format!("{number:06}{}", ".".repeat(number % 3 * 900));
        publisher.publish(&text).unwrap();
        wanted.push(message("a", text.as_bytes()));
        rig.run(1, &mut outlet, &mut arrivals, &mut inlet);
    }
    rig.run(2_000, &mut outlet, &mut arrivals, &mut inlet);
    let mut got = given(&mut subscriber);
    assert_ne!(got, wanted, "some came before others");
    let key = |one: &Given| format!("{one:?}");
    got.sort_by_key(key);
    wanted.sort_by_key(key);
    assert_eq!(got, wanted);
}
