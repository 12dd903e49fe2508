//! Buses on a disk: what is left of one after the machine has booted again.
//!
//! After a crash or a power loss, a disk holds pages of any age. They belong together only if the last
//! publisher wrote everything back and then set a mark. Within one boot none of this matters: processes
//! share the page cache, which outlives them.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use crate::bus::views::{arrivals_of, ring_of, values_of};
use crate::error::{Corrupt, FileError, OpenError};
use crate::hook::{self, CrashPoint};
use crate::ring::memory::Ring;
use crate::ring::reader::Cursor;
use crate::shm::directory::BusDirectory;
use crate::shm::mapping::{MapOptions, Protection};
use crate::shm::platform::KernelContext;
use crate::shm::ring_file::RingFile;
use crate::shm::segment::RingSegment;
use crate::sync::Ordering;
use std::io;
use std::time::{Duration, Instant};

/// What happened to a bus on a disk when it was opened for the first time since the machine booted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reopened {
    /// Its last publisher closed it cleanly. Its messages are as they were.
    Kept {
        /// How many messages can still be read.
        messages: u64,
    },
    /// It had not been closed: the machine went down while a process had it open for publishing. It starts
    /// empty, with a new [`BusId`](crate::BusId).
    Emptied,
}

/// How long to wait for another process that checks the bus at the same time.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
const WAIT_SLICE: Duration = Duration::from_millis(5);

/// Checks a bus that was last used before this boot, before its content is used.
pub(super) fn check(
    directory: &BusDirectory,
    file: RingFile,
) -> Result<(RingFile, Option<Reopened>), OpenError> {
    if !file.is_on_disk()
        || file.header().kernel_context.boot_id == KernelContext::current().boot_id
    {
        return Ok((file, None));
    }
    // Its lock would keep the one below from becoming exclusive.
    drop(file);
    let began = Instant::now();
    let reopened = loop {
        if let Some(outcome) = try_check(directory)? {
            break outcome;
        }
        if began.elapsed() > LONGEST_WAIT {
            return Err(FileError::Busy { path: directory.path().to_owned() }.into());
        }
        std::thread::sleep(WAIT_SLICE);
    };
    Ok((RingFile::open(directory, Protection::Read)?, reopened))
}

/// Returns `None` if other processes have the bus open, and `Some(None)` if one of them has checked it.
fn try_check(directory: &BusDirectory) -> Result<Option<Option<Reopened>>, OpenError> {
    let mut segment = RingSegment::open(directory, Protection::Write, &MapOptions::default())
        .map_err(|error| match error {
            FileError::PermissionDenied { .. } => {
                OpenError::NotCheckedSinceBoot { path: directory.path().to_owned() }
            }
            error => error.into(),
        })?;
    if !segment.boot_changed() {
        return Ok(Some(None));
    }
    // It would leave parts as they were that it does not know, beside a stream that begins again.
    segment.header().check_may_publish(directory.path())?;
    let failed = |source: io::Error| FileError::Os {
        action: "check after the reboot",
        path: directory.path().to_owned(),
        source,
    };
    if !segment.file().try_exclusive().map_err(failed)? {
        return Ok(None);
    }
    let outcome = match segment.clean_close().map(|end| count(ring_of(&segment), end)) {
        Some(Ok(messages)) => {
            // The slots that they name may be others' by now: their generations are not written back in order.
            arrivals_of(&segment).forget_bringers();
            Reopened::Kept { messages }
        }
        _ => {
            segment.control().reset();
            arrivals_of(&segment).reset();
            if let Some(values) = values_of(&segment) {
                values.reset();
            }
            ring_of(&segment).word(0).store(0, Ordering::Relaxed);
            Reopened::Emptied
        }
    };
    hook::point(CrashPoint::MidReopen);
    segment.adopt(outcome == Reopened::Emptied).map_err(failed)?;
    hook::point(CrashPoint::AfterReopen);
    segment.file().back_to_shared().map_err(failed)?;
    Ok(Some(Some(outcome)))
}

/// Counts the messages in the ring. They must end where the mark says.
fn count(ring: Ring<'_>, (position, sequence): (u64, u64)) -> Result<u64, Corrupt> {
    let corrupt = |value| Corrupt { what: "end of the stream", value, position };
    let commit = &ring.control.commit.0;
    if commit.tail.load(Ordering::Relaxed) != position
        || commit.sequence.load(Ordering::Relaxed) != sequence
    {
        return Err(corrupt(commit.tail.load(Ordering::Relaxed)));
    }
    let mut cursor = Cursor::at_oldest(ring)?;
    let first = cursor.sequence;
    // Bounded: each step is at least a word, and `at_oldest` is at most a capacity away.
    while let Ok(Some(seen)) = cursor.peek(ring) {
        if cursor.position >= position {
            return Err(corrupt(cursor.position));
        }
        cursor.advance(&seen);
    }
    if (cursor.position, cursor.sequence) != (position, sequence) {
        return Err(corrupt(cursor.position));
    }
    Ok(sequence.wrapping_sub(first))
}
