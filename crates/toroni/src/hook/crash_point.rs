//! The list of the steps at which a process can die.

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
    BeforeCommit = "before-commit", "`next` is raised; the record is not committed.";
    AfterCommit = "after-commit", "The record is visible; sequence and tail are not yet updated.";
    BetweenSequenceAndTail = "between-sequence-and-tail", "The sequence is raised, the tail is not.";
    MidDeclaration = "mid-declaration", "A topic that is to be retained has its entry, which is not in use yet.";
    MidGrow = "mid-grow", "A longer place for a value is taken; its entry does not have it.";
    AfterAnnounce = "after-announce", "The record that will be a value is announced; it is not committed.";
    MidRetain = "mid-retain", "Half of a value is copied.";
    AfterRetain = "after-retain", "The value is the new record; sequence and tail are not yet updated.";
    BeforeUnlock = "before-unlock", "All is written; the lock is still held.";
    BeforeWake = "before-wake", "The lock is free; sleepers have not been woken.";
    TopicAppend = "topic-append", "A topic's name is written, but not counted.";
    MidBurst = "mid-burst", "Some messages of a burst are committed, the rest are not.";
    MidArrival = "mid-arrival", "A stream from elsewhere has its entry in the table of arrivals, which is not in use yet.";
    ArrivalPending = "arrival-pending", "A record that raises a mark of the table is noted; it is not committed.";
    BeforeMark = "before-mark", "The record is committed; the mark is not raised.";
    MidMark = "mid-mark", "The highest number that has arrived is stored; the mark is not raised.";
    MidRewind = "mid-rewind", "The mark of a stream that goes back is lowered; its highest number is not.";
    AfterRewind = "after-rewind", "The highest number is, too; its session is still the one before.";
    AfterMark = "after-mark", "The mark is raised; the note is not cleared.";
    Proposing = "proposing", "A writer has stored its proposal; it has read no slot.";
    BeforeWithdrawing = "before-withdrawing", "A reader is in the way; the writer's proposal is not withdrawn.";
    RegisteringWait = "registering-wait", "A publisher has registered its wait for space, under the lock.";
    WaitingForSpace = "waiting-for-space", "A publisher has registered that it waits for space.";
    WokenForSpace = "woken-for-space", "A publisher was woken for space, or rechecks; it has no lock.";
    BeforePassingOn = "before-passing-on", "A publisher had to wait, and has not woken the next one.";
    MidBudget = "mid-budget", "A new interval of the budget has begun; the old one's spending stands.";
    WaitingForLock = "waiting-for-lock", "A publisher has registered that it waits for the lock.";
    BeforeHandOver = "before-hand-over", "The lock is free; the publisher that waits is not woken.";
    MidRound = "mid-round", "A publisher remembers who sleeps; it has not noted their count.";
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
    MidColumn = "mid-column", "A reader has said of some new topics that it does not want them.";
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
