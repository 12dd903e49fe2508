//! What the processes of one run do.

use super::carrier::{Carrier, Plan};
use super::objects::Seen;
use crate::Failure;
use crate::child::Child;
use crate::clock::{cpu_ns, now_ns};
use crate::job::{Job, Role};
use crate::transport::{About, Guarantees};
use serde::{Deserialize, Serialize};

/// What carries how much.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    pub(crate) carrier: Carrier,
    pub(crate) plan: Plan,
}

/// What the sender says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Sent {
    /// When it began to make the first object; see [`now_ns`].
    pub(super) began_ns: u64,
    /// CPU time from there on.
    pub(super) cpu_ns: u64,
}

/// What a receiver says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Received {
    /// When it had looked at the last object; see [`now_ns`].
    pub(super) ended_ns: u64,
    /// CPU time from when it was ready.
    pub(super) cpu_ns: u64,
    pub(super) seen: Seen,
}

/// Objects between two signs of life.
const PROGRESS_EVERY: u64 = 1 << 26;

pub(crate) fn perform(child: &mut Child, job: &Job, task: &Task) -> Result<(), Failure> {
    let Task { carrier, plan } = task;
    match job.role {
        Role::Host => {
            let _host = carrier.host(&job.directory, plan)?;
            child.host(about(task))
        }
        Role::Sender(_) => {
            let mut sender = carrier.sender(&job.directory, plan)?;
            child.ready()?;
            child.wait_at_gate()?;
            let (began_ns, cpu_before_ns) = (now_ns(), cpu_ns());
            let (mut sent, mut progress_at) = (0, PROGRESS_EVERY);
            while sent < plan.objects {
                sent += sender.send(sent, plan.objects - sent)?;
                if sent >= progress_at {
                    progress_at += PROGRESS_EVERY;
                    child.progress(sent)?;
                }
            }
            let cpu_ns = cpu_ns() - cpu_before_ns;
            child.finish()?;
            child.result(&Sent { began_ns, cpu_ns })
        }
        Role::Receiver(index) => {
            let mut receiver = carrier.receiver(&job.directory, plan, usize::from(index))?;
            child.ready()?;
            let cpu_before_ns = cpu_ns();
            let mut seen = Seen::default();
            while seen.objects < plan.objects {
                receiver.receive(&mut seen)?;
            }
            let (ended_ns, cpu_ns) = (now_ns(), cpu_ns() - cpu_before_ns);
            child.finish()?;
            child.result(&Received { ended_ns, cpu_ns, seen })
        }
    }
}

fn about(task: &Task) -> About {
    About {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        settings: format!("{}, {:?}", task.carrier, task.plan),
        guarantees: Guarantees { lossless: true, total_order: true, in_place: true },
    }
}
