//! What the threads of a bridge share.

use crate::counters::Counting;
use crate::identity::Identity;
use crate::order::StreamKey;
use crate::witness::Witness;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use toroni::Bus;
use zenoh::Session;

/// What a bridge is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// It looks for another bridge of its bus, and for the numbers of its predecessor.
    Starting,
    /// Another bridge of its bus is at work. This one takes over when that ends.
    StandBy,
    /// It exports and imports.
    Active,
    /// It was stopped.
    Stopped,
    /// It has ended by itself, for this reason.
    Failed(String),
}

impl State {
    /// Returns whether it has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Stopped | Self::Failed(_))
    }
}

/// What the threads of a bridge share while it uses one session of Zenoh. The session is the context's own; the rest stays
/// when the bridge opens another one.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) bus: Bus,
    pub(crate) session: Session,
    pub(crate) identity: Identity,
    pub(crate) counting: Arc<Counting>,
    pub(crate) witness: Arc<Witness>,
    pub(crate) heartbeat: Duration,
    pub(crate) most_hops: u8,
    /// How many bridges messages of each stream have passed, as the import sees it.
    pub(crate) hops: Arc<Mutex<HashMap<StreamKey, u8>>>,
    life: Arc<Life>,
}

/// What a bridge is doing, for all its threads.
#[derive(Debug)]
pub(crate) struct Life {
    state: Mutex<State>,
    changed: Condvar,
    /// Whether the state is one that is over: what the threads read for each message.
    is_over: AtomicBool,
    /// Whether other programs of Zenoh may have given up the session of this one.
    is_doubtful: AtomicBool,
    /// Whether an importer has messages that this bus no longer has.
    has_gone_back: AtomicBool,
}

impl Default for Life {
    fn default() -> Self {
        Self {
            state: Mutex::new(State::Starting),
            changed: Condvar::new(),
            is_over: AtomicBool::new(false),
            is_doubtful: AtomicBool::new(false),
            has_gone_back: AtomicBool::new(false),
        }
    }
}

impl Context {
    pub(crate) fn new(
        bus: Bus,
        session: Session,
        identity: Identity,
        heartbeat: Duration,
        most_hops: u8,
    ) -> Self {
        Self {
            bus,
            session,
            identity,
            counting: Arc::default(),
            witness: Arc::default(),
            heartbeat,
            most_hops,
            hops: Arc::default(),
            life: Arc::default(),
        }
    }

    /// Returns the context of the same bridge with another session.
    pub(crate) fn with_session(&self, session: Session) -> Self {
        Self { session, ..self.clone() }
    }

    /// Returns the context of the same bridge with other names.
    pub(crate) fn with_identity(&self, identity: Identity) -> Self {
        Self { identity, ..self.clone() }
    }

    pub(crate) fn life(&self) -> &Arc<Life> {
        &self.life
    }

    /// Changes the state, unless the bridge has ended.
    pub(crate) fn set_state(&self, state: State) {
        self.life.set_state(state);
    }

    /// Ends the bridge because of an error.
    pub(crate) fn fail(&self, error: String) {
        tracing::error!(error, "the bridge ends");
        self.set_state(State::Failed(error));
    }

    pub(crate) fn state(&self) -> State {
        self.life.state()
    }

    /// Waits until the state is as wanted, or the time is over. Returns the state.
    pub(crate) fn wait(&self, timeout: Duration, is_wanted: impl Fn(&State) -> bool) -> State {
        self.life.wait(timeout, is_wanted)
    }

    /// Wakes those who wait for a state, so that they look at other things.
    pub(crate) fn wake(&self) {
        self.life.wake();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.life.has_ended()
    }
}

impl Life {
    pub(crate) fn state(&self) -> State {
        lock(&self.state).clone()
    }

    pub(crate) fn set_state(&self, state: State) {
        let mut now = lock(&self.state);
        if now.is_over() || *now == state {
            return;
        }
        tracing::info!(?state, "the bridge changes its state");
        self.is_over.store(state.is_over(), Ordering::Release);
        *now = state;
        drop(now);
        self.changed.notify_all();
    }

    pub(crate) fn wait(&self, timeout: Duration, is_wanted: impl Fn(&State) -> bool) -> State {
        let deadline = Instant::now().checked_add(timeout);
        let mut state = lock(&self.state);
        while !is_wanted(&state) {
            let left = deadline.map_or(Duration::from_secs(3600), |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                break;
            }
            state = self
                .changed
                .wait_timeout(state, left)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
        }
        state.clone()
    }

    pub(crate) fn wake(&self) {
        drop(lock(&self.state));
        self.changed.notify_all();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Says that other programs may have given up the session.
    pub(crate) fn doubt(&self) {
        self.is_doubtful.store(true, Ordering::Release);
        self.wake();
    }

    pub(crate) fn is_doubtful(&self) -> bool {
        self.is_doubtful.load(Ordering::Acquire)
    }

    /// Says that the session is a new one.
    pub(crate) fn trust(&self) {
        self.is_doubtful.store(false, Ordering::Release);
    }

    /// Says that the sequences of the bus have gone back.
    pub(crate) fn go_back(&self) {
        self.has_gone_back.store(true, Ordering::Release);
        self.wake();
    }

    pub(crate) fn has_gone_back(&self) -> bool {
        self.has_gone_back.load(Ordering::Acquire)
    }

    /// Returns whether they have, and forgets it.
    pub(crate) fn take_gone_back(&self) -> bool {
        self.has_gone_back.swap(false, Ordering::AcqRel)
    }
}

/// Locks a mutex that no panic leaves in disorder.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
