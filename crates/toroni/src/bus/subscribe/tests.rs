//! What was lost or published elsewhere, in each form of receiving.

use super::*;
use crate::bus::publish::testing::{publish_lost, publish_message, publish_record};
use crate::bus::{Bus, BusConfig, SubscriberSlotStats};
use crate::error::ReceiveError;
use crate::settings::{NotifyKind, Policy};
use crate::shm::testing::TempDir;
use crate::topic::frame::{Extensions, Tag};
use crate::topic::{Lost, LostBound, LostReason, Origin, Pattern};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::mpsc;
use std::time::Duration;

/// Far beyond what anything here takes.
const LONG: Duration = Duration::from_secs(60);

#[derive(Debug, PartialEq)]
enum Event {
    /// A message with its sequence.
    Message(Vec<u8>, u64),
    Lost(Lost),
    Lapped(u64),
    Corrupt,
}

/// Makes one call. Returns what it has returned, which is nothing if the subscriber has read all.
type Call = fn(&mut Subscriber) -> Result<Vec<Event>, ReceiveError>;

/// Every form of receiving. The forms that wait are called only if there is a record to receive.
const FORMS: [(&str, Call); 7] = [
    ("receive", |subscriber| {
        if subscriber.is_drained() {
            return Ok(Vec::new());
        }
        subscriber.receive().map(|message| vec![of_copy(&message)])
    }),
    ("try_receive", |subscriber| Ok(subscriber.try_receive()?.iter().map(of_copy).collect())),
    ("receive_timeout", |subscriber| {
        Ok(subscriber.receive_timeout(Duration::ZERO)?.iter().map(of_copy).collect())
    }),
    ("borrow", |subscriber| {
        let Some(message) = subscriber.borrow()? else { return Ok(Vec::new()) };
        let event = of_borrowed(&message);
        message.validate()?;
        Ok(vec![event])
    }),
    ("receive_in_place", |subscriber| {
        if subscriber.is_drained() {
            return Ok(Vec::new());
        }
        of_run(subscriber.receive_in_place()?)
    }),
    ("try_receive_in_place", |subscriber| {
        subscriber.try_receive_in_place()?.map_or(Ok(Vec::new()), of_run)
    }),
    ("receive_in_place_timeout", |subscriber| {
        subscriber.receive_in_place_timeout(Duration::ZERO)?.map_or(Ok(Vec::new()), of_run)
    }),
];

fn of_copy(message: &Message<'_>) -> Event {
    Event::Message(message.payload().to_vec(), message.sequence())
}

fn of_borrowed(message: &Borrowed<'_>) -> Event {
    Event::Message(message.payload().to_vec(), message.sequence())
}

fn of_run(mut run: InPlace<'_>) -> Result<Vec<Event>, ReceiveError> {
    let events = run.by_ref().map(|message| of_borrowed(&message)).collect();
    run.validate()?;
    Ok(events)
}

fn of_error(error: ReceiveError) -> Event {
    assert_eq!(error.is_loss(), !matches!(error, ReceiveError::Corrupt(_)), "{error}");
    match error {
        ReceiveError::Lost(lost) => Event::Lost(*lost),
        ReceiveError::Lapped { lost_messages, .. } => Event::Lapped(lost_messages),
        ReceiveError::Corrupt(_) => Event::Corrupt,
        other => panic!("{other}"),
    }
}

/// Receives until there is nothing more.
fn drain(subscriber: &mut Subscriber, call: Call) -> Vec<Event> {
    let mut events = Vec::new();
    loop {
        match call(subscriber) {
            Ok(more) if more.is_empty() => return events,
            Ok(more) => events.extend(more),
            Err(error) => events.push(of_error(error)),
        }
        assert!(events.len() < 10_000, "it does not end");
    }
}

fn open(root: &TempDir) -> Bus {
    BusConfig::new().directory(root.path()).capacity(64 << 10).open("b").unwrap()
}

fn lost(messages: u64, scope: &[&str]) -> Lost {
    Lost {
        from: Origin { source: 0xA, series: 0xB, stream: 3, number: 7 },
        until: 7 + messages.min(100),
        messages,
        bound: LostBound::AtMost,
        reason: LostReason::Budget,
        scope: scope.iter().map(|text| Pattern::new(text).unwrap()).collect(),
    }
}

/// A loss that is too long for the read-ahead: it has as many patterns as can be, each as long as can be.
fn long_lost(messages: u64, first: &str, last: &str) -> Lost {
    let filler = "x".repeat(255);
    let mut scope = vec![first];
    scope.resize(15, &filler);
    scope.push(last);
    let lost = lost(messages, &scope);
    assert!(lost.encode().len() > 3000);
    lost
}

fn with_origin() -> Extensions<'static> {
    let origin = Some(Origin { source: 1, series: 2, stream: 3, number: 4 });
    Extensions { origin, ..Extensions::default() }
}

/// Publishes messages of all sizes with losses between them. Returns what a subscriber of `plant/a` receives.
fn publish_with_losses(bus: &Bus, first: u64) -> Vec<Event> {
    let publisher = bus.publisher("plant/a").unwrap();
    let mut expected = Vec::new();
    let mut sequence = first;
    let message = |length: usize, expected: &mut Vec<Event>, sequence: &mut u64| {
        let payload = vec![sequence.to_le_bytes()[0]; length];
        publisher.publish(&payload).unwrap();
        expected.push(Event::Message(payload, *sequence));
        *sequence += 1;
    };
    let told = |lost: Lost, expected: &mut Vec<Event>, sequence: &mut u64| {
        publish_lost(bus, &lost);
        expected.push(Event::Lost(lost));
        *sequence += 1;
    };
    let untold = |lost: &Lost, sequence: &mut u64| {
        publish_lost(bus, lost);
        *sequence += 1;
    };
    for length in [8, 3000, 0] {
        message(length, &mut expected, &mut sequence);
        message(length, &mut expected, &mut sequence);
        told(lost(1, &["plant/**"]), &mut expected, &mut sequence);
        message(length, &mut expected, &mut sequence);
        untold(&lost(2, &["alarm/**", "plant", "plant/a/*"]), &mut sequence);
        message(length, &mut expected, &mut sequence);
        told(long_lost(3, "alarm/**", "*/a"), &mut expected, &mut sequence);
        told(lost(4, &["**"]), &mut expected, &mut sequence);
        message(length, &mut expected, &mut sequence);
        untold(&long_lost(5, "alarm/**", "plant/b"), &mut sequence);
        message(length, &mut expected, &mut sequence);
    }
    expected
}

#[test]
fn each_form_returns_losses_at_their_place_if_a_pattern_intersects_their_scope() {
    for (form, call) in FORMS {
        let root = TempDir::new();
        let bus = open(&root);
        let mut subscriber =
            bus.subscriber().pattern("elsewhere").pattern("plant/a").build().unwrap();
        let mut sequence = 0;
        for round in 1..=3 {
            let expected = publish_with_losses(&bus, sequence);
            sequence = bus.stats().unwrap().sequence;
            assert_eq!(drain(&mut subscriber, call), expected, "{form}, round {round}");
            let stats = subscriber.stats();
            assert_eq!(stats.received, round * 18, "{form}");
            assert_eq!((stats.losses, stats.lost_on_the_way), (round * 9, round * 24), "{form}");
            assert_eq!((stats.lapses, stats.lost_messages), (0, 0), "{form}");
        }
    }
}

/// A read-ahead that a copy has filled is handed out in the other forms, too.
#[test]
fn forms_can_be_mixed_around_losses() {
    let root = TempDir::new();
    let bus = open(&root);
    let mut subscriber = bus.subscribe("plant/a").unwrap();
    let mut sequence = 0;
    for round in 0..FORMS.len() {
        let expected = publish_with_losses(&bus, sequence);
        sequence = bus.stats().unwrap().sequence;
        let mut events = Vec::new();
        for turn in 0.. {
            match FORMS[(round + turn) % FORMS.len()].1(&mut subscriber) {
                Ok(more) if more.is_empty() => break,
                Ok(more) => events.extend(more),
                Err(error) => events.push(of_error(error)),
            }
        }
        assert_eq!(events, expected, "round {round}");
    }
}

#[test]
fn a_run_ends_before_a_loss_and_the_next_call_returns_it() {
    let root = TempDir::new();
    let bus = open(&root);
    let publisher = bus.publisher("plant/a").unwrap();
    let mut subscriber = bus.subscribe("plant/**").unwrap();
    publisher.publish(b"first").unwrap();
    // So that the interest knows the topic.
    subscriber.receive().unwrap();

    publisher.publish(b"second").unwrap();
    let mut run = subscriber.receive_in_place().unwrap();
    assert_eq!(run.next().unwrap().payload().to_vec(), b"second");
    publish_lost(&bus, &lost(7, &["plant/a"]));
    publisher.publish(b"third").unwrap();
    assert!(run.next().is_none() && run.next().is_none());
    run.validate().unwrap();
    drop(run);
    let Err(ReceiveError::Lost(told)) = subscriber.receive_in_place() else { panic!() };
    assert_eq!(*told, lost(7, &["plant/a"]));
    assert_eq!(subscriber.borrow().unwrap().unwrap().payload().to_vec(), b"third");
    assert!(subscriber.borrow().unwrap().is_none());
}

#[test]
fn a_local_subscriber_passes_over_losses_and_messages_from_elsewhere() {
    for (form, call) in FORMS {
        let root = TempDir::new();
        let bus = open(&root);
        let publisher = bus.publisher("plant/a").unwrap();
        let build = |local_only| {
            bus.subscriber().pattern("plant/a").local_only(local_only).build().unwrap()
        };
        let (mut all, mut local) = (build(false), build(true));
        // The same topic follows in the order mine, foreign, mine, so that an answer for one kind would show in the
        // other.
        for round in 0..3 {
            for length in [8, 3000] {
                publisher.publish(vec![1; length]).unwrap();
                publish_message(&bus, "plant/a", false, &with_origin(), &vec![2; length]);
                publish_lost(&bus, &lost(1, &["plant/**"]));
                publisher.publish(vec![3; length]).unwrap();
                publish_message(&bus, "plant", true, &with_origin(), &vec![4; length]);
                let inline = Extensions { inline_topic: Some("plant/a"), ..Default::default() };
                publish_message(&bus, "", false, &inline, &vec![5; length]);
                let foreign = Extensions { inline_topic: Some("plant/a"), ..with_origin() };
                publish_message(&bus, "", false, &foreign, &vec![6; length]);
                publish_lost(&bus, &long_lost(1, "plant/**", "a"));
                publisher.clone().to_descendants(true).publish(vec![7; length]).unwrap();
            }
            let letters = |subscriber: &mut Subscriber| -> String {
                let letter = |event: &Event| match event {
                    Event::Message(payload, _) => char::from(b'0' + payload[0]),
                    Event::Lost(_) => '!',
                    other => panic!("{other:?}"),
                };
                drain(subscriber, call).iter().map(letter).collect()
            };
            assert_eq!(letters(&mut all), "12!3456!7".repeat(2), "{form}, round {round}");
            assert_eq!(letters(&mut local), "1357".repeat(2), "{form}, round {round}");
        }
        assert_eq!((local.stats().received, local.stats().losses), (24, 0), "{form}");
    }
}

#[test]
fn a_lapse_over_a_loss_counts_its_record_and_does_not_report_it() {
    for (form, call) in FORMS {
        let root = TempDir::new();
        let config = BusConfig::new().directory(root.path()).capacity(64 << 10);
        let bus = config.policy(Policy::Overwrite).open("b").unwrap();
        let publisher = bus.publisher("a").unwrap();
        let mut subscriber = bus.subscribe("a").unwrap();
        for _ in 0..200 {
            publish_lost(&bus, &lost(1, &["a"]));
            publisher.publish([7; 1000]).unwrap();
        }
        let events = drain(&mut subscriber, call);
        let Event::Lapped(missed) = events[0] else { panic!("{form}: {:?}", events[0]) };
        assert!((200..400).contains(&missed), "{form}: {missed}");
        let first = match &events[1] {
            Event::Message(_, sequence) => *sequence,
            // Each has a message after it.
            _ => match &events[2] {
                Event::Message(_, sequence) => *sequence - 1,
                other => panic!("{form}: {other:?}"),
            },
        };
        assert_eq!(missed, first, "{form}");
        assert_eq!(events.len() as u64 - 1 + missed, 400, "{form}");
    }
}

#[test]
fn a_loss_wakes_a_subscriber_that_sleeps() {
    for notify in [NotifyKind::Futex, NotifyKind::Datagram] {
        let root = TempDir::new();
        let bus = BusConfig::new().directory(root.path()).notify(notify).open("b").unwrap();
        let mut subscriber =
            bus.subscriber().pattern("a").wait(WaitStrategy::Block).build().unwrap();
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            for _ in 0..2 {
                let received = subscriber.receive_timeout(LONG);
                sender.send(received.map(|message| message.is_some())).unwrap();
            }
        });
        publish_lost(&bus, &lost(1, &["b"]));
        publish_lost(&bus, &lost(2, &["a"]));
        let told = receiver.recv_timeout(LONG).unwrap();
        assert!(matches!(told, Err(ReceiveError::Lost(lost)) if lost.messages == 2));
        bus.publisher("a").unwrap().publish(b"x").unwrap();
        assert!(receiver.recv_timeout(LONG).unwrap().unwrap());
        thread.join().unwrap();
    }
}

#[test]
fn a_descriptor_is_readable_for_a_loss_until_the_subscriber_is_drained() {
    for notify in [NotifyKind::Futex, NotifyKind::Datagram, NotifyKind::Multicast { group: None }] {
        let root = TempDir::new();
        let bus = BusConfig::new().directory(root.path()).notify(notify).open("b").unwrap();
        let mut subscriber = bus.subscribe("a").unwrap();
        let is_readable = |subscriber: &mut Subscriber, seconds| {
            let wait = Timespec { tv_sec: seconds, tv_nsec: 0 };
            let mut descriptors =
                [PollFd::from_borrowed_fd(subscriber.fd().unwrap(), PollFlags::IN)];
            poll(&mut descriptors, Some(&wait)).unwrap() == 1
        };
        assert!(subscriber.try_receive().unwrap().is_none());
        for _ in 0..3 {
            assert!(!is_readable(&mut subscriber, 0), "{notify:?}: it is drained");
            publish_lost(&bus, &lost(1, &["a"]));
            assert!(is_readable(&mut subscriber, 60), "{notify:?}");
            let told = subscriber.try_receive().map(|message| message.is_some());
            assert!(matches!(told, Err(ReceiveError::Lost(_))), "{notify:?}: {told:?}");
            assert!(is_readable(&mut subscriber, 0), "{notify:?}: it is not known to be drained");
            assert!(subscriber.try_receive().unwrap().is_none());
            assert!(!is_readable(&mut subscriber, 0), "{notify:?}: it is drained");
            // Nothing for this subscriber: it may wake, and is drained by one call.
            publish_lost(&bus, &lost(1, &["b"]));
            assert!(subscriber.try_receive().unwrap().is_none());
        }
    }
}

#[test]
fn a_router_calls_its_handlers_in_order_and_is_told_if_a_handler_is_concerned() {
    let root = TempDir::new();
    let bus = open(&root);
    let publisher = bus.publisher("plant/a").unwrap();
    let mut router = bus.router().unwrap();
    let (sender, events) = mpsc::channel();
    let heard = sender.clone();
    router.on("plant/*", move |message| heard.send(message.text().into_owned()).unwrap()).unwrap();
    publish_lost(&bus, &lost(1, &["plant/**"]));
    let told = router.poll();
    assert!(matches!(told, Err(ReceiveError::Lost(_))), "there is no function for it: {told:?}");

    router.on_lost(move |lost| sender.send(format!("lost {}", lost.messages)).unwrap());
    publisher.publish(b"one").unwrap();
    publish_lost(&bus, &lost(2, &["plant/**"]));
    publish_lost(&bus, &lost(3, &["alarm/**"]));
    publisher.publish(b"two").unwrap();
    assert_eq!(router.poll().unwrap(), 3);
    assert_eq!(events.try_iter().collect::<Vec<_>>(), ["one", "lost 2", "two"]);
    router.on("alarm/fire", |_| {}).unwrap();
    publish_lost(&bus, &lost(4, &["alarm/**"]));
    assert!(router.run_once(LONG).unwrap());
    assert_eq!(events.try_iter().collect::<Vec<_>>(), ["lost 4"]);
    assert_eq!(router.poll().unwrap(), 0);
}

#[test]
fn a_subscriber_without_patterns_gets_no_report_of_a_loss() {
    let root = TempDir::new();
    let bus = open(&root);
    let mut subscriber = bus.subscriber().build().unwrap();
    publish_lost(&bus, &lost(1, &["**"]));
    assert!(subscriber.try_receive().unwrap().is_none());
    subscriber.add_pattern("a").unwrap();
    publish_lost(&bus, &lost(1, &["**"]));
    assert!(matches!(subscriber.try_receive(), Err(ReceiveError::Lost(_))));
}

#[test]
fn the_number_of_messages_lost_on_the_way_does_not_overflow() {
    let root = TempDir::new();
    let bus = open(&root);
    let mut subscriber = bus.subscribe("a").unwrap();
    for _ in 0..2 {
        publish_lost(&bus, &lost(u64::MAX, &["a"]));
        assert!(matches!(subscriber.try_receive(), Err(ReceiveError::Lost(_))));
    }
    assert_eq!((subscriber.stats().losses, subscriber.stats().lost_on_the_way), (2, u64::MAX));
}

/// Also if it does not receive any more after that.
#[test]
fn observers_see_the_losses_that_a_subscriber_was_told_of() {
    let root = TempDir::new();
    let bus = open(&root);
    let counts = || {
        let subscribers = bus.stats().unwrap().subscribers.unwrap();
        let of = |one: &SubscriberSlotStats| (one.losses, one.lost_on_the_way, one.lost_messages);
        subscribers.iter().map(of).collect::<Vec<_>>()
    };
    for (form, call) in FORMS {
        let mut subscriber = bus.subscribe("a").unwrap();
        let _other = bus.subscribe("b").unwrap();
        assert_eq!(counts(), [(0, 0, 0); 2], "{form}: a slot that was used before");
        for round in 1..=3 {
            publish_lost(&bus, &lost(7, &["a"]));
            assert!(matches!(call(&mut subscriber), Err(ReceiveError::Lost(_))), "{form}");
            assert_eq!(counts(), [(round, 7 * round, 0), (0, 0, 0)], "{form}");
        }
    }
}

#[test]
fn the_list_of_topics_counts_no_losses() {
    let root = TempDir::new();
    let bus = open(&root);
    publish_lost(&bus, &lost(1, &["a"]));
    bus.publisher("a").unwrap().publish(b"12").unwrap();
    publish_lost(&bus, &long_lost(1, "a", "b"));
    let topics = bus.topics().unwrap();
    let topics: Vec<_> =
        topics.iter().map(|topic| (topic.name.as_str(), topic.messages, topic.bytes)).collect();
    assert_eq!(topics, [("a", 1, 2)]);
}

/// Whatever the record of a loss holds, the messages around it arrive, and nothing but an error comes between them.
#[test]
fn hostile_bytes_in_a_loss_are_corrupt_or_passed_over() {
    let root = TempDir::new();
    let bus = open(&root);
    let publisher = bus.publisher("a").unwrap();
    let subscribe = || bus.subscribe("a").unwrap();
    let mut subscribers = FORMS.map(|(form, call)| (form, call, subscribe()));
    let mut corrupt = 0;
    let mut check = |tag: u32, body: &[u8], what: &dyn Fn() -> String| {
        publisher.publish(b"before").unwrap();
        publish_record(&bus, tag, body);
        publisher.publish(b"after").unwrap();
        let mut all: Vec<Vec<Event>> = Vec::new();
        for (form, call, subscriber) in &mut subscribers {
            let mut events = drain(subscriber, *call);
            let last = events.pop();
            let is_message = |event: Option<&Event>, wanted: &[u8]| matches!(event, Some(Event::Message(payload, _)) if payload == wanted);
            assert!(is_message(last.as_ref(), b"after"), "{form}, {}: {last:?}", what());
            assert!(is_message(events.first(), b"before"), "{form}, {}: {events:?}", what());
            events.remove(0);
            assert!(
                matches!(events[..], [] | [Event::Corrupt] | [Event::Lost(_)]),
                "{form}, {}: {events:?}",
                what()
            );
            all.push(events);
        }
        assert!(all.iter().all(|events| *events == all[0]), "{}: {all:?}", what());
        corrupt += u32::from(all[0] == [Event::Corrupt]);
    };
    let tag = Tag::loss().raw();
    for whole in [lost(1, &["a", "b/**"]).encode(), long_lost(1, "a", "b").encode()] {
        let step = if whole.len() > 100 { 101 } else { 1 };
        for length in (0..whole.len()).step_by(step) {
            check(tag, &whole[..length], &|| format!("{length} bytes of {}", whole.len()));
        }
        for bit in (0..whole.len() * 8).step_by(step) {
            let mut body = whole.clone();
            body[bit / 8] ^= 1 << (bit % 8);
            check(tag, &body, &|| format!("bit {bit} of {} bytes", whole.len()));
        }
        for bit in 0..32 {
            check(tag ^ 1 << bit, &whole, &|| format!("bit {bit} of the tag"));
        }
        for more in [8, 4096, 20_000] {
            let mut body = whole.clone();
            body.resize(whole.len() + more, 0);
            check(tag, &body, &|| format!("{more} bytes more"));
        }
    }
    assert!(corrupt > 300, "{corrupt}");
}

#[cfg(feature = "tokio")]
#[test]
fn a_tokio_task_learns_of_losses_at_their_place() {
    let root = TempDir::new();
    let bus = open(&root);
    let mut subscriber = bus.subscribe("plant/a").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for sequence in [0, 33] {
            let expected = publish_with_losses(&bus, sequence);
            assert_eq!(bus.stats().unwrap().sequence, sequence + 33);
            for expected in expected {
                let received =
                    tokio::time::timeout(LONG, subscriber.receive_async()).await.expect("in time");
                let event = received.map_or_else(of_error, |message| of_copy(&message));
                assert_eq!(event, expected);
            }
        }
        // It sleeps, and the loss wakes it.
        let publishing = std::thread::spawn(move || publish_lost(&bus, &lost(9, &["plant/a"])));
        let told = tokio::time::timeout(LONG, subscriber.receive_async()).await;
        let told = told.expect("in time").map(|_| ());
        assert!(matches!(told, Err(ReceiveError::Lost(lost)) if lost.messages == 9));
        publishing.join().unwrap();
    });
}

/// A message of 40 bytes, which goes through a read-ahead, or of 3000, which does not.
fn payload(letter: u8, length: usize) -> Vec<u8> {
    vec![letter; length]
}

#[test]
fn each_form_continues_with_the_newest_message_of_its_topics_after_a_loss() {
    for (form, call) in FORMS {
        for length in [40, 3000] {
            let root = TempDir::new();
            let config = BusConfig::new().directory(root.path()).capacity(64 << 10);
            let bus = config.policy(Policy::Overwrite).open("b").unwrap();
            let wanted = bus.publisher("wanted").unwrap();
            let other = bus.publisher("other").unwrap();
            let builder = bus.subscriber().pattern("wanted").after_loss(Continue::Newest);
            let mut subscriber = builder.build().unwrap();
            for _ in 0..3 {
                wanted.publish(payload(1, length)).unwrap();
            }
            // Some would be read ahead.
            let first = subscriber.receive().unwrap();
            assert_eq!((first.sequence(), first.payload()), (0, &payload(1, length)[..]));
            let mut newest = 0;
            for _ in 0..3 * (64 << 10) / length {
                newest = wanted.publish(payload(2, length)).unwrap();
                other.publish(payload(3, length)).unwrap();
            }
            publish_lost(&bus, &lost(1, &["wanted"]));
            let events = drain(&mut subscriber, call);
            let expected = [
                Event::Lapped(newest - 1),
                Event::Message(payload(2, length), newest),
                Event::Lost(lost(1, &["wanted"])),
            ];
            assert_eq!(events, expected, "{form}, {length}");
            let stats = subscriber.stats();
            assert_eq!((stats.received, stats.lost_messages, stats.lapses), (2, newest - 1, 1));

            // Now one of its topic is lost, and none is left.
            wanted.publish(payload(5, length)).unwrap();
            for _ in 0..3 * (64 << 10) / length {
                other.publish(payload(3, length)).unwrap();
            }
            let end = bus.stats().unwrap().sequence;
            let passed = end - (newest + 3);
            assert_eq!(drain(&mut subscriber, call), [Event::Lapped(passed)], "{form}, {length}");
            assert_eq!((subscriber.sequence(), subscriber.lag_bytes()), (end, 0));
            wanted.publish(payload(4, length)).unwrap();
            let events = drain(&mut subscriber, call);
            assert_eq!(events, [Event::Message(payload(4, length), end)], "{form}, {length}");
        }
    }
}

/// Topics that travel with the messages, and losses as the newest records.
#[test]
fn the_newest_message_may_have_an_inline_topic_and_is_no_loss() {
    for (form, call) in FORMS {
        let root = TempDir::new();
        let config = BusConfig::new().directory(root.path()).capacity(64 << 10);
        let bus = config.policy(Policy::Overwrite).open("b").unwrap();
        let builder = bus.subscriber().pattern("a/*").after_loss(Continue::Newest);
        let mut subscriber = builder.build().unwrap();
        let inline = |topic| Extensions { inline_topic: Some(topic), ..Extensions::default() };
        for number in 0..200 {
            publish_message(&bus, "", false, &inline("a/b"), &payload(number, 1000));
            publish_message(&bus, "", false, &inline("c"), &payload(0, 1000));
            publish_lost(&bus, &lost(1, &["a/b"]));
        }
        let events = drain(&mut subscriber, call);
        let expected = [
            Event::Lapped(3 * 199),
            Event::Message(payload(199, 1000), 3 * 199),
            Event::Lost(lost(1, &["a/b"])),
        ];
        assert_eq!(events, expected, "{form}");
    }
}

#[test]
fn each_form_passes_over_messages_that_are_too_old() {
    const MINUTE: Duration = Duration::from_secs(60);
    for (form, call) in FORMS {
        for length in [40, 600] {
            let root = TempDir::new();
            let bus = open(&root);
            let build = |max_age| {
                bus.subscriber().pattern("a").pattern("in/*").max_age(max_age).build().unwrap()
            };
            let (mut minute, mut always) = (build(MINUTE), build(Duration::MAX));
            let now_ns = || crate::bus::clock::realtime_ns();
            let hour = 60 * u64::try_from(MINUTE.as_nanos()).unwrap();
            let stamped = |timestamp_ns| Extensions { timestamp_ns, ..Extensions::default() };
            for _ in 0..2 {
                for (letter, stamp) in [
                    (1, None),
                    (2, Some(now_ns())),
                    (3, Some(now_ns() - hour)),
                    (4, Some(now_ns() + hour)),
                    (5, Some(0)),
                    (6, Some(u64::MAX)),
                ] {
                    let extensions = stamped(stamp);
                    publish_message(&bus, "a", false, &extensions, &payload(letter, length));
                    publish_message(&bus, "b", false, &extensions, &payload(9, length));
                    let inline = Extensions { inline_topic: Some("in/line"), ..extensions };
                    publish_message(&bus, "", false, &inline, &payload(letter, length));
                    let elsewhere = Extensions { origin: with_origin().origin, ..inline };
                    publish_message(&bus, "", false, &elsewhere, &payload(letter, length));
                }
                publish_lost(&bus, &lost(1, &["a"]));
            }
            let letters = |subscriber: &mut Subscriber| -> Vec<u8> {
                let letter = |event: &Event| match event {
                    Event::Message(payload, _) => payload[0],
                    Event::Lost(_) => 0,
                    other => panic!("{other:?}"),
                };
                drain(subscriber, call).iter().map(letter).collect()
            };
            let fresh = [1, 1, 1, 2, 2, 2, 4, 4, 4, 6, 6, 6, 0].repeat(2);
            assert_eq!(letters(&mut minute), fresh, "{form}, {length}");
            assert_eq!((minute.stats().received, minute.stats().stale), (24, 12), "{form}");
            assert_eq!(minute.lag_bytes(), 0);
            assert_eq!(letters(&mut always).len(), 38, "{form}, {length}");
            assert_eq!(always.stats().stale, 0);
        }
    }
}

/// What is too old is neither received nor lost when the newest message is searched.
#[test]
fn a_message_that_is_too_old_is_not_counted_twice() {
    let root = TempDir::new();
    let config = BusConfig::new().directory(root.path()).capacity(64 << 10);
    let bus = config.policy(Policy::Overwrite).open("b").unwrap();
    let builder = bus.subscriber().pattern("a").after_loss(Continue::Newest);
    let mut subscriber = builder.max_age(LONG).build().unwrap();
    let old = Extensions { timestamp_ns: Some(0), ..Extensions::default() };
    for _ in 0..200 {
        publish_message(&bus, "a", false, &old, &[7; 1000]);
    }
    assert!(matches!(
        subscriber.try_receive(),
        Err(ReceiveError::Lapped { lost_messages: 199, .. })
    ));
    assert!(subscriber.try_receive().unwrap().is_none());
    assert_eq!((subscriber.stats().stale, subscriber.stats().lost_messages), (1, 199));
}
