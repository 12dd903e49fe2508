//! The named steps at which a process can die, for tests that kill it there.
//!
//! Without the feature `crash-points` a `point` is nothing at all. With it, the environment
//! variable `TORONI_CRASH=<name>[:<n>]` kills this process with SIGKILL when it reaches the step of
//! that name for the n-th time (1 if not given). To add a step: add it to the enum, call `point`
//! where it happens, and the system tests walk it.

macro_rules! crash_points {
    ($($variant:ident = $name:literal, $what:literal;)*) => {
        /// A step at which a process can die.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum CrashPoint { $(#[doc = $what] $variant,)* }

        impl CrashPoint {
            /// All steps, in the order in which they are declared.
            pub const ALL: &[CrashPoint] = &[$(CrashPoint::$variant,)*];

            /// The name by which `TORONI_CRASH` selects the step.
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
    AfterEndWord = "after-end-word", "The 0 behind the record is written.";
    MidIndex = "mid-index", "An index entry has its new sequence, but no position.";
    AfterIndex = "after-index", "The blocks index is up to date; the record is not committed.";
    AfterCommit = "after-commit", "The record is visible; sequence and tail are behind.";
    BetweenSequenceAndTail = "between-sequence-and-tail", "The sequence is raised, the tail is not.";
    BeforeUnlock = "before-unlock", "All is written; the lock is still held.";
    BeforeWake = "before-wake", "The lock is free; sleepers have not been woken.";
    TopicAppend = "topic-append", "A topic's name is written, but not counted.";
    MidBurst = "mid-burst", "Some messages of a burst are committed, the rest are not.";
    WaitingForSpace = "waiting-for-space", "A publisher announced that it waits for room.";
    MidCreation = "mid-creation", "The new bus is half built under its temporary name.";
    BeforeRename = "before-rename", "The new bus is complete under its temporary name.";
    PublisherMidClaim = "publisher-mid-claim", "A publisher holds its lease; its slot is not active.";
    PublisherMidLeave = "publisher-mid-leave", "A publisher's slot is free; its lease is held.";
    ReaderMidClaim = "reader-mid-claim", "A reader holds its lease; its slot is not active.";
    ReaderAfterClaim = "reader-after-claim", "A reader's slot is active; it has read nothing.";
    ReaderMidLeave = "reader-mid-leave", "A reader's slot is free; its lease is held.";
    ReaderMidCopy = "reader-mid-copy", "A reader copied a record and has not validated it.";
    ReaderBeforeSleep = "reader-before-sleep", "A reader announced that it sleeps.";
    ReaderAwake = "reader-awake", "A reader was woken, or looks again, after its sleep.";
    Takeover = "takeover", "A writer took the lock of a dead one; nothing is recovered yet.";
    MidRecovery = "mid-recovery", "Recovery has set the sequence, but not the tail.";
    MidClean = "mid-clean", "A removed bus has lost its name; its files still exist.";
}

/// Whether anybody can die at a [`point`]: then paths that pass them take no short cut.
pub(crate) const ARMED: bool = cfg!(any(feature = "crash-points", all(test, not(loom))));

/// Dies here, if the environment, or a test within this process, asks for it.
#[inline(always)]
pub(crate) fn point(here: CrashPoint) {
    let _ = here;
    #[cfg(all(test, not(loom)))]
    rehearsal::point(here);
    #[cfg(feature = "crash-points")]
    armed::point(here);
}

#[cfg(feature = "crash-points")]
mod armed {
    use super::CrashPoint;
    use std::sync::OnceLock;
    // Not from `crate::sync`: this counts in a model of nothing.
    use std::sync::atomic::{AtomicU64, Ordering};

    static PLAN: OnceLock<Option<(CrashPoint, u64)>> = OnceLock::new();
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

    /// Dies here, if the environment asks for it.
    pub(super) fn point(here: CrashPoint) {
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

/// Deaths within one process, for tests on plain memory: the thread leaves its work at a step by
/// unwinding, and whatever it wrote so far stays.
#[cfg(all(test, not(loom)))]
pub(crate) mod rehearsal {
    use super::CrashPoint;
    use std::cell::RefCell;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    /// Says of the steps reached so far whether the last of them is fatal.
    type Fate = Box<dyn Fn(&[CrashPoint]) -> bool>;

    struct Stage {
        reached: Vec<CrashPoint>,
        dies: Fate,
    }

    thread_local! {
        static STAGE: RefCell<Option<Stage>> = const { RefCell::new(None) };
    }

    /// What the unwinding carries.
    struct Died;

    /// Does `work` until `dies` says so of the steps that it has reached. Returns these, and the
    /// result if it lived. Must not be nested.
    pub(crate) fn act<R>(
        dies: impl Fn(&[CrashPoint]) -> bool + 'static,
        work: impl FnOnce() -> R,
    ) -> (Vec<CrashPoint>, Option<R>) {
        STAGE.set(Some(Stage { reached: Vec::new(), dies: Box::new(dies) }));
        let result = catch_unwind(AssertUnwindSafe(work));
        let stage = STAGE.take().expect("rehearsals are not nested");
        match result {
            Ok(result) => (stage.reached, Some(result)),
            Err(cause) if cause.is::<Died>() => (stage.reached, None),
            Err(cause) => resume_unwind(cause),
        }
    }

    pub(super) fn point(here: CrashPoint) {
        let dies = STAGE.with_borrow_mut(|stage| {
            stage.as_mut().is_some_and(|stage| {
                stage.reached.push(here);
                (stage.dies)(&stage.reached)
            })
        });
        if dies {
            // Unlike `panic!`, says nothing: this is no failure.
            resume_unwind(Box::new(Died));
        }
    }
}
