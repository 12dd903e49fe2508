//! What a member answers.

use std::sync::Arc;

use openraft::raft::{AppendEntriesRequest, VoteRequest};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;

use super::applied::{beside, describe};
use super::propose::Submitted;
use super::shared::{Shared, failed};
use super::types::{id_of, place_of, raft_entry_of, raft_vote_of, vote_of};
use crate::entry::{Entry, MAX_MEMBERS, Member, Place, Vote};
use crate::hook::mutant;
use crate::log::LogError;
use crate::rpc::{
    Answer, Answering, Appended, Caller, Fetch, KnownMember, LongAnswering, Request, Role, Room,
    Serve, Turning, Waiting,
};

#[derive(Clone)]
pub(super) struct Service(pub(super) Arc<Shared>);

/// What a connection has to show for a request.
fn refusal(caller: &Caller, request: &Request) -> Option<&'static str> {
    match request {
        Request::Append { .. }
        | Request::Vote { .. }
        | Request::Snapshot { .. }
        | Request::Peer(_)
        | Request::Probe(_)
        | Request::TakeOver { .. } => {
            (caller.id >= MAX_MEMBERS as u64).then_some("only members replicate")
        }
        Request::Init(_)
        | Request::Add { .. }
        | Request::Remove(_)
        | Request::HandOver(_)
        | Request::ReleaseSource(_)
        | Request::RemoveSource(_) => (!caller.is_trusted)
            .then_some("this changes the group: without a key, ask the member from its own host"),
        Request::Submit(_) => (!matches!(caller.connection.role, Role::Courier { .. }))
            .then_some("only the courier of a host brings commands"),
        Request::Source(_)
        | Request::Sources(_)
        | Request::Status
        | Request::Confirm
        | Request::Digest(_)
        | Request::Fetch(_)
        | Request::State => None,
    }
}

impl Serve for Service {
    fn serve(&self, caller: Caller, request: Request) -> Answering {
        if let Some(why) = refusal(&caller, &request) {
            return Box::pin(async move { failed(why) });
        }
        let shared = Arc::clone(&self.0);
        match request {
            // Taken here and now, so that the commands of a connection stay in their order.
            Request::Submit(batch) => {
                let (answer, answered) = oneshot::channel();
                // Nothing would become of it here.
                if shared.contact().1 && !mutant("isolated_leader_takes_commands") {
                    return Box::pin(async move { shared.takes_nothing() });
                }
                let opens = match shared.check_courier(&caller.connection, &batch) {
                    Ok(opens) => opens,
                    Err(why) => return Box::pin(async move { Answer::Refused(why) }),
                };
                let submitted = Submitted { batch, answer, is_own: false };
                let submitted = shared.submitted.try_send(submitted);
                Box::pin(async move {
                    if let Err(TrySendError::Full(_)) = submitted {
                        return failed("the leader has no room for more commands");
                    }
                    // What was given up may have been taken: the next leader knows.
                    let answer = answered.await.unwrap_or(Answer::NotLeader(None));
                    shared.note_courier(&caller.connection, &opens, &answer);
                    answer
                })
            }
            // In a task of its own: a connection that ends takes what it asked for with it, and must not leave openraft alone with
            // a snapshot for which it waits. One at a time, since two would use the room that one has taken. The others wait
            // here, so that they end with their connections.
            Request::Snapshot { vote, bytes } => Box::pin(async move {
                let only = Arc::clone(&shared.installing).lock_owned().await;
                let installs = tokio::spawn(async move {
                    let _only = only;
                    shared.install(vote, bytes).await
                });
                installs.await.unwrap_or_else(failed)
            }),
            // At once, by the thread that waits for no disk.
            Request::Peer(state) => Box::pin(std::future::ready(shared.peer(caller.id, &state))),
            Request::Probe(last) => Box::pin(std::future::ready(shared.probe(last))),
            request => Box::pin(async move { shared.answer(caller.id, request).await }),
        }
    }

    fn members(&self) -> Vec<KnownMember> {
        let members = self.0.members().members.into_iter();
        members.map(|(id, Member { log, address, .. })| KnownMember { id, log, address }).collect()
    }

    fn until_there_is(&self, fetch: Fetch) -> Waiting {
        let archive = self.0.archive.clone();
        Box::pin(async move { archive.wait_for(&fetch).await })
    }

    fn turn(&self, request: &Request) -> Turning {
        let (archive, request) = (self.0.archive.clone(), request.clone());
        Box::pin(async move { archive.turn(&request).await })
    }

    fn serve_long(&self, _: Caller, request: Request, room: Room) -> LongAnswering {
        let archive = self.0.archive.clone();
        Box::pin(async move { archive.answer_in(request, room).await })
    }
}

impl Shared {
    async fn answer(&self, from: u64, request: Request) -> Answer {
        match request {
            Request::Append { vote, previous, commit, entries } => {
                self.append(vote, previous, commit, entries).await
            }
            Request::Vote { vote, last } => self.vote(vote, last).await,
            Request::Source(source) => self.source(source).await,
            Request::Sources(from) => self.sources(from).await,
            Request::ReleaseSource(source) => self.release_source(source).await,
            Request::RemoveSource(source) => self.remove_source(source).await,
            Request::Status => Answer::Status(Box::new(self.status())),
            Request::Confirm => self.confirm().await,
            Request::Digest(number) => {
                let digest = self.applied.lock().machine.digest_after(number);
                Answer::Digest(digest.map(|digest| *digest.as_bytes()))
            }
            Request::Init(members) => self.init(members).await,
            Request::Add { name, address } => self.add(name, address).await,
            Request::Remove(name) => self.remove(&name).await,
            Request::HandOver(name) => self.hand_over(&name).await,
            Request::TakeOver { vote, last } => self.take_over(from, vote, last).await,
            Request::Fetch(_) | Request::State => {
                self.archive.answer(request).await.unwrap_or_else(|| failed("no question"))
            }
            Request::Submit(_)
            | Request::Snapshot { .. }
            | Request::Peer(_)
            | Request::Probe(_) => failed("it is answered elsewhere"),
        }
    }

    async fn append(
        &self,
        vote: Vote,
        previous: Option<Place>,
        commit: Option<Place>,
        entries: Vec<Entry>,
    ) -> Answer {
        // Any error of storage stops openraft for good, so a full disk must not reach it. Its leader is heard all the same: who
        // hears none stands for election, and disturbs those who have room.
        let bytes: usize = entries.iter().map(|entry| entry.weight() + 64).sum();
        let has_room = entries.is_empty() || self.has_room(bytes);
        let last = entries.last().map(|entry| entry.place);
        let entries = if has_room { entries } else { vec![] };
        // Only what is in the log: a member that may lack entries votes again when it has what its leader has.
        let matched = last.filter(|_| has_room || mutant("no_room_counts")).or(previous);
        let rpc = AppendEntriesRequest {
            vote: raft_vote_of(vote),
            prev_log_id: previous.map(id_of),
            leader_commit: commit.map(id_of),
            entries: entries.into_iter().map(raft_entry_of).collect(),
        };
        use openraft::raft::AppendEntriesResponse as Response;
        Answer::Appended(match self.raft.append_entries(rpc).await {
            Ok(Response::Success) => {
                self.hear(matched.map(|place| (vote, place.index)));
                if has_room { Appended::All } else { Appended::NoRoom }
            }
            Ok(Response::PartialSuccess(id)) => {
                self.hear(None);
                Appended::Part(id.as_ref().map(place_of))
            }
            Ok(Response::Conflict) => {
                self.hear(None);
                Appended::Conflict
            }
            Ok(Response::HigherVote(vote)) => Appended::Higher(vote_of(&vote)),
            Err(error) => return failed(error),
        })
    }

    async fn vote(&self, vote: Vote, last: Option<Place>) -> Answer {
        if !self.peers.may_vote() {
            return failed("it was just started, and asks the other members what they remember");
        }
        if self.log.is_uncertain() {
            return failed("it may lack entries that it had, so it does not vote");
        }
        self.patience.compare(self.log.ends().1, last);
        match self.raft.vote(VoteRequest::new(raft_vote_of(vote), last.map(id_of))).await {
            Ok(response) => {
                if response.vote_granted {
                    // The candidate has some time to show that it leads.
                    self.hear(None);
                }
                Answer::Voted {
                    vote: vote_of(&response.vote),
                    granted: response.vote_granted,
                    last: response.last_log_id.as_ref().map(place_of),
                }
            }
            Err(error) => failed(error),
        }
    }

    async fn install(&self, vote: Vote, bytes: Arc<[u8]>) -> Answer {
        let snapshot = match describe(bytes.to_vec()) {
            Err(error) => return failed(error),
            Ok(snapshot) => snapshot,
        };
        let last = snapshot.meta.last_log_id.as_ref().map(place_of);
        // As with an append: a full disk must not reach openraft.
        if !self.has_room(0) {
            return failed("its disk is full");
        }
        if let Some(last) = last {
            let log = self.log.clone();
            let received = beside(move || {
                let new = log.reserve_snapshot(bytes.len())?;
                new.write(&bytes)?;
                Ok(new)
            });
            match received.await {
                Ok(new) => self.applied.receive(last, new),
                Err(LogError::Full(_)) => return failed("its disk is full"),
                Err(error) => return failed(error),
            }
        }
        let installed = self.raft.install_full_snapshot(raft_vote_of(vote), snapshot).await;
        self.applied.give_up_received();
        let voted = match installed {
            Ok(response) => vote_of(&response.vote),
            Err(error) => return failed(error),
        };
        // A snapshot of an earlier leader is answered with the later vote, and says nothing about the log.
        if voted == vote || mutant("snapshot_of_earlier_leader_counts") {
            self.hear(last.map(|place| (vote, place.index)));
        }
        Answer::Installed(voted)
    }

    /// Whether a snapshot of a leader is being installed. The leader is alive, though it can say nothing else meanwhile.
    pub(super) fn installs(&self) -> bool {
        self.installing.try_lock().is_err()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Members;
    use crate::rpc::Connection;

    #[test]
    fn who_is_not_trusted_changes_nothing() {
        let address = std::net::Ipv4Addr::LOCALHOST.into();
        let connection = Arc::new(Connection { address, role: Role::Tool });
        let stranger = Caller { id: u64::MAX, is_trusted: false, connection };
        let trusted = Caller { is_trusted: true, ..stranger.clone() };
        for request in [
            Request::Init(Members::default()),
            Request::Add { name: "a".to_owned(), address: "b".to_owned() },
            Request::Remove("a".to_owned()),
            Request::HandOver("a".to_owned()),
            Request::ReleaseSource(1),
            Request::RemoveSource(1),
        ] {
            assert!(refusal(&stranger, &request).is_some(), "{request:?}");
            assert!(refusal(&trusted, &request).is_none());
        }
        let take_over = Request::TakeOver { vote: Vote::default(), last: None };
        assert!(refusal(&trusted, &take_over).is_some());
        assert!(refusal(&stranger, &Request::Status).is_none());
    }
}
