//! A stream as all machines use it: one topic, the default settings, and a rate that limits nothing.

use std::hint::black_box;
use std::net::Ipv4Addr;

use toroni_proto::batcher::Now;
use toroni_proto::config::Config;
use toroni_proto::id::{Number, Realm, Sequence, Series, Session, Source, Stream};
use toroni_proto::past::Past;
use toroni_proto::sender::{Identity, Sender};
use toroni_proto::time::{MILLISECOND, Monotonic, Wall};
use toroni_proto::wire::{
    Address, Flags, Header, Key, Keys, LegAddresses, NodeName, Policy, Repairers, Start, TableName,
    TopicNumber,
};

pub(crate) const REALM: &str = "plant";
pub(crate) const SOURCE: Source = Source(7);
pub(crate) const STREAM: Stream = Stream(1);
pub(crate) const SESSION: Session = Session(1);
/// Messages of one round: some datagrams, which stay in the cache.
pub(crate) const MESSAGES: u64 = 1_024;

pub(crate) fn config() -> Config {
    Config {
        policy: Policy::Uncontrolled,
        retransmit_rate: Some(1_000_000_000_000),
        // What is measured begins after a session is followed.
        proof: false,
        naks_each: 1_000_000,
        naks_all: 1_000_000,
        ..Config::default()
    }
}

pub(crate) fn keys() -> Keys {
    Keys { first: Key::new([7; Key::BYTES]), next: None }
}

pub(crate) fn header() -> Header {
    Header {
        flags: Flags::NONE,
        ttl: 16,
        realm: Realm::of(REALM),
        stream: STREAM,
        source: SOURCE,
        session: SESSION,
        sequence: Sequence::ZERO,
    }
}

pub(crate) fn at(ms: u64) -> Now {
    at_ns(ms * MILLISECOND)
}

/// Both clocks at the same moment.
pub(crate) fn at_ns(ns: u64) -> Now {
    Now { monotonic: Monotonic::from_ns(ns), wall: Wall::from_ns(1_700_000_000_000_000_000 + ns) }
}

pub(crate) fn address(host: u16) -> Address {
    let [high, low] = host.to_be_bytes();
    let ip = Ipv4Addr::new(10, 0, high, low).to_ipv6_mapped().octets();
    Address { ip, port: 4_479 }
}

/// A sender, and what it needs to pack messages of one length.
pub(crate) struct Packer {
    pub(crate) sender: Sender,
    topic: TopicNumber,
    next: Number,
    payload: Vec<u8>,
}

impl Packer {
    pub(crate) fn new(config: &Config, message_bytes: usize, keys: Option<Keys>) -> Self {
        let identity = Identity {
            header: header(),
            keys,
            name: NodeName::new("line-3").expect("a name"),
            instance: [1; 16],
            series: Series(1),
            begins: Number::ZERO,
            past: Past::NONE,
            patterns: &[],
            legs: LegAddresses::NONE,
            repairers: Repairers::default(),
            listen: 0,
            required: &[],
        };
        let mut sender = Sender::new(config, &identity, at(0).monotonic).expect("no patterns");
        let name = TableName::new("plant/boiler/temperature").expect("a name");
        let topic = sender.topic(at(0), name).expect("an empty window").expect("an empty table");
        Self { sender, topic, next: Number::ZERO, payload: vec![7; message_bytes] }
    }

    /// Packs one message.
    #[inline]
    pub(crate) fn message(&mut self, now: Now) {
        let start = Start {
            topic: self.topic,
            number: self.next,
            to_descendants: false,
            published: None,
            origin: None,
        };
        self.next = self.next.plus(1);
        self.sender.message(now, start, black_box(&self.payload)).expect("all before was sent");
    }

    /// Sends all that is packed.
    pub(crate) fn send(&mut self, now: Now, mut each: impl FnMut(&[u8])) {
        self.sender.flush(now);
        while let Some(datagram) = self.sender.poll_transmit(now) {
            each(datagram);
        }
    }
}
