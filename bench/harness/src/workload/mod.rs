//! What is sent and measured. A workload has a part that children do, generic over the transport, and
//! a part that makes a report of what they say.

mod appendix;
pub mod flow;
mod grid;
pub mod latency;
pub mod ping_pong;
pub mod stress;
pub mod throughput;

use crate::Failure;
use crate::child::Child;
use crate::experiment::{connections, fanout, p2mp, rmp_tcp, scale};
use crate::job::Role;
use crate::sequence;
use crate::transport::Transport;
use serde::{Deserialize, Serialize};

/// How much time a report may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunLength {
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
    /// One way from a writer to a reader; ignores the transport.
    RmpTcp(rmp_tcp::Plan),
    /// Objects from one sender to several receivers; ignores the transport.
    P2mp(p2mp::Task),
    /// One publisher, several subscribers in one thread; ignores the transport.
    Fanout(fanout::Plan),
    /// One publisher of many topics, many subscribers; ignores the transport.
    Scale(scale::Plan),
    /// The same, and receivers remember the order of all messages.
    OrderedFlow(flow::Flow),
    /// Sessions over TCP in one process; ignores the transport.
    Sessions(connections::Task),
    /// A message there and a message back.
    PingPong(ping_pong::PingPong),
}

/// A child's part, over `T`.
///
/// # Errors
/// If it cannot be done.
pub fn perform<T: Transport>(child: &mut Child) -> Result<(), Failure> {
    let job = child.job().clone();
    match &job.work {
        Work::Flow(_) | Work::OrderedFlow(_) | Work::PingPong(_) if job.role == Role::Host => {
            let _host = T::host(&job.directory, &job.setup)?;
            let _way_back = match job.work {
                Work::PingPong(_) => Some(T::host(&job.directory.second_lane()?, &job.setup)?),
                _ => None,
            };
            child.host(T::about(&job.setup))
        }
        Work::Flow(flow) => flow::perform::<T>(child, &job, flow, None),
        Work::OrderedFlow(flow) => {
            flow::perform::<T>(child, &job, flow, Some(sequence::Order::default()))
        }
        Work::PingPong(work) => ping_pong::perform::<T>(child, &job, work),
        Work::RmpTcp(plan) => rmp_tcp::perform(child, &job, plan),
        Work::P2mp(task) => p2mp::perform(child, &job, task),
        Work::Fanout(plan) => fanout::perform(child, &job, plan),
        Work::Scale(plan) => scale::perform(child, &job, plan),
        Work::Sessions(_) => connections::perform(child),
    }
}
