//! Directories in memory, for the buses of trials.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory in memory, removed by the drop.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// A new one; `what` is a part of its name. It is made where `TORONI_TRIALS_DIR` says, so that
    /// whoever starts a process that may crash can remove what that leaves; else in `/dev/shm`.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn new(what: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let above = std::env::var_os("TORONI_TRIALS_DIR").unwrap_or_else(|| "/dev/shm".into());
        let name = format!("toroni-test-{what}-{}-{number}", std::process::id());
        let path = Path::new(&above).join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
