//! What one run models: how large the ring is, which processes take part, and what may go wrong.

use crate::mistakes::Mistake;
use crate::state::{
    MOST_BLOCKS, MOST_MESSAGES, MOST_PUBLISHERS, MOST_SUBSCRIBERS, MOST_TOPICS, MOST_WORDS,
};

/// What one call of a publisher publishes. Numbers are words of payload, 0 to 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// `publish`.
    One(u8),
    /// `publish_batch`: one commit for all.
    Batch(Vec<u8>),
    /// `burst`: a commit each, the lock held as long as there is space.
    Burst(Vec<u8>),
}

impl Work {
    /// Payload lengths of its records.
    #[must_use]
    pub fn lengths(&self) -> &[u8] {
        match self {
            Self::One(length) => std::slice::from_ref(length),
            Self::Batch(lengths) | Self::Burst(lengths) => lengths,
        }
    }
}

/// What publishers do about slow subscribers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Overwrite,
    /// They wait as long as the subscriber lives: `Wait { limit: None }`.
    Wait,
    /// They wait, and overwrite at the limit: `Wait { limit: Some(_) }`, and `Bounded`, which differs
    /// only in who pays. When the limit is reached is left open: at any time.
    Limit,
}

/// How a writer learns that the owner of the lock died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// A waiter finds the owner's lease free, and takes over by a compare-exchange on what it saw.
    Lease,
    /// The kernel hands the lock over.
    Robust,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the end of the stream.
    End,
    /// At the oldest message.
    Oldest,
}

/// Which topics a subscriber wants. Each is a bit for each topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Interest {
    pub wants: u8,
    /// What it adds by `add_pattern`, at any time; 0 is nothing.
    pub adds: u8,
    /// What the next owner of its slot wants.
    pub next_owner: u8,
}

impl Interest {
    /// All topics.
    pub const ALL: Self = Self { wants: u8::MAX, adds: 0, next_owner: u8::MAX };

    /// Always the same topics.
    #[must_use]
    pub const fn of(wants: u8) -> Self {
        Self { wants, adds: 0, next_owner: wants }
    }
}

#[derive(Clone, Debug)]
pub struct Setup {
    /// Capacity of the ring in words: a power of two, at most 64.
    pub words: u8,
    /// Blocks of the ring: a power of two; at least a word each.
    pub blocks: u8,
    /// Words that a subscriber reads ahead at most, 2 to 4. Records of more than two words do not
    /// go through it.
    pub read_ahead: u8,
    /// What publishers do about slow subscribers.
    pub policy: Policy,
    /// The kind of writer lock.
    pub lock: Lock,
    /// Whether subscribers sleep when they have caught up; else they poll.
    pub sleep: bool,
    /// One list a publisher.
    pub works: Vec<Vec<Work>>,
    /// The topics of the messages, in the order of all lists. If it is empty, all are on one topic.
    pub topics: Vec<u8>,
    /// How many topics are in the table at the beginning. A publisher appends the others before it publishes on them.
    pub known_topics: u8,
    /// Whether the columns of the slots are full of bits at the beginning, as after a reset of the bus. No subscriber is
    /// there then.
    pub stale_columns: bool,
    /// Whether subscribers pass over what they do not want without reading it.
    pub passes: bool,
    /// How many publishers, from the first, are exclusive: each keeps the lock from before its first call to after its
    /// last.
    pub exclusive: usize,
    /// How many publishers, up to the last, come at any time. Each takes a slot whose lease is free, perhaps that of a
    /// process that lives and lost its lease.
    pub late: usize,
    /// Subscribers; the first `joined` are there at the beginning, the others join at any time.
    pub subscribers: usize,
    /// What they want, from the first. The others want all topics.
    pub interests: Vec<Interest>,
    /// See `subscribers`.
    pub joined: usize,
    /// Where the others begin.
    pub start: Start,
    /// How many processes may die, in all.
    pub deaths: u8,
    /// How many may be stopped for ever.
    pub stops: u8,
    /// How many exclusive publishers may lose their leases and live on.
    pub losses: u8,
    /// How many that died may come back, as new processes in the same slot.
    pub restarts: u8,
    /// How many subscribers may leave in order.
    pub leaves: u8,
    /// Whether publishers or subscribers are the ones who die and are stopped.
    pub victims: Victims,
    /// The mistake that is built in.
    pub mistake: Option<Mistake>,
}

/// Who may die and be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victims {
    All,
    Publishers,
    Subscribers,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            words: 8,
            blocks: 4,
            read_ahead: 4,
            policy: Policy::Overwrite,
            lock: Lock::Lease,
            sleep: false,
            works: Vec::new(),
            topics: Vec::new(),
            known_topics: 1,
            stale_columns: false,
            passes: false,
            exclusive: 0,
            late: 0,
            subscribers: 1,
            interests: Vec::new(),
            joined: usize::MAX,
            start: Start::End,
            deaths: 0,
            stops: 0,
            losses: 0,
            restarts: 0,
            leaves: 0,
            victims: Victims::All,
            mistake: None,
        }
    }
}

impl Setup {
    /// Checks that the model can hold it.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        let is = |right: bool, what: &str| if right { Ok(()) } else { Err(what.to_owned()) };
        is(
            self.words.is_power_of_two() && usize::from(self.words) <= MOST_WORDS,
            "words: 4 to 64",
        )?;
        is(
            self.blocks.is_power_of_two()
                && self.blocks <= self.words
                && usize::from(self.blocks) <= MOST_BLOCKS,
            "blocks: a power of two, at most one a word",
        )?;
        is(self.blocks >= 2, "blocks: at least 2")?;
        is((2..=4).contains(&self.read_ahead), "read_ahead: 2 to 4 words")?;
        is(self.works.len() <= MOST_PUBLISHERS, "publishers: at most 3")?;
        is(
            self.exclusive <= self.works.len(),
            "exclusive publishers: at most as many as publishers",
        )?;
        is(self.late <= self.works.len(), "late publishers: at most as many as publishers")?;
        is(
            self.exclusive == 0 || self.lock == Lock::Lease,
            "an exclusive publisher cannot keep a robust lock",
        )?;
        // A publisher that takes over waits for a moment, but a stopped process may continue at any time.
        is(self.losses == 0 || self.stops == 0, "losses of leases, or stops")?;
        is(!self.stale_columns || self.joined == 0, "stale columns: before any subscriber")?;
        is(self.subscribers <= MOST_SUBSCRIBERS, "subscribers: at most 3")?;
        let works = || self.works.iter().flatten();
        let lengths: Vec<u8> = works().flat_map(|work| work.lengths().iter().copied()).collect();
        is(lengths.len() <= MOST_MESSAGES, "messages: at most 31 in all")?;
        is(lengths.iter().all(|length| *length <= 3), "payloads: at most 3 words")?;
        is(
            self.topics.is_empty() || self.topics.len() == lengths.len(),
            "topics: none, or one for each message",
        )?;
        is(
            self.topics.iter().all(|topic| *topic < MOST_TOPICS)
                && (1..=MOST_TOPICS).contains(&self.known_topics),
            "topics: at most 2",
        )?;
        is(
            self.interests.is_empty() || !self.topics.is_empty(),
            "subscribers that do not want all: only with topics",
        )?;
        let largest = works().map(|work| match work {
            Work::Batch(lengths) => lengths.iter().map(|length| 1 + length).sum(),
            Work::One(length) => 1 + length,
            Work::Burst(lengths) => 1 + lengths.iter().max().copied().unwrap_or(0),
        });
        is(
            largest.max().unwrap_or(0) <= self.words / 2,
            "records and batches: at most half of the ring",
        )
    }

    /// Whether the publisher of this number is exclusive.
    #[must_use]
    pub fn is_exclusive(&self, publisher: usize) -> bool {
        publisher < self.exclusive
    }

    /// Words of payload of a message.
    pub(crate) fn length(&self, stamp: u8) -> u8 {
        let mut lengths = self.works.iter().flatten().flat_map(|work| work.lengths().iter());
        *lengths.nth(stamp.into()).expect("a message of this setup")
    }

    /// The bit of a message's topic.
    #[must_use]
    pub fn topic_bit(&self, stamp: u8) -> u8 {
        1 << self.topics.get(usize::from(stamp)).copied().unwrap_or(0)
    }

    /// Whether there is more than one topic. Otherwise subscribers have no column.
    #[must_use]
    pub fn has_topics(&self) -> bool {
        !self.topics.is_empty()
    }

    /// A bit for each slot of a subscriber.
    pub(crate) fn all_slots(&self) -> u8 {
        small((1 << self.subscribers) - 1)
    }

    /// The number of the first message of a publisher's work: messages are numbered through all lists.
    pub(crate) fn stamp(&self, publisher: usize, work: usize) -> u8 {
        let before = self.works[..publisher].iter().flatten();
        let own = self.works[publisher][..work].iter();
        let count: usize = before.chain(own).map(|work| work.lengths().len()).sum();
        small(count)
    }
}

/// A number that the limits of [`Setup::check`] keep small.
pub(crate) fn small(number: usize) -> u8 {
    u8::try_from(number).expect("Setup::check bounds it")
}
