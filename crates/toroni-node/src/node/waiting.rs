//! Waiting: a node lacks something that may come without a change of its file, such as an interface, or a bus on which it may
//! publish.

use super::log::{Level, Line, Log};
use super::metrics::{Latest, Reports};
use sd_notify::NotifyState;
use std::time::{Duration, Instant};
use toroni_net::inlet::Exclusive;
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

/// Says that an exclusive publisher keeps a node that works from bringing messages to a bus.
#[derive(Default)]
pub(super) struct Kept(Option<(Exclusive, Instant)>);

impl Kept {
    /// Returns what to say of the present state: when it begins, each 60 s, and when it is over.
    pub(super) fn line(&mut self, exclusive: Option<&Exclusive>) -> Option<Line> {
        match (&self.0, exclusive) {
            (Some((before, said)), Some(now)) if before == now && said.elapsed() < SAID_EVERY => {
                None
            }
            (_, Some(now)) => {
                self.0 = Some((now.clone(), Instant::now()));
                let Exclusive { bus, name, pid } = now;
                let text = format!(
                    "messages from other hosts wait: only {name:?}, process {pid}, can publish on bus {bus}, because it \
                     publishes exclusively: end that process, or choose another bus"
                );
                let line =
                    Line::new(Level::Warn, "waiting", text).by("for", Lack::Exclusive.name());
                Some(line.by("bus", bus).by("pid", pid))
            }
            (Some((Exclusive { bus, .. }, _)), None) => {
                let text = format!("the node publishes on bus {bus} again");
                let line = Line::new(Level::Info, "waited", text).by("for", Lack::Exclusive.name());
                let line = line.by("bus", bus);
                self.0 = None;
                Some(line)
            }
            (None, None) => None,
        }
    }
}
