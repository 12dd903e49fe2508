//! io_uring, in the place of *SUN_Provider*: the platform's native completions. The kernel does what has to
//! wait, and reports what is complete.
//!
//! - A transfer of a socket is attempted before it is submitted: by the thread that starts it, or, if a handler
//!   starts a read, in its turn, as SELECT does. So threads transfer in parallel: the kernel completes a
//!   submission in the thread that made it, and interrupts that thread. If an attempt found that the transfer
//!   has to wait, the kernel does not try again. A completion is the edge after which a descriptor is attempted
//!   again.
//! - The kernel cancels the submissions of a thread when that thread exits. The program did not ask for that,
//!   so the operation is submitted again.
//! - A non-blocking descriptor that is not a socket answers `EAGAIN`: then it is polled first.
//! - The kernel promises no order among the reads of one stream, nor among its writes, so only one of each is
//!   submitted at a time.
//! - A cancelled operation may succeed nevertheless: then that is its result.
//! - If the kernel takes nothing for a while and its submission queue is full, entries go to a queue of the
//!   provider: nothing is lost that the kernel takes later.

mod areas;
mod ring;

pub(crate) use ring::Ring;

use super::attempt;
use super::queues::Queues;
use super::{Attempt, Cancel, InProgress, Provider, Start};
use crate::hook::mutant;
use crate::operation::{
    DescriptorKind, Key, List, OperationKind, OperationMask, Outcome, Pool, Request,
};
use crate::wait::{self, Event, WaitStrategy};
use areas::Areas;
use io_uring::types::Fd;
use io_uring::{opcode, squeue};
use rustix::io::Errno;
use rustix::net::sockopt;
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// Marks the number of a completion: of a poll that precedes an operation. Operation indices are smaller.
const POLLED: u64 = 1 << 31;

/// Of a wait at a word: any wake at the word wakes it. The kernel's `FUTEX_BITSET_MATCH_ANY`.
const ANYBODY: u64 = 0xFFFF_FFFF;

/// Of a word: 32 bits, perhaps in memory that processes share. The kernel's `FUTEX2_SIZE_U32`.
const SHARED_WORD: u32 = 2;

/// The number of completions that are ignored.
const IGNORED: u64 = u64::MAX;

pub(crate) struct Uring {
    ring: Arc<Ring>,
    wait: Arc<dyn WaitStrategy>,
    areas: Areas,
    /// The queues of streams; the first operation of each is submitted, or READY.
    queues: Queues,
    /// Indexed by operation: whether it is being polled.
    polled: Vec<bool>,
    /// Entries that could not be submitted: the leader submits them before it waits.
    unsubmitted: VecDeque<(Key, squeue::Entry)>,
    /// Another entry found the queue full since the leader last waited; its operation is tried again.
    had_no_room: bool,
    any_thread: bool,
    interrupts: bool,
}

impl Uring {
    /// Creates the provider on this ring, with the two flags of the configuration.
    pub(crate) fn new(ring: Arc<Ring>, any_thread: bool, interrupts: bool) -> Self {
        Self {
            wait: Arc::new(wait::Uring::new(Arc::clone(&ring))),
            any_thread: any_thread && !ring.belongs_to_leader(),
            interrupts: any_thread && interrupts,
            ring,
            areas: Areas::default(),
            queues: Queues::default(),
            polled: Vec::new(),
            unsubmitted: VecDeque::new(),
            had_no_room: false,
        }
    }

    /// Returns the queue of a stream's operation.
    fn queue(&mut self, request: &Request) -> Option<&mut List> {
        let kind = request.kind;
        matches!(kind, OperationKind::ReadStream | OperationKind::WriteStream)
            .then(|| self.queues.of(request.on().as_raw_fd(), kind))
    }

    /// Returns whether to attempt a request before it is submitted: if its stream is not known to block. The
    /// others have no queue, and an attempt could overtake what is submitted.
    fn may_be_ready(request: &Request) -> bool {
        is_stream_of_a_socket(request)
            && request.on().edges().last(request.kind.is_reading()).is_some()
    }

    /// Removes an operation that is over from its queue, and submits the next one.
    fn leave_queue(&mut self, pool: &mut Pool, index: u32) {
        let Some(queue) = self.queue(&pool[index].request) else { return };
        queue.remove(pool, index);
        if let Some(next) = queue.first() {
            self.submit_soon(pool, next, false);
        }
    }

    /// Submits an operation, or a poll for it; if the queue is full, before the leader waits.
    fn submit_soon(&mut self, pool: &Pool, index: u32, polls: bool) {
        let entry = self.entry_of(pool, index, polls);
        if !self.push(&entry) {
            self.unsubmitted.push_back((pool.key(index), entry));
        }
    }

    /// Takes back an operation that could not be submitted. Returns whether it was one.
    fn take_unsubmitted(&mut self, key: Key) -> bool {
        let position = self.unsubmitted.iter().position(|(of, _)| *of == key);
        position.and_then(|position| self.unsubmitted.remove(position)).is_some()
    }

    /// Adds an entry to the submission queue. Returns whether there was space.
    fn push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: an entry names the buffer, which the operation owns until it is complete, and the area of
        // its operation, which lives as long as the provider. An unsubmitted operation is not over.
        let has_room = unsafe { self.ring.push(entry) };
        self.had_no_room |= !has_room;
        has_room
    }

    /// Returns the entry of an operation: the operation itself, or a poll for it.
    fn entry_of(&mut self, pool: &Pool, index: u32, polls: bool) -> squeue::Entry {
        let request = &pool[index].request;
        self.set_polled(index, polls);
        let number = pool.key(index).to_u64();
        if !polls {
            return self.entry(index, request).user_data(number);
        }
        let events = if request.kind.is_reading() { libc::POLLIN } else { libc::POLLOUT };
        let fd = Fd(request.raw().unwrap_or(-1));
        let entry = opcode::PollAdd::new(fd, u32::from(events.cast_unsigned())).build();
        entry.user_data(number | POLLED)
    }

    fn entry(&mut self, index: u32, request: &Request) -> squeue::Entry {
        let fd = Fd(request.raw().unwrap_or(-1));
        let memory = attempt::share(request);
        let pointer = memory.pointer();
        let length = u32::try_from(memory.length()).unwrap_or(u32::MAX);
        /// The descriptor's own position.
        const CURRENT_POSITION: u64 = u64::MAX;
        let is_socket =
            request.descriptor.as_ref().is_some_and(|it| it.kind() == DescriptorKind::Socket);
        let is_known_to_block =
            is_socket && request.on().edges().last(request.kind.is_reading()).is_none();
        let polls_first = if is_known_to_block { self.ring.poll_first() } else { 0 };
        match request.kind {
            OperationKind::ReadStream if is_socket => {
                opcode::Recv::new(fd, pointer, length).ioprio(polls_first).build()
            }
            OperationKind::ReadStream => {
                opcode::Read::new(fd, pointer, length).offset(CURRENT_POSITION).build()
            }
            OperationKind::WriteStream if is_socket => {
                let send = opcode::Send::new(fd, pointer, length).ioprio(polls_first);
                send.flags(libc::MSG_NOSIGNAL).build()
            }
            OperationKind::WriteStream => {
                opcode::Write::new(fd, pointer, length).offset(CURRENT_POSITION).build()
            }
            OperationKind::ReadFile => {
                opcode::Read::new(fd, pointer, length).offset(request.offset).build()
            }
            OperationKind::WriteFile => {
                opcode::Write::new(fd, pointer, length).offset(request.offset).build()
            }
            OperationKind::ReadDatagram => {
                let header = self.areas.header(index, request);
                opcode::RecvMsg::new(fd, header).ioprio(polls_first).build()
            }
            OperationKind::WriteDatagram => {
                let header = self.areas.header(index, request);
                let send = opcode::SendMsg::new(fd, header).ioprio(polls_first);
                send.flags(libc::MSG_NOSIGNAL.cast_unsigned()).build()
            }
            OperationKind::Accept => {
                let (address, _, length) = self.areas.address(index, request);
                let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
                opcode::Accept::new(fd, address, length).flags(flags).build()
            }
            OperationKind::Connect => {
                let (address, length, _) = self.areas.address(index, request);
                opcode::Connect::new(fd, address, length).build()
            }
            OperationKind::WaitReadable => {
                opcode::PollAdd::new(fd, u32::from(libc::POLLIN.cast_unsigned())).build()
            }
            OperationKind::WaitWord => {
                let word = pointer.cast_const().cast::<u32>();
                opcode::FutexWait::new(word, request.value.into(), ANYBODY, SHARED_WORD).build()
            }
            OperationKind::Timer | OperationKind::Post => {
                unreachable!("providers do not support these")
            }
        }
    }

    /// Returns the outcome that a completion means, or `None` if the operation continues.
    fn outcome(&mut self, pool: &mut Pool, key: Key, result: i32) -> Option<Outcome> {
        let index = key.index;
        let was_polled = self.is_polled(index);
        let is_cancelled = pool[index].is_cancelled;
        let request = &pool[index].request;
        let kind = request.kind;
        if result >= 0 && was_polled {
            if kind == OperationKind::Connect {
                let error = sockopt::socket_error(request.fd()).and_then(|error| error);
                return Some(Outcome::of(error.map(|()| 0)));
            }
            if is_cancelled && !mutant("cancelled_goes_on") {
                return Some(Outcome::cancelled());
            }
            return self.again(pool, key, false);
        }
        if result >= 0 {
            return match pool[index].request.advance(usize::try_from(result).unwrap_or(0)) {
                Some(moved) => Some(self.success(index, kind, result, moved)),
                None if is_cancelled => Some(Outcome::cancelled()),
                None => self.again(pool, key, false),
            };
        }
        let is_internal = pool[index].is_internal();
        let errno = Errno::from_raw_os_error(result.saturating_neg());
        match errno {
            // The word had another value when the wait began: what it would have waited for has happened.
            Errno::AGAIN if kind == OperationKind::WaitWord => Some(Outcome::of(Ok(0))),
            // Its thread has exited. The leader starts the reads of interrupts again.
            Errno::CANCELED if !is_cancelled && !is_internal => {
                self.again(pool, key, was_polled || kind == OperationKind::Connect)
            }
            Errno::INTR if !is_cancelled => self.again(pool, key, was_polled),
            Errno::AGAIN if !is_cancelled && kind != OperationKind::Connect => {
                self.again(pool, key, true)
            }
            Errno::INPROGRESS | Errno::ALREADY if !is_cancelled => self.again(pool, key, true),
            // Nothing was moved, and the operation is cancelled. EAGAIN of a local socket means that its peer's
            // backlog is full.
            Errno::INTR | Errno::INPROGRESS | Errno::ALREADY => Some(Outcome::cancelled()),
            Errno::AGAIN if kind != OperationKind::Connect => Some(Outcome::cancelled()),
            Errno::CONNABORTED if kind == OperationKind::Accept && !is_cancelled => {
                self.again(pool, key, false)
            }
            _ => Some(Outcome::of(Err(errno))),
        }
    }

    /// Submits an operation again, or a poll for it.
    fn again(&mut self, pool: &mut Pool, key: Key, polls: bool) -> Option<Outcome> {
        self.submit_soon(pool, key.index, polls);
        None
    }

    fn success(
        &mut self,
        index: u32,
        kind: OperationKind,
        result: i32,
        moved: Result<usize, Errno>,
    ) -> Outcome {
        match kind {
            OperationKind::ReadDatagram => {
                let (address, is_truncated) = self.areas.received(index);
                Outcome { address, is_truncated, ..Outcome::of(moved) }
            }
            OperationKind::Accept => {
                // SAFETY: the kernel has just created this descriptor, and nothing else uses it.
                let accepted = unsafe { OwnedFd::from_raw_fd(result) };
                let address = self.areas.accepted(index);
                Outcome { accepted: Some(accepted), address, ..Outcome::of(Ok(0)) }
            }
            // The result is the events of a poll, or 0.
            OperationKind::WaitReadable | OperationKind::WaitWord => Outcome::of(Ok(0)),
            _ => Outcome::of(moved),
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

fn is_stream_of_a_socket(request: &Request) -> bool {
    matches!(request.kind, OperationKind::ReadStream | OperationKind::WriteStream)
        && request.on().kind() == DescriptorKind::Socket
}

impl Provider for Uring {
    fn supported_operations(&self) -> OperationMask {
        if self.ring.waits_for_words() {
            OperationMask::ALL
        } else {
            OperationMask::ALL.without(OperationKind::WaitWord)
        }
    }

    fn can_start_in_any_thread(&self) -> bool {
        self.any_thread
    }

    fn should_start_interrupt_leader(&self) -> bool {
        self.any_thread && self.interrupts
    }

    fn max_operations(&self) -> usize {
        // A number has 31 bits besides `POLLED`.
        (1 << 31) - 1
    }

    fn eager(&self) -> Option<Attempt> {
        Some(attempt::of_socket)
    }

    fn speculates(&self) -> fn(&Request) -> bool {
        |request| request.kind.is_reading() && is_stream_of_a_socket(request)
    }

    fn is_tried_first(&self, request: &Request) -> bool {
        request.is_idle() && Self::may_be_ready(request)
    }

    fn start(&mut self, pool: &mut Pool, index: u32) -> Start {
        let may_be_ready = Self::may_be_ready(&pool[index].request);
        let queue = self.queue(&pool[index].request);
        if let Some(queue) = queue
            && (may_be_ready || !queue.is_empty())
        {
            let is_first = queue.is_empty();
            queue.push(pool, index);
            return if is_first { Start::Ready } else { Start::Started };
        }
        let entry = self.entry_of(pool, index, false);
        if !self.push(&entry) {
            return Start::Deferred;
        }
        if let Some(queue) = self.queue(&pool[index].request) {
            queue.push(pool, index);
        }
        Start::Started
    }

    fn submit(&mut self) -> bool {
        self.ring.belongs_to_leader() || mutant("start_not_submitted") || self.ring.submit()
    }

    fn is_prepared(&mut self) -> bool {
        let had_no_room = std::mem::take(&mut self.had_no_room);
        while let Some((_, entry)) = self.unsubmitted.front().cloned() {
            if !self.push(&entry) {
                return false;
            }
            self.unsubmitted.pop_front();
        }
        !had_no_room
    }

    fn cancel_aio(&mut self, pool: &mut Pool, index: u32) -> Cancel {
        if let Some(queue) = self.queue(&pool[index].request)
            && queue.first() != Some(index)
        {
            queue.remove(pool, index);
            return Cancel::Finished(Outcome::cancelled());
        }
        if self.take_unsubmitted(pool.key(index)) {
            self.leave_queue(pool, index);
            return Cancel::Finished(Outcome::cancelled());
        }
        let mark = if self.is_polled(index) { POLLED } else { 0 };
        let target = pool.key(index).to_u64() | mark;
        let entry = opcode::AsyncCancel::new(target).build().user_data(IGNORED);
        if self.push(&entry) { Cancel::Requested } else { Cancel::Later }
    }

    fn settle(&mut self, operations: &mut InProgress<'_>, event: Event) {
        let Event::Complete { number, result } = event else { return };
        if number == IGNORED {
            return;
        }
        let key = Key::from_u64(number & !POLLED);
        let Some(operation) = operations.pool.get(key) else { return };
        if let Some(descriptor) = &operation.request.descriptor {
            descriptor.edges().report(operation.request.kind.is_reading());
        }
        if let Some(outcome) = self.outcome(operations.pool, key, result) {
            self.leave_queue(operations.pool, key.index);
            operations.finish(key.index, outcome);
        }
    }

    fn attempt(&self) -> Attempt {
        attempt::attempt
    }

    fn leave(&mut self, pool: &mut Pool, index: u32) -> Option<u32> {
        let queue = self.queue(&pool[index].request)?;
        queue.remove(pool, index);
        queue.first()
    }

    fn wait_on(&mut self, pool: &mut Pool, index: u32) {
        self.submit_soon(pool, index, false);
    }

    fn should_retry_interrupt_leader(&self) -> bool {
        !self.any_thread
    }

    fn wait_strategy(&self) -> Arc<dyn WaitStrategy> {
        Arc::clone(&self.wait)
    }
}

#[cfg(test)]
mod tests;
