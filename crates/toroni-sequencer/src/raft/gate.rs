//! The order of a snapshot and of purging. On the disk, what was purged must never pass what the snapshot covers: a member
//! that died in between would go on without the entries, and without the state that stands for them.
//!
//! openraft sends a snapshot to the state machine and purges the log from its own task at once. So the log waits here.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use crate::entry::Place;

/// A disk that takes longer than this for a snapshot is as good as broken.
const LIMIT: Duration = Duration::from_secs(30);

/// What the snapshot on the disk covers. Clones are handles of the same.
#[derive(Debug, Clone)]
pub(super) struct Gate(Arc<watch::Sender<Reached>>);

#[derive(Debug, Clone, Copy)]
struct Reached {
    covered: Option<Place>,
    has_failed: bool,
}

/// Fails those who wait, unless it learns that the snapshot is on the disk. It is dropped when the state machine returns an
/// error, and also when it panics.
pub(super) struct Passage<'a>(&'a Gate);

impl Gate {
    /// Begins with what the snapshot on the disk covers.
    pub(super) fn new(covered: Option<Place>) -> Self {
        Self(Arc::new(watch::Sender::new(Reached { covered, has_failed: false })))
    }

    /// Notes that a snapshot that covers everything up to this place is on the disk.
    pub(super) fn raise(&self, covered: Option<Place>) {
        self.0.send_modify(|reached| reached.covered = reached.covered.max(covered));
    }

    /// Begins a snapshot for which the log may wait already.
    pub(super) const fn passage(&self) -> Passage<'_> {
        Passage(self)
    }

    /// Waits until the snapshot on the disk covers everything up to this place.
    ///
    /// # Errors
    ///
    /// If it never will, as a sentence.
    pub(super) async fn wait_for(&self, place: Place) -> Result<(), String> {
        let index = place.index;
        let mut reached = self.0.subscribe();
        let covers = |reached: &Reached| {
            reached.has_failed || reached.covered.is_some_and(|covered| covered.index >= index)
        };
        match timeout(LIMIT, reached.wait_for(covers)).await {
            Ok(Ok(reached)) if !reached.has_failed => Ok(()),
            Ok(_) => {
                Err(format!("the snapshot that stands for the entries up to {index} was not kept"))
            }
            Err(_) => Err(format!(
                "the snapshot that stands for the entries up to {index} was not on the disk within {LIMIT:?}, or the state machine has ended"
            )),
        }
    }
}

impl Passage<'_> {
    /// The snapshot is on the disk.
    pub(super) fn done(self) {
        std::mem::forget(self);
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        self.0.0.send_modify(|reached| reached.has_failed = true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn place(index: u64) -> Place {
        Place { term: 1, leader: 0, index }
    }

    #[tokio::test]
    async fn purging_waits_for_the_snapshot_and_fails_with_it() {
        let gate = Gate::new(Some(place(4)));
        assert_eq!(gate.wait_for(place(4)).await, Ok(()));
        let waits = tokio::spawn({
            let gate = gate.clone();
            async move { gate.wait_for(place(9)).await }
        });
        gate.raise(Some(place(8)));
        // An earlier one takes nothing back.
        gate.raise(Some(place(2)));
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        gate.raise(Some(place(9)));
        assert_eq!(waits.await.expect("no panic"), Ok(()));

        let passage = gate.passage();
        passage.done();
        assert_eq!(gate.wait_for(place(9)).await, Ok(()));
        let panics = std::panic::catch_unwind(|| {
            let _passage = gate.passage();
            panic!("the state machine does");
        });
        assert!(panics.is_err());
        let error = gate.wait_for(place(10)).await.expect_err("it never comes");
        assert!(error.contains("up to 10 was not kept"), "{error}");
    }
}
