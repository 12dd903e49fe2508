//! Arbitrary bytes in the place of everything that the bridge gets from outside: attachments, batches, heartbeats, loss
//! reports, and the order in which messages and heartbeats come.
//!
//! The modules are the bridge's own files. They do not use Zenoh, so this crate builds without it, in a few seconds and
//! under a fuzzer. Each function takes arbitrary bytes and panics if the result is wrong.

#![allow(dead_code, unreachable_pub, reason = "the bridge uses the rest")]
#![allow(
    clippy::wrong_self_convention,
    reason = "in the bridge they are public, and stay as they are"
)]

#[path = "../../src"]
mod bridge {
    pub(crate) mod attachment;
    pub(crate) mod batch;
    pub(crate) mod beat;
    pub(crate) mod loss;
    pub(crate) mod order;
}

// The files name one another from the root of their crate.
use bridge::{attachment, batch, beat, loss, order};

use attachment::Attachment;
use batch::{Batch, Record, Records};
use beat::{Beat, Known};
use loss::LossReport;
use order::{Event, Item, Opening, Order, StreamKey};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use toroni::{LostBound, Origin};

/// The first byte chooses what the others are.
pub fn all(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else { return };
    match choice % 3 {
        0 => parse(rest),
        1 => order_of_an_honest_sender(rest),
        _ => order_of_hostile_senders(rest),
    }
}

/// Whatever is accepted means the same after it was written again.
pub fn parse(bytes: &[u8]) {
    if let Ok(attachment) = Attachment::parse(bytes) {
        assert_eq!(&attachment.to_bytes()[..], bytes);
    }
    if let Ok(mut records) = Records::new(bytes) {
        let mut again = Batch::default();
        while let Some(Ok(Record { topic, attachment, published_ns, payload })) = records.next() {
            again.push(topic, &attachment, published_ns, &bytes[payload]);
        }
        // A topic that is written again is left out.
        assert!(again.len() <= bytes.len());
    }
    if let Some(beat) = Beat::parse(bytes) {
        assert_eq!(Beat::parse(&beat.to_bytes()).as_ref(), Some(&beat));
        let mut known = Known::default();
        known.take(&beat);
        known.take(&beat);
        let _ = known.complete();
    }
    if let Some(lost) = LossReport::parse(bytes) {
        assert_eq!(LossReport::parse(&LossReport::new(&lost).to_bytes()), Some(lost));
    }
}

const TOPICS: [&str; 3] = ["a", "a/b", "c"];
const REORDER: Duration = Duration::from_millis(20);
const NUMBERING: u32 = 7;
const KEY: StreamKey = StreamKey { source: 1, series: 2, stream: 3 };

/// A sender counts correctly, and the network drops, delays, doubles and reorders what it sends. Each topic must be
/// delivered in order, nothing twice, and the losses must be exact.
///
/// # Panics
/// If they are not.
pub fn order_of_an_honest_sender(bytes: &[u8]) {
    let mut order: Order<()> = Order::new(64, 1024);
    let mut events = Vec::new();
    let mut now = Duration::ZERO;
    let mut sent: Vec<Item<()>> = Vec::new();
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut number = 0;
    let mut ledger = Ledger::default();
    order.arrived(KEY, 0);
    order.open(now, opening(NUMBERING, None), &mut events);
    // From here on the receiver knows that each topic begins at 0.
    told(&mut order, now, number, &counts, &mut events);
    for operation in bytes {
        let value = operation >> 3;
        match operation % 8 {
            // Publishes a message, which waits in the network.
            0..=2 => {
                let topic = TOPICS[usize::from(value) % TOPICS.len()];
                let count = counts.entry(topic.to_owned()).or_default();
                let origin = KEY.origin(number);
                sent.push(Item {
                    topic: topic.into(),
                    origin,
                    count: *count,
                    loss: None,
                    missed: None,
                    body: (),
                });
                *count += 1;
                number += 1;
            }
            // The network delivers one of those that wait, in order or not.
            3 if !sent.is_empty() => {
                let item = sent.remove(usize::from(value) % sent.len());
                order.message(now, NUMBERING, item, &mut events);
            }
            4 if !sent.is_empty() => {
                order.message(now, NUMBERING, sent.remove(0), &mut events);
            }
            // It delivers one, and keeps a copy.
            5 if !sent.is_empty() => {
                let item = sent[usize::from(value) % sent.len()].clone();
                order.message(now, NUMBERING, item, &mut events);
            }
            // It drops one.
            6 if !sent.is_empty() => {
                sent.remove(usize::from(value) % sent.len());
            }
            _ if value % 2 == 0 => told(&mut order, now, number, &counts, &mut events),
            _ => {
                now += Duration::from_millis(u64::from(value));
                order.expire(now, &mut events);
            }
        }
        ledger.take(&mut events);
    }
    // A last heartbeat: what has not come is lost.
    told(&mut order, now, number, &counts, &mut events);
    // The gaps of a topic are given up one after the other.
    let mut rounds = 0;
    while let Some(deadline) = order.deadline() {
        rounds += 1;
        assert!(rounds <= number, "gaps never end");
        order.expire(deadline, &mut events);
    }
    ledger.take(&mut events);
    for (topic, count) in &counts {
        let settled = ledger.next.get(topic.as_str()).copied().unwrap_or(0);
        assert_eq!(settled, *count, "{topic}: neither delivered nor lost");
    }
}

fn opening(numbering: u32, own: Option<StreamKey>) -> Opening {
    Opening { numbering, reorder: REORDER, own, since: Duration::ZERO }
}

fn told(
    order: &mut Order<()>,
    now: Duration,
    number: u64,
    counts: &BTreeMap<String, u64>,
    events: &mut Vec<Event<()>>,
) {
    let beat = Beat {
        source: KEY.source,
        series: KEY.series,
        stream: KEY.stream,
        numbering: NUMBERING,
        until: number,
        full: true,
        topics: counts.clone(),
        ..Beat::default()
    };
    order.told(now, &beat.told(), |_| true, events);
}

/// What was delivered or lost of each topic.
#[derive(Default)]
struct Ledger {
    next: BTreeMap<Arc<str>, u64>,
    numbers: BTreeSet<u64>,
    lost: u64,
}

impl Ledger {
    fn take(&mut self, events: &mut Vec<Event<()>>) {
        for event in events.drain(..) {
            match event {
                Event::Deliver { item, .. } => {
                    assert!(self.numbers.insert(item.origin.number), "twice: {item:?}");
                    let next = self.next.entry(item.topic.clone()).or_default();
                    assert_eq!(item.count, *next, "out of order, or a silent loss: {item:?}");
                    *next += 1;
                }
                Event::Lost(loss) => {
                    assert_eq!(loss.bound, LostBound::Exact, "{loss:?}");
                    assert!(loss.messages > 0 && loss.from.number <= loss.until, "{loss:?}");
                    let topic = loss.topic.clone().expect("a loss of a topic");
                    *self.next.entry(topic).or_default() += loss.messages;
                    self.lost = self.lost.saturating_add(loss.messages);
                }
                Event::Settled(Origin { number, .. }) => {
                    let delivered = self.numbers.range(..number).count() as u64;
                    assert!(
                        self.lost.saturating_add(delivered) >= number,
                        "settled to {number} too early"
                    );
                }
                Event::Duplicate | Event::Late => {}
            }
        }
    }
}

/// Senders that count as they like. What is delivered stays within what came, and losses within the limits of numbers.
///
/// # Panics
/// If it does not.
pub fn order_of_hostile_senders(bytes: &[u8]) {
    let mut order: Order<()> = Order::new(4, 8);
    let mut events = Vec::new();
    let mut now = Duration::ZERO;
    let (mut came, mut delivered) = (0_u64, 0_u64);
    for operation in bytes.chunks_exact(8) {
        let [kind, path, topic, a, b, c, d, e] = *operation else { unreachable!() };
        let numbering = u32::from(path % 3);
        let key = StreamKey { source: u32::from(path % 2), ..KEY };
        let topic = TOPICS[usize::from(topic) % TOPICS.len()];
        // Small numbers, and those near the end.
        let wide = |value: u8, more: u8| match more % 4 {
            0 => u64::from(value),
            1 => u64::from(value) << 16,
            2 => Origin::NUMBER_LIMIT - 1 - u64::from(value),
            _ => u64::from(value) << 40,
        };
        let (first, second) = (wide(a, b), wide(c, d));
        match kind % 5 {
            0 | 1 | 4 => {
                order.arrived(key, 0);
                order.open(now, opening(numbering, (e % 2 == 0).then_some(key)), &mut events);
                // Or the report of a loss that another bridge relays.
                let loss =
                    (kind % 5 == 4).then(|| (key.origin(first.min(second)), first.max(second)));
                let item = Item {
                    topic: topic.into(),
                    origin: key.origin(first),
                    count: second,
                    loss,
                    missed: None,
                    body: (),
                };
                order.message(now, numbering, item, &mut events);
                came += 1;
            }
            2 => {
                order.open(now, opening(numbering, None), &mut events);
                let beat = Beat {
                    source: key.source,
                    series: key.series,
                    stream: key.stream,
                    numbering,
                    begins: first.min(second),
                    until: first.max(second),
                    full: e % 2 == 0,
                    topics: BTreeMap::from([(topic.to_owned(), wide(e, c))]),
                    ..Beat::default()
                };
                // As it comes from the network.
                if let Some(beat) = Beat::parse(&beat.to_bytes()) {
                    order.told(now, &beat.told(), |name| name != TOPICS[2], &mut events);
                }
            }
            _ => {
                now += Duration::from_millis(u64::from(e));
                order.expire(now, &mut events);
            }
        }
        for event in events.drain(..) {
            match event {
                Event::Deliver { .. } => delivered += 1,
                Event::Lost(loss) => {
                    assert!(loss.from.number <= Origin::NUMBER_LIMIT, "{loss:?}");
                    assert!(loss.until <= Origin::NUMBER_LIMIT, "{loss:?}");
                }
                Event::Settled(next) => assert!(next.number <= Origin::NUMBER_LIMIT, "{next}"),
                Event::Duplicate | Event::Late => {}
            }
        }
    }
    assert!(delivered <= came, "{delivered} of {came}");
}
