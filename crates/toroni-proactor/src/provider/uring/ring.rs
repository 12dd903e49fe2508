//! A ring, shared by those who start and the one who waits.

use crate::sys::{SignalSet, ThreadId};
use io_uring::{IoUring, cqueue, squeue};
use rustix::io::Errno;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// Places in the submission queue: what is started between two system calls.
const ENTRIES: u32 = 256;

/// Places in the completion queue. The kernel keeps what does not fit.
const COMPLETIONS: u32 = 4096;

/// See the module.
pub(crate) struct Ring {
    ring: IoUring,
    belongs_to_leader: bool,
    /// Held by whoever has the submission queue. Nobody ever waits for it: the proactor's lock is held, too.
    submissions: Mutex<()>,
    /// The same for the completion queue.
    completions: Mutex<()>,
    /// The thread that a ring with an owner belongs to.
    owner: OnceLock<ThreadId>,
}

impl Ring {
    /// Makes one. One that belongs to its leader takes submissions of that thread only, and completes in
    /// its waits: that is faster. The other takes them from all threads, and completes at once.
    pub(crate) fn new(belongs_to_leader: bool) -> Result<Self, Errno> {
        let mut builder = IoUring::builder();
        builder.setup_clamp().setup_cqsize(COMPLETIONS).setup_submit_all();
        if belongs_to_leader {
            // Whoever enables it is the thread that it belongs to.
            builder.setup_single_issuer().setup_defer_taskrun().setup_r_disabled();
        }
        let ring = builder.build(ENTRIES).map_err(|error| errno(&error))?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            // Before Linux 5.11: waits would have no time limit.
            return Err(Errno::NOSYS);
        }
        Ok(Self {
            ring,
            belongs_to_leader,
            submissions: Mutex::new(()),
            completions: Mutex::new(()),
            owner: OnceLock::new(),
        })
    }

    /// Whether only the leader submits.
    pub(crate) fn belongs_to_leader(&self) -> bool {
        self.belongs_to_leader
    }

    /// This thread leads from now on.
    pub(crate) fn enable(&self) {
        if self.belongs_to_leader {
            self.owner.get_or_init(|| {
                // It fails only where it was enabled before.
                let _ = self.ring.submitter().register_enable_rings();
                ThreadId::current()
            });
        }
    }

    /// Puts an entry into the queue; whether there was room.
    ///
    /// # Safety
    ///
    /// All memory that the entry names stays valid and untouched until it is complete.
    pub(crate) unsafe fn push(&self, entry: &squeue::Entry) -> bool {
        // SAFETY: as the caller says.
        if unsafe { self.push_once(entry) } {
            return true;
        }
        // Full: the kernel takes what there is, if it takes it from this thread.
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

    /// Hands to the kernel what is in the queue. What it does not take now it takes at the next wait.
    pub(crate) fn submit(&self) {
        let _ = self.ring.submitter().submit();
    }

    /// Submits, and waits for a completion, the end of the time, or a signal.
    pub(crate) fn wait(&self, timeout: Option<Duration>, mask: Option<&SignalSet>) {
        /// As the kernel has it: `struct io_uring_getevents_arg`.
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
        // Exactly as many as there are: otherwise the kernel submits, and does not wait. If another thread
        // submits them meanwhile, this wait ends at once, and the leader waits anew.
        let queued = self.queued();
        // SAFETY: the argument is laid out as the kernel expects, and names memory that lives here.
        let _ = unsafe { self.ring.submitter().enter(queued, wanted, FLAGS, Some(&argument)) };
    }

    fn queued(&self) -> u32 {
        let _alone = self.submissions.lock().expect("never panics");
        // SAFETY: there is one view of the queue at a time, by the mutex.
        let queued = unsafe { self.ring.submission_shared().len() };
        u32::try_from(queued).unwrap_or(ENTRIES)
    }

    /// The next completion.
    pub(crate) fn pop(&self) -> Option<cqueue::Entry> {
        let _alone = self.completions.lock().expect("never panics");
        // SAFETY: there is one view of the queue at a time, by the mutex.
        unsafe { self.ring.completion_shared().next() }
    }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO))
}
