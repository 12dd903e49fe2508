//! For each descriptor and direction, the operations that wait, in the order of their starts.

use crate::operation::{List, Membership, OperationKind};
use std::os::fd::RawFd;

/// By the number of the descriptor: the kernel gives the lowest that is free, so this is dense.
#[derive(Default)]
pub(super) struct Queues(Vec<[List; 2]>);

impl Queues {
    /// The queue that an operation stands in.
    pub(super) fn of(&mut self, descriptor: RawFd, kind: OperationKind) -> &mut List {
        self.of_direction(descriptor, kind.is_reading())
    }

    /// All descriptors that ever had a queue.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = RawFd> + use<> {
        0..RawFd::try_from(self.0.len()).unwrap_or(RawFd::MAX)
    }

    /// Those that read, or those that write.
    pub(super) fn of_direction(&mut self, descriptor: RawFd, reading: bool) -> &mut List {
        let number = number(descriptor);
        if number >= self.0.len() {
            let queue = || List::new(Membership::Queued);
            self.0.resize_with(number + 1, || [queue(), queue()]);
        }
        &mut self.0[number][usize::from(reading)]
    }
}

/// A descriptor's number, to count from 0.
pub(super) fn number(descriptor: RawFd) -> usize {
    usize::try_from(descriptor).expect("an open descriptor is not negative")
}
