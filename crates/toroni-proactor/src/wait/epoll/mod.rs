//! *Dev_Poll_Strategy*, with Linux's `epoll` in the place of `/dev/poll`: the kernel keeps the descriptors, and
//! the cost of a wait depends on how many are ready, not on how many are watched.
//!
//! A descriptor is added once, for both directions and edge-triggered. An operation that is started is
//! attempted before a thread waits for it, so no edge is missed. Unlike with `/dev/poll`, adding is legal while
//! another thread waits.

use super::{Event, Readiness, Started, WaitStrategy};
use crate::interrupt::{self, InterruptChoice, InterruptStrategy};
use crate::sys::{self, EpollEntry, SignalSet};
use rustix::event::epoll;
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// The maximum number of events of one wait. Further ones come with the next.
const EVENTS: usize = 256;

pub(crate) struct Epoll {
    epoll: OwnedFd,
    leader: Mutex<Leader>,
}

/// The leader's data.
struct Leader {
    entries: Vec<EpollEntry>,
    filled: usize,
    seen: usize,
    mask: Option<SignalSet>,
}

impl Epoll {
    pub(crate) fn new() -> Result<Self, Errno> {
        let entries = vec![EpollEntry::default(); EVENTS];
        let leader = Mutex::new(Leader { entries, filled: 0, seen: 0, mask: None });
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?, leader })
    }

    fn leader(&self) -> MutexGuard<'_, Leader> {
        self.leader.try_lock().expect("there is one leader")
    }
}

impl WaitStrategy for Epoll {
    fn on_leader_activated(&self, while_waiting: Option<SignalSet>) {
        self.leader().mask = while_waiting;
    }

    fn prepare_to_wait(&self, _: Started<'_>) {}

    fn wait(&self, timeout: Option<Duration>) {
        let leader = &mut *self.leader();
        let (entries, mask) = (&mut leader.entries, leader.mask.as_ref());
        leader.filled = sys::epoll_wait(self.epoll.as_fd(), entries, timeout, mask);
        leader.seen = 0;
    }

    fn next_event(&self) -> Option<Event> {
        let mut leader = self.leader();
        if leader.seen == leader.filled {
            return None;
        }
        let entry = leader.entries[leader.seen];
        leader.seen += 1;
        let (readable, writable) = (entry.readable(), entry.writable());
        Some(Event::Ready { descriptor: entry.descriptor(), readable, writable })
    }

    fn create_interrupt_strategy(
        &self,
        wanted: InterruptChoice,
    ) -> Result<Box<dyn InterruptStrategy>, Errno> {
        interrupt::create(wanted)
    }
}

impl Readiness for Epoll {
    fn watch(&self, descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
        use epoll::EventFlags as Flags;
        let flags = Flags::IN | Flags::OUT | Flags::RDHUP | Flags::ET;
        let number = u64::from(descriptor.as_raw_fd().unsigned_abs());
        match epoll::add(&self.epoll, descriptor, epoll::EventData::new_u64(number), flags) {
            // Watched already: the same open file, taken over again under the same number.
            Err(Errno::EXIST) => Ok(()),
            other => other,
        }
    }

    fn unwatch(&self, descriptor: BorrowedFd<'_>) {
        // It was added, and nothing else removes it.
        let _ = epoll::delete(&self.epoll, descriptor);
    }

    fn is_edge_triggered(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
