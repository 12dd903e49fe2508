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
    /// Since when a stream is heard, and no source has counted a receiver.
    uncounted: Option<Instant>,
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
            // This host is one of them, or no answer of it would be missed.
            report.heard.iter().any(|stream| stream.receivers.is_some_and(|count| count > 0))
        };
        if answers {
            self.is_over = true;
            return None;
        }
        // What this host asks may be lost although it hears everything.
        if !sends && report.heard.iter().any(|stream| stream.receivers.is_some()) {
            if now.duration_since(*self.uncounted.get_or_insert(now)) < LIMIT {
                return None;
            }
            self.is_over = true;
            let what = "streams are heard, and for 5 s none of them has counted this host as a receiver: what it sends does not reach \
                        their hosts, so that what is lost cannot be repaired";
            return Some(format!("{what}. {REMEDY}"));
        }
        self.uncounted = None;
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
    use toroni_net::node::report::Heard;
    use toroni_proto::id::{Session, Source, Stream};
    use toroni_proto::receiver::Counters;

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

    #[test]
    fn a_receiver_that_no_source_counts_learns_that_it_is_not_heard() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let heard = |receivers| {
            let (source, stream, session) = (Source(1), Stream(1), Session(1));
            let (name, counters, legs) = (None, Counters::default(), Vec::new());
            let (held, held_ns, open_gaps) = (0, 0, 0);
            Report {
                heard: vec![Heard {
                    source,
                    stream,
                    session,
                    name,
                    receivers,
                    counters,
                    held,
                    held_ns,
                    open_gaps,
                    legs,
                }],
                ..Report::default()
            }
        };
        let mut silence = Silence::default();
        assert_eq!(silence.notice(at(0), &Report::default()), None);
        // The wait begins with the first SESSION.
        assert_eq!(silence.notice(at(4), &heard(Some(0))), None);
        assert_eq!(silence.notice(at(8), &heard(Some(0))), None);
        let said = silence.notice(at(9), &heard(Some(0))).unwrap();
        assert!(said.contains("what it sends does not reach their hosts"), "{said}");
        assert_eq!(silence.notice(at(20), &heard(Some(0))), None);
        let mut silence = Silence::default();
        assert_eq!(silence.notice(at(0), &heard(Some(0))), None);
        assert_eq!(silence.notice(at(4), &heard(Some(1))), None);
        assert_eq!(silence.notice(at(30), &heard(Some(0))), None);
    }
}
