//! Network namespaces without a name.

use crate::{Process, Program};
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// A network namespace (network_namespaces(7)) that only a descriptor of this process holds.
///
/// It has no name and no file, so nothing of it is visible outside of this process. The kernel removes it, with all its
/// interfaces, when the last descriptor, socket and process in it is gone. That happens after a SIGKILL, too: children
/// that were started with [`Process`] or [`Program`] die with this process.
#[derive(Clone, Debug)]
pub struct Namespace(Arc<OwnedFd>);

impl Namespace {
    /// Makes a namespace. It has only a loopback interface, which is up.
    ///
    /// # Errors
    /// If the caller lacks `CAP_SYS_ADMIN`, or the kernel has no namespaces.
    pub fn new() -> io::Result<Self> {
        // A thread of its own leaves the namespace of this process, and ends there.
        let made = std::thread::spawn(|| {
            check(unsafe_calls::unshare(libc::CLONE_NEWNET))?;
            File::open("/proc/thread-self/ns/net")
        });
        let namespace = Self(Arc::new(made.join().expect("no panic")?.into()));
        namespace.try_ip(&["link set lo up"]).map_err(io::Error::other)?;
        Ok(namespace)
    }

    /// Runs `work` in a thread that is in this namespace, and returns its result. Sockets that it opens stay in the
    /// namespace. `/sys` describes the namespace; in `/proc`, only `/proc/thread-self/net` does.
    ///
    /// Do not start a [`Process`] in `work`, because it would die with the thread. Use [`Self::command`].
    ///
    /// # Panics
    /// If the namespace cannot be entered, or `work` panics.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let descriptor = self.0.as_raw_fd();
        let entered = std::thread::scope(|scope| {
            let run = move || {
                move_into(descriptor).expect("a namespace that can be entered");
                work()
            };
            scope.spawn(run).join()
        });
        entered.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Returns a command that runs in this namespace. Its `/sys` and `/proc/net` describe the namespace.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        let namespace = Arc::clone(&self.0);
        // SAFETY: system calls between fork and exec, on constants and a descriptor that the closure keeps open.
        unsafe { command.pre_exec(move || move_into(namespace.as_raw_fd())) };
        command
    }

    /// Runs these commands of `ip` (ip(8), without the word `ip`) in the namespace, with one process.
    ///
    /// # Panics
    /// If one of them fails.
    pub fn ip(&self, commands: &[impl AsRef<str>]) {
        self.try_ip(commands).unwrap_or_else(|error| panic!("{error}"));
    }

    fn try_ip(&self, commands: &[impl AsRef<str>]) -> Result<(), String> {
        let script: String = commands.iter().map(|line| format!("{}\n", line.as_ref())).collect();
        let mut ip = self.command("ip");
        ip.args(["-batch", "-"]);
        ip.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Not a `Program`, which would panic if there is no `ip`.
        let mut process =
            Process::spawn(&mut ip).map_err(|error| format!("cannot start `ip`: {error}"))?;
        let mut stdin = process.stdin().expect("a pipe");
        let written = stdin.write_all(script.as_bytes());
        drop(stdin);
        let mut stderr = String::new();
        let read = process.stderr().expect("a pipe");
        io::read_to_string(read).map(|text| stderr = text).map_err(|error| error.to_string())?;
        match process.wait_within(crate::wait::LIMIT) {
            Ok(Some(status)) if status.success() && written.is_ok() => Ok(()),
            other => Err(format!("`ip` failed ({other:?}): {stderr}\n{script}")),
        }
    }

    /// Writes a setting below `/proc/sys/net` of the namespace, for example `ipv6/conf/all/disable_ipv6`.
    ///
    /// # Panics
    /// If the kernel refuses it.
    pub fn set(&self, name: &str, value: &str) {
        let path = format!("/proc/sys/net/{name}");
        let result = self.enter(|| std::fs::write(&path, value));
        result.unwrap_or_else(|error| panic!("{path} = {value}: {error}"));
    }

    /// Whether all its virtual cables carry frames. The end that is up first learns later that the other one is up too,
    /// from a worker of the kernel that runs once a second at the latest. Until then it drops, uncounted, what it sends.
    pub(super) fn has_active_cables(&self) -> bool {
        let listed = self.run("ip", &["-oneline", "link", "show", "type", "veth"]);
        listed.lines().all(|line| line.contains(" qdisc noqueue ") && line.contains(" state UP "))
    }

    /// Returns a path by which children of this process find the namespace, for `ip link … netns PATH`.
    pub(super) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Runs a program in the namespace to its end, which must be a success, and returns what it printed.
    ///
    /// # Panics
    /// If it fails.
    #[must_use]
    pub fn run(&self, program: &str, arguments: &[&str]) -> String {
        let mut command = self.command(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Program::start(command).succeed()
    }
}

/// Moves the calling thread into the namespace. As `ip netns exec` does, it mounts a sysfs of the namespace, in a mount
/// namespace of its own: the mounted one shows the interfaces of the namespace in which it was mounted.
fn move_into(namespace: RawFd) -> io::Result<()> {
    const SYS: &CStr = c"/sys";
    const SYSFS: &CStr = c"sysfs";
    check(unsafe_calls::setns(namespace, libc::CLONE_NEWNET))?;
    check(unsafe_calls::unshare(libc::CLONE_NEWNS))?;
    // Mounts of this thread must not reach the others.
    check(unsafe_calls::mount(None, c"/", None, libc::MS_REC | libc::MS_SLAVE))?;
    let flags = libc::MS_NOSUID | libc::MS_NOEXEC | libc::MS_NODEV;
    check(unsafe_calls::mount(Some(SYSFS), SYS, Some(SYSFS), flags))
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// System calls that change only the calling thread. None of them allocates, so they may stand between fork and exec.
mod unsafe_calls {
    use libc::{c_int, c_ulong};
    use std::ffi::CStr;
    use std::os::fd::RawFd;
    use std::ptr::null;

    pub(super) fn unshare(flags: c_int) -> c_int {
        // SAFETY: it takes no pointer.
        unsafe { libc::unshare(flags) }
    }

    pub(super) fn setns(namespace: RawFd, kind: c_int) -> c_int {
        // SAFETY: it takes no pointer.
        unsafe { libc::setns(namespace, kind) }
    }

    pub(super) fn mount(
        source: Option<&CStr>,
        target: &CStr,
        kind: Option<&CStr>,
        flags: c_ulong,
    ) -> c_int {
        let [source, kind] = [source, kind].map(|text| text.map_or(null(), CStr::as_ptr));
        // SAFETY: each pointer is null or a C string that outlives the call; no data is passed.
        unsafe { libc::mount(source, target.as_ptr(), kind, flags, null()) }
    }
}
