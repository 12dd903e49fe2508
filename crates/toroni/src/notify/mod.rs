//! How publishers wake sleeping subscribers: by a futex, datagram sockets, or UDP multicast.
//!
//! ```text
//!  subscriber                                  publisher
//!  bits in the rows: what it does not want     COMMIT, unlock, fence   (SLEEP)
//!  arm: token, counts + 1, fence  (SLEEP)      count as noted, none remembered: two loads and compares
//!  recheck: nothing there?                     those remembered want nothing of it: a few more loads
//!  wait: futex or poll                         otherwise a round: wake those that sleep and want it
//! ```
//!
//! Counters that only grow say whether a subscriber may be asleep ([`EventCount`]). A publisher compares them with
//! their values when it woke last, and remembers who sleeps on because it wanted nothing ([`Sleeping`]). So a subscriber
//! that dies asleep costs each publisher one wake-up, and leaves nothing to clean up. `eventcount.rs` has the argument why no
//! wake-up is lost, and the models that check it; `rows.rs` says how a publisher knows who wants what.
//!
//! This module does not know what a message is, where the words lie, or which participants are alive; callers pass
//! that in. A publisher may die between its commit and its wake-up. So blocking calls do not rely on a wake-up alone:
//! they recheck every 50 ms, and every 250 ms after a second of silence. A program that polls a descriptor itself
//! learns of such a message with the next one.

mod adaptive_fence;
#[cfg(test)]
mod conformance;
#[cfg(not(loom))]
mod datagram;
mod eventcount;
#[cfg(not(loom))]
pub(crate) mod futex;
#[cfg(not(loom))]
mod multicast;
mod rows;
#[cfg(not(loom))]
mod wakers;
#[cfg(all(feature = "proactor", not(loom)))]
mod word;

#[cfg(not(loom))]
pub(crate) use adaptive_fence::{AdaptiveFence, Sleepers, remove_mark};
#[cfg(not(loom))]
pub(crate) use datagram::{ArmedSlot, DatagramWaiter, DatagramWaker};
pub(crate) use eventcount::{Delivery, EventCount, Sleeping};
#[cfg(not(loom))]
pub(crate) use futex::FutexWaiter;
#[cfg(not(loom))]
pub(crate) use multicast::{MulticastWaiter, MulticastWaker};
pub(crate) use rows::{Audience, Rows};
#[cfg(not(loom))]
pub(crate) use wakers::Wakers;
#[cfg(all(feature = "proactor", not(loom)))]
pub(crate) use word::HeldWord;

use crate::hook::mutant;
use crate::sync::{AtomicU32, AtomicU64};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The words of the slot of a subscriber that arms, and those of the bus.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArmingSlot<'a> {
    /// The futex word of the slot. Subscribers can only read it.
    pub(crate) word: &'a AtomicU32,
    /// The mark of an exclusive publisher that leaves out its fence, or 0; see `adaptive_fence.rs`. Subscribers can
    /// only read it.
    pub(crate) asymmetric: &'a AtomicU32,
    /// How often subscribers armed, all together. Publishers can only read it.
    pub(crate) sleeps: &'a AtomicU64,
    /// How often the slot armed its futex, and its descriptor. Publishers can only read it.
    pub(crate) arming: &'a [AtomicU32; 2],
    pub(crate) flags: &'a AtomicU32,
    /// The bit of `flags` that says that the subscriber cannot execute a membarrier.
    pub(crate) needs_fence: u32,
}

/// The subscriber's side: goes to sleep without missing a wake-up.
///
/// Callers must keep this order, as [`sleep_unless`] does: [`arm`](Self::arm), recheck the ring, and only if there
/// is nothing, [`wait`](Self::wait). If the recheck finds something, there is nothing to undo: an unused arming
/// costs each publisher at most one wake-up.
pub(crate) trait Waiter: Send {
    /// Announces the sleep. The wake-up for any commit that the following recheck misses will end the wait. Ends
    /// with a full fence, also on behalf of a publisher that leaves its own out. `slot` is the subscriber's own.
    fn arm(&mut self, slot: ArmingSlot<'_>);

    /// Sleeps until a wake-up, the timeout, or a signal. The result does not say which, so the caller must recheck.
    fn wait(&self, slot: ArmingSlot<'_>, timeout: Option<Duration>) -> io::Result<()>;

    /// Returns the descriptor that an event loop can poll for reading, if there is one.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}

/// Announces a sleep, calls `recheck`, and sleeps unless that found something. `recheck` returns `None` if it did,
/// otherwise how long to sleep at most. Returns false if it did not sleep. After a sleep the caller must recheck.
pub(crate) fn sleep_unless(
    waiter: &mut dyn Waiter,
    slot: ArmingSlot<'_>,
    recheck: impl FnOnce() -> Option<Duration>,
) -> io::Result<bool> {
    if mutant("sleep_without_a_recheck") {
        let timeout = recheck();
        waiter.arm(slot);
        return timeout.map_or(Ok(()), |_| waiter.wait(slot, timeout)).map(|()| timeout.is_some());
    }
    waiter.arm(slot);
    let Some(timeout) = recheck() else { return Ok(false) };
    waiter.wait(slot, Some(timeout)).map(|()| true)
}

/// Waits until `descriptor` is readable, with the same results as [`Waiter::wait`].
#[cfg(not(loom))]
fn wait_readable(descriptor: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::io::Errno;

    let timeout = timeout.and_then(|timeout| timeout.try_into().ok());
    let mut watched = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    match poll(&mut watched, timeout.as_ref()) {
        // `poll` would return at once every time: without an error the caller would spin.
        Ok(_) if watched[0].revents().contains(PollFlags::NVAL) => Err(Errno::BADF.into()),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Empties a socket's queue. It stops after a thousand datagrams, more than a queue holds: a flood must not keep
/// the subscriber here, and a remaining datagram merely wakes it once more.
#[cfg(not(loom))]
fn drain(socket: BorrowedFd<'_>) {
    use rustix::net::{RecvFlags, recv};

    let mut byte = [0_u8; 1];
    for _ in 0..1000 {
        if recv(socket, &mut byte, RecvFlags::DONTWAIT).is_err() {
            return;
        }
    }
}
