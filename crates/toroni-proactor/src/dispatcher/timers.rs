//! Timers: moments at which operations are post-completed. They are served in the waits of followers and
//! leaders, without a thread of their own.

use crate::core::Core;
use crate::dispatcher::Notify;
use crate::operation::{Key, Outcome, State};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// All timers that are not over. A timer that is cancelled leaves its entry behind, which names an operation
/// that lives no more.
#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<Entry>>,
    /// Entries of cancelled timers.
    stale: usize,
    serial: u64,
}

/// By time, then by the order of their starts.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    deadline: Instant,
    serial: u64,
    key: u64,
}

impl Timers {
    /// The next moment at which something may be due.
    fn nearest(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(entry)| entry.deadline)
    }

    /// A timer that is due.
    fn pop(&mut self, now: Instant) -> Option<Key> {
        if self.nearest()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| Key::from_u64(entry.key))
    }
}

impl Core {
    /// Sets a timer: the operation is INITIALIZED, and will be POSTED.
    pub(crate) fn start_timer(&mut self, key: Key, deadline: Instant) {
        let timers = &mut self.dispatcher.timers;
        timers.serial += 1;
        let entry = Entry { deadline, serial: timers.serial, key: key.to_u64() };
        timers.heap.push(Reverse(entry));
        let is_nearest = timers.nearest() == Some(deadline);
        if is_nearest && self.dispatcher.watched.is_none_or(|watched| deadline < watched) {
            // Whoever waits waits anew, and no longer than that.
            self.notify();
        }
    }

    /// Cancels a timer that is not due yet: its handler is told so.
    pub(crate) fn cancel_timer(&mut self, index: u32) {
        let operation = &mut self.pool[index];
        operation.is_cancelled = true;
        operation.outcome = Some(Outcome::cancelled());
        self.dispatcher.timers.stale += 1;
        self.post_completion(index, Notify::Strong);
    }

    /// Cancels all timers.
    pub(crate) fn cancel_timers(&mut self) {
        let entries: Vec<Key> = self
            .dispatcher
            .timers
            .heap
            .drain()
            .map(|Reverse(entry)| Key::from_u64(entry.key))
            .collect();
        for key in entries {
            if self.pool.get(key).map(|operation| operation.state()) == Some(State::Initialized) {
                self.cancel_timer(key.index);
            }
        }
        self.dispatcher.timers.stale = 0;
    }

    /// Post-completes the timers that are due.
    pub(super) fn expire_timers(&mut self) {
        if self.dispatcher.timers.heap.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some(key) = self.dispatcher.timers.pop(now) {
            match self.pool.get(key).map(|operation| operation.state()) {
                Some(State::Initialized) => self.post_completion(key.index, Notify::None),
                _ => self.dispatcher.timers.stale -= 1,
            }
        }
        self.drop_stale_timers();
    }

    /// The nearest timer.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.dispatcher.timers.nearest()
    }

    /// A program that sets and cancels a time-out for each of its reads leaves an entry each time: they
    /// must not outnumber those that live by much.
    fn drop_stale_timers(&mut self) {
        let timers = &mut self.dispatcher.timers;
        if timers.stale <= 64.max(timers.heap.len() / 2) {
            return;
        }
        let pool = &mut self.pool;
        timers.heap.retain(|Reverse(entry)| {
            let operation = pool.get(Key::from_u64(entry.key));
            operation.is_some_and(|operation| operation.state() == State::Initialized)
        });
        timers.stale = 0;
    }
}
