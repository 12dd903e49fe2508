//! A state: the words that processes share, what each process has in its registers, and the truth that
//! only the checker knows.
//!
//! Counters of the protocol only grow and are only compared for equality. A state does not hold them: it
//! holds, for each place that remembers one, whether it is still the current one. So states that differ
//! only in how often something happened are one state.

use crate::publisher::Doing;
use crate::setup::{Interest, Setup, small};
use crate::subscriber::Reading;
use std::hash::{Hash, Hasher};

/// Words of the largest ring.
pub const MOST_WORDS: usize = 64;
/// Blocks of the largest ring.
pub const MOST_BLOCKS: usize = 64;
/// Publishers at the most.
pub const MOST_PUBLISHERS: usize = 3;
/// Subscribers at the most.
pub const MOST_SUBSCRIBERS: usize = 3;
/// Messages at the most, of all publishers.
pub const MOST_MESSAGES: usize = 31;
/// Topics at the most.
pub const MOST_TOPICS: u8 = 2;
/// Position of an index entry that changes, or was never set.
pub const NO_ENTRY: u8 = u8::MAX;

/// A place in the stream: before the record at `position` (in words), which has number `sequence`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordStart {
    /// Words of the stream before it.
    pub position: u8,
    pub sequence: u8,
}

/// The lock word: who holds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LockWord {
    /// Slot of the publisher, plus 1; 0 is free.
    pub owner: u8,
    /// Generation of the slot.
    pub generation: u8,
    /// The owner is an exclusive publisher: others do not wait for it.
    pub exclusive: bool,
}

/// An array of which only the first items are used. The others do not distinguish states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<T, const N: usize> {
    used: usize,
    items: [T; N],
}

impl<T: Copy, const N: usize> Row<T, N> {
    pub(crate) fn new(item: T, used: usize) -> Self {
        Self { used, items: [item; N] }
    }

    pub(crate) fn push(&mut self, item: T) {
        self.items[self.used] = item;
        self.used += 1;
    }
}

impl<T, const N: usize> std::ops::Deref for Row<T, N> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items[..self.used]
    }
}

impl<T, const N: usize> std::ops::DerefMut for Row<T, N> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.items[..self.used]
    }
}

impl<T: Hash, const N: usize> Hash for Row<T, N> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self[..].hash(hasher);
    }
}

/// The file `ring`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ring {
    pub lock: LockWord,
    /// Position at which the next record starts.
    pub tail: u8,
    /// The end of the record that is being committed; otherwise `tail`.
    pub next: u8,
    pub sequence: u8,
    /// Up to where writers may have begun to write.
    pub reserved: u8,
    /// The latest proposal of a writer.
    pub proposed: u8,
    /// The position that subscribers should reach before they wake a waiting publisher.
    pub until: u8,
    /// How many topics the table has.
    pub topics: u8,
    /// Of each topic a position at or after the end of its newest record.
    pub bounds: Row<u8, { MOST_TOPICS as usize }>,
    pub words: Row<u8, MOST_WORDS>,
    pub index: Row<RecordStart, MOST_BLOCKS>,
}

/// A slot of the file `readers`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot {
    /// Raised by each claim.
    pub generation: u8,
    /// Whether its owner is at work.
    pub active: bool,
    /// Everything before it has been read.
    pub position: u8,
    /// Its column of the rows: a bit for each topic of which its owner says that it wants nothing.
    pub unwanted: u8,
}

/// Whether a process takes steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Life {
    #[default]
    Running,
    /// It does not, and holds what it has: its leases, the lock, a gating position.
    Stopped,
    /// It does not, and the kernel has freed its leases.
    Dead,
}

impl Life {
    /// Whether the kernel holds its lease.
    #[must_use]
    pub fn has_lease(self) -> bool {
        self != Self::Dead
    }
}

/// A publishing participant, with one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Publisher {
    /// Whether it takes steps.
    pub life: Life,
    /// Its slot.
    pub slot: u8,
    /// The generation that it gave the slot.
    pub generation: u8,
    /// Whether the kernel holds its lease. A living process can lose it: other code of the process closes the
    /// descriptor.
    pub lease: bool,
    /// It is exclusive and has not given up the lock, as far as it knows.
    pub keeps: bool,
    /// The call in its list that it is at, and the record of a burst.
    pub work: u8,
    /// See `work`.
    pub item: u8,
    /// The step that it takes next.
    pub doing: Doing,
    /// It committed, and has not woken the sleepers yet: a bit for each topic.
    pub owes: u8,
    /// The policy's limit was reached in this call.
    pub expired: bool,
    /// The count of sleeps that it noted is the current one.
    pub noted: bool,
    /// So is the one that it loaded in the round that it makes.
    pub counted: bool,
    /// What it knows of the slots, a bit for each: those that it remembers as asleep.
    pub asleep: u8,
    /// Those of them that have not armed since it looked at them.
    pub seen: u8,
    /// Those that have armed since the count for which it woke them last.
    pub armed: u8,
    /// A mistake: the slots that did not want the message before it was committed.
    pub early_row: u8,
    /// The count of joins that it loaded before its scan is the current one.
    pub joins_known: bool,
    /// A subscriber came back after a lapse since it loaded that count. It may overrun that subscriber, because its scan
    /// need not have seen it.
    pub excused: bool,
    /// The cached gating position, and whether it is current: no subscriber has joined since.
    pub gating_cache: (u8, bool),
    /// `space` was not raised since it loaded it.
    pub token: bool,
    /// Generations of the slots that its last scan found in the way, until it has asked for their leases; 0 is none.
    pub suspects: [u8; MOST_SUBSCRIBERS],
    /// Generations of slots whose owners it knows to be dead; 0 is none.
    pub dead: [u8; MOST_SUBSCRIBERS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Subscriber {
    /// Whether it takes steps.
    pub life: Life,
    /// The step that it takes next.
    pub reading: Reading,
    /// Its cursor: after all that it has delivered or reported as lost.
    pub at: RecordStart,
    /// The position that it wrote to its slot last.
    pub published: u8,
    /// The futex word of its slot was not raised since it loaded it.
    pub token: bool,
    /// The count of waits that it last served is the current one.
    pub answered: bool,
    /// So is the one that it has just loaded.
    pub counted: bool,
    /// The start that it found first while it joins, unless it joins at the end.
    pub sought: Option<u8>,
    /// What it wants.
    pub interest: Interest,
    /// How many topics its column covers.
    pub column: u8,
    /// The position before which it does not look whether it can pass over something.
    pub not_before: u8,
}

/// What really happened, which no process knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Truth {
    /// The position after the last committed record.
    pub end: u8,
    /// Start and number of each committed message, in the one order. Those that no process can read any more are
    /// [`FORGOTTEN`].
    pub committed: Row<Committed, MOST_MESSAGES>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Committed {
    pub start: u8,
    pub stamp: u8,
}

/// Stands for a message that no process can read any more.
pub const FORGOTTEN: Committed = Committed { start: u8::MAX, stamp: u8::MAX };

/// What a step found that must never be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A subscriber was handed words that belong to no committed message.
    Torn,
    /// A subscriber was handed another message than the next one of the order.
    Disorder,
    /// A subscriber passed over a message that it wants.
    Missed,
    /// A subscriber was handed a message that was never committed.
    Uncommitted,
    /// A record was committed elsewhere than at the end of the order, so that it hides another.
    Undone,
    /// A subscriber joined after a start that it had found and that was still intact.
    Late,
    /// A writer overran a living subscriber for which it has to wait.
    Overrun,
    /// A process found invalid words, although no word was damaged.
    Corrupt,
    /// Two publishers hold the lock.
    TwoOwners,
    /// A call was refused although no exclusive publisher lives.
    Refused,
    /// An exclusive publisher that has its lease no longer has the lock.
    Robbed,
}

/// What may still go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    pub(crate) deaths: u8,
    pub(crate) stops: u8,
    pub(crate) losses: u8,
    pub(crate) restarts: u8,
    pub(crate) leaves: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The file `ring`.
    pub ring: Ring,
    /// The file `readers`.
    pub slots: Row<Slot, MOST_SUBSCRIBERS>,
    /// The file `publishers`: the generation of each slot, raised by each claim.
    pub generations: Row<u8, MOST_PUBLISHERS>,
    pub publishers: Row<Publisher, MOST_PUBLISHERS>,
    pub subscribers: Row<Subscriber, MOST_SUBSCRIBERS>,
    /// What only the checker knows.
    pub truth: Truth,
    /// What may still go wrong.
    pub budget: Budget,
    /// A publisher died or was stopped between its commit and its wake. Sleepers then depend on their own recheck.
    pub unwoken: bool,
    /// What the last step found.
    pub fault: Option<Fault>,
}

impl State {
    pub(crate) fn new(setup: &Setup) -> Self {
        let mut index =
            Row::new(RecordStart { position: NO_ENTRY, sequence: 0 }, usize::from(setup.blocks));
        index[0].position = 0;
        let joined = setup.joined.min(setup.subscribers);
        let unwanted = if setup.stale_columns { (1 << MOST_TOPICS) - 1 } else { 0 };
        let mut slots = Row::new(Slot { unwanted, ..Slot::default() }, setup.subscribers);
        for slot in &mut slots[..joined] {
            *slot = Slot { generation: 1, active: true, ..Slot::default() };
        }
        let mut publishers = Row::new(Publisher::new(0, false, false), 0);
        let mut generations = Row::new(0, 0);
        for (number, works) in setup.works.iter().enumerate() {
            let is_late = number + setup.late >= setup.works.len();
            publishers.push(Publisher::new(small(number), is_late, works.is_empty()));
            generations.push(u8::from(!is_late));
        }
        let mut subscribers = Row::new(Subscriber::new(false, Interest::ALL), 0);
        for number in 0..setup.subscribers {
            let interest = setup.interests.get(number).copied().unwrap_or(Interest::ALL);
            subscribers.push(Subscriber::new(number < joined, interest));
        }
        Self {
            ring: Ring {
                lock: LockWord::default(),
                tail: 0,
                next: 0,
                sequence: 0,
                reserved: 1,
                proposed: 0,
                until: 0,
                topics: setup.known_topics,
                bounds: Row::new(0, if setup.passes { MOST_TOPICS.into() } else { 0 }),
                words: Row::new(0, usize::from(setup.words)),
                index,
            },
            slots,
            generations,
            publishers,
            subscribers,
            truth: Truth { end: 0, committed: Row::new(Committed::default(), 0) },
            budget: Budget {
                deaths: setup.deaths,
                stops: setup.stops,
                losses: setup.losses,
                restarts: setup.restarts,
                leaves: setup.leaves,
            },
            unwoken: false,
            fault: None,
        }
    }

    /// Whether the kernel holds the lease of a publisher's slot.
    #[must_use]
    pub fn is_leased(&self, slot: u8) -> bool {
        self.publishers.iter().any(|publisher| publisher.slot == slot && publisher.has_lease())
    }

    /// A slot raises its own count of sleeps.
    pub(crate) fn raise_own_sleeps(&mut self, slot: usize) {
        for publisher in self.publishers.iter_mut() {
            publisher.seen &= !(1 << slot);
            publisher.armed |= 1 << slot;
        }
    }

    /// `sleeps` is raised.
    pub(crate) fn raise_sleeps(&mut self) {
        for publisher in self.publishers.iter_mut() {
            (publisher.noted, publisher.counted) = (false, false);
        }
    }

    /// The row of topics: a bit for each slot that wants nothing of any of them.
    #[must_use]
    pub fn row(&self, topics: u8) -> u8 {
        let slots = (0..).zip(self.slots.iter());
        slots.map(|(slot, one)| u8::from(one.unwanted & topics == topics) << slot).sum()
    }

    /// `joins` is raised.
    pub(crate) fn raise_joins(&mut self) {
        for publisher in self.publishers.iter_mut() {
            publisher.joins_known = false;
            publisher.gating_cache.1 = false;
        }
    }

    /// Like [`Self::raise_joins`], by a subscriber that was lapped or whose published position was.
    pub(crate) fn raise_joins_on_return(&mut self) {
        for publisher in self.publishers.iter_mut() {
            publisher.excused |= publisher.joins_known;
        }
        self.raise_joins();
    }

    /// `waits.count` is raised.
    pub(crate) fn raise_waits(&mut self) {
        for subscriber in self.subscribers.iter_mut() {
            (subscriber.answered, subscriber.counted) = (false, false);
        }
    }

    /// `space` is raised.
    pub(crate) fn raise_space(&mut self) {
        self.publishers.iter_mut().for_each(|publisher| publisher.token = false);
    }

    /// The word at a position.
    #[must_use]
    pub fn word(&self, position: u8) -> u8 {
        self.ring.words[usize::from(position) & (self.ring.words.len() - 1)]
    }

    pub(crate) fn set_word(&mut self, position: u8, word: u8) {
        let place = usize::from(position) & (self.ring.words.len() - 1);
        self.ring.words[place] = word;
    }

    /// Words of the ring.
    #[must_use]
    pub fn capacity(&self) -> u8 {
        small(self.ring.words.len())
    }

    /// The oldest position that is certainly not overwritten.
    #[must_use]
    pub fn oldest(&self) -> u8 {
        self.ring.reserved.saturating_sub(self.capacity())
    }

    /// Whether what was read at `position` counts.
    pub(crate) fn is_intact(&self, position: u8) -> bool {
        self.ring.reserved <= position + self.capacity()
    }

    pub(crate) fn fail(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
    }
}

impl Publisher {
    fn new(slot: u8, is_late: bool, has_nothing_to_do: bool) -> Self {
        let doing = match (is_late, has_nothing_to_do) {
            (_, true) => Doing::Done,
            (true, false) => Doing::Enter,
            (false, false) => Doing::Lock,
        };
        Self {
            life: Life::Running,
            slot,
            generation: u8::from(!is_late),
            lease: !is_late,
            keeps: false,
            work: 0,
            item: 0,
            doing,
            owes: 0,
            expired: false,
            // No subscriber has slept yet.
            noted: true,
            counted: false,
            asleep: 0,
            seen: 0,
            armed: 0,
            early_row: 0,
            joins_known: false,
            excused: false,
            gating_cache: (0, false),
            token: false,
            suspects: [0; MOST_SUBSCRIBERS],
            dead: [0; MOST_SUBSCRIBERS],
        }
    }

    /// What other processes still remember of it.
    pub(crate) fn forget(&mut self, setup: &Setup) {
        let fresh = Self::new(self.slot, true, false);
        let (generation, work) = (self.generation, self.work);
        // Subscribers may have slept already.
        let (noted, armed) = if setup.sleep { (false, setup.all_slots()) } else { (true, 0) };
        *self = Self { generation, work, noted, armed, ..fresh };
    }

    /// Whether the kernel holds its lease.
    #[must_use]
    pub fn has_lease(&self) -> bool {
        self.life.has_lease() && self.lease
    }
}

impl Subscriber {
    fn new(joined: bool, interest: Interest) -> Self {
        Self {
            life: Life::Running,
            reading: if joined {
                Reading::Scan(RecordStart::default())
            } else {
                Reading::ClaimState
            },
            at: RecordStart::default(),
            published: 0,
            token: false,
            // No subscriber has waited on the bus yet.
            answered: true,
            counted: false,
            sought: None,
            interest,
            column: 0,
            not_before: 0,
        }
    }

    /// What is left of it for the next owner of its slot.
    pub(crate) fn forget(&mut self) {
        let next = Interest::of(self.interest.next_owner);
        *self = Self { answered: false, ..Self::new(false, next) };
    }
}
