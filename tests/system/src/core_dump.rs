//! Core dumps that last as long as a test wants: the kernel asks it (fanotify(7)) before it opens the core file, when it
//! has stopped all threads of the process. At the end the test refuses, so that no core is written.

use rustix::event::{PollFd, PollFlags, poll};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use toroni_testkit::wait::LIMIT;

/// Where a process may dump core, when it is allowed to.
pub struct Morgue {
    directory: PathBuf,
    questions: File,
}

impl Morgue {
    /// Makes the directory. `None` where this machine dumps no cores into a process's directory, or does not ask this
    /// process.
    #[must_use]
    pub fn open(directory: PathBuf) -> Option<Self> {
        let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").expect("a pattern");
        if pattern.starts_with(['|', '/', '@']) || pattern.trim().is_empty() {
            eprintln!("skipped: cores go to {pattern:?}, not to the directory of the process");
            return None;
        }
        if rustix::process::getrlimit(rustix::process::Resource::Core).maximum == Some(0) {
            eprintln!("skipped: this process may dump no core");
            return None;
        }
        std::fs::create_dir(&directory).expect("a directory");
        match ask_before_opening(&directory) {
            Ok(questions) => Some(Self { directory, questions }),
            Err(error) => {
                eprintln!("skipped: a dump cannot be held up here (fanotify): {error}");
                None
            }
        }
    }

    /// The working directory of processes whose dumps are held.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Waits until a process is about to write its core. It waits until the answer is dropped.
    pub fn hold(&mut self, pid: u32) -> Answer {
        let mut fds = [PollFd::new(&self.questions, PollFlags::IN)];
        let limit = rustix::event::Timespec {
            tv_sec: LIMIT.as_secs().try_into().expect("short"),
            tv_nsec: 0,
        };
        assert_eq!(poll(&mut fds, Some(&limit)), Ok(1), "no core dump");
        // SAFETY: zeros are a valid event.
        let mut event: libc::fanotify_event_metadata = unsafe { std::mem::zeroed() };
        // SAFETY: the bytes of an event, which may have any value.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut((&raw mut event).cast::<u8>(), size_of_val(&event))
        };
        self.questions.read_exact(bytes).expect("an event");
        // SAFETY: the kernel opened it for this process.
        let file = unsafe { OwnedFd::from_raw_fd(event.fd) };
        assert_eq!(event.pid.unsigned_abs(), pid, "somebody else's file");
        assert!(is_dumping(pid));
        Answer { questions: self.questions.try_clone().expect("a descriptor"), file }
    }
}

/// The answer that lets a process continue to die.
pub struct Answer {
    questions: File,
    file: OwnedFd,
}

impl Drop for Answer {
    fn drop(&mut self) {
        let response =
            libc::fanotify_response { fd: self.file.as_raw_fd(), response: libc::FAN_DENY };
        // SAFETY: the bytes of two numbers.
        let bytes = unsafe {
            std::slice::from_raw_parts((&raw const response).cast::<u8>(), size_of_val(&response))
        };
        self.questions.write_all(bytes).expect("an answer");
    }
}

fn ask_before_opening(directory: &Path) -> std::io::Result<File> {
    let flags = libc::FAN_CLASS_CONTENT | libc::FAN_CLOEXEC;
    // SAFETY: creates a descriptor.
    let fd = unsafe { libc::fanotify_init(flags, libc::O_RDONLY.unsigned_abs()) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the descriptor was made just now, and has no other owner.
    let questions = unsafe { File::from_raw_fd(fd) };
    let path = std::ffi::CString::new(directory.as_os_str().as_bytes()).expect("a path");
    let mask = libc::FAN_OPEN_PERM | libc::FAN_EVENT_ON_CHILD;
    // SAFETY: a string that lives until the call returns.
    let answer =
        unsafe { libc::fanotify_mark(fd, libc::FAN_MARK_ADD, mask, libc::AT_FDCWD, path.as_ptr()) };
    if answer == 0 { Ok(questions) } else { Err(std::io::Error::last_os_error()) }
}

/// Whether the process is writing its core.
#[must_use]
pub fn is_dumping(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    status.is_ok_and(|status| status.contains("CoreDumping:\t1"))
}
