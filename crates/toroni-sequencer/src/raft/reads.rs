//! Quorum reads: this member asks a majority whether it leads, and has then applied everything that was committed before it
//! was asked. What decides what is sent next is answered from such a read, never from a lease.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use openraft::error::{CheckIsLeaderError, RaftError};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::office::{ended, vote_in_office};
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

/// The reads of a member. A read takes a message to each member, so one serves all that wait for it. It is made by a task of its own,
/// so that it goes on when those who wait for it give up.
pub(super) struct Reads {
    asked: watch::Sender<u64>,
    done: watch::Sender<Done>,
}

/// The last read.
struct Done {
    /// It began after this many were asked for.
    serves: u64,
    found: Result<(), Answer>,
}

impl Default for Reads {
    fn default() -> Self {
        let done = Done { serves: 0, found: Err(failed("no majority was asked yet")) };
        Self { asked: watch::Sender::new(0), done: watch::Sender::new(done) }
    }
}

/// Asks a majority whenever that is asked for.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut asked = shared.reads.asked.subscribe();
    let mut metrics = shared.raft.metrics();
    let mut served = 0;
    loop {
        let Ok(serves) = asked.wait_for(|asked| *asked > served).await.map(|asked| *asked) else {
            return;
        };
        served = if mutant("a_read_for_each") { served + 1 } else { serves };
        let vote = vote_in_office(&metrics.borrow_and_update());
        let found = match vote {
            // openraft waits without end for what the office has proposed, which a later leader may replace.
            Some(vote) => tokio::select! {
                found = shared.ask_majority() => found,
                () = ended(&mut metrics, vote) => Err(shared.not_leader()),
            },
            None => Err(shared.not_leader()),
        };
        shared.reads.done.send_replace(Done { serves: served, found });
    }
}

impl Shared {
    async fn ask_majority(&self) -> Result<(), Answer> {
        // A question is a sign of life, which is not to be shown now.
        if self.hands_over.load(Ordering::Relaxed) {
            return Err(failed("the leader hands over"));
        }
        match self.raft.ensure_linearizable().await {
            Ok(_) => Ok(()),
            Err(RaftError::APIError(CheckIsLeaderError::ForwardToLeader(_))) => {
                Err(self.not_leader())
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Asks a majority once, or waits for a read that begins after this call.
    pub(super) async fn read_from_quorum(&self) -> Result<(), Answer> {
        let mut done = self.reads.done.subscribe();
        let mut own = 0;
        self.reads.asked.send_modify(|asked| {
            *asked += 1;
            own = *asked;
        });
        let serves = |done: &Done| done.serves >= own || mutant("read_of_before");
        match done.wait_for(serves).await {
            Ok(done) => done.found.clone(),
            Err(_) => Err(failed("the member ends")),
        }
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
