//! The descriptor of a subscriber for event loops: the socket of its slot, or the bus's multicast waiter.

use crate::notify::{ArmingSlot, DatagramWaiter, MulticastWaiter, Waiter};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

pub(in crate::bus) enum Descriptor {
    Datagram(DatagramWaiter),
    Multicast(MulticastWaiter),
}

impl Descriptor {
    /// Makes the descriptor readable, as a publisher would.
    pub(in crate::bus) fn nudge(&self) {
        match self {
            Self::Datagram(waiter) => waiter.nudge(),
            Self::Multicast(waiter) => waiter.nudge(),
        }
    }

    /// Returns a socket that makes this readable with each datagram, as [`Self::nudge`] does.
    pub(in crate::bus) fn sender(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Datagram(waiter) => waiter.sender(),
            Self::Multicast(waiter) => waiter.sender(),
        }
    }

    /// Leaves alone what belongs to the parent process, in the child of a `fork`.
    pub(in crate::bus) fn abandon(&mut self) {
        if let Self::Datagram(waiter) = self {
            waiter.abandon();
        }
    }

    fn waiter(&self) -> &dyn Waiter {
        match self {
            Self::Datagram(waiter) => waiter,
            Self::Multicast(waiter) => waiter,
        }
    }
}

impl Waiter for Descriptor {
    fn arm(&mut self, slot: ArmingSlot<'_>) {
        match self {
            Self::Datagram(waiter) => waiter.arm(slot),
            Self::Multicast(waiter) => waiter.arm(slot),
        }
    }

    fn wait(&self, slot: ArmingSlot<'_>, timeout: Option<Duration>) -> io::Result<()> {
        self.waiter().wait(slot, timeout)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.waiter().fd()
    }
}
