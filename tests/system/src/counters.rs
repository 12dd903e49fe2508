//! Numbers that a test and its workers share: what to do, and how far each worker is.
//!
//! They outlive a killed process. What a publisher wrote here before its death is what the bus had confirmed to it.

use crate::shared::words_of;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const BYTES: usize = 1 << 16;
const WORDS: usize = BYTES / 8;
const PHASE: usize = 0;
const END: usize = 1;
const PAUSES: usize = 2;
const NEXT_ID: usize = 3;
const FIRST_WORKER: usize = 8;
const WORDS_OF_WORKER: usize = 2;

/// There are counters for this many workers, whose numbers are below it.
pub const MOST_WORKERS: usize = (WORDS - FIRST_WORKER) / WORDS_OF_WORKER;

/// What publishing workers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Run,
    /// They wait, and hold nothing.
    Pause,
    Stop,
}

#[derive(Debug)]
pub struct SharedCounters(&'static [AtomicU64]);

impl SharedCounters {
    /// Opens the counters in this file, which is made if it does not exist.
    #[must_use]
    pub fn open(path: &Path) -> Self {
        Self(words_of(path, WORDS))
    }

    /// What publishers shall do.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.0[PHASE].load(Ordering::Acquire) {
            0 => Phase::Run,
            1 => Phase::Pause,
            _ => Phase::Stop,
        }
    }

    /// Tells publishers what to do.
    pub fn set_phase(&self, phase: Phase) {
        if phase != Phase::Run {
            self.0[PAUSES].fetch_add(1, Ordering::AcqRel);
        }
        self.0[PHASE].store(phase as u64, Ordering::Release);
    }

    /// How often publishers were told to pause, or to stop.
    #[must_use]
    pub fn pauses(&self) -> u64 {
        self.0[PAUSES].load(Ordering::Acquire)
    }

    /// Workers with this number, or above it, have not been started yet; where that is stated.
    #[must_use]
    pub fn next_id(&self) -> u32 {
        u32::try_from(self.0[NEXT_ID].load(Ordering::Acquire)).unwrap_or(u32::MAX)
    }

    /// States it, before the worker before that number is started.
    pub fn set_next_id(&self, id: u32) {
        self.0[NEXT_ID].store(id.into(), Ordering::Release);
    }

    /// How many messages the bus has seen in all, when no more will come: subscribers then end.
    #[must_use]
    pub fn end(&self) -> Option<u64> {
        self.0[END].load(Ordering::Acquire).checked_sub(1)
    }

    /// Tells subscribers after how many messages of the bus to end.
    pub fn set_end(&self, sequence: u64) {
        self.0[END].store(sequence + 1, Ordering::Release);
    }

    /// How many messages a worker has published, or received.
    #[must_use]
    pub fn count(&self, worker: u32) -> u64 {
        self.word(worker, 0).load(Ordering::Acquire)
    }

    /// States how many messages a worker has published, or received.
    pub fn set_count(&self, worker: u32, count: u64) {
        self.word(worker, 0).store(count, Ordering::Release);
    }

    /// The longest that a worker was held up so far: one call of a publisher, or the time between two
    /// messages of a subscriber.
    #[must_use]
    pub fn longest_stall(&self, worker: u32) -> Duration {
        Duration::from_nanos(self.word(worker, 1).load(Ordering::Acquire))
    }

    /// States that a worker was held up that long.
    pub fn add_stall(&self, worker: u32, stall: Duration) {
        let ns = u64::try_from(stall.as_nanos()).unwrap_or(u64::MAX);
        self.word(worker, 1).fetch_max(ns, Ordering::AcqRel);
    }

    /// Forgets how long a worker was held up.
    pub fn forget_stall(&self, worker: u32) {
        self.word(worker, 1).store(0, Ordering::Release);
    }

    fn word(&self, worker: u32, offset: usize) -> &AtomicU64 {
        let worker = usize::try_from(worker).unwrap_or(usize::MAX);
        assert!(worker < MOST_WORKERS, "there are counters for {MOST_WORKERS} workers");
        &self.0[FIRST_WORKER + worker * WORDS_OF_WORKER + offset]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TempRoot;

    #[test]
    fn two_views_of_a_board_show_the_same() {
        let root = TempRoot::new();
        let (one, two) = (
            SharedCounters::open(&root.file("counters")),
            SharedCounters::open(&root.file("counters")),
        );
        assert_eq!((two.phase(), two.end()), (Phase::Run, None));
        one.set_phase(Phase::Stop);
        one.set_end(0);
        let last = u32::try_from(MOST_WORKERS - 1).unwrap();
        one.set_count(last, 5);
        one.add_stall(0, Duration::from_millis(7));
        one.add_stall(0, Duration::from_millis(3));
        assert_eq!((two.phase(), two.end(), two.count(last)), (Phase::Stop, Some(0), 5));
        assert_eq!(two.longest_stall(0), Duration::from_millis(7));
    }
}
