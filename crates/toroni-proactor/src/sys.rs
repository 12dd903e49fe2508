//! System calls that neither the standard library nor rustix offers in the form needed here: waits with
//! signal masks, and signals to threads.

use rustix::io::Errno;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

/// A set of signals.
#[derive(Clone, Copy)]
pub(crate) struct SignalSet(libc::sigset_t);

impl SignalSet {
    pub(crate) fn of(signals: &[i32]) -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set; sigaddset gets an initialised one, and refuses numbers
        // that are no signals.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in signals {
                libc::sigaddset(set.as_mut_ptr(), *signal);
            }
            Self(set.assume_init())
        }
    }

    pub(crate) fn all() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigfillset initialises the set.
        unsafe {
            libc::sigfillset(set.as_mut_ptr());
            Self(set.assume_init())
        }
    }

    /// Blocks these signals in this thread in addition to others. Returns the previous mask.
    pub(crate) fn block_in_this_thread(self) -> Self {
        Self::change(libc::SIG_BLOCK, &self)
    }

    /// Blocks these signals and no others in this thread. Returns the previous mask.
    pub(crate) fn set_in_this_thread(self) -> Self {
        Self::change(libc::SIG_SETMASK, &self)
    }

    pub(crate) fn without(mut self, signal: i32) -> Self {
        // SAFETY: the set is initialised.
        unsafe { libc::sigdelset(&raw mut self.0, signal) };
        self
    }

    pub(crate) fn as_ptr(&self) -> *const libc::sigset_t {
        &raw const self.0
    }

    fn change(how: i32, set: &Self) -> Self {
        let mut before = MaybeUninit::uninit();
        // SAFETY: both sets are valid for the call, which fills the second; it fails only for another `how`.
        unsafe {
            libc::pthread_sigmask(how, set.as_ptr(), before.as_mut_ptr());
            Self(before.assume_init())
        }
    }
}

thread_local! { static NUMBER: Cell<i32> = const { Cell::new(0) } }

/// The kernel's number of a thread of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadId(i32);

impl ThreadId {
    pub(crate) fn current() -> Self {
        NUMBER.with(|number| {
            if number.get() == 0 {
                number.set(rustix::thread::gettid().as_raw_nonzero().get());
            }
            Self(number.get())
        })
    }

    /// Makes the next call ask the kernel: after a fork the thread has another number.
    pub(crate) fn forget_current() {
        NUMBER.with(|number| number.set(0));
    }

    /// Sends a signal to the thread. Returns whether the kernel accepted it. Does nothing if the thread has
    /// exited. Safe in a signal handler.
    ///
    /// The kernel refuses a real-time signal while the user's signal queue is full; it never refuses others.
    pub(crate) fn signal(self, signal: i32) -> bool {
        // SAFETY: takes numbers only; tgkill refuses a thread that is not of this process.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.0, signal) == 0 }
    }

    /// Returns the number, which is not 0.
    pub(crate) fn to_number(self) -> i32 {
        self.0
    }

    pub(crate) fn from_number(number: i32) -> Option<Self> {
        (number != 0).then_some(Self(number))
    }
}

/// Makes sure that a signal neither ends the process nor is ignored: installs a handler that does nothing,
/// unless the signal has a handler.
pub(crate) fn ensure_handler(signal: i32) -> Result<(), Errno> {
    // SAFETY: an all-zero sigaction is valid: no flags, so that system calls are not restarted, and an
    // empty mask. The handler does nothing. Both calls refuse numbers that are no signals.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal, ptr::null(), &raw mut action) != 0 {
            return Err(last_error());
        }
        if !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
            return Ok(());
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        match libc::sigaction(signal, &raw const action, ptr::null_mut()) {
            0 => Ok(()),
            _ => Err(last_error()),
        }
    }
}

extern "C" fn nothing(_: libc::c_int) {}

/// Receives an AIO notification that arrived as a signal at any thread: the signal, and the value given at
/// the start of the operation. Called in a signal handler.
pub(crate) type AioSignalHandler = fn(i32, usize);

/// An [`AioSignalHandler`], or null. Not a `OnceLock`, which the child of a fork could find locked for ever.
static AIO_SIGNAL_HANDLER: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Passes on the AIO notifications that a thread receives by this signal because it does not block it. `EBUSY`
/// if the program has its own handler for the signal.
pub(crate) fn install_aio_handler(signal: i32, take: AioSignalHandler) -> Result<(), Errno> {
    extern "C" fn caught(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the kernel gives a handler a valid siginfo_t, and the thread has an errno, which must look
        // to the code that was interrupted as if nothing had happened. `AIO_SIGNAL_HANDLER` is null or was stored
        // from a `AioSignalHandler`.
        unsafe {
            let errno = *libc::__errno_location();
            let take = AIO_SIGNAL_HANDLER.load(Ordering::Acquire);
            if let (false, Some(value)) = (take.is_null(), aio_value(&*info)) {
                std::mem::transmute::<*mut (), AioSignalHandler>(take)(signal, value);
            }
            *libc::__errno_location() = errno;
        }
    }
    AIO_SIGNAL_HANDLER.store(take as *mut (), Ordering::Release);
    let nothing = nothing as extern "C" fn(libc::c_int) as usize;
    let caught =
        caught as extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) as usize;
    // SAFETY: as in `ensure_handler`; the handler takes three arguments, as `SA_SIGINFO` says, and does
    // nothing that is not allowed in one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal, ptr::null(), &raw mut action) != 0 {
            return Err(last_error());
        }
        let present = action.sa_sigaction;
        if present == caught {
            return Ok(());
        }
        if ![libc::SIG_DFL, libc::SIG_IGN, nothing].contains(&present) {
            return Err(Errno::BUSY);
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = caught;
        // Disturbs other threads as little as possible.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        match libc::sigaction(signal, &raw const action, ptr::null_mut()) {
            0 => Ok(()),
            _ => Err(last_error()),
        }
    }
}

/// Returns the value given at the start of the operation, if the signal reports asynchronous I/O.
fn aio_value(info: &libc::siginfo_t) -> Option<usize> {
    // SAFETY: a signal of asynchronous I/O has a value.
    (info.si_code == libc::SI_ASYNCIO).then(|| unsafe { info.si_value() }.sival_ptr.addr())
}

/// A descriptor in a `ppoll`, and its result.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct PollEntry(libc::pollfd);

impl PollEntry {
    /// Creates an entry that asks for no event yet.
    pub(crate) fn new(descriptor: RawFd) -> Self {
        Self(libc::pollfd { fd: descriptor, events: 0, revents: 0 })
    }

    /// Adds the event that a read, or a write, waits for.
    pub(crate) fn ask_for(&mut self, reading: bool) {
        self.0.events |= if reading { libc::POLLIN } else { libc::POLLOUT };
    }

    pub(crate) fn descriptor(self) -> RawFd {
        self.0.fd
    }

    /// Returns whether a read will not block: there is data, an end, or an error.
    pub(crate) fn readable(self) -> bool {
        self.0.revents & !libc::POLLOUT != 0
    }

    /// Returns whether a write will not block.
    pub(crate) fn writable(self) -> bool {
        self.0.revents & !libc::POLLIN != 0
    }
}

/// Waits; `None` waits without a limit. Returns whether entries were filled. `EINVAL` if there are more
/// entries than the process may have descriptors.
pub(crate) fn ppoll(
    entries: &mut [PollEntry],
    timeout: Option<Duration>,
    mask: Option<&SignalSet>,
) -> Result<bool, Errno> {
    let timeout = timeout.map(to_timespec);
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    let mask = mask.map_or(ptr::null(), SignalSet::as_ptr);
    let (entries, count) = (entries.as_mut_ptr().cast::<libc::pollfd>(), entries.len());
    // SAFETY: `PollEntry` is a transparent `pollfd`, and there are `count`; the other two are null or live.
    let found = unsafe { libc::ppoll(entries, count as libc::nfds_t, timeout, mask) };
    if found < 0 { Err(last_error()) } else { Ok(found > 0) }
}

/// A descriptor that epoll found ready.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct EpollEntry(libc::epoll_event);

impl Default for EpollEntry {
    fn default() -> Self {
        Self(libc::epoll_event { events: 0, u64: 0 })
    }
}

impl EpollEntry {
    /// Returns the descriptor, which was added with its number as its data.
    pub(crate) fn descriptor(self) -> RawFd {
        RawFd::try_from(self.0.u64).unwrap_or(-1)
    }

    pub(crate) fn readable(self) -> bool {
        self.0.events & !libc::EPOLLOUT.cast_unsigned() != 0
    }

    pub(crate) fn writable(self) -> bool {
        let reading = (libc::EPOLLIN | libc::EPOLLRDHUP).cast_unsigned();
        self.0.events & !reading != 0
    }
}

/// Waits; `None` waits without a limit. Returns the number of entries filled.
pub(crate) fn epoll_wait(
    epoll: BorrowedFd<'_>,
    entries: &mut [EpollEntry],
    timeout: Option<Duration>,
    mask: Option<&SignalSet>,
) -> usize {
    /// The kernel's set of signals has 64 bits.
    const SET_BYTES: usize = 8;
    let timespec = timeout.map(to_timespec);
    let timespec = timespec.as_ref().map_or(ptr::null(), ptr::from_ref);
    let mask = mask.map_or(ptr::null(), SignalSet::as_ptr);
    let (buffer, count) = (entries.as_mut_ptr().cast::<libc::epoll_event>(), entries.len());
    // SAFETY: `EpollEntry` is a transparent `epoll_event`, and there are `count`; the other two are null
    // or live, and the kernel reads the first 8 bytes of a set.
    let found = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.as_raw_fd(),
            buffer,
            count,
            timespec,
            mask,
            SET_BYTES,
        )
    };
    if found < 0 && matches!(last_error(), Errno::NOSYS | Errno::PERM) {
        // Before Linux 5.11, or if a filter of system calls does not know it: milliseconds, rounded up.
        let limit = timeout.map_or(-1, |limit| {
            i32::try_from(limit.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
        });
        let count = libc::c_int::try_from(count).unwrap_or(libc::c_int::MAX);
        // SAFETY: as above.
        let found = unsafe { libc::epoll_pwait(epoll.as_raw_fd(), buffer, count, limit, mask) };
        return usize::try_from(found).unwrap_or(0);
    }
    usize::try_from(found).unwrap_or(0)
}

pub(crate) fn to_timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

/// Returns the error of this thread's last system call that failed.
pub(crate) fn last_error() -> Errno {
    let number = std::io::Error::last_os_error().raw_os_error();
    Errno::from_raw_os_error(number.unwrap_or(libc::EIO))
}

/// A signal from this thread's queue.
pub(crate) struct TakenSignal {
    pub(crate) number: i32,
    /// The descriptor, if the signal reports a change. Another library may have asked for it.
    pub(crate) descriptor: Option<RawFd>,
    /// The value given at the start, if the signal reports asynchronous I/O.
    pub(crate) aio_value: Option<usize>,
}

/// Takes the next of these signals, which are blocked. `None` waits without a limit.
pub(crate) fn take_signal(awaited: &SignalSet, timeout: Option<Duration>) -> Option<TakenSignal> {
    /// What the kernel fills in for `SIGPOLL`, in the part that is a union.
    #[repr(C)]
    struct OfPoll {
        header: [i32; 3],
        band: libc::c_long,
        descriptor: i32,
    }
    /// The codes of changes, `POLL_IN` to `POLL_HUP`. The kernel lets no process send these to another thread.
    const CHANGES: RangeInclusive<i32> = 1..=6;
    const { assert!(size_of::<OfPoll>() <= size_of::<libc::siginfo_t>()) };
    let timeout = timeout.map(to_timespec);
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: a siginfo_t of zeros is valid, and large and aligned enough for the part that is read; the
    // other two are live or null. A null timeout waits for ever.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let number = libc::sigtimedwait(awaited.as_ptr(), &raw mut info, timeout);
        let tells_of_change = CHANGES.contains(&info.si_code);
        let descriptor = tells_of_change.then(|| (*(&raw const info).cast::<OfPoll>()).descriptor);
        (number > 0).then(|| TakenSignal { number, descriptor, aio_value: aio_value(&info) })
    }
}

/// Asks the kernel to send this signal to this thread whenever the descriptor changes.
pub(crate) fn signal_changes(
    descriptor: BorrowedFd<'_>,
    thread: ThreadId,
    signal: i32,
) -> Result<(), Errno> {
    /// `struct f_owner_ex`, with `F_OWNER_TID`.
    #[repr(C)]
    struct Owner {
        kind: i32,
        thread: i32,
    }
    const F_SETSIG: i32 = 10;
    const F_SETOWN_EX: i32 = 15;
    let owner = Owner { kind: 0, thread: thread.0 };
    let descriptor = descriptor.as_raw_fd();
    // SAFETY: numbers, and an owner that lives; the kernel checks all of them.
    let done = unsafe {
        let flags = libc::fcntl(descriptor, libc::F_GETFL);
        // Signals carry the number under which they were requested, and requesting again does not change it: a
        // duplicate that was requested under another number has to start again.
        let quiet = flags & !libc::O_ASYNC;
        flags >= 0
            && (flags == quiet || libc::fcntl(descriptor, libc::F_SETFL, quiet) >= 0)
            && libc::fcntl(descriptor, F_SETOWN_EX, &raw const owner) >= 0
            && libc::fcntl(descriptor, F_SETSIG, signal) >= 0
            && libc::fcntl(descriptor, libc::F_SETFL, flags | libc::O_ASYNC) >= 0
    };
    if done { Ok(()) } else { Err(last_error()) }
}

/// Ends the signals of a descriptor.
pub(crate) fn signal_no_changes(descriptor: BorrowedFd<'_>) {
    let descriptor = descriptor.as_raw_fd();
    // SAFETY: numbers only.
    unsafe {
        let flags = libc::fcntl(descriptor, libc::F_GETFL);
        if flags >= 0 {
            libc::fcntl(descriptor, libc::F_SETFL, flags & !libc::O_ASYNC);
        }
    }
}

/// Returns how often this thread gave up its core by itself, to wait for something (getrusage(2)).
pub(crate) fn times_slept() -> i64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: all zeroes are a value of it, which the call overwrites.
    unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init().ru_nvcsw
    }
}
