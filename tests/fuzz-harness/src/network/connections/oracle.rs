//! What a client may put out. It knows no protocol: only the list of what was published.

use std::collections::BTreeMap;
use std::ops::Range;
use toroni_proto::arrivals::{Flow, Inbox};
use toroni_proto::reassembly::{Bound, Loss, Message};
use toroni_proto::wire::{TableName, TopicNumber};

/// A message as its source has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub(super) topic: u8,
    pub(super) length: usize,
    /// It can only be reported as lost.
    pub(super) missed: bool,
}

impl Sent {
    /// The bytes of the message with this number.
    pub(super) fn payload(self, number: u64) -> Vec<u8> {
        let first = number.to_le_bytes()[0];
        // They repeat after 256, and copying is much faster than computing each.
        let pattern: [u8; 256] = std::array::from_fn(|at| first ^ (at * 7).to_le_bytes()[0]);
        let mut bytes = pattern.repeat(self.length.div_ceil(pattern.len()));
        bytes.truncate(self.length);
        bytes
    }
}

/// The messages of a stream, by their numbers.
pub(super) type List = BTreeMap<u64, Sent>;

pub(super) fn topic_name(topic: u8) -> String {
    format!("t/{topic}")
}

pub(super) fn matches(patterns: &[String], topic: u8) -> bool {
    patterns.iter().any(|one| one == "**" || *one == topic_name(topic))
}

/// Checks what a client delivers, while it does.
pub(super) struct Oracle {
    pub(super) patterns: Vec<String>,
    /// Whether nothing forged can have changed what the client gets, so that it must be the truth.
    pub(super) is_honest: bool,
    /// Everything below was delivered or reported, for each stream that was joined.
    pub(super) marks: Vec<Option<u64>>,
    /// What the caller asked for again. Once, what comes begins there.
    pub(super) asked: Vec<Option<Range<u64>>>,
    names: BTreeMap<(u32, u16, u32), String>,
}

/// The oracle of a client, with what was published.
pub(super) struct Judge<'a> {
    pub(super) oracle: &'a mut Oracle,
    pub(super) lists: &'a [List],
}

impl Oracle {
    pub(super) fn new(patterns: &[&str], streams: usize) -> Self {
        Self {
            patterns: patterns.iter().map(|&one| one.to_owned()).collect(),
            is_honest: true,
            marks: vec![None; streams],
            asked: vec![None; streams],
            names: BTreeMap::new(),
        }
    }

    fn wanted(&self, list: &List, from: u64, until: u64) -> u64 {
        if from >= until {
            return 0;
        }
        let between = list.range(from..until);
        between.filter(|(_, sent)| matches(&self.patterns, sent.topic)).count() as u64
    }

    /// Where the stream is, when what comes next has this number or a greater one.
    fn mark(&mut self, stream: usize, number: u64) -> u64 {
        let mark = self.marks[stream].unwrap_or(number);
        match self.asked[stream].take_if(|_| number < mark) {
            Some(asked) => asked.start,
            None => mark,
        }
    }

    /// Checks that everything from the first message on was delivered or reported.
    pub(super) fn check_complete(&self, stream: usize, list: &List, end: u64) {
        let mark = self.marks[stream].expect("a client that is live has joined all streams");
        let silent = self.wanted(list, mark, end);
        assert_eq!(silent, 0, "messages of stream {stream} from {mark} below {end} are missing");
        if let Some(asked) = &self.asked[stream] {
            let silent = self.wanted(list, asked.start, asked.end);
            assert_eq!(silent, 0, "messages {asked:?} of stream {stream} did not come again");
        }
    }
}

impl Inbox for Judge<'_> {
    fn message(&mut self, flow: Flow, message: Message<'_>) {
        let length = message.parts.length();
        let bytes = message.parts.collect::<Vec<_>>().concat();
        assert_eq!(bytes.len(), length, "{flow:?}");
        if !self.oracle.is_honest {
            return;
        }
        let (stream, number) = (usize::from(flow.stream.0), message.start.number.get());
        let list = &self.lists[stream];
        let mark = self.oracle.mark(stream, number);
        assert!(number >= mark, "{number} of stream {stream} after {mark}");
        let silent = self.oracle.wanted(list, mark, number);
        assert_eq!(
            silent, 0,
            "messages of stream {stream} from {mark} below {number} not reported"
        );
        let sent = list.get(&number).expect("it was published");
        assert!(!sent.missed && sent.payload(number) == bytes, "{number}: {sent:?}");
        let key = (flow.session.0, flow.stream.0, message.start.topic.get());
        assert_eq!(self.oracle.names.get(&key), Some(&topic_name(sent.topic)), "{number}");
        assert!(matches(&self.oracle.patterns, sent.topic), "{number}: {sent:?}");
        self.oracle.marks[stream] = Some(number + 1);
    }

    fn topic(&mut self, flow: Flow, number: TopicNumber, name: TableName<'_>) {
        let key = (flow.session.0, flow.stream.0, number.get());
        self.oracle.names.insert(key, name.as_str().to_owned());
    }

    fn loss(&mut self, flow: Flow, loss: Loss) {
        assert!(loss.count > 0 || loss.bound == Bound::AtLeast, "{loss:?}");
        if !self.oracle.is_honest {
            return;
        }
        let stream = usize::from(flow.stream.0);
        let until = loss.until.expect("the series stays").get();
        let from = loss.after.map_or(0, |after| after.get() + 1);
        let mark = self.oracle.mark(stream, from);
        let lost = self.oracle.wanted(&self.lists[stream], mark, until);
        let is_right = match loss.bound {
            Bound::Exact => lost == loss.count,
            Bound::AtLeast => lost >= loss.count,
            Bound::AtMost => lost <= loss.count,
        };
        assert!(is_right, "{lost} messages of stream {stream} from {mark}: {loss:?}");
        self.oracle.marks[stream] = Some(mark.max(until));
    }
}
