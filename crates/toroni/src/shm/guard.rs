//! Survives the truncation of a mapped file.
//!
//! A load after the end of a mapped file raises SIGBUS, and any process that may write `readers` may truncate it.
//! If the address is in a registered mapping, the signal handler maps a page of zeros in place of the lost page and
//! marks the mapping as damaged. The load is then repeated and returns 0. Every other SIGBUS is passed to the
//! handler that was installed before, or to the default, which ends the process.
//!
//! There are two limits. The kernel kills a thread that faults while it blocks SIGBUS. And a handler that is
//! installed later and does not call the earlier one disables this protection.

use super::fork::Once;
use super::registry::{Entry, Registry};
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
// Not from `crate::sync`: these are not part of a model.
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering, fence};

/// Guards a mapping until it is dropped. It must be dropped before the mapping is unmapped.
#[derive(Debug)]
pub(crate) struct Guarded(&'static Entry<Range>);

impl Guarded {
    /// Guards `length` bytes at `start`, both multiples of the page size, mapped with `protection`
    /// (PROT_READ, PROT_WRITE).
    pub(crate) fn new(start: usize, length: usize, protection: c_int) -> Self {
        install_handler();
        let entry = RANGES.take();
        entry.value.end.store(start + length, Ordering::Relaxed);
        entry.value.protection.store(protection, Ordering::Relaxed);
        entry.value.damaged.store(false, Ordering::Relaxed);
        // Label RANGE: a thread that sees the start sees the rest.
        entry.value.start.store(start, Ordering::Release);
        Self(entry)
    }

    /// Returns whether a page was lost.
    #[inline]
    pub(crate) fn was_damaged(&self) -> bool {
        self.0.value.damaged.load(Ordering::Acquire)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.0.value.start.store(NOWHERE, Ordering::Release);
        self.0.give_back();
    }
}

static RANGES: Registry<Range> = Registry::new();
const NOWHERE: usize = 0;

#[derive(Debug, Default)]
struct Range {
    /// [`NOWHERE`] if the entry guards nothing.
    start: AtomicUsize,
    end: AtomicUsize,
    protection: AtomicI32,
    damaged: AtomicBool,
}

impl std::fmt::Debug for Entry<Range> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.value.fmt(formatter)
    }
}

impl Range {
    fn contains(&self, address: usize) -> bool {
        let start = self.start.load(Ordering::Acquire); // RANGE
        let end = self.end.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        // If the start is unchanged, start and end belong together: another thread may be reusing this entry for
        // another mapping right now. The entry of the mapping that faulted does not change, because that mapping is
        // in use.
        start != NOWHERE
            && self.start.load(Ordering::Relaxed) == start
            && (start..end).contains(&address)
    }
}

/// The handler that was installed before ours.
struct Previous {
    action: UnsafeCell<MaybeUninit<libc::sigaction>>,
    known: AtomicBool,
}

// SAFETY: it is written once, before `known` is set with release, and read only after `known` was seen with
// acquire.
unsafe impl Sync for Previous {}

static PREVIOUS: Previous =
    Previous { action: UnsafeCell::new(MaybeUninit::uninit()), known: AtomicBool::new(false) };
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);

fn install_handler() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call(|| {
        PAGE_BYTES.store(rustix::param::page_size(), Ordering::Relaxed);
        // SAFETY: first a query, with memory for the answer; then, once, the only write to `PREVIOUS`; then the
        // installation of a handler that is async-signal-safe. `zeroed` is a valid sigaction.
        unsafe {
            let mut previous: libc::sigaction = std::mem::zeroed();
            let answer = libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut previous);
            assert_eq!(answer, 0, "SIGBUS exists");
            (*PREVIOUS.action.get()).write(previous);
            PREVIOUS.known.store(true, Ordering::Release);
            let mut ours: libc::sigaction = std::mem::zeroed();
            ours.sa_sigaction = handler() as usize;
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
            ours.sa_mask = previous.sa_mask;
            let answer = libc::sigaction(libc::SIGBUS, &raw const ours, std::ptr::null_mut());
            assert_eq!(answer, 0, "SIGBUS can be handled");
        }
    });
}

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

fn handler() -> Handler {
    on_sigbus
}

/// Uses only atomics and system calls, because it may interrupt any instruction of any thread.
extern "C" fn on_sigbus(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo to a handler with SA_SIGINFO.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code == libc::BUS_ADRERR && mend(address) {
        return;
    }
    pass_on(signal, info, context, code);
}

/// Maps a page of zeros at `address` if it is in a guarded mapping. Returns whether it can be read again.
fn mend(address: usize) -> bool {
    let Some(entry) = RANGES.iter().find(|entry| entry.value.contains(address)) else {
        return false;
    };
    let page_bytes = PAGE_BYTES.load(Ordering::Relaxed);
    // Before the page: a thread that reads its zeros can then see the damage.
    entry.value.damaged.store(true, Ordering::SeqCst);
    // SAFETY: returns the address of this thread's errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above for errno. The page lies in a mapping of this library, which is in use, since it faulted.
    // MAP_FIXED replaces that page only. Shared mappings hold nothing but atomics, so no reference is broken by
    // other bytes. A raw system call is async-signal-safe.
    unsafe {
        let saved = *errno;
        let answer = libc::syscall(
            libc::SYS_mmap,
            address & !(page_bytes - 1),
            page_bytes,
            entry.value.protection.load(Ordering::Relaxed),
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        );
        *errno = saved;
        answer != -1
    }
}

fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, code: c_int) {
    if PREVIOUS.known.load(Ordering::Acquire) {
        // SAFETY: `known` is set, so it was written, and is never written again.
        let previous = unsafe { (*PREVIOUS.action.get()).assume_init_ref() };
        let sent_by_a_process = code <= 0;
        match previous.sa_sigaction {
            libc::SIG_DFL => {}
            libc::SIG_IGN if sent_by_a_process => return,
            libc::SIG_IGN => {}
            function if previous.sa_flags & libc::SA_SIGINFO != 0 => {
                // SAFETY: a handler installed with SA_SIGINFO has this type.
                let function = unsafe { std::mem::transmute::<usize, Handler>(function) };
                return function(signal, info, context);
            }
            function => {
                // SAFETY: a handler installed without SA_SIGINFO has this type.
                let function =
                    unsafe { std::mem::transmute::<usize, extern "C" fn(c_int)>(function) };
                return function(signal);
            }
        }
    }
    // The default ends the process. The signal is delivered when this handler returns, before the interrupted
    // instruction is repeated, so that a core dump shows the right location.
    // SAFETY: these calls are async-signal-safe; `zeroed` is a valid sigaction, that of SIG_DFL.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, &raw const default, std::ptr::null_mut());
        libc::raise(signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::mapping::{Mapping, Protection};
    use crate::shm::testing::{TempDir, child_task, in_own_process, start_child};
    use crate::sync::AtomicU64;
    use std::os::unix::process::ExitStatusExt;

    fn guarded_file(protection: Protection) -> (TempDir, std::fs::File, Mapping) {
        guarded_below("/dev/shm", protection)
    }

    fn guarded_below(parent: &str, protection: Protection) -> (TempDir, std::fs::File, Mapping) {
        let directory = TempDir::below(parent);
        let path = directory.path().join("file");
        std::fs::write(&path, [0xFF; 4 * 4096]).unwrap();
        let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
        let mapping = Mapping::file(&file, 4 * 4096, protection).unwrap();
        (directory, file, mapping)
    }

    #[test]
    fn a_truncated_file_reads_as_zeros() {
        let (_directory, file, mapping) = guarded_file(Protection::Read);
        let (first, last): (&AtomicU64, &AtomicU64) =
            (mapping.at(0).unwrap(), mapping.at(3 * 4096).unwrap());
        assert_eq!(last.load(Ordering::Relaxed), u64::MAX);
        file.set_len(4096).unwrap();
        assert!(!mapping.was_damaged());
        assert_eq!(last.load(Ordering::Relaxed), 0);
        assert!(mapping.was_damaged());
        assert_eq!(first.load(Ordering::Relaxed), u64::MAX);
    }

    #[test]
    fn a_truncated_file_can_be_written() {
        let (_directory, file, mapping) = guarded_file(Protection::Write);
        file.set_len(0).unwrap();
        let word: &AtomicU64 = mapping.at(8).unwrap();
        assert_eq!(word.fetch_add(7, Ordering::Relaxed), 0);
        assert_eq!(word.load(Ordering::Relaxed), 7);
        assert!(mapping.was_damaged());
    }

    #[test]
    fn threads_that_fault_at_once_all_go_on() {
        let mappings: Vec<_> = (0..40).map(|_| guarded_file(Protection::Read)).collect();
        for (_, file, _) in &mappings {
            file.set_len(0).unwrap();
        }
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for (_, _, mapping) in &mappings {
                        for page in 0..4 {
                            let word: &AtomicU64 = mapping.at(page * 4096).unwrap();
                            assert_eq!(word.load(Ordering::Relaxed), 0);
                        }
                        drop(guarded_file(Protection::Read));
                    }
                });
            }
        });
        assert!(mappings.iter().all(|(_, _, mapping)| mapping.was_damaged()));
    }

    /// Raises SIGBUS at a mapping that is not guarded.
    fn fault_elsewhere(parent: &str) {
        let directory = TempDir::below(parent);
        let file = std::fs::File::create_new(directory.path().join("file")).unwrap();
        // SAFETY: a new mapping, of an empty file.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ,
                libc::MAP_SHARED,
                std::os::fd::AsRawFd::as_raw_fd(
                    &std::fs::File::open(directory.path().join("file")).unwrap(),
                ),
                0,
            )
        };
        drop((file, directory));
        // SAFETY: the address is mapped. The load raises SIGBUS, as intended.
        unsafe { address.cast::<u8>().read_volatile() };
    }

    #[test]
    fn a_fault_elsewhere_still_kills() {
        let name = "shm::guard::tests::a_fault_elsewhere_still_kills";
        let Some(task) = child_task() else {
            for task in ["fault", "sent"] {
                // The parent's directory, because the child dies without cleaning up.
                let directory = TempDir::new();
                let task = format!("{task} {}", directory.path().display());
                let output = start_child(name, &task).wait_with_output().unwrap();
                assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{task}");
            }
            return;
        };
        let (task, parent) = task.split_once(' ').unwrap();
        if task == "fault" {
            let _guarded = guarded_below(parent, Protection::Read);
            fault_elsewhere(parent);
        } else {
            // Without the handler of Rust's runtime, which waits for the fault to be repeated.
            // SAFETY: the default, in a process of its own.
            unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
            let _guarded = guarded_below(parent, Protection::Read);
            // SAFETY: a signal to this process.
            unsafe { libc::raise(libc::SIGBUS) };
        }
    }

    extern "C" fn previous_handler(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
        // SAFETY: the kernel's siginfo; then the process ends.
        unsafe { libc::_exit(if (*info).si_addr().is_null() { 41 } else { 42 }) };
    }

    #[test]
    fn the_previous_handler_is_called() {
        let name = "shm::guard::tests::the_previous_handler_is_called";
        if let Some(parent) = child_task() {
            let previous: Handler = previous_handler;
            // SAFETY: a valid handler, in a process of its own.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = previous as usize;
                action.sa_flags = libc::SA_SIGINFO;
                libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
            }
            let (_directory, file, mapping) = guarded_below(&parent, Protection::Read);
            file.set_len(0).unwrap();
            let word: &AtomicU64 = mapping.at(0).unwrap();
            assert_eq!(word.load(Ordering::Relaxed), 0);
            fault_elsewhere(&parent);
        } else {
            let directory = TempDir::new();
            let output =
                start_child(name, directory.path().to_str().unwrap()).wait_with_output().unwrap();
            assert_eq!(output.status.code(), Some(42));
        }
    }

    #[test]
    fn errno_is_kept() {
        in_own_process("shm::guard::tests::errno_is_kept", || {
            let (_directory, file, mapping) = guarded_file(Protection::Read);
            file.set_len(0).unwrap();
            let word: &AtomicU64 = mapping.at(0).unwrap();
            // SAFETY: this thread's errno.
            unsafe {
                *libc::__errno_location() = 1234;
                word.load(Ordering::Relaxed);
                assert_eq!(*libc::__errno_location(), 1234);
            }
        });
    }
}
