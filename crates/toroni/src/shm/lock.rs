//! The writer lock, in two kinds that survive the death of their owner at any instruction.
//!
//! # `lease`
//!
//! One futex word in `ring`:
//!
//! ```text
//!  bit 31      30         29 … 18                17 … 0
//!   +---------+----------+----------------------+---------------------------------+
//!   | WAITERS | STARVING | publisher slot + 1   | low bits of the slot's generation |
//!   +---------+----------+----------------------+---------------------------------+
//! ```
//!
//! 0 is free. Acquire and release are one compare-exchange each while nobody competes. A waiter spins
//! briefly, yields, and sleeps; every few milliseconds it asks whether the owner's lease is still
//! held. If not, it takes over by a compare-exchange on the exact word that it tested: the generation
//! in it makes sure that it is still the same owner.
//!
//! A lock that is free again the moment its owner releases it goes to the releaser if that comes
//! straight back, since the waiter that was woken needs longer. So a waiter of more than
//! [`STARVING_AFTER`] sets STARVING, and the next release leaves the word at STARVING alone: free, but
//! only for those who have waited that long. Everyone who finds it so becomes one of them by waiting,
//! so nothing hangs if the starving waiter dies.
//!
//! # `robust`
//!
//! A process-shared robust `pthread_mutex_t` (`pthread_mutexattr_setrobust(3)`): the kernel hands the
//! lock over when it takes its owner apart, before the memory is torn down. While it is held, the
//! mutex is a link of a list that the C library keeps in the owner's memory: a publisher that wrote
//! nonsense into it could make the owner crash. So `robust` is for publishers that trust one another
//! that far; `lease` asks for less.

use crate::crash::{self, CrashPoint};
use crate::mutant::mutant;
use crate::ring::layout::Control;
use crate::settings::LockKind;
use crate::sync::{AtomicU32, Ordering};
use rustix::thread::futex;
use std::io;
use std::time::{Duration, Instant};

/// How long a lock may be denied to a waiter before others must let it go first.
const STARVING_AFTER: Duration = Duration::from_millis(1);
/// How often a waiter asks whether the owner lives.
const LEASE_TEST_EVERY: Duration = Duration::from_millis(3);
/// Looks at the word before a waiter lets others run, and before it sleeps: a lock is held for tens
/// of nanoseconds if its owner runs.
const SPINS: u32 = 60;
const YIELDS: u32 = 4;

const WAITERS: u32 = 1 << 31;
const STARVING: u32 = 1 << 30;
const OWNER: u32 = STARVING - 1;
const GENERATION_BITS: u32 = 18;
const GENERATION: u32 = (1 << GENERATION_BITS) - 1;

/// A publishing participant, as the lock word names it; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u32);

impl Owner {
    /// `slot` is below `MOST_PARTICIPANTS`.
    pub(crate) fn new(slot: u32, generation: u32) -> Self {
        Self((slot + 1) << GENERATION_BITS | generation & GENERATION)
    }

    /// The owner that a word names, if it names one.
    fn of(word: u32) -> Option<Self> {
        (word & OWNER != 0).then_some(Self(word & OWNER))
    }

    /// Its slot; `None` if the word is no participant's.
    pub(crate) fn slot(self) -> Option<u32> {
        (self.0 >> GENERATION_BITS).checked_sub(1)
    }

    /// Whether it is the owner of its slot that has this generation.
    pub(crate) fn has_generation(self, generation: u32) -> bool {
        self.0 & GENERATION == generation & GENERATION
    }
}

/// The lock is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the lock has to be released"]
pub(crate) struct Acquired {
    /// The previous owner died with it: the ring needs recovery.
    pub(crate) owner_died: bool,
}

/// How long to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockAttempt {
    /// One look.
    Try,
    /// Until then, or for ever.
    Until(Option<Instant>),
}

/// Why the lock was not acquired.
#[derive(Debug)]
pub(crate) enum Denied {
    /// Somebody else has it, and the attempt is over.
    Busy,
    /// This participant can no longer ask who lives.
    Blind,
    /// The mutex answered something that it never answers when all use it properly.
    Os(io::Error),
}

/// A participant cannot ask the kernel any more: somebody closed the descriptors of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blind;

/// Whether an owner is dead; asks the kernel.
pub(crate) trait LivenessCheck {
    /// True only if it is certain.
    fn is_dead(&self, owner: Owner) -> Result<bool, Blind>;
}

impl From<Blind> for Denied {
    fn from(_: Blind) -> Self {
        Self::Blind
    }
}

/// This participant's side of the lock.
pub(crate) struct WriterLock {
    kind: LockKind,
    me: Owner,
    /// The foreign word at which the last `LockAttempt::Try` failed.
    seen: AtomicU32,
    /// By which a robust lock is waited for.
    clock: robust::Clock,
}

impl WriterLock {
    pub(crate) fn new(kind: LockKind, me: Owner) -> Self {
        Self { kind, me, seen: AtomicU32::new(0), clock: robust::Clock::best() }
    }

    /// Its kind.
    /// Takes the lock if it is free: the hot path.
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

    /// Takes the lock after [`Self::try_acquire`] failed.
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

    /// Gives the lock back. A full fence only on x86-64 and for `lease`: see
    /// [`crate::sync::fence_after_unlock`].
    #[inline]
    pub(crate) fn release(&self, control: &Control) {
        match self.kind {
            LockKind::Lease => {
                let word = &control.commit.0.lock;
                // LOCK. Not a swap: were this participant taken for dead by mistake (its lease was
                // closed behind its back), a swap would free somebody else's lock.
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
                    crash::point(CrashPoint::BeforeHandOver);
                    wake_one(lock);
                    return;
                }
                Err(now) => word = now,
            }
        }
    }

    /// One look; the second time the same word stands in the way, its owner's lease is tested.
    fn try_lease(
        &self,
        control: &Control,
        liveness: &impl LivenessCheck,
    ) -> Result<Acquired, Denied> {
        let lock = &control.commit.0.lock;
        let word = lock.load(Ordering::Relaxed);
        let before = self.seen.swap(word, Ordering::Relaxed);
        let owner = Owner::of(word);
        let died = match owner {
            // Free, but kept for a starving waiter, which may have died.
            None => word == 0 || before == word,
            Some(owner) => {
                before & OWNER == owner.0
                    && owner != self.me
                    && liveness.is_dead(owner)?
                    && !mutant("try_takes_over_from_nobody")
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
            if lock.load(Ordering::Relaxed) == 0 && self.seize(lock, 0, 0) {
                return Ok(Acquired { owner_died: false });
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
                    // Others may sleep: only the last waiter would know that there are none.
                    if self.seize(lock, word, WAITERS) {
                        return Ok(Acquired { owner_died: false });
                    }
                } else {
                    self.sleep(lock, word, STARVING_AFTER, deadline, now)?;
                }
                continue;
            };

            if now - tested >= LEASE_TEST_EVERY {
                tested = now;
                // A thread of this very participant lives as this process does.
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
                crash::point(CrashPoint::WaitingForLock);
                let slice = if starving { LEASE_TEST_EVERY } else { STARVING_AFTER };
                self.sleep(lock, waiting, slice, deadline, now)?;
            }
        }
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

    /// Frees the lock if an earlier owner of this participant's slot died with it. Its slot has a new
    /// generation now, so that no lease would ever tell. To be called once, before the first lock.
    pub(crate) fn inherit(&self, control: &Control) -> Option<Acquired> {
        if self.kind != LockKind::Lease {
            return None;
        }
        let lock = &control.commit.0.lock;
        let word = lock.load(Ordering::Relaxed);
        let owner = Owner::of(word)?;
        // Also if it is this very owner: it has not taken the lock yet, so the word is wrong, or from a
        // generation whose low bits were the same.
        (owner.slot() == self.me.slot() && self.seize(lock, word, word & WAITERS))
            .then_some(Acquired { owner_died: true })
    }

    /// Puts this participant in the place of exactly `word`, with the bit WAITERS as given.
    fn seize(&self, lock: &AtomicU32, word: u32, waiters: u32) -> bool {
        // LOCK
        lock.compare_exchange(word, self.me.0 | waiters, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }
}

/// Who holds the `lease` lock, as far as its word tells.
pub(crate) fn lease_owner(control: &Control) -> Option<Owner> {
    Owner::of(control.commit.0.lock.load(Ordering::Relaxed))
}

/// The thread id that holds the `robust` lock, in the namespace of its process.
pub(crate) fn robust_owner(control: &Control) -> Option<u32> {
    robust::owner(control)
}

/// Prepares the lock of a new bus, before anybody else can see it.
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
    // Whatever the answer, the caller looks at the word again.
    let _ = futex::wait(lock, futex::Flags::empty(), word, Some(&timeout));
}

fn wake_one(lock: &AtomicU32) {
    let _ = futex::wake(lock, futex::Flags::empty(), 1);
}

mod robust {
    use super::{Acquired, Control, Denied};
    use crate::crash::{self, CrashPoint};
    use crate::sync::Ordering;
    use std::io;
    use std::time::{Duration, Instant};

    const _: () = assert!(size_of::<libc::pthread_mutex_t>() <= 64);
    const _: () = assert!(align_of::<libc::pthread_mutex_t>() <= 128);

    /// Sleeps of at most this: by the wall clock, one that jumps ahead ends a sleep too early, and one that is
    /// set back makes it longer by as much.
    const SLICE: Duration = Duration::from_millis(50);

    /// `pthread_mutex_clocklock(3)`.
    type ClockLock = unsafe extern "C" fn(
        *mut libc::pthread_mutex_t,
        libc::clockid_t,
        *const libc::timespec,
    ) -> libc::c_int;

    /// The clock that ends a wait.
    #[derive(Clone, Copy, Debug)]
    pub(super) enum Clock {
        /// That of the deadlines, which nobody sets.
        Monotonic(ClockLock),
        /// The only one that `pthread_mutex_timedlock(3)` knows.
        Wall,
    }

    impl Clock {
        /// The monotonic one where the C library can wait by it: glibc can since 2.30, unless it is linked
        /// statically; musl cannot.
        pub(super) fn best() -> Self {
            // SAFETY: a string that ends in 0, looked up among the symbols of this process.
            let symbol =
                unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"pthread_mutex_clocklock".as_ptr()) };
            if symbol.is_null() {
                return Self::Wall;
            }
            // SAFETY: the function of that name, which POSIX.1-2024 reserves, has this type.
            Self::Monotonic(unsafe { std::mem::transmute::<*mut libc::c_void, ClockLock>(symbol) })
        }

        /// Locks the mutex, or answers `ETIMEDOUT` after `slice`.
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
        // SAFETY: `attributes` is initialised by the first call and used until the last; the mutex
        // lies in a mapping that is exclusive to this process until the bus gets its name.
        unsafe {
            check(libc::pthread_mutexattr_init(attributes))?;
            check(libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED))?;
            check(libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST))?;
            check(libc::pthread_mutex_init(mutex(control), attributes))?;
            check(libc::pthread_mutexattr_destroy(attributes))
        }
    }

    pub(super) fn try_acquire(control: &Control) -> Result<Acquired, Denied> {
        // SAFETY: the mutex was initialised when the bus was created; the caller's mapping lives as
        // long as the lock is held, since the guard keeps it.
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
            crash::point(CrashPoint::WaitingForLock);
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
                // Before anything else: an unlock without it would make the mutex unusable for ever.
                // SAFETY: the answer says that this thread holds the mutex, inconsistent.
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
        // SAFETY: the caller holds the mutex, in this thread.
        // An answer other than 0 means that somebody wrote into the mutex meanwhile: then whoever asks
        // for the lock next is told, and there is nothing to be done here.
        let _ = unsafe { libc::pthread_mutex_unlock(mutex(control)) };
    }

    /// glibc and musl keep the owner's thread id in one of the first two words.
    pub(super) fn owner(control: &Control) -> Option<u32> {
        const LOCK_OWNER: u32 = 0x3FFF_FFFF;
        // glibc: `__lock` is the first int and holds the thread id with flags in the upper bits
        // (FUTEX_TID_MASK, linux/futex.h).
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

    /// For what must come: longer than a busy machine takes, and not for ever.
    fn patiently() -> LockAttempt {
        LockAttempt::Until(Some(Instant::now() + Duration::from_secs(60)))
    }

    #[test]
    fn an_owner_is_never_free() {
        assert_ne!(Owner::new(0, 0).0, 0);
        let owner = Owner::new(1023, u32::MAX);
        assert_eq!(owner.slot(), Some(1023));
        assert!(owner.has_generation(u32::MAX) && !owner.has_generation(0));
        assert_eq!(owner.0 & (WAITERS | STARVING), 0);
        assert_eq!(Owner(5).slot(), None, "names no slot");
    }

    #[test]
    fn excludes_and_times_out() {
        for kind in [LockKind::Lease, LockKind::Robust] {
            let (control, one, two) = locks(kind);
            let _ = one.try_acquire(&control).unwrap();
            // Another thread: a robust mutex belongs to one.
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
    fn a_robust_lock_passes_from_a_dead_thread() {
        let (control, one, two) = locks(LockKind::Robust);
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(one.try_acquire(&control).is_some()));
        });
        assert!(two.acquire(&control, patiently(), &Dead(vec![])).unwrap().owner_died);
        two.release(&control);
        assert!(!two.try_acquire(&control).unwrap().owner_died, "it is consistent again");
        two.release(&control);
    }

    /// What a thread sleeps on is in `/proc/PID/task/TID/syscall` (proc(5)): number and arguments.
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

    #[test]
    fn what_is_kept_for_the_starving_is_had_by_waiting() {
        let (control, one, two) = locks(LockKind::Lease);
        control.commit.0.lock.store(STARVING, Ordering::Relaxed);
        assert!(one.try_acquire(&control).is_none(), "not for those who just come");
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
            // Either it is still kept for the waiter, or the waiter has had it.
            let again = one.acquire(&control, LockAttempt::Until(None), &Dead(vec![])).unwrap();
            assert!(!again.owner_died);
            one.release(&control);
            waiter.join().unwrap();
        });
    }

    #[test]
    fn a_release_frees_nobody_elses_lock() {
        let (control, one, two) = locks(LockKind::Lease);
        let _ = one.try_acquire(&control).unwrap();
        let _ = two.acquire(&control, patiently(), &Dead(vec![one.me])).unwrap();
        one.release(&control);
        assert_eq!(lease_owner(&control), Some(two.me));
    }
}
