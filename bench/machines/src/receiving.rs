//! What a receiver does.

use std::hint::black_box;

use toroni_proto::arrivals::{Arrivals, Flow, Inbox};
use toroni_proto::audience::Name;
use toroni_proto::id::{Realm, Session, Source};
use toroni_proto::legs::Path;
use toroni_proto::random::Random;
use toroni_proto::reassembly::{Buffer, Loss, Message};
use toroni_proto::receiver::Me;
use toroni_proto::time::{MILLISECOND, Monotonic};
use toroni_proto::wire::{Kind, NodeName, Receiver, TableName, TopicNumber};

use crate::Machine;
use crate::rig::{self, MESSAGES, Packer};

/// Counts what arrives, and reads each message where it lies.
#[derive(Default)]
struct Counted {
    messages: u64,
    losses: u64,
}

impl Inbox for Counted {
    #[inline]
    fn message(&mut self, _: Flow, message: Message<'_>) {
        self.messages += 1;
        black_box(message.parts.whole());
    }

    fn topic(&mut self, _: Flow, _: TopicNumber, _: TableName<'_>) {}

    fn loss(&mut self, _: Flow, _: Loss) {
        self.losses += 1;
    }
}

/// A receiving node that follows the stream of one sender.
struct Follower {
    packer: Packer,
    arrivals: Arrivals,
    out: Counted,
    ns: u64,
}

/// What arrived, in receive buffers, with the lengths.
type Received = Vec<(Buffer, usize)>;

impl Follower {
    fn new(message_bytes: usize, signed: bool) -> Self {
        let (config, keys) = (rig::config(), signed.then(rig::keys));
        let packer = Packer::new(&config, message_bytes, keys);
        let id = Receiver { source: Source(9), session: Session(1) };
        let name = Name::new(NodeName::new("line-9").expect("a name"));
        let me = Me { id, name, required: false };
        let realm = Realm::of(rig::REALM);
        let arrivals = Arrivals::new(&config, realm, keys, me, [9; 16], Random::new(1));
        let mut follower = Self { packer, arrivals, out: Counted::default(), ns: 0 };
        follower.tick(0);
        follower.packer.message(rig::at(0));
        for (buffer, length) in follower.receive() {
            follower.take(buffer, length);
        }
        follower
    }

    fn now(&self) -> Monotonic {
        rig::at_ns(self.ns).monotonic
    }

    /// Lets time pass, and both ends do what is due.
    fn tick(&mut self, ms: u64) {
        self.ns += ms * MILLISECOND;
        let (now, out) = (rig::at_ns(self.ns), &mut self.out);
        self.packer.sender.handle_timeout(now);
        self.arrivals.handle_timeout(now.monotonic, out);
        while self.arrivals.poll_transmit(now.monotonic).is_some() {}
        self.receive().into_iter().for_each(|(buffer, length)| self.take(buffer, length));
    }

    /// Puts what is packed into receive buffers, as a node's `recvmmsg` does.
    fn receive(&mut self) -> Received {
        let (arrivals, out) = (&mut self.arrivals, &mut self.out);
        let mut received = Vec::new();
        self.packer.send(rig::at_ns(self.ns), |datagram| {
            let buffer = arrivals.take_buffer(out).expect("the pool has room");
            arrivals.buffer_mut(&buffer)[..datagram.len()].copy_from_slice(datagram);
            received.push((buffer, datagram.len()));
        });
        received
    }

    #[inline]
    fn take(&mut self, buffer: Buffer, length: usize) {
        let (now, from) = (self.now(), Path::single(rig::address(3)));
        let taken = self.arrivals.handle_buffer(now, from, buffer, length, &mut self.out);
        taken.expect("a datagram of our own making");
    }

    /// Waits until it is time to ask for what is missing, and asks.
    fn ask(&mut self) {
        loop {
            let due = self.arrivals.poll_timeout().expect("a gap has a timer");
            self.ns = self.ns.max(due.ns());
            let now = self.now();
            self.arrivals.handle_timeout(now, &mut self.out);
            let mut asked = false;
            while let Some((_, datagram)) = self.arrivals.poll_transmit(now) {
                asked |= datagram[3] == Kind::Nak as u8;
            }
            if asked {
                return;
            }
        }
    }

    fn expect(&self, messages: u64, before: u64) {
        assert_eq!(self.out.messages - before, messages, "all messages are delivered");
        assert_eq!(self.out.losses, 0, "nothing is lost");
    }
}

/// Delivers the messages of full datagrams.
pub struct Deliver {
    follower: Follower,
    received: Received,
}

impl Deliver {
    #[must_use]
    pub fn new(message_bytes: usize, signed: bool) -> Self {
        Self { follower: Follower::new(message_bytes, signed), received: Vec::new() }
    }
}

impl Machine for Deliver {
    fn prepare(&mut self) {
        self.follower.tick(1);
        let now = rig::at_ns(self.follower.ns);
        for _ in 0..MESSAGES {
            self.follower.packer.message(now);
        }
        self.received = self.follower.receive();
    }

    fn run(&mut self) -> u64 {
        let before = self.follower.out.messages;
        for (buffer, length) in self.received.drain(..) {
            self.follower.take(buffer, length);
        }
        self.follower.expect(MESSAGES, before);
        MESSAGES
    }
}

/// Gaps of a round.
const GAPS: u64 = 128;

/// Misses one datagram of a message, asks for it, gets it, and delivers it and the one that waited.
pub struct Gap {
    follower: Follower,
    received: Received,
}

impl Gap {
    #[must_use]
    #[expect(clippy::new_without_default, reason = "as the other machines")]
    pub fn new() -> Self {
        Self { follower: Follower::new(1_024, false), received: Vec::new() }
    }
}

impl Machine for Gap {
    fn prepare(&mut self) {
        self.follower.tick(1);
        let now = rig::at_ns(self.follower.ns);
        for _ in 0..2 * GAPS {
            self.follower.packer.message(now);
        }
        self.received = self.follower.receive();
        assert_eq!(self.received.len() as u64, 2 * GAPS, "each message has a datagram");
    }

    fn run(&mut self) -> u64 {
        let before = self.follower.out.messages;
        let mut received = self.received.drain(..);
        while let (Some((missing, length)), Some((later, later_length))) =
            (received.next(), received.next())
        {
            self.follower.take(later, later_length);
            self.follower.ask();
            self.follower.take(missing, length);
        }
        self.follower.expect(2 * GAPS, before);
        GAPS
    }
}
