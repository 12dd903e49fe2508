//! The publisher's side of all notifiers: a test that costs a few loads, and if it finds sleepers, the wake-ups.

use super::{ArmedSlot, Audience, DatagramWaker, EventCount, MulticastWaker, Sleeping, futex};
use crate::sync::AtomicU64;
use std::io;

/// Wakes subscribers, however they sleep. Each publishing participant has one, which its threads share.
#[derive(Debug)]
pub(crate) struct Wakers {
    sleeping: Sleeping,
    descriptors: Descriptors,
}

/// How to reach subscribers that poll a descriptor.
#[derive(Debug)]
enum Descriptors {
    Datagram(DatagramWaker),
    Multicast(MulticastWaker),
}

impl Wakers {
    /// Returns wakers for the notifiers `Futex` and `Datagram`, which differ only in how subscribers wait. There are this
    /// many slots.
    pub(crate) fn with_datagrams(waker: DatagramWaker, slots: u32) -> Self {
        Self { sleeping: Sleeping::new(slots), descriptors: Descriptors::Datagram(waker) }
    }

    /// Returns wakers for the notifier `Multicast`.
    pub(crate) fn with_multicast(waker: MulticastWaker, slots: u32) -> Self {
        Self { sleeping: Sleeping::new(slots), descriptors: Descriptors::Multicast(waker) }
    }

    /// Returns whether there may be a subscriber to wake, see [`Sleeping::may_be_any`]. It makes no system call.
    #[inline(always)]
    pub(crate) fn may_be_any(&self, sleeps: &AtomicU64) -> bool {
        self.sleeping.may_be_any(sleeps)
    }

    /// Returns whether [`Self::wake`] has something to do, see [`Sleeping::concerns`]. It makes no system call.
    #[cold]
    pub(crate) fn concerns(&self, eventcount: EventCount<'_>, audience: Audience) -> bool {
        self.sleeping.concerns(eventcount, audience)
    }

    /// Makes the next call of [`Self::wake`] wake all that sleep, whatever they want.
    pub(crate) fn wake_all_next(&self) {
        self.sleeping.wake_all_next();
    }

    /// Wakes the subscribers that sleep and want the messages.
    ///
    /// `armed` appends the active slots that have a socket. It is called only if a descriptor is to be woken. Returns how many
    /// wake-ups were sent: one for each futex, and one for each datagram.
    ///
    /// A wake-up that cannot be sent is no error of the publisher: a blocking call soon rechecks by itself.
    #[cold]
    pub(crate) fn wake(
        &self,
        eventcount: EventCount<'_>,
        audience: Audience,
        mut armed: impl FnMut(&mut Vec<ArmedSlot>) -> io::Result<()>,
    ) -> usize {
        self.sleeping.wake(eventcount, audience, futex::wake_one, |due| match &self.descriptors {
            Descriptors::Datagram(waker) => waker.deliver(due, &mut armed),
            Descriptors::Multicast(waker) => waker.deliver(due),
        })
    }
}
