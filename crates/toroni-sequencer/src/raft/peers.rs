//! The other members of the group: the connections to them, and how they are.
//!
//! Two connections to each member are open all the time. One carries the log. The other carries what must not wait behind it:
//! votes, questions before an election, and every 250 ms how both ends are. So a candidate needs no new connection, and what a
//! member does about others (elections, changes of the members, handing over) it does with what it knows already.
//!
//! **A log that was rolled back.** A member remembers how far each log has come, and tells it when it comes back in a new life.
//! A log that was restored from a backup is behind that, and its member does not vote before a leader has brought it
//! everything. A member that was started waits for what the others remember, up to a second, before it votes or leads.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use toroni_proto::wire::Keys;

use super::office::vote_in_office;
use super::shared::Shared;
use super::timing::Timing;
use crate::entry::{Member, Members, Reach};
use crate::hook::mutant;
use crate::log::{Glance, Log};
use crate::rpc::{Answer, Link, LinkError, PeerState, Request, Role, Target};
use crate::say::say;

/// How often members show each other how they are.
const EVERY: Duration = Duration::from_millis(250);
/// A member that does not answer for this long is asked again.
const ANSWER_TIME: Duration = Duration::from_millis(500);
/// How often the connection for the log is used, whether there is something for it or not.
const WARM_EVERY: Duration = Duration::from_secs(1);
/// A member that was started votes after this time, whether all others have answered or not.
/// In tests, the other member may be held up for longer.
const FIRST_TIME: Duration = Duration::from_secs(if cfg!(test) { 5 } else { 1 });
/// Until then, those that have not answered are asked this often.
const FIRST_AGAIN: Duration = Duration::from_millis(20);
/// A member that has answered within this time can be reached now.
pub(super) const NOW: Duration = Duration::from_millis(500);
/// A member that has answered within this time can be counted on.
const LATELY: Duration = Duration::from_secs(1);
/// The most lives of a log that are kept apart.
const LIVES: usize = 4;

/// The other members.
pub(super) struct Peers {
    id: u64,
    feed: [u8; 16],
    keys: Option<Keys>,
    /// The address from which it calls other members.
    bind: Option<IpAddr>,
    log: Log,
    /// What carries signals, and all else.
    threads: (Handle, Handle),
    /// The members of the log, until openraft has read it.
    found: Members,
    started: Instant,
    /// Whether the others were asked what they remember of this log.
    may_vote: AtomicBool,
    /// Whether this log is empty, and another member has entries.
    has_begun_elsewhere: AtomicBool,
    known: Mutex<BTreeMap<u64, Known>>,
}

/// What is known of a member.
struct Known {
    member: Member,
    /// For the log.
    work: Link,
    /// For what must not wait.
    signals: Link,
    is_asked: bool,
    /// When the connection for the log was used last, so that it stays open.
    warmed: Option<Instant>,
    /// Whether it has answered once, or does not run.
    has_answered: bool,
    answered: Option<Instant>,
    state: PeerState,
    /// Since when it has said that it leads without a majority.
    lacks_majority: Option<Instant>,
    /// How far the lives of its log have come, the last one first.
    lives: Vec<([u8; 16], Reach)>,
}

impl Known {
    /// Takes how the member is. Returns how far earlier lives of its log had come.
    fn note(&mut self, state: &PeerState) -> Option<Reach> {
        self.state = *state;
        self.lacks_majority =
            state.lacks_majority.then(|| self.lacks_majority.unwrap_or_else(Instant::now));
        match self.lives.iter_mut().find(|(life, _)| *life == state.life) {
            Some((_, reach)) => *reach = state.reach.max(*reach),
            None => self.lives.insert(0, (state.life, state.reach)),
        }
        if self.lives.len() > LIVES
            && let Some((_, oldest)) = self.lives.pop()
            && let Some((_, reach)) = self.lives.last_mut()
        {
            *reach = oldest.max(*reach);
        }
        self.lives.iter().filter(|(life, _)| *life != state.life).map(|(_, reach)| *reach).max()
    }
}

impl Peers {
    pub(super) fn new(
        id: u64,
        feed: [u8; 16],
        (keys, bind): (Option<Keys>, Option<IpAddr>),
        (log, found): (Log, Members),
        threads: (Handle, Handle),
    ) -> Self {
        Self {
            id,
            feed,
            keys,
            bind,
            log,
            threads,
            found,
            started: Instant::now(),
            may_vote: AtomicBool::new(false),
            has_begun_elsewhere: AtomicBool::new(false),
            known: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn target(&self, address: &str, log: Option<[u8; 16]>) -> Target {
        let role = Role::Member { id: self.id, log: self.log.found().log };
        let address = address.to_owned();
        Target { address, feed: self.feed, keys: self.keys, role, log, bind: self.bind }
    }

    /// Runs this with what is known of a member, and makes its connections before.
    fn with<T>(&self, id: u64, member: &Member, run: impl FnOnce(&mut Known) -> T) -> T {
        let target = self.target(&member.address, Some(member.log));
        let work = || {
            let _inside = self.threads.1.enter();
            Link::new(target.clone())
        };
        let signals = || {
            let _inside = self.threads.0.enter();
            let role = Role::Signals { id: self.id, log: self.log.found().log };
            Link::new(Target { role, ..target.clone() })
        };
        let new = || Known {
            member: member.clone(),
            work: work(),
            signals: signals(),
            is_asked: false,
            warmed: None,
            has_answered: false,
            answered: None,
            state: PeerState::default(),
            lacks_majority: None,
            lives: vec![],
        };
        let mut known = self.lock();
        let known = known.entry(id).or_insert_with(new);
        if known.member != *member {
            // The memory is of the log, wherever its member is now.
            let lives = match known.member.log == member.log {
                true => std::mem::take(&mut known.lives),
                false => vec![],
            };
            *known = Known { lives, ..new() };
        }
        run(known)
    }

    /// Returns the connection for the log to a member.
    pub(super) fn work(&self, id: u64, member: &Member) -> Link {
        self.with(id, member, |known| known.work.clone())
    }

    /// Returns the connection for what must not wait behind the log.
    pub(super) fn signals(&self, id: u64, member: &Member) -> Link {
        self.with(id, member, |known| known.signals.clone())
    }

    /// Takes how a member is that has shown it. Returns how far earlier lives of its log had come.
    pub(super) fn note(&self, id: u64, state: &PeerState) -> Option<Reach> {
        let mut known = self.lock();
        known.get_mut(&id).filter(|known| known.member.log == state.log)?.note(state)
    }

    /// Returns the other members that have answered within this time, with how they are.
    fn answered_within(&self, limit: Duration) -> BTreeMap<u64, PeerState> {
        let known = self.lock();
        let has_answered = |known: &Known| known.answered.is_some_and(|at| at.elapsed() < limit);
        let answered = known.iter().filter(|(_, known)| has_answered(known));
        answered.map(|(id, known)| (*id, known.state)).collect()
    }

    /// Returns which members have answered within this time. This one has.
    pub(super) fn heard_within(&self, limit: Duration) -> BTreeSet<u64> {
        self.answered_within(limit).into_keys().chain([self.id]).collect()
    }

    /// Returns the members that have answered lately, with how they are.
    pub(super) fn lately(&self) -> BTreeMap<u64, PeerState> {
        self.answered_within(LATELY)
    }

    /// Returns since when a leader has said that it has no majority.
    pub(super) fn lacks_majority(&self, leader: u64) -> Option<Duration> {
        self.lock().get(&leader)?.lacks_majority.map(|since| since.elapsed())
    }

    /// Whether the member may vote and lead: what others remember of its log was asked for.
    pub(super) fn may_vote(&self) -> bool {
        self.may_vote.load(Ordering::Relaxed)
    }

    /// Whether this log is empty, and the group has begun.
    pub(super) fn has_begun_elsewhere(&self) -> bool {
        self.has_begun_elsewhere.load(Ordering::Relaxed)
    }

    /// Asks a member how it is, and shows it how this one is. Returns true if this log has become uncertain by the answer.
    async fn ask(&self, id: u64, member: &Member, state: PeerState) -> bool {
        let link = self.signals(id, member);
        let answer = timeout(ANSWER_TIME, link.call(&Request::Peer(state))).await;
        // Before it counts as answered: then this member may vote.
        let is_doubted = match &answer {
            Ok(Ok(Answer::Peer(_, Some(shown)))) => self.compare(*shown),
            _ => false,
        };
        self.with(id, member, |known| match answer {
            Ok(Ok(Answer::Peer(state, _))) if state.log == member.log => {
                (known.answered, known.has_answered) = (Some(Instant::now()), true);
                known.note(&state);
            }
            // What does not run remembers nothing.
            Ok(Err(LinkError::Absent(_))) => known.has_answered = true,
            _ => {}
        });
        is_doubted
    }

    /// Keeps the connection for the log open, over which nothing may have been sent for long.
    async fn warm(&self, id: u64, member: &Member, state: PeerState) {
        let is_due = |known: &mut Known| {
            let is_due = known.warmed.is_none_or(|at| at.elapsed() >= WARM_EVERY);
            is_due.then(|| known.warmed = Some(Instant::now())).is_some()
        };
        if self.with(id, member, is_due) {
            let link = self.work(id, member);
            let _ = timeout(ANSWER_TIME, link.call(&Request::Peer(state))).await;
        }
    }

    /// Returns the members that are to be asked now: all others but those that are being asked.
    fn begin_to_ask(self: &Arc<Self>, members: &Members) -> Vec<(Asked, Member)> {
        let others = members.members.iter().filter(|(id, _)| **id != self.id);
        let begins = |known: &mut Known| !std::mem::replace(&mut known.is_asked, true);
        let asked = others.filter(|(id, member)| self.with(**id, member, begins));
        let asked = asked.map(|(id, member)| (Asked(Arc::clone(self), *id), member.clone()));
        asked.collect()
    }

    /// Asks the others what they remember of this log, before Raft starts. A leader that was started again leads on at once, so
    /// it has to know before. Returns whether it may: without an answer of a majority, it could lead no other member, and may be about to learn
    /// that it has lost something.
    pub(super) async fn ask_before_start(self: &Arc<Self>) -> bool {
        let members = &self.found;
        let mut tasks = JoinSet::new();
        while !self.has_asked(members) {
            for (asked, member) in self.begin_to_ask(members) {
                let peers = Arc::clone(self);
                tasks.spawn(async move {
                    let term = peers.log.vote().map_or(0, |vote| vote.term);
                    let state = state_of(&peers.log.glance(), &peers.log, term);
                    peers.ask(asked.1, &member, state).await;
                });
            }
            while tasks.try_join_next().is_some() {}
            sleep(FIRST_AGAIN).await;
        }
        is_majority(members, &self.heard_within(FIRST_TIME))
    }

    /// Whether all others were asked, or it has been long enough.
    fn has_asked(&self, members: &Members) -> bool {
        let have_answered = {
            let known = self.lock();
            let mut others = members.members.keys().filter(|id| **id != self.id);
            others.all(|id| known.get(id).is_some_and(|known| known.has_answered))
        };
        if have_answered || self.started.elapsed() >= FIRST_TIME {
            self.may_vote.store(true, Ordering::Relaxed);
        }
        self.may_vote()
    }

    /// Compares this log with what another member remembers. Returns true if it has become uncertain.
    fn compare(&self, shown: Reach) -> bool {
        if mutant("backup_not_noticed") {
            return false;
        }
        match self.log.compare_with(shown) {
            Ok(false) => false,
            Ok(true) => {
                say(
                    "other members have seen more of this log than there is: its directory was restored from a backup, or is in \
                     use twice. The member does not vote until a leader has brought it everything. Restore no member: remove it, \
                     and add it again with an empty directory",
                );
                true
            }
            Err(error) => {
                say(error);
                self.log.is_uncertain()
            }
        }
    }
}

/// A member that is being asked. Also if the question is given up, it can be asked again.
struct Asked(Arc<Peers>, u64);

impl Drop for Asked {
    fn drop(&mut self) {
        if let Some(known) = self.0.lock().get_mut(&self.1) {
            known.is_asked = false;
        }
    }
}

fn state_of(glance: &Glance, log: &Log, term: u64) -> PeerState {
    PeerState {
        log: log.found().log,
        life: log.life(),
        reach: glance.reach,
        last: glance.last,
        term,
        is_uncertain: glance.is_uncertain,
        ..PeerState::default()
    }
}

impl Shared {
    /// Returns how this member is, as it shows itself to others. Waits for no disk.
    pub(super) fn peer_state(&self) -> PeerState {
        let (term, leader, leads) = {
            let metrics = self.raft.metrics();
            let metrics = metrics.borrow();
            let leads = vote_in_office(&metrics).is_some();
            (metrics.current_term, metrics.current_leader, leads)
        };
        let limit = lacks_majority_after(&self.timing);
        let lacks_majority = leads
            && self.peers.started.elapsed() > limit
            && !is_majority(&self.members(), &self.peers.heard_within(limit));
        PeerState {
            leader,
            is_full: self.full.load(Ordering::Relaxed),
            leads,
            lacks_majority,
            ..state_of(&self.log.glance(), &self.log, term)
        }
    }

    /// Answers a member that shows how it is.
    pub(super) fn peer(&self, from: u64, state: &PeerState) -> Answer {
        let shown = self.peers.note(from, state);
        Answer::Peer(self.peer_state(), shown)
    }
}

/// A leader that has heard no majority for this long is no leader to wait for. This is about the network: a slow disk does
/// not delay these answers.
fn lacks_majority_after(timing: &Timing) -> Duration {
    timing.lease() * 4
}

/// Whether a majority of a set of voters is among these.
pub(super) fn has_majority(set: &BTreeSet<u64>, these: &BTreeSet<u64>) -> bool {
    set.intersection(these).count() > set.len() / 2
}

/// Whether a majority of each set of voters is among these.
pub(super) fn is_majority(members: &Members, these: &BTreeSet<u64>) -> bool {
    members.voters.iter().all(|set| has_majority(set, these))
}

/// Asks the other members all the time how they are.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut tasks = JoinSet::new();
    loop {
        // At first, openraft knows none.
        let known = shared.members();
        let members = if known.members.is_empty() { &shared.peers.found } else { &known };
        shared.peers.lock().retain(|id, _| members.members.contains_key(id));
        for (asked, member) in shared.peers.begin_to_ask(members) {
            tasks.spawn(ask(Arc::clone(&shared), asked, member));
        }
        while tasks.try_join_next().is_some() {}
        let again = if shared.peers.has_asked(members) { EVERY } else { FIRST_AGAIN };
        sleep(again).await;
    }
}

/// While the log is empty, asks the members at these addresses whether the group has begun. The group does not know this one.
pub(super) async fn watch_for_begin(shared: Arc<Shared>, addresses: Vec<String>) {
    let link = |address: &String| Link::new(shared.peers.target(address, None));
    let links: Vec<Link> = addresses.iter().map(link).collect();
    while shared.log.glance().last.is_none() {
        let mut has_begun = false;
        for link in &links {
            let request = Request::Peer(shared.peer_state());
            let answer = timeout(ANSWER_TIME, link.call(&request)).await;
            has_begun |= matches!(answer, Ok(Ok(Answer::Peer(state, _))) if state.last.is_some());
        }
        shared.peers.has_begun_elsewhere.store(has_begun, Ordering::Relaxed);
        sleep(LATELY).await;
    }
    shared.peers.has_begun_elsewhere.store(false, Ordering::Relaxed);
}

async fn ask(shared: Arc<Shared>, asked: Asked, member: Member) {
    let id = asked.1;
    let state = shared.peer_state();
    if !shared.peers.ask(id, &member, state).await {
        shared.peers.warm(id, &member, state).await;
        return;
    }
    let leads = vote_in_office(&shared.raft.metrics().borrow()).is_some();
    if leads {
        // openraft has no way to give up an office. Nothing more is proposed in it, and started again, the member does not lead on.
        shared.permits().close();
        shared.end_because("it led with a log that lacks what it has answered for".to_owned());
    } else {
        shared.doubted.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_log_that_lacks_what_others_remember_is_doubted_once() {
        let directory = toroni_testkit::Directory::below("/dev/shm");
        let log = Log::open(directory.path(), crate::log::Options::default()).expect("opened");
        let threads = (Handle::current(), Handle::current());
        let found = (log.clone(), Members::default());
        let peers = Peers::new(0, [1; 16], (None, None), found, threads);
        let shown = log.glance().reach;
        assert!(!peers.compare(shown));
        let later = Reach { generation: shown.generation + 1, ..shown };
        assert!(peers.compare(later));
        assert!(log.is_uncertain());
        assert!(!peers.compare(later));
    }

    #[tokio::test]
    async fn what_earlier_lives_have_shown_is_given_back() {
        let directory = toroni_testkit::Directory::below("/dev/shm");
        let log = Log::open(directory.path(), crate::log::Options::default()).expect("opened");
        let threads = (Handle::current(), Handle::current());
        let peers = Peers::new(0, [1; 16], (None, None), (log, Members::default()), threads);
        let member = Member { name: "b".to_owned(), address: "[::1]:1".to_owned(), log: [2; 16] };
        let state = |life, generation| PeerState {
            log: [2; 16],
            life: [life; 16],
            reach: Reach { generation, last: None },
            ..PeerState::default()
        };
        let shown = |found: Option<Reach>| found.map(|reach| reach.generation);
        // Of a member that is not known, nothing is kept.
        assert_eq!(peers.note(1, &state(1, 4)), None);
        peers.with(1, &member, |_| ());
        assert_eq!(peers.note(1, &state(1, 5)), None);
        assert_eq!(peers.note(1, &state(1, 9)), None);
        // An answer from before may come later.
        assert_eq!(peers.note(1, &state(1, 7)), None);
        assert_eq!(shown(peers.note(1, &state(2, 10))), Some(9));
        assert_eq!(shown(peers.note(1, &state(2, 20))), Some(9));
        // So may one of an earlier life, which must not make the life that is there doubt itself.
        assert_eq!(shown(peers.note(1, &state(1, 8))), Some(20));
        assert_eq!(shown(peers.note(1, &state(2, 21))), Some(9));
        // However many lives there are, the greatest is kept.
        for life in 3..20 {
            let generation = if life == 3 { 90 } else { u64::from(life) + 20 };
            assert!(shown(peers.note(1, &state(life, generation))) >= Some(21));
        }
        assert_eq!(shown(peers.note(1, &state(20, 40))), Some(90));
        assert!(peers.lock()[&1].lives.len() <= LIVES);
        // The memory is of the log, and not of its address.
        let moved = Member { address: "[::1]:2".to_owned(), ..member };
        peers.with(1, &moved, |_| ());
        assert_eq!(shown(peers.note(1, &state(20, 40))), Some(90));
        // Another log under the same id is another matter.
        assert_eq!(peers.note(1, &PeerState { log: [3; 16], ..state(21, 1) }), None);
    }
}
