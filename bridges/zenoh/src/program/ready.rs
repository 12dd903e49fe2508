//! Tells the process that started this one that the bridge works: by `--ready-fd`, and as systemd expects it.

use super::Failure;
use std::fs::{File, OpenOptions};
use std::io::Write;

/// The inherited file descriptor.
pub(crate) struct Ready(Option<File>);

impl Ready {
    /// Opens descriptor `number` again. Call this before the process opens any file: later, a number that was not
    /// inherited may be a descriptor of this process.
    pub(crate) fn claim(number: Option<u32>) -> Result<Self, Failure> {
        let Some(number) = number else { return Ok(Self(None)) };
        // Without unsafe code, a number becomes a descriptor only by its entry in /proc. The inherited one stays open.
        let file = OpenOptions::new().write(true).open(format!("/proc/self/fd/{number}"));
        file.map(|file| Self(Some(file))).map_err(|error| {
            Failure::Refused(format!(
                "--ready-fd {number}: {error}: it must be a pipe or a file that this process inherited; in a shell, \
                 write for example --ready-fd 3 3>file"
            ))
        })
    }

    /// Reports that the bridge works.
    pub(crate) fn signal(self) -> Result<(), Failure> {
        // Fails if systemd did not start this process, or does not wait for it.
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
        let Some(mut file) = self.0 else { return Ok(()) };
        file.write_all(b"ready\n").map_err(|error| {
            Failure::Failed(format!("cannot write to the descriptor of --ready-fd: {error}"))
        })
    }
}

/// Reports to systemd that the bridge ends.
pub(crate) fn stopping() {
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
}
