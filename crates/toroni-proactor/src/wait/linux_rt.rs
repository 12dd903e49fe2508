//! *LinuxRT_Strategy*: the kernel sends a real-time signal when a descriptor changes, and the leader takes
//! signals from its queue.
//!
//! A descriptor's signals go to one thread, so this is for dedicated processors only, whose leader never
//! changes. When the signal queue is full, the kernel sends SIGIO once instead: then all descriptors are
//! checked.

use super::{Event, Readiness, Started, WaitStrategy};
use crate::interrupt::{self, InterruptChoice, InterruptStrategy};
use crate::sys::{self, SignalSet, ThreadId};
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

/// The maximum number of signals of one wait. Further ones come with the next.
const SIGNALS: usize = 256;

pub(crate) struct LinuxRt {
    signal: i32,
    interrupt_signal: OnceLock<i32>,
    owner: OnceLock<ThreadId>,
    leader: Mutex<VecDeque<Event>>,
}

impl LinuxRt {
    /// Creates the strategy with this signal for changes.
    pub(crate) fn new(signal: i32) -> Self {
        Self {
            signal,
            interrupt_signal: OnceLock::new(),
            owner: OnceLock::new(),
            leader: Mutex::new(VecDeque::with_capacity(SIGNALS)),
        }
    }

    fn leader(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.leader.try_lock().expect("there is one leader")
    }

    /// Returns all signals that end a wait. The leader blocks them, as it blocks every signal.
    fn awaited(&self) -> SignalSet {
        let own = self.interrupt_signal.get().copied().unwrap_or(self.signal);
        SignalSet::of(&[self.signal, libc::SIGIO, own, interrupt::SPARE])
    }
}

impl WaitStrategy for LinuxRt {
    fn on_leader_activated(&self, _: Option<SignalSet>) {
        self.owner.get_or_init(ThreadId::current);
    }

    fn prepare_to_wait(&self, _: Started<'_>) {}

    fn wait(&self, timeout: Option<Duration>) {
        let mut leader = self.leader();
        let awaited = self.awaited();
        let mut timeout = timeout;
        while leader.len() < SIGNALS
            && let Some(taken) = sys::take_signal(&awaited, timeout)
        {
            if taken.number == libc::SIGIO {
                leader.push_back(Event::Rescan);
            } else if taken.number == self.signal
                && let Some(descriptor) = taken.descriptor
            {
                // The band does not report errors well: both directions are attempted.
                leader.push_back(Event::Ready { descriptor, readable: true, writable: true });
            }
            timeout = Some(Duration::ZERO);
        }
    }

    fn next_event(&self) -> Option<Event> {
        self.leader().pop_front()
    }

    fn create_interrupt_strategy(
        &self,
        wanted: InterruptChoice,
    ) -> Result<Box<dyn InterruptStrategy>, Errno> {
        interrupt::create(match wanted {
            // An eventfd sends no signals.
            InterruptChoice::Eventfd => InterruptChoice::Pipe,
            InterruptChoice::Signal(number) => {
                self.interrupt_signal.get_or_init(|| number);
                wanted
            }
            InterruptChoice::Pipe | InterruptChoice::Callback => wanted,
        })
    }
}

impl Readiness for LinuxRt {
    fn watch(&self, descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
        // There is no leader yet: the start is deferred, and left to it.
        let owner = self.owner.get().ok_or(Errno::AGAIN)?;
        match FileType::from_raw_mode(fstat(descriptor)?.st_mode) {
            FileType::Socket | FileType::Fifo | FileType::CharacterDevice => {
                sys::signal_changes(descriptor, *owner, self.signal)
            }
            // Other files accept the request and never send a signal.
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    fn unwatch(&self, descriptor: BorrowedFd<'_>) {
        sys::signal_no_changes(descriptor);
    }

    fn is_edge_triggered(&self) -> bool {
        true
    }
}
