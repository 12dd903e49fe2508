//! Quorum reads: this member asks a majority whether it leads, and has then applied everything that was committed before it
//! was asked. What decides what is sent next is answered from such a read, never from a lease.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use openraft::error::{CheckIsLeaderError, RaftError};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use super::shared::{Shared, failed};
use super::types::vote_of;
use crate::hook::mutant;
use crate::rpc::Answer;

/// How long a leader tries before it says that no majority answers. One attempt of openraft ends after a heartbeat, which
/// the sync of a slow disk outlasts.
pub(super) const READ_TIME: Duration = Duration::from_millis(500);
/// The same for those who want to know how the group is.
const CONFIRM_TIME: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(10);

/// The reads of a member. A read takes a message to each member, so one serves all that wait for it.
#[derive(Default)]
pub(super) struct Reads {
    asked: AtomicU64,
    last: Mutex<Last>,
}

/// The last read.
#[derive(Default)]
struct Last {
    /// It began after this many were asked for.
    serves: u64,
    found: Option<Result<(), Answer>>,
}

impl Shared {
    /// Asks a majority once, unless a read that begins after this call serves it, too.
    pub(super) async fn read_from_quorum(&self) -> Result<(), Answer> {
        let own = self.reads.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let mut last = self.reads.last.lock().await;
        if (last.serves >= own || mutant("read_of_before"))
            && let Some(found) = &last.found
        {
            return found.clone();
        }
        let serves = match mutant("a_read_for_each") {
            true => own,
            false => self.reads.asked.load(Ordering::Relaxed),
        };
        let found = match self.raft.ensure_linearizable().await {
            Ok(_) => Ok(()),
            Err(RaftError::APIError(CheckIsLeaderError::ForwardToLeader(_))) => {
                Err(self.not_leader())
            }
            Err(error) => Err(failed(error)),
        };
        // Only now: who gives up this call leaves nothing behind.
        *last = Last { serves, found: Some(found.clone()) };
        found
    }

    /// Makes sure that this member leads, and that everything that was committed before is applied.
    pub(super) async fn leads(&self) -> Result<(), Answer> {
        self.leads_within(READ_TIME).await
    }

    async fn leads_within(&self, limit: Duration) -> Result<(), Answer> {
        let reads = timeout(limit, async {
            loop {
                match self.read_from_quorum().await {
                    Err(Answer::Failed(_)) => sleep(AGAIN).await,
                    found => return found,
                }
            }
        });
        reads.await.unwrap_or_else(|_| Err(failed("no majority of the members answers")))
    }

    /// Returns the term in which this member leads, as a majority has just confirmed.
    pub(super) async fn confirm(&self) -> Answer {
        if let Err(answer) = self.leads_within(CONFIRM_TIME).await {
            return answer;
        }
        // After the read: a later vote for this member was given by a majority, too.
        match self.raft.with_raft_state(|state| vote_of(state.vote_ref())).await {
            Ok(vote) if vote.committed && vote.candidate == self.id => Answer::Confirmed(vote.term),
            Ok(_) => self.not_leader(),
            Err(error) => failed(error),
        }
    }
}
