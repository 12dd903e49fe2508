//! What the order knows of its sources, and how they are looked after.

use tokio::sync::oneshot;

use super::propose::Submitted;
use super::shared::{Shared, failed};
use crate::batch::{Builder, Command};
use crate::machine::{Outcome, Source};
use crate::rpc::{Answer, SourceInfo, SourceState};

/// An answer has at most this many sources: it is no long one.
const SOURCES: usize = 256;

fn state_of(source: &Source) -> SourceState {
    let Source { bus, session, series, next, .. } = *source;
    SourceState { bus, session, series, next }
}

impl Shared {
    /// What is known of a source, as a leader knows it: all that was committed before is applied.
    pub(super) async fn source(&self, source: u32) -> Answer {
        if let Err(answer) = self.leads().await {
            return answer;
        }
        Answer::Source(self.applied.lock().machine.source(source).map(state_of))
    }

    /// Sources from this one on.
    pub(super) async fn sources(&self, from: u32) -> Answer {
        if let Err(answer) = self.leads().await {
            return answer;
        }
        let applied = self.applied.lock();
        let sources = applied.machine.sources_from(from).take(SOURCES);
        let infos = sources.map(|(source, known)| SourceInfo {
            source,
            state: state_of(known),
            last: known.last,
            is_released: known.is_released,
            address: None,
        });
        Answer::Sources(infos.collect())
    }

    /// Lets the next OPEN of a source bring any bus.
    pub(super) async fn release_source(&self, source: u32) -> Answer {
        self.change_source(source, Command::Release { source }).await
    }

    /// Removes a source for good.
    pub(super) async fn remove_source(&self, source: u32) -> Answer {
        self.change_source(source, Command::Remove { source }).await
    }

    async fn change_source(&self, source: u32, command: Command<'_>) -> Answer {
        if let Err(answer) = self.leads().await {
            return answer;
        }
        if self.applied.lock().machine.source(source).is_none() {
            return failed("the order knows no such source");
        }
        let mut builder = Builder::new();
        let batch = builder.push(&command).and_then(|()| builder.finish());
        let batch = match batch {
            Ok(batch) => batch.into(),
            Err(error) => return failed(error),
        };
        let (answer, answered) = oneshot::channel();
        if self.submitted.try_send(Submitted { batch, answer, is_own: true }).is_err() {
            return failed("the leader has no room for more commands");
        }
        match answered.await {
            Ok(Answer::Outcomes(outcomes)) => match outcomes.first() {
                Some(Outcome::Sequenced(_) | Outcome::Duplicate) => Answer::Done,
                _ => failed("it was refused"),
            },
            Ok(answer) => answer,
            Err(_) => Answer::NotLeader(None),
        }
    }
}
