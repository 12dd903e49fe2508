//! What the tasks of a member share, and how the member is.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use openraft::error::ForwardToLeader;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::time::Instant;

use super::applied::Applied;
use super::contact::Contact;
use super::elections::Patience;
use super::peers::Peers;
use super::propose::Submitted;
use super::reads::Reads;
use super::sources::Couriers;
use super::timing::Timing;
use super::types::{Raft, members_of};
use crate::entry::{Member, Members, Vote};
use crate::feed::Archive;
use crate::log::Log;
use crate::rpc::{Answer, MemberStatus, Status};

/// Entries of commands leave so much room in the log for those that elections and changes of the members need.
pub(super) const RESERVE_BYTES: usize = 16 << 10;

pub(super) struct Shared {
    pub(super) id: u64,
    pub(super) peers: Arc<Peers>,
    pub(super) raft: Raft,
    pub(super) log: Log,
    pub(super) applied: Applied,
    pub(super) archive: Archive,
    pub(super) timing: Timing,
    pub(super) submitted: mpsc::Sender<Submitted>,
    /// Permits for entries that are under way in the last office.
    pub(super) permits: Mutex<Arc<Semaphore>>,
    pub(super) reads: Reads,
    pub(super) contact: Contact,
    pub(super) couriers: Couriers,
    /// Why the member has to end.
    pub(super) problem: OnceLock<String>,
    /// Who changes the members.
    pub(super) changing: tokio::sync::Mutex<()>,
    pub(super) handing_over: tokio::sync::Mutex<()>,
    /// Who installs a snapshot.
    pub(super) installing: Arc<tokio::sync::Mutex<()>>,
    pub(super) hands_over: AtomicBool,
    /// Whether its leader has asked it to have itself elected.
    pub(super) takes_over: AtomicBool,
    /// The log has become uncertain.
    pub(super) doubted: Notify,
    pub(super) needs_recovery: AtomicBool,
    pub(super) full: AtomicBool,
    pub(super) commands: AtomicU64,
    pub(super) elections: AtomicU64,
    pub(super) patience: Arc<Patience>,
    appended: Mutex<Heard>,
}

/// What leaders have sent.
#[derive(Clone, Copy)]
struct Heard {
    at: Instant,
    /// Up to this index, the log is that of the leader with this vote.
    matched: Option<(Vote, u64)>,
}

pub(super) fn failed(error: impl std::fmt::Display) -> Answer {
    Answer::Failed(error.to_string())
}

/// Says who leads instead of this member, as openraft does.
pub(super) fn forwarded(to: ForwardToLeader<u64, Member>) -> Answer {
    Answer::NotLeader(to.leader_id.zip(to.leader_node.map(|member| member.address)))
}

impl Shared {
    pub(super) fn new(
        id: u64,
        peers: Arc<Peers>,
        (raft, log, applied): (Raft, Log, Applied),
        submitted: mpsc::Sender<Submitted>,
        (timing, patience): (Timing, Arc<Patience>),
    ) -> Arc<Self> {
        let archive = applied.lock().archive.clone();
        Arc::new(Self {
            id,
            peers,
            raft,
            log,
            applied,
            archive,
            timing,
            submitted,
            permits: Mutex::new(Arc::new(Semaphore::new(0))),
            reads: Reads::default(),
            contact: Contact::new(),
            couriers: Couriers::default(),
            problem: OnceLock::new(),
            changing: tokio::sync::Mutex::new(()),
            handing_over: tokio::sync::Mutex::new(()),
            installing: Arc::default(),
            hands_over: AtomicBool::new(false),
            takes_over: AtomicBool::new(false),
            doubted: Notify::new(),
            needs_recovery: AtomicBool::new(false),
            full: AtomicBool::new(false),
            commands: AtomicU64::new(0),
            elections: AtomicU64::new(0),
            patience,
            appended: Mutex::new(Heard { at: Instant::now(), matched: None }),
        })
    }

    /// Notes that a leader was heard, and up to where its log is here, too.
    pub(super) fn hear(&self, matched: Option<(Vote, u64)>) {
        let mut heard = self.appended.lock().unwrap_or_else(PoisonError::into_inner);
        *heard = Heard { at: Instant::now(), matched: matched.or(heard.matched) };
    }

    /// When a leader was heard last.
    pub(super) fn heard(&self) -> Instant {
        self.appended.lock().unwrap_or_else(PoisonError::into_inner).at
    }

    /// Up to which index the log is that of the leader with this vote.
    pub(super) fn matched(&self) -> Option<(Vote, u64)> {
        self.appended.lock().unwrap_or_else(PoisonError::into_inner).matched
    }

    /// The members, as the newest entry of the log says, committed or not.
    pub(super) fn members(&self) -> Members {
        members_of(self.raft.metrics().borrow().membership_config.membership())
    }

    /// Returns whether the log has room for entries of commands with `bytes` bytes. Keeps the answer for the status.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let has_room = self.log.has_room(bytes + RESERVE_BYTES);
        self.full.store(!has_room, Ordering::Relaxed);
        has_room
    }

    /// Whether this member is the only one that votes.
    pub(super) fn is_alone(&self) -> bool {
        let voters = self.members().voters;
        !voters.is_empty() && voters.iter().all(|set| set.iter().eq([&self.id]))
    }

    /// Why this member must not be elected, if there is a reason.
    pub(super) fn cannot_lead(&self) -> Option<&'static str> {
        if self.log.is_uncertain() {
            return Some("it may lack entries that it had");
        }
        if !self.peers.may_vote() {
            return Some("it was just started");
        }
        // A leader begins with an entry of its own.
        (!self.log.has_room(RESERVE_BYTES / 2)).then_some("its disk is full")
    }

    pub(super) fn status(&self) -> Status {
        let metrics = self.raft.metrics().borrow().clone();
        let Members { voters, members } = members_of(metrics.membership_config.membership());
        let hindrance = self.hindrance();
        let lately = self.peers.lately();
        let own_is_full = self.full.load(Ordering::Relaxed);
        let members = members.into_iter().map(|(id, member)| MemberStatus {
            id,
            name: member.name,
            address: member.address,
            answers: id == self.id || lately.contains_key(&id),
            full: lately.get(&id).map_or(id == self.id && own_is_full, |state| state.is_full),
            behind: self.behind(id),
        });
        let (purged, last) = self.log.ends();
        let (contact, is_out_of_contact) = self.contact();
        let state = self.applied.lock();
        Status {
            id: self.id,
            term: metrics.current_term,
            leader: metrics.current_leader,
            last,
            applied: state.last,
            purged,
            series: state.machine.series(),
            next: state.machine.next(),
            digest: *state.machine.digest().as_bytes(),
            first: self.archive.first(),
            elections: self.elections.load(Ordering::Relaxed),
            in_flight: self.commands.load(Ordering::Relaxed),
            room: self.log.free_bytes(),
            sources: state.machine.sources_from(0).count() as u64,
            full: own_is_full,
            uncertain: self.log.is_uncertain(),
            needs_recovery: self.needs_recovery.load(Ordering::Relaxed),
            hands_over: self.hands_over.load(Ordering::Relaxed),
            contact,
            is_out_of_contact,
            hindrance,
            voters,
            members: members.collect(),
        }
    }
}
