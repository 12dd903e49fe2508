//! Everything that a process does with a bus. Errors are fine. Panics, hangs, faults, and calls that could be repeated
//! for ever without progress are not.

use super::template::{BUS, CAPACITY, KNOWN, SERIES, SOURCE, Template};
use std::os::fd::AsFd;
use std::time::Duration;
use toroni::{
    Bus, Entry, Inlet, InletTopic, Limit, Origin, Pattern, PublishError, Publisher, ReceiveError,
    Start, StreamKey, Subscriber, admin,
};

/// Whether publishing may wait without a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    Blocking,
    Limited,
}

const MOMENT: Duration = Duration::from_millis(2);
/// The ring has no more records, and a reader is given some of them again at most.
const MOST_MESSAGES: u64 = 4 * CAPACITY / 8;
/// No other process publishes. A reader is lapped at its first check, and after publishers that found invalid words have
/// raised `reserved`.
const MOST_LAPSES: u32 = 40;

/// A process with everything open.
#[derive(Debug)]
pub struct User {
    bus: Bus,
    publisher: Publisher,
    inlet: (Inlet, InletTopic),
    subscribers: Vec<Subscriber>,
}

impl User {
    /// Opens an intact bus and uses it a little.
    pub fn open(template: &Template) -> Self {
        let mut user = Self::try_open(template).expect("nothing is wrong yet");
        user.publisher.publish(b"before").unwrap();
        for subscriber in &mut user.subscribers {
            assert!(subscriber.try_receive().unwrap().is_some());
        }
        user
    }

    pub fn try_open(template: &Template) -> Option<Self> {
        let bus = template.config().open_existing(BUS).ok()?;
        let publisher = bus.publisher(KNOWN).ok()?;
        let inlet = bus.inlet().ok()?;
        let topic = inlet.topic(KNOWN).ok()?;
        let mut subscribers = Vec::new();
        for (start, gating) in [(Start::Latest, true), (Start::Oldest, false)] {
            let builder = bus.subscriber().pattern("plant/**").pattern("other/*");
            subscribers.push(builder.start(start).gating(gating).build().ok()?);
        }
        Some(Self { bus, publisher, inlet: (inlet, topic), subscribers })
    }

    /// Publishes a message in place, and calls `change` while it holds the writer lock.
    pub fn publish_while(&mut self, change: impl Fn()) {
        let _ = self.publisher.publish_with(24, Limit::Policy, |bytes| {
            bytes.fill(7);
            change();
        });
    }

    /// Publishes and receives in all ways.
    pub fn work(&mut self, manner: Manner) {
        publish(&self.bus, &self.publisher, manner);
        bring(&self.inlet.0, &self.inlet.1, manner);
        for subscriber in &mut self.subscribers {
            receive(subscriber);
        }
        publish(&self.bus, &self.publisher, manner);
        for subscriber in &mut self.subscribers {
            receive(subscriber);
        }
        look(&self.bus);
    }
}

/// Comes to a bus as a new process does.
pub fn visit(template: &Template, manner: Manner) {
    let _ = admin::list(Some(template.root()));
    if let Ok(bus) = template.config().open_existing(BUS) {
        look(&bus);
        let middle = template.positions[template.positions.len() / 2];
        for start in [
            Start::Oldest,
            Start::Latest,
            Start::Position(middle),
            Start::Position(middle + 8),
            Start::Position(u64::MAX - 7),
            Start::Sequence(template.positions.len() as u64 / 2),
            Start::Sequence(u64::MAX),
        ] {
            // The one that starts at the oldest message gets reports of losses; the others pass over them.
            let local = start != Start::Oldest;
            let builder = bus.subscriber().pattern("plant/**").local_only(local);
            let built = builder.start(start).retained(local).build();
            if let Ok(mut subscriber) = built {
                receive(&mut subscriber);
            }
        }
        if manner == Manner::Blocking {
            let _ = bus.publisher("other/new").map(|publisher| publisher.publish(b"new"));
        }
        // Known, so that it takes no lock before it publishes.
        if manner == Manner::Blocking || knows(&bus) {
            let _ = bus.publisher(KNOWN).map(|publisher| publish(&bus, &publisher, manner));
            if let Ok(inlet) = bus.inlet() {
                let _ = inlet.topic(KNOWN).map(|topic| bring(&inlet, &topic, manner));
            }
        }
        let _ = bus.stats();
        if let Ok(mut router) = bus.router() {
            let _ = router.on("plant/**", |message| {
                let _ = message.topic().len();
            });
            router.on_lost(|lost| assert!(lost.to_string().len() > 20));
            let _ = router.poll();
        }
    }
    let _ = admin::clean(Some(template.root()), Some(BUS), true);
    let _ = admin::clean(Some(template.root()), Some(BUS), false);
}

fn knows(bus: &Bus) -> bool {
    bus.topics().is_ok_and(|topics| topics.iter().any(|topic| topic.name == KNOWN))
}

fn look(bus: &Bus) {
    if let Ok(stats) = bus.stats() {
        assert!(format!("{stats:?}").len() > 100);
        for subscriber in stats.subscribers.iter().flatten() {
            let shown = subscriber.patterns.as_deref().unwrap_or_default();
            assert!(shown.iter().all(|pattern| Pattern::new(pattern.as_str()).is_ok()));
            let _ = (subscriber.matches(KNOWN), subscriber.matches_descendants("plant"));
        }
    }
    let _ = bus.topics();
    let _ = bus.retained(KNOWN).map(|value| value.map(|value| value.timestamp()));
    for value in bus.retained_matching("**").into_iter().flatten().flatten() {
        assert!((value.payload().len() as u64) < CAPACITY && !value.topic().contains('\0'));
    }
}

fn publish(bus: &Bus, publisher: &Publisher, manner: Manner) {
    let _ = publisher.try_publish(b"try");
    let _ = publisher.publish_within([1; 100], MOMENT);
    let _ = publisher.publish_within([2; 3000], MOMENT);
    if manner == Manner::Limited {
        return;
    }
    let _ = publisher.publish(b"");
    let _ = publisher.clone().to_descendants(true).publish(b"to descendants");
    let _ = publisher.publish_batch(&[&[3; 9][..], &[4; 500], b""], Limit::Policy);
    let _ = publisher.burst(&[[5; 700]; 5], Limit::Policy);
    let _ = publisher.publish_with(33, Limit::Policy, |bytes| bytes.fill(6));
    if let Ok(retained) = publisher.clone().retained() {
        let _ = (retained.publish([8; 200]), retained.clear(Limit::Policy));
    }
    let _ = publisher.publish([7; 32 << 10]);
    assert!(publisher.largest_message() < CAPACITY && bus.name() == BUS);
}

/// Brings messages of old and new streams, more streams than the table has entries.
fn bring(inlet: &Inlet, topic: &InletTopic, manner: Manner) {
    for number in [0, 2] {
        for stream in 0..6 {
            let origin = Some(Origin { source: SOURCE, series: SERIES, stream, number });
            let long = [3; 2500];
            let parts = [&long[..if stream == 1 { 2500 } else { 9 }]];
            let entry = Entry { origin, ..Entry::new(topic, &parts) };
            let _ = inlet.publish(&[entry, Entry::new(topic, &[b"no origin"])], MOMENT);
        }
    }
    if manner == Manner::Blocking {
        for source in [SOURCE, SOURCE + 1] {
            let _ = inlet.claim(StreamKey { source, series: SERIES, stream: 0 }, Limit::Policy);
        }
    }
    assert!(inlet.duplicates() <= 2 * 6);
}

/// Uses a bus whose table of arrivals is wrong. A publisher gets at most one error, and then publishes as if nothing
/// were wrong.
pub fn publish_beside_wrong_arrivals(template: &Template) {
    let bus = template.config().open_existing(BUS).expect("the table is not read");
    let mut subscriber = bus.subscribe("**").expect("a subscriber");
    let publisher = bus.publisher(KNOWN).expect("a publisher");
    match publisher.publish(b"first") {
        Ok(_) => assert_eq!(subscriber.receive().expect("received").payload(), b"first"),
        Err(PublishError::Corrupt(corrupt)) => assert_eq!(corrupt.what, "pending arrival"),
        Err(error) => panic!("{error}"),
    }
    publisher.publish(b"second").expect("published");
    assert_eq!(subscriber.receive().expect("received").payload(), b"second");
}

fn receive(subscriber: &mut Subscriber) {
    drain(subscriber, |subscriber| {
        let Some(message) = subscriber.try_receive()? else { return Ok(false) };
        assert!((message.payload().len() as u64) < CAPACITY && !message.topic().contains('\0'));
        let _ = (message.timestamp(), message.to_descendants(), message.sequence());
        assert!(message.next_position() > message.position());
        Ok(true)
    });
    drain(subscriber, |subscriber| {
        let Some(borrowed) = subscriber.borrow()? else { return Ok(false) };
        assert!((borrowed.payload().to_vec().len() as u64) < CAPACITY);
        let _ = (borrowed.topic().len(), borrowed.validate());
        Ok(true)
    });
    drain(subscriber, |subscriber| {
        let Some(mut run) = subscriber.try_receive_in_place()? else { return Ok(false) };
        for message in run.by_ref() {
            assert!((message.payload().words().len() as u64) < CAPACITY / 8);
            let _ = (message.topic().len(), message.timestamp(), message.payload().array::<9>(1));
        }
        let _ = run.validate();
        Ok(true)
    });
    drain(subscriber, |subscriber| {
        Ok(subscriber.receive_timeout(Duration::from_micros(100))?.is_some())
    });
    let _ = subscriber.fd().map(|fd| fd.as_fd().try_clone_to_owned().is_ok());
    let _ = subscriber.try_receive().is_ok();
    let _ = (subscriber.lag_bytes(), subscriber.stats(), subscriber.position());
}

/// Receives until there is nothing more, or nothing but errors.
fn drain(
    subscriber: &mut Subscriber,
    mut next: impl FnMut(&mut Subscriber) -> Result<bool, ReceiveError>,
) {
    let (mut messages, mut lapses, mut errors) = (0, 0, 0);
    while errors < 10 {
        match next(subscriber) {
            Ok(false) => return,
            Ok(true) => messages += 1,
            Err(ReceiveError::Lapped { .. }) => lapses += 1,
            // It stands in the ring as a message does.
            Err(ReceiveError::Lost(lost)) => {
                assert!(lost.until >= lost.from.number && (1..=16).contains(&lost.scope.len()));
                messages += 1;
            }
            Err(_) => errors += 1,
        }
        assert!(messages < MOST_MESSAGES, "more messages than the ring can hold");
        assert!(lapses < MOST_LAPSES, "lapped repeatedly, and no process publishes");
    }
}
