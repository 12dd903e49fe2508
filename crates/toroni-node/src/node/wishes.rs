//! Wishes: signals that a node obeys and lives on.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use toroni_shell::failure::Failure;

/// What signals have asked for, and was not done yet. The loop of a node looks at least once a second.
pub(super) struct Wishes {
    counters: Arc<AtomicBool>,
    /// `None` if SIGHUP ends the node.
    hangup: Option<Arc<AtomicBool>>,
}

impl Wishes {
    /// Installs the handlers: for SIGUSR1, and for SIGHUP if it is not to end the node.
    pub(super) fn install(survives_hangup: bool) -> Result<Self, Failure> {
        let register = |signal| {
            let flag = Arc::new(AtomicBool::new(false));
            flag::register(signal, Arc::clone(&flag)).map_err(|error| {
                Failure::Failed(format!("cannot install a signal handler: {error}"))
            })?;
            Ok::<_, Failure>(flag)
        };
        Ok(Self {
            counters: register(SIGUSR1)?,
            hangup: survives_hangup.then(|| register(SIGHUP)).transpose()?,
        })
    }

    /// Returns the signals that end the node.
    pub(super) fn others(&self) -> &'static [i32] {
        if self.hangup.is_some() { &[SIGINT, SIGTERM] } else { &[SIGINT, SIGTERM, SIGHUP] }
    }

    /// Whether all counters were asked for since the last call.
    pub(super) fn counters(&self) -> bool {
        self.counters.swap(false, Ordering::Relaxed)
    }

    /// Whether SIGHUP came since the last call.
    pub(super) fn hangup(&self) -> bool {
        self.hangup.as_ref().is_some_and(|hangup| hangup.swap(false, Ordering::Relaxed))
    }
}
