//! `publish`: publishes messages of random sizes, as fast as possible or slowly, until it is told to stop.
//!
//! With `phase=ignored` it publishes `count` messages, whatever it is told. `kind`: `single`, `try`, `timeout`, `batch`,
//! `burst`, `with`, `descendants`, `topics` (each message on a new topic), `stopping` (in place, and it stops itself under
//! the lock), or `mixed`.

use crate::options::Options;
use std::time::{Duration, Instant};
use system_tests::Random;
use system_tests::counters::{Phase, SharedCounters};
use system_tests::payload::{Payload, encode};
use toroni::{Bus, PublishError, Publisher};

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
    bus: Bus,
    publisher: Publisher,
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
        let publisher = bus.publisher(&topic).expect("a publisher");
        Self {
            bus,
            publisher,
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
            "single" => self.publisher.publish(message).expect("published"),
            "try" => self.try_publish(message),
            "timeout" => {
                self.publisher.publish_timeout(message, Duration::from_secs(60)).expect("in time");
            }
            "batch" => self.publisher.publish_batch(bundle).expect("published"),
            "burst" => self.publisher.burst(bundle).expect("published"),
            "with" => self
                .publisher
                .publish_with(message.len(), |bytes| bytes.write(0, message))
                .expect("published"),
            "stopping" => self
                .publisher
                .publish_with(message.len(), |bytes| {
                    bytes.write(0, message);
                    let me = rustix::process::getpid();
                    rustix::process::kill_process(me, rustix::process::Signal::STOP)
                        .expect("a signal to itself");
                })
                .expect("published"),
            "dwell" => self
                .publisher
                .publish_with(message.len(), |bytes| {
                    bytes.write(0, message);
                    std::thread::sleep(Duration::from_micros(100));
                })
                .expect("published"),
            "descendants" => self.publisher.publish_to_descendants(message).expect("published"),
            "topics" => {
                let topic = format!("worker/{}/{}", self.id, self.counter);
                let publisher = self.bus.publisher(&topic).expect("a publisher");
                publisher.publish(message).expect("published");
            }
            kind => panic!("no kind {kind:?}"),
        }
        self.counter += count as u64;
        counters.set_count(self.id, self.counter);
    }

    /// At once if possible; else, after a while, as the others do.
    fn try_publish(&self, message: &[u8]) {
        for _ in 0..20 {
            match self.publisher.try_publish(message) {
                Ok(()) => return,
                Err(PublishError::Busy | PublishError::Full) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
        self.publisher.publish(message).expect("published");
    }
}
