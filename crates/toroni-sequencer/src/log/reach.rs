//! How far a log has come, as other members remember it. A directory that was restored from a backup, or a disk that was rolled
//! back, is behind what they remember. Nothing on that disk can tell.

use std::sync::PoisonError;

use super::state::State;
use super::{Inner, Log, LogError, Sync};
use crate::entry::{Place, Reach};

/// A generation that is further ahead than this is not believed.
const MOST_AHEAD: u64 = 1 << 32;

/// What is shown of a log without a wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Glance {
    /// How far it has come, at least.
    pub reach: Reach,
    /// The last entry, or the last one that was purged.
    pub last: Option<Place>,
    /// Whether entries that were answered may be missing.
    pub is_uncertain: bool,
}

impl Inner {
    pub(super) fn reach(&self, sync: Sync) -> Reach {
        let last = match sync {
            Sync::Always => self.last_synced,
            Sync::Interval(_) => self.ends().1,
        };
        Reach { generation: self.state.state.generation, last }
    }
}

impl Log {
    /// Returns how the log is now or, if it is in use, was shortly before. Never waits for the disk.
    #[must_use]
    pub fn glance(&self) -> Glance {
        let mut seen = self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(inner) = self.shared.inner.try_lock() {
            let State { uncertain: is_uncertain, .. } = inner.state.state;
            let reach = inner.reach(self.shared.options.sync);
            *seen = Glance { reach, last: inner.ends().1, is_uncertain };
        }
        *seen
    }

    /// Returns 16 random bytes of this opening, by which others tell what it has shown them from what an earlier one has.
    #[must_use]
    pub fn life(&self) -> [u8; 16] {
        self.shared.life
    }

    /// Compares the log with what an earlier life of it has shown to another member. If it has lost some of that, it is
    /// uncertain from now on; returns true if it was not before. Waits for the log only if it is behind.
    ///
    /// # Errors
    ///
    /// If that cannot be written.
    pub fn compare_with(&self, shown: Reach) -> Result<bool, LogError> {
        let opened = || self.shared.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if shown <= *opened() {
            return Ok(false);
        }
        let mut inner = self.shared.lock();
        inner.check_open()?;
        let state = &mut inner.state.state;
        // No log has come that far since. Believed, it would be a generation that no state may have.
        if shown.generation > state.generation.saturating_add(MOST_AHEAD) {
            return Ok(false);
        }
        // Another answer may have come meanwhile.
        if shown <= *opened() {
            return Ok(false);
        }
        *opened() = shown;
        // What this life shows must be later than what that one has shown.
        state.generation = state.generation.max(shown.generation);
        let was_certain = !std::mem::replace(&mut state.uncertain, true);
        inner.state.save()?;
        Ok(was_certain)
    }
}
