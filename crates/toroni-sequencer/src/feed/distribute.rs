//! A member's events as they happen: to the follower of its host, and, while it leads, to who sends them to other hosts.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::archive::Archive;
use super::live::Live;
use crate::rpc::{Events, Fetch, Fetched};

/// Events are handed on at once until they have this many bytes.
const RUN_BYTES: u32 = 64 << 10;
/// If no events come, this member checks this often whether it leads.
const LOOK: Duration = Duration::from_millis(100);
/// A new leader sends again what it has learnt within this time: the leader before may have died before it sent that. On a busy
/// machine, a second passes between two steps of a test.
const AGAIN: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 1 });
/// But it sends at most this many bytes of that again.
const AGAIN_BYTES: usize = 4 << 20;

/// Hands on all events of an archive from now on. `leads` says whether this member leads.
pub(crate) async fn run(
    archive: Archive,
    leads: impl Fn() -> bool,
    local: Option<Live>,
    to_send: Option<Live>,
) {
    let mut from = archive.now().next;
    let mut outgoing = to_send.map(Outgoing::new);
    loop {
        match archive.fetch(Fetch { from, max_bytes: RUN_BYTES, wait: LOOK, series: None }).await {
            Ok(Fetched { events: Some(events), .. }) => {
                from = events.end();
                if let Some(outgoing) = &mut outgoing {
                    outgoing.turn(leads(), &events);
                }
                if let Some(local) = local.as_ref().filter(|_| !events.is_empty()) {
                    local.push(events);
                }
            }
            // A snapshot stood for them.
            Ok(Fetched { now, .. }) => from = now.next,
            // Followers ask for what is left out.
            Err(_) => {
                sleep(LOOK).await;
                from = archive.now().next;
            }
        }
    }
}

/// What a member sends while it leads.
struct Outgoing {
    to: Live,
    leads: bool,
    /// What was not sent, because another member leads.
    recent: VecDeque<(Instant, Events)>,
    recent_bytes: usize,
}

impl Outgoing {
    const fn new(to: Live) -> Self {
        Self { to, leads: false, recent: VecDeque::new(), recent_bytes: 0 }
    }

    fn turn(&mut self, leads: bool, events: &Events) {
        let now = Instant::now();
        while let Some((at, oldest)) = self.recent.front()
            && (self.recent_bytes > AGAIN_BYTES || now.duration_since(*at) > AGAIN)
        {
            self.recent_bytes -= oldest.encoded_bytes();
            self.recent.pop_front();
        }
        if leads && !self.leads {
            self.recent.drain(..).for_each(|(_, events)| self.to.push(events));
            self.recent_bytes = 0;
        }
        self.leads = leads;
        if events.is_empty() {
            return;
        }
        if leads {
            return self.to.push(events.clone());
        }
        self.recent_bytes += events.encoded_bytes();
        self.recent.push_back((now, events.clone()));
    }
}
