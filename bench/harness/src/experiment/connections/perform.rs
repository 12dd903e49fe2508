//! What the process of one run does.

use super::engines::{self, engines};
use super::ledger::Ledger;
use super::sockets::{ConnectionEnd, connect};
use super::{Task, reactor};
use crate::Failure;
use crate::child::Child;
use crate::job::Role;
use crate::transport::{About, Guarantees};
use crate::workload::Work;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Moved {
    /// Sent and received, by clients and servers.
    pub(super) bytes: u64,
}

/// The name of the baseline's column.
pub(super) const REACTOR: &str = "tp-reactor";

/// A child that moves bytes with a column of this crate.
pub(crate) fn perform(child: &mut Child) -> Result<(), Failure> {
    perform_with(child, |task, connections, ledger| {
        if task.column == REACTOR {
            return reactor::run(&task.plan, connections, ledger);
        }
        let engine = engines().into_iter().find(|(name, ..)| *name == task.column);
        let Some((_, _, config)) = engine else {
            return Err(Failure::new(format!("this program has no column {:?}", task.column)));
        };
        engines::run(&config, &task.plan, connections, ledger)
    })
}

/// A child that moves bytes as `column` does: until [`Ledger::left`] is nothing, with as many threads as
/// the plan says, each end as [`End`](super::end::End) wants it.
///
/// # Errors
/// If that fails, or the child was given other work.
pub fn perform_with(
    child: &mut Child,
    column: impl FnOnce(&Task, Vec<ConnectionEnd>, &Arc<Ledger>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Work::Sessions(task) = child.job().work.clone() else {
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
