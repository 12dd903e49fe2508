//! What `fork` must not duplicate.
//!
//! A child made by `fork` shares its parent's open file descriptions: while it lives, the parent's
//! leases would stay held after the parent's death. So a handler runs in each child, before `fork`
//! returns there: it replaces every descriptor that carries a lock, and from then on all handles of
//! the parent answer [`Forked`].
//!
//! A child has the memory of all its parent's threads, but only one of them: a lock that another one held
//! stays closed in the child for ever. So there is one lock for the whole process, the gate, which `fork`
//! itself takes; what else is shared by the whole process needs none ([`Registry`]). This goes for
//! [`std::sync::Once`] and its relatives, too; [`Once`] takes their place.
//!
//! A child made by a raw `clone` runs no handlers and keeps the leases alive; this cannot be seen
//! from here and is documented.

use super::description::Mark;
use super::ofd;
use super::registry::{Entry, Registry};
use crate::error::Forked;
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
// Not from `crate::sync`: no model looks at these.
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

/// In which process, counted by forks, something was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ForkStamp(u32);

impl ForkStamp {
    /// The present process.
    pub(crate) fn now() -> Self {
        install_handlers();
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// The process, by a number that its parent and its other forebears do not have.
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// Whether this is still the process of the stamp. One relaxed load: only the forking thread
    /// lives on in a child, and it ran the handler itself.
    #[inline]
    pub(crate) fn check(self) -> Result<(), Forked> {
        if FORKS.load(Ordering::Relaxed) == self.0 { Ok(()) } else { Err(Forked) }
    }
}

/// A descriptor that carries locks and therefore must not live on in a child. There it becomes a
/// descriptor of nothing (an empty memory file), so that its number is not given to something else.
#[derive(Debug)]
pub(crate) struct ParentOnlyFd {
    fd: RawFd,
    stamp: ForkStamp,
    entry: &'static Entry<Descriptor>,
}

impl ParentOnlyFd {
    /// Opens with `open`, which makes a system call or two and nothing else: no `fork` happens between
    /// the opening and the registration, other threads' forks wait for it.
    pub(crate) fn open(open: impl FnOnce() -> Result<OwnedFd, Errno>) -> Result<Self, Errno> {
        let stamp = ForkStamp::now();
        let entry = DESCRIPTORS.take();
        let registered = {
            let _no_fork = NoFork::enter();
            open().and_then(|fd| {
                let mark = Mark::put(&fd)?;
                let fd = fd.into_raw_fd();
                entry.value.set_mark(mark);
                entry.value.fd.store(fd, Ordering::Release);
                Ok(fd)
            })
        };
        match registered {
            Ok(fd) => Ok(Self { fd, stamp, entry }),
            Err(error) => {
                entry.give_back();
                Err(error)
            }
        }
    }

    /// Whether the descriptor still stands for the description that was opened. `false` in a child, and
    /// after a `close_range` by code that knows nothing of this library.
    pub(crate) fn is_intact(&self) -> bool {
        self.stamp.check().is_ok() && self.is_ours()
    }

    /// Whether the number still stands for the description, or, in a child, for its replacement.
    fn is_ours(&self) -> bool {
        self.entry.value.matches(self.fd)
    }
}

impl AsFd for ParentOnlyFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: opened in `open` and closed only by the drop of self; in a child the same number
        // stands for its replacement.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }
}

impl AsRawFd for ParentOnlyFd {
    fn as_raw_fd(&self) -> RawFd {
        self.fd
    }
}

impl Drop for ParentOnlyFd {
    fn drop(&mut self) {
        let _no_fork = NoFork::enter();
        // Closing gives the locks back only when no copy is left, and there may be one for a moment:
        // `posix_spawn` runs no handlers, its child has all descriptors until it executes. In a child
        // the locks are the parent's.
        let is_ours = self.is_ours();
        if is_ours && self.stamp.check().is_ok() {
            let _ = ofd::unlock_all(&*self);
        }
        self.entry.value.fd.store(NONE, Ordering::Release);
        // Otherwise somebody closed it, and the number is nobody's or somebody else's.
        if is_ours {
            // SAFETY: the description that `open` made, or its replacement, by its mark; nothing uses it
            // after this.
            unsafe { libc::close(self.fd) };
        }
        self.entry.give_back();
    }
}

static FORKS: AtomicU32 = AtomicU32::new(0);
static DESCRIPTORS: Registry<Descriptor> = Registry::new();
/// The thread, as gettid(2) names it, that opens or closes a descriptor, does something [`Once`], or forks;
/// or [`NOBODY`].
static GATE: AtomicI32 = AtomicI32::new(NOBODY);
/// Whether it is a `fork` that has closed the gate.
static IS_CLOSED_BY_FORK: AtomicBool = AtomicBool::new(false);
const NOBODY: i32 = 0;
const NONE: RawFd = -1;
/// A `fork` waits for the gate no longer than this many looks, with a descriptor at most that the child keeps.
const LONGEST_WAIT_LOOKS: u32 = 100_000;

#[derive(Debug)]
pub(crate) struct Descriptor {
    fd: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
    offset: AtomicU64,
}

impl std::fmt::Debug for Entry<Descriptor> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.value.fmt(formatter)
    }
}

impl Default for Descriptor {
    fn default() -> Self {
        Self {
            fd: AtomicI32::new(NONE),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            offset: AtomicU64::new(0),
        }
    }
}

impl Descriptor {
    fn set_mark(&self, mark: Mark) {
        self.device.store(mark.device, Ordering::Relaxed);
        self.inode.store(mark.inode, Ordering::Relaxed);
        self.offset.store(mark.offset, Ordering::Relaxed);
    }

    /// Async-signal-safe.
    fn matches(&self, fd: RawFd) -> bool {
        let mark = Mark {
            device: self.device.load(Ordering::Relaxed),
            inode: self.inode.load(Ordering::Relaxed),
            offset: self.offset.load(Ordering::Relaxed),
        };
        // SAFETY: only asked which file it is and where its offset stands, which changes nothing whatever
        // the number stands for; if for nothing, the answer is an error.
        mark.is_on(unsafe { BorrowedFd::borrow_raw(fd) })
    }
}

struct NoFork;

impl NoFork {
    fn enter() -> Self {
        while !close_gate(u32::MAX) {}
        Self
    }
}

impl Drop for NoFork {
    fn drop(&mut self) {
        GATE.store(NOBODY, Ordering::Release);
    }
}

/// Something that a process does once. No `fork` happens meanwhile, so a child finds it done or not begun.
pub(crate) struct Once(AtomicBool);

impl Once {
    pub(crate) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Does it, unless it is done. `work` makes a few system calls and nothing else.
    pub(crate) fn call(&self, work: impl FnOnce()) {
        if self.0.load(Ordering::Acquire) {
            return;
        }
        install_handlers();
        let _no_fork = NoFork::enter();
        if !self.0.load(Ordering::Relaxed) {
            work();
            self.0.store(true, Ordering::Release);
        }
    }
}

/// Whether the calling thread has closed the gate, in so many looks.
fn close_gate(checks: u32) -> bool {
    let me = this_thread();
    for check in 0..checks {
        if GATE.compare_exchange(NOBODY, me, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return true;
        }
        // The holder is in two or three system calls.
        if check < 100 { std::hint::spin_loop() } else { std::thread::yield_now() }
    }
    false
}

/// Async-signal-safe.
fn this_thread() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// Without a lock, which a child could meet closed: threads that come at the same time each install the
/// handlers, which then run several times for a `fork`, and bear that.
fn install_handlers() {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if INSTALLED.load(Ordering::Acquire) {
        return;
    }
    // SAFETY: the three functions live as long as the program and are async-signal-safe.
    let answer = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    assert_eq!(answer, 0, "pthread_atfork: out of memory");
    INSTALLED.store(true, Ordering::Release);
}

extern "C" fn before() {
    // The thread that forks has the gate already if the handlers are installed twice, and if a signal has
    // interrupted it where it had closed the gate. Then whoever closed it opens it.
    if GATE.load(Ordering::Relaxed) != this_thread() && close_gate(LONGEST_WAIT_LOOKS) {
        IS_CLOSED_BY_FORK.store(true, Ordering::Relaxed);
    }
}

extern "C" fn in_parent() {
    if IS_CLOSED_BY_FORK.load(Ordering::Relaxed) && GATE.load(Ordering::Relaxed) == this_thread() {
        IS_CLOSED_BY_FORK.store(false, Ordering::Relaxed);
        GATE.store(NOBODY, Ordering::Release);
    }
}

/// Only async-signal-safe calls: the child of a process with threads may do nothing else.
extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    for entry in DESCRIPTORS.iter() {
        let fd = entry.value.fd.load(Ordering::Acquire);
        // Not ours any more if somebody closed it behind our back and its number is used again.
        if fd != NONE && entry.value.matches(fd) {
            // Without a replacement there is a mark that no description has, and the number is left alone.
            entry.value.set_mark(replace(fd).unwrap_or_default());
        }
    }
    IS_CLOSED_BY_FORK.store(false, Ordering::Relaxed);
    GATE.store(NOBODY, Ordering::Release);
}

/// Puts a descriptor of nothing in the place of `fd`, and returns its mark. A memory file, because it can
/// be marked: an eventfd has neither an inode nor an offset of its own.
fn replace(fd: RawFd) -> Option<Mark> {
    let create = || rustix::fs::memfd_create(c"toroni-forked", MemfdFlags::CLOEXEC);
    let nothing = create().or_else(|_| {
        // No descriptor left: this one makes room.
        // SAFETY: registered, hence ours; its number is filled again below.
        unsafe { libc::close(fd) };
        create()
    });
    let nothing = nothing.ok()?;
    let mark = Mark::put(&nothing).ok();
    if nothing.as_raw_fd() == fd {
        let _ = nothing.into_raw_fd();
    } else {
        // SAFETY: `fd` is registered, hence ours; `nothing` was created above, and is closed by its drop.
        unsafe { libc::dup3(nothing.as_raw_fd(), fd, libc::O_CLOEXEC) };
    }
    mark
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::testing::{TempDir, in_fork, in_own_process};

    fn locked(directory: &TempDir) -> ParentOnlyFd {
        let path = directory.path().join("file");
        ParentOnlyFd::open(|| Ok(std::fs::File::create(path).unwrap().into())).unwrap()
    }

    #[test]
    fn a_stamp_knows_its_process() {
        in_own_process("shm::fork::tests::a_stamp_knows_its_process", || {
            let stamp = ForkStamp::now();
            assert_eq!(stamp.check(), Ok(()));
            in_fork(move || {
                assert_eq!(stamp.check(), Err(Forked));
                assert_eq!(ForkStamp::now().check(), Ok(()));
            });
            assert_eq!(stamp.check(), Ok(()));
        });
    }

    #[test]
    fn the_child_has_a_descriptor_of_nothing() {
        in_own_process("shm::fork::tests::the_child_has_a_descriptor_of_nothing", || {
            let directory = TempDir::new();
            let fd = locked(&directory);
            assert!(fd.is_intact());
            let raw = fd.as_raw_fd();
            in_fork(move || {
                assert!(!fd.is_intact());
                let link = std::fs::read_link(format!("/proc/self/fd/{raw}")).unwrap();
                assert_eq!(link.to_str(), Some("/memfd:toroni-forked (deleted)"));
                drop(fd);
                assert!(std::fs::read_link(format!("/proc/self/fd/{raw}")).is_err());
            });
        });
    }

    #[test]
    fn the_child_leaves_a_number_that_is_used_again() {
        let name = "shm::fork::tests::the_child_leaves_a_number_that_is_used_again";
        in_own_process(name, || {
            let directory = TempDir::new();
            let fd = locked(&directory);
            let raw = fd.as_raw_fd();
            // What daemonising code does, and then opens something that gets this number.
            // SAFETY: the test's own descriptors.
            unsafe {
                let other = libc::open(c"/dev/zero".as_ptr(), libc::O_RDONLY);
                libc::dup3(other, raw, libc::O_CLOEXEC);
            }
            assert!(!fd.is_intact());
            in_fork(move || {
                let link = std::fs::read_link(format!("/proc/self/fd/{raw}")).unwrap();
                assert_eq!(link.to_str(), Some("/dev/zero"));
                std::mem::forget(fd);
            });
        });
    }

    #[test]
    fn a_child_made_amid_something_done_once_does_it_itself() {
        let name = "shm::fork::tests::a_child_made_amid_something_done_once_does_it_itself";
        in_own_process(name, || {
            static ONCE: Once = Once::new();
            let count = AtomicU32::new(0);
            let (entered, enter) = std::sync::mpsc::channel();
            let (go_on, told) = std::sync::mpsc::channel::<()>();
            let count_once = || ONCE.call(|| _ = count.fetch_add(1, Ordering::Relaxed));
            std::thread::scope(|scope| {
                let count = &count;
                scope.spawn(move || {
                    ONCE.call(|| {
                        entered.send(()).unwrap();
                        let _ = told.recv();
                        count.fetch_add(1, Ordering::Relaxed);
                    });
                });
                enter.recv().unwrap();
                // The thread takes longer than the fork waits for it.
                in_fork(|| {
                    count_once();
                    assert_eq!(count.load(Ordering::Relaxed), 1);
                });
                drop(go_on);
                count_once();
            });
            assert_eq!(count.load(Ordering::Relaxed), 1);
            in_fork(|| {
                count_once();
                assert_eq!(count.load(Ordering::Relaxed), 1, "it was done");
            });
        });
    }

    #[test]
    fn handlers_that_are_installed_twice_do_what_they_should() {
        let name = "shm::fork::tests::handlers_that_are_installed_twice_do_what_they_should";
        in_own_process(name, || {
            // As by threads that came at the same time.
            // SAFETY: as in `install_handlers`.
            unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
            let directory = TempDir::new();
            let fd = locked(&directory);
            let began = FORKS.load(Ordering::Relaxed);
            in_fork(|| {
                assert!(!fd.is_intact() && fd.stamp.check() == Err(Forked));
                assert_eq!(GATE.load(Ordering::Relaxed), NOBODY);
                drop(locked(&directory));
            });
            assert_eq!(
                (FORKS.load(Ordering::Relaxed), GATE.load(Ordering::Relaxed)),
                (began, NOBODY)
            );
            assert!(fd.is_intact());
        });
    }

    #[test]
    fn forks_amid_openings_leak_nothing() {
        in_own_process("shm::fork::tests::forks_amid_openings_leak_nothing", || {
            let directory = TempDir::new();
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        drop(locked(&directory));
                    }
                });
                for _ in 0..50 {
                    in_fork(|| {
                        let own = directory.path().join("file");
                        for link in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
                            assert_ne!(std::fs::read_link(link.path()).ok(), Some(own.clone()));
                        }
                    });
                }
                stop.store(true, Ordering::Relaxed);
            });
        });
    }
}
