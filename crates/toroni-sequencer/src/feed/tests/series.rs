//! Buses that the order does not continue, and those that it does.

use std::path::Path;
use std::process::{Command as Program, Stdio};
use std::time::Duration;

use tokio::runtime::Runtime;
use toroni::{Bus, Entry, Limit, LostReason, Origin};
use toroni_proto::id::Source;
use toroni_testkit::{Directory, Process, Random, wait};

use super::super::event_bus::EventBus;
use super::super::follow::{in_turn, series_of as series_of_event};
use super::super::recheck::{Compared, Recheck};
use super::super::vouch::Alone;
use super::super::*;
use super::follow::{FEED, Found, config, expected, next, push, subscribe, take, targets};
use super::keeper::forget;
use super::member::{Member, Served, runtime, target};
use crate::batch::{Command, CommandId, Open, Publish, commands_in};
use crate::machine::{Departs, Machine};
use crate::rpc::{Fetch, Target};

const DIRECTORY: &str = "TORONI_FEED_DIRECTORY";
const MEMBER: &str = "TORONI_FEED_MEMBER";

fn open_bus(directory: &Directory) -> Bus {
    // So large that the subscriber may read when all is there.
    config(directory.path()).capacity(1 << 20).open(FEED).expect("opened")
}

fn start(
    directory: &Path,
    members: Vec<Target>,
    with: impl FnOnce(&mut FollowerOptions),
) -> Follower {
    let mut options = FollowerOptions {
        bus: config(directory),
        feed: FEED.to_owned(),
        members,
        archives: vec![],
        start: FeedStart::Oldest,
        on_divergence: OnDivergence::Stop,
        live: None,
    };
    with(&mut options);
    Follower::start(options).unwrap_or_else(|error| panic!("{error}"))
}

fn follow(directory: &Directory, members: Vec<Target>, on_divergence: OnDivergence) -> Follower {
    start(directory.path(), members, |options| options.on_divergence = on_divergence)
}

fn follow_with(directory: &Directory, members: &[&Served], archives: &[&Served]) -> Follower {
    start(directory.path(), targets(members), |options| options.archives = targets(archives))
}

/// Brings all events of a member to the bus, and ends.
fn bring(directory: &Directory, served: &Served, member: &Member) {
    let follower = follow(directory, vec![served.target.clone()], OnDivergence::Stop);
    until_at(&follower, member);
    assert_eq!(follower.followed().divergences(), 0);
    assert_eq!(follower.followed().take_notes(), []);
    follower.end().unwrap_or_else(|error| panic!("{error}"));
}

fn begin(member: &mut Member, series: u32) {
    push(member, &[Command::Begin { series }]);
}

fn open(member: &mut Member, source: u32) {
    let bus = [u8::try_from(source).expect("small"); 16];
    push(member, &[Command::Open(Open { source, series: 1, session: 1, bus, earlier: Some(&[]) })]);
}

/// A command of source 1, which was opened.
fn publish(member: &mut Member, payload: &str) {
    let number = member.machine.source(1).expect("it is open").next;
    let id = CommandId { source: 1, series: 1, number };
    let payload = payload.as_bytes();
    push(member, &[Command::Publish(Publish { id, to_descendants: false, topic: "t", payload })]);
}

/// A member whose first series is this one, with an open source and some commands.
fn member(random: &mut Random, series: u32) -> Member {
    let mut member = Member::new();
    begin(&mut member, series);
    open(&mut member, 1);
    (0..random.between(1, 30)).for_each(|number| publish(&mut member, &format!("{number}")));
    member
}

/// What a group has after a recovery, beside what it had before.
struct Histories {
    old: Member,
    new: Member,
    /// The first event that differs.
    from: u64,
}

/// The new events may have another series, or other commands, or both.
fn histories(random: &mut Random, is_other_series: bool, is_other_tail: bool) -> Histories {
    let before = random.clone();
    let mut old = member(&mut before.clone(), 7);
    let mut new = member(&mut before.clone(), 7);
    random.number();
    let fork = old.machine.next();
    // No message, in either.
    open(&mut old, 60);
    if is_other_series {
        begin(&mut new, 8)
    } else {
        open(&mut new, 60)
    }
    let count = random.between(2, 60);
    let same = random.below(count - 1);
    for number in 0..count {
        publish(&mut old, &format!("after {number}"));
        let is_other = is_other_tail && number >= same;
        publish(&mut new, &format!("{} {number}", if is_other { "other" } else { "after" }));
    }
    let from = if is_other_series { fork } else { fork + 1 + same };
    (0..random.between(1, 20)).for_each(|number| publish(&mut new, &format!("new {number}")));
    Histories { old, new, from }
}

/// Waits until the bus of a follower is at the end of the order.
fn until_at(follower: &Follower, member: &Member) {
    wait::until("the bus is at the end of the order", || {
        assert!(!follower.has_ended(), "the follower has ended");
        follower.followed().chain() == Some(member.machine.chain())
    });
}

/// Returns where a follower says that its bus has diverged, which ends here.
fn until_diverged(follower: Follower, end: u64) -> (u64, u64) {
    wait::until("the divergence is noticed", || {
        let next = follower.followed().chain().map_or(end, |chain| chain.next);
        assert!(next <= end, "it has continued with {next}");
        follower.has_ended()
    });
    let error = follower.end().expect_err("it has diverged");
    let FollowError::Diverged { from, until } = error else { panic!("{error}") };
    (from, until)
}

/// Waits until a follower that works has something to say.
fn until_noted(follower: &Follower) -> Vec<Note> {
    let mut notes = vec![];
    wait::until("it says so", || {
        assert!(!follower.has_ended(), "the follower has ended");
        notes.extend(follower.followed().take_notes());
        !notes.is_empty()
    });
    notes
}

fn diverges(is_other_series: bool, is_other_tail: bool) {
    let (runtime, mut random) = (runtime(), Random::from_environment());
    for _ in 0..3 {
        let directory = Directory::new();
        let mut it = histories(&mut random, is_other_series, is_other_tail);
        let (first, second) =
            (Served::start(&runtime, &it.old.archive), Served::start(&runtime, &it.new.archive));
        let bus = open_bus(&directory);
        let mut subscriber = subscribe(&bus);
        bring(&directory, &first, &it.old);
        drop(first);
        let all = expected(&it.old, 0);
        assert_eq!(take(&mut subscriber, all.len()), all);

        let until = it.old.machine.next();
        let members = || vec![second.target.clone()];
        for round in 0..2 {
            let follower = follow(&directory, members(), OnDivergence::Stop);
            assert_eq!(until_diverged(follower, until), (it.from, until));
            let lost = next(&mut subscriber);
            if round == 0 {
                let Some(Found::Lost(place, end, LostReason::Diverged)) = lost else {
                    panic!("no loss was reported, but {lost:?}")
                };
                assert_eq!((place.number, end), (it.from, until));
            }
            assert_eq!(next(&mut subscriber), None, "something was written after the loss");
        }

        // One that continues says it before anything else, and once.
        let follower = follow(&directory, members(), OnDivergence::Report);
        until_at(&follower, &it.new);
        assert_eq!(follower.followed().divergences(), 1);
        let after = expected(&it.new, until);
        assert_eq!(take(&mut subscriber, after.len()), after);
        follower.end().unwrap_or_else(|error| panic!("{error}"));
        publish(&mut it.new, "later");
        bring(&directory, &second, &it.new);
        let later = expected(&it.new, it.new.machine.next() - 1);
        assert_eq!(take(&mut subscriber, 1), later);
        assert_eq!(next(&mut subscriber), None);
    }
}

#[test]
fn another_series_behind_equal_messages_is_a_divergence() {
    diverges(true, false);
}

#[test]
fn other_messages_in_the_same_series_are_a_divergence() {
    diverges(false, true);
}

#[test]
fn other_messages_in_another_series_are_a_divergence_from_its_begin() {
    diverges(true, true);
}

/// The loss is on the bus before the first event that follows it, also for who sees only now.
#[test]
fn a_divergence_is_reported_before_the_first_new_event() {
    let (runtime, mut random) = (runtime(), Random::from_environment());
    for is_other_series in [false, true] {
        let directory = Directory::new();
        let it = histories(&mut random, is_other_series, true);
        let bus = open_bus(&directory);
        let mut subscriber = subscribe(&bus);
        let served = Served::start(&runtime, &it.old.archive);
        bring(&directory, &served, &it.old);
        let served = Served::start(&runtime, &it.new.archive);
        let follower = follow(&directory, vec![served.target.clone()], OnDivergence::Report);
        until_at(&follower, &it.new);
        let (before, after) = (expected(&it.old, 0), expected(&it.new, it.old.machine.next()));
        let mut found = take(&mut subscriber, before.len() + 1 + after.len());
        let Found::Lost(place, until, LostReason::Diverged) = found.remove(before.len()) else {
            panic!("no loss after the old events")
        };
        assert_eq!((place.number, until), (it.from, it.old.machine.next()));
        assert_eq!(found, [before, after].into_iter().flatten().collect::<Vec<_>>());
        assert_eq!(next(&mut subscriber), None);
    }
}

/// Not a test: a follower that is killed where the environment says.
#[test]
#[ignore = "the child of the tests below"]
fn child() {
    let directory = std::env::var_os(DIRECTORY).expect("started by the test");
    let member = std::env::var(MEMBER).expect("started by the test");
    let follower = start(Path::new(&directory), vec![target(member)], |_| {});
    while !follower.has_ended() {
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("the follower has ended: {:?}", follower.end());
}

/// Runs a follower until it is killed at a step.
fn kill_at(directory: &Directory, served: &Served, step: &str) {
    let mut child = Process::spawn(
        Program::new(std::env::current_exe().expect("the test's program"))
            .args(["--exact", "feed::tests::series::child", "--ignored", "--nocapture"])
            .env(DIRECTORY, directory.path())
            .env(MEMBER, &served.target.address)
            .env("TORONI_CRASH", step)
            .stdout(Stdio::null()),
    )
    .expect("a child");
    let status = child.wait_within(wait::LIMIT).expect("waited");
    let status = status.unwrap_or_else(|| panic!("{step} was not reached"));
    assert!(std::os::unix::process::ExitStatusExt::signal(&status).is_some(), "{step}: {status}");
}

#[test]
fn a_follower_that_is_killed_where_a_series_begins_continues_its_bus() {
    let (runtime, mut random) = (runtime(), Random::from_environment());
    for step in ["feed-series-begins", "feed-series-raised"] {
        for times in 1..=2 {
            let directory = Directory::new();
            let mut member = member(&mut random, 1);
            let served = Served::start(&runtime, &member.archive);
            let bus = open_bus(&directory);
            let mut subscriber = subscribe(&bus);
            bring(&directory, &served, &member);
            for series in 2..5 {
                // Also one whose events are none before it.
                for number in 0..random.below(30) {
                    publish(&mut member, &format!("{series} {number}"));
                }
                begin(&mut member, series);
            }
            publish(&mut member, "last");
            kill_at(&directory, &served, &format!("{step}:{times}"));
            bring(&directory, &served, &member);
            let all = expected(&member, 0);
            assert_eq!(take(&mut subscriber, all.len()), all, "{step}:{times}");
            assert_eq!(next(&mut subscriber), None);
        }
    }
}

#[test]
fn a_series_that_began_in_a_purged_gap_is_no_divergence_whenever_the_follower_is_killed() {
    let (runtime, mut random) = (runtime(), Random::from_environment());
    for step in [None, Some("feed-series-raised:1"), Some("feed-loss-published:1")] {
        let directory = Directory::new();
        let mut member = member(&mut random, 1);
        let served = Served::start(&runtime, &member.archive);
        let bus = open_bus(&directory);
        let mut subscriber = subscribe(&bus);
        bring(&directory, &served, &member);
        let mut all = expected(&member, 0);
        let until = member.machine.next();
        drop(served);
        (0..10).for_each(|_| member.append());
        begin(&mut member, 2);
        (0..150).for_each(|_| member.append());
        forget(&mut member, 20);
        let first = member.archive.first();
        assert!(first > until + 20, "{first} is not far enough from {until}");
        let served = Served::start(&runtime, &member.archive);
        if let Some(step) = step {
            kill_at(&directory, &served, step);
        }
        bring_after_gap(&directory, &served, &member);
        let source = Source::of_feed(FEED).0;
        let from = Origin { source, series: 0, stream: 0, number: until };
        all.push(Found::Lost(from, first, LostReason::Gone));
        all.extend(expected(&member, first));
        assert_eq!(take(&mut subscriber, all.len()), all, "{step:?}");
        assert_eq!(next(&mut subscriber), None);
    }
}

/// The same as [`bring`], but the members may lack what would be compared.
fn bring_after_gap(directory: &Directory, served: &Served, member: &Member) {
    let follower = follow(directory, vec![served.target.clone()], OnDivergence::Stop);
    until_at(&follower, member);
    assert_eq!(follower.followed().divergences(), 0);
    follower.end().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(series_of(directory), Some(member.machine.series()));
}

/// Returns which series a bus follows that no follower has.
fn series_of(directory: &Directory) -> Option<u32> {
    let bus = EventBus::open(&config(directory.path()), FEED, FEED);
    bus.unwrap_or_else(|error| panic!("{error}")).series()
}

/// Writes the events of a member as followers did that noted no series.
fn write_without_series(bus: &Bus, member: &Member) {
    let inlet = bus.inlet().expect("an inlet");
    let source = Source::of_feed(FEED).0;
    for (before, bytes) in &member.all {
        let (command, _) = commands_in(bytes).next().expect("a command");
        let arrival = Origin { source, series: 0, stream: 0, number: before.next };
        let Command::Publish(Publish { id, topic, payload, .. }) = command else {
            let next = Origin { number: before.next + 1, ..arrival };
            inlet.advance(next, Limit::Policy).expect("advanced");
            continue;
        };
        let topic = inlet.topic(topic).expect("a topic");
        let parts = [payload];
        let CommandId { source, series, number } = id;
        let entry = Entry {
            origin: Some(Origin { source, series, stream: 0, number }),
            number: Some(before.next),
            arrival: Some(arrival),
            ..Entry::new(&topic, &parts)
        };
        inlet.publish(&[entry], Limit::Policy).expect("published");
    }
}

#[test]
fn a_bus_that_names_no_series_is_compared_and_takes_that_of_a_member() {
    let (runtime, mut random) = (runtime(), Random::from_environment());
    let directory = Directory::new();
    let mut member = member(&mut random, 7);
    let bus = open_bus(&directory);
    write_without_series(&bus, &member);
    assert_eq!(series_of(&directory), None);
    let served = Served::start(&runtime, &member.archive);
    let follower = follow(&directory, vec![served.target.clone()], OnDivergence::Stop);
    until_at(&follower, &member);
    let notes = follower.followed().take_notes();
    assert!(notes.len() == 1 && notes[0].text.contains("does not say which series"), "{notes:?}");
    follower.end().expect("it works");
    assert_eq!(series_of(&directory), Some(7));
    // It is said once.
    publish(&mut member, "later");
    bring(&directory, &served, &member);

    for is_other_series in [false, true] {
        let directory = Directory::new();
        let it = histories(&mut random, is_other_series, true);
        write_without_series(&open_bus(&directory), &it.old);
        let served = Served::start(&runtime, &it.new.archive);
        let follower = follow(&directory, vec![served.target.clone()], OnDivergence::Stop);
        let end = it.old.machine.next();
        let (from, until) = until_diverged(follower, end);
        assert!(from >= it.from && from < until, "{from}");
        assert_eq!(until, end);
    }
}

#[test]
fn a_member_that_is_behind_or_has_purged_the_events_is_no_evidence() {
    let (runtime, mut random) = (runtime(), Random::from_environment());
    let it = histories(&mut random, false, true);
    let Histories { mut old, new, from } = it;
    let until = old.machine.next();
    let directory = Directory::new();
    let bus = open_bus(&directory);
    let mut subscriber = subscribe(&bus);
    let served = Served::start(&runtime, &old.archive);
    bring(&directory, &served, &old);
    drop(served);
    let before = expected(&old, 0);
    assert_eq!(take(&mut subscriber, before.len()), before);

    // It has the other events, but not yet as many: it may have them all when it is no longer behind.
    let mut behind = Member::new();
    let append = |behind: &mut Member, upto: u64| {
        while behind.machine.next() < upto {
            let at = usize::try_from(behind.machine.next()).expect("small");
            let (command, _) = commands_in(&new.all[at].1).next().expect("a command");
            push(behind, &[command]);
        }
    };
    append(&mut behind, until - 1);
    let served = Served::start(&runtime, &behind.archive);
    let follower = follow(&directory, vec![served.target.clone()], OnDivergence::Stop);
    let notes = until_noted(&follower);
    let wanted =
        format!("the bus has the events before {until}. All members that answer have fewer");
    assert!(notes[0].text.starts_with(&wanted), "{notes:?}");
    append(&mut behind, new.machine.next());
    assert_eq!(until_diverged(follower, until), (from, until));
    assert!(matches!(next(&mut subscriber), Some(Found::Lost(..))));
    drop((served, behind));

    // It has the right events, but no longer those that are on the bus.
    (0..150).for_each(|_| old.append());
    let first = old.archive.first();
    forget(&mut old, 20);
    assert!(old.archive.first() > until && first == 0);
    let purged = Served::start(&runtime, &old.archive);
    let whole = Served::start(&runtime, &new.archive);
    let members = vec![purged.target.clone(), whole.target.clone()];
    let follower = follow(&directory, members, OnDivergence::Stop);
    let found = until_diverged(follower, until);
    assert_eq!(found, (from, until), "the other member has them");
    // So may an archive.
    let follower = follow_with(&directory, &[&purged], &[&whole]);
    assert_eq!(until_diverged(follower, until), (from, until), "an archive has them");
    // If it is the only one, nothing is known.
    let follower = follow(&directory, vec![purged.target.clone()], OnDivergence::Stop);
    until_at(&follower, &old);
    let notes = follower.followed().take_notes();
    assert!(notes.len() == 1 && notes[0].text.contains("because no member has"), "{notes:?}");
}

/// For the time that no subscriber can be made, the events continue. They are compared as soon as one can.
#[test]
fn a_bus_without_a_free_slot_is_compared_later() {
    let (runtime, mut random) = (runtime(), Random::from_environment());
    let Histories { old, new, from } = histories(&mut random, false, true);
    let directory = Directory::new();
    let bus = config(directory.path()).max_subscribers(1).open(FEED).expect("opened");
    let served = Served::start(&runtime, &old.archive);
    bring(&directory, &served, &old);
    drop(served);
    let only = bus.subscribe("**").expect("subscribed");
    let served = Served::start(&runtime, &new.archive);
    let follower = follow(&directory, vec![served.target.clone()], OnDivergence::Stop);
    let notes = until_noted(&follower);
    assert!(notes[0].text.contains("are not yet compared with the order"), "{notes:?}");
    until_at(&follower, &new);
    assert_eq!(follower.followed().take_notes(), [], "it says so once");
    drop(only);
    assert_eq!(until_diverged(follower, new.machine.next()), (from, new.machine.next()));
}

/// The first member that is asked may not be the one that has most.
#[test]
fn a_host_that_wants_no_history_asks_all_members_what_is_next() {
    let (runtime, mut random) = (runtime(), Random::from_environment());
    let Histories { old, new, .. } = histories(&mut random, true, true);
    let (stale, right) =
        (Served::start(&runtime, &old.archive), Served::start(&runtime, &new.archive));
    for members in [[&stale, &right], [&right, &stale]] {
        let directory = Directory::new();
        let live = |options: &mut FollowerOptions| options.start = FeedStart::Live;
        let follower = start(directory.path(), targets(&members), live);
        until_at(&follower, &new);
        assert_eq!(follower.followed().asked(), 0);
        follower.end().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(series_of(&directory), Some(8));
    }
}

#[test]
fn members_in_an_earlier_series_are_passed_over_and_named() {
    let (runtime, mut random) = (runtime(), Random::from_environment());
    let directory = Directory::new();
    let mut it = histories(&mut random, true, true);
    let bus = open_bus(&directory);
    let mut subscriber = subscribe(&bus);
    let served = Served::start(&runtime, &it.new.archive);
    bring(&directory, &served, &it.new);
    drop(served);
    // Also if it has more events than the bus.
    (0..60).for_each(|_| publish(&mut it.old, "old"));
    let stale = Served::start(&runtime, &it.old.archive);
    let follower = follow(&directory, vec![stale.target.clone()], OnDivergence::Stop);
    let notes = until_noted(&follower);
    assert!(notes[0].text.starts_with("the bus follows series 8 of the feed"), "{notes:?}");
    follower.end().expect("it waits");
    let all = expected(&it.new, 0);
    assert_eq!(take(&mut subscriber, all.len()), all);
    assert_eq!(next(&mut subscriber), None);
    // A member that has gone on is found behind it.
    let right = Served::start(&runtime, &it.new.archive);
    publish(&mut it.new, "more");
    let members = vec![stale.target.clone(), right.target.clone()];
    let follower = follow(&directory, members, OnDivergence::Stop);
    until_at(&follower, &it.new);
    assert_eq!(follower.followed().divergences(), 0);
}

#[test]
fn a_bus_in_a_series_that_the_order_never_had_has_diverged() {
    let (runtime, mut random) = (runtime(), Random::from_environment());
    let directory = Directory::new();
    // Both have begun another series after the same events, which have equal messages.
    let before = random.clone();
    let mut members = [member(&mut before.clone(), 7), member(&mut before.clone(), 7)];
    random.number();
    for (member, series) in members.iter_mut().zip([8, 9]) {
        begin(member, series);
        (0..20).for_each(|number| publish(member, &format!("{number}")));
    }
    let [one, other] = &members;
    let bus = open_bus(&directory);
    let mut subscriber = subscribe(&bus);
    let served = Served::start(&runtime, &one.archive);
    bring(&directory, &served, one);
    let all = expected(one, 0);
    assert_eq!(take(&mut subscriber, all.len()), all);
    let served = Served::start(&runtime, &other.archive);
    let follower = follow(&directory, vec![served.target.clone()], OnDivergence::Report);
    until_at(&follower, other);
    assert_eq!(follower.followed().divergences(), 1);
    assert!(matches!(next(&mut subscriber), Some(Found::Lost(_, _, LostReason::Diverged))));
    assert_eq!(next(&mut subscriber), None);
}

#[test]
fn a_bus_that_begins_late_and_one_that_is_filled_again_name_their_series() {
    let (runtime, mut random) = (runtime(), Random::from_environment());
    let mut member = member(&mut random, 7);
    let middle = member.machine.next();
    begin(&mut member, 8);
    publish(&mut member, "8");
    let served = Served::start(&runtime, &member.archive);
    let late = Directory::new();
    let live = |options: &mut FollowerOptions| options.start = FeedStart::Live;
    let follower = start(late.path(), vec![served.target.clone()], live);
    until_at(&follower, &member);
    follower.end().expect("it works");
    assert_eq!(series_of(&late), Some(8));
    // The event itself may begin the next one.
    for from in [0, middle, middle + 1, member.machine.next()] {
        let again = Directory::new();
        let rewound = rewind_with(&again, FEED, &[&served], &[], Some(from));
        rewound.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(series_of(&again), Some(8), "from {from}");
        // A follower continues it, and has nothing to say.
        bring(&again, &served, &member);
    }
}

/// A member that has the first events of another one.
fn copy_of(member: &Member, until: u64) -> Member {
    let mut copy = Member::new();
    let until = usize::try_from(until).expect("a small number");
    for (_, bytes) in &member.all[..until] {
        let (command, _) = commands_in(bytes).next().expect("a command");
        push(&mut copy, &[command]);
    }
    copy
}

fn rewind_with(
    directory: &Directory,
    name: &str,
    members: &[&Served],
    archives: &[&Served],
    from: Option<u64>,
) -> Result<Rewound, FollowError> {
    rewind(RewindOptions {
        bus: config(directory.path()).capacity(1 << 20),
        name: name.to_owned(),
        feed: FEED.to_owned(),
        members: targets(members),
        archives: targets(archives),
        from,
    })
}

/// An archive that stopped at a recovery has events that are not of the order. It brings them neither to a bus that is behind nor to a
/// new one.
#[test]
fn events_that_only_an_archive_has_are_not_brought() {
    let (runtime, mut random) = (runtime(), Random::from_environment());
    for is_new in [false, true] {
        let Histories { mut old, mut new, from } = histories(&mut random, true, true);
        // More than the member's log keeps, and more on the archive.
        (0..150).for_each(|_| new.append());
        forget(&mut new, 20);
        while old.machine.next() < new.machine.next() + 20 {
            publish(&mut old, "lost");
        }
        let (first, until) = (new.archive.first(), new.machine.next());
        assert!(first > from + 100, "{first} is not far enough from {from}");
        let member = &[&Served::start(&runtime, &new.archive)];
        let stopped = &[&Served::start(&runtime, &old.archive)];

        let source = Source::of_feed(FEED).0;
        let gap = Origin { source, series: 0, stream: 0, number: from };
        let mut all = expected(&old, 0);
        all.retain(|found| !matches!(found, Found::Event(number, ..) if *number >= from));
        all.push(Found::Lost(gap, first, LostReason::Gone));
        all.extend(expected(&new, first));

        let directory = Directory::new();
        let bus = open_bus(&directory);
        if !is_new {
            let early = copy_of(&old, random.between(2, from));
            bring(&directory, &Served::start(&runtime, &early.archive), &early);
        }
        let mut subscriber = subscribe(&bus);
        let follower = follow_with(&directory, member, stopped);
        assert_eq!(take(&mut subscriber, all.len()), all, "is_new = {is_new}");
        until_at(&follower, &new);
        assert_eq!(follower.followed().divergences(), 0);
        follower.end().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(next(&mut subscriber), None);

        let rewound = rewind_with(&directory, "again", member, stopped, None);
        let rewound = rewound.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(rewound, Rewound { from: 0, until, lost: first - from });
        let again = config(directory.path()).open("again").expect("opened");
        assert_eq!(take(&mut subscribe(&again), all.len()), all);
        let lost = rewind_with(&directory, "lost", member, stopped, Some(from + 1));
        assert_eq!(
            lost.expect_err("only the archive has it").to_string(),
            format!("there is no event {}: the members have {first} to {}", from + 1, until - 1)
        );
    }
}

/// The one that is furthest vouches, in whatever order the members are. Without one, a follower waits.
#[test]
fn neither_members_that_are_behind_nor_silent_ones_vouch_for_an_archive() {
    let (runtime, mut random) = (runtime(), Random::from_environment());
    let Histories { old, mut new, from } = histories(&mut random, true, true);
    // A member that was added, and has not yet come to the recovery.
    let behind = copy_of(&old, from);
    (0..150).for_each(|_| new.append());
    forget(&mut new, 20);
    let serve = |member: &Member| Served::start(&runtime, &member.archive);
    let (right, behind, stopped) = (serve(&new), serve(&behind), serve(&old));
    for members in [[&behind, &right], [&right, &behind]] {
        let directory = Directory::new();
        let follower = follow_with(&directory, &members, &[&stopped]);
        until_at(&follower, &new);
        assert_eq!(follower.followed().divergences(), 0);
        follower.end().unwrap_or_else(|error| panic!("{error}"));
    }

    let mut asked = in_turn(targets(&[&right]), targets(&[&stopped])).expect("a runtime");
    right.stop();
    let found = [Alone::All, Alone::Nothing]
        .map(|alone| series_of_event(&mut asked, from, (None, 0), alone));
    assert_eq!(found, [Some(7), None]);
}

/// An archive may have nothing but events that are not of the order.
#[test]
fn a_rewind_begins_with_the_first_event_that_is_of_the_order() {
    let (runtime, mut random) = (runtime(), Random::from_environment());
    let Histories { mut old, mut new, from } = histories(&mut random, true, true);
    (0..300).for_each(|_| old.append());
    forget(&mut old, 100);
    while new.archive.first() <= old.archive.first() {
        (0..100).for_each(|_| new.append());
        forget(&mut new, 20);
    }
    let (first, until) = (new.archive.first(), new.machine.next());
    assert!(old.archive.first() > from);
    let member = &[&Served::start(&runtime, &new.archive)];
    let stopped = &[&Served::start(&runtime, &old.archive)];
    let rewound = rewind_with(&Directory::new(), "again", member, stopped, None);
    let rewound = rewound.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(rewound, Rewound { from: first, until, lost: 0 });
}

/// An archive with the whole order is believed in each of its series, and also if no member answers.
#[test]
fn events_of_an_archive_that_continue_the_order_are_brought() {
    let (runtime, mut random) = (runtime(), Random::from_environment());
    let Histories { mut new, .. } = histories(&mut random, true, true);
    (0..150).for_each(|_| new.append());
    begin(&mut new, 9);
    (0..150).for_each(|_| new.append());
    let (all, until) = (expected(&new, 0), new.machine.next());
    let archive = copy_of(&new, until);
    assert_eq!(archive.machine.chain(), new.machine.chain());
    forget(&mut new, 20);
    let member = Served::start(&runtime, &new.archive);
    let archive = &[&Served::start(&runtime, &archive.archive)];

    let directory = Directory::new();
    let bus = open_bus(&directory);
    let follower = follow_with(&directory, &[&member], archive);
    assert_eq!(take(&mut subscribe(&bus), all.len()), all);
    until_at(&follower, &new);
    let followed = follower.followed();
    assert_eq!((followed.lost(), followed.divergences()), (0, 0));
    follower.end().unwrap_or_else(|error| panic!("{error}"));

    let silent = Served::start(&runtime, &new.archive);
    silent.stop();
    let rewound = rewind_with(&directory, "again", &[&silent], archive, None);
    let rewound = rewound.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(rewound, Rewound { from: 0, until, lost: 0 });
}

/// What a member says of each series, after each of its starts.
#[test]
fn a_member_says_where_the_order_departs_from_a_series() {
    let runtime = runtime();
    let mut member = Member::new();
    let mut begun = vec![];
    let mut snapshot = (member.machine.clone(), None);
    for round in 0..30_u32 {
        if round % 3 == 0 {
            begun.push((round + 5, member.machine.next()));
            begin(&mut member, round + 5);
        }
        member.append();
        match member.random.below(5) {
            0 => snapshot = (member.machine.clone(), member.last),
            1 => member.restart(snapshot.clone()),
            _ => {}
        }
        for series in 0..round + 7 {
            let expected = match begun.iter().position(|(later, _)| *later > series) {
                None => Departs::Nowhere,
                Some(at) => {
                    let is_listed = series == 0 || at > 0 && begun[at - 1].0 == series;
                    let (series, begun) = begun[at];
                    if is_listed {
                        Departs::At { series, begun }
                    } else {
                        Departs::Foreign { series, begun }
                    }
                }
            };
            let from = member.random.below(member.machine.next() + 2);
            let (wait, series) = (Duration::ZERO, Some(series));
            let fetch = Fetch { from, max_bytes: 100, wait, series };
            let fetched = runtime.block_on(member.archive.fetch(fetch)).expect("readable");
            assert_eq!(fetched.departs, expected, "{series:?}");
        }
    }
}

/// Compares a bus with a member, in as many answers as it takes.
fn compare(runtime: &Runtime, recheck: &mut Recheck, member: &Member, bytes: u32) -> Compared {
    loop {
        let fetched = member.fetch(runtime, recheck.from(0), bytes);
        match recheck.compare(0, &fetched) {
            Compared::More => {}
            compared => return compared,
        }
    }
}

#[test]
fn each_difference_in_the_last_messages_is_found_at_its_number() {
    let (runtime, mut random) = (runtime(), Random::from_environment());
    for round in 0..40 {
        let directory = Directory::new();
        let mut member = Member::new();
        member.random = Random::new(random.number());
        let count = random.between(2, 700);
        while member.machine.next() < count {
            member.append();
        }
        let commands: Vec<_> = member.all.iter().map(|(_, bytes)| bytes.clone()).collect();
        let all: Vec<_> =
            commands.iter().map(|bytes| commands_in(bytes).next().expect("a command").0).collect();
        let is_message = |at: &usize| matches!(all[*at], Command::Publish(_));
        let messages: Vec<_> = (0..all.len()).filter(is_message).collect();
        if messages.is_empty() {
            continue;
        }
        // One is another one on the bus.
        let other = *random.pick(&messages);
        let mut on_bus = all.clone();
        let is_other = random.below(6) > 0;
        if let Command::Publish(publish) = &mut on_bus[other]
            && is_other
        {
            match random.below(5) {
                0 => publish.topic = "other",
                1 => publish.payload = b"other",
                2 => publish.to_descendants = !publish.to_descendants,
                3 => publish.id.number += 1 << 40,
                _ => on_bus[other] = Command::Begin { series: 1 },
            }
        }
        open_bus(&directory);
        let mut bus = EventBus::open(&config(directory.path()), FEED, FEED).expect("opened");
        let mut bytes = vec![];
        on_bus.iter().for_each(|command| command.encode(&mut bytes).expect("short"));
        let events = crate::rpc::Events::check(Default::default(), bytes).expect("commands");
        let mut chain = events.before();
        assert!(bus.write(&events, &mut chain, || false).expect("written"));
        let is_message = |at: &usize| matches!(on_bus[*at], Command::Publish(_));
        let messages: Vec<_> = (0..on_bus.len()).filter(is_message).collect();
        let end = bus.end().unwrap_or_else(|error| panic!("{error}"));
        let tail = bus.tail(end).expect("readable");
        let Some(mut recheck) = tail else {
            assert_eq!(messages, Vec::<usize>::new());
            continue;
        };

        let bytes = u32::try_from(random.between(1, 20_000)).expect("small");
        let compared = compare(&runtime, &mut recheck, &member, bytes);
        let first = messages[messages.len() - messages.len().min(256)];
        assert_eq!(recheck.numbers(), first as u64..on_bus.len() as u64, "round {round}");
        let is_found = is_other && other >= first;
        let expected = if is_found { Compared::Differs(other as u64) } else { Compared::Equal };
        assert_eq!(compared, expected, "round {round}");
    }
}

/// The machine as version 1 of its snapshot kept it: of the series of the feed, it has only the last.
fn with_the_last_series(machine: &Machine) -> Machine {
    let chain = machine.chain();
    let mut bytes = b"TNSEQST\x01".to_vec();
    let count = u32::try_from(machine.sources_from(0).count()).expect("few");
    [chain.series, count, 0].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    bytes.extend(chain.begun.to_le_bytes());
    bytes.extend(chain.next.to_le_bytes());
    bytes.extend(chain.digest.as_bytes());
    for (number, source) in machine.sources_from(0) {
        let words = [number, source.session, source.series, 0];
        words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes.extend(source.next.to_le_bytes());
        bytes.extend(source.bus);
    }
    bytes.extend(blake3::hash(&bytes).as_bytes());
    Machine::from_snapshot(&bytes).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_series_that_members_have_forgotten_is_no_divergence_but_its_last_events_are_compared() {
    let (runtime, mut random) = (runtime(), Random::from_environment());
    for is_other_tail in [false, true] {
        let directory = Directory::new();
        let Histories { old, mut new, from } = histories(&mut random, false, is_other_tail);
        let bus = open_bus(&directory);
        let mut subscriber = subscribe(&bus);
        let served = Served::start(&runtime, &old.archive);
        bring(&directory, &served, &old);
        for series in [9, 10] {
            begin(&mut new, series);
            publish(&mut new, "later");
        }
        let (machine, last) = (with_the_last_series(&new.machine), new.last);
        new.restart((machine, last));
        let served = Served::start(&runtime, &new.archive);
        let follower = follow(&directory, vec![served.target.clone()], OnDivergence::Stop);
        let followed = follower.followed();
        if is_other_tail {
            let until = old.machine.next();
            assert_eq!(until_diverged(follower, until), (from, until));
        } else {
            until_at(&follower, &new);
            assert_eq!(followed.divergences(), 0);
            let all = expected(&new, 0);
            assert_eq!(take(&mut subscriber, all.len()), all);
            follower.end().expect("it works");
            assert_eq!(series_of(&directory), Some(10));
        }
        let notes = followed.take_notes();
        assert!(notes.len() == 1 && notes[0].text.contains("know series 7"), "{notes:?}");
    }
}
