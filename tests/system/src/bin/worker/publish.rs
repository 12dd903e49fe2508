//! `publish`: publishes messages of random sizes, as fast as possible or slowly, until the test asks it to stop.
//!
//! With `phase=ignored` it publishes `count` messages, whatever the test asks. `kind`: `single`, `try`, `timeout`,
//! `batch`, `burst`, `with`, `descendants`, `topics` (each message on a new topic), `stopping` (in place, and it stops
//! itself under the lock), or `mixed`. With `exclusive=true` it is the only publisher of the bus, and waits until it
//! can be.

use crate::options::Options;
use std::time::{Duration, Instant};
use system_tests::Random;
use system_tests::counters::{Phase, SharedCounters};
use system_tests::payload::{Payload, encode};
use toroni::{BurstError, Bus, Exclusive, ExclusiveTopic, Limit, PublishError, Publisher};

/// Messages of a batch, and of a burst.
pub(crate) const BUNDLE: usize = system_tests::worker::BUNDLE;

const KINDS: [&str; 7] = ["single", "try", "timeout", "batch", "burst", "with", "descendants"];

pub(crate) fn run(options: &Options) {
    let counters = options.counters();
    let mut publishing = Publishing::new(options);
    let pause = Duration::from_micros(options.or("pause_us", 0));
    let count: u64 = options.or("count", u64::MAX);
    let is_obedient = options.or("phase", "obeyed".to_owned()) == "obeyed";
    println!("ready");
    let mut last = Instant::now();
    while publishing.counter < count {
        match counters.phase() {
            _ if !is_obedient => {}
            Phase::Run => {}
            Phase::Pause => {
                std::thread::sleep(Duration::from_micros(200));
                last = Instant::now();
                continue;
            }
            Phase::Stop => break,
        }
        publishing.publish(&counters);
        // From the end of one call to the end of the next.
        let now = Instant::now();
        counters.add_stall(publishing.id, now - last);
        last = now;
        if !pause.is_zero() {
            std::thread::sleep(pause);
            last = Instant::now();
        }
    }
    println!("published {}", publishing.counter);
}

pub(crate) struct Publishing {
    handle: Handle,
    id: u32,
    /// Of the next message.
    counter: u64,
    kind: String,
    longest: usize,
    random: Random,
    buffers: Vec<Vec<u8>>,
}

impl Publishing {
    pub(crate) fn new(options: &Options) -> Self {
        let bus = options.bus();
        let id = options.get("id");
        let topic = options.or("topic", format!("worker/{}", id % 16));
        let handle = Handle::new(bus, &topic, options.or("exclusive", false));
        Self {
            handle,
            id,
            counter: 0,
            kind: options.or("kind", "mixed".to_owned()),
            longest: options.or("longest", 1000),
            random: Random::new(options.or("seed", 1)),
            buffers: vec![Vec::new(); BUNDLE],
        }
    }

    /// Publishes the next message, or bundle, and states in the shared counters what is published then.
    pub(crate) fn publish(&mut self, counters: &SharedCounters) {
        let kind = match self.kind.as_str() {
            "mixed" => KINDS[self.random.index(KINDS.len())].to_owned(),
            kind => kind.to_owned(),
        };
        let count = match kind.as_str() {
            "batch" | "burst" => BUNDLE,
            _ => 1,
        };
        // A batch must not be longer than the longest record.
        let longest = self.longest / count;
        for (buffer, counter) in self.buffers.iter_mut().take(count).zip(self.counter..) {
            let length = self.random.length(longest);
            encode(Payload { worker: self.id, counter }, length, buffer);
        }
        let bundle = &self.buffers[..count];
        let message = &bundle[0];
        match kind.as_str() {
            "single" => self.handle.publish(message, Limit::Policy).expect("published"),
            "try" => self.try_publish(message),
            "timeout" => {
                self.handle.publish(message, Duration::from_secs(60).into()).expect("in time");
            }
            "batch" => self.handle.publish_batch(bundle).expect("published"),
            "burst" => self.handle.burst(bundle).expect("published"),
            "with" => self.handle.publish_with(message, || {}).expect("published"),
            "stopping" => self
                .handle
                .publish_with(message, || {
                    let me = rustix::process::getpid();
                    rustix::process::kill_process(me, rustix::process::Signal::STOP)
                        .expect("a signal to itself");
                })
                .expect("published"),
            "dwell" => self
                .handle
                .publish_with(message, || std::thread::sleep(Duration::from_micros(100)))
                .expect("published"),
            "descendants" => self.handle.publish_to_descendants(message).expect("published"),
            "topics" => {
                let topic = format!("worker/{}/{}", self.id, self.counter);
                self.handle.publish_on(&topic, message).expect("published");
            }
            kind => panic!("no kind {kind:?}"),
        }
        self.counter += count as u64;
        counters.set_count(self.id, self.counter);
    }

    /// At once if possible; else, after a while, as the others do.
    fn try_publish(&self, message: &[u8]) {
        for _ in 0..20 {
            match self.handle.publish(message, Limit::Try) {
                Ok(()) => return,
                Err(PublishError::Busy | PublishError::Full) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
        self.handle.publish(message, Limit::Policy).expect("published");
    }
}

/// How the worker publishes: beside others, or alone.
enum Handle {
    Shared(Bus, Publisher),
    Exclusive(Exclusive, ExclusiveTopic),
}

impl Handle {
    fn new(bus: Bus, topic: &str, exclusive: bool) -> Self {
        if exclusive {
            let exclusive = bus.exclusive().expect("an exclusive publisher");
            let topic = exclusive.topic(topic).expect("a topic");
            exclusive.retained(topic.clone()).expect("retained");
            return Self::Exclusive(exclusive, topic);
        }
        let publisher = bus.publisher(topic).expect("a publisher");
        // By another handle: what this one publishes takes the common way.
        publisher.clone().retained().expect("retained");
        Self::Shared(bus, publisher)
    }

    fn publish(&self, message: &[u8], limit: Limit) -> Result<(), PublishError> {
        match self {
            Self::Shared(_, publisher) => publisher.publish_within(message, limit),
            Self::Exclusive(exclusive, topic) => exclusive.publish(topic, message, limit),
        }
        .map(drop)
    }

    fn publish_batch(&self, messages: &[Vec<u8>]) -> Result<(), PublishError> {
        match self {
            Self::Shared(_, publisher) => publisher.publish_batch(messages, Limit::Policy),
            Self::Exclusive(exclusive, topic) => {
                exclusive.publish_batch(topic, messages, Limit::Policy)
            }
        }
        .map(drop)
    }

    fn burst(&self, messages: &[Vec<u8>]) -> Result<(), BurstError> {
        match self {
            Self::Shared(_, publisher) => publisher.burst(messages, Limit::Policy),
            Self::Exclusive(exclusive, topic) => exclusive.burst(topic, messages, Limit::Policy),
        }
    }

    /// Writes the message in place. Then does `more`, still under the lock.
    fn publish_with(&self, message: &[u8], more: impl FnOnce()) -> Result<(), PublishError> {
        let fill = |bytes: &mut toroni::RacyBytesMut<'_>| {
            bytes.write(0, message);
            more();
        };
        match self {
            Self::Shared(_, publisher) => {
                publisher.publish_with(message.len(), Limit::Policy, fill)
            }
            Self::Exclusive(exclusive, topic) => {
                exclusive.publish_with(topic, message.len(), Limit::Policy, fill)
            }
        }
        .map(drop)
    }

    fn publish_to_descendants(&self, message: &[u8]) -> Result<(), PublishError> {
        match self {
            Self::Shared(_, publisher) => publisher.clone().to_descendants(true).publish(message),
            Self::Exclusive(exclusive, topic) => {
                exclusive.publish(&topic.clone().to_descendants(true), message, Limit::Policy)
            }
        }
        .map(drop)
    }

    /// Publishes on another topic.
    fn publish_on(&self, topic: &str, message: &[u8]) -> Result<(), PublishError> {
        match self {
            Self::Shared(bus, _) => bus.publisher(topic).expect("a publisher").publish(message),
            Self::Exclusive(exclusive, _) => {
                exclusive.publish(&exclusive.topic(topic).expect("a topic"), message, Limit::Policy)
            }
        }
        .map(drop)
    }
}
