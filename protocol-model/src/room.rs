//! A publisher without room: `bus/room.rs`, `ring/slots.rs`, `ring/backpressure.rs`.
//!
//! The slots are read by one system call, whose copy is not atomic: here slot by slot, in any order, a
//! slot at once.

use crate::mistakes::Mistake;
use crate::publisher::{Doing, Seen, Turn};
use crate::setup::{Policy, small};
use crate::state::{Fault, Life, MOST_SUBSCRIBERS, Slot};
use crate::subscriber::Reading;
use crate::writing;

/// What a look at the slots came to.
enum Slowest {
    Nobody,
    /// This slot, if its lease is held.
    Slot(u8),
}

impl Turn<'_> {
    pub(crate) fn wanted(&self) -> u8 {
        writing::wanted(self.setup, self.state.ring.tail, writing::bytes(&self.messages()))
    }

    pub(crate) fn load_joins(&mut self, again: bool) -> bool {
        let wanted = self.wanted();
        let capacity = self.setup.words;
        let ignores = self.has(Mistake::JoinsIgnored);
        let me = self.mine();
        (me.joins_known, me.excused) = (true, false);
        let (minimum, is_current) = me.horizon;
        if (is_current || ignores) && wanted <= minimum + capacity {
            return self.nobody_in_the_way(again);
        }
        let left = all_slots(self.setup.subscribers);
        let seen = Seen::default();
        if left == 0 {
            return self.judge_look(again, seen);
        }
        self.go(Doing::ReadSlots { again, left, seen })
    }

    pub(crate) fn read_slot(&mut self, way: u8, again: bool, left: u8, mut seen: Seen) -> bool {
        if left & 1 << way == 0 {
            return false;
        }
        seen[usize::from(way)] = self.state.slots[usize::from(way)];
        let left = left & !(1 << way);
        if left != 0 {
            return self.go(Doing::ReadSlots { again, left, seen });
        }
        self.judge_look(again, seen)
    }

    fn judge_look(&mut self, again: bool, seen: Seen) -> bool {
        match self.slowest(&seen) {
            Slowest::Nobody => self.nobody_in_the_way(again),
            Slowest::Slot(_) if self.has(Mistake::DeadReaderBlocks) => {
                self.somebody_in_the_way(again)
            }
            Slowest::Slot(slot) => self.go(Doing::TestLease { again, slot, seen }),
        }
    }

    /// Of the slots as seen, who has to be waited for first. Remembers a look that found nobody.
    fn slowest(&mut self, seen: &Seen) -> Slowest {
        let wanted = self.wanted();
        let (tail, reserved) = (self.state.ring.tail, self.state.ring.reserved);
        let capacity = self.setup.words;
        let me = self.mine();
        let slowest = slowest_of(seen, &me.dead, tail, reserved, capacity);
        let minimum = slowest.map_or(tail, |(_, position)| position);
        match slowest {
            Some((slot, _)) if wanted > minimum + capacity => Slowest::Slot(slot),
            _ => {
                let known = me.joins_known;
                self.mine().horizon = (minimum, known);
                Slowest::Nobody
            }
        }
    }

    pub(crate) fn test_lease(&mut self, again: bool, slot: u8, seen: Seen) -> bool {
        if self.state.subscribers[usize::from(slot)].life.has_lease() {
            return self.somebody_in_the_way(again);
        }
        let was = seen[usize::from(slot)];
        let left = all_slots(self.setup.subscribers);
        let was = (was.generation, was.active);
        self.go(Doing::ReadAgain { again, slot, was, left, seen: Seen::default() })
    }

    pub(crate) fn read_again(
        &mut self,
        way: u8,
        again: bool,
        slot: u8,
        was: (u8, bool),
        left: u8,
        mut seen: Seen,
    ) -> bool {
        if left & 1 << way == 0 {
            return false;
        }
        seen[usize::from(way)] = self.state.slots[usize::from(way)];
        let left = left & !(1 << way);
        if left != 0 {
            return self.go(Doing::ReadAgain { again, slot, was, left, seen });
        }
        let now = seen[usize::from(slot)];
        if (now.generation, now.active) != was {
            return self.somebody_in_the_way(again);
        }
        self.mine().dead[usize::from(slot)] = was.0;
        self.judge_look(again, seen)
    }

    fn nobody_in_the_way(&mut self, again: bool) -> bool {
        if again {
            // Back to the beginning of the loop: it asks once more, and the answer is remembered.
            self.mine().token = false;
            return self.seek_room();
        }
        self.go(Doing::Reserve)
    }

    fn somebody_in_the_way(&mut self, again: bool) -> bool {
        self.go(Doing::TakeBack { again })
    }

    pub(crate) fn take_back(&mut self, again: bool) -> bool {
        self.state.ring.wanted = self.state.ring.reserved;
        let me = self.mine();
        (me.joins_known, me.excused) = (false, false);
        if again {
            return self.go(Doing::Unlock { wait: true });
        }
        let next = if me.expired { Doing::Reserve } else { Doing::LoadSpace };
        self.go(next)
    }

    pub(crate) fn store_until(&mut self) -> bool {
        let capacity = self.setup.words;
        let needed = self.wanted().saturating_sub(capacity);
        self.state.ring.until = needed.max(self.state.ring.tail.saturating_sub(capacity / 2));
        self.go(Doing::RaiseWaits)
    }

    pub(crate) fn reserve(&mut self) -> bool {
        let wanted = self.wanted();
        if self.setup.policy != Policy::Overwrite && !self.mine().expired && self.overruns(wanted) {
            self.state.fail(Fault::Overrun);
        }
        self.state.ring.reserved = self.state.ring.reserved.max(wanted);
        let me = self.mine();
        (me.joins_known, me.excused) = (false, false);
        self.seek_room()
    }

    /// Whether `reserved` at `wanted` overtakes a subscriber that has joined, and shows a position that
    /// was not overtaken before. Whoever comes back after a lapse may do so too late for this look.
    fn overruns(&self, wanted: u8) -> bool {
        let capacity = self.setup.words;
        !self.state.publishers[self.me].excused
            && self.state.subscribers.iter().zip(self.state.slots.iter()).any(
                |(subscriber, slot)| {
                    subscriber.life != Life::Dead
                        && subscriber.reading.gates()
                        && self.state.is_intact(slot.position)
                        && self.state.is_intact(subscriber.at.position)
                        && subscriber.at.position + capacity < wanted
                },
            )
    }

    /// Wakes when `space` was raised, or a slice is over. A slice that ends with nothing to be found is
    /// no step: it would lead back here. Way 1 is the end of the policy's limit.
    pub(crate) fn wait_for_room(&mut self, way: u8) -> bool {
        match way {
            0 if !self.state.publishers[self.me].token || self.would_find_room() => {}
            1 if self.setup.policy == Policy::Limit && !self.state.publishers[self.me].expired => {
                self.mine().expired = true;
            }
            _ => return false,
        }
        self.mine().token = false;
        self.go(Doing::Lock)
    }

    fn would_find_room(&self) -> bool {
        let wanted = self.wanted();
        if self.state.ring.tail + writing::bytes(&self.messages()) < self.state.ring.reserved {
            return true;
        }
        let mut dead = self.state.publishers[self.me].dead;
        if !self.has(Mistake::DeadReaderBlocks) {
            for (dead, (subscriber, slot)) in
                dead.iter_mut().zip(self.state.subscribers.iter().zip(self.state.slots.iter()))
            {
                if !subscriber.life.has_lease() {
                    *dead = slot.generation;
                }
            }
        }
        let (tail, reserved) = (self.state.ring.tail, self.state.ring.reserved);
        slowest_of(&self.state.slots, &dead, tail, reserved, self.setup.words)
            .is_none_or(|(_, position)| wanted <= position + self.setup.words)
    }
}

impl Reading {
    /// Whether publishers have to wait for it, as far as it was promised: from the end of its join until
    /// it leaves, but for the time in which it finds out, and says, that it is back after a lapse.
    #[must_use]
    pub fn gates(&self) -> bool {
        !matches!(
            self,
            Self::ClaimState
                | Self::ClaimGeneration
                | Self::FindTail { .. }
                | Self::FindReserved { .. }
                | Self::FindMarks { .. }
                | Self::WalkLoad { .. }
                | Self::WalkCheck { .. }
                | Self::FindCheck { .. }
                | Self::JoinPosition
                | Self::JoinState
                | Self::JoinAnnounce
                | Self::JoinWanted
                | Self::JoinTail
                | Self::JoinCheck
                | Self::AskLapse(..)
                | Self::AnnounceReturn(_)
                | Self::LeaveAnnounce
                | Self::Gone
        )
    }
}

fn all_slots(subscribers: usize) -> u8 {
    small((1 << subscribers) - 1)
}

/// `ring/slots.rs`, `slowest`: slot and position.
fn slowest_of(
    seen: &[Slot],
    dead: &[u8; MOST_SUBSCRIBERS],
    tail: u8,
    reserved: u8,
    capacity: u8,
) -> Option<(u8, u8)> {
    (0..)
        .zip(seen.iter().zip(dead))
        .filter(|(_, (slot, dead))| slot.active && slot.generation != **dead)
        .filter(|(_, (slot, _))| slot.position <= tail && slot.position + capacity >= reserved)
        .map(|(number, (slot, _))| (number, slot.position))
        .min_by_key(|(_, position)| *position)
}
