//! How many NAKs a group sends for a loss that all its receivers share.

use crate::arrivals::{Arrivals, Flow, Inbox};
use crate::audience::Name;
use crate::batcher::Now;
use crate::config::Config;
use crate::id::{Number, Realm, Sequence, Series, Session, Source, Stream};
use crate::legs::Path;
use crate::past::Past;
use crate::random::Random;
use crate::reassembly::{Loss, Message};
use crate::receiver::Me;
use crate::sender::{Identity, Sender};
use crate::time::{MICROSECOND, MILLISECOND, Monotonic, Wall};
use crate::wire::{
    Address, Flags, Header, LegAddresses, NodeName, Receiver, Repairers, Start, TableName,
    TopicNumber,
};

#[derive(Default)]
struct Counted {
    messages: u64,
    losses: u64,
}

impl Inbox for Counted {
    fn message(&mut self, _: Flow, _: Message<'_>) {
        self.messages += 1;
    }
    fn topic(&mut self, _: Flow, _: TopicNumber, _: TableName<'_>) {}
    fn loss(&mut self, _: Flow, _: Loss) {
        self.losses += 1;
    }
}

fn now(ns: u64) -> Now {
    let start = 10_000 * MILLISECOND;
    Now { monotonic: Monotonic::from_ns(start + ns), wall: Wall::from_ns(start + ns) }
}

/// Returns how many NAKs 100 receivers send for one datagram that all miss, if a repair reaches them `after` the
/// NAK was sent.
fn naks(seed: u64, after: u64) -> u64 {
    const RECEIVERS: usize = 100;
    let config = Config {
        window_bytes: 1 << 20,
        message_max_bytes: 1 << 16,
        reorder_memory_bytes: 1 << 18,
        receive_memory_bytes: 1 << 18,
        sources: 2,
        topics: 32,
        ..Config::with_rate(100_000_000)
    };
    let identity = Identity {
        header: Header {
            flags: Flags::NONE,
            ttl: 1,
            realm: Realm(1),
            stream: Stream(1),
            source: Source(1),
            session: Session(1),
            sequence: Sequence::ZERO,
        },
        keys: None,
        name: NodeName::new("sender").unwrap(),
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
    let mut sender = Sender::new(&config, &identity, now(0).monotonic).unwrap();
    let mut receivers: Vec<(Arrivals, Counted)> = (0..RECEIVERS)
        .map(|at| {
            let me = Me {
                id: Receiver {
                    source: Source(10 + u32::try_from(at).unwrap()),
                    session: Session(1),
                },
                name: Name::new(NodeName::new("receiver").unwrap()),
                required: false,
            };
            let random = Random::new(seed * 1_000 + at as u64);
            (Arrivals::new(&config, Realm(1), None, me, [2; 16], random), Counted::default())
        })
        .collect();
    // (time, receiver or None for the sender, from, bytes)
    let mut flying: Vec<(u64, Option<usize>, u16, Vec<u8>)> = Vec::new();
    let (mut count, mut datagrams, mut lost) = (0, 0, false);
    let half = after / 2;
    // What a round trip is made of.
    for time in (0..300 * MILLISECOND).step_by(20_000) {
        if time % (10 * MILLISECOND) == 0 && time < 100 * MILLISECOND {
            let name = TableName::new("a").unwrap();
            let topic = sender.topic(now(time), name).unwrap().unwrap();
            let number = Number::new(time / (10 * MILLISECOND)).unwrap();
            let start =
                Start { topic, number, to_descendants: false, published: None, origin: None };
            sender.message(now(time), start, &[0; 100]).unwrap();
            sender.flush(now(time));
        }
        let (due, later): (Vec<_>, Vec<_>) = flying.drain(..).partition(|one| one.0 <= time);
        flying = later;
        for (_, to, from, bytes) in due {
            let address = Address { ip: [0; 16], port: from };
            match to {
                None => {
                    count += u64::from(bytes[3] == 3);
                    sender.handle_datagram(now(time), address, &bytes).unwrap();
                }
                Some(at) => {
                    let (arrivals, out) = &mut receivers[at];
                    arrivals
                        .handle_datagram(now(time).monotonic, Path::single(address), &bytes, out)
                        .unwrap();
                }
            }
        }
        sender.handle_timeout(now(time));
        while let Some(bytes) = sender.poll_transmit(now(time)) {
            datagrams += u64::from(bytes[3] == 1);
            if datagrams == 6 && !lost {
                lost = true;
                continue;
            }
            for at in 0..RECEIVERS {
                flying.push((time + half, Some(at), 9_999, bytes.to_vec()));
            }
        }
        for (at, (arrivals, out)) in receivers.iter_mut().enumerate() {
            arrivals.handle_timeout(now(time).monotonic, out);
            while let Some((_, bytes)) = arrivals.poll_transmit(now(time).monotonic) {
                flying.push((time + half, None, 10 + u16::try_from(at).unwrap(), bytes.to_vec()));
            }
        }
    }
    for (_, out) in &receivers {
        assert_eq!((out.messages, out.losses), (10, 0));
    }
    assert!(lost && count > 0);
    count
}

/// RFC 5401's backoff: of many that miss the same, few ask.
#[test]
fn a_group_sends_few_naks_for_a_loss_that_all_share() {
    for (after, most) in [(MILLISECOND, 21), (300 * MICROSECOND, 8)] {
        let seeds = 12;
        let sum: u64 = (0..seeds).map(|seed| naks(seed, after)).sum();
        assert!(sum <= most * seeds, "{} NAKs on average at {after} ns", sum / seeds);
    }
}
