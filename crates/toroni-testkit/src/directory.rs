//! Temporary directories that are removed even if their process is killed.
//!
//! A [`Directory`] holds an exclusive `flock` on itself for as long as it lives. The kernel releases the lock when the
//! process ends, however it ends. A process that makes the next directory with the same parent and prefix
//! recognises the directories of dead processes, and removes them.

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open};
use std::fs::{DirBuilder, create_dir_all, read_dir, remove_dir_all};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// A directory in memory: the place for buses, and for files that should cost no disk access.
pub const IN_MEMORY: &str = "/dev/shm";

/// The prefix of directories made by tests.
const TEST_PREFIX: &str = "toroni-test-";

/// All directories of this process that exist, for [`remove_all`].
static EXISTING: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Copies the files of a directory and of those below it, as a backup does, and puts them back. Files that are there already remain the
/// same ones, with other content. What is no file, such as a socket, is left out.
///
/// # Panics
/// If the file system refuses.
pub fn copy(from: &Path, to: &Path) {
    create_dir_all(to).expect("a directory");
    for entry in read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let (kind, target) = (entry.file_type().expect("its type"), to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&entry.path(), &target);
        } else if kind.is_file() {
            std::fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

/// A new, empty directory. Dropping it removes it with its content.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    name: String,
    number: u32,
    /// Shows other processes that this directory is in use.
    _lock: OwnedFd,
}

impl Directory {
    /// Makes a directory for a test below [`IN_MEMORY`].
    ///
    /// # Panics
    /// If the file system refuses.
    #[must_use]
    pub fn new() -> Self {
        Self::below(IN_MEMORY)
    }

    /// Makes a directory for a test below `parent`.
    ///
    /// # Panics
    /// If the file system refuses.
    #[must_use]
    pub fn below(parent: impl AsRef<Path>) -> Self {
        Self::create(parent.as_ref(), TEST_PREFIX, 0o777).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Makes the directory `parent/prefixPID-NUMBER`, and `parent` if it does not exist. The umask is applied to
    /// `mode`. Directories of dead processes with the same parent and prefix are removed first.
    ///
    /// # Errors
    /// If the file system refuses. The text of the error names the path.
    pub fn create(parent: &Path, prefix: &str, mode: u32) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        create_dir_all(parent).map_err(|error| about(parent, &error))?;
        remove_abandoned(parent, prefix);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("{}-{number}", std::process::id());
            let path = parent.join(format!("{prefix}{name}"));
            match DirBuilder::new().mode(mode).create(&path) {
                Ok(()) => {}
                // Of another process with this number: in another PID namespace, or of another user.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(about(&path, &error)),
            }
            // Until it is locked, another process can take it for abandoned and remove it.
            match lock(&path) {
                Ok(Some(lock)) => {
                    EXISTING.lock().unwrap_or_else(PoisonError::into_inner).push(path.clone());
                    return Ok(Self { path, name, number, _lock: lock });
                }
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    let _ = std::fs::remove_dir(&path);
                    return Err(about(&path, &error));
                }
            }
        }
    }

    /// Returns its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of an entry, which need not exist.
    #[must_use]
    pub fn join(&self, entry: impl AsRef<Path>) -> PathBuf {
        self.path.join(entry)
    }

    /// Returns `PID-NUMBER`, which differs among all directories of this machine that exist at the same time. Use it to
    /// name what is not a file, such as an abstract socket.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the NUMBER of [`Self::name`]: 0 for the first directory of this process, and one more for each next.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the names of its entries, hidden ones included, sorted.
    ///
    /// # Panics
    /// If it cannot be read.
    #[must_use]
    pub fn entries(&self) -> Vec<String> {
        entries(&self.path)
    }
}

impl Default for Directory {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        EXISTING.lock().unwrap_or_else(PoisonError::into_inner).retain(|path| *path != self.path);
        // If this fails, the next process tries again.
        let _ = remove_dir_all(&self.path);
    }
}

/// Returns the names in a directory, hidden ones included, sorted.
///
/// # Panics
/// If it cannot be read.
#[must_use]
pub fn entries(directory: &Path) -> Vec<String> {
    let entries =
        read_dir(directory).unwrap_or_else(|error| panic!("{}", about(directory, &error)));
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Removes every [`Directory`] of this process: for an end without destructors.
pub fn remove_all() {
    // Not `lock`: the thread that holds it may be the one that hangs.
    let Ok(existing) = EXISTING.try_lock() else { return };
    for path in existing.iter() {
        let _ = remove_dir_all(path);
    }
}

/// Removes the directories of dead processes.
fn remove_abandoned(parent: &Path, prefix: &str) {
    for entry in read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_ours = name.to_str().is_some_and(|name| is_name(name, prefix));
        // Those of living processes and of other users stay.
        if is_ours && let Ok(Some(_lock)) = lock(&entry.path()) {
            let _ = remove_dir_all(entry.path());
        }
    }
}

/// Whether it is `prefixPID-NUMBER`, so that one prefix may be the beginning of another.
fn is_name(name: &str, prefix: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let numbers = name.strip_prefix(prefix).and_then(|rest| rest.split_once('-'));
    numbers.is_some_and(|(pid, number)| is_number(pid) && is_number(number))
}

/// Locks a directory; `None` if another process has locked or removed it.
fn lock(directory: &Path) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let lock = open(directory, flags, Mode::empty())?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    // It may have been removed after the `open`.
    let is_linked = fstat(&lock)?.st_nlink > 0;
    Ok(is_linked.then_some(lock))
}

fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_differ_and_vanish_with_their_content() {
        let parent = Directory::new();
        let [one, other] = [(); 2].map(|()| Directory::below(parent.path()));
        assert_ne!((one.path(), one.name()), (other.path(), other.name()));
        std::fs::write(one.join("file"), "x").unwrap();
        drop(one);
        assert_eq!(parent.entries().len(), 1, "the other one is in use");
        drop(other);
        assert_eq!(parent.entries(), [""; 0]);
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_nothing_else() {
        let parent = Directory::new();
        let others = ["toroni-test-1", "toroni-test-1-2-3", "toroni-test-x-1", "x-1-1"];
        for name in others {
            std::fs::create_dir(parent.join(name)).unwrap();
        }
        let dead = parent.join("toroni-test-1-0");
        create_dir_all(dead.join("bus")).unwrap();
        let new = Directory::below(parent.path());
        assert!(!dead.exists());
        assert_eq!(parent.entries().len(), others.len() + 1);
        drop(new);
        assert_eq!(parent.entries().len(), others.len());
    }

    #[test]
    fn the_next_directory_removes_what_a_killed_process_left() {
        const PARENT: &str = "TORONI_TEST_PARENT";
        if let Some(parent) = std::env::var_os(PARENT) {
            let directory = Directory::below(&parent);
            std::fs::write(directory.join("file"), "x").unwrap();
            println!("\nready");
            loop {
                std::thread::park();
            }
        }
        let parent = Directory::new();
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let name = "directory::tests::the_next_directory_removes_what_a_killed_process_left";
        command.args(["--exact", name, "--nocapture"]).env(PARENT, parent.path());
        command.stdout(std::process::Stdio::piped());
        let mut child = crate::Program::start(command);
        child.line_where(|line| line == "ready");
        drop(Directory::below(parent.path()));
        assert_eq!(parent.entries().len(), 1, "that of a living process stays");
        child.kill();
        drop(Directory::below(parent.path()));
        assert_eq!(parent.entries(), [""; 0]);
    }

    #[test]
    fn many_at_once_do_not_remove_each_other() {
        let parent = Directory::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let directory = Directory::below(parent.path());
                        std::fs::write(directory.join("file"), "x").unwrap();
                    }
                });
            }
        });
        assert_eq!(parent.entries(), [""; 0]);
    }
}
