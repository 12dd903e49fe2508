//! The named steps at which a process can die, for tests that kill it there.
//!
//! Without the feature `crash-points`, `point` compiles to nothing. With it, environment variables choose
//! what happens:
//!
//! - `TORONI_CRASH=<name>[:<n>]` kills this process with SIGKILL when it reaches the step of that name for
//!   the n-th time (1 if not given).
//!
//! - `TORONI_JITTER=<permille>[:<seed>]` delays it at that share of the steps, so that the moments between
//!   them last longer.
//!
//! - `TORONI_SLEEP=unaided` turns off the checks of sleeping subscribers that no wake-up asks for, so that
//!   a lost wake-up is a hang.
//!
//! To add a step, add it to the enum and call `point` where it happens; the system tests then walk it. To
//! add a known mistake that the tests must notice, see `mutant.rs`.

use std::time::Duration;

macro_rules! crash_points {
    ($($variant:ident = $name:literal, $what:literal;)*) => {
        /// A step at which a process can die.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum CrashPoint { $(#[doc = $what] $variant,)* }

        impl CrashPoint {
            /// All steps, in the order of their declaration.
            pub const ALL: &[CrashPoint] = &[$(CrashPoint::$variant,)*];

            /// Returns the name by which `TORONI_CRASH` selects the step.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(CrashPoint::$variant => $name,)* }
            }
        }
    };
}

crash_points! {
    AfterLock = "after-lock", "A writer holds the lock and has done nothing yet.";
    AfterReserve = "after-reserve", "`reserved` is raised; no byte is written.";
    MidCopy = "mid-copy", "Half of a record's bytes are written.";
    AfterEndWord = "after-end-word", "The 0 after the record is written.";
    MidIndex = "mid-index", "An index entry has its new sequence, but no position.";
    AfterIndex = "after-index", "The blocks index is up to date; the record is not committed.";
    AfterCommit = "after-commit", "The record is visible; sequence and tail are not yet updated.";
    BetweenSequenceAndTail = "between-sequence-and-tail", "The sequence is raised, the tail is not.";
    BeforeUnlock = "before-unlock", "All is written; the lock is still held.";
    BeforeWake = "before-wake", "The lock is free; sleepers have not been woken.";
    TopicAppend = "topic-append", "A topic's name is written, but not counted.";
    MidBurst = "mid-burst", "Some messages of a burst are committed, the rest are not.";
    Proposing = "proposing", "A writer has stored its proposal; it has read no slot.";
    BeforeWithdrawing = "before-withdrawing", "A reader is in the way; the writer's proposal is not withdrawn.";
    RegisteringWait = "registering-wait", "A publisher has registered its wait for space, under the lock.";
    WaitingForSpace = "waiting-for-space", "A publisher has registered that it waits for space.";
    WokenForSpace = "woken-for-space", "A publisher was woken for space, or rechecks; it has no lock.";
    BeforePassingOn = "before-passing-on", "A publisher had to wait, and has not woken the next one.";
    MidBudget = "mid-budget", "A new interval of the budget has begun; the old one's spending stands.";
    WaitingForLock = "waiting-for-lock", "A publisher has registered that it waits for the lock.";
    BeforeHandOver = "before-hand-over", "The lock is free; the publisher that waits is not woken.";
    MidWake = "mid-wake", "Sleepers are about to be woken, or some of them have been.";
    CreatorBegan = "creator-began", "The new bus is an empty directory, or file, without its name.";
    MidFill = "mid-fill", "A file of the new bus has its size, but no header.";
    MidSockets = "mid-sockets", "The directory of sockets is made; its permissions are not set.";
    MidCreation = "mid-creation", "The new bus is half built under its temporary name.";
    BeforeRename = "before-rename", "The new bus is complete under its temporary name.";
    PublisherLeaseTaken = "publisher-lease-taken", "A publisher has the lease; the slot is still its last owner's.";
    PublisherMidClaim = "publisher-mid-claim", "A publisher holds its lease; its slot is not active.";
    PublisherMidLeave = "publisher-mid-leave", "A publisher's slot is free; its lease is held.";
    ReaderLeaseTaken = "reader-lease-taken", "A reader has the lease; the slot is still its last owner's.";
    ReaderMidClaim = "reader-mid-claim", "A reader holds its lease; its slot is not active.";
    ReaderMidPatterns = "reader-mid-patterns", "Half of a reader's patterns are written.";
    ReaderMidActivate = "reader-mid-activate", "A reader's slot is active; publishers do not know of it.";
    ReaderAfterClaim = "reader-after-claim", "A reader's slot is active; it has read nothing.";
    ReaderMidSocket = "reader-mid-socket", "A reader has its socket; publishers do not know of it.";
    ReaderLeaving = "reader-leaving", "A reader's socket is gone; its slot is active.";
    ReaderMidLeave = "reader-mid-leave", "A reader's slot is free; its lease is held.";
    ReaderMidCopy = "reader-mid-copy", "A reader copied a record and has not validated it.";
    ReaderHasRun = "reader-has-run", "A reader is handed messages in place; publishers wait for it.";
    ReaderMidPosition = "reader-mid-position", "A reader has published its position; no publisher was woken for it.";
    ReaderBeforeSpaceWake = "reader-before-space-wake", "A reader has raised `space`; no publisher is woken yet.";
    ReaderMidArm = "reader-mid-arm", "A reader is counted as asleep, and has not fenced.";
    ReaderBeforeSleep = "reader-before-sleep", "A reader has armed and is about to sleep.";
    ReaderAwake = "reader-awake", "A reader was woken, or rechecks after its sleep.";
    Takeover = "takeover", "A writer took the lock of a dead one; nothing is recovered yet.";
    MidRecovery = "mid-recovery", "Recovery has set the sequence, but not the tail.";
    MidFreeSlot = "mid-free-slot", "A cleaner has the lease of a dead owner; its slot is active.";
    CleanerHasBus = "cleaner-has-bus", "A cleaner has locked an unused bus; the bus is complete.";
    MidClean = "mid-clean", "A removed bus has lost its name; its files still exist.";
    MidRemoval = "mid-removal", "A removed bus has lost its `ring`; other files still exist.";
    MidMarkInUse = "mid-mark-in-use", "The mark of a clean close is cleared; the disk still has it.";
    BeforeCloseMark = "before-close-mark", "All is written back for a clean close; there is no mark.";
    AfterCloseMark = "after-close-mark", "The mark of a clean close is set; the disk does not have it yet.";
    MidReopen = "mid-reopen", "A bus was checked after a boot, and is not of this boot yet.";
    AfterReopen = "after-reopen", "A bus is of this boot; the process that checked it still has it locked.";
}

/// Returns whether the caller can die at a [`point`]. If so, paths that pass points take no short cut.
#[inline(always)]
pub(crate) fn is_armed() -> bool {
    // In models, the threads that do not die take it.
    #[cfg(all(test, loom))]
    return rehearsal::is_on_stage();
    #[cfg(not(all(test, loom)))]
    return cfg!(any(feature = "crash-points", test));
}

/// Returns how long to sleep at the most if a wake-up should come before `usual` is over. With the feature
/// `crash-points` and `TORONI_SLEEP=unaided` that is for ever, so that a lost wake-up is a hang and not a
/// delay.
#[inline(always)]
pub(crate) fn longest_sleep(usual: Duration) -> Duration {
    #[cfg(feature = "crash-points")]
    return armed::longest_sleep(usual);
    #[cfg(not(feature = "crash-points"))]
    usual
}

/// Kills the process here, if the environment or a test within this process asks for it.
#[inline(always)]
pub(crate) fn point(here: CrashPoint) {
    let _ = here;
    #[cfg(any(test, all(feature = "crash-points", not(loom))))]
    rehearsal::point(here);
    #[cfg(feature = "crash-points")]
    armed::point(here);
}

/// Returns whether this thread belongs to a dead participant. Its handles must then give nothing back:
/// only what the kernel takes from a dead process is released, its leases.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn is_dead() -> bool {
    #[cfg(any(test, feature = "crash-points"))]
    return rehearsal::is_dead();
    #[cfg(not(any(test, feature = "crash-points")))]
    return false;
}

#[cfg(feature = "crash-points")]
mod armed {
    use super::CrashPoint;
    use std::sync::OnceLock;
    use std::time::Duration;
    // Not from `crate::sync`: this counts in a model of nothing.
    use std::sync::atomic::{AtomicU64, Ordering};

    static PLAN: OnceLock<Option<(CrashPoint, u64)>> = OnceLock::new();
    static UNAIDED: OnceLock<bool> = OnceLock::new();
    static REACHED: AtomicU64 = AtomicU64::new(0);

    fn plan() -> Option<(CrashPoint, u64)> {
        let wish = std::env::var("TORONI_CRASH").ok()?;
        let (name, count) = wish.split_once(':').unwrap_or((&wish, "1"));
        let point = CrashPoint::ALL.iter().copied().find(|point| point.name() == name);
        let count = count.parse().ok().filter(|count| *count > 0);
        match (point, count) {
            (Some(point), Some(count)) => Some((point, count)),
            _ => {
                // A test that kills nowhere would pass for the wrong reason.
                eprintln!("TORONI_CRASH={wish}: no such crash point");
                std::process::abort();
            }
        }
    }

    static JITTER: OnceLock<Option<Jitter>> = OnceLock::new();

    struct Jitter {
        permille: u64,
        state: AtomicU64,
    }

    impl Jitter {
        fn plan() -> Option<Self> {
            let wish = std::env::var("TORONI_JITTER").ok()?;
            let (permille, seed) = wish.split_once(':').unwrap_or((&wish, "1"));
            match (permille.parse(), seed.parse()) {
                (Ok(permille), Ok(seed)) => Some(Self { permille, state: AtomicU64::new(seed) }),
                _ => {
                    eprintln!("TORONI_JITTER={wish}: not <permille>[:<seed>]");
                    std::process::abort();
                }
            }
        }

        /// Delays the thread for some microseconds, or yields.
        fn dawdle(&self) {
            // SplitMix64: each thread takes the next number.
            let step = 0x9E37_79B9_7F4A_7C15_u64;
            let mut number = self.state.fetch_add(step, Ordering::Relaxed).wrapping_add(step);
            number = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            number = (number ^ number >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
            number ^= number >> 31;
            if number % 1000 >= self.permille {
                return;
            }
            match number >> 32 & 7 {
                0 => std::thread::yield_now(),
                _ => (0..number >> 40 & 0x3FF).for_each(|_| std::hint::spin_loop()),
            }
        }
    }

    pub(super) fn longest_sleep(usual: Duration) -> Duration {
        let unaided = UNAIDED
            .get_or_init(|| std::env::var_os("TORONI_SLEEP").is_some_and(|way| way == "unaided"));
        if *unaided { Duration::MAX } else { usual }
    }

    /// Kills the process here, if the environment asks for it.
    pub(super) fn point(here: CrashPoint) {
        if let Some(jitter) = JITTER.get_or_init(Jitter::plan) {
            jitter.dawdle();
        }
        if let Some((wanted, count)) = PLAN.get_or_init(plan)
            && *wanted == here
            && REACHED.fetch_add(1, Ordering::Relaxed) + 1 == *count
        {
            let _ = rustix::process::kill_process(
                rustix::process::getpid(),
                rustix::process::Signal::KILL,
            );
            loop {
                std::thread::park();
            }
        }
    }
}

/// Deaths within one process: the thread leaves its work at a step by unwinding, and whatever it wrote so
/// far stays. What it held stays held, but for the leases, which the kernel takes from a process that
/// dies. So lists of operations with deaths in them need no process for each.
///
/// A participant whose bus has a robust lock must die on a thread of its own, which ends before its
/// handles are [`bury`](rehearsal::bury)ed: the kernel hands on such a lock when its thread ends.
#[cfg(any(test, all(feature = "crash-points", not(loom))))]
pub mod rehearsal {
    use super::CrashPoint;
    #[cfg(loom)]
    use loom::thread::{ThreadId, current};
    #[cfg(not(loom))]
    use std::cell::Cell;
    use std::cell::RefCell;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    #[cfg(not(loom))]
    use std::thread::{ThreadId, current};

    /// Says of the steps reached so far whether the last of them is fatal.
    type Fate = Box<dyn Fn(&[CrashPoint]) -> bool>;

    struct Stage {
        actor: ThreadId,
        reached: Vec<CrashPoint>,
        dies: Fate,
    }

    thread_local! {
        // The threads of a model are one thread: there is one stage for all of them.
        static STAGE: RefCell<Option<Stage>> = const { RefCell::new(None) };
    }

    // No model has handles that are dropped.
    #[cfg(not(loom))]
    thread_local! {
        static DEAD: Cell<bool> = const { Cell::new(false) };
    }

    /// What the unwinding carries.
    struct Died;

    /// Does `work` until `dies` says so of the steps that it has reached. Returns these, and the
    /// result if it lived. Must not be nested.
    ///
    /// # Panics
    /// As `work` does.
    pub fn act<R>(
        dies: impl Fn(&[CrashPoint]) -> bool + 'static,
        work: impl FnOnce() -> R,
    ) -> (Vec<CrashPoint>, Option<R>) {
        let actor = current().id();
        STAGE.set(Some(Stage { actor, reached: Vec::new(), dies: Box::new(dies) }));
        let result = catch_unwind(AssertUnwindSafe(work));
        let died = is_dead();
        set_dead(false);
        let stage = STAGE.take().expect("rehearsals are not nested");
        match result {
            Ok(result) => (stage.reached, (!died).then_some(result)),
            Err(cause) if cause.is::<Died>() => (stage.reached, None),
            Err(cause) => resume_unwind(cause),
        }
    }

    /// Drops what a dead participant had, as the kernel does it: descriptors and mappings go, nothing is
    /// given back by itself.
    #[cfg(not(loom))]
    pub fn bury(handles: impl Sized) {
        set_dead(true);
        drop(handles);
        set_dead(false);
    }

    #[cfg(not(loom))]
    pub(super) fn is_dead() -> bool {
        DEAD.get()
    }

    #[cfg(loom)]
    fn is_dead() -> bool {
        false
    }

    fn set_dead(dead: bool) {
        #[cfg(not(loom))]
        DEAD.set(dead);
        #[cfg(loom)]
        let _ = dead;
    }

    #[cfg(loom)]
    pub(super) fn is_on_stage() -> bool {
        STAGE.with_borrow(|stage| stage.as_ref().is_some_and(|stage| stage.actor == current().id()))
    }

    pub(super) fn point(here: CrashPoint) {
        if is_dead() {
            return;
        }
        let dies = STAGE.with_borrow_mut(|stage| {
            stage.as_mut().filter(|stage| stage.actor == current().id()).is_some_and(|stage| {
                stage.reached.push(here);
                (stage.dies)(&stage.reached)
            })
        });
        if dies {
            set_dead(true);
            // A closure of the user may be unwinding already; who catches that does nothing any more.
            if !std::thread::panicking() {
                // Unlike `panic!`, says nothing: this is no failure.
                resume_unwind(Box::new(Died));
            }
        }
    }
}
