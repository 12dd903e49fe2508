//! Waiting: a node lacks something that may come without a change of its file, such as an interface.

use super::log::{Level, Line, Log};
use super::metrics::{Latest, Reports};
use sd_notify::NotifyState;
use std::time::{Duration, Instant};
use toroni_net::node::start::{Lack, StartError};

/// How long a node waits before it tries to start again.
pub(super) const AGAIN: Duration = Duration::from_secs(1);
/// How often it says that it still waits.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// What a node has said of its wait.
#[derive(Default)]
pub(super) struct Waiting {
    said: Option<(Lack, Instant)>,
}

impl Waiting {
    /// Says what the node waits for: to systemd and in the metrics at once, in the log once and then every 60 s.
    pub(super) fn say(&mut self, lack: Lack, error: &StartError, log: &mut Log, latest: &Latest) {
        latest.set(Reports { lack: Some(lack), ..Reports::default() });
        let status = format!("waits: {error}");
        // systemd would stop a node that is not ready within 90 s, and start it again for nothing. This fails if systemd did
        // not start this process.
        let _ = sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
        let is_said =
            self.said.is_some_and(|(before, at)| before == lack && at.elapsed() < SAID_EVERY);
        if !is_said {
            let text = format!("the node waits, and tries again each second: {error}");
            log.line(Line::new(Level::Warn, "waiting", text).by("for", lack.name()));
            self.said = Some((lack, Instant::now()));
        }
    }
}
