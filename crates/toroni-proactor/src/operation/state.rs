//! The states of an operation and their order. The names are the paper's.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// `INITIALIZED`: created, ready for a start. Timers stay in it until they are due.
    Initialized,
    /// `STARTED`: in progress; in its processor's started list.
    Started,
    /// In progress, and its descriptor is or may be ready: the thread that takes it from the dispatcher
    /// attempts it. The paper has no such state, because its leader transfers under the lock.
    Ready,
    /// `DEFERRED`: starts later; in its processor's deferred list.
    Deferred,
    /// `RESULT_READY`: finished; the operation has its outcome.
    ResultReady,
    /// `START_ERROR`: cannot be started, now or later.
    StartError,
    /// `POSTED`: added by `post_completion`; no provider took part.
    Posted,
    /// `COMPLETED`: taken from the completed list; the handler runs.
    Completed,
}

impl State {
    /// Returns whether this state may be followed by that one.
    pub(crate) fn may_become(self, next: Self) -> bool {
        use State::{
            Completed, Deferred, Initialized, Posted, Ready, ResultReady, StartError, Started,
        };
        match self {
            Initialized => !matches!(next, Initialized | Completed),
            Deferred => matches!(next, Started | Ready | ResultReady | StartError),
            Started => matches!(next, Ready | ResultReady),
            Ready => matches!(next, Started | ResultReady),
            // Only the reusable read of an interrupt strategy goes back to the beginning.
            ResultReady => matches!(next, Completed | Initialized),
            StartError | Posted => matches!(next, Completed),
            Completed => false,
        }
    }
}
