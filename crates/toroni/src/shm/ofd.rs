//! Open-file-description locks on single bytes (fcntl(2), "Open file description locks").
//!
//! The kernel drops such a lock when the last descriptor of its description is closed, however the process ends. A
//! description never conflicts with itself: it neither sees nor refuses its own locks.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

/// Kinds of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Any number of descriptions may hold it. They must be open for reading.
    Shared,
    /// Only one description may hold it. It must be open for writing.
    Exclusive,
}

/// Takes the lock, or changes its kind, if no lock of another description prevents it. Never waits.
pub(super) fn try_lock(file: impl AsFd, kind: Kind, byte: u64) -> io::Result<bool> {
    match call(file, libc::F_OFD_SETLK, kind.number(), byte, 1) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Takes a lock on all possible bytes.
#[cfg(test)]
pub(super) fn try_lock_all(file: impl AsFd) -> io::Result<bool> {
    match call(file, libc::F_OFD_SETLK, libc::F_WRLCK, 0, TO_THE_END) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
pub(super) fn unlock(file: impl AsFd, byte: u64) -> io::Result<()> {
    call(file, libc::F_OFD_SETLK, libc::F_UNLCK, byte, 1).map(|_| ())
}

pub(super) fn unlock_all(file: impl AsFd) -> io::Result<()> {
    call(file, libc::F_OFD_SETLK, libc::F_UNLCK, 0, TO_THE_END).map(|_| ())
}

/// Returns whether another description holds a lock that would refuse one of this kind. Works whether the
/// description is open for reading or for writing.
pub(super) fn is_refused(file: impl AsFd, kind: Kind, byte: u64) -> io::Result<bool> {
    let answer = call(file, libc::F_OFD_GETLK, kind.number(), byte, 1)?;
    Ok(i32::from(answer.l_type) != libc::F_UNLCK)
}

/// Finds a lock of another description that would refuse one of this kind somewhere in `bytes`, and returns the
/// part of it within `bytes`. If there are several, the kernel returns any one of them. It walks the list of all
/// locks of the file.
pub(super) fn first_refusal(
    file: impl AsFd,
    kind: Kind,
    bytes: Range<u64>,
) -> io::Result<Option<Range<u64>>> {
    let out_of_range = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let length = i64::try_from(bytes.end.saturating_sub(bytes.start)).map_err(out_of_range)?;
    if length <= TO_THE_END {
        return Ok(None);
    }
    let answer = call(file, libc::F_OFD_GETLK, kind.number(), bytes.start, length)?;
    if i32::from(answer.l_type) == libc::F_UNLCK {
        return Ok(None);
    }
    let start = u64::try_from(answer.l_start).unwrap_or(0);
    let end = match u64::try_from(answer.l_len) {
        Ok(length) if answer.l_len != TO_THE_END => start.saturating_add(length),
        _ => u64::MAX,
    };
    Ok(Some(start.max(bytes.start)..end.min(bytes.end)))
}

impl Kind {
    fn number(self) -> i32 {
        match self {
            Self::Shared => libc::F_RDLCK,
            Self::Exclusive => libc::F_WRLCK,
        }
    }
}

/// As a length: all possible bytes.
const TO_THE_END: i64 = 0;

fn call(
    file: impl AsFd,
    command: i32,
    kind: i32,
    byte: u64,
    length: i64,
) -> io::Result<libc::flock> {
    let out_of_range = |_| io::Error::from(io::ErrorKind::InvalidInput);
    // SAFETY: `zeroed` is a valid flock; `l_pid` must be 0.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = i16::try_from(kind).map_err(out_of_range)?;
    lock.l_whence = i16::try_from(libc::SEEK_SET).map_err(out_of_range)?;
    lock.l_start = i64::try_from(byte).map_err(out_of_range)?;
    lock.l_len = length;
    loop {
        // SAFETY: the descriptor is open, and these commands read and write only the flock.
        if unsafe { libc::fcntl(file.as_fd().as_raw_fd(), command, &raw mut lock) } == 0 {
            return Ok(lock);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
