//! Waiting until a writer has decided whether it overwrites what a subscriber wants to protect; see
//! `ring/gate.rs`.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use crate::error::Corrupt;
use crate::ring::memory::Ring;
use crate::sync::Ordering;
use std::time::{Duration, Instant};

/// How long a subscriber waits for a writer to decide whether it overwrites the start. A
/// running writer takes microseconds. One that takes longer is dead, or stopped while it holds the lock.
pub(super) const LONGEST_DECISION: Duration = Duration::from_secs(1);
/// Checks before the thread yields, and then before it sleeps.
const SPINS: u32 = 100;
const YIELDS: u32 = 200;

/// No start holds, which correct publishers do not cause.
#[cold]
pub(super) fn never_still(ring: Ring<'_>) -> Corrupt {
    let value = ring.control.reserved.0.load(Ordering::Relaxed);
    Corrupt { what: "reserved, which never stands still", value, position: 0 }
}

/// The wait for the decision of a writer.
#[derive(Default)]
pub(super) struct Decision {
    checks: u32,
    since: Option<Instant>,
}

impl Decision {
    /// Passes some time. Returns false if there is none left.
    pub(super) fn wait(&mut self) -> bool {
        self.checks = self.checks.saturating_add(1);
        if self.checks <= SPINS {
            crate::sync::pause();
            return true;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        if self.checks <= SPINS + YIELDS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(500));
        }
        since.elapsed() < LONGEST_DECISION
    }
}
