//! The wall clock of a host is set while its nodes run. Only `CLOCK_MONOTONIC` decides when something is due.

use super::*;
use crate::host::interface;
use crate::now::step;
use crate::socket::{Datagram, Options};
use std::time::Instant;
use toroni::{BusConfig, ReceiveError, Subscriber};
use toroni_proto::config::tcp::TcpConfig;
use toroni_proto::id::Session;
use toroni_proto::time::SECOND;
use toroni_testkit::{Directory, wait};

const HOUR: i64 = 3_600;
/// More than the socket of the receiver has room for.
const BURST: u64 = 400;

/// How messages come from one bus to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Group,
    Tcp,
}

/// A sender and a receiver, in turn in this thread.
struct Pair {
    from: Bus,
    to: Bus,
    sending: Settings,
    sender: Node,
    receiver: Node,
    subscriber: Subscriber,
    published: u64,
    received: u64,
    repaired: u64,
}

impl Pair {
    fn new(directory: &Directory, way: Way) -> Self {
        let bus = |name: &str| {
            let config = BusConfig::new().directory(directory.path()).capacity(16 << 20);
            config.timestamps(true).create(name).unwrap()
        };
        let (from, to) = (bus("from"), bus("to"));
        let lo = interface::named("lo").unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let free = Datagram::leg(any, &lo, &Options::default()).unwrap();
        let group = SocketAddr::new("239.192.84.79".parse().unwrap(), free.address().port());
        let member = |name: &str, source| Membership {
            realm: Realm::of(directory.path().to_str().unwrap()),
            keys: None,
            name: name.to_owned(),
            source: Source(source),
            session: Session(1),
            claim: None,
            instance: [u8::try_from(source).unwrap(); 16],
            is_observed: false,
            interfaces: vec![lo.clone()],
            // A burst does not fit, so that some of it must be repaired.
            sockets: Options {
                ttl: 1,
                is_looped: true,
                receive_buffer: Some(64 << 10),
                ..Options::default()
            },
        };
        // Repairs may take as long as a busy machine makes them take, and far less than the clock is set by.
        let config = Config { generation_ns: 20 * SECOND, ..Config::with_rate(400_000_000) };
        let settings = |name: &str, source| Settings::new(member(name, source));
        let (mut sending, mut receiving) = (settings("a", 1), settings("b", 2));
        let state = State::open(&directory.path().join("state")).unwrap();
        sending.member.session = state.begin_session(crate::now::now().wall).unwrap();
        sending.state = Some(Arc::new(state));
        let everything = || vec![Pattern::everything()];
        let tcp = TcpConfig {
            latency_bound_ns: 20 * SECOND,
            stall_ns: 30 * SECOND,
            ..TcpConfig::default()
        };
        match way {
            Way::Group => {
                sending.send.push(Send {
                    stream: Stream(1),
                    selection: outlet::Selection {
                        patterns: everything(),
                        prefix: String::new(),
                        express: Vec::new(),
                    },
                    config: config.clone(),
                    to: vec![group],
                    start: Start::Latest,
                    is_gating: false,
                    required: Vec::new(),
                });
                receiving.receive.push(Receive {
                    groups: vec![group],
                    selection: inlet::Selection {
                        accept: everything(),
                        prefix: String::new(),
                        order: config.order,
                    },
                    config,
                    sources: Vec::new(),
                    is_required: false,
                    lost_scope: None,
                    retains: false,
                    into: None,
                    fetch: fetch::Settings::default(),
                });
            }
            Way::Tcp => {
                sending.listen =
                    Some(tcp::Listen { address: any, patterns: everything(), config: tcp.clone() });
            }
        }
        let sender = Node::new(&from, &sending).unwrap();
        if let Some(listener) = sender.tcp().and_then(tcp::Tcp::listener) {
            let address = listener.address();
            sending.listen.as_mut().unwrap().address = address;
            receiving.connect.push(tcp::Connect {
                address: address.into(),
                patterns: everything(),
                bind: None,
                activity: Duration::from_secs(10),
                lost_scope: None,
                retains: false,
                config: tcp,
            });
        }
        let receiver = Node::new(&to, &receiving).unwrap();
        let subscriber = to.subscribe("**").unwrap();
        Self {
            from,
            to,
            sending,
            sender,
            receiver,
            subscriber,
            published: 0,
            received: 0,
            repaired: 0,
        }
    }

    /// Lets both nodes have a turn. Nothing that either reports may follow from the clock.
    fn turn(&mut self) -> bool {
        let mut has_joined = false;
        for node in [&mut self.sender, &mut self.receiver] {
            if !node.turn().unwrap() {
                node.set_longest_sleep(Duration::from_millis(1));
                node.wait(None).unwrap();
            }
            while let Some(event) = node.event() {
                match event {
                    Event::Arrivals(arrivals::Event::Joined(_))
                    | Event::Tcp(tcp::Event::Connected(_)) => has_joined = true,
                    Event::Stalled(ns) => assert!(ns < 600 * SECOND, "stalled for {ns} ns"),
                    Event::Arrivals(arrivals::Event::Ended(..)) => panic!("{event:?}"),
                    Event::Tcp(tcp::Event::Left { .. } | tcp::Event::Disconnected { .. }) => {
                        panic!("{event:?}")
                    }
                    Event::Lost(..) => panic!("{event:?}"),
                    _ => {}
                }
            }
            // No deadline lies an hour ahead, or the node would sleep until then.
            let due = node.due.unwrap();
            let ahead = due.since(crate::now::now().monotonic);
            assert!(ahead < 600 * SECOND, "the next turn is due in {ahead} ns");
        }
        has_joined
    }

    fn meet(&mut self) {
        let begun = Instant::now();
        while !self.turn() {
            assert!(begun.elapsed() < wait::LIMIT, "the node hears nothing");
        }
    }

    fn publish(&mut self) {
        let publisher = self.from.publisher("t").unwrap();
        for number in self.published..self.published + BURST {
            publisher.publish(format!("{number:>900}")).unwrap();
        }
        self.published += BURST;
    }

    /// Receives everything that was published: once and in order.
    fn receive(&mut self) {
        let begun = Instant::now();
        while self.received < self.published {
            assert!(begun.elapsed() < wait::LIMIT, "{} of {}", self.received, self.published);
            self.turn();
            loop {
                match self.subscriber.try_receive() {
                    Ok(Some(message)) => {
                        let number: u64 = message.text().trim().parse().unwrap();
                        assert_eq!(number, self.received);
                        self.received += 1;
                    }
                    Ok(None) => break,
                    Err(ReceiveError::Lost(lost)) => panic!("before {}: {lost}", self.received),
                    Err(error) => panic!("{error}"),
                }
            }
        }
        let counted = self.receiver.receiving.iter().flat_map(|it| it.arrivals.counters());
        self.repaired = self.repaired.max(counted.map(|(.., counters)| counters.repaired).sum());
    }

    /// Kills the sender and starts it again.
    fn restart(&mut self) {
        let Self { from, to, sending, sender, .. } = self;
        // Its source id and its topics are free before the next one needs them.
        let none = Settings { send: Vec::new(), listen: None, state: None, ..sending.clone() };
        let member = Membership { source: Source(3), ..none.member.clone() };
        *sender = Node::new(to, &Settings { member, ..none }).unwrap();
        let state = sending.state.clone().unwrap();
        sending.member.session = state.begin_session(crate::now::now().wall).unwrap();
        *sender = Node::new(from, sending).unwrap();
    }
}

#[test]
fn a_wall_clock_that_is_set_by_an_hour_changes_nothing() {
    for way in [Way::Group, Way::Tcp] {
        step::to(0);
        let directory = Directory::new();
        let mut pair = Pair::new(&directory, way);
        pair.meet();
        pair.publish();
        pair.receive();
        for hours in [1, -1, 0, -2, 2] {
            // In the midst of a burst, of which the receiver's socket takes only the first part.
            pair.publish();
            (0..20).for_each(|_| {
                pair.sender.turn().unwrap();
            });
            step::to(hours * HOUR);
            pair.publish();
            pair.receive();
            // What is idle has deadlines, too.
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(300) {
                pair.turn();
            }
        }
        assert!(way == Way::Tcp || pair.repaired > 0, "nothing was repaired");
    }
    step::to(0);
}

/// The next life of a sender begins an hour before or after the last one.
#[test]
fn a_sender_that_restarts_with_another_time_loses_and_doubles_nothing() {
    step::to(0);
    let directory = Directory::new();
    let mut pair = Pair::new(&directory, Way::Group);
    pair.meet();
    pair.publish();
    pair.receive();
    for hours in [1, -1] {
        step::to(hours * HOUR);
        pair.publish();
        pair.restart();
        pair.publish();
        pair.receive();
    }
    step::to(0);
}
