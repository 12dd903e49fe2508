//! Which steps were taken at all. A property that holds because nothing happens shows nothing.

use crate::model::Action;
use crate::publisher::Doing;
use crate::state::State;
use crate::subscriber::Reading;
use std::sync::atomic::{AtomicBool, Ordering};

macro_rules! steps {
    ($all:ident, $function:ident, $type:ident, $base:expr; $($variant:ident),* $(,)?) => {
        /// Names of all steps, in the order of a life.
        pub const $all: &[&str] = &[$(stringify!($variant)),*];

        fn $function(step: &$type) -> usize {
            enum Number { $($variant),* }
            $base + match step { $($type::$variant { .. } => Number::$variant as usize,)* }
        }
    };
}

steps! { PUBLISHER_STEPS, number_of_doing, Doing, 0;
    Enter, Claim, Inherit, InheritSeize, Release, Lock, Seize, Delay, Keep, CheckKept, GiveUp, RecoverSequence, RecoverTail, RecoverProposal, RecoverNext, Propose, LoadJoins, Withdraw, ReadSlots,
    AskLeases, LoadSpace, StoreUntil, RaiseWaits, Reserve, Write, Unlock, LoadSleeps, LoadRow,
    CountSleeps, Look, ChooseSleepers, RaiseWord, WakeOne, WaitForSpace, Done, Gone,
}
steps! { SUBSCRIBER_STEPS, number_of_reading, Reading, PUBLISHER_STEPS.len();
    ClaimState, ClaimGeneration, ClearColumn, FindTail, FindReserved, FindEntries, WalkLoad, WalkCheck, FindCheck,
    JoinPosition, JoinState, CountJoin, JoinProposal, JoinCheck, JoinTail, Scan, Copy, Validate, PositionFirst, Peek, PeekCheck,
    CopyLong, ValidateLong, StorePosition, AskLapse, CountReturn, LoadWaits, LoadUntil, AnswerUntil, AnswerReserved, AnswerSlots,
    RaiseSpace, LoadTopics, MarkTopic, Token, ArmOwn, ArmCommon, Recheck, RecheckValidate, Sleep, Asleep,
    PassTail, PassSequence, PassNext, PassTopics, PassBound, CountLeave,
    Gone,
}

/// The steps that were taken.
#[derive(Debug)]
pub struct Coverage(Vec<AtomicBool>);

impl Default for Coverage {
    fn default() -> Self {
        let count = PUBLISHER_STEPS.len() + SUBSCRIBER_STEPS.len();
        Self((0..count).map(|_| AtomicBool::new(false)).collect())
    }
}

impl Coverage {
    pub(crate) fn note(&self, state: &State, action: Action) {
        let number = match action {
            Action::Publisher(me, _) => number_of_doing(&state.publishers[usize::from(me)].doing),
            Action::Subscriber(me, _) => {
                number_of_reading(&state.subscribers[usize::from(me)].reading)
            }
            _ => return,
        };
        if !self.0[number].load(Ordering::Relaxed) {
            self.0[number].store(true, Ordering::Relaxed);
        }
    }

    /// Steps that were never taken. `Done` and `Gone` are none.
    #[must_use]
    pub fn never(&self) -> Vec<&'static str> {
        PUBLISHER_STEPS
            .iter()
            .chain(SUBSCRIBER_STEPS)
            .zip(&self.0)
            .filter(|(name, taken)| {
                !matches!(**name, "Done" | "Gone") && !taken.load(Ordering::Relaxed)
            })
            .map(|(name, _)| *name)
            .collect()
    }
}
