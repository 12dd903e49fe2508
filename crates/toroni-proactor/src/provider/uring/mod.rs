//! io_uring, in the place of *SUN_Provider*: the platform's native completions. The kernel does every
//! operation itself, and says which is complete.
//!
//! - The kernel cancels what a thread has submitted when that thread exits. Nobody asked for that, so the
//!   operation is submitted again.
//! - A non-blocking descriptor that is no socket answers `EAGAIN`: then it is polled first.
//! - The kernel promises no order among the reads of one stream, nor among its writes: one of each is
//!   submitted at a time.
//! - A cancelled operation may succeed nevertheless: then that is its result.

mod areas;
mod ring;

pub(crate) use ring::Ring;

use super::queues::Queues;
use super::{Cancel, InProgress, Provider, Start};
use crate::record::{Key, Kind, List, Operation, OperationMask, Outcome, Records, Request};
use crate::wait::{self, Event, WaitStrategy};
use areas::Areas;
use io_uring::types::Fd;
use io_uring::{opcode, squeue};
use rustix::io::Errno;
use rustix::net::sockopt;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// In the number of a completion: of a poll that goes before an operation. Records are fewer.
const POLLED: u64 = 1 << 31;

/// The number of completions that nobody waits for.
const NOBODY: u64 = u64::MAX;

/// See the module.
pub(crate) struct Uring {
    ring: Arc<Ring>,
    wait: Arc<dyn WaitStrategy>,
    areas: Areas,
    /// Of streams; the first of each is submitted.
    queues: Queues,
    /// By the number of the record: it is being polled.
    polled: Vec<bool>,
    any_thread: bool,
    interrupts: bool,
}

impl Uring {
    /// On this ring, with the two flags of the configuration.
    pub(crate) fn new(ring: Arc<Ring>, any_thread: bool, interrupts: bool) -> Self {
        Self {
            wait: Arc::new(wait::Uring::new(Arc::clone(&ring))),
            any_thread: any_thread && !ring.belongs_to_leader(),
            interrupts: any_thread && interrupts,
            ring,
            areas: Areas::default(),
            queues: Queues::default(),
            polled: Vec::new(),
        }
    }

    fn start(&mut self, records: &mut Records, index: u32) -> Start {
        let queue = self.queue(&records[index].request);
        if let Some(queue) = queue
            && !queue.is_empty()
        {
            queue.push(records, index);
            return Start::Started;
        }
        let start = self.submit_one(records, index);
        if matches!(start, Start::Started)
            && let Some(queue) = self.queue(&records[index].request)
        {
            queue.push(records, index);
        }
        start
    }

    /// The queue of a stream's operation.
    fn queue(&mut self, request: &Request) -> Option<&mut List> {
        let operation = request.operation;
        matches!(operation, Operation::ReadStream | Operation::WriteStream)
            .then(|| self.queues.of(request.on().as_raw_fd(), operation))
    }

    /// Takes an operation that is over out of its queue, and submits the next one.
    fn leave_queue(&mut self, operations: &mut InProgress<'_>, index: u32) {
        let Some(queue) = self.queue(&operations.records[index].request) else { return };
        queue.remove(operations.records, index);
        while let Some(next) = self.first_behind(operations, index) {
            if matches!(self.submit_one(operations.records, next), Start::Started) {
                return;
            }
            // The leader submits before it waits, so there is room soon; but not now.
            if let Some(queue) = self.queue(&operations.records[next].request) {
                queue.remove(operations.records, next);
            }
            operations.finish(next, Outcome::of(Err(Errno::NOBUFS)));
        }
    }

    fn first_behind(&mut self, operations: &InProgress<'_>, index: u32) -> Option<u32> {
        self.queue(&operations.records[index].request)?.first()
    }

    fn submit_one(&mut self, records: &mut Records, index: u32) -> Start {
        let key = records.key(index);
        let entry = self.entry(index, &records[index].request);
        self.set_polled(index, false);
        self.push(&entry.user_data(key.to_u64()))
    }

    fn push(&mut self, entry: &squeue::Entry) -> Start {
        // SAFETY: an entry names the buffer, which the record owns until it is complete, and the area of
        // its record, which lives as long as the provider.
        if unsafe { self.ring.push(entry) } { Start::Started } else { Start::Deferred }
    }

    fn entry(&mut self, index: u32, request: &Request) -> squeue::Entry {
        let fd = Fd(request.raw().unwrap_or(-1));
        let pointer = request.memory.pointer();
        let length = u32::try_from(request.memory.length()).unwrap_or(u32::MAX);
        /// The descriptor's own position.
        const HERE: u64 = u64::MAX;
        let is_socket = request.on().kind() == Kind::Socket;
        match request.operation {
            Operation::ReadStream if is_socket => opcode::Recv::new(fd, pointer, length).build(),
            Operation::ReadStream => opcode::Read::new(fd, pointer, length).offset(HERE).build(),
            Operation::WriteStream if is_socket => {
                opcode::Send::new(fd, pointer, length).flags(libc::MSG_NOSIGNAL).build()
            }
            Operation::WriteStream => opcode::Write::new(fd, pointer, length).offset(HERE).build(),
            Operation::ReadFile => {
                opcode::Read::new(fd, pointer, length).offset(request.offset).build()
            }
            Operation::WriteFile => {
                opcode::Write::new(fd, pointer, length).offset(request.offset).build()
            }
            Operation::ReadDatagram => {
                opcode::RecvMsg::new(fd, self.areas.header(index, request)).build()
            }
            Operation::WriteDatagram => {
                let header = self.areas.header(index, request);
                opcode::SendMsg::new(fd, header).flags(libc::MSG_NOSIGNAL.cast_unsigned()).build()
            }
            Operation::Accept => {
                let (address, _, length) = self.areas.address(index, request);
                let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
                opcode::Accept::new(fd, address, length).flags(flags).build()
            }
            Operation::Connect => {
                let (address, length, _) = self.areas.address(index, request);
                opcode::Connect::new(fd, address, length).build()
            }
            Operation::Timer | Operation::Post => unreachable!("no provider is asked for these"),
        }
    }

    /// What a completion means: the outcome, or `None` if the operation goes on.
    fn outcome(&mut self, records: &mut Records, key: Key, result: i32) -> Option<Outcome> {
        let index = key.index;
        let was_polled = self.is_polled(index);
        let is_cancelled = records[index].is_cancelled;
        let request = &records[index].request;
        let operation = request.operation;
        if result >= 0 && was_polled {
            if operation == Operation::Connect {
                let error = sockopt::socket_error(request.fd()).and_then(|error| error);
                return Some(Outcome::of(error.map(|()| 0)));
            }
            return self.again(records, key, false);
        }
        if result >= 0 {
            return Some(self.success(index, operation, result));
        }
        let is_internal = records[index].is_internal();
        let errno = Errno::from_raw_os_error(result.saturating_neg());
        match errno {
            // Its thread has exited. The reads of interrupts are started anew by the leader.
            Errno::CANCELED if !is_cancelled && !is_internal => {
                self.again(records, key, was_polled || operation == Operation::Connect)
            }
            Errno::INTR if !is_cancelled => self.again(records, key, was_polled),
            Errno::AGAIN if !is_cancelled && operation != Operation::Connect => {
                self.again(records, key, true)
            }
            Errno::INPROGRESS | Errno::ALREADY if !is_cancelled => self.again(records, key, true),
            Errno::CONNABORTED if operation == Operation::Accept && !is_cancelled => {
                self.again(records, key, false)
            }
            _ => Some(Outcome::of(Err(errno))),
        }
    }

    /// Submits an operation once more, or a poll for it.
    fn again(&mut self, records: &mut Records, key: Key, polls: bool) -> Option<Outcome> {
        let request = &records[key.index].request;
        let entry = if polls {
            let events = if request.operation.is_reading() { libc::POLLIN } else { libc::POLLOUT };
            let fd = Fd(request.raw().unwrap_or(-1));
            let entry = opcode::PollAdd::new(fd, u32::from(events.cast_unsigned())).build();
            entry.user_data(key.to_u64() | POLLED)
        } else {
            self.entry(key.index, request).user_data(key.to_u64())
        };
        self.set_polled(key.index, polls);
        match self.push(&entry) {
            Start::Started => None,
            // The leader submits before it waits, so there is room soon; but not now.
            _ => Some(Outcome::of(Err(Errno::NOBUFS))),
        }
    }

    fn success(&mut self, index: u32, operation: Operation, result: i32) -> Outcome {
        let count = usize::try_from(result).unwrap_or(0);
        match operation {
            Operation::ReadDatagram => {
                let (address, is_truncated) = self.areas.received(index);
                Outcome { address, is_truncated, ..Outcome::of(Ok(count)) }
            }
            Operation::Accept => {
                // SAFETY: the kernel has just made this descriptor for us, and nobody else knows of it.
                let accepted = unsafe { OwnedFd::from_raw_fd(result) };
                let address = self.areas.accepted(index);
                Outcome { accepted: Some(accepted), address, ..Outcome::of(Ok(0)) }
            }
            _ => Outcome::of(Ok(count)),
        }
    }

    fn is_polled(&self, index: u32) -> bool {
        self.polled.get(index as usize).copied().unwrap_or(false)
    }

    fn set_polled(&mut self, index: u32, polled: bool) {
        let index = index as usize;
        if index >= self.polled.len() {
            self.polled.resize(index + 1, false);
        }
        self.polled[index] = polled;
    }
}

impl Provider for Uring {
    fn supported_operations(&self) -> OperationMask {
        OperationMask::ALL
    }

    fn can_start_in_any_thread(&self) -> bool {
        self.any_thread
    }

    fn should_start_interrupt_leader(&self) -> bool {
        self.any_thread && self.interrupts
    }

    fn max_operations(&self) -> usize {
        // A number has 31 bits besides the mark of polls.
        (1 << 31) - 1
    }

    fn start_read_stream(&mut self, records: &mut Records, index: u32) -> Start {
        self.start(records, index)
    }

    fn start_write_stream(&mut self, records: &mut Records, index: u32) -> Start {
        self.start(records, index)
    }

    fn start_read_file(&mut self, records: &mut Records, index: u32) -> Start {
        self.start(records, index)
    }

    fn start_write_file(&mut self, records: &mut Records, index: u32) -> Start {
        self.start(records, index)
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

    fn submit(&mut self) {
        if !self.ring.belongs_to_leader() {
            self.ring.submit();
        }
    }

    fn cancel_aio(&mut self, records: &mut Records, index: u32) -> Cancel {
        if let Some(queue) = self.queue(&records[index].request)
            && queue.first() != Some(index)
        {
            queue.remove(records, index);
            return Cancel::Finished(Outcome::cancelled());
        }
        let mark = if self.is_polled(index) { POLLED } else { 0 };
        let target = records.key(index).to_u64() | mark;
        let entry = opcode::AsyncCancel::new(target).build().user_data(NOBODY);
        match self.push(&entry) {
            Start::Started => Cancel::Requested,
            _ => Cancel::Later,
        }
    }

    fn settle(&mut self, operations: &mut InProgress<'_>, event: Event) {
        let Event::Complete { number, result } = event else { return };
        if number == NOBODY {
            return;
        }
        let key = Key::from_u64(number & !POLLED);
        if operations.records.get(key).is_some()
            && let Some(outcome) = self.outcome(operations.records, key, result)
        {
            self.leave_queue(operations, key.index);
            operations.finish(key.index, outcome);
        }
    }

    fn wait_strategy(&self) -> Arc<dyn WaitStrategy> {
        Arc::clone(&self.wait)
    }
}
