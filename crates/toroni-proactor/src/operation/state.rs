//! The states of an operation and what may follow what.

/// Where an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// `INITIALIZED`: created, ready for a start. Timers stay so until their time comes.
    Initialized,
    /// `STARTED`: in progress; in its processor's started list.
    Started,
    /// In progress, and its descriptor is, or may be, ready: whoever takes it from the dispatcher tries it.
    /// The paper has no such state, because its leader transfers under the lock.
    Ready,
    /// `DEFERRED`: to be started later; in its processor's deferred list.
    Deferred,
    /// `RESULT_READY`: finished, the outcome is in the operation.
    ResultReady,
    /// `START_ERROR`: cannot be started, now or later.
    StartError,
    /// `POSTED`: came by `post_completion`; no provider ever saw it.
    Posted,
    /// `COMPLETED`: taken from the completed list; the handler runs.
    Completed,
}

impl State {
    /// Whether an operation in this state may go over to that one.
    pub(crate) fn may_become(self, next: Self) -> bool {
        use State::{
            Completed, Deferred, Initialized, Posted, Ready, ResultReady, StartError, Started,
        };
        match self {
            Initialized => !matches!(next, Initialized | Completed),
            Deferred => matches!(next, Started | Ready | ResultReady | StartError),
            Started => matches!(next, Ready | ResultReady),
            Ready => matches!(next, Started | ResultReady),
            // Back to the beginning goes only the reusable read of an interrupt strategy.
            ResultReady => matches!(next, Completed | Initialized),
            StartError | Posted => matches!(next, Completed),
            Completed => false,
        }
    }
}
