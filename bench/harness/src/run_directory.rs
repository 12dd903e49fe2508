//! The directory of one run: new, private, and removed when the run ends. Directories of runs that were killed are
//! removed by the next run.

use crate::Failure;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Where run directories are created by default: in memory.
pub const DEFAULT_ROOT: &str = "/dev/shm";

const PREFIX: &str = "toroni-bench-";

/// What children know about the run directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunDirectory {
    /// An empty directory, for files of any kind.
    pub path: PathBuf,
    /// Differs among runs at the same time, for channels that have no files: the parent's process id and a number that
    /// counts its runs.
    pub name: String,
    /// The first of 64 TCP or UDP ports that are likely to be free. The second lane has the upper 32.
    pub port: u16,
    #[serde(default)]
    lane: u16,
}

impl RunDirectory {
    /// Creates a second lane, for a channel in the other direction: a directory within this one, another name, other
    /// ports.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn second_lane(&self) -> Result<Self, Failure> {
        let lane = self.lane + 1;
        let path = self.path.join(format!("lane-{lane}"));
        fs::create_dir_all(&path).map_err(Failure::of(format!("make {}", path.display())))?;
        let name = format!("{}-{lane}", self.name);
        Ok(Self { path, name, port: self.port + 32, lane })
    }

    /// Returns which channel of the run this is: 0, or 1 for the way back.
    #[must_use]
    pub fn lane(&self) -> u16 {
        self.lane
    }

    /// Returns the path of the run directory itself, for files that all lanes share.
    #[must_use]
    pub fn shared_path(&self) -> &Path {
        self.path.ancestors().nth(usize::from(self.lane)).unwrap_or(&self.path)
    }
}

/// Owns the run directory: the parent has it, and dropping it removes the directory.
#[derive(Debug)]
pub struct RunDirectoryOwner {
    directory: RunDirectory,
    /// Holds the lock that tells other runs that this one lives.
    _lock: OwnedFd,
}

impl RunDirectoryOwner {
    /// Creates a directory below `root`, which is created if it does not exist.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn create(root: &Path) -> Result<Self, Failure> {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        fs::create_dir_all(root).map_err(Failure::of(format!("make {}", root.display())))?;
        sweep(root);
        let number = RUNS.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", std::process::id());
        let path = root.join(format!("{PREFIX}{name}"));
        let failed = format!("make {}", path.display());
        fs::DirBuilder::new().mode(0o700).create(&path).map_err(Failure::of(&failed))?;
        let lock = lock_of(&path).ok_or_else(|| {
            // No other process uses a name with this process id.
            let _ = fs::remove_dir(&path);
            Failure::new(format!("cannot lock {}", path.display()))
        })?;
        // Below the ports that the kernel chooses by itself.
        let port = 10_000 + u16::try_from((std::process::id() + number) % 340).unwrap_or(0) * 64;
        Ok(Self { directory: RunDirectory { path, name, port, lane: 0 }, _lock: lock })
    }

    /// Returns what children know about it.
    #[must_use]
    pub fn directory(&self) -> &RunDirectory {
        &self.directory
    }
}

impl Drop for RunDirectoryOwner {
    fn drop(&mut self) {
        // If it fails, the next run tries again.
        let _ = fs::remove_dir_all(&self.directory.path);
    }
}

/// Removes the directories of dead runs.
fn sweep(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        // The directory of another user, or of a run that lives, cannot be locked.
        if ours && lock_of(&entry.path()).is_some() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn lock_of(directory: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let lock = open(directory, flags, Mode::empty()).ok()?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(lock)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A directory for a test, removed when dropped.
    pub(crate) struct Root(pub(crate) PathBuf);

    impl Root {
        pub(crate) fn new() -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = format!("/dev/shm/toroni-test-harness-{}-{number}", std::process::id());
            // Of a process that was killed, and had this number before.
            let _ = fs::remove_dir_all(&path);
            Self(PathBuf::from(path))
        }

        pub(crate) fn entries(&self) -> usize {
            fs::read_dir(&self.0).unwrap().count()
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn run_directories_are_new_and_vanish() {
        let root = Root::new();
        let first = RunDirectoryOwner::create(&root.0).unwrap();
        let second = RunDirectoryOwner::create(&root.0).unwrap();
        assert_ne!(first.directory().path, second.directory().path);
        assert_ne!(first.directory().name, second.directory().name);
        fs::write(first.directory().path.join("file"), "x").unwrap();
        drop(first);
        assert_eq!(root.entries(), 1, "the second lives and is not swept");
        drop(second);
        assert_eq!(root.entries(), 0);
    }

    #[test]
    fn directories_of_killed_runs_are_removed() {
        let root = Root::new();
        fs::create_dir_all(root.0.join("toroni-bench-1-0/bus")).unwrap();
        fs::create_dir_all(root.0.join("of-another-program")).unwrap();
        let owner = RunDirectoryOwner::create(&root.0).unwrap();
        assert!(!root.0.join("toroni-bench-1-0").exists());
        assert!(root.0.join("of-another-program").exists());
        drop(owner);
        assert_eq!(root.entries(), 1);
    }
}
