//! When a member has itself elected.
//!
//! openraft draws one time for the life of a process, so two members whose times are close split the votes again and again.
//! Here, those who are left take turns: the next one after the lost leader first, as soon as the others may vote. One that
//! learns that another has a longer log gives way to it.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::shared::Shared;
use super::timing::Timing;
use crate::entry::Place;

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
        if shared.heard().elapsed() < silence || shared.installs() {
            attempts = 0;
            continue;
        }
        if !shared.patience.is_over() {
            continue;
        }
        if !shared.is_alone() && shared.cannot_lead().is_some() {
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
