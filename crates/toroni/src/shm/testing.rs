//! What the tests of this module share: directories, and processes of their own.

use super::acl::Permissions;
use super::create;
use super::directory::BusDirectory;
use crate::settings::Settings;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A fresh directory in /dev/shm, removed by the drop.
#[derive(Debug)]
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> Self {
        Self::below("/dev/shm")
    }

    pub(crate) fn below(parent: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = format!("{parent}/toroni-test-{}-{count}", std::process::id());
            match std::fs::create_dir(&path) {
                Ok(()) => return Self(path.into()),
                // Of a process that was killed, and had this number before.
                Err(error) => assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{path}"),
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// A small bus in it.
    pub(crate) fn bus(&self) -> BusDirectory {
        create::create(&self.0, "bus", &small(), &Permissions::default()).unwrap()
    }

    /// Names in it, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        names(&self.0)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// The smallest bus.
pub(crate) fn small() -> Settings {
    Settings {
        capacity: 64 << 10,
        topic_table_bytes: 4 << 10,
        max_publishers: 4,
        max_subscribers: 4,
        ..Settings::default()
    }
}

const CHILD: &str = "TORONI_TEST_CHILD";

/// What a child was started to do, if this is one.
pub(crate) fn child_task() -> Option<String> {
    std::env::var(CHILD).ok()
}

/// Starts this test program again for the test `name` (its path within the crate) alone, with
/// `task` for [`child_task`].
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
            // SAFETY: our child, and room for its status.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "the forked child failed");
        }
    }
}

/// Gives this process mounts of its own; `false` if that needs more rights than it has. For tests
/// that are [`in_own_process`].
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

/// A mounted tmpfs, until the drop.
pub(crate) struct Mount(std::ffi::CString);

impl Drop for Mount {
    fn drop(&mut self) {
        // SAFETY: a string that lives until the call returns.
        unsafe { libc::umount2(self.0.as_ptr(), libc::MNT_DETACH) };
    }
}

/// Mounts a tmpfs; `options` as for mount(8), with `ro` by its flag.
pub(crate) fn mount_tmpfs(path: &Path, options: &str, flags: libc::c_ulong) -> Mount {
    let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let options = std::ffi::CString::new(options).unwrap();
    let kind = c"tmpfs".as_ptr();
    // SAFETY: strings that live until the call returns.
    let answer = unsafe { libc::mount(kind, path.as_ptr(), kind, flags, options.as_ptr().cast()) };
    assert_eq!(answer, 0, "mount: {}", std::io::Error::last_os_error());
    Mount(path)
}

/// Waits for `condition`, for ten seconds at most.
pub(crate) fn eventually(condition: impl FnMut() -> bool) {
    let mut condition = condition;
    for _ in 0..10_000 {
        if condition() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("it did not happen within ten seconds");
}
