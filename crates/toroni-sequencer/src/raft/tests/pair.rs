//! A member in this process, alone or with another one that the test plays: what a member does in its office, and when
//! no other member hears it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use toroni_testkit::{Directory, Random, wait};

use super::super::office::{IN_FLIGHT, vote_in_office};
use super::super::service::Service;
use super::super::{Group, GroupOptions, Timing, feed_id};
use super::Ignored;
use crate::batch::{Builder, Command, Open};
use crate::entry::{Entry, Member, Members, Payload, Place, Vote};
use crate::log::Options;
use crate::machine::{Machine, Outcome};
use crate::rpc::{
    Answer, Answering, Appended, Caller, Connection, Identity, Link, Peer, PeerState, Request,
    Role, Serve, Target, listen,
};

fn run(test: impl Future<Output = ()>) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(test);
}

async fn bound() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("bound").to_string();
    (listener, address)
}

fn member(name: &str, address: &str, log: [u8; 16]) -> Member {
    Member { name: name.to_owned(), address: address.to_owned(), log }
}

/// Starts member 0.
async fn start(directory: &Directory) -> (Group, String) {
    let (listener, address) = bound().await;
    let group = Group::start(GroupOptions {
        feed: "orders".to_owned(),
        id: 0,
        listener,
        keys: None,
        listed: vec![],
        directory: directory.path().to_owned(),
        log: Options { segment_bytes: 1 << 20, ..Options::default() },
        snapshot_bytes: 1 << 20,
        retain_bytes: 1,
        timing: Timing::default(),
        events: Box::new(Ignored),
    });
    (group.await.expect("started"), address)
}

/// Starts member 0, which becomes the first of a group with these others.
async fn begin(directory: &Directory, mut members: BTreeMap<u64, Member>) -> Group {
    let (group, address) = start(directory).await;
    members.insert(0, member("a", &address, [0; 16]));
    let members = Members { voters: vec![], members };
    assert_eq!(group.request(Request::Init(members)).await, Answer::Done);
    group
}

fn open(source: u32) -> Request {
    let bus = [source.to_le_bytes()[0]; 16];
    let mut builder = Builder::new();
    let open = Command::Open(Open { source, series: 1, session: 1, bus, earlier: Some(&[]) });
    builder.push(&open).expect("short");
    Request::Submit(builder.finish().expect("a command").into())
}

/// Asks a member as if over a connection, in a task of its own.
fn ask(group: &Group, request: Request) -> JoinHandle<Answer> {
    ask_over(&courier(1), group, request)
}

/// A connection of a courier, from an address of its own.
fn courier(number: u8) -> Arc<Connection> {
    let address = std::net::Ipv4Addr::new(10, 0, 0, number).into();
    Arc::new(Connection { address, role: Role::Courier { source: number.into() } })
}

fn ask_over(connection: &Arc<Connection>, group: &Group, request: Request) -> JoinHandle<Answer> {
    let caller = Caller { id: 1, is_trusted: true, connection: Arc::clone(connection) };
    tokio::spawn(Service(Arc::clone(&group.shared)).serve(caller, request))
}

/// No answer takes longer, on a busy machine either. Mutants wait for it in vain.
const ANSWER_TIME: Duration = Duration::from_secs(20);

async fn answer_of(asked: JoinHandle<Answer>) -> Answer {
    let answer = timeout(ANSWER_TIME, asked).await;
    answer.expect("each has an answer").expect("no panic")
}

/// What a leader sends that only shows that it lives.
fn heartbeat(term: u64) -> Request {
    let vote = Vote { term, candidate: 1, committed: true };
    Request::Append { vote, previous: None, commit: None, entries: vec![] }
}

/// Another leader is heard, in the next term.
async fn depose(group: &Group) {
    let term = group.shared.raft.metrics().borrow().current_term + 1;
    // It may have been elected again meanwhile.
    let answer = answer_of(ask(group, heartbeat(term))).await;
    assert!(matches!(answer, Answer::Appended(Appended::All | Appended::Higher(_))), "{answer:?}");
}

#[test]
fn each_batch_has_one_answer_however_often_the_office_changes() {
    let mut random = Random::from_environment();
    let directory = Directory::below("/dev/shm");
    run(async {
        let group = begin(&directory, BTreeMap::new()).await;
        let mut asked = vec![];
        let mut offices = BTreeSet::new();
        for round in 0..1_000 {
            asked.push(ask(&group, open(round)));
            if round % 100 == 99 {
                // One that lasts, on a busy machine, too.
                takes(&group, 1_000 + round).await;
            } else if random.below(3) == 0 {
                depose(&group).await;
                sleep(Duration::from_micros(random.below(300))).await;
                group.shared.raft.trigger().elect().await.expect("it runs");
                sleep(Duration::from_micros(random.below(6_000))).await;
            }
            let vote = vote_in_office(&group.shared.raft.metrics().borrow());
            offices.extend(vote.map(|vote| vote.term));
        }
        let mut events = 0;
        for asked in asked {
            match answer_of(asked).await {
                Answer::Outcomes(_) => events += 1,
                Answer::NotLeader(_) | Answer::Failed(_) => {}
                other => panic!("{other:?}"),
            }
        }
        println!("{} offices seen, {events} of 1000 batches became events", offices.len());
        assert!(offices.len() > 30);
        // The last office has all of its permits, and nothing is under way.
        group.shared.pass_barrier().await;
        let permits = group.shared.permits();
        let all = permits.acquire_many(u32::try_from(IN_FLIGHT).expect("few"));
        let all = timeout(ANSWER_TIME, all).await;
        drop(all.expect("all permits come back").expect("in office"));
        assert_eq!(permits.available_permits(), IN_FLIGHT);
        assert_eq!(group.status().in_flight, 0);
        assert_eq!(group.problem(), None);
        group.close().await.expect("closed");
    });
}

/// The other member of two: while it hears, it takes entries, and votes for who asks.
#[derive(Default)]
struct Other {
    hears: AtomicBool,
    is_full: AtomicBool,
    /// It would not vote for the member, though it does when it is asked to.
    says_no: AtomicBool,
    /// Whether it says that it leads without a majority.
    lacks_majority: AtomicBool,
    /// How often it was asked for its vote.
    votes: AtomicUsize,
    /// How often it was asked whether the leader leads: appends without entries.
    asked: AtomicUsize,
}

impl Serve for Arc<Other> {
    fn serve(&self, _: Caller, request: Request) -> Answering {
        let hears = self.hears.load(Ordering::Relaxed);
        let is_full = self.is_full.load(Ordering::Relaxed);
        let lacks_majority = self.lacks_majority.load(Ordering::Relaxed);
        let yes = hears && !self.says_no.load(Ordering::Relaxed);
        if matches!(request, Request::Vote { .. }) {
            self.votes.fetch_add(1, Ordering::Relaxed);
        }
        if matches!(&request, Request::Append { entries, .. } if entries.is_empty()) {
            self.asked.fetch_add(1, Ordering::Relaxed);
        }
        Box::pin(async move {
            match request {
                Request::Vote { vote, .. } => Answer::Voted { vote, granted: hears, last: None },
                Request::Probe(_) => Answer::Probed { yes, last: None },
                Request::Peer(_) if hears => Answer::Peer(
                    PeerState { log: [1; 16], lacks_majority, is_full, ..PeerState::default() },
                    None,
                ),
                Request::Status => Answer::Status(Box::default()),
                Request::Append { entries, .. } if is_full && !entries.is_empty() => {
                    Answer::Appended(Appended::NoRoom)
                }
                Request::Append { .. } if hears => Answer::Appended(Appended::All),
                _ => std::future::pending().await,
            }
        })
    }
}

impl Other {
    fn set(&self, hears: bool) {
        self.hears.store(hears, Ordering::Relaxed);
    }
}

/// A group of two.
async fn pair(directory: &Directory) -> (Group, Arc<Other>) {
    let (listener, address) = bound().await;
    let other = Arc::new(Other { hears: AtomicBool::new(true), ..Other::default() });
    let own = Peer { log: [1; 16], id: 1 };
    let identity = Identity { feed: feed_id("orders"), keys: None, own, listed: vec![] };
    // Ends with the runtime.
    tokio::spawn(listen(listener, identity, Arc::new(Arc::clone(&other)), Handle::current()));
    let group = begin(directory, BTreeMap::from([(1, member("b", &address, [1; 16]))])).await;
    (group, other)
}

/// Runs a test with a group of two whose member 0 takes commands. Closes the member that the test returns.
fn with_pair(test: impl AsyncFnOnce(&Directory, Group, &Other) -> Group) {
    let directory = Directory::below("/dev/shm");
    run(async {
        let (group, other) = pair(&directory).await;
        takes(&group, 1).await;
        test(&directory, group, &other).await.close().await.expect("closed");
    });
}

/// Waits until something is so.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < ANSWER_TIME, "waited in vain: {what}");
        sleep(Duration::from_millis(1)).await;
    }
}

/// Waits until the member takes commands, and returns what became of the one that it took.
async fn takes(group: &Group, source: u32) -> Vec<Outcome> {
    let begun = Instant::now();
    loop {
        if let Answer::Outcomes(outcomes) = answer_of(ask(group, open(source))).await {
            return outcomes;
        }
        assert!(begun.elapsed() < ANSWER_TIME, "it does not lead");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Submits three batches, of which two become entries that no other member has.
async fn strand(group: &Group) -> (u64, Vec<JoinHandle<Answer>>) {
    let before = group.shared.log.ends().1.expect("it has entries").index;
    let mut asked = vec![];
    for (source, entries) in (10..13).zip([1, 2, 2]) {
        asked.push(ask(group, open(source)));
        let last = || group.shared.log.ends().1.map(|last| last.index);
        until("its entry", || last() == Some(before + entries)).await;
    }
    (before, asked)
}

/// A snapshot of a state after an entry of another leader.
fn snapshot_after(last: Place, members: &Members) -> Arc<[u8]> {
    let mut bytes = vec![];
    Place::encode_option(Some(last), &mut bytes);
    Place::encode_option(Some(last), &mut bytes);
    let mut encoded = vec![];
    members.encode(&mut encoded);
    bytes.extend(u32::try_from(encoded.len()).expect("short").to_le_bytes());
    bytes.extend(encoded);
    let mut machine = Machine::new();
    let mut builder = Builder::new();
    builder.push(&Command::Begin { series: 1 }).expect("short");
    let batch = builder.finish().expect("a command");
    machine.apply(crate::batch::Batch::check(&batch).expect("made here"), |_| (), |_, _| ());
    bytes.extend(machine.snapshot());
    bytes.into()
}

/// openraft never answers for entries that it purges for a snapshot of another leader.
#[test]
fn entries_for_which_a_snapshot_stands_are_answered() {
    with_pair(async |_, group, other| {
        other.set(false);
        let (before, asked) = strand(&group).await;
        let members = group.shared.members();
        let term = group.status().term + 1;
        let vote = Vote { term, candidate: 1, committed: true };
        let last = Place { term, leader: 1, index: before + 50 };
        let bytes = snapshot_after(last, &members);
        let installed = answer_of(ask(&group, Request::Snapshot { vote, bytes })).await;
        assert_eq!(installed, Answer::Installed(vote));
        for asked in asked {
            let answer = answer_of(asked).await;
            assert!(matches!(answer, Answer::NotLeader(_)), "{answer:?}");
        }
        assert_eq!(group.status().in_flight, 0);

        // When it leads again, it takes as much as before.
        other.set(true);
        assert!(matches!(takes(&group, 20).await[..], [Outcome::Sequenced(_)]));
        assert_eq!(group.shared.permits().available_permits(), IN_FLIGHT);
        group
    });
}

/// It leads on with the same vote, and its old entries may still be lost.
#[test]
fn a_leader_that_is_started_again_proposes_nothing_before_its_log_is_committed() {
    with_pair(async |directory, group, other| {
        other.set(false);
        let (before, asked) = strand(&group).await;
        group.close().await.expect("closed");
        for asked in asked {
            // Its end is none of an answer's business: the next leader knows.
            assert!(matches!(answer_of(asked).await, Answer::NotLeader(_) | Answer::Failed(_)));
        }
        // The other member answers until it leads on, and hears nothing afterwards.
        other.set(true);
        other.is_full.store(true, Ordering::Relaxed);
        let (group, _) = start(directory).await;
        let in_office = || vote_in_office(&group.shared.raft.metrics().borrow()).is_some();
        until("it leads on", in_office).await;
        let asked: Vec<_> = (20..24).map(|source| ask(&group, open(source))).collect();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(300) {
            let last = group.shared.log.ends().1.expect("it has entries").index;
            assert_eq!(last, before + 2, "it proposes more");
            sleep(Duration::from_millis(10)).await;
        }
        other.is_full.store(false, Ordering::Relaxed);
        for asked in asked {
            let answer = answer_of(asked).await;
            assert!(matches!(answer, Answer::Outcomes(_) | Answer::NotLeader(_)), "{answer:?}");
        }
        takes(&group, 30).await;
        group
    });
}

/// It need not wait for a leader, nor read everything at once.
#[test]
fn a_member_that_is_started_again_has_applied_what_it_knew_to_be_committed() {
    let directory = Directory::below("/dev/shm");
    run(async {
        let (group, other) = pair(&directory).await;
        for source in 0..20 {
            takes(&group, source).await;
        }
        let before = group.status();
        other.set(false);
        group.close().await.expect("closed");
        let (group, _) = start(&directory).await;
        let after = group.status();
        assert_eq!((after.next, after.digest), (before.next, before.digest));
        assert_eq!(after.applied, before.applied);
        group.close().await.expect("closed");
    });
}

/// openraft waits without end for the first entry of an office, which the other member has no room for.
#[test]
fn a_question_to_the_majority_ends_with_the_office() {
    with_pair(async |_, group, other| {
        other.is_full.store(true, Ordering::Relaxed);
        let term = group.status().term;
        depose(&group).await;
        group.shared.raft.trigger().elect().await.expect("it runs");
        let in_office = || vote_in_office(&group.shared.raft.metrics().borrow());
        until("it is elected", || in_office().is_some_and(|vote| vote.term > term)).await;
        let waits = group.request(Request::Source(1)).await;
        assert!(matches!(waits, Answer::Failed(_)), "{waits:?}");
        depose(&group).await;
        let begun = Instant::now();
        loop {
            // It may be elected again at any time, and waits then as before.
            match group.request(Request::Source(1)).await {
                Answer::NotLeader(_) => break,
                _ => depose(&group).await,
            }
            assert!(begun.elapsed() < ANSWER_TIME, "it never says so");
        }
        group
    });
}

/// openraft answers it with the later vote, as if all were well.
#[test]
fn a_snapshot_of_an_earlier_leader_says_nothing_about_the_log() {
    with_pair(async |directory, group, other| {
        other.set(false);
        let before = group.shared.log.ends().1.expect("it has entries").index;
        let term = group.status().term;
        let vote = |term| Vote { term, candidate: 1, committed: true };
        let later = answer_of(ask(&group, heartbeat(term + 2))).await;
        assert_eq!(later, Answer::Appended(Appended::All));
        let (heard, matched) = (group.shared.heard(), group.shared.matched());
        let last = Place { term: term + 1, leader: 1, index: before + 50 };
        let bytes = snapshot_after(last, &group.shared.members());
        let late = Request::Snapshot { vote: vote(term + 1), bytes };
        assert_eq!(answer_of(ask(&group, late)).await, Answer::Installed(vote(term + 2)));
        assert_eq!((group.shared.heard(), group.shared.matched()), (heard, matched));
        let left = std::fs::read_dir(directory.path()).expect("a directory");
        let mut names = left.map(|entry| entry.expect("readable").file_name());
        assert!(names.all(|name| !name.to_string_lossy().starts_with("snapshot-")));
        group
    });
}

/// It votes again when it has what its leader has, so it must not count what it had no room for.
#[test]
fn a_member_without_room_hears_its_leader_and_counts_only_what_it_has() {
    with_pair(async |_, group, other| {
        other.set(false);
        let before = group.shared.log.ends().1.expect("it has entries");
        let vote = Vote { term: group.status().term + 1, candidate: 1, committed: true };
        let place = |after| Place { term: vote.term, leader: 1, index: before.index + after };
        let append = |previous, entries| Request::Append {
            vote,
            previous: Some(previous),
            commit: None,
            entries,
        };
        let one = vec![Entry { place: place(1), payload: Payload::Blank }];
        let taken = answer_of(ask(&group, append(before, one))).await;
        assert_eq!(taken, Answer::Appended(Appended::All));
        let heard = group.shared.heard();
        // More than a segment holds.
        let bytes: Arc<[u8]> = vec![0; 256 << 10].into();
        let payload = Payload::Batch(bytes);
        let many = (2..7).map(|after| Entry { place: place(after), payload: payload.clone() });
        let refused = answer_of(ask(&group, append(place(1), many.collect()))).await;
        assert_eq!(refused, Answer::Appended(Appended::NoRoom));
        assert!(group.shared.heard() > heard);
        assert_eq!(group.shared.matched(), Some((vote, place(1).index)));
        assert_eq!(group.shared.log.ends().1, Some(place(1)));
        assert!(group.status().full);
        // An entry that does not follow is answered as ever.
        let far = vec![Entry { place: place(90), payload }];
        let conflict = answer_of(ask(&group, append(place(89), far))).await;
        assert_eq!(conflict, Answer::Appended(Appended::Conflict));
        group
    });
}

#[test]
fn a_leader_that_hears_nobody_takes_nothing_and_says_so() {
    with_pair(async |_, group, other| {
        let until_contact = async |is_out: bool| {
            until("contact", || group.status().is_out_of_contact == is_out).await;
        };
        until_contact(false).await;
        let term = group.status().term;
        assert_eq!(group.request(Request::Confirm).await, Answer::Confirmed(term));
        other.set(false);
        until_contact(true).await;
        let why = "it hears no majority";
        until("it says why", || group.status().hindrance.as_deref() == Some(why)).await;
        assert_eq!(answer_of(ask(&group, open(2))).await, Answer::NotLeader(None));
        assert!(matches!(group.request(Request::Confirm).await, Answer::Failed(_)));
        assert!(matches!(group.request(Request::Source(1)).await, Answer::Failed(_)));
        let status = group.status();
        assert!(status.contact >= Duration::from_millis(600), "{status:?}");
        assert_eq!(status.leader, Some(0), "it goes on to show that it lives");
        other.set(true);
        until_contact(false).await;
        takes(&group, 2).await;
        assert_eq!(group.status().term, term, "no election was needed");
        group
    });
}

#[test]
fn one_question_to_the_majority_serves_all_that_wait_for_one() {
    with_pair(async |_, group, other| {
        other.asked.store(0, Ordering::Relaxed);
        let begun = Instant::now();
        let asked: Vec<_> = (0..200).map(|_| ask(&group, Request::Source(1))).collect();
        for asked in asked {
            assert!(matches!(answer_of(asked).await, Answer::Source(Some(_))));
        }
        let heartbeats = begun.elapsed().div_duration_f64(Timing::default().heartbeat);
        let questions = other.asked.load(Ordering::Relaxed);
        assert!((questions as f64) < 150.0 + heartbeats, "{questions} for 200");
        // A later one is not answered from an earlier one.
        other.set(false);
        assert!(matches!(group.request(Request::Source(1)).await, Answer::Failed(_)));
        other.set(true);
        group
    });
}

#[test]
fn an_answer_that_does_not_come_although_everything_is_applied_ends_the_member() {
    let directory = Directory::below("/dev/shm");
    run(async {
        let group = begin(&directory, BTreeMap::new()).await;
        let lost = group.shared.answer_is_lost(Duration::from_millis(10));
        timeout(wait::LIMIT, lost).await.expect("noticed");
        group.shared.end_because("first".to_owned());
        group.shared.end_because("second".to_owned());
        assert_eq!(group.problem().as_deref(), Some("first"));
        group.close().await.expect("closed");
    });
}

/// It would end the term of a leader that the others hear.
#[test]
fn a_member_that_no_majority_would_vote_for_does_not_stand() {
    with_pair(async |_, group, other| {
        other.says_no.store(true, Ordering::Relaxed);
        depose(&group).await;
        until("it follows", || group.status().leader == Some(1)).await;
        let (term, votes) = (group.status().term, other.votes.load(Ordering::Relaxed));
        // It would have stood some times.
        sleep(5 * Timing::default().silence()).await;
        assert_eq!(group.status().term, term);
        assert_eq!(other.votes.load(Ordering::Relaxed), votes);
        other.says_no.store(false, Ordering::Relaxed);
        takes(&group, 2).await;
        assert!(group.status().term > term);
        group
    });
}

#[test]
fn a_member_would_vote_for_another_only_without_a_leader_and_with_no_longer_log() {
    with_pair(async |_, group, other| {
        let last = group.shared.log.ends().1.expect("it has entries");
        let longer = Some(Place { index: last.index + 9, ..last });
        let would_vote = async |last| match answer_of(ask(&group, Request::Probe(last))).await {
            Answer::Probed { yes, last: own } => {
                assert_eq!(own, group.shared.log.ends().1);
                yes
            }
            answer => panic!("{answer:?}"),
        };
        assert!(!would_vote(longer).await, "it leads");
        other.set(false);
        until("it is isolated", || group.status().is_out_of_contact).await;
        assert!(would_vote(Some(last)).await);
        assert!(!would_vote(None).await, "its own log is longer");
        let elsewhere = Some(Place { index: last.index - 1, ..last });
        assert!(!would_vote(elsewhere).await, "its own log is longer");
        other.says_no.store(true, Ordering::Relaxed);
        depose(&group).await;
        assert!(!would_vote(longer).await, "it hears another leader");
        sleep(2 * Timing::default().lease()).await;
        assert!(would_vote(longer).await);
        group.shared.takes_over.store(true, Ordering::Relaxed);
        assert!(!would_vote(longer).await, "its leader hands over to it");
        group
    });
}

/// A follower may be the only one that reaches all others, and would wait for that leader without end.
#[test]
fn a_leader_that_says_that_it_has_no_majority_is_not_waited_for() {
    with_pair(async |_, group, other| {
        other.says_no.store(true, Ordering::Relaxed);
        let last = group.shared.log.ends().1.expect("it has entries");
        let longer = Some(Place { index: last.index + 9, ..last });
        let term = group.status().term + 1;
        for lacks_majority in [false, true] {
            other.lacks_majority.store(lacks_majority, Ordering::Relaxed);
            let noticed = || group.shared.peers.lacks_majority(1).is_some() == lacks_majority;
            until("it says so", noticed).await;
            assert_eq!(
                answer_of(ask(&group, heartbeat(term))).await,
                Answer::Appended(Appended::All)
            );
            let probed = answer_of(ask(&group, Request::Probe(longer))).await;
            assert!(
                matches!(probed, Answer::Probed { yes, .. } if yes == lacks_majority),
                "{probed:?}"
            );
        }
        group
    });
}

/// The network is not the reason then, and no other member is to be asked.
#[test]
fn a_leader_whose_majority_has_no_room_says_so() {
    with_pair(async |_, group, other| {
        other.is_full.store(true, Ordering::Relaxed);
        until("it shows it", || group.status().members[1].full).await;
        let waits = ask(&group, open(2));
        until("it is out of contact", || group.status().is_out_of_contact).await;
        let why = "the disk of b is full, and no majority takes its entries";
        until("it says why", || group.status().hindrance.as_deref() == Some(why)).await;
        let refused = answer_of(ask(&group, open(3))).await;
        assert_eq!(refused, Answer::Failed(format!("the leader takes no commands: {why}")));
        other.is_full.store(false, Ordering::Relaxed);
        assert!(matches!(answer_of(waits).await, Answer::Outcomes(_)));
        until("it is in contact", || group.status().hindrance.is_none()).await;
        other.set(false);
        until("the other is silent", || !group.status().members[1].answers).await;
        let why = "it hears no majority";
        until("it says why", || group.status().hindrance.as_deref() == Some(why)).await;
        other.set(true);
        group
    });
}

/// Until it is finished, a majority of the members before and after it is needed for everything.
#[test]
fn a_change_of_the_members_is_finished_by_the_next_leader() {
    with_pair(async |_, group, _| {
        let members = group.shared.members();
        let last = group.shared.log.ends().1.expect("it has entries");
        let vote = Vote { term: group.status().term + 1, candidate: 1, committed: true };
        let place = Place { term: vote.term, leader: 1, index: last.index + 1 };
        let voters = vec![BTreeSet::from([0, 1]), BTreeSet::from([0])];
        let joint = Payload::Members(Members { voters: voters.clone(), ..members });
        let append = Request::Append {
            vote,
            previous: Some(last),
            commit: Some(place),
            entries: vec![Entry { place, payload: joint }],
        };
        assert_eq!(answer_of(ask(&group, append)).await, Answer::Appended(Appended::All));
        until("it knows the change", || group.status().voters == voters).await;
        // Its leader is heard no more.
        takes(&group, 2).await;
        until("it is finished", || group.status().voters == [BTreeSet::from([0])]).await;
        group
    });
}

#[test]
fn a_source_belongs_to_one_courier_while_that_is_connected() {
    with_pair(async |_, group, _| {
        let buses = [[7; 16], [8; 16]];
        let opens = |bus: usize, session| {
            let earlier = Some(&buses[..]);
            let series = u32::from(buses[bus][0]);
            let open = Open { source: 9, series, session, bus: buses[bus], earlier };
            let mut builder = Builder::new();
            builder.push(&Command::Open(open)).expect("short");
            Request::Submit(builder.finish().expect("a command").into())
        };
        let over = async |connection: &Arc<Connection>, request| {
            answer_of(ask_over(connection, &group, request)).await
        };
        let (first, again, other) = (courier(1), courier(2), courier(3));
        assert!(matches!(over(&first, opens(0, 1)).await, Answer::Outcomes(_)));
        // One that the order refuses takes nothing, however early it comes after a change of leaders.
        group.shared.couriers.forget();
        let refused = over(&other, opens(1, 1)).await;
        assert!(
            matches!(&refused, Answer::Outcomes(all) if matches!(all[..], [Outcome::Refused(_)]))
        );
        assert!(matches!(over(&first, opens(0, 1)).await, Answer::Outcomes(_)));
        let Answer::Refused(why) = over(&other, opens(1, 2)).await else { panic!("taken") };
        assert!(why.starts_with("the source 00000009 is open from 10.0.0.1"), "{why}");
        // A restart comes with the same bus, before the first connection has ended.
        assert!(matches!(over(&again, opens(0, 3)).await, Answer::Outcomes(_)));
        drop(first);
        let Answer::Refused(why) = over(&other, opens(1, 4)).await else { panic!("taken") };
        assert!(why.contains("is open from 10.0.0.2"), "{why}");
        let tool = Connection { address: again.address, role: Role::Tool };
        let refused = over(&Arc::new(tool), opens(0, 3)).await;
        assert_eq!(refused, Answer::Failed("only the courier of a host brings commands".into()));

        let Answer::Sources(sources) = group.request(Request::Sources(9)).await else {
            panic!("no sources")
        };
        let found: Vec<_> = sources.iter().map(|it| (it.source, it.address.as_deref())).collect();
        assert_eq!(found, [(9, Some("10.0.0.2"))]);
        let removed = group.request(Request::RemoveSource(9)).await;
        assert!(matches!(&removed, Answer::Failed(why) if why.contains("10.0.0.2")), "{removed:?}");
        drop(again);
        let taken = over(&other, opens(1, 5)).await;
        assert!(
            matches!(&taken, Answer::Outcomes(all) if matches!(all[..], [Outcome::Sequenced(_)]))
        );
        drop(other);
        assert_eq!(group.request(Request::RemoveSource(9)).await, Answer::Done);
        assert_eq!(group.request(Request::Sources(9)).await, Answer::Sources(vec![]));
        group
    });
}

/// It would be taken for dead, and a busy disk would cost an election.
#[test]
fn a_member_whose_threads_wait_for_the_disk_shows_how_it_is() {
    with_pair(async |_, group, _| {
        let address = group.shared.members().members[&0].address.clone();
        let (held, disk) = std::sync::mpsc::channel::<()>();
        let disk = Arc::new(std::sync::Mutex::new(disk));
        let waiting = Arc::new(AtomicUsize::new(0));
        // All threads of the runtime, however many there are.
        for _ in 0..8 {
            let (disk, waiting) = (Arc::clone(&disk), Arc::clone(&waiting));
            tokio::spawn(async move {
                waiting.fetch_add(1, Ordering::Relaxed);
                // Until the test gives it up.
                let _ = disk.lock().map(|disk| disk.recv());
            });
        }
        // Not by a timer: those are carried by these threads.
        wait::until("all threads wait", || waiting.load(Ordering::Relaxed) >= 2);
        let target = Target {
            address,
            feed: feed_id("orders"),
            keys: None,
            role: Role::Signals { id: 1, log: [1; 16] },
            log: None,
            bind: None,
        };
        let answers = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let link = Link::new(target);
                let state = PeerState { log: [1; 16], ..PeerState::default() };
                let (peer, probe) = (Request::Peer(state), Request::Probe(None));
                let answers = async { tokio::join!(link.call(&peer), link.call(&probe)) };
                timeout(ANSWER_TIME, answers).await
            })
        });
        let answers = answers.join().expect("no panic");
        drop(held);
        let (peer, probed) = answers.expect("answered in time");
        assert!(matches!(peer, Ok(Answer::Peer(..))), "{peer:?}");
        assert!(matches!(probed, Ok(Answer::Probed { .. })), "{probed:?}");
        group
    });
}
