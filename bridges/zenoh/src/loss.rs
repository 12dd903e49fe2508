//! Loss reports on their way over Zenoh: a bridge with `relay` forwards those that it finds on its bus.

use crate::order::StreamKey;
use serde::{Deserialize, Serialize};
use toroni::{Lost, LostBound, LostReason, Origin, Pattern};

/// The name under which an export counts the losses that it relays, and an importer puts them in order. No topic has an
/// empty segment, so it is none of a bus.
pub(crate) const TOPIC: &str = "@bridge//loss";
/// The stream of loss reports, whose series is the numbering.
pub(crate) const STREAM: u16 = u16::MAX;

/// A loss as it is sent, in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LossReport {
    source: u32,
    series: u32,
    stream: u16,
    from: u64,
    until: u64,
    messages: u64,
    bound: String,
    reason: String,
    scope: Vec<String>,
}

impl LossReport {
    pub(crate) fn new(lost: &Lost) -> Self {
        let Origin { source, series, stream, number } = lost.from;
        Self {
            source,
            series,
            stream,
            from: number,
            until: lost.until,
            messages: lost.messages,
            bound: lost.bound.as_str().to_owned(),
            reason: lost.reason.as_str().to_owned(),
            scope: lost.scope.iter().map(|pattern| pattern.as_str().to_owned()).collect(),
        }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads a loss. A reason that is not known becomes [`LostReason::Gone`]: a newer bridge may know more of them.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Lost> {
        let report: Self = serde_json::from_slice(bytes).ok()?;
        let Self { source, series, stream, from, until, messages, .. } = report;
        if from > until || until > Origin::NUMBER_LIMIT || from == Origin::NUMBER_LIMIT {
            return None;
        }
        if !(1..=Lost::MOST_PATTERNS).contains(&report.scope.len()) {
            return None;
        }
        let scope =
            report.scope.iter().map(|text| Pattern::new(text).ok()).collect::<Option<_>>()?;
        let bound = LostBound::ALL.into_iter().find(|bound| bound.as_str() == report.bound)?;
        let reason =
            LostReason::ALL.iter().copied().find(|reason| reason.as_str() == report.reason);
        Some(Lost {
            from: StreamKey { source, series, stream }.origin(from),
            until,
            messages,
            bound,
            reason: reason.unwrap_or(LostReason::Gone),
            scope,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lost() -> Lost {
        Lost {
            from: Origin { source: 1, series: 2, stream: 3, number: 7 },
            until: 9,
            messages: 2,
            bound: LostBound::Exact,
            reason: LostReason::TooLong,
            scope: vec![Pattern::new("a/**").unwrap()],
        }
    }

    #[test]
    fn a_loss_arrives_as_it_was_sent() {
        for reason in LostReason::ALL.iter().copied() {
            for bound in LostBound::ALL {
                let sent = Lost { reason, bound, ..lost() };
                assert_eq!(LossReport::parse(&LossReport::new(&sent).to_bytes()), Some(sent));
            }
        }
        let unknown = LossReport { reason: "flood".into(), ..LossReport::new(&lost()) };
        let parsed = LossReport::parse(&unknown.to_bytes()).expect("a newer bridge knows it");
        assert_eq!(parsed.reason, LostReason::Gone);
    }

    #[test]
    fn a_loss_that_no_bus_takes_is_refused() {
        let refused = |report: LossReport| LossReport::parse(&report.to_bytes()).is_none();
        let whole = || LossReport::new(&lost());
        assert!(!refused(whole()));
        assert!(refused(LossReport { from: 10, ..whole() }));
        assert!(refused(LossReport { until: (1 << 48) + 1, ..whole() }));
        assert!(refused(LossReport { bound: "some".into(), ..whole() }));
        assert!(refused(LossReport { scope: vec![], ..whole() }));
        assert!(refused(LossReport { scope: vec!["a".into(); 17], ..whole() }));
        assert!(refused(LossReport { scope: vec!["a//b".into()], ..whole() }));
    }

    proptest! {
        #[test]
        fn parsing_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = LossReport::parse(&bytes);
        }
    }
}
