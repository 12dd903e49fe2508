//! `--ready-fd N`: tells whoever started this process that it is subscribed.

use crate::failure::Failure;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

/// The inherited descriptor, until the line is written.
pub(crate) struct ReadyFd(Option<File>);

impl ReadyFd {
    /// Takes over descriptor `number`. Call it before this process opens anything: later, the
    /// number of a descriptor that was not inherited may be one of our own.
    pub(crate) fn claim(number: Option<i32>) -> Result<Self, Failure> {
        let Some(number) = number else { return Ok(Self(None)) };
        let unusable = |why: &str| {
            Failure::Usage(format!("--ready-fd {number}: {why}; in a shell: --ready-fd 3 3>ready"))
        };
        let owned = match number {
            ..=0 => return Err(unusable("it must be above 0")),
            // The standard streams are still needed.
            1 => io::stdout().as_fd().try_clone_to_owned(),
            2 => io::stderr().as_fd().try_clone_to_owned(),
            _ if !is_open(number) => return Err(unusable("no such descriptor was inherited")),
            _ => Ok(adopt(number)),
        };
        let owned = owned.map_err(|error| unusable(&error.to_string()))?;
        Ok(Self(Some(File::from(owned))))
    }

    /// Writes the line and closes the descriptor.
    pub(crate) fn signal(self) -> Result<(), Failure> {
        let Some(mut file) = self.0 else { return Ok(()) };
        file.write_all(b"ready\n").map_err(|error| {
            Failure::Failed(format!("cannot write to the descriptor of --ready-fd: {error}"))
        })
    }
}

fn is_open(number: i32) -> bool {
    std::fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok()
}

fn adopt(number: i32) -> OwnedFd {
    // SAFETY: the descriptor is open (`is_open`), and nothing else in this process owns it: it is
    // above the standard streams, and `claim` runs before this process opens anything itself, so it
    // was inherited, and is ours to close.
    unsafe { OwnedFd::from_raw_fd(number) }
}
