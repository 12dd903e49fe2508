//! *SELECT_Provider*: completions made from readiness. It does the transfer itself when its wait strategy
//! says that a descriptor is ready, supports every operation, and runs on any Linux.
//!
//! Operations of one descriptor and direction are done in the order of their starts: they stand in a
//! queue, and only the first is tried.

mod attempt;

use super::queues::{self, Queues};
use super::{Cancel, InProgress, Provider, Start};
use crate::record::{Descriptor, Kind, Operation, OperationMask, Outcome, Records, Request};
use crate::wait::{Event, Readiness, WaitStrategy};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Weak};

/// See the module.
pub(crate) struct Select {
    readiness: Arc<dyn Readiness>,
    queues: Queues,
    /// By the number of the descriptor: which opened file it stood for when it was last watched.
    watched: Vec<Weak<Descriptor>>,
    can_start_in_any_thread: bool,
    should_start_interrupt_leader: bool,
}

impl Select {
    /// With a wait strategy, and the two flags of the configuration. A strategy that is handed its
    /// descriptors with each wait takes no start from elsewhere without an interrupt.
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

    fn watched(&mut self, descriptor: RawFd) -> &mut Weak<Descriptor> {
        let number = queues::number(descriptor);
        if number >= self.watched.len() {
            self.watched.resize_with(number + 1, Weak::new);
        }
        &mut self.watched[number]
    }

    fn start(&mut self, records: &mut Records, index: u32) -> Start {
        let request = &mut records[index].request;
        let operation = request.operation;
        if request.on().kind() == Kind::File {
            return Start::Finished(attempt::without_waiting(request));
        }
        let descriptor = request.on().as_raw_fd();
        let readiness = Arc::clone(&self.readiness);
        let watched = self.watched(descriptor);
        if watched.as_ptr() != Arc::as_ptr(request.on()) {
            match readiness.watch(request.on().as_fd()) {
                Ok(()) => *watched = Arc::downgrade(request.on()),
                Err(Errno::AGAIN) => return Start::Deferred,
                // A device that is never waited for.
                Err(Errno::PERM) => return Start::Finished(attempt::without_waiting(request)),
                Err(error) => return Start::Failed(error),
            }
        }
        let queue = self.queues.of(descriptor, operation);
        let is_first = queue.is_empty();
        let begins = operation == Operation::Connect && !request.is_connecting;
        if is_first
            && (readiness.is_edge_triggered() || begins)
            && let Some(outcome) = attempt::attempt(request)
        {
            return Start::Finished(outcome);
        }
        queue.push(records, index);
        Start::Started
    }

    /// Tries the first of a queue, and the next, until one would have to wait.
    fn serve(&mut self, operations: &mut InProgress<'_>, descriptor: RawFd, reading: bool) {
        let queue = self.queues.of_direction(descriptor, reading);
        while let Some(index) = queue.first() {
            let request = &mut operations.records[index].request;
            let Some(outcome) = attempt::attempt(request) else { break };
            queue.remove(operations.records, index);
            operations.finish(index, outcome);
        }
    }
}

impl Provider for Select {
    fn supported_operations(&self) -> OperationMask {
        OperationMask::ALL
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

    fn eager(&self) -> Option<fn(&mut Request) -> Option<Outcome>> {
        Some(attempt::attempt)
    }

    fn start_read_stream(&mut self, records: &mut Records, index: u32) -> Start {
        self.start(records, index)
    }

    fn start_write_stream(&mut self, records: &mut Records, index: u32) -> Start {
        self.start(records, index)
    }

    fn start_read_file(&mut self, records: &mut Records, index: u32) -> Start {
        Start::Finished(attempt::without_waiting(&mut records[index].request))
    }

    fn start_write_file(&mut self, records: &mut Records, index: u32) -> Start {
        Start::Finished(attempt::without_waiting(&mut records[index].request))
    }

    fn start_read_dgram(&mut self, records: &mut Records, index: u32) -> Start {
        self.start(records, index)
    }

    fn start_write_dgram(&mut self, records: &mut Records, index: u32) -> Start {
        self.start(records, index)
    }

    fn start_accept(&mut self, records: &mut Records, index: u32) -> Start {
        self.start(records, index)
    }

    fn start_connect(&mut self, records: &mut Records, index: u32) -> Start {
        self.start(records, index)
    }

    fn cancel_aio(&mut self, records: &mut Records, index: u32) -> Cancel {
        let request = &records[index].request;
        let (operation, descriptor) = (request.operation, request.raw().unwrap_or(0));
        self.queues.of(descriptor, operation).remove(records, index);
        Cancel::Finished(Outcome::cancelled())
    }

    fn settle(&mut self, operations: &mut InProgress<'_>, event: Event) {
        match event {
            Event::Ready { descriptor, readable, writable } => {
                if readable {
                    self.serve(operations, descriptor, true);
                }
                if writable {
                    self.serve(operations, descriptor, false);
                }
            }
            Event::Rescan => {
                for descriptor in self.queues.descriptors() {
                    self.serve(operations, descriptor, true);
                    self.serve(operations, descriptor, false);
                }
            }
            Event::Complete { .. } => {}
        }
    }

    fn wait_strategy(&self) -> Arc<dyn WaitStrategy> {
        Arc::clone(&self.readiness) as Arc<dyn WaitStrategy>
    }
}
