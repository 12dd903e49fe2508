//! Who belongs to the group: its beginning, and changes of its members.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use openraft::error::{ClientWriteError, RaftError};
use openraft::{ChangeMembers, LogId};
use tokio::time::{Instant, sleep, timeout};

use super::office::vote_in_office;
use super::peers::has_majority;
use super::shared::{Shared, failed, forwarded};
use crate::entry::{MAX_MEMBERS, MAX_TEXT_BYTES, Member, Members};
use crate::hook::mutant;
use crate::rpc::{Answer, Link, Request, identify};
use crate::say::say;

/// The leader waits this long for a majority to accept a change. A later majority may still make it happen.
const CHANGE_TIME: Duration = Duration::from_secs(10);
/// A new member that takes no entry for this long is left without a vote.
const CATCH_UP_TIME: Duration = Duration::from_secs(10);
/// A member that has not answered within this time does not count.
const PREFLIGHT_TIME: Duration = Duration::from_secs(1);
/// A change that was begun, and that this leader has not begun itself, is finished after this time.
const FINISH_AFTER: Duration = Duration::from_secs(1);
/// A new member is near enough if it lacks at most this many entries: what is left is on its way.
const NEAR: u64 = 16;

impl Shared {
    /// Begins a group. The id of each log is asked for at its address, so that later no other log joins under its name.
    pub(super) async fn init(&self, members: Members) -> Answer {
        if let Some(wrong) = members.members.values().find_map(|member| unfit(member)) {
            return failed(wrong);
        }
        let mut found: BTreeMap<u64, Member> = BTreeMap::new();
        for (id, member) in members.members {
            match identify(&self.peers.target(&member.address, None)).await {
                Ok(peer) if peer.id == id => found.insert(id, Member { log: peer.log, ..member }),
                Ok(peer) => {
                    return failed(format!(
                        "at {} is member {}, not {id}",
                        member.address, peer.id
                    ));
                }
                Err(error) => return failed(error),
            };
        }
        let logs: BTreeSet<_> = found.values().map(|member| member.log).collect();
        let names: BTreeSet<_> = found.values().map(|member| &member.name).collect();
        if logs.len() != found.len() || !found.contains_key(&self.id) {
            return failed("the members must be different ones, and this one among them");
        }
        if names.len() != found.len() {
            return failed("two of the members have the same name");
        }
        for (_, member) in found.iter().filter(|(id, _)| **id != self.id) {
            if let Err(reason) = self.is_empty(member).await {
                return failed(reason);
            }
        }
        self.raft.initialize(found).await.map_or_else(failed, |()| Answer::Done)
    }

    /// Takes a member into the group: first without a vote, and with one when it has the log.
    pub(super) async fn add(&self, name: String, address: String) -> Answer {
        let Ok(_change) = self.changing.try_lock() else { return is_changing() };
        let mut member = Member { name, address, log: [0; 16] };
        if let Some(wrong) = unfit(&member) {
            return failed(wrong);
        }
        if let Err(answer) = self.leads().await {
            return answer;
        }
        let peer = match identify(&self.peers.target(&member.address, None)).await {
            Ok(peer) => peer,
            Err(error) => return failed(error),
        };
        member.log = peer.log;
        let id = peer.id;
        match may_join(&self.members(), id, &member) {
            Err(reason) => return failed(reason),
            Ok(Standing::Votes) => return Answer::Done,
            // An earlier attempt ended before it had caught up.
            Ok(Standing::Learns) => {}
            Ok(Standing::New) => {
                if let Err(reason) = self.is_empty(&member).await {
                    return failed(reason);
                }
                let nodes = ChangeMembers::AddNodes(BTreeMap::from([(id, member.clone())]));
                if let Some(answer) = self.change(nodes).await {
                    return answer;
                }
            }
        }
        if !self.catches_up(id).await {
            return failed(format!(
                "{} does not take the log: it stays without a vote until it is added again, or removed",
                member.name
            ));
        }
        if let Err(reason) = self.can_be(|set| set.insert(id)).await {
            return failed(reason);
        }
        let voters = ChangeMembers::AddVoterIds(BTreeSet::from([id]));
        self.change(voters).await.unwrap_or(Answer::Done)
    }

    /// Removes a member from the group, whether it lives or not.
    pub(super) async fn remove(&self, name: &str) -> Answer {
        let Ok(_change) = self.changing.try_lock() else { return is_changing() };
        if let Err(answer) = self.leads().await {
            return answer;
        }
        let Members { voters, members } = self.members();
        let Some((&id, _)) = members.iter().find(|(_, member)| member.name == name) else {
            return failed(format!("there is no member {name}"));
        };
        if id == self.id {
            return failed(format!("{name} leads: let another member lead first"));
        }
        let ids = BTreeSet::from([id]);
        let changes = if voters.iter().any(|set| set.contains(&id)) {
            if let Err(reason) = self.can_be(|set| set.remove(&id)).await {
                return failed(reason);
            }
            ChangeMembers::RemoveVoters(ids)
        } else {
            ChangeMembers::RemoveNodes(ids)
        };
        self.change(changes).await.unwrap_or(Answer::Done)
    }

    /// Makes sure that a majority of the voters before a change, and of those after it, answers now. A change needs both to end.
    /// Without the second, it could be neither finished nor taken back.
    async fn can_be(&self, change: impl FnOnce(&mut BTreeSet<u64>) -> bool) -> Result<(), String> {
        if mutant("change_without_majority") {
            return Ok(());
        }
        let members = self.members();
        let mut after = members.voters.last().cloned().unwrap_or_default();
        change(&mut after);
        let sets = members.voters.iter().chain([&after]);
        let asked = Instant::now();
        loop {
            // Only what was answered since: one that was killed just before has answered lately, too.
            let answer = self.peers.heard_within(asked.elapsed());
            let lacking = sets.clone().find(|set| !has_majority(set, &answer));
            let Some(set) = lacking else { return Ok(()) };
            if asked.elapsed() >= PREFLIGHT_TIME {
                return Err(without_majority(&members, set, &answer));
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Has the group agree on a change. Returns an answer if it did not.
    async fn change(&self, changes: ChangeMembers<u64, Member>) -> Option<Answer> {
        match timeout(CHANGE_TIME, self.raft.change_membership(changes, false)).await {
            Ok(Ok(_)) => None,
            Ok(Err(RaftError::APIError(ClientWriteError::ForwardToLeader(to)))) => {
                Some(forwarded(to))
            }
            Ok(Err(error)) => Some(failed(error)),
            Err(_) => Some(failed(
                "no majority has taken the change yet: see the status for who belongs to the group",
            )),
        }
    }

    /// Waits until a member has nearly all entries. Returns false if it has stopped taking any.
    async fn catches_up(&self, id: u64) -> bool {
        let mut before = None;
        let mut moved = Instant::now();
        while moved.elapsed() < CATCH_UP_TIME {
            let metrics = self.raft.metrics().borrow().clone();
            let Some(replication) = metrics.replication else { return false };
            let has = replication.get(&id).copied().flatten().map(|has| has.index);
            if has.is_some_and(|has| metrics.last_log_index.is_none_or(|last| has + NEAR >= last)) {
                return true;
            }
            if has != before {
                (before, moved) = (has, Instant::now());
            }
            sleep(Duration::from_millis(20)).await;
        }
        false
    }

    /// Entries of another group could have the same places as entries of this one, so only an empty log joins.
    async fn is_empty(&self, member: &Member) -> Result<(), String> {
        let Member { name, address, log } = member;
        // It does not belong to the group yet.
        let link = Link::new(self.peers.target(address, Some(*log)));
        match timeout(CHANGE_TIME, link.call(&Request::Status)).await {
            Ok(Ok(Answer::Status(status))) if status.last.is_none() => Ok(()),
            Ok(Ok(Answer::Status(_))) => Err(format!(
                "the log of {name} at {address} has entries already: start it with an empty directory"
            )),
            _ => Err(format!("{name} at {address} did not say how it is")),
        }
    }
}

/// Finishes changes that an earlier leader has begun. Until then, a majority of the voters before and after the change is
/// needed for everything.
pub(super) async fn complete(shared: Arc<Shared>) {
    let mut since: Option<(LogId<u64>, Instant)> = None;
    let mut said = None;
    loop {
        sleep(FINISH_AFTER / 4).await;
        // Before it is committed, openraft refuses to go on from it.
        let committed = shared.raft.with_raft_state(|state| {
            let committed = state.membership_state.committed();
            let goal = committed.membership().get_joint_config().get(1).cloned();
            committed.log_id().zip(goal)
        });
        let Ok(committed) = committed.await else { return };
        let leads = vote_in_office(&shared.raft.metrics().borrow()).is_some();
        let Some((at, goal)) = committed.filter(|_| leads) else {
            since = None;
            continue;
        };
        let begun = since.filter(|(known, _)| *known == at).map_or_else(Instant::now, |(_, it)| it);
        since = Some((at, begun));
        if begun.elapsed() < FINISH_AFTER || mutant("change_not_finished") {
            continue;
        }
        let Ok(_change) = shared.changing.try_lock() else { continue };
        if said.replace(at) != Some(at) {
            say("finishes a change of the members that was begun");
        }
        // This member may be one that leaves. Its office ends then. What fails is tried again.
        let _ = shared.change(ChangeMembers::ReplaceAllVoters(goal)).await;
    }
}

/// Says which voters are missing for a change.
fn without_majority(members: &Members, set: &BTreeSet<u64>, answer: &BTreeSet<u64>) -> String {
    let name =
        |id: &u64| members.members.get(id).map_or_else(|| id.to_string(), |it| it.name.clone());
    let names = |ids: &mut dyn Iterator<Item = &u64>| ids.map(name).collect::<Vec<_>>();
    let silent = names(&mut set.difference(answer));
    let left = names(&mut set.intersection(answer));
    let all = names(&mut set.iter());
    let verb = if silent.len() == 1 { "does" } else { "do" };
    format!(
        "{} {verb} not answer: with this change, only {} of {{{}}} would be left. Start {}, or remove {} first",
        silent.join(" and "),
        left.join(" and "),
        all.join(", "),
        silent.join(" or "),
        silent.join(" or "),
    )
}

/// Why this is no member, if it is none.
fn unfit(member: &Member) -> Option<&'static str> {
    let Member { name, address, .. } = member;
    (name.is_empty() || name.len() > MAX_TEXT_BYTES || address.len() > MAX_TEXT_BYTES)
        .then_some("a member's name has 1 to 255 bytes, and its address at most 255")
}

fn is_changing() -> Answer {
    failed("another change of the members is under way")
}

/// What a member is to the group.
#[derive(Debug, PartialEq, Eq)]
enum Standing {
    New,
    Learns,
    Votes,
}

/// Checks a member that wants to join against those that belong to the group.
fn may_join(group: &Members, id: u64, member: &Member) -> Result<Standing, String> {
    if id >= MAX_MEMBERS as u64 {
        return Err(format!("at {} is no member", member.address));
    }
    if group.members.get(&id) == Some(member) {
        let votes = group.voters.iter().all(|set| set.contains(&id));
        return Ok(if votes { Standing::Votes } else { Standing::Learns });
    }
    for (known_id, known) in &group.members {
        let what = match () {
            () if known.name == member.name && known.log != member.log => {
                return Err(format!(
                    "{} belongs to the group with another log: remove it first, then add it",
                    known.name
                ));
            }
            () if known.name == member.name => "name",
            () if *known_id == id => "id",
            () if known.address == member.address => "address",
            () if known.log == member.log => "log",
            () => continue,
        };
        return Err(format!(
            "{}, {} at {}, has this {what} already: remove it first",
            known.name, known_id, known.address
        ));
    }
    Ok(Standing::New)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, address: &str, log: u8) -> Member {
        Member { name: name.to_owned(), address: address.to_owned(), log: [log; 16] }
    }

    #[test]
    fn no_two_members_share_anything() {
        let group = Members {
            voters: vec![BTreeSet::from([0])],
            members: BTreeMap::from([(0, member("a", "1:1", 1)), (1, member("b", "1:2", 2))]),
        };
        let join = |id, name, address, log| may_join(&group, id, &member(name, address, log));
        assert_eq!(join(0, "a", "1:1", 1), Ok(Standing::Votes));
        assert_eq!(join(1, "b", "1:2", 2), Ok(Standing::Learns));
        assert_eq!(join(2, "c", "1:3", 3), Ok(Standing::New));
        for (wrong, says) in [
            (join(1, "b", "1:2", 9), "another log"),
            (join(1, "b", "1:9", 2), "name"),
            (join(1, "c", "1:3", 3), "id"),
            (join(2, "c", "1:2", 3), "address"),
            (join(2, "c", "1:3", 2), "log"),
            (join(8, "c", "1:3", 3), "no member"),
        ] {
            assert!(
                wrong.as_ref().is_err_and(|error| error.contains(says)),
                "{wrong:?}, not {says}"
            );
        }
    }
}
