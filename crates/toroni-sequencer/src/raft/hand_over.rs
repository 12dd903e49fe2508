//! A leader hands over on purpose.
//!
//! ```text
//!  leader   takes no entry more ─ waits until b has all ─ shows no life ─ TAKE OVER ─► b
//!  b        waits until the lease of the leader has ended with all ─ has itself elected ─ answers
//! ```
//!
//! Commands wait meanwhile. If b does not lead in time, the leader takes commands again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::office::IN_FLIGHT;
use super::shared::{Shared, failed};
use super::types::{place_of, vote_of};
use crate::entry::{Member, Place, Vote};
use crate::rpc::{Answer, Request};

/// The member may take this long to catch up.
const CATCH_UP_TIME: Duration = Duration::from_secs(5);
/// It may take this long to be elected, once the others may vote.
const ELECTION_TIME: Duration = Duration::from_secs(2);
/// Votes may be on their way for this long before they are asked for again.
const VOTE_TIME: Duration = Duration::from_millis(300);
const AGAIN: Duration = Duration::from_millis(10);

/// While it lives, the leader hands over. Afterwards it shows life again, if it still leads.
struct HandingOver<'a>(&'a Shared);

impl<'a> HandingOver<'a> {
    fn begin(shared: &'a Shared) -> Self {
        shared.hands_over.store(true, Ordering::Relaxed);
        Self(shared)
    }
}

impl Drop for HandingOver<'_> {
    fn drop(&mut self) {
        self.0.raft.runtime_config().heartbeat(true);
        self.0.hands_over.store(false, Ordering::Relaxed);
    }
}

/// While it lives, this member is to lead, and no other.
struct TakingOver<'a>(&'a Shared);

impl<'a> TakingOver<'a> {
    fn begin(shared: &'a Shared) -> Self {
        shared.takes_over.store(true, Ordering::Relaxed);
        Self(shared)
    }
}

impl Drop for TakingOver<'_> {
    fn drop(&mut self) {
        self.0.takes_over.store(false, Ordering::Relaxed);
    }
}

impl Shared {
    fn election_time(&self) -> Duration {
        self.timing.silence() + ELECTION_TIME
    }

    /// Lets the member of this name lead.
    pub(super) async fn hand_over(&self, name: &str) -> Answer {
        let Ok(_only) = self.handing_over.try_lock() else {
            return failed("the leader hands over already");
        };
        if let Err(answer) = self.leads().await {
            return answer;
        }
        let members = self.members();
        let Some((&id, member)) = members.members.iter().find(|(_, member)| member.name == name)
        else {
            return failed(format!("there is no member {name}"));
        };
        if id == self.id {
            return Answer::Done;
        }
        if !members.voters.iter().all(|set| set.contains(&id)) {
            return failed(format!("{name} has no vote yet"));
        }
        match self.hand_over_to(id, member).await {
            Ok(()) => Answer::Done,
            Err(reason) => failed(format!("{name} does not lead: {reason}")),
        }
    }

    async fn hand_over_to(&self, id: u64, member: &Member) -> Result<(), String> {
        let _handing_over = HandingOver::begin(self);
        let permits = self.permits();
        let all = u32::try_from(IN_FLIGHT).unwrap_or(u32::MAX);
        // What is under way is finished, and nothing else begun.
        let _none = match timeout(CATCH_UP_TIME, permits.acquire_many(all)).await {
            Ok(Ok(all)) => all,
            Ok(Err(_)) => return Err("the leader does not lead any more".to_owned()),
            Err(_) => return Err("entries are under way that no majority has".to_owned()),
        };
        let has_all = timeout(CATCH_UP_TIME, async {
            while self.behind(id) != Some(0) {
                sleep(AGAIN).await;
            }
        });
        if has_all.await.is_err() {
            return Err(match self.behind(id) {
                Some(entries) => format!("it is {entries} entries behind"),
                None => "it takes no entries".to_owned(),
            });
        }
        let vote = vote_of(&self.raft.metrics().borrow().vote);
        let request = Request::TakeOver { vote, last: self.log.ends().1 };
        self.raft.runtime_config().heartbeat(false);
        let link = self.peers.signals(id, member);
        match timeout(2 * self.election_time(), link.call(&request)).await {
            Ok(Ok(Answer::Done)) => {}
            Ok(Ok(Answer::Failed(reason))) => return Err(reason),
            Ok(Ok(_)) => return Err("it answered another question".to_owned()),
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err("it did not answer".to_owned()),
        }
        // What waits is proposed again only when it is known that another one leads.
        let follows = timeout(self.election_time(), async {
            while self.raft.metrics().borrow().current_leader == Some(self.id) {
                sleep(AGAIN).await;
            }
        });
        follows.await.map_err(|_| "it has not shown that it does".to_owned())
    }

    /// Has this member elected, as its leader asks for.
    pub(super) async fn take_over(&self, from: u64, vote: Vote, last: Option<Place>) -> Answer {
        let knows = |vote: Vote| {
            let metrics = self.raft.metrics().borrow().clone();
            metrics.current_leader == Some(from) && vote_of(&metrics.vote) == vote
        };
        if !knows(vote) || self.log.ends().1 < last {
            return failed("it follows another leader, or lacks entries");
        }
        if let Some(reason) = self.cannot_lead() {
            return failed(reason);
        }
        let _taking_over = TakingOver::begin(self);
        let begun = Instant::now();
        while begun.elapsed() < self.election_time() {
            if self.raft.metrics().borrow().current_leader == Some(self.id) {
                return Answer::Done;
            }
            // Others hold to the leader for as long, so asking them earlier is in vain.
            let wait = self.timing.silence().saturating_sub(self.heard().elapsed());
            if wait > Duration::ZERO {
                sleep(wait).await;
                continue;
            }
            if let Err(error) = self.raft.trigger().elect().await {
                return failed(error);
            }
            let elected = timeout(VOTE_TIME, async {
                while self.raft.metrics().borrow().current_leader != Some(self.id) {
                    sleep(AGAIN).await;
                }
            });
            let _ = elected.await;
        }
        failed("it was not elected in time")
    }

    /// Hands over to a member whose disk has room, since this one's has none.
    pub(super) async fn give_way(self: Arc<Self>) {
        let members = self.members();
        for (id, state) in self.peers.lately() {
            if let Some(member) = members.members.get(&id)
                && !state.is_full
                && !state.is_uncertain
                && self.hand_over(&member.name).await == Answer::Done
            {
                return;
            }
        }
    }

    /// How many entries a member lacks, if this one leads and has heard from it.
    pub(super) fn behind(&self, id: u64) -> Option<u64> {
        let metrics = self.raft.metrics().borrow().clone();
        let has = metrics.replication?.get(&id).copied().flatten();
        let last = self.log.ends().1.map_or(0, |last| last.index + 1);
        Some(last.saturating_sub(has.map(|id| place_of(&id).index)? + 1))
    }
}
