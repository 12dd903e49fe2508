//! Subscribers are all alike, so states that differ only by their permutation are one state. The search remembers the one
//! in which they are sorted.

use crate::publisher::{Doing, Seen};
use crate::state::{MOST_SUBSCRIBERS, Slot, State, Subscriber};
use crate::subscriber::Reading;
use stateright::Representative;

/// What all others remember of a subscriber and its slot.
type Memories = [(u8, u8, u8, Slot, [u8; 5]); crate::state::MOST_PUBLISHERS];

impl Representative for State {
    fn representative(&self) -> Self {
        let count = self.subscribers.len();
        let mut order: Vec<(Subscriber, Slot, Memories, usize)> = (0..count)
            .map(|number| {
                (
                    alone(self.subscribers[number], number),
                    self.slots[number],
                    memories(self, number),
                    number,
                )
            })
            .collect();
        order.sort();
        let mut sorted = self.clone();
        if order.iter().enumerate().all(|(place, entry)| entry.3 == place) {
            return sorted;
        }
        let mut place_of = [0; MOST_SUBSCRIBERS];
        for (place, entry) in order.iter().enumerate() {
            place_of[entry.3] = place;
            sorted.subscribers[place] = self.subscribers[entry.3];
            sorted.slots[place] = self.slots[entry.3];
        }
        let place_of = &place_of[..count];
        for subscriber in sorted.subscribers.iter_mut() {
            if let Reading::AnswerSlots { left, .. } = &mut subscriber.reading {
                *left = bits(*left, place_of);
            }
        }
        for publisher in sorted.publishers.iter_mut() {
            publisher.dead = row(&publisher.dead, place_of);
            publisher.suspects = row(&publisher.suspects, place_of);
            for mask in [
                &mut publisher.asleep,
                &mut publisher.seen,
                &mut publisher.armed,
                &mut publisher.early_row,
            ] {
                *mask = bits(*mask, place_of);
            }
            match &mut publisher.doing {
                Doing::ReadSlots { left, seen, .. } => {
                    (*left, *seen) = (bits(*left, place_of), row(seen, place_of));
                }
                Doing::Look { left, .. } | Doing::RaiseWord { left, .. } => {
                    *left = bits(*left, place_of);
                }
                Doing::WakeOne { left, one, .. } => {
                    (*left, *one) = (bits(*left, place_of), bits(*one, place_of));
                }
                _ => {}
            }
        }
        sorted
    }
}

/// A subscriber as it is sorted: while it reads all slots, only whether its own is left matters.
fn alone(mut subscriber: Subscriber, number: usize) -> Subscriber {
    if let Reading::AnswerSlots { left, .. } = &mut subscriber.reading {
        *left = *left >> number & 1;
    }
    subscriber
}

fn memories(state: &State, number: usize) -> Memories {
    let mut memories = Memories::default();
    for (memory, publisher) in memories.iter_mut().zip(state.publishers.iter()) {
        let of = |left: u8, seen: &Seen| (left >> number & 1, seen[number]);
        let (bit, slot) = match &publisher.doing {
            Doing::ReadSlots { left, seen, .. } => of(*left, seen),
            Doing::Look { left, .. }
            | Doing::RaiseWord { left, .. }
            | Doing::WakeOne { left, .. } => (left >> number & 1, Slot::default()),
            _ => (0, Slot::default()),
        };
        let is_woken = match &publisher.doing {
            Doing::WakeOne { one, .. } => *one,
            _ => 0,
        };
        let masks =
            [publisher.asleep, publisher.seen, publisher.armed, publisher.early_row, is_woken];
        let masks = masks.map(|mask| mask >> number & 1);
        *memory = (publisher.dead[number], publisher.suspects[number], bit, slot, masks);
    }
    memories
}

fn bits(left: u8, place_of: &[usize]) -> u8 {
    (0..).zip(place_of).map(|(old, new)| (left >> old & 1) << new).sum()
}

fn row<T: Copy>(old: &[T; MOST_SUBSCRIBERS], place_of: &[usize]) -> [T; MOST_SUBSCRIBERS] {
    let mut new = *old;
    for (from, to) in place_of.iter().enumerate() {
        new[*to] = old[from];
    }
    new
}
