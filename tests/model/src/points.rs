//! Where the crash points of the library are in the model. `crates/toroni/src/hook/crash_point.rs` names each step at
//! which a test kills a real process. After each of them a process of the model can die.

/// Where a crash point is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A publisher that is there takes this step next, which is named in [`crate::coverage`].
    Publisher(&'static str),
    /// As above, a subscriber.
    Subscriber(&'static str),
    /// Within [`crate::writing`]: the last store was this one.
    AfterStore(&'static str),
    /// Not in the model, and why.
    LeftOut(&'static str),
}

use Place::{AfterStore, LeftOut, Publisher, Subscriber};

const NO_CREATION: Place = LeftOut("the bus is there");
const NO_ARRIVALS: Place = LeftOut("nothing comes from elsewhere");
const NO_VALUES: Place = LeftOut("a state space of its own has values: values.rs");
const NO_REMOVAL: Place = LeftOut("no process removes the bus");
const NO_DISK: Place = LeftOut("the bus is in memory");
const NO_SOCKETS: Place = LeftOut("subscribers sleep on the futex");
const NO_WAITERS: Place = LeftOut("waiters of the lock recheck by themselves");

/// Each crash point by its name, in the order of `crash_point.rs`.
pub const POINTS: &[(&str, Place)] = &[
    ("after-lock", Publisher("Propose")),
    ("after-reserve", Publisher("Write")),
    ("mid-copy", AfterStore("Payload")),
    ("after-end-word", AfterStore("End")),
    ("mid-index", AfterStore("EntrySequence")),
    ("after-index", AfterStore("EntryPosition")),
    ("before-commit", AfterStore("Next")),
    ("after-commit", AfterStore("Commit")),
    ("between-sequence-and-tail", AfterStore("Sequence")),
    ("mid-declaration", NO_VALUES),
    ("mid-grow", NO_VALUES),
    ("after-announce", NO_VALUES),
    ("mid-retain", NO_VALUES),
    ("after-retain", NO_VALUES),
    ("before-unlock", Publisher("Unlock")),
    ("before-wake", Publisher("LoadSleeps")),
    ("topic-append", AfterStore("Topic")),
    ("mid-burst", AfterStore("Tail")),
    ("mid-arrival", NO_ARRIVALS),
    ("arrival-pending", NO_ARRIVALS),
    ("before-mark", NO_ARRIVALS),
    ("mid-mark", NO_ARRIVALS),
    ("mid-rewind", NO_ARRIVALS),
    ("after-rewind", NO_ARRIVALS),
    ("after-mark", NO_ARRIVALS),
    ("proposing", Publisher("LoadJoins")),
    ("before-withdrawing", Publisher("Withdraw")),
    ("registering-wait", Publisher("Propose")),
    ("waiting-for-space", Publisher("WaitForSpace")),
    ("woken-for-space", Publisher("Lock")),
    ("before-passing-on", LeftOut("a publisher that waits for space checks again by itself")),
    ("mid-budget", LeftOut("a limit is reached at any time")),
    ("waiting-for-lock", NO_WAITERS),
    ("before-hand-over", NO_WAITERS),
    ("mid-round", Publisher("ChooseSleepers")),
    ("mid-wake", Publisher("WakeOne")),
    ("creator-began", NO_CREATION),
    ("mid-fill", NO_CREATION),
    ("mid-sockets", NO_CREATION),
    ("mid-creation", NO_CREATION),
    ("before-rename", NO_CREATION),
    ("publisher-lease-taken", Publisher("Claim")),
    ("publisher-mid-claim", Publisher("Inherit")),
    ("publisher-mid-leave", LeftOut("a publisher that has nothing to do hinders no other")),
    ("reader-lease-taken", Subscriber("ClaimState")),
    ("reader-mid-claim", Subscriber("FindTail")),
    ("reader-mid-patterns", LeftOut("no participant decides anything by the patterns of another")),
    ("reader-mid-activate", Subscriber("CountJoin")),
    ("reader-after-claim", Subscriber("JoinProposal")),
    ("reader-mid-socket", NO_SOCKETS),
    ("reader-leaving", NO_SOCKETS),
    ("reader-mid-leave", Subscriber("CountLeave")),
    ("reader-mid-copy", Subscriber("Validate")),
    ("reader-has-run", Subscriber("StorePosition")),
    ("reader-mid-position", Subscriber("AskLapse")),
    (
        "reader-before-space-wake",
        LeftOut("a publisher that waits for space checks again by itself"),
    ),
    ("mid-column", Subscriber("MarkTopic")),
    ("reader-mid-arm", Subscriber("Recheck")),
    ("reader-before-sleep", Subscriber("Recheck")),
    ("reader-awake", Subscriber("Scan")),
    ("takeover", Publisher("RecoverSequence")),
    ("mid-recovery", Publisher("RecoverTail")),
    ("mid-free-slot", NO_REMOVAL),
    ("cleaner-has-bus", NO_REMOVAL),
    ("mid-clean", NO_REMOVAL),
    ("mid-removal", NO_REMOVAL),
    ("mid-mark-in-use", NO_DISK),
    ("before-close-mark", NO_DISK),
    ("after-close-mark", NO_DISK),
    ("mid-reopen", NO_DISK),
    ("after-reopen", NO_DISK),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coverage::{PUBLISHER_STEPS, SUBSCRIBER_STEPS};

    const CRASH_POINTS: &str = include_str!("../../../crates/toroni/src/hook/crash_point.rs");

    /// Names of the crash points, as the library declares them.
    fn declared() -> Vec<&'static str> {
        let list =
            CRASH_POINTS.split("crash_points! {\n").nth(1).unwrap().split("\n}").next().unwrap();
        list.lines().map(|line| line.split('"').nth(1).unwrap()).collect()
    }

    #[test]
    fn every_crash_point_has_its_place() {
        let known: Vec<&str> = POINTS.iter().map(|(name, _)| *name).collect();
        assert_eq!(declared(), known, "a crash point is a step of the model, or says why not");
    }

    #[test]
    fn every_place_is_a_step() {
        let stores = include_str!("writing.rs");
        for (name, place) in POINTS {
            let is_there = match place {
                Publisher(step) => PUBLISHER_STEPS.contains(step),
                Subscriber(step) => SUBSCRIBER_STEPS.contains(step),
                AfterStore(store) => stores.contains(&format!("    {store}(u8")),
                LeftOut(why) => !why.is_empty(),
            };
            assert!(is_there, "{name}: {place:?}");
        }
    }
}
