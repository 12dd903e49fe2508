//! Archives on hosts that are no members.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use toroni_testkit::{Directory, wait};

use super::super::*;
use super::follow::{FEED, config, expected, subscribe, take, targets, until_at};
use super::member::{Member, OPTIONS, Served, runtime};
use crate::batch::{Builder, Command};
use crate::entry::Place;
use crate::log::{Log, LogError};
use crate::rpc::{Answer, Answering, Caller, Link, Request, Role, Serve, Target};

const NAME: [u8; 16] = [9; 16];
const LARGE: u64 = 1 << 30;

struct Archived {
    keeper: Keeper,
    target: Target,
}

impl Archived {
    fn start(
        runtime: &Runtime,
        directory: &Directory,
        members: &[&Served],
        capacity_bytes: u64,
    ) -> Result<Self, KeeperError> {
        let _inside = runtime.enter();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let keeper = Keeper::start(KeeperOptions {
            feed: NAME,
            directory: directory.join("archive"),
            listener,
            keys: None,
            members: targets(members),
            capacity_bytes,
        })?;
        let target = Target {
            address,
            feed: NAME,
            keys: None,
            role: Role::Follower { source: None },
            log: None,
            bind: None,
        };
        Ok(Self { keeper, target })
    }

    fn until_at(&self, member: &Member) {
        let there = || {
            assert_eq!(self.keeper.problem(), None);
            self.keeper.kept().now == member.machine.chain()
        };
        wait::until("the archive is at the end of the order", there);
    }

    fn end(self, runtime: &Runtime) {
        runtime.block_on(self.keeper.close()).expect("closed");
    }
}

fn start(runtime: &Runtime, directory: &Directory, members: &[&Served]) -> Archived {
    let mut archived = None;
    // The tasks of one that was dropped may still have its log.
    wait::until("the archive starts", || {
        match Archived::start(runtime, directory, members, LARGE) {
            Ok(started) => archived = Some(started),
            Err(KeeperError::Log(LogError::InUse(_))) => {}
            Err(error) => panic!("{error}"),
        }
        archived.is_some()
    });
    archived.expect("started")
}

/// Lets a member forget all but the last entries.
pub(super) fn forget(member: &mut Member, keep: u64) {
    let snapshot = (member.machine.clone(), member.last);
    let index = member.last.expect("entries").index - keep;
    let entry = member.log.read(index..index + 1, 0).expect("readable");
    member.log.purge(entry[0].place).expect("purged");
    // Nothing is in memory any more.
    member.restart(snapshot);
}

#[test]
fn an_archive_has_what_members_no_longer_have_whenever_it_is_restarted() {
    let (runtime, directory) = (runtime(), Directory::new());
    let mut member = Member::new();
    let served = Served::start(&runtime, &member.archive);
    for round in 0..6_u32 {
        (0..25).for_each(|_| member.append());
        if round % 2 == 0 {
            let mut builder = Builder::new();
            builder.push(&Command::Begin { series: round + 1 }).expect("short");
            member.append_batch(builder);
        }
        let archived = start(&runtime, &directory, &[&served]);
        (0..25).for_each(|_| member.append());
        archived.until_at(&member);
        assert_eq!(archived.keeper.kept().first, 0);
        if round % 3 == 0 {
            // As after a kill.
            drop(archived);
        } else {
            archived.end(&runtime);
        }
    }
    drop(served);
    forget(&mut member, 20);
    let served = Served::start(&runtime, &member.archive);
    let first = member.archive.first();
    assert!(first > 0);

    // A follower gets everything, from the archive first, and then from the member.
    let archived = start(&runtime, &directory, &[&served]);
    let bus = config(directory.path()).open(FEED).expect("opened");
    let mut subscriber = subscribe(&bus);
    let follower = Follower::start(FollowerOptions {
        bus: config(directory.path()),
        feed: FEED.to_owned(),
        members: targets(&[&served]),
        archives: vec![archived.target.clone()],
        start: FeedStart::Oldest,
        on_divergence: OnDivergence::Stop,
        live: None,
    });
    let follower = follower.unwrap_or_else(|error| panic!("{error}"));
    let all = expected(&member, 0);
    assert_eq!(take(&mut subscriber, all.len()), all);
    (0..10).for_each(|_| member.append());
    archived.until_at(&member);
    let more = expected(&member, 0);
    assert_eq!(take(&mut subscriber, more.len() - all.len()), more[all.len()..]);
    until_at(&follower, &member);
    assert_eq!(follower.followed().lost(), 0);

    let rewound = rewind(RewindOptions {
        bus: config(directory.path()).capacity(4 << 20),
        name: "again".to_owned(),
        feed: FEED.to_owned(),
        members: targets(&[&served]),
        archives: vec![archived.target.clone()],
        from: None,
    });
    let rewound = rewound.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((rewound.from, rewound.until, rewound.lost), (0, member.machine.next(), 0));
}

#[test]
fn a_new_archive_begins_with_the_first_event_that_a_member_has() {
    let (runtime, directory) = (runtime(), Directory::new());
    let mut member = Member::new();
    (0..150).for_each(|_| member.append());
    forget(&mut member, 60);
    let served = Served::start(&runtime, &member.archive);
    let first = member.archive.first();
    assert!(first > 0);
    for _ in 0..3 {
        let archived = start(&runtime, &directory, &[&served]);
        (0..20).for_each(|_| member.append());
        archived.until_at(&member);
        assert_eq!(archived.keeper.kept().first, first);
        archived.end(&runtime);
    }
}

#[test]
fn an_archive_knows_the_series_of_the_feed_whenever_it_is_restarted() {
    let (runtime, directory) = (runtime(), Directory::new());
    let mut member = Member::new();
    let served = Served::start(&runtime, &member.archive);
    for round in 0..4_u32 {
        let archived = start(&runtime, &directory, &[&served]);
        let mut builder = Builder::new();
        builder.push(&Command::Begin { series: 2 * round + 2 }).expect("short");
        member.append_batch(builder);
        (0..20).for_each(|_| member.append());
        archived.until_at(&member);
        let link = {
            let _inside = runtime.enter();
            Link::new(archived.target.clone())
        };
        for series in (0..12).map(Some).chain([None]) {
            // From memory, and from the log.
            for from in [0, member.machine.next()] {
                let fetch = crate::rpc::Fetch { from, max_bytes: 1, wait: Duration::ZERO, series };
                let answer = runtime.block_on(link.call(&Request::Fetch(fetch)));
                let Ok(Answer::Fetched(fetched)) = answer else { panic!("{answer:?}") };
                let expected = member.machine.lineage().departs(series);
                assert_eq!(fetched.departs, expected, "{series:?}");
            }
        }
        archived.end(&runtime);
    }
}

#[test]
fn an_archive_keeps_no_more_than_it_may() {
    const CAPACITY: u64 = 64 << 10;
    let (runtime, directory) = (runtime(), Directory::new());
    let mut member = Member::new();
    let served = Served::start(&runtime, &member.archive);
    let archived = Archived::start(&runtime, &directory, &[&served], CAPACITY);
    let archived = archived.unwrap_or_else(|error| panic!("{error}"));
    let mut first = 0;
    for _ in 0..20 {
        (0..30).for_each(|_| member.append());
        archived.until_at(&member);
        let kept = archived.keeper.kept();
        // A segment is given up when the next one was begun.
        assert!(kept.bytes <= CAPACITY + (8 << 10), "{kept:?}");
        assert!(kept.first >= first && kept.first < kept.now.next, "{kept:?}");
        first = kept.first;
    }
    assert!(first > 0, "it gave nothing up");
    // All that it says to have can be had.
    let link = {
        let _inside = runtime.enter();
        Link::new(archived.target.clone())
    };
    let mut from = first;
    while from < member.machine.next() {
        let wait = Duration::ZERO;
        let fetch = crate::rpc::Fetch { from, max_bytes: 4 << 10, wait, series: None };
        let answer = runtime.block_on(link.call(&Request::Fetch(fetch))).expect("an answer");
        let Answer::Fetched(fetched) = answer else { panic!("{answer:?}") };
        let events = fetched.events.unwrap_or_else(|| panic!("it lacks {from}"));
        let at = usize::try_from(from).expect("small");
        for ((_, found), (_, wanted)) in events.commands().zip(&member.all[at..]) {
            assert_eq!(found, wanted);
        }
        from = events.end();
    }
    // It does nothing else.
    let refused = runtime.block_on(link.call(&Request::Status)).expect("an answer");
    assert_eq!(refused, Answer::Failed("this is an archive: it only has events".to_owned()));
}

#[test]
fn an_archive_that_cannot_go_on_says_so_and_keeps_what_it_has() {
    let (runtime, directory) = (runtime(), Directory::new());
    let mut member = Member::new();
    (0..20).for_each(|_| member.append());
    let served = Served::start(&runtime, &member.archive);
    let archived = start(&runtime, &directory, &[&served]);
    archived.until_at(&member);
    let end = member.machine.next();
    archived.end(&runtime);
    drop(served);
    // Another process must not write to it.
    let archived = start(&runtime, &directory, &[]);
    let second = Archived::start(&runtime, &directory, &[], LARGE);
    assert!(matches!(second, Err(KeeperError::Log(LogError::InUse(_)))));
    archived.end(&runtime);

    let problem = |archived: &Archived| {
        wait::until("it ends", || archived.keeper.problem().is_some());
        assert_eq!(archived.keeper.kept().now.next, end);
        archived.keeper.problem().expect("it has ended")
    };
    // The members have other events.
    let mut other = Member::new();
    other.random = toroni_testkit::Random::new(1);
    (0..60).for_each(|_| other.append());
    let served = Served::start(&runtime, &other.archive);
    let archived = start(&runtime, &directory, &[&served]);
    let said = problem(&archived);
    assert!(said.starts_with("the order has other events than /"), "{said}");
    archived.end(&runtime);
    drop(served);
    // It was away for too long.
    (0..150).for_each(|_| member.append());
    forget(&mut member, 40);
    let served = Served::start(&runtime, &member.archive);
    let archived = start(&runtime, &directory, &[&served]);
    let said = problem(&archived);
    assert!(said.starts_with(&format!("no member has the event {end} any more")), "{said}");
    archived.end(&runtime);
}

/// Answers only from a time on.
struct Later(Archive, Arc<AtomicBool>);

impl Serve for Later {
    fn serve(&self, _: Caller, request: Request) -> Answering {
        let (archive, answers) = (self.0.clone(), self.1.load(Ordering::Relaxed));
        Box::pin(async move {
            let answer = if answers { archive.answer(request).await } else { None };
            answer.unwrap_or_else(|| Answer::Failed("not yet".to_owned()))
        })
    }
}

#[test]
fn an_archive_waits_for_a_member_that_may_have_what_the_others_lack() {
    let (runtime, directory) = (runtime(), Directory::new());
    let mut members = [Member::new(), Member::new()];
    // Both have the same events, and one has purged some.
    members[1].random = members[0].random.clone();
    let append = |members: &mut [Member; 2], count| {
        for _ in 0..count {
            members.iter_mut().for_each(Member::append);
        }
    };
    append(&mut members, 20);
    let served = Served::start(&runtime, &members[0].archive);
    let archived = start(&runtime, &directory, &[&served]);
    archived.until_at(&members[0]);
    archived.end(&runtime);
    drop(served);
    append(&mut members, 150);
    forget(&mut members[0], 40);
    let asked = Arc::new(AtomicBool::new(false));
    let served = Served::start(&runtime, &members[0].archive);
    let later = Arc::new(Later(members[1].archive.clone(), Arc::clone(&asked)));
    let later = Served::with(&runtime, later);
    let archived = start(&runtime, &directory, &[&served, &later]);
    // Several rounds.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(archived.keeper.problem(), None);
    asked.store(true, Ordering::Relaxed);
    archived.until_at(&members[1]);
    archived.end(&runtime);
}

#[test]
fn an_archive_that_died_while_it_began_begins_again() {
    let (runtime, directory) = (runtime(), Directory::new());
    let mut member = Member::new();
    (0..150).for_each(|_| member.append());
    forget(&mut member, 60);
    let states = directory.join("archive").join("states");
    // It had not yet purged, and then had, but the state is gone.
    for purges in [false, true] {
        let log = Log::open(&directory.join("archive"), OPTIONS).expect("opened");
        if purges {
            log.purge(Place { term: 1, leader: 0, index: 5 }).expect("purged");
        }
        drop(log);
        std::fs::create_dir_all(&states).expect("made");
        std::fs::write(states.join("0000000000000005-0000000000000000.state"), "?")
            .expect("written");
    }
    let served = Served::start(&runtime, &member.archive);
    for _ in 0..2 {
        let archived = start(&runtime, &directory, &[&served]);
        archived.until_at(&member);
        assert_eq!(archived.keeper.kept().first, member.archive.first());
        archived.end(&runtime);
        (0..10).for_each(|_| member.append());
    }
    // Without its states, it cannot know the numbers of what it has.
    std::fs::remove_dir_all(&states).expect("removed");
    let started = Archived::start(&runtime, &directory, &[&served], LARGE);
    assert!(matches!(started, Err(KeeperError::NoState(_))));
}
