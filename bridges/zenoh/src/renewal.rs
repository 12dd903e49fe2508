//! Another session of Zenoh after the process was stopped for long: by SIGSTOP, a debugger, or with its whole host.
//!
//! Meanwhile, the other programs of Zenoh give up their connection to this one. When it continues, they connect again. But
//! Zenoh may not have noticed by then that the old connection is gone, and adds the new one to it as a second link. Then it
//! does not tell the other side again what this side subscribes to, and nothing comes any more, until the process ends.
//! Zenoh offers no call that closes a connection. So the bridge closes its session, and opens another one with another id.
//! For the other bridges that is a restart: they continue the numbers, and send what is missing from their rings.

use crate::BridgeError;
use crate::context::{Context, Life, State, lock};
use crate::handover::{self, Plans, Ranks};
use rustix::time::{ClockId, clock_gettime};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use zenoh::{Session, Wait};

/// How often the watchdog looks at the clock.
const LOOK: Duration = Duration::from_millis(500);
/// Zenoh's default of the lease.
const LEASE_MS: u32 = 10_000;
/// How long to wait after Zenoh could not open a session.
const PAUSE: Duration = Duration::from_secs(1);

/// Notices that this process was stopped.
#[derive(Debug)]
pub(crate) struct Watchdog {
    /// As long a stop may cost the connections.
    limit: Duration,
}

impl Watchdog {
    /// Reads from Zenoh's configuration how long others wait for a sign of life.
    pub(crate) fn new(config: &zenoh::Config) -> Self {
        let lease = config.get_json("transport/link/tx/lease").ok();
        let lease = lease.and_then(|text| text.parse().ok()).unwrap_or(LEASE_MS);
        // The last sign of life was sent up to a quarter of the lease before the stop.
        Self { limit: Duration::from_millis(lease.into()) * 3 / 4 }
    }

    /// Watches in a thread of its own, until the bridge has ended.
    pub(crate) fn start(self, life: &Arc<Life>) -> Result<(), BridgeError> {
        let life = life.clone();
        let watch = move || {
            let mut last = now();
            while !life.wait(LOOK, State::is_over).is_over() {
                let current = now();
                let stopped = current.saturating_sub(last).saturating_sub(LOOK);
                last = current;
                if stopped >= self.limit {
                    tracing::warn!(
                        ?stopped,
                        "the process was stopped: others may have given up its connections, so it makes new ones"
                    );
                    life.doubt();
                }
            }
        };
        let builder = std::thread::Builder::new().name("watchdog".to_owned());
        builder.spawn(watch).map(drop).map_err(BridgeError::Thread)
    }
}

/// Returns the time since the host was started. It runs on while the host sleeps.
fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

/// Runs a bridge, with one session after the other.
#[derive(Debug)]
pub(crate) struct Renewal {
    pub(crate) zenoh: zenoh::Config,
    pub(crate) realm: String,
    /// The session that is in use.
    pub(crate) current: Arc<Mutex<Session>>,
}

impl Renewal {
    /// Runs a bridge until it has ended, and closes its session.
    pub(crate) fn run(&self, mut context: Arc<Context>, mut ranks: Ranks, plans: &Plans) {
        loop {
            let ended = handover::run(&context, plans, &ranks);
            if let Err(error) = ended {
                context.fail(error.to_string());
            }
            drop(ranks);
            if let Err(error) = context.session.close().wait() {
                tracing::debug!(%error, "the session of Zenoh does not close");
            }
            match self.renew(&context) {
                Some(renewed) => (context, ranks) = renewed,
                None => return,
            }
        }
    }

    /// Opens another session. Tries until it succeeds; `None` if the bridge has ended.
    fn renew(&self, old: &Context) -> Option<(Arc<Context>, Ranks)> {
        old.set_state(State::Starting);
        while !old.has_ended() {
            // A stop from now on counts for the session that follows.
            old.life().trust();
            match self.open(old) {
                Ok(renewed) => {
                    old.counting.renewals.one();
                    return Some(renewed);
                }
                Err(error) => {
                    tracing::warn!(%error, "no new session yet");
                    old.wait(PAUSE, State::is_over);
                }
            }
        }
        None
    }

    fn open(&self, old: &Context) -> Result<(Arc<Context>, Ranks), BridgeError> {
        let session = crate::open(&self.zenoh)?;
        tracing::info!(zid = %session.info().zid().wait(), "the bridge has a new session");
        let context = Arc::new(old.with_session(session.clone()));
        let ranks = Ranks::join(&context, &self.realm)?;
        *lock(&self.current) = session;
        Ok((context, ranks))
    }
}
