//! SELECT × epoll, and a ring for what never becomes ready: files, and words in memory. One wait serves both,
//! because epoll watches the ring's descriptor.
//!
//! If operations on sockets have to wait, this is faster than a ring for everything: the kernel completes a
//! ring's operation in the thread that submitted it. The paper would take two processors; then two leaders
//! wait, or one thread takes turns.

use super::attempt;
use super::select::Select;
use super::uring::{Ring, Uring};
use super::{Attempt, Cancel, InProgress, Provider, Start};
use crate::operation::{DescriptorKind, OperationKind, OperationMask, Pool, Request};
use crate::wait::{Epoll, Event, Readiness, WaitStrategy};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

pub(crate) struct Combined {
    select: Select,
    uring: Uring,
    ring: Arc<Ring>,
    ring_descriptor: RawFd,
    /// The ring did not take everything that was started last.
    ring_has_rest: bool,
}

impl Combined {
    /// Combines the two, with the two flags of the configuration.
    pub(crate) fn new(
        epoll: Arc<Epoll>,
        ring: Arc<Ring>,
        any_thread: bool,
        interrupts: bool,
    ) -> Result<Self, Errno> {
        epoll.watch(ring.as_fd())?;
        Ok(Self {
            select: Select::new(epoll, any_thread, interrupts),
            uring: Uring::new(Arc::clone(&ring), true, false),
            ring_descriptor: ring.as_fd().as_raw_fd(),
            ring,
            ring_has_rest: false,
        })
    }

    /// Handles everything that the ring has completed.
    fn drain(&mut self, operations: &mut InProgress<'_>) {
        loop {
            while let Some(entry) = self.ring.pop() {
                let (number, result) = (entry.user_data(), entry.result());
                self.uring.settle(operations, Event::Complete { number, result });
            }
            // Submits operations that continue, and fetches completions that had no space.
            if !self.ring.has_rest() || !self.ring.submit() {
                return;
            }
        }
    }
}

/// Returns whether the ring does this operation.
fn is_for_ring(request: &Request) -> bool {
    match request.kind {
        OperationKind::ReadFile | OperationKind::WriteFile | OperationKind::WaitWord => true,
        _ => request.on().kind() == DescriptorKind::File,
    }
}

impl Provider for Combined {
    fn supported_operations(&self) -> OperationMask {
        self.uring.supported_operations()
    }

    fn can_start_in_any_thread(&self) -> bool {
        self.select.can_start_in_any_thread()
    }

    fn should_start_interrupt_leader(&self) -> bool {
        self.select.should_start_interrupt_leader()
    }

    fn max_operations(&self) -> usize {
        self.uring.max_operations()
    }

    fn eager(&self) -> Option<Attempt> {
        Some(|request| {
            if is_for_ring(request) {
                attempt::of_cache(request)
            } else {
                attempt::attempt(request)
            }
        })
    }

    fn speculates(&self) -> fn(&Request) -> bool {
        self.select.speculates()
    }

    fn start(&mut self, pool: &mut Pool, index: u32) -> Start {
        if !is_for_ring(&pool[index].request) {
            return self.select.start(pool, index);
        }
        let start = self.uring.start(pool, index);
        self.ring_has_rest = !self.ring.submit();
        start
    }

    fn cancel_aio(&mut self, pool: &mut Pool, index: u32) -> Cancel {
        if !is_for_ring(&pool[index].request) {
            return self.select.cancel_aio(pool, index);
        }
        let cancel = self.uring.cancel_aio(pool, index);
        self.ring_has_rest = !self.ring.submit();
        cancel
    }

    fn submit(&mut self) -> bool {
        !std::mem::take(&mut self.ring_has_rest)
    }

    fn settle(&mut self, operations: &mut InProgress<'_>, event: Event) {
        match event {
            Event::Ready { descriptor, .. } if descriptor == self.ring_descriptor => {
                self.drain(operations);
            }
            _ => self.select.settle(operations, event),
        }
    }

    fn is_prepared(&mut self) -> bool {
        self.ring_has_rest = false;
        // Submits what the kernel refused before, because epoll submits nothing.
        let is_prepared = self.uring.is_prepared();
        let has_rest = self.ring.has_rest() && (!self.ring.submit() || self.ring.has_rest());
        is_prepared && !has_rest
    }

    fn attempt(&self) -> Attempt {
        self.select.attempt()
    }

    fn leave(&mut self, pool: &mut Pool, index: u32) -> Option<u32> {
        self.select.leave(pool, index)
    }

    fn forget(&mut self, descriptor: BorrowedFd<'_>) {
        self.select.forget(descriptor);
    }

    fn wait_strategy(&self) -> Arc<dyn WaitStrategy> {
        self.select.wait_strategy()
    }
}
