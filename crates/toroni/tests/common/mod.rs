//! A directory of buses for one test.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use toroni::{Bus, BusConfig};

/// A fresh directory in memory, removed with all its buses when dropped.
pub(crate) struct Fixture(PathBuf);

impl Fixture {
    /// Makes it.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = format!("/dev/shm/toroni-test-{}-{number}", std::process::id());
            match std::fs::create_dir(&path) {
                Ok(()) => return Self(path.into()),
                // Of a process that was killed, and had this number before.
                Err(error) => assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{path}"),
            }
        }
    }

    /// The directory.
    #[allow(dead_code, reason = "each test takes what it needs")]
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// A configuration for buses in it.
    pub(crate) fn config(&self) -> BusConfig {
        BusConfig::new().directory(&self.0)
    }

    /// A bus with the defaults.
    #[allow(dead_code, reason = "each test takes what it needs")]
    pub(crate) fn open(&self) -> Bus {
        self.config().open("b").unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
