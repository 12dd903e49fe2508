//! A publisher, step by step: `bus/publish/publishing.rs`, `shm/lock.rs`, `ring/writer.rs`.
//!
//! An exclusive publisher (`bus/publish/exclusive.rs`) takes the lock, marks it and keeps it. Before each message it
//! checks that the lock is still its own. If it lost its lease, others take it for dead, and take over while it may be in
//! the middle of a message. Who takes over therefore waits for longer than a message takes ([`Doing::Delay`]). In the
//! model that wait ends when the former owner is between two messages. If it is never seen to end, the process is stuck,
//! which the search reports.
//!
//! Its check of the slots is in `space.rs`, its wake-ups are in `waking.rs`.

use crate::mistakes::Mistake;
use crate::setup::{Lock, Policy, Setup, Work, small};
use crate::state::{Fault, Life, LockWord, MOST_SUBSCRIBERS, RecordStart, Slot, State};
use crate::writing::{self, Message, Store};

/// The slots as a scan found them.
pub type Seen = [Slot; MOST_SUBSCRIBERS];

/// What a publisher does next. Each is one load or store of words that others may change, or one
/// question to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Doing {
    /// Takes the lease of a slot that has none.
    Enter,
    /// Claims its slot, whose lease it holds: raises the generation.
    Claim,
    /// Checks whether an earlier owner of its slot died while it held the lock.
    Inherit,
    /// Takes that lock by a compare-exchange on what it saw.
    InheritSeize(LockWord),
    /// Takes the lock if it is free. Otherwise asks whether its owner is alive.
    Lock,
    /// Takes the lock of a dead owner, by a compare-exchange on what it saw.
    Seize(LockWord),
    /// Waits before it writes, because the exclusive publisher from which it took over may be in the middle of a
    /// message.
    Delay {
        /// As in [`Doing::RecoverSequence`].
        inherits: bool,
    },
    /// Marks the lock as that of an exclusive publisher.
    Keep {
        /// Whether the owner before it died.
        owner_died: bool,
        /// Whether that one was exclusive.
        after_exclusive: bool,
    },
    /// An exclusive publisher checks before a message that it still has the lock.
    CheckKept,
    /// An exclusive publisher gives up the lock, if it still has it.
    GiveUp,
    /// Recovery: stores the sequence that it counted.
    RecoverSequence {
        to: RecordStart,
        /// For a publisher that has just claimed its slot, and has nothing to write yet.
        inherits: bool,
    },
    /// Recovery: stores the tail.
    RecoverTail {
        /// As in [`Doing::RecoverSequence`].
        to: u8,
        /// As in [`Doing::RecoverSequence`].
        inherits: bool,
    },
    /// Recovery: withdraws the proposal of the dead owner.
    RecoverProposal {
        /// As in [`Doing::RecoverSequence`].
        inherits: bool,
    },
    /// Recovery: stores `next`.
    RecoverNext {
        /// As in [`Doing::RecoverSequence`].
        inherits: bool,
    },
    /// Gives the lock back that it inherited.
    Release,
    /// Checks for slow readers: proposes what it wants to reserve. `again` is the recheck after it registered a wait.
    Propose {
        again: bool,
    },
    /// Loads `joins`.
    LoadJoins {
        /// As in [`Doing::Propose`].
        again: bool,
    },
    /// A reader is in the way: withdraws the proposal.
    Withdraw {
        /// As in [`Doing::Propose`].
        again: bool,
    },
    /// Reads the slots, in any order.
    ReadSlots {
        /// As in [`Doing::Propose`].
        again: bool,
        /// Bits of slots that are not read yet.
        left: u8,
        seen: Seen,
    },
    /// Without the lock: asks whether the readers in the way are alive, one after the other.
    AskLeases,
    /// Prepares a wait: loads `space`.
    LoadSpace,
    /// Stores `waits.until`.
    StoreUntil,
    /// Raises `waits.count`.
    RaiseWaits,
    /// Raises `reserved`.
    Reserve,
    /// Writes: carries out the stores of one commit, one by one.
    Write {
        /// Stores that are done.
        done: u8,
        /// Where the commit begins.
        from: RecordStart,
    },
    /// Gives the lock back, to return, or to wait for space.
    Unlock {
        wait: bool,
    },
    /// Loads `sleeps`.
    LoadSleeps {
        /// As in [`Doing::Unlock`].
        wait: bool,
    },
    /// Nothing is new: loads the row of what it published, to find out whether one that it remembers wants it.
    LoadRow {
        /// As in [`Doing::Unlock`].
        wait: bool,
    },
    /// One of them wants it, so it makes a round: loads `sleeps` again.
    CountSleeps {
        /// As in [`Doing::Unlock`].
        wait: bool,
    },
    /// Loads the counts of the slots, in any order, and remembers who has armed.
    Look {
        /// As in [`Doing::Unlock`].
        wait: bool,
        /// Bits of the slots that it has not looked at yet.
        left: u8,
    },
    /// Loads the row again, and chooses whom to wake.
    ChooseSleepers {
        /// As in [`Doing::Unlock`].
        wait: bool,
    },
    /// Raises the futex word of one of them.
    RaiseWord {
        /// As in [`Doing::Unlock`].
        wait: bool,
        /// Bits of the slots that it has not woken yet.
        left: u8,
    },
    /// Wakes that one.
    WakeOne {
        /// As in [`Doing::Unlock`].
        wait: bool,
        /// As in [`Doing::RaiseWord`].
        left: u8,
        /// The bit of its slot.
        one: u8,
    },
    WaitForSpace,
    Done,
    Gone,
}

impl Doing {
    /// Whether it has the lock.
    #[must_use]
    pub fn has_lock(&self) -> bool {
        match self {
            Self::Delay { .. }
            | Self::Keep { .. }
            | Self::RecoverSequence { .. }
            | Self::RecoverTail { .. }
            | Self::Release
            | Self::Propose { .. }
            | Self::LoadJoins { .. }
            | Self::Withdraw { .. }
            | Self::ReadSlots { .. }
            | Self::RecoverProposal { .. }
            | Self::RecoverNext { .. }
            | Self::LoadSpace
            | Self::StoreUntil
            | Self::RaiseWaits
            | Self::Reserve
            | Self::Write { .. }
            | Self::Unlock { .. } => true,
            Self::Enter
            | Self::Claim
            | Self::CheckKept
            | Self::GiveUp
            | Self::Inherit
            | Self::InheritSeize(_)
            | Self::Lock
            | Self::Seize(_)
            | Self::LoadSleeps { .. }
            | Self::LoadRow { .. }
            | Self::CountSleeps { .. }
            | Self::Look { .. }
            | Self::ChooseSleepers { .. }
            | Self::RaiseWord { .. }
            | Self::WakeOne { .. }
            | Self::AskLeases
            | Self::WaitForSpace
            | Self::Done
            | Self::Gone => false,
        }
    }
}

/// One publisher at its next step.
pub(crate) struct Turn<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) state: &'a mut State,
    pub(crate) me: usize,
}

/// In how many ways a publisher's next step can go.
pub(crate) fn ways(setup: &Setup, state: &State, me: usize) -> u8 {
    match &state.publishers[me].doing {
        Doing::ReadSlots { .. } | Doing::Look { .. } | Doing::RaiseWord { .. } => {
            small(setup.subscribers)
        }
        Doing::WaitForSpace => 2,
        Doing::Enter => small(setup.works.len()),
        _ => 1,
    }
}

impl Turn<'_> {
    /// Takes the next step. Returns false if it can only wait for others; then nothing was changed.
    pub(crate) fn step(&mut self, way: u8) -> bool {
        match self.state.publishers[self.me].doing {
            Doing::Enter => {
                if self.state.is_leased(way) {
                    return false;
                }
                let me = self.mine();
                (me.slot, me.lease) = (way, true);
                self.go(Doing::Claim)
            }
            Doing::Claim => {
                let slot = self.state.publishers[self.me].slot;
                let generation = &mut self.state.generations[usize::from(slot)];
                *generation += 1;
                self.mine().generation = *generation;
                self.go(Doing::Inherit)
            }
            Doing::Inherit => {
                let word = self.state.ring.lock;
                let is_mine = word.owner == self.state.publishers[self.me].slot + 1
                    && self.setup.lock == Lock::Lease
                    && !self.has(Mistake::LeaseWithoutGeneration);
                if is_mine { self.go(Doing::InheritSeize(word)) } else { self.begin_call() }
            }
            Doing::InheritSeize(word) => {
                if self.state.ring.lock != word {
                    return self.begin_call();
                }
                self.take_lock();
                if word.exclusive && !self.has(Mistake::InheritsAtOnce) {
                    return self.delay(true);
                }
                // An owner that died always means recovery.
                self.repair(true, true)
            }
            Doing::Lock => self.lock(),
            Doing::Seize(word) => {
                let is_same =
                    self.state.ring.lock == word || self.has(Mistake::TakeoverWithoutCompare);
                if !is_same {
                    return self.go(Doing::Lock);
                }
                self.take_lock();
                if word.exclusive && !self.has(Mistake::TakesOverAtOnce) {
                    return self.delay(false);
                }
                self.has_taken(true, word.exclusive)
            }
            Doing::Delay { inherits } => {
                let is_amidst = self.state.publishers.iter().any(|other| {
                    other.life == Life::Running
                        && !other.has_lease()
                        && other.keeps
                        && other.doing.has_lock()
                });
                if is_amidst {
                    return false;
                }
                if !self.has(Mistake::ExclusiveStaysInTheWord) {
                    self.state.ring.lock.exclusive = false;
                }
                if inherits { self.repair(true, true) } else { self.has_taken(true, true) }
            }
            Doing::Keep { owner_died, after_exclusive } => {
                let forgets = after_exclusive && self.has(Mistake::ExclusiveForgottenOnTakeover);
                if !forgets && !self.has(Mistake::KeptInSecret) {
                    self.state.ring.lock.exclusive = true;
                }
                self.mine().keeps = true;
                self.repair(owner_died, false) || self.begin_call()
            }
            Doing::CheckKept => self.check_kept(),
            Doing::GiveUp => {
                if self.has(Mistake::GivesUpAnothersLock) {
                    self.state.ring.lock = LockWord::default();
                } else {
                    self.give_back();
                }
                self.mine().keeps = false;
                self.go(Doing::Done)
            }
            Doing::RecoverSequence { to, inherits } => {
                self.state.ring.sequence = to.sequence;
                self.go(Doing::RecoverTail { to: to.position, inherits })
            }
            Doing::RecoverTail { to, inherits } => {
                self.state.ring.tail = to;
                self.go(Doing::RecoverProposal { inherits })
            }
            Doing::RecoverProposal { inherits } => {
                self.state.ring.proposed = self.state.ring.reserved;
                self.go(Doing::RecoverNext { inherits })
            }
            Doing::RecoverNext { inherits } => {
                self.state.ring.next = self.state.ring.tail;
                if inherits {
                    return self.go(Doing::Release);
                }
                // An exclusive publisher repairs the stream when it takes the lock.
                if self.mine().keeps { self.begin_call() } else { self.seek_space() }
            }
            Doing::Release => {
                self.give_back();
                self.begin_call()
            }
            Doing::Propose { again } => {
                self.state.ring.proposed = self.wanted();
                self.go(Doing::LoadJoins { again })
            }
            Doing::Withdraw { again } => self.withdraw(again),
            Doing::LoadJoins { again } => self.load_joins(again),
            Doing::ReadSlots { again, left, seen } => self.read_slot(way, again, left, seen),
            Doing::AskLeases => self.ask_leases(),
            Doing::LoadSpace => {
                self.mine().token = true;
                self.go(Doing::StoreUntil)
            }
            Doing::StoreUntil => self.store_until(),
            Doing::RaiseWaits => {
                self.state.raise_waits();
                self.go(Doing::Propose { again: true })
            }
            Doing::Reserve => self.reserve(),
            Doing::Write { done, from } => self.write(done, from),
            Doing::Unlock { wait } => {
                self.give_back();
                if wait && self.has(Mistake::WaitsWithoutWaking) {
                    return self.go(Doing::AskLeases);
                }
                self.go(Doing::LoadSleeps { wait })
            }
            Doing::LoadSleeps { .. }
            | Doing::LoadRow { .. }
            | Doing::CountSleeps { .. }
            | Doing::Look { .. }
            | Doing::ChooseSleepers { .. }
            | Doing::RaiseWord { .. }
            | Doing::WakeOne { .. } => self.wake(way),
            Doing::WaitForSpace => self.wait_for_space(way),
            Doing::Done | Doing::Gone => false,
        }
    }

    pub(crate) fn has(&self, mistake: Mistake) -> bool {
        self.setup.mistake == Some(mistake)
    }

    pub(crate) fn mine(&mut self) -> &mut crate::state::Publisher {
        &mut self.state.publishers[self.me]
    }

    pub(crate) fn go(&mut self, doing: Doing) -> bool {
        self.mine().doing = doing;
        true
    }

    fn word_of_mine(&self) -> LockWord {
        let me = &self.state.publishers[self.me];
        LockWord { owner: me.slot + 1, generation: me.generation, exclusive: false }
    }

    /// Whether the lock word names this publisher.
    fn is_owner(&self) -> bool {
        LockWord { exclusive: false, ..self.state.ring.lock } == self.word_of_mine()
    }

    fn lock(&mut self) -> bool {
        let word = self.state.ring.lock;
        if word.owner == 0 {
            self.take_lock();
            return self.has_taken(false, false);
        }
        let is_current = self.state.generations[usize::from(word.owner) - 1] == word.generation
            || self.has(Mistake::LeaseWithoutGeneration);
        let lives = is_current && self.state.is_leased(word.owner - 1);
        if word.exclusive && (lives || self.has(Mistake::ExclusiveForEver)) {
            return self.meet_exclusive(word);
        }
        if lives {
            // It waits.
            return false;
        }
        match self.setup.lock {
            Lock::Lease => self.go(Doing::Seize(word)),
            Lock::Robust => {
                self.take_lock();
                self.begin(true)
            }
        }
    }

    /// Another publisher is exclusive. The next exclusive one waits for it; the call of a shared one is refused.
    fn meet_exclusive(&mut self, word: LockWord) -> bool {
        if self.has(Mistake::OthersWriteToo) {
            return self.go(Doing::Seize(word));
        }
        if self.setup.is_exclusive(self.me) {
            return false;
        }
        let is_right = self.state.publishers.iter().any(|other| {
            let keeps = other.keeps && other.generation == word.generation;
            // Its slot has the lease of a new process, which has not raised the generation yet.
            let is_being_replaced = other.doing == Doing::Claim;
            let is_delayed = matches!(other.doing, Doing::Delay { .. });
            let is_reason = keeps || is_being_replaced || is_delayed;
            other.has_lease() && other.slot + 1 == word.owner && is_reason
        });
        if !is_right {
            self.state.fail(Fault::Refused);
        }
        let me = self.mine();
        me.work += 1;
        (me.item, me.expired) = (0, false);
        self.begin_call()
    }

    /// An exclusive publisher is about to write, or to continue after a wait.
    fn check_kept(&mut self) -> bool {
        let is_unchecked = self.has(Mistake::TakeoverUnnoticed)
            || self.has(Mistake::BurstNotChecked) && self.state.publishers[self.me].item > 0;
        if self.is_owner() || is_unchecked {
            return self.begin(false);
        }
        if self.state.publishers[self.me].has_lease() {
            self.state.fail(Fault::Robbed);
        }
        // Its calls fail from now on.
        self.go(Doing::GiveUp)
    }

    fn take_lock(&mut self) {
        let somebody_else = self.state.publishers.iter().enumerate().any(|(number, other)| {
            number != self.me
                && other.life == Life::Running
                && other.has_lease()
                && (other.keeps || other.doing.has_lock())
        });
        if somebody_else {
            self.state.fail(Fault::TwoOwners);
        }
        self.state.ring.lock = self.word_of_mine();
    }

    fn give_back(&mut self) {
        if self.is_owner() {
            self.state.ring.lock = LockWord::default();
        }
    }

    /// Has taken the lock from an exclusive publisher. Leaves the mark in the word until it may write: if it dies before,
    /// the next one has to wait, too.
    fn delay(&mut self, inherits: bool) -> bool {
        self.state.ring.lock.exclusive = !self.has(Mistake::TakeoverUnmarked);
        self.go(Doing::Delay { inherits })
    }

    /// Has the lock: an exclusive publisher marks it, and makes its first call afterwards.
    fn has_taken(&mut self, owner_died: bool, after_exclusive: bool) -> bool {
        if self.setup.is_exclusive(self.me) {
            return self.go(Doing::Keep { owner_died, after_exclusive });
        }
        self.begin(owner_died)
    }

    /// Under the lock: recovers if the previous owner died.
    fn begin(&mut self, owner_died: bool) -> bool {
        self.repair(owner_died, false) || self.seek_space()
    }

    /// Returns false if there is nothing to repair.
    fn repair(&mut self, owner_died: bool, inherits: bool) -> bool {
        let is_stale = self.state.ring.next != self.state.ring.tail;
        if !owner_died && !is_stale {
            return false;
        }
        if self.has(Mistake::RecoveryLowersReserved) {
            self.state.ring.reserved = writing::wanted(self.setup, self.state.ring.tail, 0);
        }
        match writing::find_end(self.setup, self.state) {
            Some(to) => self.go(Doing::RecoverSequence { to, inherits }),
            None => {
                self.state.fail(Fault::Corrupt);
                self.go(Doing::Done)
            }
        }
    }

    fn has_call(&self) -> bool {
        let me = &self.state.publishers[self.me];
        usize::from(me.work) < self.setup.works[self.me].len()
    }

    pub(crate) fn messages(&self) -> Vec<Message> {
        let me = &self.state.publishers[self.me];
        writing::messages(self.setup, self.me, me.work, me.item)
    }

    /// Under the lock: writes if there is space, or makes some.
    pub(crate) fn seek_space(&mut self) -> bool {
        let tail = self.state.ring.tail;
        let bytes = writing::bytes(&self.messages());
        if tail + bytes < self.state.ring.reserved || self.has(Mistake::ReservedAfterCopy) {
            let from = RecordStart { position: tail, sequence: self.state.ring.sequence };
            let me = self.mine();
            (me.joins_known, me.excused) = (false, false);
            return self.go(Doing::Write { done: 0, from });
        }
        match self.setup.policy {
            Policy::Overwrite => self.go(Doing::Reserve),
            Policy::Wait | Policy::Limit => self.go(Doing::Propose { again: false }),
        }
    }

    fn write(&mut self, done: u8, from: RecordStart) -> bool {
        let messages = self.messages();
        let stores = writing::stores(self.setup, self.state, from, &messages);
        let store = stores[usize::from(done)];
        if done == 0 && self.has(Mistake::RowBeforeCommit) {
            self.mine().early_row = self.state.row(self.topics_of(&messages));
        }
        writing::carry_out(self.state, store, &messages);
        if matches!(store, Store::Commit(..)) {
            self.mine().owes |= self.topics_of(&messages);
        }
        if usize::from(done) + 1 < stores.len() {
            return self.go(Doing::Write { done: done + 1, from });
        }
        let call = &self.setup.works[self.me][usize::from(self.mine().work)];
        let count = call.lengths().len();
        let is_burst = matches!(call, Work::Burst(_));
        let me = self.mine();
        if is_burst && usize::from(me.item) + 1 < count {
            me.item += 1;
            me.expired = false;
            return if me.keeps { self.go(Doing::CheckKept) } else { self.seek_space() };
        }
        me.work += 1;
        (me.item, me.expired) = (0, false);
        self.end_hold(false)
    }

    fn topics_of(&self, messages: &[Message]) -> u8 {
        messages.iter().fold(0, |all, message| all | self.setup.topic_bit(message.stamp))
    }

    /// Gives the lock back, unless the publisher keeps it.
    pub(crate) fn end_hold(&mut self, wait: bool) -> bool {
        let keeps = self.mine().keeps;
        self.go(if keeps { Doing::LoadSleeps { wait } } else { Doing::Unlock { wait } })
    }

    /// After a wait without the lock, or before a call.
    pub(crate) fn hold(&mut self) -> bool {
        let keeps = self.mine().keeps;
        self.go(if keeps { Doing::CheckKept } else { Doing::Lock })
    }

    pub(crate) fn after_wake(&mut self, wait: bool) -> bool {
        self.mine().owes = 0;
        if wait {
            return self.go(Doing::AskLeases);
        }
        self.begin_call()
    }

    fn begin_call(&mut self) -> bool {
        if self.has_call() {
            return self.hold();
        }
        let keeps = self.mine().keeps;
        self.go(if keeps { Doing::GiveUp } else { Doing::Done })
    }
}
