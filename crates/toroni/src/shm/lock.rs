//! The writer lock, in two kinds. Both survive the death of their owner at any instruction.
//!
//! # `lease`
//!
//! One futex word in `ring`:
//!
//! ```text
//!  bit 31      30         29 … 18              17          16 … 0
//!   +---------+----------+--------------------+-----------+-----------------------------------+
//!   | WAITERS | STARVING | publisher slot + 1 | EXCLUSIVE | low bits of the slot's generation |
//!   +---------+----------+--------------------+-----------+-----------------------------------+
//! ```
//!
//! The word is 0 while the lock is free. Without contention, acquiring and releasing take one compare-exchange
//! each.
//!
//! If the lock is taken, a waiter spins briefly, yields the processor, and then sleeps. Every few milliseconds it
//! asks the kernel whether the owner's lease is still held. If it is not, the owner is dead, and the waiter takes
//! over by a compare-exchange on exactly the word that it tested. The generation in that word ensures that the
//! owner is still the one that was tested.
//!
//! An owner that releases the lock and acquires it again at once would always win, because a woken waiter needs
//! longer to arrive. So a waiter that has waited longer than [`STARVING_AFTER`] sets STARVING, and the next release
//! leaves the word at STARVING alone: the lock is free, but only for waiters that have waited that long. If the
//! starving waiter dies, nothing hangs: every other process that finds the word in this state waits, and so becomes
//! a starving waiter itself.
//!
//! An exclusive publisher sets EXCLUSIVE once it has the lock, and keeps the lock for as long as it exists. Others do
//! not wait for it: while it lives, they get [`Denied::Exclusive`] at once. It wakes those that sleep, so that they get
//! that too. If its lease is gone, they take over, as from any owner. But its process may live, and only have lost its
//! descriptors. It may then be in the middle of a message, because it does not take the lock for each one. It checks
//! the word before each message, and in a burst before each block. A publisher that takes over waits
//! [`TAKEOVER_DELAY`] before it writes, unless that process has certainly ended. Until then it leaves EXCLUSIVE in the
//! word: if it dies meanwhile, the publisher that takes over from it waits, too.
//!
//! # `robust`
//!
//! A process-shared robust `pthread_mutex_t` (`pthread_mutexattr_setrobust(3)`). When the owner dies, the kernel
//! hands the lock over before it tears down the owner's memory. While the mutex is held, it is linked into a list
//! that the C library keeps in the owner's memory, so a publisher that wrote garbage into the mutex could crash the
//! owner. `robust` is therefore for publishers that trust one another that far. `lease` does not require it.

use crate::hook::{self, CrashPoint, mutant};
use crate::ring::layout::Control;
use crate::settings::LockKind;
use crate::sync::{AtomicU32, Ordering};
use rustix::thread::futex;
use std::io;
use std::time::{Duration, Instant};

/// How long a waiter waits before it demands precedence over newcomers.
const STARVING_AFTER: Duration = Duration::from_millis(1);
/// How often a waiter checks whether the owner is alive.
const LEASE_TEST_EVERY: Duration = Duration::from_millis(3);
/// How often a waiter checks the word before it yields (`SPINS`), and how often it yields before it sleeps
/// (`YIELDS`). A running owner holds the lock for tens of nanoseconds.
const SPINS: u32 = 60;
const YIELDS: u32 = 4;

/// How long to wait after a takeover from an exclusive publisher whose process has not certainly ended.
const TAKEOVER_DELAY: Duration = Duration::from_millis(3);
/// How long a publisher that waits to be exclusive sleeps between two checks whether the present one lives.
const EXCLUSIVE_SLICE: Duration = Duration::from_millis(20);

const WAITERS: u32 = 1 << 31;
const STARVING: u32 = 1 << 30;
const SLOT_SHIFT: u32 = 18;
const EXCLUSIVE: u32 = 1 << 17;
const GENERATION: u32 = EXCLUSIVE - 1;
const OWNER: u32 = (STARVING - 1) & !EXCLUSIVE;

/// The lock word's name for a publishing participant. It is never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u32);

impl Owner {
    /// `slot` must be below `MOST_PARTICIPANTS`.
    pub(crate) fn new(slot: u32, generation: u32) -> Self {
        Self((slot + 1) << SLOT_SHIFT | generation & GENERATION)
    }

    /// Returns the owner that a word names, or `None` if the lock is free.
    fn of(word: u32) -> Option<Self> {
        (word & OWNER != 0).then_some(Self(word & OWNER))
    }

    /// Returns a number that is not 0 and names this owner.
    pub(crate) fn mark(self) -> u32 {
        self.0
    }

    /// Returns the slot, or `None` if the word cannot have been written by a participant.
    pub(crate) fn slot(self) -> Option<u32> {
        (self.0 >> SLOT_SHIFT).checked_sub(1)
    }

    /// Returns whether this names the owner of the slot that has this generation.
    pub(crate) fn has_generation(self, generation: u32) -> bool {
        self.0 & GENERATION == generation & GENERATION
    }
}

/// Says that the caller owns the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the lock has to be released"]
pub(crate) struct Acquired {
    /// The previous owner died while it held the lock, so the ring needs recovery.
    pub(crate) owner_died: bool,
}

/// How long to try to acquire the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockAttempt {
    /// Check once and return.
    Try,
    /// Wait until this time, or without limit.
    Until(Option<Instant>),
}

#[derive(Debug)]
pub(crate) enum Denied {
    /// Another owner has the lock, and the attempt is over.
    Busy,
    /// An exclusive publisher has the lock.
    Exclusive(Owner),
    /// This participant can no longer ask the kernel who is alive.
    Blind,
    /// The mutex returned an error that cannot occur while all participants use it correctly.
    Os(io::Error),
}

/// Other code in this process closed the participant's descriptors, so it cannot ask the kernel who is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blind;

/// Asks the kernel whether an owner is dead.
pub(crate) trait LivenessCheck {
    /// Returns true only if the owner is certainly dead.
    fn is_dead(&self, owner: Owner) -> Result<bool, Blind>;

    /// Returns true only if the owner's process has certainly ended. A dead owner's may not have: it counts as dead
    /// once it has lost its lease.
    fn has_ended(&self, owner: Owner) -> bool;
}

impl From<Blind> for Denied {
    fn from(_: Blind) -> Self {
        Self::Blind
    }
}

/// A participant's handle on the lock.
pub(crate) struct WriterLock {
    kind: LockKind,
    me: Owner,
    /// The other owner's word that made the last `LockAttempt::Try` fail.
    seen: AtomicU32,
    /// The clock for the timeouts of a robust lock.
    clock: robust::Clock,
}

impl WriterLock {
    pub(crate) fn new(kind: LockKind, me: Owner) -> Self {
        Self { kind, me, seen: AtomicU32::new(0), clock: robust::Clock::best() }
    }

    /// Takes the lock if it is free. This is the hot path.
    #[inline]
    pub(crate) fn try_acquire(&self, control: &Control) -> Option<Acquired> {
        match self.kind {
            // LOCK
            LockKind::Lease => control
                .commit
                .0
                .lock
                .compare_exchange(0, self.me.0, Ordering::Acquire, Ordering::Relaxed)
                .ok()
                .map(|_| Acquired { owner_died: false }),
            LockKind::Robust => robust::try_acquire(control).ok(),
        }
    }

    /// Takes the lock after [`Self::try_acquire`] failed, waiting as long as `attempt` allows.
    #[cold]
    pub(crate) fn acquire(
        &self,
        control: &Control,
        attempt: LockAttempt,
        liveness: &impl LivenessCheck,
    ) -> Result<Acquired, Denied> {
        match (self.kind, attempt) {
            (LockKind::Lease, LockAttempt::Try) => self.try_lease(control, liveness),
            (LockKind::Lease, LockAttempt::Until(deadline)) => {
                self.wait_lease(&control.commit.0.lock, deadline, liveness)
            }
            (LockKind::Robust, LockAttempt::Try) => robust::try_acquire(control),
            (LockKind::Robust, LockAttempt::Until(deadline)) => {
                robust::acquire(control, deadline, self.clock)
            }
        }
    }

    /// Takes the lock and keeps it, as an exclusive publisher does, until [`Self::release`]. Waits as long as `attempt`
    /// allows, also for another exclusive publisher, but not for one of this participant.
    ///
    /// A robust lock belongs to a thread and cannot be kept.
    pub(crate) fn acquire_exclusive(
        &self,
        control: &Control,
        attempt: LockAttempt,
        liveness: &impl LivenessCheck,
    ) -> Result<Acquired, Denied> {
        debug_assert_eq!(self.kind, LockKind::Lease);
        loop {
            let acquired = match self.try_acquire(control) {
                Some(acquired) => Ok(acquired),
                None => self.acquire(control, attempt, liveness),
            };
            match (acquired, attempt) {
                (Ok(acquired), _) => {
                    self.keep(&control.commit.0.lock);
                    return Ok(acquired);
                }
                (Err(Denied::Exclusive(owner)), LockAttempt::Until(deadline))
                    if owner != self.me && deadline.is_none_or(|end| Instant::now() < end) =>
                {
                    self.await_exclusive(&control.commit.0.lock, deadline);
                }
                (Err(denied), _) => return Err(denied),
            }
        }
    }

    /// Returns whether this participant has the lock as an exclusive publisher.
    #[inline]
    pub(crate) fn is_kept(&self, control: &Control) -> bool {
        let word = control.commit.0.lock.load(Ordering::Relaxed);
        word & (OWNER | EXCLUSIVE) == self.me.0 | EXCLUSIVE || mutant("takeover_unnoticed")
    }

    /// Returns whether this participant still has the lock that it has taken. A robust lock is only taken over from a thread
    /// that has ended.
    #[inline]
    pub(crate) fn is_mine(&self, control: &Control) -> bool {
        self.kind == LockKind::Robust
            || Owner::of(control.commit.0.lock.load(Ordering::Relaxed)) == Some(self.me)
    }

    /// Marks the lock, which this participant has, as exclusive. Wakes all that wait for it.
    fn keep(&self, lock: &AtomicU32) {
        let mut word = lock.load(Ordering::Relaxed);
        while word & OWNER == self.me.0 {
            let kept = if mutant("kept_in_secret") { self.me.0 } else { self.me.0 | EXCLUSIVE };
            match lock.compare_exchange(word, kept, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    let _ = futex::wake(lock, futex::Flags::empty(), i32::MAX.cast_unsigned());
                    return;
                }
                Err(now) => word = now,
            }
        }
    }

    /// Sleeps until an exclusive publisher releases the lock, for a while, or until `deadline`.
    fn await_exclusive(&self, lock: &AtomicU32, deadline: Option<Instant>) {
        let word = lock.load(Ordering::Relaxed);
        let waiting = word | WAITERS;
        if word & EXCLUSIVE != 0
            && (waiting == word
                || lock
                    .compare_exchange(word, waiting, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok())
        {
            // The caller checks the deadline.
            let _ = self.sleep(lock, waiting, EXCLUSIVE_SLICE, deadline, Instant::now());
        }
    }

    /// Releases the lock. This is a full fence only on x86-64 and for `lease`; see
    /// [`crate::sync::fence_after_unlock`].
    #[inline]
    pub(crate) fn release(&self, control: &Control) {
        match self.kind {
            LockKind::Lease => {
                let word = &control.commit.0.lock;
                // LOCK. A swap would be wrong: if this participant was mistaken for dead because other code closed
                // its lease, it would free a lock that belongs to another owner.
                if word.compare_exchange(self.me.0, 0, Ordering::AcqRel, Ordering::Relaxed).is_err()
                {
                    self.release_to_waiters(word);
                }
            }
            LockKind::Robust => robust::release(control),
        }
    }

    #[cold]
    fn release_to_waiters(&self, lock: &AtomicU32) {
        let mut word = lock.load(Ordering::Relaxed);
        while word & OWNER == self.me.0 {
            let free = word & STARVING;
            match lock.compare_exchange(word, free, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    hook::point(CrashPoint::BeforeHandOver);
                    wake_one(lock);
                    return;
                }
                Err(now) => word = now,
            }
        }
    }

    /// Checks once. If the same word was already in the way the last time, tests its owner's lease.
    fn try_lease(
        &self,
        control: &Control,
        liveness: &impl LivenessCheck,
    ) -> Result<Acquired, Denied> {
        let lock = &control.commit.0.lock;
        let word = lock.load(Ordering::Relaxed);
        if let Some(acquired) = self.take_from_exclusive(lock, word, liveness)? {
            return Ok(acquired);
        }
        let before = self.seen.swap(word, Ordering::Relaxed);
        let owner = Owner::of(word);
        let died = match owner {
            // Free, but reserved for a starving waiter, which may have died.
            None => word == 0 || before == word,
            Some(owner) => {
                before & OWNER == owner.0
                    && owner != self.me
                    && liveness.is_dead(owner)?
                    && !mutant("try_never_takes_over")
            }
        };
        if died && self.seize(lock, word, word & WAITERS) {
            return Ok(Acquired { owner_died: owner.is_some() });
        }
        Err(Denied::Busy)
    }

    fn wait_lease(
        &self,
        lock: &AtomicU32,
        deadline: Option<Instant>,
        liveness: &impl LivenessCheck,
    ) -> Result<Acquired, Denied> {
        for check in 0..SPINS + YIELDS {
            let word = lock.load(Ordering::Relaxed);
            if word == 0 && self.seize(lock, 0, 0) {
                return Ok(Acquired { owner_died: false });
            }
            if word & EXCLUSIVE != 0 {
                break;
            }
            if check < SPINS {
                crate::sync::pause();
            } else {
                rustix::thread::sched_yield();
            }
        }

        let began = Instant::now();
        let mut tested = began;
        loop {
            let now = Instant::now();
            let starving = now - began >= STARVING_AFTER;
            let word = lock.load(Ordering::Relaxed);
            let Some(owner) = Owner::of(word) else {
                if word & STARVING == 0 || starving {
                    // Keep WAITERS: other waiters may be asleep, and only the last one could know that there are
                    // none.
                    if self.seize(lock, word, WAITERS) {
                        return Ok(Acquired { owner_died: false });
                    }
                } else {
                    self.sleep(lock, word, STARVING_AFTER, deadline, now)?;
                }
                continue;
            };
            if let Some(acquired) = self.take_from_exclusive(lock, word, liveness)? {
                return Ok(acquired);
            }

            if now - tested >= LEASE_TEST_EVERY {
                tested = now;
                // If the owner is this participant, it is a thread of this process, so it is alive.
                if owner != self.me && liveness.is_dead(owner)? {
                    if self.seize(lock, word, WAITERS) {
                        return Ok(Acquired { owner_died: true });
                    }
                    continue;
                }
            }

            let waiting = word | WAITERS | if starving { STARVING } else { 0 };
            if waiting == word
                || lock
                    .compare_exchange(word, waiting, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
            {
                hook::point(CrashPoint::WaitingForLock);
                let slice = if starving { LEASE_TEST_EVERY } else { STARVING_AFTER };
                self.sleep(lock, waiting, slice, deadline, now)?;
            }
        }
    }

    /// Takes the lock from an exclusive publisher that is dead; from one that lives, returns [`Denied::Exclusive`].
    /// Returns `None` if `word` names none, or has changed.
    fn take_from_exclusive(
        &self,
        lock: &AtomicU32,
        word: u32,
        liveness: &impl LivenessCheck,
    ) -> Result<Option<Acquired>, Denied> {
        let Some(owner) = Owner::of(word).filter(|_| word & EXCLUSIVE != 0) else {
            return Ok(None);
        };
        // If the owner is this participant, it is alive.
        if owner == self.me || !liveness.is_dead(owner)? || mutant("exclusive_for_ever") {
            return Err(Denied::Exclusive(owner));
        }
        let is_taken = if liveness.has_ended(owner) {
            self.seize(lock, word, word & WAITERS)
        } else {
            self.seize_after_delay(lock, word)
        };
        Ok(is_taken.then_some(Acquired { owner_died: true }))
    }

    /// Takes the lock from an exclusive publisher whose process may be in the middle of a message, and waits until it no
    /// longer is. Returns whether this participant has the lock then.
    fn seize_after_delay(&self, lock: &AtomicU32, word: u32) -> bool {
        let mark = if mutant("takeover_unmarked") { 0 } else { EXCLUSIVE };
        if !self.seize(lock, word, word & WAITERS | mark) {
            return false;
        }
        std::thread::sleep(TAKEOVER_DELAY);
        let mut word = lock.load(Ordering::Relaxed);
        while word & OWNER == self.me.0 {
            match lock.compare_exchange(
                word,
                word & !EXCLUSIVE,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        // This participant was taken for dead, too.
        false
    }

    fn sleep(
        &self,
        lock: &AtomicU32,
        word: u32,
        slice: Duration,
        deadline: Option<Instant>,
        now: Instant,
    ) -> Result<(), Denied> {
        let slice = match deadline {
            Some(deadline) if deadline <= now => return Err(Denied::Busy),
            Some(deadline) => slice.min(deadline - now),
            None => slice,
        };
        wait(lock, word, slice);
        Ok(())
    }

    /// Takes the lock over if an earlier owner of this participant's slot died while it held the lock. The slot has
    /// a new generation, so the lease can no longer show that death. Call this once, before acquiring the lock for
    /// the first time.
    pub(crate) fn inherit(&self, control: &Control) -> Option<Acquired> {
        if self.kind != LockKind::Lease {
            return None;
        }
        let lock = &control.commit.0.lock;
        let word = lock.load(Ordering::Relaxed);
        let owner = Owner::of(word)?;
        // This also applies if the word names exactly this owner. It has not taken the lock yet, so the word is
        // either wrong or from a generation with the same low bits.
        if owner.slot() != self.me.slot() {
            return None;
        }
        let is_taken = if word & EXCLUSIVE != 0 && !mutant("inherits_at_once") {
            // The slot no longer says whose process it was, so that one may live.
            self.seize_after_delay(lock, word)
        } else {
            self.seize(lock, word, word & WAITERS)
        };
        is_taken.then_some(Acquired { owner_died: true })
    }

    /// Replaces exactly `word` by this participant, with these other bits.
    fn seize(&self, lock: &AtomicU32, word: u32, bits: u32) -> bool {
        // LOCK
        lock.compare_exchange(word, self.me.0 | bits, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

/// Returns the owner that the word of the `lease` lock names, and whether it is exclusive.
pub(crate) fn lease_owner(control: &Control) -> Option<(Owner, bool)> {
    let word = control.commit.0.lock.load(Ordering::Relaxed);
    Some((Owner::of(word)?, word & EXCLUSIVE != 0))
}

/// Returns the thread id that holds the `robust` lock, as numbered in the PID namespace of its process.
pub(crate) fn robust_owner(control: &Control) -> Option<u32> {
    robust::owner(control)
}

/// Initialises the lock of a new bus, before any other process can see it.
pub(crate) fn initialize(kind: LockKind, control: &Control) -> io::Result<()> {
    match kind {
        LockKind::Lease => Ok(()),
        LockKind::Robust => robust::initialize(control),
    }
}

fn wait(lock: &AtomicU32, word: u32, at_most: Duration) {
    let timeout = rustix::time::Timespec {
        tv_sec: i64::try_from(at_most.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: at_most.subsec_nanos().into(),
    };
    // The result does not matter: the caller rechecks the word.
    let _ = futex::wait(lock, futex::Flags::empty(), word, Some(&timeout));
}

fn wake_one(lock: &AtomicU32) {
    let _ = futex::wake(lock, futex::Flags::empty(), 1);
}

mod robust {
    use super::{Acquired, Control, Denied};
    use crate::hook::{self, CrashPoint};
    use crate::sync::Ordering;
    use std::io;
    use std::time::{Duration, Instant};

    const _: () = assert!(size_of::<libc::pthread_mutex_t>() <= 64);
    const _: () = assert!(align_of::<libc::pthread_mutex_t>() <= 128);

    /// The longest single sleep. It bounds the harm of a wall clock that jumps: forward, a sleep ends too early;
    /// backward, it lasts longer by as much.
    const SLICE: Duration = Duration::from_millis(50);

    /// `pthread_mutex_clocklock(3)`.
    type ClockLock = unsafe extern "C" fn(
        *mut libc::pthread_mutex_t,
        libc::clockid_t,
        *const libc::timespec,
    ) -> libc::c_int;

    /// The clock against which a wait times out.
    #[derive(Clone, Copy, Debug)]
    pub(super) enum Clock {
        /// The clock of the deadlines. Nothing can set it.
        Monotonic(ClockLock),
        /// The only clock that `pthread_mutex_timedlock(3)` supports.
        Wall,
    }

    impl Clock {
        /// Returns the monotonic clock if the C library can wait by it. glibc can since 2.30, unless it is linked
        /// statically; musl cannot.
        pub(super) fn best() -> Self {
            // SAFETY: the argument is a NUL-terminated string, and the lookup is among the symbols of this process.
            let symbol =
                unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"pthread_mutex_clocklock".as_ptr()) };
            if symbol.is_null() {
                return Self::Wall;
            }
            // SAFETY: POSIX.1-2024 reserves this name for a function of this type.
            Self::Monotonic(unsafe { std::mem::transmute::<*mut libc::c_void, ClockLock>(symbol) })
        }

        /// Locks the mutex, or returns `ETIMEDOUT` after `slice`.
        fn lock(self, mutex: *mut libc::pthread_mutex_t, slice: Duration) -> libc::c_int {
            let clock = match self {
                Self::Monotonic(_) => rustix::time::ClockId::Monotonic,
                Self::Wall => rustix::time::ClockId::Realtime,
            };
            let now = rustix::time::clock_gettime(clock);
            let nanoseconds = now.tv_nsec + i64::from(slice.subsec_nanos());
            let until = libc::timespec {
                tv_sec: now.tv_sec + nanoseconds / 1_000_000_000,
                tv_nsec: nanoseconds % 1_000_000_000,
            };
            // SAFETY: as in `try_acquire`; `until` lives until the call returns.
            unsafe {
                match self {
                    Self::Monotonic(lock) => lock(mutex, libc::CLOCK_MONOTONIC, &raw const until),
                    Self::Wall => libc::pthread_mutex_timedlock(mutex, &raw const until),
                }
            }
        }
    }

    fn mutex(control: &Control) -> *mut libc::pthread_mutex_t {
        (&raw const control.mutex.0).cast_mut().cast()
    }

    pub(super) fn initialize(control: &Control) -> io::Result<()> {
        let mut attributes = std::mem::MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let attributes = attributes.as_mut_ptr();
        // SAFETY: `attributes` is initialised by the first call and used until the last. No other process can reach
        // the mutex until the bus gets its name.
        unsafe {
            check(libc::pthread_mutexattr_init(attributes))?;
            check(libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED))?;
            check(libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST))?;
            check(libc::pthread_mutex_init(mutex(control), attributes))?;
            check(libc::pthread_mutexattr_destroy(attributes))
        }
    }

    pub(super) fn try_acquire(control: &Control) -> Result<Acquired, Denied> {
        // SAFETY: the mutex was initialised when the bus was created. The caller's guard keeps the mapping alive
        // for as long as the lock is held.
        acquired(control, unsafe { libc::pthread_mutex_trylock(mutex(control)) })
    }

    pub(super) fn acquire(
        control: &Control,
        deadline: Option<Instant>,
        clock: Clock,
    ) -> Result<Acquired, Denied> {
        for _ in 0..super::SPINS {
            match try_acquire(control) {
                Err(Denied::Busy) => crate::sync::pause(),
                answer => return answer,
            }
        }
        loop {
            let slice = match deadline {
                None => SLICE,
                Some(deadline) => match deadline.checked_duration_since(Instant::now()) {
                    None | Some(Duration::ZERO) => return Err(Denied::Busy),
                    Some(left) => left.min(SLICE),
                },
            };
            hook::point(CrashPoint::WaitingForLock);
            match clock.lock(mutex(control), slice) {
                libc::ETIMEDOUT => {}
                answer => return acquired(control, answer),
            }
        }
    }

    fn acquired(control: &Control, answer: libc::c_int) -> Result<Acquired, Denied> {
        match answer {
            0 => Ok(Acquired { owner_died: false }),
            libc::EOWNERDEAD => {
                // This must come first: unlocking an inconsistent mutex would make it unusable for ever.
                // SAFETY: `EOWNERDEAD` says that this thread holds the mutex, and that it is inconsistent.
                match unsafe { libc::pthread_mutex_consistent(mutex(control)) } {
                    0 => Ok(Acquired { owner_died: true }),
                    error => Err(Denied::Os(io::Error::from_raw_os_error(error))),
                }
            }
            libc::EBUSY => Err(Denied::Busy),
            error => Err(Denied::Os(io::Error::from_raw_os_error(error))),
        }
    }

    pub(super) fn release(control: &Control) {
        // SAFETY: the caller holds the mutex in this thread. Any result other than 0 means that another process
        // wrote into the mutex. Nothing can be done here; the next attempt to acquire it reports the error.
        let _ = unsafe { libc::pthread_mutex_unlock(mutex(control)) };
    }

    /// Returns the owner's thread id. Only for glibc, whose `__lock` is the first int and holds the thread id with
    /// flags in the upper bits (FUTEX_TID_MASK, linux/futex.h). musl keeps it in one of the first two words, too.
    pub(super) fn owner(control: &Control) -> Option<u32> {
        const LOCK_OWNER: u32 = 0x3FFF_FFFF;
        if !cfg!(target_env = "gnu") {
            return None;
        }
        let bytes = control.mutex.0[0].load(Ordering::Relaxed).to_ne_bytes();
        let word = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) & LOCK_OWNER;
        (word != 0).then_some(word)
    }

    fn check(answer: libc::c_int) -> io::Result<()> {
        if answer == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(answer)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    struct Dead(Vec<Owner>);

    impl LivenessCheck for Dead {
        fn is_dead(&self, owner: Owner) -> Result<bool, Blind> {
            Ok(self.0.contains(&owner))
        }

        fn has_ended(&self, _: Owner) -> bool {
            true
        }
    }

    /// This owner has lost its lease, and its process may live.
    struct Lost(Owner);

    impl LivenessCheck for Lost {
        fn is_dead(&self, owner: Owner) -> Result<bool, Blind> {
            Ok(owner == self.0)
        }

        fn has_ended(&self, _: Owner) -> bool {
            false
        }
    }

    fn locks(kind: LockKind) -> (Arc<Control>, WriterLock, WriterLock) {
        let control = Arc::new(Control::default());
        initialize(kind, &control).unwrap();
        let lock = |slot| WriterLock::new(kind, Owner::new(slot, 7));
        (control, lock(0), lock(1))
    }

    fn soon() -> LockAttempt {
        LockAttempt::Until(Some(Instant::now() + Duration::from_millis(20)))
    }

    /// A deadline for what must happen: longer than a busy machine needs, but not infinite.
    fn patiently() -> LockAttempt {
        LockAttempt::Until(Some(Instant::now() + Duration::from_secs(60)))
    }

    #[test]
    fn an_owner_is_never_free() {
        assert_ne!(Owner::new(0, 0).0, 0);
        let owner = Owner::new(1023, u32::MAX);
        assert_eq!(owner.slot(), Some(1023));
        assert!(owner.has_generation(u32::MAX) && !owner.has_generation(0));
        assert_eq!(owner.0 & (WAITERS | STARVING | EXCLUSIVE), 0);
        assert_eq!(Owner(5).slot(), None, "names no slot");
    }

    #[test]
    fn excludes_and_times_out() {
        for kind in [LockKind::Lease, LockKind::Robust] {
            let (control, one, two) = locks(kind);
            let _ = one.try_acquire(&control).unwrap();
            // In another thread, because a robust mutex belongs to a thread.
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    assert!(two.try_acquire(&control).is_none());
                    let denied = two.acquire(&control, soon(), &Dead(vec![]));
                    assert!(matches!(denied, Err(Denied::Busy)), "{kind:?}");
                });
            });
            one.release(&control);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let patient = LockAttempt::Until(None);
                    assert!(!two.acquire(&control, patient, &Dead(vec![])).unwrap().owner_died);
                    two.release(&control);
                });
            });
        }
    }

    #[test]
    fn many_threads_count_without_losing_one() {
        for kind in [LockKind::Lease, LockKind::Robust] {
            let control = Arc::new(Control::default());
            initialize(kind, &control).unwrap();
            std::thread::scope(|scope| {
                for slot in 0..4 {
                    let control = &control;
                    scope.spawn(move || {
                        let lock = WriterLock::new(kind, Owner::new(slot, 1));
                        for _ in 0..20_000 {
                            if lock.try_acquire(control).is_none() {
                                let _ = lock
                                    .acquire(control, LockAttempt::Until(None), &Dead(vec![]))
                                    .unwrap();
                            }
                            let count = control.commit.0.tail.load(Ordering::Relaxed);
                            control.commit.0.tail.store(count + 1, Ordering::Relaxed);
                            lock.release(control);
                        }
                    });
                }
            });
            assert_eq!(control.commit.0.tail.load(Ordering::Relaxed), 80_000, "{kind:?}");
            assert_eq!(lease_owner(&control), None);
        }
    }

    #[test]
    fn a_lease_lock_passes_from_the_dead() {
        let (control, dead, two) = locks(LockKind::Lease);
        let _ = dead.try_acquire(&control).unwrap();
        let liveness = Dead(vec![dead.me]);
        assert!(two.acquire(&control, patiently(), &liveness).unwrap().owner_died);
        two.release(&control);
        assert!(two.try_acquire(&control).is_some());
    }

    #[test]
    fn no_publisher_waits_for_an_exclusive_one_that_lives() {
        let (control, exclusive, two) = locks(LockKind::Lease);
        let none_is_dead = Dead(vec![]);
        let _ = exclusive.acquire_exclusive(&control, LockAttempt::Try, &none_is_dead).unwrap();
        assert!(exclusive.is_kept(&control) && !two.is_kept(&control));
        assert_eq!(lease_owner(&control), Some((exclusive.me, true)));
        assert!(two.try_acquire(&control).is_none());
        for attempt in [LockAttempt::Try, LockAttempt::Until(None)] {
            for lock in [&two, &exclusive] {
                let denied = lock.acquire(&control, attempt, &none_is_dead);
                assert!(matches!(denied, Err(Denied::Exclusive(owner)) if owner == exclusive.me));
            }
            // A second one of the same participant.
            let denied = exclusive.acquire_exclusive(&control, attempt, &none_is_dead);
            assert!(matches!(denied, Err(Denied::Exclusive(owner)) if owner == exclusive.me));
        }
        let denied = two.acquire_exclusive(&control, soon(), &none_is_dead);
        assert!(matches!(denied, Err(Denied::Exclusive(owner)) if owner == exclusive.me));
        exclusive.release(&control);
        assert_eq!(lease_owner(&control), None);
        assert!(two.try_acquire(&control).is_some());
    }

    #[test]
    fn the_next_exclusive_publisher_waits_for_the_one_before() {
        let (control, one, two) = locks(LockKind::Lease);
        let _ = one.acquire_exclusive(&control, LockAttempt::Try, &Dead(vec![])).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let acquired = two.acquire_exclusive(&control, patiently(), &Dead(vec![]));
                assert!(!acquired.unwrap().owner_died && two.is_kept(&control));
                two.release(&control);
            });
            while control.commit.0.lock.load(Ordering::Relaxed) & WAITERS == 0 {
                std::thread::yield_now();
            }
            one.release(&control);
        });
        assert_eq!(lease_owner(&control), None);
    }

    #[test]
    fn waiters_are_told_of_an_exclusive_publisher_that_came_first() {
        let (control, one, two) = locks(LockKind::Lease);
        let _ = one.try_acquire(&control).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let denied = two.acquire(&control, LockAttempt::Until(None), &Dead(vec![]));
                assert!(matches!(denied, Err(Denied::Exclusive(owner)) if owner == one.me));
            });
            while control.commit.0.lock.load(Ordering::Relaxed) & WAITERS == 0 {
                std::thread::yield_now();
            }
            one.keep(&control.commit.0.lock);
        });
    }

    #[test]
    fn an_exclusive_publisher_that_died_is_taken_over_from() {
        for attempt in [LockAttempt::Try, LockAttempt::Until(None)] {
            for exclusive in [false, true] {
                let (control, dead, two) = locks(LockKind::Lease);
                let liveness = Dead(vec![dead.me]);
                let _ = dead.acquire_exclusive(&control, LockAttempt::Try, &liveness).unwrap();
                let acquired = if exclusive {
                    two.acquire_exclusive(&control, attempt, &liveness)
                } else {
                    two.acquire(&control, attempt, &liveness)
                };
                assert!(acquired.unwrap().owner_died);
                assert_eq!((two.is_kept(&control), dead.is_kept(&control)), (exclusive, false));
                // Only lost its lease: it gives back nothing that is another's.
                dead.release(&control);
                assert_eq!(lease_owner(&control), Some((two.me, exclusive)));
                two.release(&control);
                assert_eq!(control.commit.0.lock.load(Ordering::Relaxed), 0);
            }
        }
    }

    #[test]
    fn a_robust_lock_passes_from_a_dead_thread() {
        let (control, one, two) = locks(LockKind::Robust);
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(one.try_acquire(&control).is_some()));
        });
        assert!(two.acquire(&control, patiently(), &Dead(vec![])).unwrap().owner_died);
        two.release(&control);
        assert!(!two.try_acquire(&control).unwrap().owner_died, "the mutex is consistent again");
        two.release(&control);
    }

    /// `/proc/PID/task/TID/syscall` (proc(5)) shows the system call in which a thread sleeps, and its arguments.
    #[test]
    fn a_robust_lock_is_not_waited_for_by_the_wall_clock() {
        const FUTEX_CLOCK_REALTIME: u64 = 256;
        let (control, one, two) = locks(LockKind::Robust);
        if matches!(two.clock, robust::Clock::Wall) {
            eprintln!("skipped: this C library has no pthread_mutex_clocklock");
            return;
        }
        let _ = one.try_acquire(&control).unwrap();
        let mutex = format!("{:#x}", (&raw const control.mutex.0) as usize);
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                tell.send(rustix::thread::gettid().as_raw_nonzero()).unwrap();
                let _ = two.acquire(&control, patiently(), &Dead(vec![])).unwrap();
                two.release(&control);
            });
            let path = format!("/proc/self/task/{}/syscall", told.recv().unwrap());
            let mut operation = 0;
            crate::shm::testing::eventually(|| {
                let call = std::fs::read_to_string(&path).unwrap();
                let words: Vec<_> = call.split_whitespace().collect();
                let [_, address, word, ..] = words[..] else { return false };
                operation = u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap();
                address == mutex
            });
            one.release(&control);
            waiter.join().unwrap();
            assert_eq!(operation & FUTEX_CLOCK_REALTIME, 0, "{operation:#x}");
        });
    }

    #[test]
    fn a_try_takes_over_at_the_second_check() {
        let (control, dead, two) = locks(LockKind::Lease);
        let _ = dead.try_acquire(&control).unwrap();
        let liveness = Dead(vec![dead.me]);
        assert!(matches!(two.acquire(&control, LockAttempt::Try, &liveness), Err(Denied::Busy)));
        assert!(two.acquire(&control, LockAttempt::Try, &liveness).unwrap().owner_died);
    }

    #[test]
    fn a_claimer_inherits_from_its_slots_last_owner() {
        let (control, dead, other) = locks(LockKind::Lease);
        let _ = dead.try_acquire(&control).unwrap();
        assert_eq!(other.inherit(&control), None);
        let heir = WriterLock::new(LockKind::Lease, Owner::new(0, 8));
        assert!(heir.inherit(&control).unwrap().owner_died);
        heir.release(&control);
        assert_eq!(control.commit.0.lock.load(Ordering::Relaxed), 0);
    }

    /// The former owner may only have lost its descriptors, and be in the middle of a message.
    #[test]
    fn a_claimer_inherits_from_an_exclusive_publisher_after_a_delay() {
        let (control, dead, _) = locks(LockKind::Lease);
        let _ = dead.acquire_exclusive(&control, LockAttempt::Try, &Dead(vec![])).unwrap();
        let heir = WriterLock::new(LockKind::Lease, Owner::new(0, 8));
        let began = Instant::now();
        assert!(heir.inherit(&control).unwrap().owner_died);
        assert!(began.elapsed() >= TAKEOVER_DELAY);
        assert!(!dead.is_kept(&control) && !heir.is_kept(&control));
        heir.release(&control);
        assert_eq!(control.commit.0.lock.load(Ordering::Relaxed), 0);
    }

    /// If who takes over dies while it waits, the next one finds an exclusive publisher's word, and waits, too.
    #[test]
    fn who_takes_over_from_an_exclusive_publisher_leaves_its_mark_until_it_may_write() {
        let is_marked = |takes_over: &(dyn Fn(&Control, &WriterLock) -> Owner + Sync)| {
            let (control, dead, two) = locks(LockKind::Lease);
            let _ = dead.acquire_exclusive(&control, LockAttempt::Try, &Dead(vec![])).unwrap();
            let has_taken = std::sync::atomic::AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let owner = takes_over(&control, &two);
                    assert_eq!(lease_owner(&control), Some((owner, false)), "after the delay");
                    has_taken.store(true, Ordering::Release);
                });
                let mut was_marked = false;
                while !has_taken.load(Ordering::Acquire) {
                    let owner = lease_owner(&control);
                    was_marked |=
                        owner.is_some_and(|(owner, exclusive)| owner != dead.me && exclusive);
                    std::thread::yield_now();
                }
                was_marked
            })
        };
        // A busy machine may not let this thread see every delay.
        let is_seen = |takes_over: &(dyn Fn(&Control, &WriterLock) -> Owner + Sync)| {
            (0..500).any(|_| is_marked(takes_over))
        };
        assert!(is_seen(&|control, two| {
            let liveness = Lost(Owner::new(0, 7));
            assert!(two.acquire(control, LockAttempt::Until(None), &liveness).unwrap().owner_died);
            two.me
        }));
        assert!(is_seen(&|control, _| {
            let heir = WriterLock::new(LockKind::Lease, Owner::new(0, 8));
            assert!(heir.inherit(control).unwrap().owner_died);
            heir.me
        }));
    }

    /// One that is itself taken for dead while it waits does not believe that it has the lock.
    #[test]
    fn who_loses_the_lock_while_it_waits_to_write_does_not_have_it() {
        let (control, dead, two) = locks(LockKind::Lease);
        let lock = &control.commit.0.lock;
        let three = Owner::new(2, 7);
        for _ in 0..500 {
            lock.store(0, Ordering::Relaxed);
            let _ = dead.acquire_exclusive(&control, LockAttempt::Try, &Dead(vec![])).unwrap();
            let word = lock.load(Ordering::Relaxed);
            let was_late = std::thread::scope(|scope| {
                let taking = scope.spawn(|| two.seize_after_delay(lock, word));
                loop {
                    let marked = two.me.0 | EXCLUSIVE;
                    let now = lock.load(Ordering::Relaxed);
                    if now == two.me.0 {
                        break true;
                    }
                    if now == marked
                        && lock
                            .compare_exchange(marked, three.0, Ordering::Relaxed, Ordering::Relaxed)
                            .is_ok()
                    {
                        assert!(!taking.join().unwrap());
                        break false;
                    }
                    std::thread::yield_now();
                }
            });
            if !was_late {
                assert_eq!(lease_owner(&control), Some((three, false)));
                return;
            }
        }
        panic!("the wait was never seen");
    }

    #[test]
    fn what_is_kept_for_the_starving_is_had_by_waiting() {
        let (control, one, two) = locks(LockKind::Lease);
        control.commit.0.lock.store(STARVING, Ordering::Relaxed);
        assert!(one.try_acquire(&control).is_none(), "a newcomer may not take it");
        let began = Instant::now();
        let _ = one.acquire(&control, LockAttempt::Until(None), &Dead(vec![])).unwrap();
        assert!(began.elapsed() >= STARVING_AFTER);
        one.release(&control);
        control.commit.0.lock.store(STARVING, Ordering::Relaxed);
        assert!(two.acquire(&control, LockAttempt::Try, &Dead(vec![])).is_err());
        assert!(!two.acquire(&control, LockAttempt::Try, &Dead(vec![])).unwrap().owner_died);
    }

    #[test]
    fn a_releaser_that_returns_lets_the_starving_go_first() {
        let (control, one, two) = locks(LockKind::Lease);
        let _ = one.try_acquire(&control).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let _ = two.acquire(&control, LockAttempt::Until(None), &Dead(vec![])).unwrap();
                two.release(&control);
            });
            while control.commit.0.lock.load(Ordering::Relaxed) & STARVING == 0 {
                std::thread::yield_now();
            }
            one.release(&control);
            // Either the lock is still reserved for the waiter, or the waiter has already had it.
            let again = one.acquire(&control, LockAttempt::Until(None), &Dead(vec![])).unwrap();
            assert!(!again.owner_died);
            one.release(&control);
            waiter.join().unwrap();
        });
    }

    #[test]
    fn a_release_frees_no_other_owners_lock() {
        let (control, one, two) = locks(LockKind::Lease);
        let _ = one.try_acquire(&control).unwrap();
        let _ = two.acquire(&control, patiently(), &Dead(vec![one.me])).unwrap();
        one.release(&control);
        assert_eq!(lease_owner(&control), Some((two.me, false)));
    }
}
