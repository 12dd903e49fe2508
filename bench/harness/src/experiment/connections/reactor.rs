//! The baseline: a thread-pool reactor as the proactor paper (section 13) measures it, in its improved form. There is one
//! token. Its holder selects, suspends the handle of one event, gives the token up, calls the handler, and resumes the
//! handle. Handlers try to write before they wait until they can, and one lock guards a handler and what it has to write.

use super::deal::Deal;
use super::end::{End, Part, Wanted, block};
use super::ledger::Ledger;
use super::sockets::ConnectionEnd;
use super::{Plan, lock};
use crate::Failure;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Runs until the time is over. Fails if a socket fails, or other bytes arrive than were sent.
pub(super) fn run(
    plan: &Plan,
    connections: Vec<ConnectionEnd>,
    ledger: &Ledger,
) -> Result<(), Failure> {
    let reactor = Reactor::new(plan, connections)?;
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..plan.threads).map(|_| scope.spawn(|| reactor.work(ledger))).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().map_err(|_| Failure::new("a thread of the reactor panicked"))?
        })
    })
}

/// Runs a reactor for each thread, with the ends dealt to it.
pub(super) fn run_for_each_thread(
    plan: &Plan,
    connections: Vec<ConnectionEnd>,
    deal: Deal,
    ledger: &Ledger,
) -> Result<(), Failure> {
    // They outlive all threads: the other end of a connection may be in a thread that still works.
    let reactors = deal.deal(connections, plan.threads).into_iter();
    let reactors = reactors.map(|own| Reactor::new(plan, own)).collect::<Result<Vec<_>, _>>()?;
    thread::scope(|scope| {
        let threads: Vec<_> =
            reactors.iter().map(|reactor| scope.spawn(|| reactor.work(ledger))).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().map_err(|_| Failure::new("a thread of a reactor panicked"))?
        })
    })
}

struct Reactor {
    streams: Vec<TcpStream>,
    handlers: Vec<Mutex<Handler>>,
    token: Mutex<Selector>,
    /// Handles to select again, and the events to select.
    resumed: Mutex<Vec<(usize, PollFlags)>>,
    /// Whether the owner of the token sleeps or is about to, and must be woken for resumed handles.
    selecting: AtomicBool,
    wake: OwnedFd,
}

/// What the token guards.
struct Selector {
    /// The events of each handle; empty while it is suspended.
    interests: Vec<PollFlags>,
    /// Events of the last select that no thread has taken yet.
    ready: VecDeque<(usize, PollFlags)>,
}

impl Reactor {
    fn new(plan: &Plan, connections: Vec<ConnectionEnd>) -> Result<Self, Failure> {
        let mut streams = Vec::new();
        let mut handlers = Vec::new();
        let mut resumed = Vec::new();
        for (index, ConnectionEnd { stream, end }) in connections.into_iter().enumerate() {
            stream.set_nonblocking(true).map_err(Failure::of("set O_NONBLOCK"))?;
            let handler = Handler::new(end, plan);
            resumed.push((index, handler.interest()));
            handlers.push(Mutex::new(handler));
            streams.push(stream);
        }
        let interests = vec![PollFlags::empty(); streams.len()];
        Ok(Self {
            streams,
            handlers,
            token: Mutex::new(Selector { interests, ready: VecDeque::new() }),
            resumed: Mutex::new(resumed),
            selecting: AtomicBool::new(false),
            wake: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
                .map_err(Failure::of("make an eventfd"))?,
        })
    }

    /// Runs a thread of the pool.
    fn work(&self, ledger: &Ledger) -> Result<(), Failure> {
        while let Some(left) = ledger.left() {
            let Some((index, events)) = self.next_event(left)? else { continue };
            let mut handler = lock(&self.handlers[index]);
            if !handler.handle(&self.streams[index], events, ledger)? {
                break;
            }
            let interest = handler.interest();
            drop(handler);
            self.resume(index, interest)?;
        }
        Ok(())
    }

    /// Takes the token, selects if nothing is ready, and suspends the handle of one event.
    fn next_event(&self, time: Duration) -> Result<Option<(usize, PollFlags)>, Failure> {
        let mut selector = lock(&self.token);
        if selector.ready.is_empty() {
            self.select(&mut selector, time)?;
        }
        let event = selector.ready.pop_front();
        if let Some((index, _)) = event {
            selector.interests[index] = PollFlags::empty();
        }
        Ok(event)
    }

    fn select(&self, selector: &mut Selector, time: Duration) -> Result<(), Failure> {
        // First the mark, then the list: a thread that resumes a handle later sees the mark.
        self.selecting.store(true, Ordering::SeqCst);
        for (index, interest) in lock(&self.resumed).drain(..) {
            selector.interests[index] = interest;
        }
        let mut polled = vec![PollFd::new(&self.wake, PollFlags::IN)];
        let mut indices = Vec::new();
        for (index, interest) in selector.interests.iter().enumerate() {
            if !interest.is_empty() {
                polled.push(PollFd::new(&self.streams[index], *interest));
                indices.push(index);
            }
        }
        // The time of all threads ends at once, so no thread needs to wake this one at the end.
        let time = Timespec::try_from(time).map_err(Failure::of("wait"))?;
        let outcome = poll(&mut polled, Some(&time));
        self.selecting.store(false, Ordering::SeqCst);
        match outcome {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(Failure::of("select")(error)),
        }
        if !polled[0].revents().is_empty() {
            // Its count does not matter.
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        }
        let events = polled[1..].iter().zip(indices).map(|(fd, index)| (index, fd.revents()));
        selector.ready.extend(events.filter(|(_, events)| !events.is_empty()));
        Ok(())
    }

    fn resume(&self, index: usize, interest: PollFlags) -> Result<(), Failure> {
        lock(&self.resumed).push((index, interest));
        if self.selecting.load(Ordering::SeqCst) {
            rustix::io::write(&self.wake, &1_u64.to_ne_bytes()).map_err(Failure::of("wake"))?;
        }
        Ok(())
    }
}

/// An end, with the buffers that it reads into and writes.
struct Handler {
    end: End,
    /// What a client writes.
    block: Vec<u8>,
    /// What was read; a server writes it.
    read: Vec<u8>,
    wants_to_read: bool,
    wants_to_write: Option<Range<usize>>,
}

impl Handler {
    fn new(mut end: End, plan: &Plan) -> Self {
        let Wanted { read, write } = end.begin();
        Self {
            end,
            block: block(plan.block_bytes),
            read: vec![0; plan.block_bytes],
            wants_to_read: read,
            wants_to_write: write,
        }
    }

    fn interest(&self) -> PollFlags {
        let mut interest = PollFlags::empty();
        interest.set(PollFlags::IN, self.wants_to_read);
        interest.set(PollFlags::OUT, self.wants_to_write.is_some());
        interest
    }

    /// Reads once if there is something to read, then writes until the socket is full. Returns false when the time is over.
    fn handle(
        &mut self,
        mut stream: &TcpStream,
        events: PollFlags,
        ledger: &Ledger,
    ) -> Result<bool, Failure> {
        if self.wants_to_read && !events.intersection(!PollFlags::OUT).is_empty() {
            match stream.read(&mut self.read) {
                Ok(bytes) => {
                    self.wants_to_read = false;
                    let wanted = self.end.read(&self.read[..bytes])?;
                    self.note(wanted);
                    if !ledger.read(bytes) {
                        return Ok(false);
                    }
                }
                Err(error) if is_not_yet(&error) => {}
                Err(error) => return Err(Failure::of("read")(error)),
            }
        }
        while let Some(range) = self.wants_to_write.take() {
            let source = if self.end.part() == Part::Client { &self.block } else { &self.read };
            match stream.write(&source[range.clone()]) {
                Ok(bytes) => {
                    let wanted = self.end.written(bytes);
                    self.note(wanted);
                    if !ledger.written(bytes) {
                        return Ok(false);
                    }
                }
                Err(error) if is_not_yet(&error) => {
                    self.wants_to_write = Some(range);
                    break;
                }
                Err(error) => return Err(Failure::of("write")(error)),
            }
        }
        Ok(true)
    }

    fn note(&mut self, wanted: Wanted) {
        self.wants_to_read |= wanted.read;
        self.wants_to_write = wanted.write.or(self.wants_to_write.take());
    }
}

fn is_not_yet(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::super::sockets::connect;
    use super::*;

    #[test]
    fn bytes_move_with_and_without_a_window_and_a_delay() {
        for (pairs, threads, window_bytes, delay_us) in
            [(1, 1, 0, 0), (1, 4, 16_384, 10), (20, 4, 4096, 0), (20, 3, 0, 10)]
        {
            let plan = Plan { delay_us, ..Plan::short(pairs, threads, 4096, window_bytes) };
            let mut connections = connect(&plan).unwrap();
            let ledger = Ledger::until_each_received(4 * 4096, &plan, &mut connections);
            run(&plan, connections, &ledger).unwrap();
            // Every connection moves: no handle was forgotten when it was resumed.
            ledger.assert_reached(&format!("{plan:?}"));
            assert!(ledger.bytes() > u64::from(pairs) * 4 * 4096, "{plan:?}: {ledger:?}");
        }
    }

    #[test]
    fn bytes_move_with_a_reactor_for_each_thread() {
        for (pairs, threads, window_bytes) in [(1, 1, 0), (1, 4, 16_384), (20, 3, 4096)] {
            for deal in Deal::BOTH {
                let plan = Plan::short(pairs, threads, 4096, window_bytes);
                let mut connections = connect(&plan).unwrap();
                let ledger = Ledger::until_each_received(4 * 4096, &plan, &mut connections);
                run_for_each_thread(&plan, connections, deal, &ledger).unwrap();
                ledger.assert_reached(&format!("{deal:?}, {plan:?}"));
            }
        }
    }
}
