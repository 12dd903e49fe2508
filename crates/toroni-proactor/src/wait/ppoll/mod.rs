//! *SELECT_Strategy*: `ppoll` over the started operations, without the limit of 1024 that `select` has.
//!
//! The kernel receives the list of descriptors with each wait, so a leader that waits does not know of
//! operations that are started meanwhile: starts interrupt it.
//!
//! The list may not be longer than the process's limit of descriptors, so a descriptor is in it once, for both
//! directions. It is too long nevertheless if that limit was lowered below what is open; then the strategy asks
//! the kernel in parts, again and again.

use super::{Event, Readiness, Started, WaitStrategy};
use crate::interrupt::{self, InterruptChoice, InterruptStrategy};
use crate::sys::{self, PollEntry, SignalSet};
use rustix::io::Errno;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How soon to ask again if the kernel does not take the whole list.
const AGAIN: Duration = Duration::from_millis(5);

#[derive(Default)]
pub(crate) struct Ppoll {
    leader: Mutex<Leader>,
}

/// The leader's data.
#[derive(Default)]
struct Leader {
    entries: Vec<PollEntry>,
    /// Indexed by descriptor: the position of its entry, if it has one. Never cleared, so the entry there may
    /// belong to another descriptor.
    entry_of: Vec<usize>,
    /// The number of entries that `next_event` has read.
    seen: usize,
    /// The kernel does not take even short lists: all descriptors have to be attempted.
    tries_all: bool,
    /// When that last happened.
    tried_all: Option<Instant>,
    mask: Option<SignalSet>,
}

impl Ppoll {
    fn leader(&self) -> MutexGuard<'_, Leader> {
        self.leader.try_lock().expect("there is one leader")
    }
}

impl Leader {
    fn ask_for(&mut self, descriptor: RawFd, reading: bool) {
        let number = usize::try_from(descriptor).expect("an open descriptor is not negative");
        if number >= self.entry_of.len() {
            self.entry_of.resize(number + 1, 0);
        }
        let entry = &mut self.entry_of[number];
        if self.entries.get(*entry).is_none_or(|entry| entry.descriptor() != descriptor) {
            *entry = self.entries.len();
            self.entries.push(PollEntry::new(descriptor));
        }
        self.entries[*entry].ask_for(reading);
    }

    /// Asks the kernel in parts if it does not take the whole list. It cannot wait for several parts, so it
    /// reports what is ready; if nothing is, it is asked again soon. Returns whether entries were filled.
    #[cold]
    fn ask_in_parts(&mut self, timeout: Option<Duration>) -> bool {
        let (mut asked, mut part, mut has_found) = (0, self.entries.len() / 2, false);
        while asked < self.entries.len() && part > 0 {
            let end = self.entries.len().min(asked + part);
            match sys::ppoll(&mut self.entries[asked..end], Some(Duration::ZERO), None) {
                Ok(found) => {
                    has_found |= found;
                    asked = end;
                }
                Err(Errno::INTR) => {}
                Err(_) => part /= 2,
            }
        }
        if !has_found {
            // The kernel always takes an empty list. Signals that interrupt can arrive here.
            let limit = timeout.map_or(AGAIN, |limit| limit.min(AGAIN));
            let _ = sys::ppoll(&mut [], Some(limit), self.mask.as_ref());
        }
        if asked < self.entries.len() && self.tried_all.is_none_or(|then| then.elapsed() >= AGAIN) {
            self.tries_all = true;
            self.tried_all = Some(Instant::now());
        }
        has_found
    }
}

impl WaitStrategy for Ppoll {
    fn on_leader_activated(&self, while_waiting: Option<SignalSet>) {
        self.leader().mask = while_waiting;
    }

    fn prepare_to_wait(&self, started: Started<'_>) {
        let mut leader = self.leader();
        leader.entries.clear();
        leader.seen = 0;
        for (_, operation) in started {
            // Only the first of a queue is attempted, so only it is waited for.
            if operation.has_predecessor() {
                continue;
            }
            if let Some(descriptor) = operation.request.raw() {
                leader.ask_for(descriptor, operation.request.kind.is_reading());
            }
        }
    }

    fn wait(&self, timeout: Option<Duration>) {
        let leader = &mut *self.leader();
        let has_found = match sys::ppoll(&mut leader.entries, timeout, leader.mask.as_ref()) {
            Ok(has_found) => has_found,
            Err(Errno::INTR) => false,
            Err(_) => leader.ask_in_parts(timeout),
        };
        if !has_found {
            leader.seen = leader.entries.len();
        }
    }

    fn next_event(&self) -> Option<Event> {
        let mut leader = self.leader();
        while let Some(entry) = leader.entries.get(leader.seen).copied() {
            leader.seen += 1;
            if entry.readable() || entry.writable() {
                let (readable, writable) = (entry.readable(), entry.writable());
                return Some(Event::Ready { descriptor: entry.descriptor(), readable, writable });
            }
        }
        std::mem::take(&mut leader.tries_all).then_some(Event::Rescan)
    }

    fn create_interrupt_strategy(
        &self,
        wanted: InterruptChoice,
    ) -> Result<Box<dyn InterruptStrategy>, Errno> {
        interrupt::create(wanted)
    }
}

impl Readiness for Ppoll {
    fn watch(&self, _: BorrowedFd<'_>) -> Result<(), Errno> {
        Ok(())
    }

    fn is_edge_triggered(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
