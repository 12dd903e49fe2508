//! A directory of buses for one test.

use crate::info::Info;
use crate::process::Running;
use crate::program;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use toroni::BusConfig;

/// Every root that exists, for a watchdog that ends the process without running destructors.
static ROOTS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A fresh directory in memory: `buses/` for buses, `files/` for whatever else a test writes. Removed
/// with everything in it when dropped, also when the test fails.
#[derive(Debug)]
pub struct TempRoot {
    path: PathBuf,
}

impl TempRoot {
    /// Makes it below `/dev/shm`, where buses are at home.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn new() -> Self {
        Self::below(Path::new("/dev/shm"))
    }

    /// Makes it below another directory.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn below(parent: &Path) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let path = loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("toroni-test-{}-{number}", std::process::id()));
            // It may be that of a process that was killed, and had this number before.
            if !std::fs::exists(&path).expect("a look at the directory for the test") {
                break path;
            }
        };
        for folder in ["buses", "files"] {
            std::fs::create_dir_all(path.join(folder)).expect("a directory for the test");
        }
        ROOTS.lock().unwrap_or_else(PoisonError::into_inner).push(path.clone());
        Self { path }
    }

    /// All of it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of buses: what `--dir` and `TORONI_DIR` name.
    #[must_use]
    pub fn buses(&self) -> PathBuf {
        self.path.join("buses")
    }

    /// A file of the test, outside of the directory of buses.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join("files").join(name)
    }

    /// A configuration of the library for buses in it.
    #[must_use]
    pub fn config(&self) -> BusConfig {
        BusConfig::new().directory(self.buses())
    }

    /// `toroni --dir <buses> ARGUMENTS`, not yet started.
    #[must_use]
    pub fn toroni(&self, arguments: &[&str]) -> Command {
        program::toroni(&self.buses(), arguments)
    }

    /// Runs `toroni` to its end, which must be a success; what it printed.
    ///
    /// # Panics
    /// If it fails.
    #[must_use]
    pub fn succeed(&self, arguments: &[&str]) -> String {
        Running::start(self.toroni(arguments)).succeed()
    }

    /// `toroni info BUS --json`.
    ///
    /// # Panics
    /// If it fails.
    #[must_use]
    pub fn info(&self, bus: &str) -> Info {
        Info::parse(&self.succeed(&["info", bus, "--json"]))
    }

    /// Names in the directory of buses, hidden ones included, sorted.
    ///
    /// # Panics
    /// If it cannot be read.
    #[must_use]
    pub fn entries(&self) -> Vec<String> {
        names_in(&self.buses())
    }

    /// Runs `toroni clean --all` when every process has ended, and asserts that nothing is left.
    ///
    /// # Panics
    /// If anything is.
    pub fn assert_clean_leaves_nothing(&self) {
        let said = self.succeed(&["clean", "--all", "--yes", "--json"]);
        assert_eq!(
            self.entries(),
            [""; 0],
            "left behind after `toroni clean --all`, which said:\n{said}"
        );
    }
}

impl Default for TempRoot {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for TempRoot {
    fn drop(&mut self) {
        ROOTS.lock().unwrap_or_else(PoisonError::into_inner).retain(|path| *path != self.path);
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Names in a directory, hidden ones included, sorted.
///
/// # Panics
/// If it cannot be read.
#[must_use]
pub fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("a directory that can be read");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Removes every root: for an end without destructors.
pub(crate) fn remove_all() {
    let roots = match ROOTS.try_lock() {
        Ok(roots) => roots.clone(),
        Err(_) => return,
    };
    for root in roots {
        let _ = std::fs::remove_dir_all(root);
    }
}
