//! The directory of one run: new, private, and removed when the run ends. Directories of runs that were killed are
//! removed by the next run.

use crate::Failure;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use toroni_testkit::{Directory, directory::IN_MEMORY};

/// Where run directories are created by default: in memory.
pub const DEFAULT_ROOT: &str = IN_MEMORY;

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
    _owner: Directory,
}

impl RunDirectoryOwner {
    /// Creates a directory below `root`, which is created if it does not exist.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn create(root: &Path) -> Result<Self, Failure> {
        let owner = Directory::create(root, PREFIX, 0o700)
            .map_err(Failure::of("create the run directory"))?;
        // Below the ports that the kernel chooses by itself.
        let run = (std::process::id() + owner.number()) % 340;
        let directory = RunDirectory {
            path: owner.path().to_owned(),
            name: owner.name().to_owned(),
            port: 10_000 + u16::try_from(run).unwrap_or(0) * 64,
            lane: 0,
        };
        Ok(Self { directory, _owner: owner })
    }

    /// Returns what children know about it.
    #[must_use]
    pub fn directory(&self) -> &RunDirectory {
        &self.directory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_directories_are_new_and_vanish() {
        let root = Directory::new();
        let first = RunDirectoryOwner::create(root.path()).unwrap();
        let second = RunDirectoryOwner::create(root.path()).unwrap();
        assert_ne!(first.directory().path, second.directory().path);
        assert_ne!(first.directory().name, second.directory().name);
        fs::write(first.directory().path.join("file"), "x").unwrap();
        drop(first);
        assert_eq!(root.entries().len(), 1, "the second lives and is not removed");
        drop(second);
        assert_eq!(root.entries(), [""; 0]);
    }

    #[test]
    fn directories_of_killed_runs_are_removed() {
        let root = Directory::new();
        fs::create_dir_all(root.join("toroni-bench-1-0/bus")).unwrap();
        fs::create_dir_all(root.join("of-another-program")).unwrap();
        let owner = RunDirectoryOwner::create(root.path()).unwrap();
        assert!(!root.join("toroni-bench-1-0").exists());
        assert!(root.join("of-another-program").exists());
        drop(owner);
        assert_eq!(root.entries().len(), 1);
    }

    #[test]
    fn a_second_lane_shares_the_path_of_the_run() {
        let root = Directory::new();
        let owner = RunDirectoryOwner::create(root.path()).unwrap();
        let lane = owner.directory().second_lane().unwrap();
        assert!(lane.path.is_dir() && lane.path != owner.directory().path);
        assert_eq!(lane.shared_path(), owner.directory().path);
        assert_eq!((owner.directory().lane(), lane.lane()), (0, 1));
    }
}
