//! The sets of clients: frames are made once for all clients with the same patterns, which take messages of the same length.

use super::streams::has;
use std::collections::HashMap;
use toroni::Pattern;
use toroni_proto::bounded::server::{ClientId, Door};
use toroni_proto::wire::tcp::Hello;

/// How many patterns a client has at most: each message is compared with all of them.
const MAX_CLIENT_PATTERNS: usize = 1_024;

struct Set {
    patterns: Vec<Pattern>,
    /// The longest message that its clients take, in bytes.
    message_max: u32,
    members: usize,
}

/// Decides which clients share frames.
pub(super) struct Sets {
    all: Vec<Set>,
    most: usize,
    of_client: HashMap<ClientId, usize>,
    /// Sets below this one keep their patterns: they have a message that the others do not have yet.
    kept: usize,
    /// Counts the changes of patterns.
    pub(super) version: u64,
    /// Clients that said who they are, with their names.
    joined: Vec<(ClientId, String)>,
}

impl Sets {
    pub(super) fn new(most: usize) -> Self {
        Self {
            all: Vec::new(),
            most,
            of_client: HashMap::new(),
            kept: 0,
            version: 0,
            joined: Vec::new(),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// Keeps the patterns of the sets below this one.
    pub(super) fn keep(&mut self, below: usize) {
        self.kept = below;
    }

    /// Returns the patterns of a set.
    pub(super) fn patterns(&self, set: usize) -> &[Pattern] {
        self.all.get(set).map_or(&[], |set| &set.patterns)
    }

    /// Returns whether a set gets a topic of a stream.
    pub(super) fn has(&self, set: usize, topic: &str, to_descendants: bool) -> bool {
        self.patterns(set).iter().any(|pattern| has(pattern, topic, to_descendants))
    }

    /// Notes that a client has left.
    pub(super) fn leave(&mut self, client: ClientId) {
        if let Some(set) = self.of_client.remove(&client)
            && let Some(set) = self.all.get_mut(set)
        {
            set.members = set.members.saturating_sub(1);
        }
    }

    /// Takes a client that has joined since the last call, and its name.
    pub(super) fn joined(&mut self) -> Option<(ClientId, String)> {
        self.joined.pop()
    }

    fn place(&mut self, patterns: Vec<Pattern>, message_max: u32) -> Option<usize> {
        let same = |set: &Set| {
            set.message_max == message_max
                && set.patterns.iter().map(Pattern::as_str).eq(patterns.iter().map(Pattern::as_str))
        };
        if let Some(found) = self.all.iter().position(same) {
            return Some(found);
        }
        self.version += 1;
        let set = Set { patterns, message_max, members: 0 };
        if self.all.len() < self.most {
            self.all.push(set);
            return Some(self.all.len() - 1);
        }
        let free = self.all.iter().skip(self.kept).position(|set| set.members == 0)? + self.kept;
        self.all[free] = set;
        Some(free)
    }
}

impl Door for Sets {
    fn hello(&mut self, client: ClientId, hello: &Hello<'_>) -> Option<usize> {
        let mut patterns = Vec::new();
        for name in hello.patterns().take(MAX_CLIENT_PATTERNS + 1) {
            patterns.push(Pattern::new(name.as_str()).ok()?);
        }
        if patterns.len() > MAX_CLIENT_PATTERNS {
            return None;
        }
        patterns.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        patterns.dedup_by(|a, b| a.as_str() == b.as_str());
        let set = self.place(patterns, hello.message_max)?;
        self.all[set].members += 1;
        self.of_client.insert(client, set);
        self.joined.push((client, hello.name.as_str().to_owned()));
        Some(set)
    }
}
