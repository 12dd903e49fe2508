//! Waits until something can be read or written.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Waits until one of the descriptors can be read, or, if its flag is set, written; or until this time is over, or a signal
/// comes.
pub(crate) fn wait<'a>(
    descriptors: impl Iterator<Item = (BorrowedFd<'a>, bool)>,
    longest: Duration,
) -> io::Result<()> {
    let watched = descriptors.map(|(descriptor, waits_for_room)| {
        let room = if waits_for_room { PollFlags::OUT } else { PollFlags::empty() };
        PollFd::from_borrowed_fd(descriptor, PollFlags::IN | room)
    });
    let mut watched: Vec<PollFd<'_>> = watched.collect();
    let time = Timespec {
        tv_sec: longest.as_secs().cast_signed(),
        tv_nsec: longest.subsec_nanos().into(),
    };
    match poll(&mut watched, Some(&time)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
