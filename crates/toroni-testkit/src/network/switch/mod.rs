//! A switch of Ethernet whose faults a seed decides.
//!
//! ```text
//!  host 0 ── eth0 ═ p0.0 ─► In ─┐                       ┌─► Out ─► p0.1 ═ eth0 ── host 1
//!                    faults     ├─► forward ────────────┤   faults
//!  host 1 ── eth0 ═ p0.1 ─► In ─┘   learn, flood, snoop └─► Out ─► p0.0 ═ eth0 ── host 0
//! ```
//!
//! A thread with packet sockets reads whole frames from the middle's ends of the cables, and sends them by others. It
//! learns at which port a host is, sends frames to groups and unknown hosts everywhere, and snoops on IGMP if asked
//! ([`Snooping`]). Each port has [`Faults`] for each direction. What a host sends passes those of its port's
//! [`Direction::In`], so that a loss there is one for all receivers; losses in [`Direction::Out`] are one receiver's own.
//!
//! Which frames are hit is repeatable: it follows from the seed and from how many frames came before, never from the
//! time. Restrict the faults to the datagrams of the test ([`Reach`]), or frames of ARP and IGMP count too.

mod engine;
mod faults;
mod frame;
mod path;
mod port;
mod snooping;
#[cfg(test)]
mod tests;

pub use faults::{Corruption, Faults, Loss, Rate, Reach, Reordering};
pub use snooping::Snooping;

use super::Namespace;
use engine::Engine;
use port::{Batch, Port};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// A direction, as the switch sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the host at the port into the switch.
    In,
    /// From the switch to the host at the port.
    Out,
}

/// What happened to the frames of one port in one direction. Only frames that the faults reach are counted, and
/// `frames + duplicated = lost + overflowed + passed + those that are held back`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that came.
    pub frames: u64,
    /// Frames that [`Loss`] or [`Switch::lose_next`] took.
    pub lost: u64,
    /// Frames in which a bit was turned.
    pub corrupted: u64,
    /// Frames that were doubled.
    pub duplicated: u64,
    /// Frames that were held back.
    pub reordered: u64,
    /// Frames that found the queue of [`Rate`] full, or more than 65,536 frames on their way.
    pub overflowed: u64,
    /// Frames that passed, or are on their way.
    pub passed: u64,
}

/// What happened at one port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounts {
    /// Of [`Direction::In`].
    pub received: Counts,
    /// Of [`Direction::Out`].
    pub sent: Counts,
    /// Frames to this port that a partition stopped.
    pub blocked: u64,
    /// Frames to groups that snooping kept from this port.
    pub pruned: u64,
}

/// A running switch. Dropping it ends it.
#[derive(Debug)]
pub struct Switch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    ports: Vec<Port>,
    engine: Mutex<Engine>,
    /// Frames that the kernel did not take, or dropped because a port's buffer was full.
    kernel_drops: AtomicU64,
    /// How many callers want `engine`: the thread, which is fast, lets them go first.
    callers: AtomicUsize,
    is_ending: AtomicBool,
    /// Ends the thread's wait.
    wake: OwnedFd,
}

impl Switch {
    /// Starts a switch on these interfaces of a namespace. They are its ports 0, 1 and so on.
    pub(super) fn start(
        namespace: &Namespace,
        interfaces: &[String],
        mtu: u16,
        seed: u64,
    ) -> io::Result<Self> {
        let open = |name: &String| Port::open(name, interfaces.len());
        let open = || interfaces.iter().map(open).collect::<io::Result<_>>();
        let ports: Vec<Port> = namespace.enter(open)?;
        let engine = Engine::new(ports.len(), seed);
        let shared = Arc::new(Shared {
            ports,
            engine: Mutex::new(engine),
            kernel_drops: AtomicU64::new(0),
            callers: AtomicUsize::new(0),
            is_ending: AtomicBool::new(false),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        });
        let theirs = Arc::clone(&shared);
        let slot = usize::from(mtu) + frame::HEADER;
        let run = move || theirs.run(slot);
        let thread = std::thread::Builder::new().name("switch".to_owned()).spawn(run)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Sets the faults of one port in one direction, for the frames to come. A burst that goes on there ends.
    ///
    /// # Panics
    /// If there is no such port, or a probability is not from 0 to 1.
    pub fn set_faults(&self, port: usize, direction: Direction, faults: &Faults) {
        self.engine().set_faults(port, direction, faults);
    }

    /// Sets the faults of all ports in one direction.
    ///
    /// # Panics
    /// If a probability is not from 0 to 1.
    pub fn set_all_faults(&self, direction: Direction, faults: &Faults) {
        let mut engine = self.engine();
        for port in 0..engine.ports() {
            engine.set_faults(port, direction, faults);
        }
    }

    /// Loses the next frames of a port in one direction that its faults reach.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn lose_next(&self, port: usize, direction: Direction, frames: u64) {
        self.engine().lose_next(port, direction, frames);
    }

    /// Stops all frames from ports of `from` to ports of `to`. The way back stays open.
    pub fn block(&self, from: &[usize], to: &[usize]) {
        let mut engine = self.engine();
        for &from in from {
            to.iter().for_each(|&to| engine.block(from, to));
        }
    }

    /// Stops all frames between ports of `one` and ports of `other`.
    pub fn partition(&self, one: &[usize], other: &[usize]) {
        self.block(one, other);
        self.block(other, one);
    }

    /// Stops all frames to and from a port.
    pub fn cut(&self, port: usize) {
        let others: Vec<_> = (0..self.engine().ports()).filter(|it| *it != port).collect();
        self.partition(&[port], &others);
    }

    /// Lets all frames to and from a port pass again.
    pub fn rejoin(&self, port: usize) {
        self.engine().unblock(|from, to| from == port || to == port);
    }

    /// Ends all partitions.
    pub fn heal(&self) {
        self.engine().unblock(|_, _| true);
    }

    /// Begins to snoop on IGMP, or ends it. The switch then knows only what hosts report from now on.
    pub fn set_snooping(&self, snooping: Option<Snooping>) {
        self.engine().set_snooping(Instant::now(), snooping);
    }

    /// Returns what happened at a port so far.
    ///
    /// # Panics
    /// If there is no such port.
    #[must_use]
    pub fn counts(&self, port: usize) -> PortCounts {
        self.engine().counts(port)
    }

    /// Returns how many frames the kernel did not take from the switch, or dropped before the switch read them.
    pub(super) fn kernel_drops(&self) -> u64 {
        let unread: u64 = self.shared.ports.iter().map(Port::drops).sum();
        self.shared.kernel_drops.fetch_add(unread, Ordering::Relaxed) + unread
    }

    fn engine(&self) -> Caller<'_> {
        self.shared.callers.fetch_add(1, Ordering::Relaxed);
        let engine = self.shared.lock();
        self.shared.callers.fetch_sub(1, Ordering::Relaxed);
        Caller { engine, shared: &self.shared }
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Ordering::Relaxed);
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            let result = thread.join();
            // A second panic would hide the first.
            assert!(result.is_ok() || std::thread::panicking(), "the switch panicked");
        }
    }
}

/// The engine, as a caller has it. When it is given back, the thread computes again how long it may wait.
struct Caller<'a> {
    engine: MutexGuard<'a, Engine>,
    shared: &'a Shared,
}

impl std::ops::Deref for Caller<'_> {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl std::ops::DerefMut for Caller<'_> {
    fn deref_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.shared.wake();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // It fails only if the thread has been woken 2^64 - 2 times and has not run since.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Moves frames until the switch ends.
    fn run(&self, slot: usize) {
        let mut batch = Batch::new(slot);
        let mut polled: Vec<_> =
            self.ports.iter().map(|port| PollFd::new(port, PollFlags::IN)).collect();
        polled.push(PollFd::new(&self.wake, PollFlags::IN));
        let mut due: Option<Instant> = None;
        while !self.is_ending.load(Ordering::Relaxed) {
            let left = due.map(|due| due.saturating_duration_since(Instant::now()));
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            // An interruption is a turn without frames.
            let _ = poll(&mut polled, timeout.as_ref());
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
            while self.callers.load(Ordering::Relaxed) > 0 {
                std::thread::yield_now();
            }
            let mut engine = self.lock();
            for (index, port) in self.ports.iter().enumerate() {
                if !polled[index].revents().is_empty() {
                    let count = port.receive(&mut batch);
                    let now = Instant::now();
                    batch.frames(count).for_each(|frame| engine.receive(now, index, frame));
                }
            }
            engine.advance(Instant::now());
            for (index, port) in self.ports.iter().enumerate() {
                let refused = port.send(engine.out(index));
                engine.out(index).clear();
                self.kernel_drops.fetch_add(refused, Ordering::Relaxed);
            }
            due = engine.next_due();
        }
    }
}
