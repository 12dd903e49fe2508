//! What the order knows of its sources, which couriers are connected with the leader, and how sources are looked after.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::oneshot;

use super::office::vote_in_office;
use super::propose::Submitted;
use super::shared::{Shared, failed};
use crate::batch::{Builder, Command, Open, commands_of};
use crate::hook::mutant;
use crate::machine::{MAX_SOURCES, Outcome, Source};
use crate::rpc::{Answer, Connection, SourceInfo, SourceState};

/// An answer has at most this many sources: it is no long one.
const SOURCES: usize = 256;

/// The couriers that have opened a series with this leader.
#[derive(Default)]
pub(super) struct Couriers(Mutex<BTreeMap<u32, Courier>>);

struct Courier {
    bus: [u8; 16],
    /// Gone when the connection has ended.
    connection: Weak<Connection>,
}

impl Couriers {
    /// Returns the connection of a source's courier, if there is one.
    fn connection(&self, source: u32) -> Option<Arc<Connection>> {
        let couriers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        couriers.get(&source)?.connection.upgrade()
    }

    /// Forgets all, as another leader knows none.
    #[cfg(test)]
    pub(super) fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Refuses an OPEN of another bus over this connection, while the courier of the first one is connected.
    fn check(&self, connection: &Arc<Connection>, open: &Opened) -> Result<(), String> {
        let couriers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = couriers.get(&open.source)
            && known.bus != open.bus
            && let Some(first) = known.connection.upgrade()
            && !Arc::ptr_eq(&first, connection)
            && !mutant("two_couriers_of_a_source")
        {
            return Err(format!(
                "the source {:08x} is open from {}, with another bus: two nodes have its name, or this host was copied with its \
                 state. Give each node its own `name` and `state`",
                open.source, first.address
            ));
        }
        Ok(())
    }

    /// Notes whose source it is, now that the order has its bus. With the same bus, the newer connection is that of a restart.
    fn note(&self, connection: &Arc<Connection>, source: u32, bus: [u8; 16]) {
        let mut couriers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if couriers.len() >= MAX_SOURCES {
            couriers.retain(|_, courier| courier.connection.strong_count() > 0);
        }
        couriers.insert(source, Courier { bus, connection: Arc::downgrade(connection) });
    }
}

/// An OPEN that a courier brings.
pub(super) struct Opened {
    /// Its place in the batch.
    at: usize,
    source: u32,
    bus: [u8; 16],
}

fn state_of(source: &Source) -> SourceState {
    let Source { bus, session, series, next, .. } = *source;
    SourceState { bus, session, series, next }
}

impl Shared {
    /// Sees whether a courier may open the series that it wants to open with a batch that was checked. Returns what it opens.
    pub(super) fn check_courier(
        &self,
        connection: &Arc<Connection>,
        batch: &[u8],
    ) -> Result<Vec<Opened>, String> {
        let opens = commands_of(batch).enumerate().filter_map(|(at, command)| match command {
            Command::Open(Open { source, bus, .. }) => Some(Opened { at, source, bus }),
            _ => None,
        });
        let opens: Vec<Opened> = opens.collect();
        // Another member would know of none that is connected.
        if vote_in_office(&self.raft.metrics().borrow()).is_some() {
            opens.iter().try_for_each(|open| self.couriers.check(connection, open))?;
        }
        Ok(opens)
    }

    /// Notes which sources a courier has opened, as the answer says. What the order has refused belongs to another one.
    pub(super) fn note_courier(
        &self,
        connection: &Arc<Connection>,
        opens: &[Opened],
        answer: &Answer,
    ) {
        let Answer::Outcomes(outcomes) = answer else { return };
        for open in opens {
            if let Some(Outcome::Sequenced(_) | Outcome::Duplicate) = outcomes.get(open.at) {
                self.couriers.note(connection, open.source, open.bus);
            }
        }
    }

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
            address: self.couriers.connection(source).map(|it| it.address.to_string()),
        });
        Answer::Sources(infos.collect())
    }

    /// Lets the next OPEN of a source bring any bus.
    pub(super) async fn release_source(&self, source: u32) -> Answer {
        self.change_source(source, Command::Release { source }).await
    }

    /// Removes a source for good.
    pub(super) async fn remove_source(&self, source: u32) -> Answer {
        // The commands in its bus could never be brought.
        if let Some(connection) = self.couriers.connection(source) {
            let address = connection.address;
            return failed(format!(
                "its courier is connected from {address}: stop that node first"
            ));
        }
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
