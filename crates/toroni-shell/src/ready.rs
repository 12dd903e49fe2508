//! `--ready-fd N`: tells the process that started this one that it is subscribed.

use crate::failure::Failure;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

/// The inherited file descriptor.
pub struct ReadyFd(Option<File>);

impl ReadyFd {
    /// Takes ownership of descriptor `number`. Call this before the process opens any file: later, a number that was
    /// not inherited may be a descriptor of this process.
    pub fn claim(number: Option<i32>) -> Result<Self, Failure> {
        let Some(number) = number else { return Ok(Self(None)) };
        let unusable = |why: &str| {
            Failure::Usage(format!(
                "--ready-fd {number}: {why}; in a shell, write for example --ready-fd 3 3>file"
            ))
        };
        let owned = match number {
            ..=0 => return Err(unusable("the number must be above 0")),
            // The standard streams stay open.
            1 => io::stdout().as_fd().try_clone_to_owned(),
            2 => io::stderr().as_fd().try_clone_to_owned(),
            _ if !is_open(number) => {
                return Err(unusable("this process did not inherit such a descriptor"));
            }
            _ => Ok(adopt(number)),
        };
        let owned = owned.map_err(|error| unusable(&error.to_string()))?;
        Ok(Self(Some(File::from(owned))))
    }

    /// Writes the line `ready` and closes the descriptor.
    pub fn signal(self) -> Result<(), Failure> {
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
