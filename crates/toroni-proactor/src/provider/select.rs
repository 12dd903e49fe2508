//! *SELECT_Provider*: turns readiness into completions. When its wait strategy reports that a descriptor is
//! ready, the operation becomes READY, and the thread that will call its handler does the transfer, without the
//! lock. It supports every operation but WAIT_WORD, and runs on any Linux.
//!
//! Operations of one descriptor and direction are done in the order of their starts: they are in a queue, and
//! only the first is attempted.

use super::attempt;
use super::queues::{self, Queues};
use super::{Attempt, Cancel, InProgress, Provider, Start};
use crate::operation::{
    Descriptor, DescriptorKind, Edges, OperationKind, OperationMask, Outcome, Pool, Request, State,
};
use crate::wait::{Event, Readiness, WaitStrategy};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Weak};

pub(crate) struct Select {
    readiness: Arc<dyn Readiness>,
    queues: Queues,
    /// Indexed by the number of the descriptor: the open file that it stood for when it was last watched.
    watched: Vec<Watched>,
    can_start_in_any_thread: bool,
    should_start_interrupt_leader: bool,
}

/// A watched descriptor. It does not keep the file open.
#[derive(Default)]
struct Watched {
    descriptor: Weak<Descriptor>,
    edges: Arc<Edges>,
}

impl Select {
    /// Creates the provider with a wait strategy and the two flags of the configuration. A strategy that
    /// receives its descriptors with each wait sees a start of another thread only after an interrupt.
    pub(crate) fn new(readiness: Arc<dyn Readiness>, any_thread: bool, interrupt: bool) -> Self {
        let interrupt = any_thread && (interrupt || !readiness.is_edge_triggered());
        Self {
            readiness,
            queues: Queues::default(),
            watched: Vec::new(),
            can_start_in_any_thread: any_thread,
            should_start_interrupt_leader: interrupt,
        }
    }

    fn watched(&mut self, descriptor: RawFd) -> &mut Watched {
        let number = queues::number(descriptor);
        if number >= self.watched.len() {
            self.watched.resize_with(number + 1, Watched::default);
        }
        &mut self.watched[number]
    }

    /// Returns whether the descriptor is or was watched, or is lower than one that was: the table has an
    /// entry for it.
    fn may_be_watched(&self, descriptor: RawFd) -> bool {
        usize::try_from(descriptor).is_ok_and(|number| number < self.watched.len())
    }

    /// Handles a report that the descriptor became ready in this direction: the first operation of its queue
    /// is attempted.
    fn edge(&mut self, operations: &mut InProgress<'_>, descriptor: RawFd, reading: bool) {
        self.watched(descriptor).edges.report(reading);
        let queue = self.queues.of_direction(descriptor, reading);
        let Some(index) = queue.first() else { return };
        let operation = &mut operations.pool[index];
        if operation.state() != State::Started {
            // The thread that attempts it sees the edge.
        } else if !operation.is_internal() {
            operations.make_ready(index);
        } else if let Some(outcome) = attempt::attempt(&mut operation.request) {
            queue.remove(operations.pool, index);
            operations.finish(index, outcome);
        }
    }
}

fn is_of_a_file(request: &Request) -> bool {
    matches!(request.kind, OperationKind::ReadFile | OperationKind::WriteFile)
        || request.on().kind() == DescriptorKind::File
}

impl Provider for Select {
    fn supported_operations(&self) -> OperationMask {
        OperationMask::ALL.without(OperationKind::WaitWord)
    }

    fn can_start_in_any_thread(&self) -> bool {
        self.can_start_in_any_thread
    }

    fn should_start_interrupt_leader(&self) -> bool {
        self.should_start_interrupt_leader
    }

    fn max_operations(&self) -> usize {
        usize::MAX
    }

    fn eager(&self) -> Option<Attempt> {
        Some(attempt::attempt)
    }

    fn speculates(&self) -> fn(&Request) -> bool {
        // The peer has not answered yet what the handler wrote, and other sessions wait.
        |request| request.kind.is_reading() && !is_of_a_file(request)
    }

    fn start(&mut self, pool: &mut Pool, index: u32) -> Start {
        let operation = &mut pool[index];
        let is_internal = operation.is_internal();
        let request = &mut operation.request;
        let kind = request.kind;
        let begins = kind == OperationKind::Connect && !request.is_connecting;
        if is_of_a_file(request) {
            return Start::Finished(attempt::without_waiting(request));
        }
        let descriptor = request.on().as_raw_fd();
        let readiness = Arc::clone(&self.readiness);
        let watched = self.watched(descriptor);
        if watched.descriptor.as_ptr() != Arc::as_ptr(request.on()) {
            match readiness.watch(request.on().as_fd()) {
                Ok(()) => {
                    let edges = Arc::clone(request.on().edges());
                    // Earlier changes are not reported.
                    edges.report(true);
                    edges.report(false);
                    *watched = Watched { descriptor: Arc::downgrade(request.on()), edges };
                }
                Err(Errno::AGAIN) => return Start::Deferred,
                // A device that cannot be waited for.
                Err(Errno::PERM) => return Start::Finished(attempt::without_waiting(request)),
                Err(error) => return Start::Failed(error),
            }
        }
        let queue = self.queues.of(descriptor, kind);
        let is_first = queue.is_empty();
        if is_first
            && (begins || is_internal)
            && let Some(outcome) = attempt::attempt(request)
        {
            return Start::Finished(outcome);
        }
        let is_known_to_block = request.on().edges().last(kind.is_reading()).is_none();
        let may_be_ready = is_first && !is_known_to_block && !is_internal;
        queue.push(pool, index);
        if may_be_ready { Start::Ready } else { Start::Started }
    }

    fn forget(&mut self, descriptor: BorrowedFd<'_>) {
        let watched = self.watched(descriptor.as_raw_fd());
        if watched.descriptor.strong_count() > 0 {
            *watched = Watched::default();
            self.readiness.unwatch(descriptor);
        }
    }

    fn cancel_aio(&mut self, pool: &mut Pool, index: u32) -> Cancel {
        let request = &pool[index].request;
        let (kind, descriptor) = (request.kind, request.raw().unwrap_or(0));
        self.queues.of(descriptor, kind).remove(pool, index);
        Cancel::Finished(Outcome::cancelled())
    }

    fn settle(&mut self, operations: &mut InProgress<'_>, event: Event) {
        match event {
            // A signal may belong to a descriptor that another library watches.
            Event::Ready { descriptor, .. } if !self.may_be_watched(descriptor) => {}
            Event::Ready { descriptor, readable, writable } => {
                if readable {
                    self.edge(operations, descriptor, true);
                }
                if writable {
                    self.edge(operations, descriptor, false);
                }
            }
            Event::Rescan => {
                for descriptor in self.queues.descriptors() {
                    self.edge(operations, descriptor, true);
                    self.edge(operations, descriptor, false);
                }
            }
            Event::Complete { .. } | Event::Check { .. } => {}
        }
    }

    fn attempt(&self) -> Attempt {
        attempt::attempt
    }

    fn leave(&mut self, pool: &mut Pool, index: u32) -> Option<u32> {
        let request = &pool[index].request;
        let queue = self.queues.of(request.on().as_raw_fd(), request.kind);
        queue.remove(pool, index);
        queue.first()
    }

    fn should_retry_interrupt_leader(&self) -> bool {
        !self.readiness.is_edge_triggered()
    }

    fn wait_strategy(&self) -> Arc<dyn WaitStrategy> {
        Arc::clone(&self.readiness) as Arc<dyn WaitStrategy>
    }
}
