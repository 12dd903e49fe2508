//! The process of a run.

use super::columns::Own;
use super::ledger::Ledger;
use super::sockets::{ConnectionEnd, connect};
use super::{Task, engines, reactor};
use crate::Failure;
use crate::child::Child;
use crate::clock::Usage;
use crate::job::Role;
use crate::registry::Work;
use crate::transport::{About, Guarantees, Transport};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Bytes that clients and servers sent and received.
    pub bytes: u64,
    /// Reads and writes that were completed.
    pub operations: u64,
    /// What the process used for them.
    pub usage: Usage,
}

/// With a column of this crate.
impl Work for Task {
    const NAME: &'static str = "connections";
    type Sent = Moved;
    type Received = ();

    fn perform<T: Transport>(&self, child: &mut Child) -> Result<(), Failure> {
        perform_with(child, |task, connections, ledger| {
            let plan = &task.plan;
            match Own::of_column(&task.column)? {
                Own::Pool => reactor::run(plan, connections, ledger),
                Own::Reactors(deal) => {
                    reactor::run_for_each_thread(plan, connections, deal, ledger)
                }
                Own::Proactor(config, deal) => {
                    engines::run(&config, plan, connections, deal, ledger)
                }
                Own::Proactors(config, deal) => {
                    engines::run_for_each_thread(&config, plan, connections, deal, ledger)
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
    let operations: Vec<_> = connections.iter().map(|it| it.end.operations()).collect();
    let before = Usage::of_process();
    let ledger = Arc::new(Ledger::begin(&task.plan));
    column(&task, connections, &ledger)?;
    let usage = Usage::of_process().since(before);
    child.finish()?;
    let operations = operations.iter().map(|count| count.load(Ordering::Relaxed)).sum();
    child.result(&Moved { bytes: ledger.bytes(), operations, usage })
}
