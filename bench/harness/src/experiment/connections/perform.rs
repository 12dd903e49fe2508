//! The process of a run.

use super::deal::Deal;
use super::engines::{self, engines};
use super::ledger::Ledger;
use super::sockets::{ConnectionEnd, connect};
use super::{Task, reactor};
use crate::Failure;
use crate::child::Child;
use crate::job::Role;
use crate::registry::Work;
use crate::transport::{About, Guarantees, Transport};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Bytes that clients and servers sent and received.
    pub bytes: u64,
}

/// Name of the column of the baseline.
pub(super) const REACTOR: &str = "tp-reactor";

/// First word of the columns with a reactor for each thread.
pub(super) const DEALT_REACTOR: &str = "reactor";

/// With a column of this crate.
impl Work for Task {
    const NAME: &'static str = "connections";
    type Sent = Moved;
    type Received = ();

    fn perform<T: Transport>(&self, child: &mut Child) -> Result<(), Failure> {
        perform_with(child, |task, connections, ledger| {
            if task.column == REACTOR {
                return reactor::run(&task.plan, connections, ledger);
            }
            let dealt = Deal::of_column(&task.column);
            if let Some((DEALT_REACTOR, deal)) = dealt {
                return reactor::run_for_each_thread(&task.plan, connections, deal, ledger);
            }
            let name = dealt.map_or(task.column.as_str(), |(name, _)| name);
            let engine = engines().into_iter().find(|(known, ..)| *known == name);
            let Some((_, _, config)) = engine else {
                return Err(Failure::new(format!("this program has no column {:?}", task.column)));
            };
            match dealt {
                None => engines::run(&config, &task.plan, connections, ledger),
                Some((_, deal)) => {
                    engines::run_for_each_thread(&config, &task.plan, connections, deal, ledger)
                }
            }
        })
    }
}

/// Runs a child that moves bytes with `column`: until [`Ledger::left`] returns `None`, with the plan's number of threads,
/// and with the operations that each [`End`](super::end::End) wants.
///
/// # Errors
/// If that fails, or the child was given other work.
pub fn perform_with(
    child: &mut Child,
    column: impl FnOnce(&Task, Vec<ConnectionEnd>, &Arc<Ledger>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Some(task) = child.work::<Task>()? else {
        return Err(Failure::new(format!("{:?} is no work for this program", child.job().work)));
    };
    if child.job().role == Role::Host {
        return child.host(About {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            settings: format!("{task:?}"),
            guarantees: Guarantees { lossless: true, total_order: true, in_place: false },
        });
    }
    let connections = connect(&task.plan)?;
    child.ready()?;
    child.wait_at_gate()?;
    let ledger = Arc::new(Ledger::begin(&task.plan));
    column(&task, connections, &ledger)?;
    child.finish()?;
    child.result(&Moved { bytes: ledger.bytes() })
}
