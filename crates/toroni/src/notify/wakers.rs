//! The publisher's side of all notifiers: a test that costs two loads, and if it finds sleepers, the wake-ups.

use super::{ArmedSlot, DatagramWaker, EventCount, LastNotified, MulticastWaker, futex};
use std::io;

/// Wakes subscribers, however they sleep. Each publishing participant has one, which its threads share.
///
/// [`EventCount::sleeps`] counts sleepers on the futex, [`EventCount::arms`] those that poll a descriptor. Both are
/// compared on every bus: a counter that the bus's notifier does not use never changes, and costs nothing.
#[derive(Debug)]
pub(crate) struct Wakers {
    sleeps: LastNotified,
    arms: LastNotified,
    descriptors: Descriptors,
}

/// How to reach subscribers that poll a descriptor.
#[derive(Debug)]
enum Descriptors {
    Datagram(DatagramWaker),
    Multicast(MulticastWaker),
}

impl Wakers {
    /// Returns wakers for the notifiers `Futex` and `Datagram`, which differ only in how subscribers wait.
    pub(crate) fn with_datagrams(waker: DatagramWaker) -> Self {
        Self::new(Descriptors::Datagram(waker))
    }

    /// Returns wakers for the notifier `Multicast`.
    pub(crate) fn with_multicast(waker: MulticastWaker) -> Self {
        Self::new(Descriptors::Multicast(waker))
    }

    fn new(descriptors: Descriptors) -> Self {
        Self { sleeps: LastNotified::none(), arms: LastNotified::none(), descriptors }
    }

    /// Returns whether a subscriber went to sleep since the last call of [`Self::wake`]. Call this after the commit,
    /// the unlock, and the fence that follows. It makes no system call.
    #[inline(always)]
    pub(crate) fn is_any_new(&self, eventcount: EventCount<'_>) -> bool {
        self.sleeps.not_yet_notified(eventcount.sleeps).is_some()
            || self.arms.not_yet_notified(eventcount.arms).is_some()
    }

    /// Wakes all subscribers that went to sleep since the last call.
    ///
    /// `armed` appends the active slots that have a socket. It is called only if a descriptor was armed since the
    /// last notification. Returns how many wake-ups were sent: one for the futex, and one for each datagram.
    ///
    /// A wake-up that cannot be sent is no error of the publisher: a blocking call soon rechecks by itself.
    #[cold]
    pub(crate) fn wake(
        &self,
        eventcount: EventCount<'_>,
        mut armed: impl FnMut(&mut Vec<ArmedSlot>) -> io::Result<()>,
    ) -> usize {
        let woken = eventcount.wake_sleepers(&self.sleeps, futex::wake_all);
        woken
            + match &self.descriptors {
                Descriptors::Datagram(waker) => {
                    waker.deliver(&self.arms, eventcount.arms, &mut armed)
                }
                Descriptors::Multicast(waker) => waker.deliver(&self.arms, eventcount.arms),
            }
    }
}
