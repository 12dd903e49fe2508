//! The time in which this member leads: an office. It begins with a committed vote for this member, and ends with any other
//! vote. Whatever counts what is under way belongs to an office, and is gone with it.
//!
//! An office proposes nothing before everything that the log had is committed and applied. A leader that was killed leads on
//! with the same vote when it is started again, and may have entries that no majority has. Without that barrier it could
//! propose as many again, and `recover.rs` would take the first ones for committed.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use openraft::RaftMetrics;
use tokio::sync::{Semaphore, watch};
use tokio::time::sleep;

use super::shared::Shared;
use super::types::vote_of;
use crate::entry::{Member, Vote};
use crate::hook::mutant;
use crate::rpc::Answer;

/// At most this many entries are under way. The rest waits, and is put together meanwhile. `recover.rs` concludes from
/// this number what can be uncommitted in a log.
pub(super) const IN_FLIGHT: usize = 2;
/// How long an entry may be applied before its answer counts as lost.
const LOST_AFTER: Duration = Duration::from_secs(5);

pub(super) type Metrics = RaftMetrics<u64, Member>;

/// Returns the vote with which a member is in office.
pub(super) fn vote_in_office(metrics: &Metrics) -> Option<Vote> {
    let vote = vote_of(&metrics.vote);
    let is_own = vote.committed && vote.candidate == metrics.id;
    (is_own && metrics.state.is_leader() && metrics.running_state.is_ok()).then_some(vote)
}

/// Waits until an office has ended. Votes only grow, so no end is missed, even if metrics are.
pub(super) async fn ended(metrics: &mut watch::Receiver<Metrics>, vote: Vote) {
    while vote_in_office(&metrics.borrow_and_update()) == Some(vote) {
        if metrics.changed().await.is_err() {
            return;
        }
    }
}

impl Shared {
    /// Begins an office. Returns the permits for entries that are under way in it.
    pub(super) fn begin_office(&self) -> Arc<Semaphore> {
        let permits = Arc::new(Semaphore::new(IN_FLIGHT));
        *self.permits.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&permits);
        permits
    }

    /// Returns the permits of the last office. If that has ended, they are closed.
    pub(super) fn permits(&self) -> Arc<Semaphore> {
        Arc::clone(&self.permits.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until everything in the log is committed and applied. Dropped at the end of the office.
    pub(super) async fn pass_barrier(&self) {
        if mutant("no_barrier") {
            return;
        }
        while self.read_from_quorum().await.is_err() {
            sleep(self.timing.heartbeat).await;
        }
        // After the read, so that this is also behind what was proposed just before the office began: openraft takes
        // messages in their order.
        self.applied_all().await;
    }

    /// Waits until everything is applied that the log has now.
    async fn applied_all(&self) {
        let end = self.log.ends().1.map(|last| last.index);
        // It fails only when the member ends.
        let _ = self.raft.wait(None).applied_index_at_least(end, "the end of the log").await;
    }

    /// Returns when an answer for which a caller begins to wait now can no longer come: its entry is applied, and was for
    /// long.
    pub(super) async fn answer_is_lost(&self, after: Duration) {
        sleep(after).await;
        // openraft takes messages in their order, so the entry is in the log now, or was refused.
        if self.raft.with_raft_state(|_| ()).await.is_err() {
            return std::future::pending().await;
        }
        self.applied_all().await;
        sleep(after).await;
    }

    /// Ends the member if an answer was lost, since its caller would wait for ever.
    pub(super) async fn end_if_lost(&self) {
        self.answer_is_lost(LOST_AFTER).await;
        self.end_because(format!(
            "commands were applied {LOST_AFTER:?} ago and more, and no caller has an answer"
        ));
    }

    /// Has the node end this member, for this reason.
    pub(super) fn end_because(&self, reason: String) {
        // The first reason stands.
        let _ = self.problem.set(reason);
    }

    /// Says who leads instead of this member.
    pub(super) fn not_leader(&self) -> Answer {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let other = metrics.current_leader.filter(|leader| *leader != self.id);
        let membership = metrics.membership_config.membership();
        let address = other.and_then(|id| membership.get_node(&id)).map(|it| it.address.clone());
        Answer::NotLeader(other.zip(address))
    }
}
