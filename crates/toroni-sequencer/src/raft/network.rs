//! Our messages as openraft wants its network.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use openraft::error::{
    Fatal, NetworkError, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable,
};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{OptionalSend, Snapshot, Vote};

use super::elections::Patience;
use super::peers::Peers;
use super::types::{Types, entry_of, id_of, place_of, raft_vote_of, vote_of};
use crate::entry::Member;
use crate::rpc::{Answer, Appended, Link, LinkError, Request};

/// A member that cannot be reached is tried again after this time. openraft's own would be 500 ms.
const AGAIN: Duration = Duration::from_millis(50);

/// Finds the connections to members.
pub(super) struct Network {
    pub(super) peers: Arc<Peers>,
    pub(super) patience: Arc<Patience>,
}

/// The way to one member.
pub(super) struct Peer {
    work: Link,
    signals: Link,
    patience: Arc<Patience>,
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, member: &Member) -> Peer {
        Peer {
            work: self.peers.work(target, member),
            signals: self.peers.signals(target, member),
            patience: Arc::clone(&self.patience),
        }
    }
}

type RpcError = RPCError<u64, Member, RaftError<u64>>;

fn failed(error: LinkError) -> RpcError {
    match error {
        LinkError::Ended | LinkError::Late | LinkError::Busy => NetworkError::new(&error).into(),
        LinkError::Unreachable(_)
        | LinkError::Absent(_)
        | LinkError::Refused(_)
        | LinkError::Foreign(_) => Unreachable::new(&error).into(),
    }
}

/// The member answered what does not fit, or that it cannot.
fn unfit(answer: Answer) -> RpcError {
    let why = match answer {
        Answer::Failed(reason) => reason,
        Answer::Appended(Appended::NoRoom) => "its disk is full".to_owned(),
        _ => "it answered another question".to_owned(),
    };
    Unreachable::new(&LinkError::Unreachable(why)).into()
}

impl RaftNetwork<Types> for Peer {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, RpcError> {
        let request = Request::Append {
            vote: vote_of(&rpc.vote),
            previous: rpc.prev_log_id.as_ref().map(place_of),
            commit: rpc.leader_commit.as_ref().map(place_of),
            entries: rpc.entries.iter().map(entry_of).collect(),
        };
        match self.work.call(&request).await.map_err(failed)? {
            Answer::Appended(Appended::All) => Ok(AppendEntriesResponse::Success),
            Answer::Appended(Appended::Part(place)) => {
                Ok(AppendEntriesResponse::PartialSuccess(place.map(id_of)))
            }
            Answer::Appended(Appended::Conflict) => Ok(AppendEntriesResponse::Conflict),
            Answer::Appended(Appended::Higher(vote)) => {
                Ok(AppendEntriesResponse::HigherVote(raft_vote_of(vote)))
            }
            answer => Err(unfit(answer)),
        }
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<u64>,
        _: RPCOption,
    ) -> Result<VoteResponse<u64>, RpcError> {
        let request = Request::Vote {
            vote: vote_of(&rpc.vote),
            last: rpc.last_log_id.as_ref().map(place_of),
        };
        match self.signals.call(&request).await.map_err(failed)? {
            Answer::Voted { vote, granted, last } => {
                let own = rpc.last_log_id.as_ref().map(place_of);
                let asked = rpc.vote.leader_id;
                if !granted
                    && last <= own
                    && (vote.term, vote.candidate) > (asked.term, asked.node_id)
                {
                    self.patience.hurry();
                }
                self.patience.compare(own, last);
                Ok(VoteResponse::new(raft_vote_of(vote), last.map(id_of), granted))
            }
            answer => Err(unfit(answer)),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote<u64>,
        snapshot: Snapshot<Types>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<u64>, StreamingError<Types, Fatal<u64>>> {
        let request = Request::Snapshot { vote: vote_of(&vote), bytes: *snapshot.snapshot };
        let answer = tokio::select! {
            answer = self.work.call(&request) => answer,
            closed = cancel => return Err(closed.into()),
        };
        match answer {
            Ok(Answer::Installed(vote)) => Ok(SnapshotResponse::new(raft_vote_of(vote))),
            Ok(_) => {
                let why = LinkError::Unreachable("it could not take the snapshot".to_owned());
                Err(Unreachable::new(&why).into())
            }
            Err(error) => Err(Unreachable::new(&error).into()),
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(AGAIN))
    }
}
