//! When a member has itself elected.
//!
//! openraft draws one time for the life of a process, so two members whose times are close split the votes again and again.
//! Here, those who are left take turns: the next one after the lost leader first, as soon as the others may vote. One that
//! learns that another has a longer log gives way to it.
//!
//! Before an election, a member asks the others whether they would vote for it (Ongaro: "Consensus: Bridging Theory and Practice",
//! section 9.6). An election is held only if a majority would. The question compares no terms and changes nothing, so it can
//! only keep elections from being held.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::office::vote_in_office;
use super::peers::is_majority;
use super::shared::Shared;
use super::timing::Timing;
use crate::entry::Place;
use crate::hook::mutant;
use crate::rpc::{Answer, Request};

const TICK: Duration = Duration::from_millis(10);
const MOST_DOUBLINGS: u32 = 1;

/// Until when this member does not try, whatever it hears.
pub(super) struct Patience {
    until: Mutex<Instant>,
    gives_way: Duration,
}

impl Patience {
    pub(super) fn new(timing: &Timing) -> Self {
        Self { until: Mutex::new(Instant::now()), gives_way: timing.gives_way() }
    }

    fn set(&self, wait: Duration) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + wait;
    }

    /// Sets the time to wait, unless it is longer already.
    fn at_least(&self, wait: Duration) {
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        *until = (*until).max(Instant::now() + wait);
    }

    fn is_over(&self) -> bool {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) <= Instant::now()
    }

    /// Notes up to where another member has the log, which asks for votes or was asked. One with more can be elected, and
    /// this one cannot: each of its attempts would only take the other one's term away.
    pub(super) fn compare(&self, own: Option<Place>, other: Option<Place>) {
        if other > own {
            self.set(self.gives_way);
        }
    }

    /// Notes that a vote was refused by a member with no more entries than this one, because of its term. That is known now.
    pub(super) fn hurry(&self) {
        self.set(TICK);
    }
}

/// Has this member elected whenever no leader was heard for too long.
pub(super) async fn run(shared: Arc<Shared>) {
    let random = RandomState::new();
    let mut attempts = 0_u32;
    loop {
        sleep(TICK).await;
        let Some(silence) = silence(&shared) else { continue };
        if shared.since_leader() < silence || shared.installs() {
            attempts = 0;
            continue;
        }
        if !shared.patience.is_over() || shared.takes_over.load(Ordering::Relaxed) {
            continue;
        }
        if !shared.is_alone() && shared.cannot_lead().is_some() {
            continue;
        }
        if !would_win(&shared).await {
            // Asking changes nothing, so it is soon done again.
            shared.patience.at_least(shared.timing.turn());
            continue;
        }
        let again = shared.timing.again() * (1 << attempts.min(MOST_DOUBLINGS));
        let jitter = u32::try_from(random.hash_one(Instant::now()) % 1024).unwrap_or(0);
        shared.patience.set(again + again * jitter / 1024);
        attempts += 1;
        if shared.raft.trigger().elect().await.is_err() {
            return;
        }
    }
}

/// Whether a majority would vote for this member now. Without that question, a member that cannot win would end the term of a
/// leader that the others hear.
async fn would_win(shared: &Shared) -> bool {
    let members = shared.members();
    let last = shared.log.glance().last;
    let voters: BTreeSet<u64> = members.voters.iter().flatten().copied().collect();
    let mut asked = JoinSet::new();
    for (id, member) in members.members.iter().filter(|(id, _)| voters.contains(id)) {
        if *id != shared.id {
            let (id, link) = (*id, shared.peers.signals(*id, member));
            asked.spawn(async move { (id, link.call(&Request::Probe(last)).await) });
        }
    }
    let mut yes = BTreeSet::from([shared.id]);
    let wins = async {
        while !is_majority(&members, &yes) {
            match asked.join_next().await {
                None => return false,
                Some(Ok((id, Ok(Answer::Probed { yes: true, .. })))) => drop(yes.insert(id)),
                Some(Ok((_, Ok(Answer::Probed { last: other, .. })))) => {
                    shared.patience.compare(last, other);
                }
                Some(_) => {}
            }
        }
        true
    };
    timeout(shared.timing.lease(), wins).await.unwrap_or(false) || mutant("no_pre_vote")
}

impl Shared {
    /// How long ago the leader was heard. One that says that it has no majority counts as heard a lease ago: others may reach
    /// more members than it does.
    fn since_leader(&self) -> Duration {
        let leader = self.raft.metrics().borrow().current_leader;
        let lacks_majority = leader.and_then(|leader| self.peers.lacks_majority(leader));
        let heard = self.heard().elapsed();
        let lacks_majority = lacks_majority.filter(|_| !mutant("leader_without_majority_counts"));
        lacks_majority.map_or(heard, |since| heard.max(since + self.timing.lease()))
    }

    /// Says whether this member would vote for one whose log ends at `last`.
    pub(super) fn probe(&self, last: Option<Place>) -> Answer {
        let own = self.log.glance();
        let yes = own.last <= last
            && !own.is_uncertain
            && self.peers.may_vote()
            && !self.holds_to_leader()
            || mutant("probe_says_yes");
        Answer::Probed { yes, last: own.last }
    }

    /// Whether there is a leader that another member must not replace: this one, the one that it hears, or the one that it is about to
    /// become.
    fn holds_to_leader(&self) -> bool {
        if self.hands_over.load(Ordering::Relaxed) || self.takes_over.load(Ordering::Relaxed) {
            return true;
        }
        if vote_in_office(&self.raft.metrics().borrow()).is_some() {
            return !self.contact().1;
        }
        self.installs() || self.since_leader() < self.timing.lease()
    }
}

/// How long this member waits for a sign of a leader. None if it leads, or has no vote.
fn silence(shared: &Shared) -> Option<Duration> {
    let metrics = shared.raft.metrics();
    let metrics = metrics.borrow();
    if metrics.state.is_leader() {
        return None;
    }
    let voters: Vec<u64> = metrics.membership_config.membership().voter_ids().collect();
    let last = metrics.vote.leader_id.node_id;
    let turn = turn(&voters, last, shared.id)?;
    let turns = u32::try_from(turn).unwrap_or(u32::MAX);
    let timing = &shared.timing;
    Some(if voters.len() == 1 { Duration::ZERO } else { timing.silence() + turns * timing.turn() })
}

/// How many of the voters have their turn between the last leader and this member. None if this one has no vote.
fn turn(voters: &[u64], leader: u64, own: u64) -> Option<usize> {
    voters.contains(&own).then_some(())?;
    // The distance on a circle of ids, with the leader itself at the end.
    let after = |id: u64| id.wrapping_sub(leader).wrapping_sub(1);
    Some(voters.iter().filter(|id| after(**id) < after(own)).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_are_left_take_turns() {
        let turns = |leader| [0, 1, 2].map(|own| turn(&[0, 1, 2], leader, own).expect("a voter"));
        assert_eq!(turns(0), [2, 0, 1]);
        assert_eq!(turns(1), [1, 2, 0]);
        assert_eq!(turns(2), [0, 1, 2]);
        assert_eq!(turn(&[0, 2], 1, 1), None);
        assert_eq!(turn(&[0, 2], 1, 2), Some(0));
    }
}
