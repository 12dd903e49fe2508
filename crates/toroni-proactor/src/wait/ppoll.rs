//! *SELECT_Strategy*: `ppoll` over the started operations, without the limit of 1024 that `select` has.
//!
//! The kernel is handed the list of descriptors anew with each wait, so a leader that waits does not know
//! of what is started meanwhile: starts interrupt it.

use super::{Event, Readiness, Started, WaitStrategy};
use crate::interrupt::{self, InterruptChoice, InterruptStrategy};
use crate::sys::{self, PollEntry, SignalSet};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// See the module.
#[derive(Default)]
pub(crate) struct Ppoll {
    leader: Mutex<Leader>,
}

/// What belongs to the leader.
#[derive(Default)]
struct Leader {
    entries: Vec<PollEntry>,
    /// How many of them `next_event` has looked at.
    seen: usize,
    mask: Option<SignalSet>,
}

impl Ppoll {
    fn leader(&self) -> MutexGuard<'_, Leader> {
        self.leader.try_lock().expect("there is one leader")
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
        for (_, record) in started {
            // Only the first of a queue is tried, so only it is waited for.
            if record.is_behind_another() {
                continue;
            }
            let reading = record.request.operation.is_reading();
            if let Some(descriptor) = record.request.raw() {
                leader.entries.push(PollEntry::new(descriptor, reading));
            }
        }
    }

    fn wait(&self, timeout: Option<Duration>) {
        let leader = &mut *self.leader();
        if !sys::ppoll(&mut leader.entries, timeout, leader.mask.as_ref()) {
            leader.seen = leader.entries.len();
        }
    }

    fn next_event(&self) -> Option<Event> {
        let mut leader = self.leader();
        loop {
            let entry = *leader.entries.get(leader.seen)?;
            leader.seen += 1;
            if entry.readable() || entry.writable() {
                let (readable, writable) = (entry.readable(), entry.writable());
                return Some(Event::Ready { descriptor: entry.descriptor(), readable, writable });
            }
        }
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
