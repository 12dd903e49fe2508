//! What a receiving node may put out.

use std::collections::BTreeSet;
use toroni_proto::arrivals::{Flow, Inbox};
use toroni_proto::reassembly::{Bound, Loss, Message};
use toroni_proto::wire::{LostReason, TableName, TopicNumber};

/// The output so far, and what was published.
pub(super) struct Oracle {
    /// The payload of each message of the true session, by its number among its messages.
    pub(super) published: Vec<Vec<u8>>,
    /// Whether messages are delivered in the order of their source.
    ordered: bool,
    /// Whether nothing was forged, so that the output must be the truth.
    pub(super) is_honest: bool,
    /// Whether the source has reported a loss of unknown size.
    pub(super) is_unsure: bool,
    /// The next message of the true session, once one was delivered or reported.
    next: Option<u64>,
    /// Without order: which messages were delivered or reported.
    seen: BTreeSet<u64>,
    /// The true stream.
    truth: Key,
}

impl Oracle {
    pub(super) fn new(ordered: bool, truth: Key) -> Self {
        Self {
            published: Vec::new(),
            ordered,
            is_honest: true,
            is_unsure: false,
            next: None,
            seen: BTreeSet::new(),
            truth,
        }
    }

    fn is_truth(&self, flow: Flow) -> bool {
        self.is_honest && self.truth == key(flow)
    }

    /// Notes that the messages of the true session from one to before another were delivered or reported.
    fn account(&mut self, first: u64, end: u64) {
        if self.ordered {
            if let Some(next) = self.next {
                assert_eq!(
                    first, next,
                    "what is between came twice, or was neither delivered nor reported"
                );
            }
            self.next = Some(end);
        } else {
            for message in first..end {
                assert!(self.seen.insert(message), "message {message} came twice");
            }
        }
    }

    /// Checks that everything from the first message on was delivered or reported.
    pub(super) fn check_complete(&self) {
        let all = self.published.len() as u64;
        if self.ordered {
            assert!(self.next.is_none_or(|next| next == all), "{:?} of {all}", self.next);
        } else if let Some(first) = self.seen.first() {
            assert_eq!(self.seen.len() as u64, all - first, "{:?} of {all}", self.seen);
        }
    }
}

/// Source, session and stream.
type Key = (u32, u32, u16);

fn key(flow: Flow) -> Key {
    (flow.source.0, flow.session.0, flow.stream.0)
}

impl Inbox for Oracle {
    fn message(&mut self, flow: Flow, message: Message<'_>) {
        let length = message.parts.length();
        let at = message.message.get();
        let bytes = message.parts.collect::<Vec<_>>().concat();
        assert_eq!(bytes.len(), length, "message {at} of {flow:?}");
        if self.is_truth(flow) {
            let published = self.published.get(usize::try_from(at).unwrap());
            assert_eq!(published, Some(&bytes), "message {at}");
            self.account(at, at + 1);
        }
    }

    fn topic(&mut self, _: Flow, _: TopicNumber, _: TableName<'_>) {}

    fn loss(&mut self, flow: Flow, loss: Loss) {
        if let (Some(after), Some(until)) = (loss.after, loss.until) {
            assert!(after < until || loss.count == 0, "{loss:?}");
        }
        let first = loss.message.get();
        assert!(loss.count > 0 || loss.bound != Bound::Exact, "{loss:?}");
        if !self.is_truth(flow) {
            return;
        }
        // What was sent last and lost with its source has no count. What may hide a loss of unknown size is an upper bound; here all
        // sizes are known, so it is the count.
        let is_unsure = self.is_unsure || loss.reason == LostReason::Jump;
        let is_counted = loss.bound == Bound::Exact || (loss.bound == Bound::AtMost && is_unsure);
        assert!(is_counted || loss.count == 0, "{loss:?}");
        if is_counted {
            self.account(first, first + loss.count);
        }
    }
}
