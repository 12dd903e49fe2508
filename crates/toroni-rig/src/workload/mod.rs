//! What is sent and measured. A workload has a part that children do, generic over the transport, and
//! a part that makes a report of what they say.

mod appendix;
pub mod flow;
mod grid;
pub mod latency;
pub mod stress;
pub mod throughput;

use crate::Failure;
use crate::child::Child;
use crate::job::Role;
use crate::transport::Transport;
use serde::{Deserialize, Serialize};

/// How much time a report may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Less than 20 s: few repetitions, small volumes. Says which.
    Quick,
    /// A minute or several.
    Usual,
    /// Everything.
    Full,
}

/// What the children of one run do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Senders send, receivers receive and check.
    Flow(flow::Flow),
}

/// A child's part, over `T`.
///
/// # Errors
/// If it cannot be done.
pub fn perform<T: Transport>(child: &mut Child) -> Result<(), Failure> {
    let job = child.job().clone();
    if job.role == Role::Host {
        let _host = T::host(&job.place, &job.setup)?;
        return child.host(T::about(&job.setup));
    }
    match &job.work {
        Work::Flow(flow) => flow::perform::<T>(child, &job, flow),
    }
}
