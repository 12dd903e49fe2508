//! Batches from all callers become entries: what came while the entries before were under way, up to 256 KiB.

use std::sync::Arc;

use openraft::error::ClientWriteError;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::types::{Proposal, Raft};
use crate::batch::{Batch, Builder};
use crate::log::Log;
use crate::machine::Outcome;
use crate::rpc::Answer;

/// So many entries are under way. The rest waits, and is put together meanwhile.
const IN_FLIGHT: usize = 2;
/// So many batches wait. Then connections are not read any further.
pub(super) const WAITING: usize = 64;

pub(super) struct Submitted {
    pub(super) batch: Arc<[u8]>,
    pub(super) answer: oneshot::Sender<Answer>,
}

pub(super) async fn run(raft: Raft, log: Log, mut queue: mpsc::Receiver<Submitted>) {
    let in_flight = Arc::new(Semaphore::new(IN_FLIGHT));
    let mut left_over = None;
    loop {
        let first = match left_over.take() {
            Some(first) => first,
            None => match queue.recv().await {
                Some(first) => first,
                None => return,
            },
        };
        let Ok(permit) = Arc::clone(&in_flight).acquire_owned().await else { return };
        let mut builder = Builder::new();
        let mut submitters = vec![];
        let mut next = Some(first);
        while let Some(submitted) = next.take().or_else(|| queue.try_recv().ok()) {
            // It was checked when it arrived.
            let Ok(batch) = Batch::check(&submitted.batch) else { continue };
            if !builder.extend(batch) {
                left_over = Some(submitted);
                break;
            }
            submitters.push((usize::from(batch.count()), submitted.answer));
        }
        let Ok(bytes) = builder.finish() else { continue };
        if !log.has_room(bytes.len() + 128) {
            for (_, answer) in submitters {
                let _ = answer.send(Answer::Failed("the leader's disk is full".to_owned()));
            }
            continue;
        }
        let written = raft.client_write_ff(Proposal(bytes.into())).await;
        tokio::spawn(async move {
            let answers = match written {
                Ok(receiver) => match receiver.await {
                    Ok(Ok(response)) => Ok(response.data),
                    Ok(Err(ClientWriteError::ForwardToLeader(to))) => {
                        let leader = to.leader_id.zip(to.leader_node.map(|member| member.address));
                        Err(Answer::NotLeader(leader))
                    }
                    Ok(Err(error)) => Err(Answer::Failed(error.to_string())),
                    Err(_) => Err(Answer::Failed("the member ends".to_owned())),
                },
                Err(error) => Err(Answer::Failed(error.to_string())),
            };
            // Another entry may be written before those that wait for these are answered.
            drop(permit);
            distribute(submitters, answers);
        });
    }
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
