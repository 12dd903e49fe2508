//! The waiting operations of each descriptor and direction, in the order of their starts.

use crate::operation::{List, Membership, OperationKind};
use std::os::fd::RawFd;

/// Indexed by the number of the descriptor. The kernel assigns the lowest free number, so the table is dense.
#[derive(Default)]
pub(super) struct Queues(Vec<[List; 2]>);

impl Queues {
    /// Returns the queue of an operation.
    pub(super) fn of(&mut self, descriptor: RawFd, kind: OperationKind) -> &mut List {
        self.of_direction(descriptor, kind.is_reading())
    }

    /// Returns all descriptors that ever had a queue.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = RawFd> + use<> {
        0..RawFd::try_from(self.0.len()).unwrap_or(RawFd::MAX)
    }

    /// Returns the queue of reads, or of writes.
    pub(super) fn of_direction(&mut self, descriptor: RawFd, reading: bool) -> &mut List {
        let number = number(descriptor);
        if number >= self.0.len() {
            let queue = || List::new(Membership::Queued);
            self.0.resize_with(number + 1, || [queue(), queue()]);
        }
        &mut self.0[number][usize::from(reading)]
    }
}

/// Converts a descriptor's number to an index.
pub(super) fn number(descriptor: RawFd) -> usize {
    usize::try_from(descriptor).expect("an open descriptor is not negative")
}
