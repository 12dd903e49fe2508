//! Silence: nothing comes back from other hosts. A user who tries `net send` and `net receive` for the first time learns what to
//! run then.

use std::time::{Duration, Instant};
use toroni_net::node::report::Report;

/// How long nothing may come back.
const LIMIT: Duration = Duration::from_secs(5);
const REMEDY: &str = "`toroni net probe`, run on both hosts at once, shows which of them hears the other, and `toroni node doctor` \
                      what a packet filter must admit";

/// Whether other hosts answer.
#[derive(Default)]
pub(super) struct Silence {
    /// Since when an answer is due.
    since: Option<Instant>,
    /// One has come, or it was said that none has.
    is_over: bool,
}

impl Silence {
    /// Returns what to say if no host has answered for 5 s, once.
    pub(super) fn notice(&mut self, now: Instant, report: &Report) -> Option<String> {
        if self.is_over {
            return None;
        }
        let sends = !report.sent.is_empty();
        let answers = if sends {
            report.sent.iter().any(|stream| !stream.receivers.is_empty())
        } else {
            // A SESSION answers the STATUS of a new receiver, and brings the name.
            report.heard.iter().any(|stream| stream.name.is_some())
        };
        if answers {
            self.is_over = true;
            return None;
        }
        // Receivers need not answer before there is something to receive.
        if sends && report.sent.iter().all(|stream| stream.counters.data == 0) {
            return None;
        }
        if now.duration_since(*self.since.get_or_insert(now)) < LIMIT {
            return None;
        }
        self.is_over = true;
        let what = if sends {
            "messages were sent 5 s ago, and no receiver has answered: no host of this realm receives them, or what it answers \
             does not reach this host"
        } else if report.link.received == 0 {
            "no datagram has come for 5 s: no host sends to this group, or its datagrams do not reach this host"
        } else {
            "datagrams come, and none that answers this host: they are of another realm or key, or what this host asks does not \
             reach their sender"
        };
        Some(format!("{what}. {REMEDY}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_once_after_five_seconds() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut report = Report::default();
        let mut silence = Silence::default();
        assert_eq!(silence.notice(at(0), &report), None);
        assert_eq!(silence.notice(at(4), &report), None);
        let said = silence.notice(at(5), &report).unwrap();
        assert!(said.starts_with("no datagram has come for 5 s: "), "{said}");
        assert!(said.contains("toroni net probe") && said.contains("toroni node doctor"), "{said}");
        assert_eq!(silence.notice(at(20), &report), None);
        // Of others.
        report.link.received = 1;
        let mut silence = Silence::default();
        assert_eq!(silence.notice(at(0), &report), None);
        let said = silence.notice(at(5), &report).unwrap();
        assert!(said.starts_with("datagrams come, and none that answers this host: "), "{said}");
    }
}
