//! Keeps `fork` from duplicating what must stay with the parent.
//!
//! A child made by `fork` shares the open file descriptions of its parent. While the child lives, the parent's
//! leases would stay held even after the parent's death. So a handler runs in each child before `fork` returns
//! there. It replaces every descriptor that carries a lock, and from then on all handles of the parent return
//! [`Forked`].
//!
//! A child has the memory of all threads of its parent, but only one of the threads. A lock that another thread
//! held would stay locked in the child for ever. So the library has only one lock for the whole process: the gate,
//! which `fork` itself takes. Everything else that is shared by the whole process works without a lock
//! ([`Registry`]). [`std::sync::Once`] and similar types contain such locks, too, so [`Once`] takes their place.
//!
//! A child made by a raw `clone` runs no handlers and keeps the leases alive. This cannot be detected here; it is
//! documented.

use super::description::DescriptionId;
use super::ofd;
use super::registry::{Entry, Registry};
use crate::error::Forked;
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
// Not from `crate::sync`: these are not part of a model.
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

/// The process in which something was made, counted by forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ForkStamp(u32);

impl ForkStamp {
    /// Returns the stamp of the present process.
    pub(crate) fn now() -> Self {
        install_handlers();
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Returns a number of the process that its parent and earlier ancestors do not have.
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// Checks that this is still the process of the stamp. One relaxed load suffices: a child has only the thread
    /// that forked, and that thread ran the handler itself.
    #[inline]
    pub(crate) fn check(self) -> Result<(), Forked> {
        if FORKS.load(Ordering::Relaxed) == self.0 { Ok(()) } else { Err(Forked) }
    }
}

/// A descriptor that carries locks and therefore must not survive in a child. There it becomes a descriptor of
/// nothing (an empty memory file), so that its number is not used for something else.
#[derive(Debug)]
pub(crate) struct ParentOnlyFd {
    fd: RawFd,
    stamp: ForkStamp,
    entry: &'static Entry<Descriptor>,
}

impl ParentOnlyFd {
    /// Opens with `open`, which makes only one or two system calls. Forks by other threads wait, so none happens
    /// between the opening and the registration.
    pub(crate) fn open(open: impl FnOnce() -> Result<OwnedFd, Errno>) -> Result<Self, Errno> {
        let stamp = ForkStamp::now();
        let entry = DESCRIPTORS.take();
        let registered = {
            let _no_fork = NoFork::enter();
            open().and_then(|fd| {
                let id = DescriptionId::assign(&fd)?;
                let fd = fd.into_raw_fd();
                entry.value.set_id(id);
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

    /// Returns whether the descriptor still stands for the description that was opened. It does not in a child, nor
    /// after `close_range` by code that knows nothing of this library.
    pub(crate) fn is_intact(&self) -> bool {
        self.stamp.check().is_ok() && self.is_ours()
    }

    /// Returns whether the number still stands for the description or, in a child, for its replacement.
    fn is_ours(&self) -> bool {
        self.entry.value.matches(self.fd)
    }
}

impl AsFd for ParentOnlyFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: `open` opened it, and only the drop of self closes it. In a child the same number stands for its
        // replacement.
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
        // Unlock explicitly: closing drops the locks only when no copy of the descriptor is left. There may be one
        // for a moment, because the child of `posix_spawn` runs no handlers and has all descriptors until it
        // executes. In a forked child the locks belong to the parent.
        let is_ours = self.is_ours();
        if is_ours && self.stamp.check().is_ok() {
            let _ = ofd::unlock_all(&*self);
        }
        self.entry.value.fd.store(NONE, Ordering::Release);
        // Otherwise other code closed it, and the number stands for nothing or for something else.
        if is_ours {
            // SAFETY: by its id it is the description that `open` made, or its replacement. Nothing uses it after
            // this.
            unsafe { libc::close(self.fd) };
        }
        self.entry.give_back();
    }
}

static FORKS: AtomicU32 = AtomicU32::new(0);
static DESCRIPTORS: Registry<Descriptor> = Registry::new();
/// The id (gettid(2)) of the thread that opens or closes a descriptor, executes a [`Once`], or forks; or
/// [`NO_THREAD`].
static GATE: AtomicI32 = AtomicI32::new(NO_THREAD);
/// Whether a `fork` has closed the gate.
static IS_CLOSED_BY_FORK: AtomicBool = AtomicBool::new(false);
const NO_THREAD: i32 = 0;
const NONE: RawFd = -1;
/// After this many checks, `fork` no longer waits for the gate. Then the child keeps at most one descriptor.
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
    fn set_id(&self, id: DescriptionId) {
        self.device.store(id.device, Ordering::Relaxed);
        self.inode.store(id.inode, Ordering::Relaxed);
        self.offset.store(id.offset, Ordering::Relaxed);
    }

    /// Async-signal-safe.
    fn matches(&self, fd: RawFd) -> bool {
        let id = DescriptionId {
            device: self.device.load(Ordering::Relaxed),
            inode: self.inode.load(Ordering::Relaxed),
            offset: self.offset.load(Ordering::Relaxed),
        };
        // SAFETY: this only queries the identity and the offset of the file, which changes nothing, whatever the
        // number stands for. If it stands for nothing, the result is an error.
        id.is_of(unsafe { BorrowedFd::borrow_raw(fd) })
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
        GATE.store(NO_THREAD, Ordering::Release);
    }
}

/// Something that a process does once. No `fork` happens while it does, so a child finds it either done or not
/// begun.
pub(crate) struct Once(AtomicBool);

impl Once {
    pub(crate) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Calls `work`, unless that was done before. `work` makes only a few system calls.
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

/// Tries to close the gate for the calling thread, with at most `checks` checks. Returns whether it did.
fn close_gate(checks: u32) -> bool {
    let me = this_thread();
    for check in 0..checks {
        if GATE.compare_exchange(NO_THREAD, me, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return true;
        }
        // The holder makes two or three system calls.
        if check < 100 { std::hint::spin_loop() } else { std::thread::yield_now() }
    }
    false
}

/// Async-signal-safe.
fn this_thread() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// Takes no lock, because a child could find it locked. Threads that come at the same time each install the
/// handlers, which then run several times for each `fork`, and allow for that.
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
    // The forking thread already has the gate if the handlers are installed twice, or if a signal interrupted it
    // after it closed the gate. Then whatever closed the gate opens it.
    if GATE.load(Ordering::Relaxed) != this_thread() && close_gate(LONGEST_WAIT_LOOKS) {
        IS_CLOSED_BY_FORK.store(true, Ordering::Relaxed);
    }
}

extern "C" fn in_parent() {
    if IS_CLOSED_BY_FORK.load(Ordering::Relaxed) && GATE.load(Ordering::Relaxed) == this_thread() {
        IS_CLOSED_BY_FORK.store(false, Ordering::Relaxed);
        GATE.store(NO_THREAD, Ordering::Release);
    }
}

/// Makes only async-signal-safe calls: the child of a process with several threads may do nothing else.
extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    for entry in DESCRIPTORS.iter() {
        let fd = entry.value.fd.load(Ordering::Acquire);
        // If other code closed it and its number is used again, it is not ours any more.
        if fd != NONE && entry.value.matches(fd) {
            // If there is no replacement, set an id that no description has, and leave the number alone.
            entry.value.set_id(replace(fd).unwrap_or_default());
        }
    }
    IS_CLOSED_BY_FORK.store(false, Ordering::Relaxed);
    GATE.store(NO_THREAD, Ordering::Release);
}

/// Replaces `fd` by a descriptor of nothing, and returns its id. That is a memory file, because it can be numbered:
/// an eventfd has neither an inode nor an offset of its own.
fn replace(fd: RawFd) -> Option<DescriptionId> {
    let create = || rustix::fs::memfd_create(c"toroni-forked", MemfdFlags::CLOEXEC);
    let nothing = create().or_else(|_| {
        // No descriptor is left, so close this one first.
        // SAFETY: it is registered, so it is ours. Its number is filled again below.
        unsafe { libc::close(fd) };
        create()
    });
    let nothing = nothing.ok()?;
    let id = DescriptionId::assign(&nothing).ok();
    if nothing.as_raw_fd() == fd {
        let _ = nothing.into_raw_fd();
    } else {
        // SAFETY: `fd` is registered, so it is ours. `nothing` was created above, and its drop closes it.
        unsafe { libc::dup3(nothing.as_raw_fd(), fd, libc::O_CLOEXEC) };
    }
    id
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
            // This is what daemonising code does. Then it opens something that gets this number.
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
            // As if several threads had come at the same time.
            // SAFETY: as in `install_handlers`.
            unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
            let directory = TempDir::new();
            let fd = locked(&directory);
            let began = FORKS.load(Ordering::Relaxed);
            in_fork(|| {
                assert!(!fd.is_intact() && fd.stamp.check() == Err(Forked));
                assert_eq!(GATE.load(Ordering::Relaxed), NO_THREAD);
                drop(locked(&directory));
            });
            assert_eq!(
                (FORKS.load(Ordering::Relaxed), GATE.load(Ordering::Relaxed)),
                (began, NO_THREAD)
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
