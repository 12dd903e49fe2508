//! Tests of inlets: what they publish, and that each message arrives once.

use crate::common::Fixture;
use std::time::{Duration, SystemTime};
use toroni::{
    Arrived, Bus, BusConfig, Entry, Inlet, InletTopic, Limit, Lost, LostBound, LostReason, Origin,
    Pattern, Policy, PublishError, ReceiveError, Start, StreamKey, Subscriber,
};

fn fixture(configure: impl FnOnce(BusConfig) -> BusConfig) -> (Fixture, Bus) {
    let fixture = Fixture::new();
    let bus = configure(fixture.config()).create("b").unwrap();
    (fixture, bus)
}

fn origin(number: u64) -> Origin {
    Origin { source: 7, series: 1, stream: 0, number }
}

fn stream(source: u32, series: u32, stream: u16) -> StreamKey {
    StreamKey { source, series, stream }
}

/// Brings one message with a number of the stream 0.
fn bring(inlet: &Inlet, topic: &InletTopic, number: u64) -> Result<(), PublishError> {
    let text = number.to_string();
    let parts = [text.as_bytes()];
    let entry = Entry { origin: Some(origin(number)), ..Entry::new(topic, &parts) };
    inlet.publish(&[entry], Limit::Policy).map_err(|error| error.source)
}

fn texts(subscriber: &mut Subscriber) -> Vec<String> {
    let mut texts = Vec::new();
    while let Some(message) = subscriber.try_receive().unwrap() {
        texts.push(message.text().into_owned());
    }
    texts
}

#[test]
fn one_call_publishes_on_any_topics_with_all_extensions() {
    let (_fixture, bus) = fixture(|config| config);
    let mut subscriber = bus.subscribe("**").unwrap();
    let mut in_place = bus.subscribe("**").unwrap();
    let mut below = bus.subscribe("a/b/c").unwrap();
    let inlet = bus.inlet().unwrap();
    let (a, b) = (inlet.topic("a").unwrap(), inlet.topic("b").unwrap());
    assert_eq!(inlet.bus().id(), bus.id());
    let parts: [&[u8]; 5] = [b"one", b"", b", two and three", b"!", b" And the rest."];
    let long = [7; 3000];
    let halves = [&long[..1], &long[1..]];
    let entries = [
        Entry::new(&a, &[]),
        Entry {
            to_descendants: true,
            published_ns: Some(1_000_000_007),
            origin: Some(origin(5)),
            number: Some(u64::MAX),
            ..Entry::new(&a, &parts)
        },
        Entry { number: Some(9), ..Entry::new(&b, &halves) },
        Entry { origin: Some(origin(6)), ..Entry::new(&b, &[b"last"]) },
    ];
    inlet.publish(&entries, Limit::Policy).unwrap();
    inlet.publish(&[], Limit::Policy).unwrap();

    let published = SystemTime::UNIX_EPOCH + Duration::from_nanos(1_000_000_007);
    let expected = [
        ("a", &b""[..], None, None, None),
        (
            "a",
            b"one, two and three! And the rest.",
            Some(published),
            Some(origin(5)),
            Some(u64::MAX),
        ),
        ("b", &long, None, None, Some(9)),
        ("b", b"last", None, Some(origin(6)), None),
    ];
    for (sequence, expected) in (0..).zip(expected) {
        let message = subscriber.receive().unwrap();
        let found = (
            message.topic(),
            message.payload(),
            message.timestamp(),
            message.origin(),
            message.number(),
        );
        assert_eq!((found, message.sequence()), (expected, sequence));

        let message = in_place.borrow().unwrap().unwrap();
        let payload = message.payload().to_vec();
        let found = (
            message.topic(),
            &payload[..],
            message.timestamp(),
            message.origin(),
            message.number(),
        );
        assert_eq!(found, expected);
        message.validate().unwrap();
    }
    assert_eq!(texts(&mut below), ["one, two and three! And the rest."]);
    let counted: u64 =
        bus.stats().unwrap().publishers.unwrap().iter().map(|slot| slot.messages).sum();
    assert_eq!(counted, 4);
}

#[test]
fn messages_are_stamped_if_the_bus_stamps_them() {
    let (_fixture, bus) = fixture(|config| config.timestamps(true));
    let mut subscriber = bus.subscribe("**").unwrap();
    let before = SystemTime::now();
    let inlet = bus.inlet().unwrap();
    let topic = inlet.topic("a").unwrap();
    inlet.publish(&[Entry::new(&topic, &[b"x"])], Limit::Policy).unwrap();
    let stamped = subscriber.receive().unwrap().timestamp().unwrap();
    assert!(stamped >= before && stamped <= SystemTime::now());
}

#[test]
fn what_has_arrived_is_dropped_even_if_the_ring_has_overwritten_it() {
    let (fixture, bus) = fixture(|config| config.capacity(64 << 10).policy(Policy::Overwrite));
    let first = bus.inlet().unwrap();
    let topic = first.topic("a").unwrap();
    for number in [3, 4, 8] {
        bring(&first, &topic, number).unwrap();
    }
    drop((first, topic));
    let other = bus.publisher("other").unwrap();
    for _ in 0..100 {
        other.publish([0; 2000]).unwrap();
    }

    // A program that restarts sends everything again.
    let restarted = fixture.config().open_existing("b").unwrap();
    let mut subscriber = restarted.subscribe("a").unwrap();
    let inlet = restarted.inlet().unwrap();
    let topic = inlet.topic("a").unwrap();
    for number in 0..12 {
        bring(&inlet, &topic, number).unwrap();
    }
    assert_eq!(texts(&mut subscriber), ["9", "10", "11"]);
    assert_eq!(inlet.duplicates(), 9);
    let arrived = inlet.claim(stream(7, 1, 0), Limit::Policy).unwrap();
    assert_eq!((arrived.next, arrived.taken_over), (12, false));
}

#[test]
fn streams_and_series_count_apart() {
    let (_fixture, bus) = fixture(|config| config);
    let mut subscriber = bus.subscribe("**").unwrap();
    let inlet = bus.inlet().unwrap();
    let topic = inlet.topic("a").unwrap();
    let origins = [
        Origin { source: 7, series: 1, stream: 0, number: 5 },
        Origin { source: 7, series: 1, stream: 1, number: 5 },
        Origin { source: 7, series: 2, stream: 0, number: 5 },
        Origin { source: 8, series: 1, stream: 0, number: 5 },
    ];
    let entries = origins.map(|origin| Entry { origin: Some(origin), ..Entry::new(&topic, &[]) });
    inlet.publish(&entries, Limit::Policy).unwrap();
    inlet.publish(&entries, Limit::Policy).unwrap();
    for origin in origins {
        assert_eq!(subscriber.receive().unwrap().origin(), Some(origin));
    }
    assert!(subscriber.try_receive().unwrap().is_none());
}

#[test]
fn messages_in_any_order_are_dropped_only_below_the_stated_number() {
    let (_fixture, bus) = fixture(|config| config);
    let mut subscriber = bus.subscribe("**").unwrap();
    let inlet = bus.inlet().unwrap();
    let topic = inlet.topic("a").unwrap();
    for (number, open_from) in [(2, 0), (0, 1), (4, 1), (1, 3), (1, 3), (3, 5), (4, 5)] {
        if number == 3 {
            let arrived = inlet.claim(stream(7, 1, 0), Limit::Policy).unwrap();
            assert_eq!((arrived.next, arrived.highest), (3, 5), "3 is missing, 4 is not");
        }
        let text = number.to_string();
        let parts = [text.as_bytes()];
        let entry = Entry {
            origin: Some(origin(number)),
            open_from: Some(open_from),
            ..Entry::new(&topic, &parts)
        };
        inlet.publish(&[entry], Limit::Policy).unwrap();
    }
    assert_eq!(texts(&mut subscriber), ["2", "0", "4", "1", "3"]);
    assert_eq!(
        (inlet.duplicates(), inlet.claim(stream(7, 1, 0), Limit::Policy).unwrap().next),
        (2, 5)
    );
}

#[test]
fn messages_of_many_origins_arrive_as_one_stream() {
    let (_fixture, bus) = fixture(|config| config);
    let mut subscriber = bus.subscribe("**").unwrap();
    let inlet = bus.inlet().unwrap();
    let topic = inlet.topic("a").unwrap();
    let feed = |number| Origin { source: 9, series: 0, stream: 0, number };
    // The numbers of the origins are in no order; those of the arrivals are.
    for (source, number, arrival) in [(1, 50, 0), (2, 3, 1), (1, 51, 2), (2, 3, 1), (2, 4, 3)] {
        let text = format!("{source} {number}");
        let parts = [text.as_bytes()];
        let entry = Entry {
            origin: Some(Origin { source, ..origin(number) }),
            arrival: Some(feed(arrival)),
            ..Entry::new(&topic, &parts)
        };
        inlet.publish(&[entry], Limit::Policy).unwrap();
    }
    assert_eq!(inlet.duplicates(), 1);
    assert_eq!(inlet.claim(stream(9, 0, 0), Limit::Policy).unwrap().next, 4);
    assert_eq!(
        inlet.claim(stream(1, 1, 0), Limit::Policy).unwrap().next,
        0,
        "its own number was not kept"
    );
    for expected in ["1 50", "2 3", "1 51", "2 4"] {
        let message = subscriber.receive().unwrap();
        assert_eq!(message.text(), expected);
        let (source, number) = expected.split_once(' ').unwrap();
        let found = message.origin().unwrap();
        assert_eq!(
            (found.source, found.number),
            (source.parse().unwrap(), number.parse().unwrap())
        );
    }
    let number = Origin::NUMBER_LIMIT;
    let entry = Entry { arrival: Some(feed(number)), ..Entry::new(&topic, &[]) };
    let error = inlet.publish(&[entry], Limit::Policy).unwrap_err();
    assert!(matches!(error.source, PublishError::OriginNumber { .. }), "{error}");
}

#[test]
fn one_inlet_brings_a_stream_until_it_is_dropped_or_releases_it() {
    let (fixture, bus) = fixture(|config| config);
    let first = fixture.config().participant_name("first").open("b").unwrap().inlet().unwrap();
    bring(&first, &first.topic("a").unwrap(), 5).unwrap();
    let second = bus.inlet().unwrap();
    let topic = second.topic("a").unwrap();
    let refused = bring(&second, &topic, 6).unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!(
            "\"first\", process {}, already brings the messages of source 00000007, series 00000001: end that process, or leave them to it",
            std::process::id()
        )
    );
    let refused = second.claim(stream(7, 1, 0), Limit::Policy).unwrap_err();
    assert!(matches!(refused, PublishError::Taken { .. }), "{refused}");
    // Other streams and series, and messages without an origin, are free.
    second.claim(stream(7, 1, 3), Limit::Policy).unwrap();
    second.claim(stream(7, 2, 0), Limit::Policy).unwrap();
    second.publish(&[Entry::new(&topic, &[])], Limit::Policy).unwrap();

    drop(first);
    let arrived = second.claim(stream(7, 1, 0), Limit::Policy).unwrap();
    assert_eq!((arrived.next, arrived.taken_over), (6, true));
    bring(&second, &topic, 6).unwrap();

    let third = bus.inlet().unwrap();
    assert!(third.claim(stream(7, 1, 0), Limit::Policy).is_err());
    second.release(stream(7, 1, 0), false, Limit::Policy).unwrap();
    let arrived = third.claim(stream(7, 1, 0), Limit::Policy).unwrap();
    assert_eq!((arrived.next, arrived.taken_over), (7, false));
}

#[test]
fn a_full_table_of_arrivals_is_an_error_that_names_the_setting() {
    let (_fixture, bus) = fixture(|config| config.max_arrivals(2));
    let mut subscriber = bus.subscribe("**").unwrap();
    let inlet = bus.inlet().unwrap();
    let advance = |inlet: &Inlet, stream| {
        inlet.advance(Origin { source: 1, series: 0, stream, number: 1 }, Limit::Policy)
    };
    // What is only claimed takes no place.
    for source in 2..10 {
        inlet.claim(stream(source, 0, 0), Limit::Policy).unwrap();
    }
    advance(&inlet, 0).unwrap();
    advance(&inlet, 1).unwrap();
    let refused = advance(&inlet, 2).unwrap_err();
    assert!(matches!(refused, PublishError::TooManyArrivals { limit: 2 }), "{refused:?}");
    assert!(refused.to_string().contains("larger max_arrivals"));
    let topic = inlet.topic("a").unwrap();
    assert!(bring(&inlet, &topic, 0).is_err());
    assert!(subscriber.try_receive().unwrap().is_none());
    assert_eq!(bus.stats().unwrap().max_arrivals, 2);

    let (_fixture, none) = fixture(|config| config.max_arrivals(0));
    let refused = advance(&none.inlet().unwrap(), 0).unwrap_err();
    assert!(matches!(refused, PublishError::TooManyArrivals { limit: 0 }));
}

#[test]
fn invalid_input_publishes_nothing() {
    let (fixture, bus) = fixture(|config| config.capacity(64 << 10));
    let elsewhere = fixture.config().open("c").unwrap();
    let inlet = bus.inlet().unwrap();
    let (topic, foreign) =
        (inlet.topic("a").unwrap(), elsewhere.inlet().unwrap().topic("a").unwrap());
    let sibling = bus.inlet().unwrap().topic("a").unwrap();
    let good = Entry { origin: Some(origin(1)), ..Entry::new(&topic, &[b"good"]) };
    let refused = |bad| {
        let error = inlet.publish(&[good, bad], Limit::Policy).unwrap_err();
        assert_eq!(error.published, 0);
        error.source
    };
    for other in [&foreign, &sibling] {
        assert!(matches!(refused(Entry::new(other, &[])), PublishError::ForeignTopic));
    }
    let half = vec![0; 16 << 10];
    let halves = [&half[..], &half];
    let too_long = refused(Entry::new(&topic, &halves));
    assert!(
        matches!(too_long, PublishError::TooLong { length: 32768, limit } if limit < 32768),
        "{too_long:?}"
    );
    let large = Origin { number: 1 << 48, ..origin(0) };
    let number = refused(Entry { origin: Some(large), ..good });
    assert!(matches!(number, PublishError::OriginNumber { number } if number == 1 << 48));
    let open_from = Some((1 << 48) + 1);
    let number = refused(Entry { open_from, ..good });
    assert!(matches!(number, PublishError::OriginNumber { number } if number == (1 << 48) + 1));

    let everything = Pattern::everything();
    let loss = |from, until, patterns| Lost {
        from: origin(from),
        until,
        messages: 1,
        bound: LostBound::Exact,
        reason: LostReason::Gone,
        scope: vec![everything.clone(); patterns],
    };
    for (from, until) in [(5, 4), (0, (1 << 48) + 1), (u64::MAX, u64::MAX)] {
        let refused = inlet.publish_lost(&loss(from, until, 1), None, Limit::Policy).unwrap_err();
        let PublishError::LostNumbers { from: f, until: u } = refused else {
            panic!("{refused:?}")
        };
        assert_eq!((f, u), (from, until));
    }
    for patterns in [0, 17] {
        let refused = inlet.publish_lost(&loss(1, 2, patterns), None, Limit::Policy).unwrap_err();
        assert!(matches!(refused, PublishError::LostScope { patterns: p } if p == patterns));
    }
    assert_eq!(bus.stats().unwrap().sequence, 0);
    assert_eq!(inlet.claim(stream(7, 1, 0), Limit::Policy).unwrap().next, 0);
}

#[test]
fn an_inlet_leaves_half_of_the_topic_table_to_others() {
    let (_fixture, bus) = fixture(|config| config.topic_table_bytes(4096));
    let mut subscriber = bus.subscribe("**").unwrap();
    let inlet = bus.inlet().unwrap();
    let names: Vec<_> = (0..200).map(|number| format!("a/rather/long/topic/{number}")).collect();
    for name in &names {
        let topic = inlet.topic(name).unwrap();
        inlet
            .publish(&[Entry { number: Some(1), ..Entry::new(&topic, &[]) }], Limit::Policy)
            .unwrap();
    }
    for name in &names {
        let message = subscriber.receive().unwrap();
        assert_eq!((message.topic(), message.number()), (name.as_str(), Some(1)));
    }
    let used = bus.stats().unwrap().topics;
    assert!((20..100).contains(&used), "{used}");
    bus.publisher("of/this/host").unwrap();
    assert_eq!(bus.stats().unwrap().topics, used + 1);
}

#[test]
fn an_inlet_waits_for_slow_subscribers_and_goes_on_where_it_stopped() {
    let (_fixture, bus) =
        fixture(|config| config.capacity(64 << 10).policy(Policy::Wait { limit: None }));
    let mut subscriber = bus.subscriber().pattern("**").start(Start::Oldest).build().unwrap();
    let inlet = bus.inlet().unwrap();
    let topic = inlet.topic("a").unwrap();
    let payload = [1; 1000];
    let parts = [&payload[..]];
    let entries: Vec<_> = (0..100)
        .map(|number| Entry { origin: Some(origin(number)), ..Entry::new(&topic, &parts) })
        .collect();
    let error = inlet.publish(&entries, Duration::from_millis(1)).unwrap_err();
    assert!(matches!(error.source, PublishError::Timeout), "{error}");
    let published = u64::try_from(error.published).unwrap();
    assert!((40..70).contains(&published), "{published}");
    assert_eq!(
        inlet.claim(stream(7, 1, 0), Limit::Policy).unwrap(),
        inlet.claim(stream(7, 1, 0), Limit::Policy).unwrap()
    );
    assert_eq!(inlet.claim(stream(7, 1, 0), Limit::Policy).unwrap().next, published);

    std::thread::scope(|scope| {
        // What was published before is dropped.
        scope.spawn(|| inlet.publish(&entries, Limit::Policy).unwrap());
        for number in 0..100 {
            assert_eq!(subscriber.receive().unwrap().origin(), Some(origin(number)));
        }
    });
    assert_eq!(inlet.duplicates(), published);
    assert!(subscriber.try_receive().unwrap().is_none());
}

#[test]
fn an_inlet_that_does_not_wait_says_that_the_ring_is_full_or_overwrites() {
    let forever = Policy::Wait { limit: None };
    let (_fixture, bus) = fixture(|config| config.capacity(64 << 10).policy(forever));
    // Of another thread: this one would wait for itself.
    let mut slow =
        std::thread::scope(|scope| scope.spawn(|| bus.subscribe("**").unwrap()).join().unwrap());
    let inlet = bus.inlet().unwrap();
    assert_eq!(inlet.policy(), forever);
    let topic = inlet.topic("a").unwrap();
    let parts = [&[7; 1000][..]];
    let entry = |number| Entry { origin: Some(origin(number)), ..Entry::new(&topic, &parts) };
    let entries: Vec<_> = (0..100).map(entry).collect();
    let error = inlet.publish(&entries, Limit::Try).unwrap_err();
    assert!(matches!(error.source, PublishError::Full), "{error}");
    let published = error.published;
    assert!((1..100).contains(&published) && bus.stats().unwrap().sequence == published as u64);
    let late = inlet.publish(&entries[published..], Duration::from_millis(1)).unwrap_err();
    assert!(matches!(late.source, PublishError::Timeout) && late.published == 0, "{late}");
    let lost = Lost {
        from: origin(published as u64),
        until: published as u64 + 1,
        messages: 1,
        bound: LostBound::Exact,
        reason: LostReason::Gone,
        scope: vec![Pattern::everything()],
    };
    // A loss is short: it finds room, as one message more does not.
    while inlet.publish_lost(&lost, Some(0), Limit::Try).is_ok() {
        assert!(bus.stats().unwrap().sequence < 10_000, "it never fills the ring");
    }
    assert!(matches!(inlet.publish_lost(&lost, Some(0), Limit::Try), Err(PublishError::Full)));
    inlet.publish_lost(&lost, Some(0), Limit::Overwrite).unwrap();
    inlet.publish(&entries[published..], Limit::Overwrite).unwrap();
    let Err(ReceiveError::Lapped { lost_messages, .. }) = slow.try_receive() else {
        panic!("it was overtaken")
    };
    let mut received = 0;
    loop {
        match slow.try_receive() {
            Ok(None) => break,
            Ok(Some(_)) | Err(ReceiveError::Lost(_)) => received += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(lost_messages + received, bus.stats().unwrap().sequence);
}

#[test]
fn an_inlet_can_wait_less_than_the_bus_says() {
    let (_fixture, bus) =
        fixture(|config| config.capacity(64 << 10).policy(Policy::Wait { limit: None }));
    let mut subscriber = bus.subscriber().pattern("**").start(Start::Oldest).build().unwrap();
    let inlet = bus.inlet().unwrap().with_policy(Policy::Overwrite).unwrap();
    let topic = inlet.topic("a").unwrap();
    for number in 0..10 {
        let payload = [1; 20 << 10];
        inlet.publish(&[Entry::new(&topic, &[&payload])], Limit::Policy).unwrap();
        let scope = vec![Pattern::new("**").unwrap()];
        let (from, reason) = (origin(number), LostReason::Jump);
        let (until, bound) = (number + 1, LostBound::Exact);
        let lost = Lost { from, until, messages: 1, bound, reason, scope };
        inlet.publish_lost(&lost, None, Limit::Policy).unwrap();
    }
    let error = subscriber.try_receive().unwrap_err();
    assert!(matches!(error, ReceiveError::Lapped { .. }), "{error}");
    for policy in
        [Policy::Wait { limit: Some(Duration::from_secs(1)) }, Policy::Wait { limit: None }]
    {
        bus.inlet().unwrap().with_policy(policy).unwrap();
    }
    let bounded = Policy::Bounded { budget: Duration::from_millis(1), per: Duration::from_secs(1) };
    let error = bus.inlet().unwrap().with_policy(bounded).unwrap_err();
    assert!(error.to_string().contains("overwrite"), "{error}");
    let (_fixture, hurried) = self::fixture(|config| config.policy(Policy::Overwrite));
    let longer = Policy::Wait { limit: Some(Duration::from_nanos(1)) };
    assert!(hurried.inlet().unwrap().with_policy(longer).is_err());
}

#[test]
fn a_claim_waits_for_other_publishers_no_longer_than_it_may() {
    let (fixture, bus) = fixture(|config| config);
    let inlet = bus.inlet().unwrap();
    let publisher = fixture.config().open("b").unwrap().publisher("t").unwrap();
    publisher
        .publish_with(1, Limit::Policy, |_| {
            std::thread::scope(|scope| {
                let claim = || inlet.claim(stream(7, 1, 0), Duration::from_millis(1));
                let error = scope.spawn(claim).join().unwrap().unwrap_err();
                assert!(matches!(error, PublishError::Timeout), "{error}");
                let advance = || inlet.advance(origin(1), Duration::from_millis(1));
                let error = scope.spawn(advance).join().unwrap().unwrap_err();
                assert!(matches!(error, PublishError::Timeout), "{error}");
                let tries = || {
                    let claimed = inlet.claim(stream(7, 1, 0), Limit::Try).map(drop);
                    [claimed, inlet.advance(origin(1), Limit::Try)]
                };
                let tried = scope.spawn(tries).join().unwrap();
                assert!(
                    tried.iter().all(|one| matches!(one, Err(PublishError::Busy))),
                    "{tried:?}"
                );
            });
        })
        .unwrap();
    bring(&inlet, &inlet.topic("a").unwrap(), 41).unwrap();
    let arrived = inlet.claim(stream(7, 1, 0), Duration::from_secs(60)).unwrap();
    assert_eq!((arrived.next, arrived.taken_over), (42, false));
    let exclusive = fixture.config().open("b").unwrap().exclusive().unwrap();
    let error = inlet.claim(stream(7, 1, 0), Duration::from_secs(60)).unwrap_err();
    assert!(matches!(error, PublishError::Exclusive { .. }), "{error}");
    drop(exclusive);
}

#[test]
fn an_exclusive_publisher_refuses_inlets() {
    let (fixture, bus) = fixture(|config| config);
    let inlet = bus.inlet().unwrap();
    let topic = inlet.topic("a").unwrap();
    let exclusive = fixture.config().open("b").unwrap().exclusive().unwrap();
    assert!(matches!(bring(&inlet, &topic, 1), Err(PublishError::Exclusive { .. })));
    drop(exclusive);
    bring(&inlet, &topic, 1).unwrap();
}

#[test]
fn threads_share_an_inlet() {
    let (_fixture, bus) = fixture(|config| config);
    let mut subscriber = bus.subscribe("**").unwrap();
    let inlet = bus.inlet().unwrap();
    std::thread::scope(|scope| {
        for stream in 0..4 {
            let inlet = &inlet;
            scope.spawn(move || {
                let topic = inlet.topic("a").unwrap();
                for number in 0..100 {
                    let origin = Origin { stream, ..origin(number) };
                    let entry = Entry { origin: Some(origin), ..Entry::new(&topic, &[b"x"]) };
                    inlet.publish(&[entry, entry], Limit::Policy).unwrap();
                }
            });
        }
    });
    let mut next = [0; 4];
    while let Some(message) = subscriber.try_receive().unwrap() {
        let Origin { stream, number, .. } = message.origin().unwrap();
        assert_eq!(number, next[usize::from(stream)]);
        next[usize::from(stream)] += 1;
    }
    assert_eq!((next, inlet.duplicates()), ([100; 4], 400));
}

#[test]
fn what_has_arrived_is_known_to_a_claim_before_anything_is_published() {
    let (_fixture, bus) = fixture(|config| config);
    let inlet = bus.inlet().unwrap();
    let Arrived { next, taken_over, .. } =
        inlet.claim(stream(u32::MAX, u32::MAX, u16::MAX), Limit::Policy).unwrap();
    assert_eq!((next, taken_over), (0, false));
}
