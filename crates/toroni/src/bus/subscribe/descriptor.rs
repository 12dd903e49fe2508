//! The descriptor of a subscriber for event loops: the socket of its slot, or the bus's multicast group.

use crate::notify::{EventCount, Mailbox, MulticastReceiver, Waiter};
use crate::sync::AtomicU32;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

pub(in crate::bus) enum Descriptor {
    Mailbox(Mailbox),
    Group(MulticastReceiver),
}

impl Descriptor {
    /// Makes the descriptor readable, as a publisher would.
    pub(in crate::bus) fn nudge(&self) {
        match self {
            Self::Mailbox(mailbox) => mailbox.nudge(),
            Self::Group(group) => group.nudge(),
        }
    }

    /// Returns a socket that makes this readable with each datagram, as [`Self::nudge`] does.
    pub(in crate::bus) fn sender(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Mailbox(mailbox) => mailbox.sender(),
            Self::Group(group) => group.sender(),
        }
    }

    /// Leaves alone what belongs to the parent process, in the child of a `fork`.
    pub(in crate::bus) fn abandon(&mut self) {
        if let Self::Mailbox(mailbox) = self {
            mailbox.abandon();
        }
    }

    fn waiter(&self) -> &dyn Waiter {
        match self {
            Self::Mailbox(mailbox) => mailbox,
            Self::Group(group) => group,
        }
    }
}

impl Waiter for Descriptor {
    fn arm(&mut self, eventcount: EventCount<'_>, slot_arms: &AtomicU32) {
        match self {
            Self::Mailbox(mailbox) => mailbox.arm(eventcount, slot_arms),
            Self::Group(group) => group.arm(eventcount, slot_arms),
        }
    }

    fn wait(&self, eventcount: EventCount<'_>, timeout: Option<Duration>) -> io::Result<()> {
        self.waiter().wait(eventcount, timeout)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.waiter().fd()
    }
}
