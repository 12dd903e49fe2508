//! How publishers wake subscribers that sleep: a futex, datagram sockets, or UDP multicast.
//!
//! ```text
//!  subscriber                                   publisher
//!  arm: token, count + 1, fence   (SLEEP)       COMMIT, unlock, fence   (SLEEP)
//!  check again: nothing?                         Wakers::notify: counts as last answered?
//!  wait: futex or poll                          yes: two loads and compares, no system call
//!                                               no:  wake all who may sleep, note the counts
//! ```
//!
//! Whether anybody sleeps is told by counters that only grow ([`EventCount`]). A publisher compares them
//! with what it answered last, so a subscriber that dies asleep costs each publisher one wake and
//! leaves nothing to clean up. `eventcount.rs` has the argument why no wake-up is lost, and the model that
//! checks it.
//!
//! This module does not know what a message is, where the words lie, or who is alive: they are
//! handed in with each call. No wait here is the last resort: callers check again after 50 ms at the
//! latest, because a publisher may die between its commit and its wake.

#[cfg(test)]
mod conformance;
#[cfg(not(loom))]
mod datagram;
mod eventcount;
#[cfg(not(loom))]
pub(crate) mod futex;
#[cfg(not(loom))]
mod multicast;
#[cfg(not(loom))]
mod wakers;
#[cfg(all(feature = "proactor", not(loom)))]
mod word;

#[cfg(not(loom))]
pub(crate) use datagram::{ArmedSlot, Mailbox, Post};
pub(crate) use eventcount::{EventCount, LastNotified};
#[cfg(not(loom))]
pub(crate) use futex::FutexWaiter;
#[cfg(not(loom))]
pub(crate) use multicast::{MulticastReceiver, MulticastSender};
#[cfg(not(loom))]
pub(crate) use wakers::Wakers;
#[cfg(all(feature = "proactor", not(loom)))]
pub(crate) use word::HeldWord;

use crate::mutant::mutant;
use crate::sync::AtomicU32;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A subscriber's side: goes to sleep without missing the wake-up.
///
/// The order is the contract: [`arm`](Self::arm), look at the ring once more, and only if there is
/// nothing [`wait`](Self::wait), as [`sleep_unless`] does. Whoever armed and found something simply goes on: there is nothing
/// to undo, an unused arming costs each publisher at most one wake.
pub(crate) trait Waiter: Send {
    /// Announces the sleep. Wake-ups for commits that the following look does not see will end the
    /// wait. Ends with a full fence. `slot_arms` is the word `arms` of the subscriber's own slot.
    fn arm(&mut self, eventcount: EventCount<'_>, slot_arms: &AtomicU32);

    /// Sleeps until woken, until the time is over, or until a signal arrives. Which of them is not
    /// told: the caller has to look in any case.
    fn wait(&self, eventcount: EventCount<'_>, timeout: Option<Duration>) -> io::Result<()>;

    /// What an event loop can poll for reading, if there is such a thing.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}

/// Announces a sleep and begins it, unless `look`, which comes in between, finds something; else it says
/// how long to sleep at the most. False if it did not sleep. After the sleep the caller has to look in
/// any case.
pub(crate) fn sleep_unless(
    waiter: &mut dyn Waiter,
    eventcount: EventCount<'_>,
    slot_arms: &AtomicU32,
    recheck: impl FnOnce() -> Option<Duration>,
) -> io::Result<bool> {
    if mutant("sleep_without_a_recheck") {
        let timeout = recheck();
        waiter.arm(eventcount, slot_arms);
        return timeout
            .map_or(Ok(()), |_| waiter.wait(eventcount, timeout))
            .map(|()| timeout.is_some());
    }
    waiter.arm(eventcount, slot_arms);
    let Some(timeout) = recheck() else { return Ok(false) };
    waiter.wait(eventcount, Some(timeout)).map(|()| true)
}

/// Waits until `descriptor` is readable; as [`Waiter::wait`].
#[cfg(not(loom))]
fn wait_readable(descriptor: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::io::Errno;

    let timeout = timeout.and_then(|timeout| timeout.try_into().ok());
    let mut watched = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    match poll(&mut watched, timeout.as_ref()) {
        // Returns at once, always: without an error the caller would spin.
        Ok(_) if watched[0].revents().contains(PollFlags::NVAL) => Err(Errno::BADF.into()),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Empties a socket's queue. Ends after a thousand datagrams, more than a queue holds: a flood must
/// not keep the subscriber here, and what is left merely wakes it once more.
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
