//! Batches from all callers become entries: what came while the entries before were under way, up to 256 KiB.
//!
//! Each batch that was taken is answered once. If nothing is known of it, because the office ended in which it was proposed,
//! its `oneshot` is dropped: the caller learns that this member does not lead, and asks the next one how far the order has
//! come.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use openraft::error::ClientWriteError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::office::{ended, vote_in_office};
use super::shared::{Shared, failed, forwarded};
use super::types::Proposal;
use crate::batch::{Batch, Builder, Command, Open};
use crate::hook::mutant;
use crate::machine::Outcome;
use crate::rpc::Answer;
use crate::say::say;

/// At most this many batches wait. Then connections are not read any further.
pub(super) const WAITING: usize = 64;
/// A leader without room looks for another one at most this often.
const GIVE_WAY_AGAIN: Duration = Duration::from_secs(5);
/// A series that could not begin is tried again after this time.
const BEGIN_AGAIN: Duration = Duration::from_millis(50);

pub(super) struct Submitted {
    pub(super) batch: Arc<[u8]>,
    pub(super) answer: oneshot::Sender<Answer>,
    /// Whether the leader itself proposes it.
    pub(super) is_own: bool,
}

/// What the next entry is made of.
#[derive(Default)]
struct Next {
    builder: Builder,
    submitters: Vec<(usize, oneshot::Sender<Answer>)>,
}

impl Next {
    /// Takes a batch, or gives it back because the entry is full.
    fn take(&mut self, submitted: Submitted) -> Option<Submitted> {
        // It was checked when it arrived.
        let Ok(batch) = Batch::check(&submitted.batch) else { return None };
        let unfit = || batch.commands().find_map(|(command, _)| unfit(&command));
        if let Some(why) = (!submitted.is_own).then(unfit).flatten() {
            let _ = submitted.answer.send(failed(why));
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

/// Why no courier may bring this command, if that is so.
fn unfit(command: &Command<'_>) -> Option<&'static str> {
    match command {
        Command::Publish(_) | Command::Lost(_) | Command::Open(Open { earlier: Some(_), .. }) => {
            None
        }
        Command::Open(_) => Some(
            "OPEN does not say which buses the node had before: run the same version of toroni on all hosts",
        ),
        Command::Begin { .. } => Some("only the leader begins a series of the feed"),
        Command::Release { .. } | Command::Remove { .. } => {
            Some("sources are released and removed with toroni sequencer sources")
        }
    }
}

/// Proposes what is submitted while this member leads, and says who leads while it does not.
pub(super) async fn run(shared: Arc<Shared>, mut queue: mpsc::Receiver<Submitted>) {
    let mut metrics = shared.raft.metrics();
    loop {
        let vote = vote_in_office(&metrics.borrow_and_update());
        let Some(vote) = vote else {
            tokio::select! {
                submitted = queue.recv() => match submitted {
                    Some(Submitted { answer, .. }) => drop(answer.send(shared.not_leader())),
                    None => return,
                },
                changed = metrics.changed() => if changed.is_err() { return },
            }
            continue;
        };
        let office = Office {
            shared: &shared,
            permits: shared.begin_office(),
            flights: JoinSet::new(),
            gave_way: None,
        };
        tokio::select! {
            // First, so that nothing is proposed that belongs to the next office.
            biased;
            () = ended(&mut metrics, vote) => {}
            () = office.serve(&mut queue) => return,
        }
    }
}

/// What this member does while it leads. Dropped at the end: callers whose entries are under way then learn that they have to ask the
/// next leader.
struct Office<'a> {
    shared: &'a Arc<Shared>,
    permits: Arc<Semaphore>,
    /// Tasks that wait for the answers to entries.
    flights: JoinSet<()>,
    gave_way: Option<Instant>,
}

impl Drop for Office<'_> {
    fn drop(&mut self) {
        self.permits.close();
    }
}

impl Office<'_> {
    /// Ends when the queue does.
    async fn serve(mut self, queue: &mut mpsc::Receiver<Submitted>) {
        self.shared.pass_barrier().await;
        self.begin_series().await;
        let mut left_over = None;
        loop {
            let mut first = match left_over.take() {
                None => queue.recv().await,
                some => some,
            };
            if first.is_none() {
                return;
            }
            let permit = self.permit().await;
            let mut next = Next::default();
            while let Some(submitted) = first.take().or_else(|| queue.try_recv().ok()) {
                left_over = next.take(submitted);
                if left_over.is_some() {
                    break;
                }
            }
            if next.builder.is_empty() {
                continue;
            }
            if self.has_room(&next.builder) {
                self.propose(permit, next).await;
            } else {
                next.refuse(&failed("the leader's disk is full"));
            }
        }
    }

    async fn permit(&self) -> OwnedSemaphorePermit {
        match Arc::clone(&self.permits).acquire_owned().await {
            Ok(permit) => permit,
            // They are closed when this is dropped, and so not asked for any more.
            Err(_) => std::future::pending().await,
        }
    }

    /// Returns whether the log has room for an entry. If not, another member may have.
    fn has_room(&mut self, builder: &Builder) -> bool {
        let has_room = self.shared.has_room(builder.len() + 128);
        if !has_room && self.gave_way.is_none_or(|at| at.elapsed() > GIVE_WAY_AGAIN) {
            self.gave_way = Some(Instant::now());
            tokio::spawn(Arc::clone(self.shared).give_way());
        }
        has_room
    }

    /// Begins a series of the feed if the order has none, or this member may have lost events that no other one has.
    async fn begin_series(&mut self) {
        while let Some(series) = self.shared.wanted_series() {
            let mut builder = Builder::new();
            if builder.push(&Command::Begin { series }).is_ok() && self.has_room(&builder) {
                let _permit = self.permit().await;
                let begun = self.shared.agree(self.shared.write(builder).await).await;
                if matches!(begun.as_deref(), Ok([Outcome::Sequenced(_)])) {
                    if self.shared.is_alone()
                        && let Err(error) = self.shared.log.settle()
                    {
                        say(error);
                    }
                    return;
                }
            }
            sleep(BEGIN_AGAIN).await;
        }
    }

    async fn propose(&mut self, permit: OwnedSemaphorePermit, next: Next) {
        let Next { builder, submitters } = next;
        // In this loop, so that entries keep the order of their commands.
        let written = self.shared.write(builder).await;
        let shared = Arc::clone(self.shared);
        let waits = Waiting::of(&shared, submitters.iter().map(|(count, _)| *count as u64).sum());
        while self.flights.try_join_next().is_some() {}
        self.flights.spawn(async move {
            let agreed = shared.agree(written).await;
            // Another entry may be written before those that wait for this one are answered.
            drop(waits);
            if mutant("permit_forgotten") {
                permit.forget();
            } else {
                drop(permit);
            }
            distribute(submitters, agreed);
        });
    }
}

/// Commands that wait for their answer, as the status counts them.
struct Waiting {
    shared: Arc<Shared>,
    commands: u64,
}

impl Waiting {
    fn of(shared: &Arc<Shared>, commands: u64) -> Self {
        shared.commands.fetch_add(commands, Ordering::Relaxed);
        Self { shared: Arc::clone(shared), commands }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.shared.commands.fetch_sub(self.commands, Ordering::Relaxed);
    }
}

type Written =
    Result<oneshot::Receiver<openraft::raft::ClientWriteResult<super::types::Types>>, Answer>;

impl Shared {
    async fn write(&self, builder: Builder) -> Written {
        let bytes = builder.finish().map_err(failed)?;
        self.raft.client_write_ff(Proposal(bytes.into())).await.map_err(failed)
    }

    /// Waits until the group has agreed on an entry.
    async fn agree(&self, written: Written) -> Result<Vec<Outcome>, Answer> {
        let answer = written?;
        let answer = tokio::select! {
            biased;
            answer = answer => answer,
            () = self.end_if_lost() => return Err(Answer::NotLeader(None)),
        };
        match answer {
            Ok(Ok(response)) => Ok(response.data),
            Ok(Err(ClientWriteError::ForwardToLeader(to))) => Err(forwarded(to)),
            Ok(Err(error)) => Err(failed(error)),
            Err(_) => Err(failed("the member ends")),
        }
    }

    /// Returns the series that a leader, which has applied everything, has to begin: the first of all, or a new one if
    /// it may have lost events that no other member has.
    fn wanted_series(&self) -> Option<u32> {
        let series = self.applied.lock().machine.series();
        // With others, a leader brings what is lacking. A member that is uncertain does not lead them.
        let has_lost = self.log.is_uncertain() && self.is_alone();
        (series == 0 || has_lost).then(|| series_after(series))
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
    submitters: Vec<(usize, oneshot::Sender<Answer>)>,
    answers: Result<Vec<Outcome>, Answer>,
) {
    let mut outcomes = answers.as_deref().unwrap_or_default();
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
