//! What the tests of this module share: directories, and child processes.

use super::acl::Permissions;
use super::create;
use super::directory::BusDirectory;
use crate::settings::Settings;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use toroni_testkit::Directory;
pub(crate) use toroni_testkit::directory::entries as names;

/// A fresh directory in /dev/shm. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct TempDir(Directory);

impl TempDir {
    pub(crate) fn new() -> Self {
        Self(Directory::new())
    }

    pub(crate) fn below(parent: &str) -> Self {
        Self(Directory::below(parent))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Creates a small bus in the directory.
    pub(crate) fn bus(&self) -> BusDirectory {
        create::create(self.path(), "bus", &small(), &Permissions::default()).unwrap().0
    }

    /// Returns the names in the directory, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        self.0.entries()
    }
}

/// The smallest bus.
pub(crate) fn small() -> Settings {
    Settings {
        capacity: 64 << 10,
        topic_table_bytes: 4 << 10,
        max_publishers: 4,
        max_subscribers: 4,
        max_arrivals: 4,
        retained_topics: 4,
        retained_bytes: 4 << 10,
        ..Settings::default()
    }
}

const CHILD: &str = "TORONI_TEST_CHILD";

/// If this process is such a child, returns its task.
pub(crate) fn child_task() -> Option<String> {
    std::env::var(CHILD).ok()
}

/// Starts this test program again for the test `name` (its path within the crate) alone. The child finds `task` by
/// [`child_task`].
pub(crate) fn start_child(name: &str, task: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, task)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs `test` in a process of its own, where it may fork and install signal handlers.
pub(crate) fn in_own_process(name: &str, test: impl FnOnce()) {
    if child_task().is_some() {
        return test();
    }
    let output = start_child(name, "run").wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Runs `test` in a forked child and expects that it returns.
pub(crate) fn in_fork(test: impl FnOnce()) {
    // SAFETY: the child runs `test` and ends without returning to the test harness.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            let passed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test)).is_ok();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(if passed { 0 } else { 1 }) };
        }
        child => {
            let mut status = 0;
            // SAFETY: our child, and memory for its status.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "the forked child failed");
        }
    }
}

/// Gives this process its own mounts. Returns `false` if it lacks the rights. For tests that run
/// [`in_own_process`].
pub(crate) fn own_mounts() -> bool {
    // SAFETY: changes what this process sees, and nothing else.
    unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(
                c"none".as_ptr(),
                c"/".as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            ) == 0
    }
}

/// A mounted tmpfs. Dropping it unmounts it.
pub(crate) struct Mount(std::ffi::CString);

impl Drop for Mount {
    fn drop(&mut self) {
        // SAFETY: a string that lives until the call returns.
        unsafe { libc::umount2(self.0.as_ptr(), libc::MNT_DETACH) };
    }
}

/// Mounts a tmpfs. `options` are those of mount(8), except that `ro` is a flag.
pub(crate) fn mount_tmpfs(path: &Path, options: &str, flags: libc::c_ulong) -> Mount {
    let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let options = std::ffi::CString::new(options).unwrap();
    let kind = c"tmpfs".as_ptr();
    // SAFETY: strings that live until the call returns.
    let answer = unsafe { libc::mount(kind, path.as_ptr(), kind, flags, options.as_ptr().cast()) };
    assert_eq!(answer, 0, "mount: {}", std::io::Error::last_os_error());
    Mount(path)
}

/// Waits until `condition` is true, for ten seconds at most.
pub(crate) fn eventually(condition: impl FnMut() -> bool) {
    let limit = std::time::Duration::from_secs(10);
    assert!(toroni_testkit::wait::within(limit, condition), "it did not happen within {limit:?}");
}
