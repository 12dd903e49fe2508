//! The directory of one run: fresh, private, removed at its end. Those that a killed run left behind
//! are removed by the next one.

use crate::Failure;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Where directories of runs are made unless the caller says otherwise: in memory.
pub const DEFAULT_ROOT: &str = "/dev/shm";

const PREFIX: &str = "toroni-bench-";

/// What children are told of the directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunDirectory {
    /// An empty directory, for files of any kind.
    pub path: PathBuf,
    /// Differs among the runs that take place at the same time, for channels that have no files: the
    /// parent's process id and a number that counts its runs.
    pub name: String,
    /// The first of 64 TCP or UDP ports that are likely to be free; the upper 32 are the second lane's.
    pub port: u16,
    #[serde(default)]
    lane: u16,
}

impl RunDirectory {
    /// A second lane, for a channel in the other direction: a directory within this one, another name,
    /// other ports.
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

    /// Which of the channels of this run: 0, or 1 for the way back.
    #[must_use]
    pub fn lane(&self) -> u16 {
        self.lane
    }

    /// The directory of the run, for what all of its lanes have in common.
    #[must_use]
    pub fn shared_path(&self) -> &Path {
        self.path.ancestors().nth(usize::from(self.lane)).unwrap_or(&self.path)
    }
}

/// The directory, held by the parent.
#[derive(Debug)]
pub struct RunDirectoryOwner {
    directory: RunDirectory,
    /// Holds the lock by which others see that the run lives.
    _lock: OwnedFd,
}

impl RunDirectoryOwner {
    /// Makes a directory below `root`, which is made if it is not there.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn create(root: &Path) -> Result<Self, Failure> {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        fs::create_dir_all(root).map_err(Failure::of(format!("make {}", root.display())))?;
        sweep(root);
        let number = RUNS.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", std::process::id());
        let directory = root.join(format!("{PREFIX}{name}"));
        let failed = format!("make {}", directory.display());
        fs::DirBuilder::new().mode(0o700).create(&directory).map_err(Failure::of(&failed))?;
        let lock = lock_of(&directory).ok_or_else(|| {
            // Nobody else uses the name of this process.
            let _ = fs::remove_dir(&directory);
            Failure::new(format!("cannot lock {}", directory.display()))
        })?;
        // Below the ports that the kernel hands out by itself.
        let port = 10_000 + u16::try_from((std::process::id() + number) % 340).unwrap_or(0) * 64;
        Ok(Self { directory: RunDirectory { path: directory, name, port, lane: 0 }, _lock: lock })
    }

    /// What children are told.
    #[must_use]
    pub fn directory(&self) -> &RunDirectory {
        &self.directory
    }
}

impl Drop for RunDirectoryOwner {
    fn drop(&mut self) {
        // There is nobody to tell; the next run tries again.
        let _ = fs::remove_dir_all(&self.directory.path);
    }
}

/// Removes the directories of runs that are dead.
fn sweep(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        // Of other users, or of a run that lives: left alone.
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
            let path = format!("/dev/shm/toroni-test-rig-{}-{number}", std::process::id());
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
    fn run_directories_are_fresh_and_vanish() {
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
    fn what_a_killed_run_left_is_swept() {
        let root = Root::new();
        fs::create_dir_all(root.0.join("toroni-bench-1-0/bus")).unwrap();
        fs::create_dir_all(root.0.join("of-somebody-else")).unwrap();
        let owner = RunDirectoryOwner::create(&root.0).unwrap();
        assert!(!root.0.join("toroni-bench-1-0").exists());
        assert!(root.0.join("of-somebody-else").exists());
        drop(owner);
        assert_eq!(root.entries(), 1);
    }
}
