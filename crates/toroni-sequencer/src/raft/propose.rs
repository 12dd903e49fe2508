//! Batches from all callers become entries: what came while the entries before were under way, up to 256 KiB.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use openraft::error::ClientWriteError;
use openraft::raft::ClientWriteResult;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::shared::{Shared, failed};
use super::types::{Proposal, Types};
use crate::batch::{Batch, Builder, Command};
use crate::machine::Outcome;
use crate::rpc::Answer;

/// At most this many entries are under way. The rest waits, and is put together meanwhile. `recover.rs` concludes from
/// this number what can be uncommitted in a log.
pub(super) const IN_FLIGHT: usize = 2;
/// At most this many batches wait. Then connections are not read any further.
pub(super) const WAITING: usize = 64;
/// A leader without room looks for another one at most this often.
const GIVE_WAY_AGAIN: Duration = Duration::from_secs(5);

pub(super) struct Submitted {
    pub(super) batch: Arc<[u8]>,
    pub(super) answer: oneshot::Sender<Answer>,
}

/// What the next entry is made of.
#[derive(Default)]
struct Next {
    builder: Builder,
    /// How many commands of the leader itself come first.
    own: usize,
    submitters: Vec<(usize, oneshot::Sender<Answer>)>,
}

impl Next {
    /// Takes a batch, or gives it back because the entry is full.
    fn take(&mut self, submitted: Submitted) -> Option<Submitted> {
        // It was checked when it arrived.
        let Ok(batch) = Batch::check(&submitted.batch) else { return None };
        if batch.commands().any(|(command, _)| matches!(command, Command::Begin { .. })) {
            let _ = submitted.answer.send(failed("only the leader begins a series of the feed"));
            return None;
        }
        if !self.builder.extend(batch) {
            return Some(submitted);
        }
        self.submitters.push((usize::from(batch.count()), submitted.answer));
        None
    }

    fn refuse(self, answer: &Answer) {
        for (_, submitter) in self.submitters {
            let _ = submitter.send(answer.clone());
        }
    }
}

pub(super) async fn run(shared: Arc<Shared>, mut queue: mpsc::Receiver<Submitted>) {
    let mut metrics = shared.raft.metrics();
    let mut checked_term = None;
    let mut gave_way: Option<Instant> = None;
    let mut left_over = None;
    loop {
        let mut first = left_over.take();
        if first.is_none() {
            tokio::select! {
                submitted = queue.recv() => match submitted {
                    Some(submitted) => first = Some(submitted),
                    None => return,
                },
                changed = metrics.changed() => if changed.is_err() { return },
            }
        }
        let leads = {
            let metrics = metrics.borrow_and_update();
            (metrics.current_leader == Some(shared.id)).then_some(metrics.current_term)
        };
        let mut next = Next::default();
        if leads.is_some() && leads != checked_term && shared.leads().await.is_ok() {
            checked_term = leads;
            if let Some(series) = shared.wanted_series()
                && next.builder.push(&Command::Begin { series }).is_ok()
            {
                next.own = 1;
            }
        }
        if first.is_none() && next.own == 0 {
            continue;
        }
        let Ok(permit) = shared.in_flight.acquire().await else { return };
        while let Some(submitted) = first.take().or_else(|| queue.try_recv().ok()) {
            left_over = next.take(submitted);
            if left_over.is_some() {
                break;
            }
        }
        if next.builder.is_empty() {
            continue;
        }
        if !shared.has_room(next.builder.len() + 128) {
            next.refuse(&failed("the leader's disk is full"));
            if leads.is_some() && gave_way.is_none_or(|at| at.elapsed() > GIVE_WAY_AGAIN) {
                gave_way = Some(Instant::now());
                tokio::spawn(Arc::clone(&shared).give_way());
            }
            continue;
        }
        permit.forget();
        let Next { builder, own, submitters } = next;
        // In this loop, so that entries keep the order of their commands.
        let written = match builder.finish() {
            Ok(bytes) => shared.raft.client_write_ff(Proposal(bytes.into())).await.map_err(failed),
            Err(error) => Err(failed(error)),
        };
        tokio::spawn(answer(Arc::clone(&shared), written, own, submitters));
    }
}

type Written = Result<oneshot::Receiver<ClientWriteResult<Types>>, Answer>;

/// Waits until the group has agreed on an entry, and answers for its commands.
async fn answer(
    shared: Arc<Shared>,
    written: Written,
    own: usize,
    submitters: Vec<(usize, oneshot::Sender<Answer>)>,
) {
    let count = submitters.iter().map(|(count, _)| *count as u64).sum();
    shared.commands.fetch_add(count, Ordering::Relaxed);
    let outcomes = agreed(written).await;
    // Another entry may be written before those that wait for these are answered.
    shared.in_flight.add_permits(1);
    shared.commands.fetch_sub(count, Ordering::Relaxed);
    if own > 0
        && matches!(outcomes.as_deref(), Ok([Outcome::Sequenced(_), ..]))
        && let Err(error) = shared.log.settle()
    {
        eprintln!("toroni: {error}");
    }
    distribute(own, submitters, outcomes);
}

async fn agreed(written: Written) -> Result<Vec<Outcome>, Answer> {
    match written?.await {
        Ok(Ok(response)) => Ok(response.data),
        Ok(Err(ClientWriteError::ForwardToLeader(to))) => {
            let leader = to.leader_id.zip(to.leader_node.map(|member| member.address));
            Err(Answer::NotLeader(leader))
        }
        Ok(Err(error)) => Err(failed(error)),
        Err(_) => Err(failed("the member ends")),
    }
}

impl Shared {
    /// Returns the series that a leader, which has applied everything, has to begin: the first of all, or a new one if
    /// it may have lost events that no other member has.
    fn wanted_series(&self) -> Option<u32> {
        let series = self.applied.lock().machine.series();
        (series == 0 || self.log.is_uncertain()).then(|| series_after(series))
    }
}

/// Returns a series greater than this one, and than those that other members, or an earlier group of this feed, have begun:
/// their numbers are times, too.
pub(super) fn series_after(series: u32) -> u32 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |now| u32::try_from(now.as_secs()).unwrap_or(u32::MAX));
    now.max(series.saturating_add(1))
}

/// Gives each submitter the outcomes of its own commands.
fn distribute(
    own: usize,
    submitters: Vec<(usize, oneshot::Sender<Answer>)>,
    answers: Result<Vec<Outcome>, Answer>,
) {
    let mut outcomes = answers.as_deref().unwrap_or_default();
    outcomes = outcomes.get(own..).unwrap_or_default();
    for (count, sender) in submitters {
        let answer = match &answers {
            Err(answer) => answer.clone(),
            Ok(_) => match outcomes.split_at_checked(count) {
                Some((own, rest)) => {
                    outcomes = rest;
                    Answer::Outcomes(own.to_vec())
                }
                None => Answer::Failed("the entry has other commands".to_owned()),
            },
        };
        let _ = sender.send(answer);
    }
}
