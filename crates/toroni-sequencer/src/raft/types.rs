//! The types of openraft, and ours beside them.

use std::fmt;
use std::sync::Arc;

use openraft::{CommittedLeaderId, EntryPayload, LogId, Membership};

use crate::entry::{Entry, Member, Members, Payload, Place, Vote};
use crate::machine::Outcome;

/// A batch that was checked.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Proposal(pub(crate) Arc<[u8]>);

impl fmt::Debug for Proposal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Proposal({} bytes)", self.0.len())
    }
}

openraft::declare_raft_types!(
    /// What openraft is made of here.
    pub(crate) Types:
        D = Proposal,
        R = Vec<Outcome>,
        NodeId = u64,
        Node = Member,
        SnapshotData = Arc<[u8]>,
);

pub(super) type Raft = openraft::Raft<Types>;
pub(super) type StorageError = openraft::StorageError<u64>;

pub(super) fn place_of(id: &LogId<u64>) -> Place {
    Place { term: id.leader_id.term, leader: id.leader_id.node_id, index: id.index }
}

pub(super) fn id_of(place: Place) -> LogId<u64> {
    LogId::new(CommittedLeaderId::new(place.term, place.leader), place.index)
}

pub(super) fn vote_of(vote: &openraft::Vote<u64>) -> Vote {
    Vote { term: vote.leader_id.term, candidate: vote.leader_id.node_id, committed: vote.committed }
}

pub(super) fn raft_vote_of(vote: Vote) -> openraft::Vote<u64> {
    if vote.committed {
        openraft::Vote::new_committed(vote.term, vote.candidate)
    } else {
        openraft::Vote::new(vote.term, vote.candidate)
    }
}

pub(super) fn members_of(membership: &Membership<u64, Member>) -> Members {
    Members {
        voters: membership.get_joint_config().clone(),
        members: membership.nodes().map(|(id, member)| (*id, member.clone())).collect(),
    }
}

pub(super) fn membership_of(members: Members) -> Membership<u64, Member> {
    Membership::new(members.voters, members.members)
}

pub(super) fn entry_of(entry: &openraft::Entry<Types>) -> Entry {
    let payload = match &entry.payload {
        EntryPayload::Blank => Payload::Blank,
        EntryPayload::Normal(Proposal(bytes)) => Payload::Batch(Arc::clone(bytes)),
        EntryPayload::Membership(membership) => Payload::Members(members_of(membership)),
    };
    Entry { place: place_of(&entry.log_id), payload }
}

pub(super) fn raft_entry_of(entry: Entry) -> openraft::Entry<Types> {
    let payload = match entry.payload {
        Payload::Blank => EntryPayload::Blank,
        Payload::Batch(bytes) => EntryPayload::Normal(Proposal(bytes)),
        Payload::Members(members) => EntryPayload::Membership(membership_of(members)),
    };
    openraft::Entry { log_id: id_of(entry.place), payload }
}
