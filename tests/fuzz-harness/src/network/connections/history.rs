//! What the server's caller does: it gives messages to the sets of patterns that they match, and brings history.

use super::oracle::{List, Sent, matches, topic_name};
use std::collections::BTreeMap;
use toroni_proto::batcher::Now;
use toroni_proto::bounded::server::{ClientId, Door, Held, Server, Wanted};
use toroni_proto::id::Number;
use toroni_proto::reassembly::Bound;
use toroni_proto::wire::tcp::Hello;
use toroni_proto::wire::{LostReason, Start, TableName};

pub(super) const SETS: usize = 4;
/// What a frame of the shortest batches brings of a message.
const FRAME_BYTES: usize = 200;
/// More than the names and headers that belong to a message.
const OVERHEAD_BYTES: usize = 200;

/// Which client belongs to which set of patterns. A set without clients is used again, with other patterns.
#[derive(Default)]
pub(super) struct Sets {
    /// The patterns of each set, and the longest message that its clients take.
    lists: [(Vec<String>, u32); SETS],
    members: BTreeMap<ClientId, usize>,
    /// Sets below this one have a message that others do not have yet, so they keep their patterns.
    fixed: usize,
}

impl Sets {
    pub(super) fn leave(&mut self, client: ClientId) {
        self.members.remove(&client);
    }
}

impl Door for Sets {
    fn hello(&mut self, client: ClientId, hello: &Hello<'_>) -> Option<usize> {
        let names: Vec<String> = hello.patterns().map(|name| name.as_str().to_owned()).collect();
        let list = (names, hello.message_max);
        let is_free = |set: &usize| self.members.values().all(|used| used != set);
        let same = (0..SETS).find(|set| self.lists[*set] == list);
        let set = same.or_else(|| (self.fixed..SETS).find(is_free))?;
        self.lists[set] = list;
        let before = self.members.insert(client, set);
        assert_eq!(before, None, "{client:?} has said HELLO twice");
        Some(set)
    }
}

/// The streams, as the server's caller has them.
pub(super) struct History {
    pub(super) lists: Vec<List>,
    /// The next number of each stream.
    pub(super) next: Vec<u64>,
    /// What was given to all sets, and how many sets have the message after it.
    given: Vec<(u64, usize)>,
    pub(super) sets: Sets,
    /// How many messages of a stream can be replayed.
    pub(super) kept: usize,
}

pub(super) fn number(value: u64) -> Number {
    Number::new(value).unwrap()
}

impl History {
    pub(super) fn new(streams: usize, first: u64, kept: usize) -> Self {
        Self {
            lists: vec![List::new(); streams],
            next: vec![first; streams],
            given: vec![(first, 0); streams],
            sets: Sets::default(),
            kept,
        }
    }

    /// A new server takes what is new.
    pub(super) fn begin(&mut self) {
        self.given = self.next.iter().map(|next| (*next, 0)).collect();
        self.sets = Sets::default();
    }

    pub(super) fn publish(&mut self, stream: usize, skipped: u64, sent: Sent) {
        let next = &mut self.next[stream];
        *next += skipped;
        self.lists[stream].insert(*next, sent);
        *next += 1;
    }

    /// How many rounds all messages take once, if a connection takes `buffer` bytes in a round and a frame has at least one
    /// message, or [`FRAME_BYTES`] of one.
    pub(super) fn rounds(&self, buffer: usize) -> usize {
        let sent = self.lists.iter().flat_map(List::values);
        sent.map(|sent| (OVERHEAD_BYTES + sent.length).div_ceil(buffer.min(FRAME_BYTES))).sum()
    }

    /// How many bytes of frames bring all messages once.
    pub(super) fn frame_bytes(&self) -> u64 {
        let sent = self.lists.iter().flat_map(List::values);
        sent.map(|sent| of_frames(sent.length)).sum()
    }

    /// Gives the server what is new. A client may hold it.
    pub(super) fn feed(&mut self, server: &mut Server, now: Now) {
        self.sets.fixed = 0;
        for stream in 0..self.lists.len() {
            if self.feed_stream(server, now, stream).is_err() {
                self.sets.fixed = self.sets.fixed.max(self.given[stream].1);
            }
        }
    }

    fn feed_stream(&mut self, server: &mut Server, now: Now, stream: usize) -> Result<(), Held> {
        let (from, mut set) = self.given[stream];
        for (&at, sent) in self.lists[stream].range(from..) {
            while set < SETS {
                if matches(&self.sets.lists[set].0, sent.topic) {
                    offer(server, now, (stream, set), at, *sent)?;
                }
                set += 1;
                self.given[stream] = (at, set);
            }
            set = 0;
            server.taken(stream, number(at + 1));
            self.given[stream] = (at + 1, 0);
        }
        Ok(())
    }

    /// Brings history to a client.
    pub(super) fn replay(&self, server: &mut Server, now: Now, wanted: &Wanted) {
        let list = &self.lists[wanted.stream];
        // What is older than the history is gone.
        let begins = (list.len() >= self.kept).then(|| list.keys().nth_back(self.kept - 1));
        let begins = begins.flatten().map_or(0, |begins| *begins).min(wanted.end.get());
        if wanted.from.get() < begins {
            let until = number(begins);
            let count = until.since(wanted.from);
            let (bound, reason) = (Bound::AtMost, LostReason::Gone);
            if server.replay_lost(now, wanted, count, bound, until, reason).is_ok() {
                server.replay_to(now, wanted, until);
            }
            return;
        }
        let mut reached = wanted.end;
        for (&at, sent) in list.range(wanted.from.get()..wanted.end.get()) {
            if !matches(&self.sets.lists[wanted.set].0, sent.topic) {
                continue;
            }
            let topic = topic_name(sent.topic);
            let topic = server.topic(wanted.stream, TableName::new(&topic).unwrap());
            let until = number(at + 1);
            let result = match topic.filter(|_| !sent.missed) {
                None => {
                    let (bound, reason) = (Bound::Exact, LostReason::Overtaken);
                    server.replay_lost(now, wanted, 1, bound, until, reason)
                }
                Some(topic) => {
                    let start = Start { topic, ..start(at) };
                    server.replay_message(now, wanted, start, &sent.payload(at))
                }
            };
            if result.is_err() {
                reached = wanted.from;
                break;
            }
        }
        server.replay_to(now, wanted, reached);
    }
}

/// How many bytes of frames bring a message of this length, at most, with what the rate counts besides.
pub(super) const fn of_frames(length: usize) -> u64 {
    3 * (OVERHEAD_BYTES + length) as u64
}

fn offer(
    server: &mut Server,
    now: Now,
    (stream, set): (usize, usize),
    at: u64,
    sent: Sent,
) -> Result<(), Held> {
    let topic = topic_name(sent.topic);
    let topic = server.topic(stream, TableName::new(&topic).unwrap());
    match topic.filter(|_| !sent.missed) {
        None => server.lost(now, stream, set, 1, number(at + 1), LostReason::Overtaken),
        Some(topic) => {
            let start = Start { topic, ..start(at) };
            server.message(now, stream, set, start, &sent.payload(at))
        }
    }
}

fn start(at: u64) -> Start {
    let topic = toroni_proto::wire::TopicNumber::new(0).unwrap();
    let to_descendants = at.is_multiple_of(2);
    Start { topic, number: number(at), to_descendants, published: None, origin: None }
}
