//! The processes of a run.

use super::carrier::{Carrier, Plan};
use super::objects::Seen;
use crate::Failure;
use crate::child::Child;
use crate::clock::{cpu_ns, now_ns};
use crate::job::Role;
use crate::registry::Work;
use crate::transport::{About, Guarantees, Transport};
use serde::{Deserialize, Serialize};

/// The work of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) carrier: Carrier,
    pub(crate) plan: Plan,
}

/// The result of the sender.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Sent {
    /// When it began to make the first object, by [`now_ns`].
    pub(super) began_ns: u64,
    /// CPU time since then.
    pub(super) cpu_ns: u64,
}

/// The result of a receiver.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Received {
    /// When it had checked the last object, by [`now_ns`].
    pub(super) ended_ns: u64,
    /// CPU time since it was ready.
    pub(super) cpu_ns: u64,
    pub(super) seen: Seen,
}

/// Number of objects between two reports of progress.
const PROGRESS_EVERY: u64 = 1 << 26;

impl Work for Task {
    const NAME: &'static str = "p2mp";
    type Sent = Sent;
    type Received = Received;

    fn perform<T: Transport>(&self, child: &mut Child) -> Result<(), Failure> {
        let Task { carrier, plan } = self;
        let job = child.job().clone();
        match job.role {
            Role::Host => {
                let _host = carrier.host(&job.directory, plan)?;
                child.host(about(self))
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
}

fn about(task: &Task) -> About {
    About {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        settings: format!("{}, {:?}", task.carrier, task.plan),
        guarantees: Guarantees { lossless: true, total_order: true, in_place: true },
    }
}
