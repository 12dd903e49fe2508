//! The two processes of a run.

use super::Plan;
use super::message::Seen;
use super::ways::{self, Reader, Writer};
use crate::Failure;
use crate::child::Child;
use crate::clock::now_ns;
use crate::job::Role;
use crate::registry::Work;
use crate::transport::{About, Guarantees, Transport};
use serde::{Deserialize, Serialize};

/// The result of the writer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Wrote {
    /// When it began to write, by [`now_ns`].
    pub(super) began_ns: u64,
}

/// The result of the reader.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Read {
    /// When it had the last message, by [`now_ns`].
    pub(super) ended_ns: u64,
    pub(super) seen: Seen,
}

impl Work for Plan {
    const NAME: &'static str = "rmp_tcp";
    type Sent = Wrote;
    type Received = Read;

    fn perform<T: Transport>(&self, child: &mut Child) -> Result<(), Failure> {
        let job = child.job().clone();
        match job.role {
            Role::Host => {
                let _host = ways::host(&job.directory, self)?;
                child.host(About {
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    settings: format!("{self:?}"),
                    guarantees: Guarantees { lossless: true, total_order: true, in_place: true },
                })
            }
            Role::Sender(_) => {
                let mut writer = Writer::open(&job.directory, self)?;
                child.ready()?;
                child.wait_at_gate()?;
                let began_ns = now_ns();
                writer.write(self)?;
                child.finish()?;
                child.result(&Wrote { began_ns })
            }
            Role::Receiver(_) => {
                let mut reader = Reader::open(&job.directory, self)?;
                child.ready()?;
                let seen = reader.read(self)?;
                let ended_ns = now_ns();
                child.finish()?;
                child.result(&Read { ended_ns, seen })
            }
        }
    }
}
