//! Known mistakes of the protocol, each built into the model on request. A check that finds none of them would prove
//! nothing.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mistake {
    /// The header word is written before the payload.
    CommitBeforePayload,
    /// The header of a batch's first record is written with the others, before the later records.
    BatchCommittedEarly,
    /// The 0 after a record is written later than its header.
    EndWordAfterCommit,
    /// `reserved` is raised when the record has been written.
    ReservedAfterCopy,
    /// Readers compare with `tail` in place of `reserved`.
    TailForReserved,
    /// A reader trusts a 0 without validating it.
    ZeroBeforeValidation,
    /// A read-ahead is handed out without validation.
    ReadAheadNotValidated,
    /// The next writer continues at the stored tail, although a dead one committed beyond it.
    NoRollForward,
    /// Recovery counts from the stored sequence, which may already be raised.
    RecoveryTrustsSequence,
    /// Recovery gives back what a dead writer reserved.
    RecoveryLowersReserved,
    /// An index entry that a dead writer left beyond the tail is not overwritten.
    StaleIndexEntry,
    /// A waiter takes a dead owner's lock without a compare-exchange, so two waiters both get it.
    TakeoverWithoutCompare,
    /// A lock word is compared with a lease alone, without the generation of the slot.
    LeaseWithoutGeneration,
    /// A writer never checks whether the reader that it waits for is alive.
    DeadReaderBlocks,
    /// A reader publishes its position before it has copied the records before that position.
    PositionBeforeCopy,
    /// A writer does not scan the slots again after a reader joined.
    JoinsIgnored,
    /// A reader that was lapped does not count its return as a join.
    ReturnNotCounted,
    /// A reader does not count its return if the position in its slot was lapped, but not its cursor.
    LapseOfSlotUnnoticed,
    /// A joining reader does not recheck `reserved` after it activated its slot.
    JoinNotChecked,
    /// A joining reader may start where a writer that scanned before can still overrun it.
    JoinNearAWriter,
    /// A joining reader gives up a start that a writer proposes to overwrite, before the writer has decided.
    ProposalTakenForAFact,
    /// A joining reader waits for the decision of a writer that died.
    DecisionOfTheDeadAwaited,
    /// A reader that has armed does not recheck.
    SleepWithoutARecheck,
    /// A reader takes its token after it has armed.
    TokenAfterArming,
    /// A publisher counts sleepers as notified that came after its wake.
    NotifiedUpToANewerCount,
    /// A publisher forgets a sleeper that did not want what it published.
    BystandersForgotten,
    /// A reader that arms raises the common count before its own.
    CommonCountFirst,
    /// A publisher that begins to wait for space wakes only those that want what it has published.
    WaitsForBystanders,
    /// A publisher reads who does not want its message before it commits the message.
    RowBeforeCommit,
    /// The next owner of a slot leaves the bits of the last one in its column.
    ColumnOfTheLastOwner,
    /// A reader that wants more leaves its bits as they are.
    ColumnKeptWithANewPattern,
    /// It sets its bits before it has the new pattern.
    BitsBeforePatterns,
    /// A reader says before it sleeps that it wants nothing of topics that are not in the table yet.
    NewTopicsUnwanted,
    /// A publisher stores the bound of a topic after the end of the stream.
    BoundAfterCommit,
    /// A reader that passes over messages loads the bounds before the end of the stream.
    BoundsBeforeTheEnd,
    /// It counts the topics before it loads the end of the stream.
    TopicsBeforeTheEnd,
    /// It takes `tail` and `sequence` for one place although a commit is under way.
    NextNotCompared,
    /// A publisher that begins to wait for space does not wake the readers of what it has published.
    WaitsWithoutWaking,
    /// A loss is not counted by sequences, but guessed from the bytes that were skipped.
    LossGuessed,
    /// The lock word does not say that an exclusive publisher has the lock.
    KeptInSecret,
    /// An exclusive publisher that took over from another one does not mark the lock as its own.
    ExclusiveForgottenOnTakeover,
    /// A shared publisher that took over from an exclusive one leaves the mark in the lock word.
    ExclusiveStaysInTheWord,
    /// No publisher takes over from an exclusive one that is dead.
    ExclusiveForEver,
    /// Others take the lock of an exclusive publisher that lives.
    OthersWriteToo,
    /// Who takes over from an exclusive publisher writes at once, although that one may be in the middle of a message.
    TakesOverAtOnce,
    /// So does who claims its slot.
    InheritsAtOnce,
    /// Who takes over from an exclusive publisher removes the mark before it has waited. If it dies, the next one writes at
    /// once.
    TakeoverUnmarked,
    /// An exclusive publisher does not check before a message that it still has the lock.
    TakeoverUnnoticed,
    /// It checks before a burst, and not again before each of its records.
    BurstNotChecked,
    /// It gives up the lock without a comparison, although another publisher may have taken over.
    GivesUpAnothersLock,
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    pub mistake: Mistake,
    /// Its name on the command line.
    pub name: &'static str,
    /// Setups in [`crate::setups`] of which the first must show it.
    pub setup: &'static str,
    /// The property that must be found broken.
    pub breaks: &'static str,
}

macro_rules! table {
    ($($mistake:ident: $name:literal in $setup:literal breaks $property:ident;)*) => {
        pub const MISTAKES: &[Line] = &[$(Line {
            mistake: Mistake::$mistake,
            name: $name,
            setup: $setup,
            breaks: crate::properties::$property,
        },)*];
    };
}

table! {
    CommitBeforePayload: "commit-before-payload" in "lap" breaks NOT_TORN;
    BatchCommittedEarly: "batch-committed-early" in "batch" breaks NEVER_UNDONE;
    EndWordAfterCommit: "end-word-after-commit" in "lap" breaks STREAM_ENDS;
    ReservedAfterCopy: "reserved-after-copy" in "lap" breaks NO_NONSENSE;
    TailForReserved: "tail-for-reserved" in "lap" breaks NOT_TORN;
    ZeroBeforeValidation: "zero-before-validation" in "lap" breaks NOT_STUCK;
    ReadAheadNotValidated: "read-ahead-not-validated" in "lap" breaks NOT_TORN;
    NoRollForward: "no-roll-forward" in "deaths" breaks NEVER_UNDONE;
    RecoveryTrustsSequence: "recovery-trusts-sequence" in "deaths" breaks INDEX_TRUE;
    RecoveryLowersReserved: "recovery-lowers-reserved" in "deaths" breaks STREAM_ENDS;
    StaleIndexEntry: "stale-index-entry" in "deaths" breaks INDEX_TRUE;
    TakeoverWithoutCompare: "takeover-without-compare" in "takeover" breaks ONE_OWNER;
    LeaseWithoutGeneration: "lease-without-generation" in "takeover" breaks NOT_STUCK;
    DeadReaderBlocks: "dead-reader-blocks" in "gating" breaks NOT_STUCK;
    PositionBeforeCopy: "position-before-copy" in "gating" breaks NOT_OVERRUN;
    JoinsIgnored: "joins-ignored" in "first-reader" breaks NOT_OVERRUN;
    ReturnNotCounted: "return-not-counted" in "limit" breaks NOT_OVERRUN;
    LapseOfSlotUnnoticed: "lapse-of-slot-unnoticed" in "limit" breaks NOT_OVERRUN;
    JoinNotChecked: "join-not-checked" in "joining" breaks NOT_OVERRUN;
    JoinNearAWriter: "join-near-a-writer" in "joining" breaks NOT_OVERRUN;
    ProposalTakenForAFact: "proposal-taken-for-a-fact" in "joining-at-oldest" breaks START_KEPT;
    DecisionOfTheDeadAwaited: "decision-of-the-dead-awaited" in "joining-and-deaths" breaks NOT_STUCK;
    SleepWithoutARecheck: "sleep-without-a-recheck" in "sleeping" breaks NOT_STUCK;
    TokenAfterArming: "token-after-arming" in "sleeping" breaks NOT_STUCK;
    NotifiedUpToANewerCount: "notified-up-to-a-newer-count" in "sleeping" breaks NOT_STUCK;
    BystandersForgotten: "bystanders-forgotten" in "bystander" breaks NOT_STUCK;
    CommonCountFirst: "common-count-first" in "sleeping" breaks NOT_STUCK;
    WaitsForBystanders: "waits-for-bystanders" in "gating-bystander" breaks NOT_STUCK;
    RowBeforeCommit: "row-before-commit" in "adding" breaks NOT_STUCK;
    ColumnOfTheLastOwner: "column-of-the-last-owner" in "after-a-reset" breaks NOT_STUCK;
    ColumnKeptWithANewPattern: "column-kept-with-a-new-pattern" in "adding" breaks NOT_STUCK;
    BitsBeforePatterns: "bits-before-patterns" in "adding" breaks NOT_STUCK;
    NewTopicsUnwanted: "new-topics-unwanted" in "new-topic" breaks NOT_STUCK;
    BoundAfterCommit: "bound-after-commit" in "passing" breaks ONE_ORDER;
    BoundsBeforeTheEnd: "bounds-before-the-end" in "passing" breaks ONE_ORDER;
    TopicsBeforeTheEnd: "topics-before-the-end" in "passing-new-topic" breaks ONE_ORDER;
    NextNotCompared: "next-not-compared" in "passing" breaks ONE_ORDER;
    WaitsWithoutWaking: "waits-without-waking" in "gating-asleep" breaks NOT_STUCK;
    LossGuessed: "loss-guessed" in "lap" breaks ONE_ORDER;
    KeptInSecret: "kept-in-secret" in "exclusive-stopped" breaks NOT_STUCK;
    ExclusiveForgottenOnTakeover: "exclusive-forgotten-on-takeover" in "exclusive-stopped" breaks NOT_STUCK;
    ExclusiveStaysInTheWord: "exclusive-stays-in-the-word" in "exclusive-takeover" breaks REFUSED_RIGHTLY;
    ExclusiveForEver: "exclusive-for-ever" in "exclusive-takeover" breaks REFUSED_RIGHTLY;
    OthersWriteToo: "others-write-too" in "exclusive" breaks ONE_OWNER;
    TakesOverAtOnce: "takes-over-at-once" in "exclusive-lease-lost" breaks STREAM_ENDS;
    InheritsAtOnce: "inherits-at-once" in "exclusive-lease-lost" breaks INDEX_TRUE;
    TakeoverUnmarked: "takeover-unmarked" in "exclusive-heirs" breaks INDEX_TRUE;
    TakeoverUnnoticed: "takeover-unnoticed" in "exclusive-lease-lost" breaks STREAM_ENDS;
    BurstNotChecked: "burst-not-checked" in "exclusive-lease-lost" breaks NEVER_UNDONE;
    GivesUpAnothersLock: "gives-up-anothers-lock" in "exclusive-lease-lost" breaks ONE_OWNER;
}
