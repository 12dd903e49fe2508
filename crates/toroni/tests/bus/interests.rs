//! Random lists of messages on several topics, to subscribers that each sleep until one comes that they want, beside the
//! obvious model of them.
//!
//! Each subscriber is in a thread of its own. Before each message all of them sleep. So a call that publishes sends one
//! wake-up for each subscriber that wants its messages, and none else, except for a topic that is new and for slots that were
//! left. A lost wake-up is one too few: that the subscriber would find the message by itself does not hide it.

use crate::common::Fixture;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use toroni::{Bus, Interrupter, Limit, Publisher, ReceiveError, Start, Subscriber, WaitStrategy};
use toroni_oracle::interests::{Change, Interests, PLACES, PUBLISHERS, Wanted, Way, topic_name};
use toroni_testkit::{long, wait::until};

/// Changes of a list.
const CHANGES: usize = 80;

#[test]
fn subscribers_of_some_topics_get_their_messages_by_one_wake_up_each() {
    let seed = toroni_testkit::random::seed_or_else(|| 1);
    for seed in seed..seed + u64::from(long::repetitions(12, 200)) {
        println!("TORONI_SEED={seed}");
        perform(seed);
    }
}

/// A subscriber that sleeps.
struct Sleeper {
    slot: u32,
    interrupter: Interrupter,
    /// `None` ends it.
    patterns: Sender<Option<String>>,
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    received: Mutex<Vec<Wanted>>,
    /// Messages that it received, and patterns that it took.
    events: AtomicU64,
    /// How often its slot had armed then.
    armed: AtomicU32,
}

struct Stage {
    bus: Bus,
    readers: Arc<File>,
    /// Each is a participant of its own.
    publishers: Vec<Bus>,
    topics: Vec<Vec<Option<Publisher>>>,
    sleepers: Vec<Option<Sleeper>>,
    events: Vec<u64>,
    interests: Interests,
}

fn perform(seed: u64) {
    let fixture = Fixture::new();
    // No list crosses a quarter of the ring, where a publisher wakes all.
    let open = || fixture.config().capacity(4 << 20).max_subscribers(70).open("b").unwrap();
    let bus = open();
    let readers = Arc::new(File::open(bus.path().join("readers")).unwrap());
    let mut stage = Stage {
        bus,
        readers,
        publishers: (0..PUBLISHERS).map(|_| open()).collect(),
        topics: (0..PUBLISHERS).map(|_| (0..=u8::MAX).map(|_| None).collect()).collect(),
        sleepers: (0..PLACES).map(|_| None).collect(),
        events: vec![0; PLACES.into()],
        interests: Interests::default(),
    };
    for change in Change::list(seed, CHANGES) {
        stage.change(&change);
    }
    for place in 0..PLACES {
        stage.leave(place);
    }
}

impl Stage {
    fn change(&mut self, change: &Change) {
        match change {
            Change::Join { place, patterns } => {
                self.leave(*place);
                self.interests.join(*place, patterns);
                let sleeper = Sleeper::start(&self.bus, patterns, &self.readers);
                self.sleepers[usize::from(*place)] = Some(sleeper);
                self.events[usize::from(*place)] = 0;
            }
            Change::Add { place, pattern } => {
                let Some(sleeper) = &self.sleepers[usize::from(*place)] else { return };
                self.interests.add(*place, pattern);
                sleeper.call(Some(pattern.clone()));
                self.events[usize::from(*place)] += 1;
            }
            Change::Leave { place } => self.leave(*place),
            Change::Publish { publisher, topic, way } => self.publish(*publisher, *topic, *way),
        }
        self.sleep();
    }

    fn leave(&mut self, place: u8) {
        let Some(sleeper) = self.sleepers[usize::from(place)].take() else { return };
        sleeper.call(None);
        sleeper.thread.join().unwrap();
        assert_eq!(*sleeper.shared.received.lock().unwrap(), self.interests.received(place));
        self.interests.leave(place);
    }

    fn publish(&mut self, publisher: u8, topic: u8, way: Way) {
        let was_new = self.interests.is_new(topic);
        let audience = self.interests.publish(publisher, topic, way);
        for place in &audience.places {
            self.events[usize::from(*place)] += u64::from(way.messages());
        }
        let before: Vec<(u32, u32)> =
            self.sleepers.iter().flatten().map(|one| (one.slot, self.armed(one.slot))).collect();
        let bus = &self.publishers[usize::from(publisher)];
        let handle = self.topics[usize::from(publisher)][usize::from(topic)]
            .get_or_insert_with(|| bus.publisher(&topic_name(topic)).unwrap());
        let wakes_before = wakes(&self.bus);
        let payloads = vec![[topic; 24]; way.messages().into()];
        match way {
            Way::One => _ = handle.publish(payloads[0]).unwrap(),
            Way::Batch(_) => _ = handle.publish_batch(&payloads, Limit::Policy).unwrap(),
            Way::Burst(_) => handle.burst(&payloads, Limit::Policy).unwrap(),
        }
        let (wanted, sent) = (audience.places.len() as u64, wakes(&self.bus) - wakes_before);
        assert!(
            (wanted..=wanted + audience.vain).contains(&sent),
            "{sent} wake-ups for {audience:?}"
        );
        self.interests.sent_in_vain(publisher, was_new, sent - wanted);
        if was_new {
            // Until each has armed again, one that was woken in vain may not sleep.
            until("all have seen the topic", || {
                before.iter().all(|(slot, armed)| self.armed(*slot) != *armed)
            });
        }
    }

    /// Waits until each has received what it wants, and sleeps.
    fn sleep(&self) {
        for (sleeper, events) in self.sleepers.iter().zip(&self.events) {
            let Some(sleeper) = sleeper else { continue };
            until("the messages", || sleeper.shared.events.load(Ordering::Acquire) == *events);
            let armed = sleeper.shared.armed.load(Ordering::Relaxed);
            until("it sleeps", || self.armed(sleeper.slot) != armed);
        }
    }

    fn armed(&self, slot: u32) -> u32 {
        armed(&self.readers, slot)
    }
}

impl Sleeper {
    fn start(bus: &Bus, patterns: &[String], readers: &Arc<File>) -> Self {
        let mut builder = bus.subscriber().start(Start::Latest).wait(WaitStrategy::Block);
        for pattern in patterns {
            builder = builder.pattern(pattern);
        }
        let mut subscriber = builder.build().unwrap();
        let (slot, interrupter) = (subscriber.slot(), subscriber.interrupter().unwrap());
        let (patterns, more) = channel();
        let shared = Arc::new(Shared::default());
        shared.armed.store(armed(readers, slot), Ordering::Relaxed);
        let thread = std::thread::spawn({
            let (shared, readers) = (shared.clone(), readers.clone());
            move || receive(&mut subscriber, &more, &shared, || armed(&readers, slot))
        });
        Self { slot, interrupter, patterns, shared, thread }
    }

    fn call(&self, pattern: Option<String>) {
        self.patterns.send(pattern).unwrap();
        self.interrupter.interrupt();
    }
}

fn receive(
    subscriber: &mut Subscriber,
    patterns: &Receiver<Option<String>>,
    shared: &Shared,
    armed: impl Fn() -> u32,
) {
    loop {
        match subscriber.receive() {
            Ok(message) => {
                let topic = message.topic().to_string();
                assert!(topic.ends_with(&format!("/{}", message.payload()[0])), "{topic}");
                let sequence = message.sequence();
                shared.received.lock().unwrap().push(Wanted { sequence, topic });
            }
            Err(ReceiveError::Interrupted) => match patterns.recv().unwrap() {
                Some(pattern) => subscriber.add_pattern(&pattern).unwrap(),
                None => return,
            },
            Err(error) => panic!("{error}"),
        }
        shared.armed.store(armed(), Ordering::Relaxed);
        shared.events.fetch_add(1, Ordering::Release);
    }
}

/// How often a slot armed: see `Arming` in `crates/toroni/src/ring/layout.rs`.
fn armed(readers: &File, slot: u32) -> u32 {
    let mut bytes = [0; 4];
    readers.read_exact_at(&mut bytes, 4096 + u64::from(slot) * 8).unwrap();
    u32::from_ne_bytes(bytes)
}

fn wakes(bus: &Bus) -> u64 {
    bus.stats().unwrap().publishers.unwrap().iter().map(|slot| slot.wakes).sum()
}
