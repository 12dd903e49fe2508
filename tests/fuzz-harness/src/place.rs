//! Directories in memory, for the buses of trials.
//!
//! They go with the process that has made them, however it ends: a fuzzer that finds something aborts, and a
//! simulator is killed when somebody has seen enough. So a shell waits beside it for its end, and removes what
//! it left.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A directory in memory, removed by the drop, or at the end of the process.
#[derive(Debug)]
pub struct Directory(PathBuf);

/// How many there are. The directory that all of a process lie in is there while one of them is.
static LIVING: Mutex<usize> = Mutex::new(0);

impl Directory {
    /// A new one; `what` is a part of its name.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn new(what: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let above = above();
        remove_in_the_end(&above);
        let mut living = LIVING.lock().unwrap_or_else(PoisonError::into_inner);
        let path = above.join(format!("{what}-{number}"));
        std::fs::create_dir_all(&above).unwrap();
        // Refuses one that is there: it would hold the files of somebody else.
        std::fs::create_dir(&path).unwrap();
        *living += 1;
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
        let mut living = LIVING.lock().unwrap_or_else(PoisonError::into_inner);
        *living -= 1;
        if *living == 0 {
            let _ = std::fs::remove_dir(above());
        }
    }
}

fn above() -> PathBuf {
    format!("/dev/shm/toroni-test-trials-{}", std::process::id()).into()
}

/// Its input ends with this process, which says nothing. Nobody else has the other end: it is closed in
/// programs that this one starts.
fn remove_in_the_end(directory: &Path) {
    static KEEPER: OnceLock<Option<Child>> = OnceLock::new();
    KEEPER.get_or_init(|| {
        Command::new("sh")
            .args(["-c", "read -r _; rm -rf -- \"$0\""])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C is not for it.
            .process_group(0)
            .spawn()
            .inspect_err(|error| eprintln!("nobody will remove {}: {error}", directory.display()))
            .ok()
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::time::{Duration, Instant};

    const KILLED: &str = "TORONI_TEST_KILLED";

    #[test]
    fn what_is_dropped_is_gone() {
        let [one, other] = ["one", "other"].map(Directory::new);
        let paths = [one.path().to_owned(), other.path().to_owned()];
        std::fs::write(one.path().join("file"), "x").unwrap();
        drop(one);
        assert!(!paths[0].exists() && paths[1].exists());
        drop(other);
        assert!(!paths[1].exists());
    }

    #[test]
    fn whoever_is_killed_leaves_nothing() {
        if std::env::var_os(KILLED).is_some() {
            let directory = Directory::new("killed");
            std::fs::write(directory.path().join("file"), "x").unwrap();
            println!("\nit is {}", directory.path().display());
            loop {
                std::thread::park();
            }
        }
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "place::tests::whoever_is_killed_leaves_nothing", "--nocapture"])
            .env(KILLED, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        let path = said
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("it is ").map(PathBuf::from));
        let path = path.unwrap();
        assert!(path.join("file").exists());
        child.kill().unwrap();
        child.wait().unwrap();
        let above = path.parent().unwrap();
        let begun = Instant::now();
        while above.exists() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{} stays", above.display());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
