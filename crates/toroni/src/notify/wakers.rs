//! The publisher's side of all notifiers: a test that costs two loads, and behind it the wakes.

use super::{ArmedSlot, EventCount, LastNotified, MulticastSender, Post, futex};
use std::io;

/// Wakes subscribers, however they sleep. One for each publishing participant; its threads share it.
///
/// Sleepers on the futex are found by [`EventCount::sleeps`], those behind a descriptor by [`EventCount::arms`],
/// on every bus: a counter that the bus's notifier does not use stays as it is, and costs nothing.
#[derive(Debug)]
pub(crate) struct Wakers {
    sleeps: LastNotified,
    arms: LastNotified,
    descriptors: Descriptors,
}

/// How those are reached who wait at a descriptor.
#[derive(Debug)]
enum Descriptors {
    Sockets(Post),
    Group(MulticastSender),
}

impl Wakers {
    /// For the notifiers `Futex` and `Datagram`, which differ only in how subscribers wait.
    pub(crate) fn with_sockets(post: Post) -> Self {
        Self::new(Descriptors::Sockets(post))
    }

    /// For the notifier `Multicast`.
    pub(crate) fn with_group(sender: MulticastSender) -> Self {
        Self::new(Descriptors::Group(sender))
    }

    fn new(descriptors: Descriptors) -> Self {
        Self { sleeps: LastNotified::none(), arms: LastNotified::none(), descriptors }
    }

    /// Wakes all who may sleep. To be called after the commit, the unlock, and the fence behind it.
    ///
    /// `armed` appends the active slots that have a socket; it is called only if a descriptor was
    /// armed since the last time. Returns how many wake-ups were sent: one for the futex, one for
    /// each datagram; 0 without any system call when nobody went to sleep since the last call.
    ///
    /// A wake-up that cannot be sent is no error of the publisher: its subscriber checks again soon.
    #[inline]
    pub(crate) fn notify(
        &self,
        eventcount: EventCount<'_>,
        mut armed: impl FnMut(&mut Vec<ArmedSlot>) -> io::Result<()>,
    ) -> usize {
        if self.sleeps.not_yet_notified(eventcount.sleeps).is_none()
            && self.arms.not_yet_notified(eventcount.arms).is_none()
        {
            return 0;
        }
        self.wake(eventcount, &mut armed)
    }

    #[cold]
    fn wake(
        &self,
        eventcount: EventCount<'_>,
        armed: &mut dyn FnMut(&mut Vec<ArmedSlot>) -> io::Result<()>,
    ) -> usize {
        let woken = eventcount.wake_sleepers(&self.sleeps, futex::wake_all);
        woken
            + match &self.descriptors {
                Descriptors::Sockets(post) => post.deliver(&self.arms, eventcount.arms, armed),
                Descriptors::Group(sender) => sender.deliver(&self.arms, eventcount.arms),
            }
    }
}
