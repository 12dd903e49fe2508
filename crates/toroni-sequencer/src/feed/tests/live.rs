//! Events that come to a host without being asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use toroni_testkit::{Directory, wait};

use super::super::*;
use super::follow::{FEED, config, expected, subscribe, take, targets, until_at};
use super::member::{Member, Served, runtime};
use crate::batch::Command;
use crate::feed::distribute;
use crate::machine::Chain;
use crate::rpc::{Answer, Answering, Caller, Events, Request, Serve};

const LONG: Duration = Duration::from_secs(60);

fn follow(directory: &Directory, members: &[&Served], live: &Live) -> Follower {
    let options = FollowerOptions {
        bus: config(directory.path()),
        feed: FEED.to_owned(),
        members: targets(members),
        archives: vec![],
        start: FeedStart::Oldest,
        on_divergence: OnDivergence::Stop,
        live: Some(live.clone()),
    };
    Follower::start(options).unwrap_or_else(|error| panic!("{error}"))
}

/// Events of a member from a number on, up to another one.
fn run(member: &Member, from: u64, until: u64) -> Events {
    let at = |number: u64| usize::try_from(number).expect("a small number");
    let before = member.all.get(at(from)).map_or(member.machine.chain(), |(before, _)| *before);
    let bytes: Vec<u8> =
        member.all[at(from)..at(until)].iter().flat_map(|(_, bytes)| bytes.clone()).collect();
    Events::check(before, bytes).expect("commands")
}

#[test]
fn a_host_that_is_live_needs_no_member() {
    let (runtime, directory) = (runtime(), Directory::new());
    let mut member = Member::new();
    member.append();
    let served = Served::start(&runtime, &member.archive);
    let bus = config(directory.path()).open(FEED).expect("opened");
    let mut subscriber = subscribe(&bus);
    let live = Live::new();
    let follower = follow(&directory, &[&served], &live);
    until_at(&follower, &member);
    let asked = follower.followed().asked();
    assert_eq!(asked, member.machine.next());
    // No member answers any more, and those that were connected have ended.
    drop(served);
    drop(runtime);
    for _ in 0..20 {
        let from = member.machine.next();
        member.append();
        live.push(run(&member, from, member.machine.next()));
    }
    until_at(&follower, &member);
    let all = expected(&member, 0);
    assert_eq!(take(&mut subscriber, all.len()), all);
    let followed = follower.followed();
    assert_eq!((followed.asked(), followed.came()), (asked, member.machine.next() - asked));
    assert!(followed.is_live());
}

/// An old run again and again, as who has the key could send it, gives a follower no reason to wait.
#[test]
fn events_of_before_keep_no_follower_from_asking() {
    let (runtime, directory) = (runtime(), Directory::new());
    let mut member = Member::new();
    (0..4).for_each(|_| member.append());
    let served = Served::start(&runtime, &member.archive);
    let live = Live::new();
    let follower = follow(&directory, &[&served], &live);
    until_at(&follower, &member);
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let again = [run(&member, 0, 3), run(&member, 1, member.machine.next())];
        let (live, ends) = (&live, &ends);
        scope.spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                again.iter().for_each(|events| live.push(events.clone()));
                std::thread::yield_now();
            }
        });
        wait::until("it takes itself for live", || follower.followed().is_live());
        member.append();
        until_at(&follower, &member);
        ends.store(true, Ordering::Relaxed);
    });
}

/// Answers after a time that is longer than a live follower waits for at first.
struct Slow(Archive);

impl Serve for Slow {
    fn serve(&self, _: Caller, request: Request) -> Answering {
        let archive = self.0.clone();
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(700)).await;
            archive.answer(request).await.unwrap_or(Answer::Done)
        })
    }
}

#[test]
fn a_member_that_answers_slowly_is_asked_by_a_live_follower_all_the_same() {
    let (runtime, directory) = (runtime(), Directory::new());
    let mut member = Member::new();
    (0..4).for_each(|_| member.append());
    let served = Served::with(&runtime, Arc::new(Slow(member.archive.clone())));
    let live = Live::new();
    let follower = follow(&directory, &[&served], &live);
    until_at(&follower, &member);
    let from = member.machine.next();
    member.append();
    live.push(run(&member, from, member.machine.next()));
    until_at(&follower, &member);
    wait::until("it is live", || follower.followed().is_live());
    // This one does not come.
    member.append();
    until_at(&follower, &member);
}

#[test]
fn what_is_lost_doubled_late_or_overlaps_makes_no_difference() {
    let (runtime, directory) = (runtime(), Directory::new());
    let mut member = Member::new();
    let served = Served::start(&runtime, &member.archive);
    let bus = config(directory.path()).open(FEED).expect("opened");
    let mut subscriber = subscribe(&bus);
    let live = Live::new();
    let follower = follow(&directory, &[&served], &live);
    let mut found = vec![];
    for round in 0..300 {
        let begin = member.machine.next();
        member.append();
        let end = member.machine.next();
        // A run begins in the midst of another one, or is one of long ago.
        let from = begin - member.random.below(begin.min(5) + 1);
        let until = from + member.random.below(end - from + 1);
        match member.random.below(6) {
            0 => {}
            1 => live.push(run(&member, from, until)),
            2 => {
                live.push(run(&member, begin, end));
                live.push(run(&member, begin, end));
            }
            3 => {
                let middle = begin + (end - begin) / 2;
                live.push(run(&member, middle, end));
                live.push(run(&member, begin, middle));
            }
            _ => live.push(run(&member, begin, end)),
        }
        if round % 20 == 19 {
            let all = expected(&member, 0).len();
            found.extend(take(&mut subscriber, all - found.len()));
        }
    }
    until_at(&follower, &member);
    assert_eq!(found, expected(&member, 0));
    let followed = follower.followed();
    assert_eq!(followed.came() + followed.asked(), member.machine.next());
    assert!(followed.came() > 0 && followed.asked() > 0, "{followed:?}");
}

#[test]
fn events_that_do_not_follow_on_those_of_the_bus_are_left_to_members() {
    let (runtime, directory) = (runtime(), Directory::new());
    let mut member = Member::new();
    (0..4).for_each(|_| member.append());
    let served = Served::start(&runtime, &member.archive);
    let bus = config(directory.path()).open(FEED).expect("opened");
    let mut subscriber = subscribe(&bus);
    let live = Live::new();
    let follower = follow(&directory, &[&served], &live);
    until_at(&follower, &member);
    let own = member.machine.chain();
    let mut bytes = vec![];
    Command::Begin { series: 77 }.encode(&mut bytes).expect("short");
    let mut other = own;
    other.append(Command::Begin { series: 77 }, &bytes);
    for before in [
        Chain { digest: other.digest, ..own },
        Chain { series: own.series + 1, ..own },
        // One that never comes.
        Chain { next: u64::MAX >> 1, ..own },
    ] {
        live.push(Events::check(before, bytes.clone()).expect("a command"));
        member.append();
        until_at(&follower, &member);
    }
    let all = expected(&member, 0);
    assert_eq!(take(&mut subscriber, all.len()), all);
    // It goes on with right ones.
    let from = member.machine.next();
    let before = follower.followed().came();
    member.append();
    live.push(run(&member, from, member.machine.next()));
    until_at(&follower, &member);
    let begun = Instant::now();
    while follower.followed().came() == before {
        let from = member.machine.next();
        member.append();
        live.push(run(&member, from, member.machine.next()));
        until_at(&follower, &member);
        assert!(begun.elapsed() < wait::LIMIT, "live events are never taken again");
    }
    follower.end().expect("no divergence");
}

/// Pushes runs of ten events until some are dropped. Returns how many were pushed.
fn fill(live: &Live, member: &Member) -> u64 {
    let mut pushed = 0;
    while live.dropped() == 0 {
        live.push(run(member, pushed % 90, pushed % 90 + 10));
        pushed += 10;
        assert!(pushed < 10_000, "it takes everything");
    }
    pushed
}

fn count(live: &Live) -> u64 {
    std::iter::from_fn(|| live.pop(Duration::ZERO)).map(|events| events.count()).sum()
}

#[test]
fn a_queue_without_room_drops_and_counts() {
    let mut member = Member::new();
    while member.machine.next() < 100 {
        member.append();
    }
    let live = Live::new();
    let pushed = fill(&live, &member);
    assert_eq!(live.dropped(), 10, "those that come are dropped");
    assert_eq!(count(&live), pushed - 10);

    let woken = Arc::new(AtomicUsize::new(0));
    let live = Live::to_send({
        let woken = Arc::clone(&woken);
        move || {
            woken.fetch_add(1, Ordering::Relaxed);
        }
    });
    let pushed = fill(&live, &member);
    assert_eq!(live.dropped(), pushed - 10, "those that wait are dropped");
    assert_eq!(woken.load(Ordering::Relaxed), 2, "one wake-up is enough until it is empty");
    assert_eq!(count(&live), 10);
    live.push(run(&member, 0, 1));
    assert_eq!(woken.load(Ordering::Relaxed), 3);
    assert_eq!(live.pop(LONG), Some(run(&member, 0, 1)));
}

/// Appends, and returns what that brings to a queue, in events.
fn brought(runtime: &Runtime, live: &Live, until: u64) -> Vec<u64> {
    let _inside = runtime.enter();
    let mut numbers = vec![];
    while numbers.last().is_none_or(|last| last + 1 < until) {
        let Some(events) = live.pop(LONG) else { panic!("{numbers:?} of {until}") };
        numbers.extend(events.before().next..events.end());
    }
    numbers
}

#[test]
fn a_leader_sends_also_what_its_predecessor_may_not_have_sent() {
    let runtime = runtime();
    let mut member = Member::new();
    member.append();
    let begin = member.machine.next();
    let (local, to_send) = (Live::new(), Live::new());
    let leads = Arc::new(AtomicBool::new(false));
    let looked = Arc::new(AtomicUsize::new(0));
    let look = {
        let (leads, looked) = (Arc::clone(&leads), Arc::clone(&looked));
        move || {
            looked.fetch_add(1, Ordering::SeqCst);
            leads.load(Ordering::SeqCst)
        }
    };
    let archive = member.archive.clone();
    runtime.spawn(distribute(archive, look, Some(local.clone()), Some(to_send.clone())));
    wait::until("it looks", || looked.load(Ordering::SeqCst) > 0);
    (0..3).for_each(|_| member.append());
    let learnt = member.machine.next();
    assert_eq!(brought(&runtime, &local, learnt), (begin..learnt).collect::<Vec<_>>());
    assert_eq!(to_send.pop(Duration::ZERO), None, "it does not lead");
    // Without another event.
    leads.store(true, Ordering::SeqCst);
    let numbers = brought(&runtime, &to_send, learnt);
    assert!(numbers.is_sorted() && numbers.first() >= Some(&begin), "{numbers:?}");
    (0..3).for_each(|_| member.append());
    let led = member.machine.next();
    assert_eq!(brought(&runtime, &to_send, led), (learnt..led).collect::<Vec<_>>());
    leads.store(false, Ordering::SeqCst);
    let before = looked.load(Ordering::SeqCst);
    wait::until("it looks again", || looked.load(Ordering::SeqCst) > before + 1);
    member.append();
    let end = member.machine.next();
    assert_eq!(brought(&runtime, &local, end), (learnt..end).collect::<Vec<_>>());
    assert_eq!(to_send.pop(Duration::ZERO), None, "it leads no more");
}
