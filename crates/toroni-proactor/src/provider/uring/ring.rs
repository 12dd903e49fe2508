//! A ring, shared by the threads that start and the one that waits.

use crate::sys::{SignalSet, ThreadId};
use io_uring::{IoUring, Probe, cqueue, opcode, squeue};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// Entries of the submission queue: the maximum number of starts between two system calls.
const ENTRIES: u32 = 256;

/// Entries of the completion queue. The kernel keeps completions that do not fit.
const COMPLETIONS: u32 = 4096;

/// `IORING_RECVSEND_POLL_FIRST`.
const POLL_FIRST: u16 = 1;

/// How soon to retry when the kernel takes nothing for now.
const AGAIN: Duration = Duration::from_millis(1);

pub(crate) struct Ring {
    ring: IoUring,
    belongs_to_leader: bool,
    /// Held by the thread that uses the submission queue. No thread ever waits for it, because the proactor's
    /// lock is held, too.
    submissions: Mutex<()>,
    /// The same for the completion queue.
    completions: Mutex<()>,
    /// The kernel has `IORING_OP_FUTEX_WAIT`.
    waits_for_words: bool,
    /// The flag by which a transfer asks to be polled before it is tried; 0 if the kernel has no such flag:
    /// before Linux 5.19.
    poll_first: u16,
    /// The thread that a ring with an owner belongs to.
    owner: OnceLock<ThreadId>,
}

impl Ring {
    /// Creates a ring. One that belongs to its leader takes submissions of that thread only, and completes in
    /// its waits, which is faster. Another one takes them from all threads, and completes at once.
    pub(crate) fn new(belongs_to_leader: bool) -> Result<Self, Errno> {
        let mut builder = IoUring::builder();
        builder.setup_clamp().setup_cqsize(COMPLETIONS).setup_submit_all();
        if belongs_to_leader {
            // It belongs to the thread that enables it.
            builder.setup_single_issuer().setup_defer_taskrun().setup_r_disabled();
        }
        let ring = builder.build(ENTRIES).map_err(|error| errno(&error))?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            // Before Linux 5.11: waits would have no time limit.
            return Err(Errno::NOSYS);
        }
        let mut probe = Probe::new();
        let is_probed = ring.submitter().register_probe(&mut probe).is_ok();
        let supports = |code| is_probed && probe.is_supported(code);
        let waits_for_words = supports(opcode::FutexWait::CODE);
        // Nothing reports the flag, but it came with this operation, in Linux 5.19.
        let poll_first = if supports(opcode::Socket::CODE) { POLL_FIRST } else { 0 };
        Ok(Self {
            ring,
            belongs_to_leader,
            waits_for_words,
            poll_first,
            submissions: Mutex::new(()),
            completions: Mutex::new(()),
            owner: OnceLock::new(),
        })
    }

    /// Returns whether only the leader submits.
    pub(crate) fn belongs_to_leader(&self) -> bool {
        self.belongs_to_leader
    }

    /// Returns whether the kernel waits for words in memory: Linux 6.7 and newer.
    pub(crate) fn waits_for_words(&self) -> bool {
        self.waits_for_words
    }

    pub(crate) fn poll_first(&self) -> u16 {
        self.poll_first
    }

    /// Makes this thread the leader.
    pub(crate) fn enable(&self) {
        if self.belongs_to_leader {
            self.owner.get_or_init(|| {
                // Fails only if it was enabled before.
                let _ = self.ring.submitter().register_enable_rings();
                ThreadId::current()
            });
        }
    }

    /// Adds an entry to the submission queue. Returns whether there was space.
    ///
    /// # Safety
    ///
    /// All memory that the entry names stays valid and unaccessed until it is complete.
    pub(crate) unsafe fn push(&self, entry: &squeue::Entry) -> bool {
        // SAFETY: as the caller says.
        if unsafe { self.push_once(entry) } {
            return true;
        }
        // Full: submit it, if the kernel accepts submissions from this thread.
        if self.belongs_to_leader && self.owner.get() != Some(&ThreadId::current()) {
            return false;
        }
        self.submit();
        // SAFETY: as the caller says.
        unsafe { self.push_once(entry) }
    }

    /// # Safety
    ///
    /// As [`Ring::push`].
    unsafe fn push_once(&self, entry: &squeue::Entry) -> bool {
        let _alone = self.submissions.lock().expect("never panics");
        // SAFETY: there is one view of the queue at a time, by the mutex; the entry is as the caller says.
        unsafe { self.ring.submission_shared().push(entry).is_ok() }
    }

    /// Submits the queue to the kernel, and lets it deliver completions for which there is space now. Returns
    /// whether it took everything. It refuses for a while if it has no memory, or completions have no space.
    pub(crate) fn submit(&self) -> bool {
        self.ring.submitter().submit().is_ok() && self.queued() == 0
    }

    /// Returns whether something has to be submitted, or completions had no space in their queue.
    pub(crate) fn has_rest(&self) -> bool {
        let _alone = self.submissions.lock().expect("never panics");
        // SAFETY: there is one view of the queue at a time, by the mutex.
        let queue = unsafe { self.ring.submission_shared() };
        !queue.is_empty() || queue.cq_overflow()
    }

    /// Returns whether the queue has all completions, so that a system call would bring no more: nothing has
    /// to be submitted, and all completions had space. A ring with an owner completes in system calls only.
    pub(crate) fn is_current(&self) -> bool {
        !self.belongs_to_leader && !self.has_rest()
    }

    /// Submits, and waits for a completion, the timeout, or a signal.
    pub(crate) fn wait(&self, timeout: Option<Duration>, mask: Option<&SignalSet>) {
        // Exactly the number of entries: otherwise the kernel submits, and does not wait. If another thread
        // submits them meanwhile, this wait ends at once, and the leader waits again.
        let waited = self.enter(self.queued(), timeout, mask);
        if matches!(waited, Err(Errno::BUSY | Errno::AGAIN)) {
            // It takes nothing for now. Completions free space when they have been taken.
            let _ = self.enter(0, Some(timeout.map_or(AGAIN, |limit| limit.min(AGAIN))), mask);
        }
    }

    fn enter(
        &self,
        queued: u32,
        timeout: Option<Duration>,
        mask: Option<&SignalSet>,
    ) -> Result<usize, Errno> {
        /// The kernel's `struct io_uring_getevents_arg`.
        #[repr(C)]
        struct Argument {
            mask: u64,
            mask_bytes: u32,
            minimal_wait_us: u32,
            timeout: u64,
        }
        /// `IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG`.
        const FLAGS: u32 = 1 | 1 << 3;
        let timespec = timeout.map(|limit| {
            io_uring::types::Timespec::new().sec(limit.as_secs()).nsec(limit.subsec_nanos())
        });
        let argument = Argument {
            mask: mask.map_or(0, |mask| mask.as_ptr().addr() as u64),
            mask_bytes: if mask.is_some() { 8 } else { 0 },
            minimal_wait_us: 0,
            timeout: timespec
                .as_ref()
                .map_or(0, |timespec| std::ptr::from_ref(timespec).addr() as u64),
        };
        let wanted = u32::from(timeout != Some(Duration::ZERO));
        // SAFETY: the argument is laid out as the kernel expects, and names memory that lives here.
        let entered =
            unsafe { self.ring.submitter().enter(queued, wanted, FLAGS, Some(&argument)) };
        entered.map_err(|error| errno(&error))
    }

    fn queued(&self) -> u32 {
        let _alone = self.submissions.lock().expect("never panics");
        // SAFETY: there is one view of the queue at a time, by the mutex.
        let queued = unsafe { self.ring.submission_shared().len() };
        u32::try_from(queued).unwrap_or(ENTRIES)
    }

    /// Takes the next completion.
    pub(crate) fn pop(&self) -> Option<cqueue::Entry> {
        let _alone = self.completions.lock().expect("never panics");
        // SAFETY: there is one view of the queue at a time, by the mutex.
        unsafe { self.ring.completion_shared().next() }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring has this descriptor open for as long as it lives.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO))
}
