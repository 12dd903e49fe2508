//! A member whose host rebooted before everything it had answered for was synced. It may lack committed entries, so it
//! neither votes nor leads, until a leader has brought it everything that this leader had at a time after the reboot.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::peers::is_majority;
use super::shared::Shared;
use crate::entry::{Members, Vote};
use crate::log::{Log, LogError};
use crate::rpc::{Answer, Request, Status};
use crate::say::say;

const AGAIN: Duration = Duration::from_millis(50);
/// A member that does not report its status for this long counts as away.
const ANSWER_TIME: Duration = Duration::from_millis(500);
/// After this long, the leader is asked again how far it is: it may be another one.
const CATCH_UP_TIME: Duration = Duration::from_secs(10);

/// A leader that comes back continues to lead at once. One that may lack entries must not. So it votes for itself in
/// the next term without asking another member, which ends its own term.
pub(super) fn abdicate(log: &Log, id: u64) -> Result<(), LogError> {
    let term = log.vote().map_or(0, |vote| vote.term);
    log.save_vote(Vote { term: term + 1, candidate: id, committed: false })
}

/// Whenever the log is uncertain, waits until the member lacks nothing, and lets it take part then.
pub(super) async fn run(shared: Arc<Shared>) {
    loop {
        resolve(&shared).await;
        shared.doubted.notified().await;
    }
}

async fn resolve(shared: &Shared) {
    while shared.log.is_uncertain() {
        sleep(AGAIN).await;
        let members = shared.members();
        if shared.is_alone() {
            // No other member has what it lacks. It begins a new series when it leads; see `propose.rs`.
            return;
        }
        let (leader, term) = {
            let metrics = shared.raft.metrics();
            let metrics = metrics.borrow();
            (metrics.current_leader, metrics.current_term)
        };
        if let Some(leader) = leader.filter(|leader| *leader != shared.id)
            && brought_up(shared, &members, leader, term).await
        {
            if shared.log.settle().is_ok() {
                shared.needs_recovery.store(false, Ordering::Relaxed);
                say("the log is complete again, and the member votes");
            }
            continue;
        }
        let is_stuck = is_stuck(shared, &members).await;
        if is_stuck && !shared.needs_recovery.swap(is_stuck, Ordering::Relaxed) {
            say("too many members may have lost events in a reboot, and none can be elected: \
                 `toroni sequencer recover` begins a new group from one of the logs");
        }
    }
}

async fn ask(shared: &Shared, members: &Members, id: u64) -> Option<Status> {
    let link = shared.peers.signals(id, members.members.get(&id)?);
    match timeout(ANSWER_TIME, link.call(&Request::Status)).await {
        Ok(Ok(Answer::Status(status))) => Some(*status),
        _ => None,
    }
}

/// Whether the leader has brought everything that it has now.
async fn brought_up(shared: &Shared, members: &Members, leader: u64, term: u64) -> bool {
    let Some(status) = ask(shared, members, leader).await else { return false };
    // A leader of an earlier term has nothing that this member lacks. In a later term, this member has answered
    // nothing.
    if status.leader != Some(leader) || status.term != term {
        return false;
    }
    let Some(last) = status.last else { return false };
    let wanted = Vote { term, candidate: leader, committed: true };
    let begun = Instant::now();
    while begun.elapsed() < CATCH_UP_TIME {
        match shared.matched() {
            Some((vote, index)) if vote == wanted && index >= last.index => return true,
            Some((vote, _)) if vote != wanted && vote.term > term => return false,
            _ => sleep(AGAIN).await,
        }
    }
    false
}

/// Whether too few voters are left that could elect a leader, though they live.
async fn is_stuck(shared: &Shared, members: &Members) -> bool {
    let mut certain: BTreeSet<u64> = members.voters.iter().flatten().copied().collect();
    certain.remove(&shared.id);
    for &id in members.members.keys().filter(|id| **id != shared.id) {
        match ask(shared, members, id).await {
            Some(status) if status.leader == Some(id) => return false,
            Some(status) if status.uncertain => {
                certain.remove(&id);
            }
            _ => {}
        }
    }
    !is_majority(members, &certain)
}
