//! Which deaths there are: crash points × locks × notifiers × policies, and how often the victim has been
//! there before.

use crate::survivors::{Case, Who};
use std::time::Duration;
use system_tests::Random;
use system_tests::worker::STREAMS;
use toroni::hook::CrashPoint;
use toroni::{LockKind, NotifyKind, Policy};

/// Who passes a point, and so, which survivors it takes to die there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    /// A publisher at work.
    Publisher,
    /// A publisher that waits for space.
    SpaceWaiter,
    /// A reader that makes space for a publisher that waits.
    SpaceMaker,
    /// A publisher that waits for another one, or for which another one waits.
    Contended,
    /// An inlet at work.
    Inlet,
    /// A publisher that comes or leaves.
    JoiningPublisher,
    /// A subscriber that comes or leaves.
    JoiningSubscriber,
    /// A subscriber at work.
    Subscriber,
    /// A publisher that takes over from a dead one.
    Takeover,
    /// A process that creates a bus.
    Creator,
    /// A process that removes a bus.
    Cleaner,
    /// A process that frees the slots of dead ones.
    CleanerOfSlots,
    /// A process that uses a bus on a disk.
    Disk,
}

/// A point that is added to the list has to be added here.
pub(crate) fn victim_of(point: CrashPoint) -> Victim {
    use CrashPoint as P;
    match point {
        P::AfterLock
        | P::AfterReserve
        | P::MidCopy
        | P::AfterEndWord
        | P::MidIndex
        | P::AfterIndex
        | P::BeforeCommit
        | P::AfterCommit
        | P::BetweenSequenceAndTail
        | P::MidDeclaration
        | P::MidGrow
        | P::AfterAnnounce
        | P::MidRetain
        | P::AfterRetain
        | P::BeforeUnlock
        | P::BeforeWake
        | P::MidRound
        | P::MidWake
        | P::TopicAppend
        | P::MidBurst => Victim::Publisher,
        P::MidArrival
        | P::ArrivalPending
        | P::BeforeMark
        | P::MidMark
        | P::AfterMark
        | P::MidRewind
        | P::AfterRewind => Victim::Inlet,
        P::Proposing
        | P::BeforeWithdrawing
        | P::RegisteringWait
        | P::WaitingForSpace
        | P::WokenForSpace
        | P::BeforePassingOn
        | P::MidBudget => Victim::SpaceWaiter,
        P::ReaderBeforeSpaceWake => Victim::SpaceMaker,
        P::WaitingForLock | P::BeforeHandOver => Victim::Contended,
        P::PublisherLeaseTaken | P::PublisherMidClaim | P::PublisherMidLeave => {
            Victim::JoiningPublisher
        }
        P::ReaderLeaseTaken
        | P::ReaderMidClaim
        | P::ReaderMidPatterns
        | P::ReaderMidActivate
        | P::ReaderAfterClaim
        | P::ReaderMidSocket
        | P::ReaderLeaving
        | P::ReaderMidLeave => Victim::JoiningSubscriber,
        P::ReaderMidCopy
        | P::ReaderHasRun
        | P::ReaderMidPosition
        | P::MidColumn
        | P::ReaderMidArm
        | P::ReaderBeforeSleep
        | P::ReaderAwake => Victim::Subscriber,
        P::Takeover | P::MidRecovery => Victim::Takeover,
        P::CreatorBegan | P::MidFill | P::MidSockets | P::MidCreation | P::BeforeRename => {
            Victim::Creator
        }
        P::CleanerHasBus | P::MidClean | P::MidRemoval => Victim::Cleaner,
        P::MidFreeSlot => Victim::CleanerOfSlots,
        P::MidMarkInUse
        | P::BeforeCloseMark
        | P::AfterCloseMark
        | P::MidReopen
        | P::AfterReopen => Victim::Disk,
    }
}

/// Limits are far beyond what a busy machine takes: who lives loses nothing but under `Overwrite`.
const PATIENT: Duration = Duration::from_secs(30);

/// What inlets report as lost: each message, so that they die as they report it; one of three; none.
const LOSSES: [u64; 3] = [1, 3, 0];

const POLICIES: [Policy; 4] = [
    Policy::Wait { limit: None },
    Policy::Wait { limit: Some(PATIENT) },
    Policy::Overwrite,
    Policy::Bounded { budget: PATIENT, per: Duration::from_secs(60) },
];

/// Whether the step is on somebody's way on such a bus.
fn is_passed(point: CrashPoint, lock: LockKind, policy: Policy) -> bool {
    match victim_of(point) {
        Victim::Disk => false,
        Victim::SpaceMaker => policy != Policy::Overwrite,
        Victim::SpaceWaiter if point == CrashPoint::MidBudget => {
            matches!(policy, Policy::Bounded { .. })
        }
        Victim::SpaceWaiter => policy != Policy::Overwrite,
        // The C library wakes the next owner of a mutex.
        Victim::Contended if point == CrashPoint::BeforeHandOver => lock == LockKind::Lease,
        _ => true,
    }
}

/// How often the victim gets to the point.
fn times(point: CrashPoint, random: &mut Random) -> [u64; 3] {
    match victim_of(point) {
        // Its interval begins once, and a subscriber looks at a new topic once.
        _ if matches!(point, CrashPoint::MidBudget | CrashPoint::MidColumn) => [1, 1, 1],
        _ if point == CrashPoint::MidDeclaration => [1, 1, 1],
        // Each buffer of a value gets its first place once.
        _ if point == CrashPoint::MidGrow => [1, 2, 2],
        // Each stream gets its entry once.
        _ if point == CrashPoint::MidArrival => [1, 2, random.between(3, STREAMS)],
        // There are fewer slots.
        Victim::CleanerOfSlots => [1, 2, random.between(3, 5)],
        _ => [1, 2, random.between(3, 20)],
    }
}

/// The deaths at a point on buses of this lock and notifier.
pub(crate) fn cases(
    point: CrashPoint,
    lock: LockKind,
    notify: NotifyKind,
    random: &mut Random,
) -> Vec<Case> {
    let is_full = std::env::var_os("TORONI_FULL").is_some();
    let policies: Vec<Policy> =
        POLICIES.into_iter().filter(|policy| is_passed(point, lock, *policy)).collect();
    let mut cases = Vec::new();
    for (turn, n) in times(point, random).into_iter().enumerate() {
        let chosen = if is_full { 0..policies.len() } else { turn_of(point, lock, notify, turn) };
        for choice in chosen {
            let Some(&policy) = policies.get(choice % policies.len().max(1)) else { continue };
            let losses = LOSSES[cases.len() % LOSSES.len()];
            let is_inlet = victim_of(point) == Victim::Inlet;
            cases.push(Case {
                point,
                n,
                lock,
                notify,
                policy,
                seed: random.number(),
                engine: None,
                who: if is_inlet { Who::Inlet { losses } } else { Who::Publisher },
            });
        }
    }
    cases
}

/// Which of the policies, so that over the notifiers and turns of a lock a point meets each of them, and every other
/// time the one under which no subscriber may ever lose anything.
fn turn_of(
    point: CrashPoint,
    lock: LockKind,
    notify: NotifyKind,
    turn: usize,
) -> std::ops::Range<usize> {
    let notify = match notify {
        NotifyKind::Futex => 0,
        NotifyKind::Datagram => 1,
        _ => 2,
    };
    let number = point as usize + usize::from(lock == LockKind::Robust) + turn * 3 + notify;
    let choice = if number.is_multiple_of(2) { 0 } else { number / 2 % 4 };
    choice..choice + 1
}

/// The deaths of an exclusive publisher, at each point that it gets to while it publishes.
pub(crate) fn exclusive_cases(notify: NotifyKind, random: &mut Random) -> Vec<Case> {
    let mut cases = Vec::new();
    let at_work = |point: &CrashPoint| {
        matches!(victim_of(*point), Victim::Publisher | Victim::SpaceWaiter)
            // It unlocks when it is dropped.
            && *point != CrashPoint::BeforeUnlock
            // No other publisher waits.
            && *point != CrashPoint::BeforePassingOn
    };
    for (number, point) in CrashPoint::ALL.iter().copied().filter(at_work).enumerate() {
        let policies: Vec<Policy> = POLICIES
            .into_iter()
            .filter(|policy| is_passed(point, LockKind::Lease, *policy))
            .collect();
        let n = times(point, random)[number % 3];
        let policy = policies[number % policies.len()];
        let seed = random.number();
        let lock = LockKind::Lease;
        let who = Who::Exclusive;
        cases.push(Case { point, n, lock, notify, policy, seed, engine: None, who });
    }
    cases
}

/// The deaths of an inlet at the points that other publishers pass, too. Those that only inlets pass are among [`cases`].
pub(crate) fn inlet_cases(notify: NotifyKind, turn: usize, random: &mut Random) -> Vec<Case> {
    let mut cases = Vec::new();
    let at_work = |point: &CrashPoint| {
        matches!(victim_of(*point), Victim::Publisher | Victim::SpaceWaiter)
            // It publishes no burst.
            && *point != CrashPoint::MidBurst
            // It retains nothing. Its messages become values by the steps of other publishers.
            && !matches!(
                point,
                CrashPoint::MidDeclaration
                    | CrashPoint::MidGrow
                    | CrashPoint::AfterAnnounce
                    | CrashPoint::MidRetain
                    | CrashPoint::AfterRetain
            )
    };
    for (number, point) in CrashPoint::ALL.iter().copied().filter(at_work).enumerate() {
        let lock = [LockKind::Lease, LockKind::Robust][(number + turn) % 2];
        let policies: Vec<Policy> =
            POLICIES.into_iter().filter(|policy| is_passed(point, lock, *policy)).collect();
        let n = times(point, random)[(number + turn) % 3];
        let policy = policies[(number / 2 + turn) % policies.len()];
        // Over the three turns, each point meets each of them.
        let losses = LOSSES[(number / 3 + 2 * turn) % LOSSES.len()];
        let (seed, who) = (random.number(), Who::Inlet { losses });
        cases.push(Case { point, n, lock, notify, policy, seed, engine: None, who });
    }
    cases
}

#[test]
fn each_point_meets_each_policy_lock_and_notifier() {
    let mut random = Random::new(1);
    let notifiers =
        [NotifyKind::Futex, NotifyKind::Datagram, NotifyKind::Multicast { group: None }];
    for &point in CrashPoint::ALL.iter().filter(|point| victim_of(**point) != Victim::Disk) {
        let mut cases = Vec::new();
        for lock in [LockKind::Lease, LockKind::Robust] {
            for notify in notifiers {
                cases.extend(self::cases(point, lock, notify, &mut random));
                let passed = POLICIES.iter().any(|policy| is_passed(point, lock, *policy));
                let met = cases.iter().any(|case| (case.lock, case.notify) == (lock, notify));
                assert_eq!(met, passed, "{point:?} {lock:?} {notify:?}");
            }
        }
        for policy in POLICIES {
            let passed = [LockKind::Lease, LockKind::Robust]
                .iter()
                .any(|lock| is_passed(point, *lock, policy));
            let met = cases.iter().any(|case| case.policy == policy);
            assert_eq!(met, passed, "{point:?} {policy:?}");
        }
    }
}
