//! A publisher without space: `bus/publish/backpressure/mod.rs`, `ring/gate.rs`,
//! `ring/wait_budget.rs`, `ring/waits.rs`.
//!
//! One system call reads the slots, but its copy is not atomic. The model reads slot by slot, in any order, and each
//! slot in one step.

use crate::mistakes::Mistake;
use crate::publisher::{Doing, Seen, Turn};
use crate::setup::Policy;
use crate::state::{Fault, Life, MOST_SUBSCRIBERS, Slot};
use crate::subscriber::Reading;
use crate::writing;

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
        let (minimum, is_current) = me.gating_cache;
        if (is_current || ignores) && wanted <= minimum + capacity {
            return self.no_reader_in_the_way(again);
        }
        let left = self.setup.all_slots();
        let seen = Seen::default();
        if left == 0 {
            return self.judge_scan(again, seen);
        }
        self.go(Doing::ReadSlots { again, left, seen })
    }

    pub(crate) fn read_slot(&mut self, way: u8, again: bool, left: u8, mut seen: Seen) -> bool {
        if left & 1 << way == 0 {
            return false;
        }
        // It does not look at the column of the slot here.
        seen[usize::from(way)] = Slot { unwanted: 0, ..self.state.slots[usize::from(way)] };
        let left = left & !(1 << way);
        if left != 0 {
            return self.go(Doing::ReadSlots { again, left, seen });
        }
        self.judge_scan(again, seen)
    }

    /// Returns which of the slots that were read are in the way. Remembers a scan that found none.
    fn judge_scan(&mut self, again: bool, seen: Seen) -> bool {
        let wanted = self.wanted();
        let (tail, reserved) = (self.state.ring.tail, self.state.ring.reserved);
        let capacity = self.setup.words;
        let me = self.mine();
        let mut minimum = tail;
        let mut suspects = [0; MOST_SUBSCRIBERS];
        for (slot, position) in gating(&seen, &me.dead, tail, reserved, capacity) {
            minimum = minimum.min(position);
            if wanted > position + capacity {
                suspects[slot] = seen[slot].generation;
            }
        }
        if suspects == [0; MOST_SUBSCRIBERS] {
            me.gating_cache = (minimum, me.joins_known);
            return self.no_reader_in_the_way(again);
        }
        me.suspects = suspects;
        self.go(Doing::Withdraw { again })
    }

    /// Waits for the first that is alive. If all are dead, there is nothing to wait for.
    pub(crate) fn ask_leases(&mut self) -> bool {
        let suspects = self.state.publishers[self.me].suspects;
        let Some(slot) = suspects.iter().position(|generation| *generation != 0) else {
            self.mine().token = false;
            return self.hold();
        };
        if self.state.subscribers[slot].life.has_lease() || self.has(Mistake::DeadReaderBlocks) {
            self.mine().suspects = [0; MOST_SUBSCRIBERS];
            return self.go(Doing::WaitForSpace);
        }
        let me = self.mine();
        me.dead[slot] = std::mem::take(&mut me.suspects[slot]);
        self.go(Doing::AskLeases)
    }

    fn no_reader_in_the_way(&mut self, again: bool) -> bool {
        if again {
            self.mine().token = false;
        }
        self.go(Doing::Reserve)
    }

    pub(crate) fn withdraw(&mut self, again: bool) -> bool {
        self.state.ring.proposed = self.state.ring.reserved;
        let me = self.mine();
        (me.joins_known, me.excused) = (false, false);
        if again {
            return self.end_hold(true);
        }
        // The scan after the registration of the wait says whose leases to check.
        me.suspects = [0; MOST_SUBSCRIBERS];
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
        self.seek_space()
    }

    /// Whether raising `reserved` to `wanted` overtakes a subscriber that has joined and whose published position was not
    /// overtaken before. A subscriber that comes back after a lapse may do so too late for this scan.
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

    /// Wakes when `space` was raised, or a slice is over. A slice after which nothing has changed is no step, because it
    /// would lead back here. Way 1 is the end of the policy's limit.
    pub(crate) fn wait_for_space(&mut self, way: u8) -> bool {
        match way {
            0 if !self.state.publishers[self.me].token || self.would_find_space() => {}
            1 if self.setup.policy == Policy::Limit && !self.state.publishers[self.me].expired => {
                self.mine().expired = true;
            }
            _ => return false,
        }
        self.mine().token = false;
        self.hold()
    }

    fn would_find_space(&self) -> bool {
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
        gating(&self.state.slots, &dead, tail, reserved, self.setup.words)
            .all(|(_, position)| wanted <= position + self.setup.words)
    }
}

impl Reading {
    /// Whether the protocol promises that publishers wait for it: from the end of its join until it leaves, except while
    /// it notices a lapse and counts its return.
    #[must_use]
    pub fn gates(&self) -> bool {
        !matches!(
            self,
            Self::ClaimState
                | Self::ClaimGeneration
                | Self::ClearColumn { .. }
                | Self::FindTail { .. }
                | Self::FindReserved { .. }
                | Self::FindEntries { .. }
                | Self::WalkLoad { .. }
                | Self::WalkCheck { .. }
                | Self::FindCheck { .. }
                | Self::JoinPosition
                | Self::JoinState
                | Self::CountJoin
                | Self::JoinProposal
                | Self::JoinTail
                | Self::JoinCheck
                | Self::AskLapse(..)
                | Self::CountReturn(_)
                | Self::CountLeave
                | Self::Gone
        )
    }
}

/// `ring/slots.rs`, `gating`: slots and positions.
fn gating<'s>(
    seen: &'s [Slot],
    dead: &'s [u8; MOST_SUBSCRIBERS],
    tail: u8,
    reserved: u8,
    capacity: u8,
) -> impl Iterator<Item = (usize, u8)> + 's {
    seen.iter()
        .zip(dead)
        .enumerate()
        .filter(|(_, (slot, dead))| slot.active && slot.generation != **dead)
        .filter(move |(_, (slot, _))| slot.position <= tail && slot.position + capacity >= reserved)
        .map(|(number, (slot, _))| (number, slot.position))
}
