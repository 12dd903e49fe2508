//! Whether a member is in contact: a leader with a majority, and any other member with its leader.
//!
//! A leader that hears no majority is still a leader, and shows that it lives: another member that comes back may need it.
//! But nothing that it takes becomes part of the order, so it takes nothing, and does not say that it leads.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use openraft::LogId;
use tokio::time::{Instant, timeout};

use super::office::{Metrics, vote_in_office};
use super::peers::{NOW, is_majority};
use super::shared::{Shared, failed};
use super::timing::Timing;
use crate::entry::{Members, Vote};
use crate::rpc::Answer;

/// A leader is in contact again after this many acknowledgements in a row.
const IN_A_ROW: u32 = 3;

/// What a leader knows of its majority.
pub(super) struct Contact(Mutex<State>);

struct State {
    /// The office, and where its members were set. For others, it has to be acknowledged again.
    of: Option<(Vote, Option<LogId<u64>>)>,
    /// When a majority acknowledged last that this member leads.
    acknowledged: Instant,
    /// Since it was isolated last.
    in_a_row: u32,
}

impl Contact {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State { of: None, acknowledged: Instant::now(), in_a_row: IN_A_ROW }))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes what openraft reports of a leader: how long ago a majority has acknowledged it, and of what.
    fn note(
        &mut self,
        of: (Vote, Option<LogId<u64>>),
        ago: Option<Duration>,
        now: Instant,
        timing: &Timing,
    ) {
        if self.of.is_none_or(|(office, _)| office != of.0) {
            self.in_a_row = IN_A_ROW;
        }
        if self.of != Some(of) {
            // Those who are to acknowledge have the time that they always have.
            (self.of, self.acknowledged) = (Some(of), now);
        }
        let at = ago.and_then(|ago| now.checked_sub(ago));
        // The report is in milliseconds, so one acknowledgement may seem to move by some.
        if let Some(at) = at.filter(|at| *at > self.acknowledged + timing.heartbeat / 4) {
            self.acknowledged = at;
            self.in_a_row = self.in_a_row.saturating_add(1);
        }
        self.look(now, timing);
    }

    /// Sees whether the last acknowledgement is too old.
    fn look(&mut self, now: Instant, timing: &Timing) {
        if now.duration_since(self.acknowledged) > timing.isolated() {
            self.in_a_row = 0;
        }
    }
}

impl Shared {
    /// Returns when a leader's majority was heard last, or the leader of any other member, and whether that is too long
    /// ago.
    pub(super) fn contact(&self) -> (Duration, bool) {
        let metrics = self.raft.metrics();
        let office = vote_in_office(&metrics.borrow());
        let Some(office) = office else {
            let since = self.heard().elapsed();
            return (since, since > 2 * self.timing.silence());
        };
        let contact = self.contact.lock();
        if contact.of.is_none_or(|(known, _)| known != office) {
            // The office has just begun.
            return (Duration::ZERO, false);
        }
        let since = contact.acknowledged.elapsed();
        (since, contact.in_a_row < IN_A_ROW || since > self.timing.isolated())
    }

    /// Returns why this member takes no commands although it leads, or belongs to no group although there is one.
    pub(super) fn hindrance(&self) -> Option<String> {
        if self.peers.has_begun_elsewhere() {
            return Some(
                "its log is empty, and the group has begun: add it with toroni sequencer members add; if it belonged to the \
                 group before, remove it first"
                    .to_owned(),
            );
        }
        let leads = vote_in_office(&self.raft.metrics().borrow()).is_some();
        if !leads || !self.contact().1 {
            return None;
        }
        let members = self.members();
        if !self.reaches_majority(&members) {
            return Some("it hears no majority".to_owned());
        }
        // The network is not the reason.
        let full = self.peers.lately().into_iter().filter(|(_, state)| state.is_full);
        let full = full.filter_map(|(id, _)| Some(members.members.get(&id)?.name.as_str()));
        let full: Vec<&str> = full.collect();
        Some(match &full[..] {
            [] => "no majority takes its entries".to_owned(),
            [one] => format!("the disk of {one} is full, and no majority takes its entries"),
            more => format!("the disks of {} are full", more.join(" and ")),
        })
    }

    /// Answers commands that come while this member is out of contact. If the network is not the reason, no other member is
    /// to be asked for.
    pub(super) fn takes_nothing(&self) -> Answer {
        match self.hindrance() {
            Some(why) if self.reaches_majority(&self.members()) => {
                failed(format!("the leader takes no commands: {why}"))
            }
            _ => Answer::NotLeader(None),
        }
    }

    /// Whether the network is no reason for what a leader lacks: a majority answers, though it may take no entries.
    fn reaches_majority(&self, members: &Members) -> bool {
        is_majority(members, &self.peers.heard_within(NOW))
    }

    fn note_contact(&self, metrics: Option<&Metrics>) {
        let (now, mut contact) = (Instant::now(), self.contact.lock());
        // It shows no life, so no member answers.
        if self.hands_over.load(Ordering::Relaxed) {
            contact.acknowledged = now;
            return;
        }
        match metrics.map(|metrics| (metrics, vote_in_office(metrics))) {
            Some((metrics, Some(vote))) => {
                let of = (vote, *metrics.membership_config.log_id());
                let ago = metrics.millis_since_quorum_ack.map(Duration::from_millis);
                contact.note(of, ago, now, &self.timing);
            }
            Some((_, None)) => contact.of = None,
            // Nothing new is known, for example because openraft waits for the disk. Time passes all the same.
            None => contact.look(now, &self.timing),
        }
    }
}

/// Notes what the metrics say of the contact, and counts elections.
pub(super) async fn watch(shared: Arc<Shared>) {
    let mut metrics = shared.raft.metrics();
    let mut known = None;
    loop {
        match timeout(shared.timing.heartbeat, metrics.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return,
            Err(_) => {
                shared.note_contact(None);
                continue;
            }
        }
        let metrics = metrics.borrow_and_update();
        shared.note_contact(Some(&metrics));
        let now = metrics.current_leader.map(|leader| (metrics.current_term, leader));
        if now.is_some() && now != known {
            known = now;
            shared.elections.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;
    const OFFICE: Vote = Vote { term: 3, candidate: 1, committed: true };

    /// What a leader reports each 50 ms, as milliseconds since the last acknowledgement, and whether it is isolated then.
    fn reports(reports: impl IntoIterator<Item = Option<u64>>) -> Vec<bool> {
        let timing = Timing::default();
        let start = Instant::now();
        let Contact(state) = Contact::new();
        let mut state = state.into_inner().expect("not poisoned");
        let mut found = vec![];
        for (round, ago) in (0..).zip(reports) {
            let now = start + round * MS(50);
            state.note((OFFICE, None), ago.map(MS), now, &timing);
            found.push(state.in_a_row < IN_A_ROW);
        }
        found
    }

    #[test]
    fn a_leader_is_isolated_after_two_leases_and_no_more_after_three_acknowledgements() {
        // Never acknowledged: counted from the begin of the office.
        let never = reports([None; 20]);
        assert_eq!(never.iter().position(|is| *is), Some(13), "after more than 600 ms");
        // Acknowledged until 100 ms, then not for 700, then again. A report in milliseconds may be off by one.
        let mut ago: Vec<_> = [0, 0, 0].map(Some).into();
        ago.extend((1..=14).map(|round| Some(round * 50 + round % 2)));
        ago.extend([5, 5, 5, 5].map(Some));
        let found = reports(ago);
        assert!(found[..15].iter().all(|is| !is), "{found:?}");
        assert_eq!(found[15..], [true, true, true, true, false, false], "{found:?}");
        // One that comes at times does not end it.
        let rare = (0..200).map(|round| Some(round % 14 * 50));
        let found = reports(rare);
        assert!(found[20..].iter().all(|is| *is), "{found:?}");
    }

    #[test]
    fn other_members_have_to_acknowledge_anew_in_the_same_time() {
        let timing = Timing::default();
        let mut state = Contact::new().0.into_inner().expect("not poisoned");
        let now = Instant::now();
        state.note((OFFICE, None), Some(MS(0)), now, &timing);
        let at = LogId::new(openraft::CommittedLeaderId::new(3, 1), 9);
        for (after, isolated) in [(500, false), (1_000, false), (1_150, true)] {
            state.note((OFFICE, Some(at)), None, now + MS(after), &timing);
            assert_eq!(state.in_a_row < IN_A_ROW, isolated, "after {after} ms");
        }
    }
}
