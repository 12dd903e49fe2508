//! Timers: operations that are post-completed at a point in time. The waits of followers and leaders serve
//! them, without a thread of their own.

use crate::core::Core;
use crate::dispatcher::Notify;
use crate::operation::{Key, OperationKind, Outcome, State};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// All timers that are not over. A cancelled timer leaves its entry, whose key no longer identifies an
/// operation.
#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<Entry>>,
    /// The number of entries of cancelled timers.
    stale: usize,
    serial: u64,
}

/// Ordered by time, then by the order of the starts.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    deadline: Instant,
    serial: u64,
    key: u64,
}

impl Timers {
    /// Returns the next time at which a timer may be due.
    fn nearest(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(entry)| entry.deadline)
    }

    /// Takes a timer that is due.
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
            // A waiting thread waits again, no longer than until then.
            self.notify();
        }
    }

    /// Returns whether the key identifies a timer that is not due yet.
    pub(crate) fn is_timer(&self, key: Key) -> bool {
        self.pool.get(key).is_some_and(|operation| {
            operation.state() == State::Initialized
                && operation.request.kind == OperationKind::Timer
        })
    }

    /// Cancels a timer that is not due yet; its handler reports that.
    pub(crate) fn cancel_timer(&mut self, index: u32) {
        let operation = &mut self.pool[index];
        operation.is_cancelled = true;
        operation.outcome = Some(Outcome::cancelled());
        self.dispatcher.timers.stale += 1;
        self.post_completion(index, Notify::Strong);
    }

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
    pub(crate) fn expire_timers(&mut self) {
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

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.dispatcher.timers.nearest()
    }

    /// Drops entries of cancelled timers when they outnumber the others: a program that sets and cancels a
    /// timeout for each read leaves one each time.
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
