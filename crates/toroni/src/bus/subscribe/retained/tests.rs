#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use super::*;
use crate::bus::publish::testing::unmark;
use crate::bus::{Bus, BusConfig, Entry, Limit, RetainedStats, Start, ValueStats};
use crate::error::{PublishError, RetainError, RetainedError, SubscriberError};
use crate::hook::{CrashPoint, rehearsal};
use crate::settings::{NotifyKind, Policy};
use crate::shm::testing::TempDir;
use crate::topic::Origin;
use std::time::SystemTime;
use toroni_testkit::Random;

fn config(root: &TempDir) -> BusConfig {
    let config = BusConfig::new().directory(root.path()).capacity(64 << 10);
    config.policy(Policy::Overwrite)
}

fn value(bus: &Bus, topic: &str) -> Option<String> {
    bus.retained(topic).unwrap().map(|value| value.text().into_owned())
}

/// What a subscriber gets: values, then what is in the stream.
fn all(subscriber: &mut Subscriber) -> (Vec<String>, Vec<String>) {
    let (mut values, mut stream) = (Vec::new(), Vec::new());
    while let Some(message) = subscriber.try_receive().unwrap() {
        let text = format!("{}={}", message.topic(), message.text());
        if message.is_retained() { values.push(text) } else { stream.push(text) }
    }
    (values, stream)
}

fn lap(bus: &Bus) {
    let noise = bus.publisher("noise").unwrap();
    (0..300).for_each(|_| _ = noise.publish([7; 1_000]).unwrap());
}

#[test]
fn values_come_first_in_the_order_of_the_bus_and_then_the_stream() {
    let root = TempDir::new();
    let bus = config(&root).create("b").unwrap();
    let topics = ["p/1", "p/2", "p/3", "q"];
    let [one, two, three, other] =
        topics.map(|topic| bus.publisher(topic).unwrap().retained().unwrap());
    for (publisher, payload) in
        [(&one, "a"), (&two, "b"), (&three, "c"), (&other, "d"), (&one, "e")]
    {
        publisher.publish(payload).unwrap();
    }
    bus.publisher("p/plain").unwrap().publish("not kept").unwrap();
    lap(&bus);
    let mut late = bus.subscriber().pattern("p/*").retained(true).build().unwrap();
    assert!(!late.is_current());
    two.publish("f").unwrap();
    three.publish("g").unwrap();
    let (values, stream) = all(&mut late);
    // The values of the others are in the stream.
    assert_eq!(values, ["p/1=e"]);
    assert_eq!(stream, ["p/2=f", "p/3=g"]);
    assert!(late.is_current());
    let mut later = bus.subscriber().pattern("p/*").retained(true).build().unwrap();
    assert_eq!(all(&mut later).0, ["p/1=e", "p/2=f", "p/3=g"]);
    assert_eq!(later.stats().received, 3);
    // One that did not ask gets none.
    let mut plain = bus.subscribe("**").unwrap();
    assert!(plain.try_receive().unwrap().is_none() && plain.is_current());
    // From the oldest message on, what is in the ring is no value.
    let start = bus.subscriber().pattern("p/*").retained(true).start(Start::Oldest);
    let (values, stream) = all(&mut start.build().unwrap());
    assert_eq!(values, ["p/1=e"]);
    assert_eq!(stream, ["p/2=f", "p/3=g"]);
    let matching = bus.retained_matching("**").unwrap();
    let texts: Vec<_> =
        matching.iter().map(|value| value.as_ref().unwrap().text().into_owned()).collect();
    assert_eq!(texts, ["d", "e", "f", "g"]);
}

#[test]
fn a_value_that_was_cleared_is_none_until_the_next_message() {
    let root = TempDir::new();
    let bus = config(&root).create("b").unwrap();
    let publisher = bus.publisher("a").unwrap().retained().unwrap();
    assert_eq!(value(&bus, "a"), None);
    publisher.publish("x").unwrap();
    let mut current = bus.subscriber().pattern("a").retained(true).build().unwrap();
    let mut plain = bus.subscribe("a").unwrap();
    assert_eq!(value(&bus, "a").as_deref(), Some("x"));
    assert_eq!(current.receive().unwrap().text(), "x");
    let sequence = publisher.clear(Limit::Policy).unwrap();
    assert_eq!(value(&bus, "a"), None);
    let told = current.receive().unwrap();
    assert!(told.is_cleared() && !told.is_retained());
    assert_eq!((told.topic(), told.sequence(), told.payload().len()), ("a", sequence, 0));
    // Others learn nothing, and it is no kind that they do not know.
    assert!(plain.try_receive().unwrap().is_none());
    assert_eq!(plain.stats().unknown, 0);
    let mut late = bus.subscriber().pattern("a").retained(true).build().unwrap();
    assert!(late.is_current(), "nothing is due");
    assert!(late.try_receive().unwrap().is_none());
    publisher.publish("").unwrap();
    assert_eq!(value(&bus, "a").as_deref(), Some(""), "an empty message is a value");
    let plain = bus.publisher("a").unwrap();
    assert!(matches!(plain.clear(Limit::Policy), Err(PublishError::NotRetained)));
}

#[test]
fn after_a_loss_the_values_come_that_changed_within_it() {
    let root = TempDir::new();
    let bus = config(&root).create("b").unwrap();
    let [one, two, three] =
        ["p/1", "p/2", "p/3"].map(|topic| bus.publisher(topic).unwrap().retained().unwrap());
    one.publish("old").unwrap();
    let mut subscriber = bus.subscriber().pattern("p/*").retained(true).build().unwrap();
    assert_eq!(subscriber.receive().unwrap().text(), "old");
    two.publish("lost").unwrap();
    two.publish("b").unwrap();
    three.publish("c").unwrap();
    three.clear(Limit::Policy).unwrap();
    lap(&bus);
    two.publish("d").unwrap();
    lap(&bus);
    one.publish("new").unwrap();
    assert!(matches!(subscriber.try_receive(), Err(ReceiveError::Lapped { .. })));
    assert!(!subscriber.is_current());
    let cleared = subscriber.receive().unwrap();
    assert!(cleared.is_cleared() && cleared.is_retained());
    assert_eq!(cleared.topic(), "p/3");
    assert_eq!(all(&mut subscriber), (vec!["p/2=d".to_owned()], vec!["p/1=new".to_owned()]));
}

/// However it is published, and however it is received.
#[test]
fn each_way_to_publish_keeps_the_newest_message() {
    for timestamps in [false, true] {
        let root = TempDir::new();
        let bus = config(&root).timestamps(timestamps).create("b").unwrap();
        let publisher = bus.publisher("a").unwrap().retained().unwrap();
        let plain = bus.publisher("a").unwrap();
        for publisher in [&publisher, &plain] {
            publisher.publish_batch(&["1", "2", "3"], Limit::Policy).unwrap();
            assert_eq!(value(&bus, "a").as_deref(), Some("3"));
            publisher.burst(&["4", "5"], Limit::Policy).unwrap();
            assert_eq!(value(&bus, "a").as_deref(), Some("5"));
            publisher.publish_with(3, Limit::Policy, |bytes| bytes.fill(b'6')).unwrap();
            assert_eq!(value(&bus, "a").as_deref(), Some("666"));
            publisher.try_publish("7").unwrap();
            assert_eq!(value(&bus, "a").as_deref(), Some("7"));
            publisher.publish("8".repeat(2_000)).unwrap();
            assert_eq!(value(&bus, "a").unwrap(), "8".repeat(2_000));
        }
        assert!(!bus.retained("a").unwrap().unwrap().to_descendants());
        plain.clone().to_descendants(true).publish("below").unwrap();
        assert!(bus.retained("a").unwrap().unwrap().to_descendants());
        let inlet = bus.inlet().unwrap();
        let origin = Origin { source: 1, series: 2, stream: 3, number: 4 };
        let topic = inlet.topic("a").unwrap();
        let parts = [&b"from "[..], b"elsewhere"];
        let entry = Entry { origin: Some(origin), ..Entry::new(&topic, &parts) };
        inlet.publish(&[entry], Limit::Policy).unwrap();
        let kept = bus.retained("a").unwrap().unwrap();
        assert_eq!((kept.text(), kept.origin()), ("from elsewhere".into(), Some(origin)));
        let local = bus.subscriber().pattern("a").retained(true).local_only(true);
        assert!(local.build().unwrap().is_current());
        plain.publish("here").unwrap();
        // A duplicate is dropped before it gets there.
        inlet.publish(&[entry], Limit::Policy).unwrap();
        assert_eq!(value(&bus, "a").as_deref(), Some("here"));
        drop(inlet);
        let exclusive = bus.exclusive().unwrap();
        let topic = exclusive.retained(exclusive.topic("x").unwrap()).unwrap();
        exclusive.publish(&topic, "alone", Limit::Policy).unwrap();
        assert_eq!(value(&bus, "x").as_deref(), Some("alone"));
        // Neither a topic that the bus knows, nor a new one.
        let (waiting, bringing) = (bus.publisher("z").unwrap(), bus.inlet().unwrap());
        let mut brought = bringing.topic("made meanwhile").unwrap();
        for topic in ["a", "y"] {
            let refused = bus.publisher(topic).unwrap().retained().unwrap_err();
            let is_exclusive = |refused: &RetainError| {
                matches!(refused, RetainError::Publish(PublishError::Exclusive { .. }))
            };
            assert!(is_exclusive(&refused), "{refused}");
            let refused = bringing.retain(&mut bringing.topic(topic).unwrap()).unwrap_err();
            assert!(is_exclusive(&refused), "{refused}");
        }
        exclusive.clear(&topic, Limit::Policy).unwrap();
        assert_eq!(value(&bus, "x"), None);
        exclusive.publish(&topic, "again", Limit::Policy).unwrap();
        let builder = || bus.subscriber().pattern("*").retained(true);
        for receive in [
            |subscriber: &mut Subscriber| subscriber.borrow().unwrap().unwrap().payload().to_vec(),
            |subscriber: &mut Subscriber| {
                let mut some = subscriber.receive_in_place().unwrap();
                some.next().unwrap().payload().to_vec()
            },
        ] {
            let mut subscriber = builder().build().unwrap();
            assert_eq!(receive(&mut subscriber), b"here");
            assert_eq!(receive(&mut subscriber), b"again");
            exclusive.publish(&topic, "next", Limit::Policy).unwrap();
            assert_eq!(receive(&mut subscriber), b"next");
            exclusive.publish(&topic, "again", Limit::Policy).unwrap();
        }
        drop(exclusive);
        waiting.retained().unwrap().publish("at last").unwrap();
        assert_eq!(value(&bus, "z").as_deref(), Some("at last"));
        bringing.retain(&mut brought).unwrap();
        bringing.publish(&[Entry::new(&brought, &[b"too"])], Limit::Policy).unwrap();
        assert_eq!(value(&bus, "made meanwhile").as_deref(), Some("too"));
    }
}

/// A run ends before a record that clears a value. The next call passes over it, unless the subscriber asked for values.
#[test]
fn what_is_received_in_place_says_whether_it_is_a_value() {
    fn all(subscriber: &mut Subscriber) -> Vec<(String, bool, bool)> {
        let mut seen = Vec::new();
        while let Some(run) = subscriber.try_receive_in_place().unwrap() {
            seen.extend(run.map(|one| {
                let text = String::from_utf8(one.payload().to_vec()).unwrap();
                (text, one.is_retained(), one.is_cleared())
            }));
        }
        seen
    }
    let root = TempDir::new();
    let bus = config(&root).create("b").unwrap();
    let publisher = bus.publisher("a").unwrap().retained().unwrap();
    publisher.publish("1").unwrap();
    let mut asked = bus.subscriber().pattern("a").retained(true).build().unwrap();
    let mut plain = bus.subscribe("a").unwrap();
    assert_eq!(all(&mut asked), [("1".to_owned(), true, false)]);
    publisher.publish("2").unwrap();
    publisher.clear(Limit::Policy).unwrap();
    publisher.publish("3").unwrap();
    let [two, cleared, three] = [("2", false), ("", true), ("3", false)]
        .map(|(text, is_cleared)| (text.to_owned(), false, is_cleared));
    assert_eq!(all(&mut asked), [two.clone(), cleared, three.clone()]);
    assert_eq!(all(&mut plain), [two, three]);
    // One by one, too.
    publisher.clear(Limit::Policy).unwrap();
    assert!(asked.borrow().unwrap().unwrap().is_cleared());
    assert!(plain.borrow().unwrap().is_none());
}

#[test]
fn what_finds_no_room_is_refused_or_missing() {
    let root = TempDir::new();
    let bus = config(&root).retained_topics(3).retained_bytes(4 << 10).create("b").unwrap();
    let publisher = bus.publisher("a").unwrap().retained().unwrap();
    let plain = bus.publisher("a").unwrap();
    publisher.publish([1; 100]).unwrap();
    let refused = publisher.publish([7; 1_020]).unwrap_err();
    assert!(
        matches!(refused, PublishError::ValueTooLong { length: 1_032, limit: 1_024 }),
        "{refused:?}"
    );
    let refused = publisher.publish_batch(&[[7; 1_020]], Limit::Policy).unwrap_err();
    assert!(
        matches!(refused, PublishError::ValueTooLong { length: 1_032, limit: 1_024 }),
        "a batch: {refused:?}"
    );
    assert_eq!(bus.retained("a").unwrap().unwrap().payload(), [1; 100], "nothing happened");
    // What a batch has before its last message needs no room.
    let used = bus.stats().unwrap().retained.used_bytes;
    publisher.publish_batch(&[&[2; 900][..], &[1; 100]], Limit::Policy).unwrap();
    assert_eq!(bus.stats().unwrap().retained.used_bytes, used);
    // Another publisher knows nothing of values.
    let sequence = plain.publish([7; 1_020]).unwrap();
    assert_eq!(bus.retained("a").unwrap().unwrap().payload(), [7; 1_020], "it is in the ring");
    lap(&bus);
    let missing = bus.retained("a").unwrap_err();
    assert!(
        matches!(&missing, RetainedError::Missing { topic, sequence: found, length: 1_020 }
            if topic == "a" && *found == sequence),
        "{missing:?}"
    );
    assert!(bus.retained_matching("*").unwrap()[0].is_err());
    let mut late = bus.subscriber().pattern("a").retained(true).build().unwrap();
    let told = late.try_receive().unwrap_err();
    assert!(told.is_loss() && matches!(told, ReceiveError::ValueMissing { .. }), "{told}");
    assert!(late.try_receive().unwrap().is_none());
    // What is shorter is a value again.
    publisher.publish([2; 100]).unwrap();
    assert_eq!(bus.retained("a").unwrap().unwrap().payload(), [2; 100]);
    // A value of some length is followed by others of that length, whatever happens to the rest.
    let fills = bus.publisher("b").unwrap().retained().unwrap();
    let mut longest = 0;
    while longest < 1_000 && fills.publish(vec![3; longest + 50]).is_ok() {
        longest += 50;
    }
    assert!((100..1_000).contains(&longest), "{longest}");
    let refused = fills.publish(vec![3; longest + 50]).unwrap_err();
    assert!(matches!(refused, PublishError::RetainedFull { limit: 4_096 }), "{refused:?}");
    for number in 0..10 {
        fills.publish(vec![number; longest]).unwrap();
        publisher.publish([number; 100]).unwrap();
        assert_eq!(bus.retained("b").unwrap().unwrap().payload(), vec![number; longest]);
    }
    let _third = bus.publisher("c").unwrap().retained().unwrap();
    let refused = bus.publisher("d").unwrap().retained().unwrap_err();
    assert!(matches!(refused, RetainError::TooManyRetained { limit: 3 }), "{refused:?}");
    // It is retained already.
    bus.publisher("a").unwrap().retained().unwrap();
}

/// A program may poll before it receives.
#[test]
fn a_descriptor_is_readable_while_values_are_due() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let root = TempDir::new();
    for notify in [NotifyKind::Futex, NotifyKind::Datagram] {
        let bus = config(&root).notify(notify).create(notify.to_string().as_str()).unwrap();
        bus.publisher("a").unwrap().retained().unwrap().publish("x").unwrap();
        let mut late = bus.subscriber().pattern("a").retained(true).build().unwrap();
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut ready = || {
            let fd = PollFd::from_borrowed_fd(late.fd().unwrap(), PollFlags::IN);
            let ready = poll(&mut [fd], Some(&zero)).unwrap();
            let received = late.try_receive().unwrap().is_some();
            (ready, received)
        };
        assert_eq!(ready(), (1, true), "{notify}");
        while ready().1 {}
        assert_eq!(ready(), (0, false), "{notify}");
    }
}

#[test]
fn a_clear_reaches_all_that_had_the_value() {
    let root = TempDir::new();
    let bus = config(&root).timestamps(true).create("b").unwrap();
    let all = bus.publisher("plant").unwrap().to_descendants(true).retained().unwrap();
    let mut below = bus.subscriber().pattern("plant/boiler").retained(true).build().unwrap();
    all.publish("stop").unwrap();
    assert_eq!(below.receive().unwrap().text(), "stop");
    all.clear(Limit::Policy).unwrap();
    let told = below.receive().unwrap();
    assert!(told.is_cleared() && told.topic() == "plant");
    // However old it is by then.
    let age = std::time::Duration::from_nanos(1);
    let builder = bus.subscriber().pattern("a").retained(true).max_age(age);
    let mut late = builder.build().unwrap();
    let publisher = bus.publisher("a").unwrap().retained().unwrap();
    publisher.clear(Limit::Policy).unwrap();
    let sent = SystemTime::now();
    while SystemTime::now() <= sent + age {}
    assert!(late.receive().unwrap().is_cleared());
}

#[test]
fn a_clear_that_found_no_room_has_no_bytes_of_others() {
    let root = TempDir::new();
    let bus = config(&root)
        .retained_topics(3)
        .retained_bytes(4 << 10)
        .timestamps(true)
        .create("b")
        .unwrap();
    let [one, two] = ["1", "2"].map(|topic| bus.publisher(topic).unwrap().retained().unwrap());
    for publisher in [&one, &two] {
        (1..1_000).for_each(|length| _ = publisher.publish(vec![7; length]));
    }
    let missing = bus.publisher("3").unwrap().retained().unwrap();
    let refused = missing.publish("x").unwrap_err();
    assert!(matches!(refused, PublishError::RetainedFull { .. }), "{refused:?}");
    let mut subscriber = bus.subscriber().pattern("*").retained(true).build().unwrap();
    while subscriber.try_receive().unwrap().is_some() {}
    one.publish("before").unwrap();
    missing.clear(Limit::Policy).unwrap();
    lap(&bus);
    assert!(subscriber.try_receive().unwrap_err().is_loss());
    assert_eq!(subscriber.receive().unwrap().topic(), "1");
    let cleared = subscriber.receive().unwrap();
    assert!(cleared.is_cleared() && cleared.topic() == "3");
    assert_eq!((cleared.timestamp(), cleared.payload()), (None, &[][..]));
}

/// One that had lost its lease, and had asked before, takes the mark of the topic away.
#[test]
fn a_mark_that_was_removed_comes_back() {
    let root = TempDir::new();
    let config = config(&root);
    let bus = config.create("b").unwrap();
    let publisher = bus.publisher("a").unwrap().retained().unwrap();
    publisher.publish("1").unwrap();
    unmark(&bus, 0);
    let _declares = bus.publisher("other").unwrap().retained().unwrap();
    publisher.publish("2").unwrap();
    assert_eq!(value(&bus, "a").as_deref(), Some("2"));
    unmark(&bus, 0);
    let doomed = config.open("b").unwrap();
    let victim = doomed.publisher("x").unwrap();
    let dies = |reached: &[CrashPoint]| reached.last() == Some(&CrashPoint::AfterCommit);
    assert!(rehearsal::act(dies, || victim.publish("y")).1.is_none());
    rehearsal::bury((victim, doomed));
    // The next owner recovers.
    bus.publisher("x").unwrap().publish("z").unwrap();
    publisher.publish("3").unwrap();
    assert_eq!(value(&bus, "a").as_deref(), Some("3"));
}

/// While it waits for space, a burst gives the lock back.
#[test]
fn a_burst_keeps_the_value_of_a_topic_that_was_declared_while_it_waited() {
    let root = TempDir::new();
    let config = config(&root).policy(Policy::Wait { limit: None });
    let bus = config.create("b").unwrap();
    let mut slow = bus.subscribe("a").unwrap();
    let payloads: Vec<_> = (0..200).map(|number| vec![number; 1_000]).collect();
    std::thread::scope(|scope| {
        let burst = scope.spawn(|| {
            bus.publisher("a").unwrap().burst(&payloads, Limit::Policy).unwrap();
        });
        // It cannot get further without the subscriber.
        while bus.stats().unwrap().tail < (64 << 10) - 4 * 1_024 {
            std::thread::yield_now();
        }
        let declares = config.open("b").unwrap();
        let _declared = declares.publisher("a").unwrap().retained().unwrap();
        for payload in &payloads {
            assert_eq!(slow.receive().unwrap().payload(), payload);
        }
        burst.join().unwrap();
    });
    assert_eq!(bus.retained("a").unwrap().unwrap().payload(), payloads[199]);
}

/// What it brings is published in any case.
#[test]
fn an_inlet_retains_a_topic_and_loses_nothing_for_want_of_room() {
    let root = TempDir::new();
    let bus = config(&root).retained_topics(1).retained_bytes(4 << 10).create("b").unwrap();
    let inlet = bus.inlet().unwrap();
    let [mut topic, mut other] = ["a", "b"].map(|topic| inlet.topic(topic).unwrap());
    inlet.retain(&mut topic).unwrap();
    let refused = inlet.retain(&mut other).unwrap_err();
    assert!(matches!(refused, RetainError::TooManyRetained { limit: 1 }), "{refused:?}");
    let foreign = bus.inlet().unwrap().retain(&mut topic).unwrap_err();
    assert!(matches!(foreign, RetainError::Publish(PublishError::ForeignTopic)));
    let mut subscriber = bus.subscribe("a").unwrap();
    for length in [100, 2_000] {
        let payload = vec![1; length];
        inlet.publish(&[Entry::new(&topic, &[&payload])], Limit::Policy).unwrap();
        assert_eq!(subscriber.receive().unwrap().payload(), payload);
        assert_eq!(bus.retained("a").unwrap().unwrap().payload(), payload);
    }
    lap(&bus);
    assert!(matches!(bus.retained("a"), Err(RetainedError::Missing { .. })));
}

#[test]
fn the_figures_of_a_bus_say_what_it_keeps() {
    let root = TempDir::new();
    let bus = config(&root)
        .retained_topics(3)
        .retained_bytes(4 << 10)
        .timestamps(true)
        .create("b")
        .unwrap();
    let [kept, cleared] =
        ["kept", "cleared"].map(|topic| bus.publisher(topic).unwrap().retained().unwrap());
    let [missing, plain] = ["missing", "plain"].map(|topic| bus.publisher(topic).unwrap());
    let _declares = missing.clone().retained().unwrap();
    let value = |topic: &str| {
        let topics = bus.topics().unwrap();
        topics.into_iter().find(|stats| stats.name == topic).unwrap().value
    };
    assert_eq!((value("plain"), value("kept")), (None, Some(ValueStats::None)));
    plain.publish("x").unwrap();
    kept.publish("12345").unwrap();
    cleared.publish("x").unwrap();
    cleared.clear(Limit::Policy).unwrap();
    let topics = bus.topics().unwrap();
    let messages = topics.iter().find(|stats| stats.name == "cleared").unwrap().messages;
    assert_eq!(messages, 1, "what clears a value is no message");
    let sequence = missing.publish([7; 2_000]).unwrap();
    assert!(matches!(value("missing"), Some(ValueStats::Kept { bytes: 2_000, .. })));
    assert_eq!(bus.stats().unwrap().retained.missing, 0, "its record is in the ring");
    lap(&bus);
    let found = value("missing");
    assert!(
        matches!(found, Some(ValueStats::Missing { sequence: of, bytes: 2_008 }) if of == sequence),
        "{found:?}"
    );
    let found = value("kept");
    assert!(
        matches!(found, Some(ValueStats::Kept { sequence: 1, bytes: 5, published: Some(_) })),
        "{found:?}"
    );
    assert_eq!((value("cleared"), value("plain")), (Some(ValueStats::None), None));
    let stats = bus.stats().unwrap().retained;
    assert_eq!((stats.topics, stats.max_topics, stats.missing), (3, 3, 1));
    assert!(stats.bytes == 4_096 && (128..4_096).contains(&stats.used_bytes), "{stats:?}");
    let without = config(&root).retained_topics(0).create("c").unwrap();
    assert_eq!(without.stats().unwrap().retained, RetainedStats::default());
}

#[test]
fn a_bus_without_values_says_so() {
    let root = TempDir::new();
    let bus = config(&root).retained_topics(0).create("b").unwrap();
    let publisher = bus.publisher("a").unwrap();
    assert!(matches!(publisher.clone().retained(), Err(RetainError::NoValues)));
    assert!(matches!(bus.retained("a"), Err(RetainedError::NoValues)));
    let refused = bus.subscriber().pattern("a").retained(true).build();
    assert!(matches!(refused, Err(SubscriberError::NoValues)));
    publisher.publish("x").unwrap();
    let small = BusConfig::new().directory(root.path()).topic_table_bytes(4096);
    let bus = small.create("small").unwrap();
    let mut number = 0;
    let refused = loop {
        let long = format!("{}/{number}", "name".repeat(50));
        if let Err(refused) = bus.publisher(&long).unwrap().retained() {
            break refused;
        }
        number += 1;
    };
    assert!(matches!(refused, RetainError::TopicTableFull), "{refused:?}");
}

/// R1 to R3: at each step at which the publisher can die, a value is the newest committed message.
#[test]
fn a_value_is_the_newest_committed_message_wherever_its_publisher_dies() {
    let root = TempDir::new();
    let mut random = Random::new(7);
    let mut died = Vec::new();
    for round in 0..600 {
        let name = format!("b{round}");
        let config = config(&root).timestamps(random.below(3) == 0);
        let bus = config.create(&name).unwrap();
        let publisher = bus.publisher("a").unwrap().retained().unwrap();
        let other = bus.publisher("other").unwrap();
        let mut all = bus.subscribe("a").unwrap();
        let mut newest = None;
        for number in 0..random.below(4) {
            publisher.publish(vec![number.to_le_bytes()[0]; random.index(300)]).unwrap();
        }
        let doomed = config.open(&name).unwrap();
        let victim = doomed.publisher("a").unwrap();
        let victim = if random.below(2) == 0 { victim.retained().unwrap() } else { victim };
        let (way, step) = (random.below(4), random.index(14));
        let lengths: Vec<_> = (0..1 + random.index(3)).map(|_| random.index(700)).collect();
        let payloads: Vec<_> = lengths.iter().map(|length| vec![0xA5; *length]).collect();
        let (reached, lived) = rehearsal::act(
            move |reached| reached.len() == step + 1,
            || match way {
                0 => victim.publish_batch(&payloads, Limit::Policy).is_ok(),
                1 => victim.burst(&payloads, Limit::Policy).is_ok(),
                2 => victim.publish(&payloads[0]).is_ok(),
                _ => victim.publish_with(lengths[0], Limit::Policy, |bytes| bytes.fill(1)).is_ok(),
            },
        );
        if lived.is_none() {
            died.extend(reached.last().copied());
            rehearsal::bury((victim, doomed));
        }
        let mut compare = |what: &str| {
            loop {
                match all.try_receive() {
                    Ok(None) => break,
                    Ok(Some(message)) => {
                        newest = Some((message.sequence(), message.payload().to_vec()));
                    }
                    // The dead publisher has raised the bound of the topic, and then committed nothing.
                    Err(error) => assert!(error.is_loss(), "{error}"),
                }
            }
            let value = bus.retained("a").unwrap();
            let found = value.map(|value| (value.sequence(), value.payload().to_vec()));
            assert_eq!(found, newest, "{what}: round {round}, way {way}, after {reached:?}");
        };
        compare("after the death");
        // The next publisher repairs the bus.
        match random.below(3) {
            0 => _ = other.publish(vec![7; random.index(900)]).unwrap(),
            1 => _ = other.publish_batch(&[[7; 40]; 5], Limit::Policy).unwrap(),
            _ => _ = publisher.publish("next").unwrap(),
        }
        compare("after the next publish");
        if random.below(4) == 0 {
            // What only the ring had is gone.
            (0..70).for_each(|_| _ = other.publish([7; 1_000]).unwrap());
            compare("after a lap");
        }
        let mut late = bus.subscriber().pattern("a").retained(true).build().unwrap();
        let value = late.try_receive().unwrap();
        let value = value.map(|value| (value.sequence(), value.payload().to_vec()));
        assert_eq!(value, newest, "round {round}");
        drop((late, all));
        drop((publisher, other, bus));
        std::fs::remove_dir_all(root.path().join(&name)).unwrap();
    }
    for point in [
        CrashPoint::MidGrow,
        CrashPoint::AfterAnnounce,
        CrashPoint::AfterCommit,
        CrashPoint::MidRetain,
        CrashPoint::AfterRetain,
        CrashPoint::BetweenSequenceAndTail,
    ] {
        assert!(died.contains(&point), "{point:?} was on no way");
    }
}

/// The entry does not have it yet, and the subscriber starts behind it.
#[test]
fn a_subscriber_gets_the_value_that_a_dead_publisher_has_only_committed() {
    for has_one in [false, true] {
        let root = TempDir::new();
        let config = config(&root);
        let bus = config.create("b").unwrap();
        let publisher = bus.publisher("a").unwrap().retained().unwrap();
        if has_one {
            publisher.publish("before").unwrap();
        }
        let mut all = bus.subscribe("a").unwrap();
        let doomed = config.open("b").unwrap();
        let victim = doomed.publisher("a").unwrap();
        let dies = |reached: &[CrashPoint]| reached.last() == Some(&CrashPoint::AfterCommit);
        let (_, lived) = rehearsal::act(dies, || victim.publish("last"));
        assert!(lived.is_none());
        rehearsal::bury((victim, doomed));
        let sequence = all.receive().unwrap().sequence();
        let start = Start::Sequence(sequence + 1);
        let late = bus.subscriber().pattern("a").retained(true).start(start).build();
        let mut late = late.unwrap();
        assert!(!late.is_current());
        let value = late.try_receive().unwrap().unwrap();
        assert_eq!((&*value.text(), value.is_retained()), ("last", true));
        assert!(late.try_receive().unwrap().is_none());
    }
}

/// The next message covers the place, and has bytes there that look like the announced one.
#[test]
fn what_a_dead_publisher_has_announced_is_believed_only_if_it_was_committed() {
    let root = TempDir::new();
    let config = config(&root);
    let bus = config.create("b").unwrap();
    let publisher = bus.publisher("a").unwrap().retained().unwrap();
    let other = bus.publisher("other").unwrap();
    publisher.publish("first").unwrap();
    let doomed = config.open("b").unwrap();
    let victim = doomed.publisher("a").unwrap();
    let dies = |reached: &[CrashPoint]| reached.last() == Some(&CrashPoint::BeforeCommit);
    // The second one is announced.
    let publish = || victim.publish_batch(&[[7; 16]; 2], Limit::Policy);
    let (_, lived) = rehearsal::act(dies, publish);
    assert!(lived.is_none());
    rehearsal::bury((victim, doomed));
    assert_eq!(value(&bus, "a").as_deref(), Some("first"));
    let id = bus.topics().unwrap().iter().position(|topic| topic.name == "a").unwrap();
    let word = crate::ring::writer::header(16, 1 | u32::try_from(id).unwrap() << 8);
    let mut forged = [7; 64];
    forged[16..24].copy_from_slice(&word.to_ne_bytes());
    other.publish(forged).unwrap();
    assert_eq!(value(&bus, "a").as_deref(), Some("first"));
    publisher.publish("second").unwrap();
    assert_eq!(value(&bus, "a").as_deref(), Some("second"));
}

#[test]
fn a_declaration_that_dies_halfway_leaves_its_entry_to_the_next() {
    let root = TempDir::new();
    let config = config(&root).retained_topics(1).retained_bytes(4 << 10);
    let bus = config.create("b").unwrap();
    let doomed = config.open("b").unwrap();
    let victim = doomed.publisher("a").unwrap();
    let dies = |reached: &[CrashPoint]| reached.last() == Some(&CrashPoint::MidDeclaration);
    let (_, lived) = rehearsal::act(dies, || victim.retained());
    assert!(lived.is_none());
    rehearsal::bury(doomed);
    let publisher = bus.publisher("a").unwrap();
    publisher.publish("before").unwrap();
    assert_eq!(value(&bus, "a"), None);
    let publisher = publisher.retained().unwrap();
    publisher.publish("after").unwrap();
    assert_eq!(value(&bus, "a").as_deref(), Some("after"));
}
