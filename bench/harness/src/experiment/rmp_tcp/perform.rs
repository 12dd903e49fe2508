//! What the two processes of one run do.

use super::Plan;
use super::message::Seen;
use super::ways::{self, Reader, Writer};
use crate::Failure;
use crate::child::Child;
use crate::clock::now_ns;
use crate::job::{Job, Role};
use crate::transport::{About, Guarantees};
use serde::{Deserialize, Serialize};

/// What the writer says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Wrote {
    /// When it began to write; see [`now_ns`].
    pub(super) began_ns: u64,
}

/// What the reader says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Read {
    /// When it had the last message; see [`now_ns`].
    pub(super) ended_ns: u64,
    pub(super) seen: Seen,
}

pub(crate) fn perform(child: &mut Child, job: &Job, plan: &Plan) -> Result<(), Failure> {
    match job.role {
        Role::Host => {
            let _host = ways::host(&job.directory, plan)?;
            child.host(About {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                settings: format!("{plan:?}"),
                guarantees: Guarantees { lossless: true, total_order: true, in_place: true },
            })
        }
        Role::Sender(_) => {
            let mut writer = Writer::open(&job.directory, plan)?;
            child.ready()?;
            child.wait_at_gate()?;
            let began_ns = now_ns();
            writer.write(plan)?;
            child.finish()?;
            child.result(&Wrote { began_ns })
        }
        Role::Receiver(_) => {
            let mut reader = Reader::open(&job.directory, plan)?;
            child.ready()?;
            let seen = reader.read(plan)?;
            let ended_ns = now_ns();
            child.finish()?;
            child.result(&Read { ended_ns, seen })
        }
    }
}
