//! Hosts that follow archives over TCP.

use std::path::Path;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;
use toroni::{Bus, BusConfig, LostReason, Origin, Policy, ReceiveError, Start, Subscriber};
use toroni_testkit::{Directory, wait};

use super::super::*;
use super::member::{Member, Served, runtime};
use crate::batch::{Builder, Command, CommandId, Lost, Open, Publish, commands_in};
use crate::rpc::Target;

pub(super) const FEED: &str = "orders";

pub(super) fn config(directory: &Path) -> BusConfig {
    // Small, so that the follower waits for the subscriber.
    BusConfig::new().directory(directory).capacity(64 << 10).policy(Policy::Wait { limit: None })
}

pub(super) fn subscribe(bus: &Bus) -> Subscriber {
    let subscriber = bus.subscriber().pattern("**").start(Start::Oldest).gating(true);
    subscriber.build().expect("subscribed")
}

fn follow(directory: &Path, members: &[&Served]) -> Follower {
    let started = try_follow(directory, members, OnDivergence::Stop);
    started.unwrap_or_else(|error| panic!("{error}"))
}

fn try_follow(
    directory: &Path,
    members: &[&Served],
    on_divergence: OnDivergence,
) -> Result<Follower, FollowError> {
    Follower::start(FollowerOptions {
        bus: config(directory),
        feed: FEED.to_owned(),
        members: targets(members),
        archives: vec![],
        start: FeedStart::Oldest,
        on_divergence,
        live: None,
    })
}

pub(super) fn targets(members: &[&Served]) -> Vec<Target> {
    members.iter().map(|served| served.target.clone()).collect()
}

/// What a subscriber finds.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    Event(u64, Origin, Vec<u8>),
    Lost(Origin, u64, LostReason),
}

pub(super) fn next(subscriber: &mut Subscriber) -> Option<Found> {
    match subscriber.try_receive() {
        Ok(message) => message.map(|message| {
            let (number, origin) = (message.number(), message.origin());
            let numbers = (number.expect("an event"), origin.expect("a command's"));
            Found::Event(numbers.0, numbers.1, message.payload().to_vec())
        }),
        Err(ReceiveError::Lost(lost)) => Some(Found::Lost(lost.from, lost.until, lost.reason)),
        Err(error) => panic!("{error}"),
    }
}

pub(super) fn take(subscriber: &mut Subscriber, count: usize) -> Vec<Found> {
    let begun = Instant::now();
    let mut found = vec![];
    while found.len() < count {
        match next(subscriber) {
            Some(one) => found.push(one),
            None => std::thread::yield_now(),
        }
        assert!(begun.elapsed() < wait::LIMIT, "{} of {count}", found.len());
    }
    found
}

/// What a subscriber has to find of the events from a number on.
pub(super) fn expected(member: &Member, from: u64) -> Vec<Found> {
    let from = usize::try_from(from).expect("a small number");
    let mut found = vec![];
    for (before, bytes) in &member.all[from..] {
        let (command, _) = commands_in(bytes).next().expect("a command");
        match command {
            Command::Publish(Publish { id, payload, .. }) => {
                found.push(Found::Event(before.next, origin(id), payload.to_vec()));
            }
            Command::Lost(Lost { source, series, first, last }) => {
                let from = origin(CommandId { source, series, number: first });
                found.push(Found::Lost(from, last + 1, LostReason::Overtaken));
            }
            Command::Open(_)
            | Command::Begin { .. }
            | Command::Release { .. }
            | Command::Remove { .. } => {}
        }
    }
    found
}

fn origin(CommandId { source, series, number }: CommandId) -> Origin {
    Origin { source, series, stream: 0, number }
}

pub(super) fn until_at(follower: &Follower, member: &Member) {
    let there = || follower.followed().chain() == Some(member.machine.chain());
    wait::until("the bus is at the end of the order", there);
}

pub(super) fn push(member: &mut Member, commands: &[Command<'_>]) {
    let mut builder = Builder::new();
    commands.iter().for_each(|command| builder.push(command).expect("short"));
    member.append_batch(builder);
}

/// A way to a member that brings this many bytes of answers per second.
fn slow_way(runtime: &Runtime, served: &Served, bytes_per_second: f64) -> Target {
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let member = served.target.address.clone();
    runtime.spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = tokio::net::TcpStream::connect(&member).await.expect("it listens");
            let (mut from_near, mut to_near) = near.into_split();
            let (mut from_far, mut to_far) = far.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_near, &mut to_far).await });
            tokio::spawn(async move {
                let mut bytes = vec![0; 8 << 10];
                while let Ok(count @ 1..) = from_far.read(&mut bytes).await {
                    let time = Duration::from_secs_f64(count as f64 / bytes_per_second);
                    tokio::time::sleep(time).await;
                    if to_near.write_all(&bytes[..count]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    Target { address, ..served.target.clone() }
}

/// What is asked for at once takes longer than a member has for an answer.
#[test]
fn a_host_behind_a_slow_way_gets_all_events() {
    let (runtime, directory) = (runtime(), Directory::new());
    let mut member = Member::new();
    let served = Served::start(&runtime, &member.archive);
    let open =
        Command::Open(Open { source: 1, series: 9, session: 1, bus: [3; 16], earlier: Some(&[]) });
    push(&mut member, &[open]);
    let payload = vec![7; 4 << 10];
    for number in 0..150 {
        let id = CommandId { source: 1, series: 9, number };
        let publish = Publish { id, to_descendants: false, topic: "t", payload: &payload };
        push(&mut member, &[Command::Publish(publish)]);
    }
    let way = slow_way(&runtime, &served, 140e3);
    let bus = config(directory.path()).open(FEED).expect("opened");
    let mut subscriber = subscribe(&bus);
    let started = Follower::start(FollowerOptions {
        bus: config(directory.path()),
        feed: FEED.to_owned(),
        members: vec![way],
        archives: vec![],
        start: FeedStart::Oldest,
        on_divergence: OnDivergence::Stop,
        live: None,
    });
    let follower = started.expect("started");
    assert_eq!(take(&mut subscriber, 150), expected(&member, 0));
    follower.end().expect("it works");
}

#[test]
fn a_host_sees_every_event_once_whenever_its_follower_is_restarted() {
    let (runtime, directory) = (runtime(), Directory::new());
    let mut member = Member::new();
    let served = Served::start(&runtime, &member.archive);
    let bus = config(directory.path()).open(FEED).expect("opened");
    let mut subscriber = subscribe(&bus);
    let mut seen = 0;
    let mut found = vec![];
    for round in 0..12 {
        let follower = follow(directory.path(), &[&served]);
        (0..20).for_each(|_| member.append());
        if round % 3 == 0 {
            // Numbers of a commander that never left, and a new series of the feed.
            let first = 1_000 * (round + 1);
            let open = Open { source: 50, series: 1, session: 1, bus: [7; 16], earlier: Some(&[]) };
            let lost = Lost {
                source: 50,
                series: 1,
                first: if round == 0 { 0 } else { first - 2_999 },
                last: first,
            };
            let begin = Command::Begin { series: u32::try_from(round).expect("small") + 1 };
            push(&mut member, &[Command::Open(open), Command::Lost(lost), begin]);
        }
        // It ends at any point.
        let pause = member.random.below(30);
        std::thread::sleep(std::time::Duration::from_millis(pause));
        while let Some(one) = next(&mut subscriber) {
            found.push(one);
        }
        if round % 2 == 0 {
            drop(follower);
        } else {
            follower.end().unwrap_or_else(|error| panic!("{error}"));
        }
    }
    let follower = follow(directory.path(), &[&served]);
    let all = expected(&member, 0);
    seen += found.len();
    found.extend(take(&mut subscriber, all.len() - seen));
    assert_eq!(found, all);
    until_at(&follower, &member);
    let digest = follower.followed().chain().map(|chain| chain.digest);
    assert_eq!(digest, Some(member.machine.digest()));
    assert_eq!(next(&mut subscriber), None);
    assert_eq!((follower.followed().lost(), follower.followed().divergences()), (0, 0));

    let second = try_follow(directory.path(), &[&served], OnDivergence::Stop);
    let error = second.expect_err("one follower writes").to_string();
    assert!(error.contains("brings"), "{error}");
}

#[test]
fn what_no_member_has_any_more_is_lost_with_its_exact_numbers() {
    let (runtime, directory) = (runtime(), Directory::new());
    let mut members = [Member::new(), Member::new()];
    // Both have the same events, and one has purged more.
    let random = members[0].random.clone();
    members[1].random = random;
    for member in &mut members {
        (0..150).for_each(|_| member.append());
    }
    assert_eq!(members[0].machine.chain(), members[1].machine.chain());
    let snapshots = members.each_ref().map(|member| (member.machine.clone(), member.last));
    for ((member, snapshot), index) in members.iter_mut().zip(snapshots).zip([140, 70]) {
        let entry = member.log.read(index..index + 1, 0).expect("readable");
        member.log.purge(entry[0].place).expect("purged");
        // Nothing is in memory any more.
        member.restart(snapshot);
    }
    let [more, less] = &members;
    let first = less.archive.first();
    assert!(first > 0 && more.archive.first() > first);
    let served = members.each_ref().map(|member| Served::start(&runtime, &member.archive));
    let bus = config(directory.path()).open(FEED).expect("opened");
    let mut subscriber = subscribe(&bus);
    let follower = follow(directory.path(), &[&served[0], &served[1]]);
    let mut all = expected(less, first);
    let feed = toroni_proto::id::Source::of_feed(FEED).0;
    let lost = Origin { source: feed, series: 0, stream: 0, number: 0 };
    all.insert(0, Found::Lost(lost, first, LostReason::Gone));
    assert_eq!(take(&mut subscriber, all.len()), all);
    until_at(&follower, less);
    assert_eq!(follower.followed().lost(), first);
}

/// Two groups, the second of which has lost the last events of the first and goes on with others, as after a recovery.
fn two_histories(begins: bool) -> (Member, Member, u64) {
    let (mut old, mut new) = (Member::new(), Member::new());
    let random = old.random.clone();
    new.random = random;
    for member in [&mut old, &mut new] {
        (0..30).for_each(|_| member.append());
    }
    let fork = old.machine.next();
    (0..5).for_each(|_| old.append());
    let series = if begins { vec![Command::Begin { series: 8 }] } else { vec![] };
    let open =
        Command::Open(Open { source: 60, series: 1, session: 1, bus: [8; 16], earlier: Some(&[]) });
    push(&mut new, &[&series[..], &[open]].concat());
    (old, new, fork)
}

fn diverges(begins: bool, grows: usize) {
    let (runtime, directory) = (runtime(), Directory::new());
    let (old, mut new, fork) = two_histories(begins);
    (0..grows).for_each(|_| new.append());
    let bus = config(directory.path()).open(FEED).expect("opened");
    let mut subscriber = subscribe(&bus);
    let (first, second) =
        (Served::start(&runtime, &old.archive), Served::start(&runtime, &new.archive));
    let follower = follow(directory.path(), &[&first]);
    let all = expected(&old, 0);
    assert_eq!(take(&mut subscriber, all.len()), all);
    until_at(&follower, &old);
    drop(follower);
    // It asks both: the old member first, so that it knows the digest.
    let follower = follow(directory.path(), &[&first, &second]);
    wait::until("the divergence is noticed", || follower.has_ended());
    let error = follower.end().expect_err("it diverged");
    let FollowError::Diverged { from, until } = error else { panic!("{error}") };
    assert_eq!(until, old.machine.next());
    if begins {
        assert_eq!(from, fork, "where the new series began");
    }
    assert!(from < until);
    let Some(Found::Lost(place, end, LostReason::Diverged)) = next(&mut subscriber) else {
        panic!("no loss was reported")
    };
    assert_eq!((place.number, end), (from, until));

    // A follower that continues reports it, and has what follows.
    let reporting = try_follow(directory.path(), &[&first, &second], OnDivergence::Report);
    let reporting = reporting.unwrap_or_else(|error| panic!("{error}"));
    wait::until("it is reported", || reporting.followed().divergences() > 0);
    drop(first);
    while new.machine.next() <= until {
        new.append();
    }
    until_at(&reporting, &new);
    let after = expected(&new, until);
    assert_eq!(take(&mut subscriber, after.len()), after);
}

#[test]
fn a_later_series_that_does_not_continue_the_bus_is_a_divergence() {
    diverges(true, 0);
}

#[test]
fn other_events_under_the_same_numbers_are_a_divergence() {
    diverges(false, 40);
}

#[test]
fn an_event_that_the_bus_cannot_carry_is_one_loss() {
    let (runtime, directory) = (runtime(), Directory::new());
    let mut member = Member::new();
    let open =
        Command::Open(Open { source: 1, series: 2, session: 1, bus: [1; 16], earlier: Some(&[]) });
    let long = vec![7; 100 << 10];
    let publish = |number, topic, payload| {
        let id = CommandId { source: 1, series: 2, number };
        Command::Publish(Publish { id, to_descendants: false, topic, payload })
    };
    let commands = [
        open,
        publish(0, "a", b"one".as_slice()),
        publish(1, "no//topic", b"two"),
        publish(2, "a", b"three"),
        publish(3, "a", &long),
        publish(4, "a", b"five"),
    ];
    push(&mut member, &commands);
    let served = Served::start(&runtime, &member.archive);
    let bus = config(directory.path()).open(FEED).expect("opened");
    let mut subscriber = subscribe(&bus);
    let follower = follow(directory.path(), &[&served]);
    let found = take(&mut subscriber, 5);
    let lost = |found: &Found| match found {
        Found::Lost(from, until, reason) => Some((from.number, *until, *reason)),
        Found::Event(..) => None,
    };
    let event = |found: &Found| match found {
        Found::Event(number, ..) => Some(*number),
        Found::Lost(..) => None,
    };
    assert_eq!(found.iter().filter_map(event).collect::<Vec<_>>(), [1, 3, 5]);
    assert_eq!(lost(&found[1]), Some((2, 3, LostReason::Topic)));
    assert_eq!(lost(&found[3]), Some((4, 5, LostReason::TooLong)));
    until_at(&follower, &member);
}

#[test]
fn a_host_that_wants_no_history_begins_with_the_next_event() {
    let (runtime, directory) = (runtime(), Directory::new());
    let mut member = Member::new();
    (0..20).for_each(|_| member.append());
    let before = member.machine.next();
    let served = Served::start(&runtime, &member.archive);
    let bus = config(directory.path()).open(FEED).expect("opened");
    let mut subscriber = subscribe(&bus);
    let options = FollowerOptions {
        bus: config(directory.path()),
        feed: FEED.to_owned(),
        members: targets(&[&served]),
        archives: vec![],
        start: FeedStart::Live,
        on_divergence: OnDivergence::Stop,
        live: None,
    };
    let follower = Follower::start(options).unwrap_or_else(|error| panic!("{error}"));
    until_at(&follower, &member);
    (0..20).for_each(|_| member.append());
    let all = expected(&member, before);
    assert_eq!(take(&mut subscriber, all.len()), all);
    until_at(&follower, &member);
}

fn rewind_to(
    directory: &Path,
    name: &str,
    served: &Served,
    from: Option<u64>,
) -> Result<Rewound, FollowError> {
    rewind(RewindOptions {
        bus: config(directory).capacity(1 << 20),
        name: name.to_owned(),
        feed: FEED.to_owned(),
        members: targets(&[served]),
        archives: vec![],
        from,
    })
}

#[test]
fn a_rewind_fills_a_new_bus_with_the_same_events() {
    let (runtime, directory): (Runtime, _) = (runtime(), Directory::new());
    let mut member = Member::new();
    (0..60).for_each(|_| member.append());
    let next_event = member.machine.next();
    let served = Served::start(&runtime, &member.archive);
    for (name, from) in [("all", None), ("some", Some(40)), ("none", Some(next_event))] {
        let rewound = rewind_to(directory.path(), name, &served, from);
        let rewound = rewound.unwrap_or_else(|error| panic!("{error}"));
        let from = from.unwrap_or(0);
        assert_eq!(rewound, Rewound { from, until: next_event, lost: 0 });
        let bus = config(directory.path()).open(name).expect("opened");
        let mut subscriber = subscribe(&bus);
        let all = expected(&member, from);
        assert_eq!(take(&mut subscriber, all.len()), all);
        assert_eq!(next(&mut subscriber), None);
    }
    let again = rewind_to(directory.path(), "all", &served, None);
    assert!(matches!(again, Err(FollowError::NotFresh(_))), "{again:?}");
    let beyond = rewind_to(directory.path(), "beyond", &served, Some(next_event + 1));
    let error = beyond.expect_err("there is none");
    let left = config(directory.path()).open_existing("beyond");
    assert!(left.is_err(), "a rewind that cannot begin leaves a bus");
    assert_eq!(
        error.to_string(),
        format!("there is no event {}: the members have 0 to {}", next_event + 1, next_event - 1)
    );
}
