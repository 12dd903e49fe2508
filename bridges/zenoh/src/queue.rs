//! What waits between Zenoh's threads and the thread that publishes on the bus.

use crate::beat::Beat;
use crate::context::lock;
use crate::counters::Counting;
use crate::history::OVERHEAD;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use zenoh::bytes::ZBytes;
use zenoh::sample::Sample;

/// What came from Zenoh, for the import with this index.
pub(crate) enum Arriving {
    Message(usize, Sample),
    /// A batch, and where its next record begins.
    Batch(usize, ZBytes, usize),
    Beat(usize, Sample),
    Loss(usize, Sample),
    Joined(Joined),
    Stop,
}

/// The answer of an export that an importer has joined.
pub(crate) struct Joined {
    pub(crate) import: usize,
    /// Of which question this is the answer, if a join waits for it.
    pub(crate) serial: Option<u64>,
    pub(crate) numbering: u32,
    pub(crate) messages: Vec<Sample>,
    /// `None` if the answer did not come, or not whole.
    pub(crate) counts: Option<Beat>,
}

/// A queue with limits.
pub(crate) struct Queue {
    most_messages: usize,
    most_bytes: usize,
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Default)]
struct State {
    arriving: VecDeque<Arriving>,
    bytes: usize,
    is_waited_for: bool,
    is_woken: bool,
    is_stopping: bool,
}

impl Queue {
    pub(crate) fn new(most_messages: usize, most_bytes: usize) -> Self {
        let (state, filled) = (Mutex::default(), Condvar::new());
        Self { most_messages, most_bytes, state, filled }
    }

    /// Appends a sample, unless the queue is full.
    pub(crate) fn push(&self, counting: &Counting, arriving: Arriving) {
        let bytes = match &arriving {
            Arriving::Message(_, sample)
            | Arriving::Beat(_, sample)
            | Arriving::Loss(_, sample) => sample.payload().len(),
            Arriving::Batch(_, bytes, _) => bytes.len(),
            Arriving::Joined(_) | Arriving::Stop => 0,
        };
        let is_sample = !matches!(arriving, Arriving::Joined(_) | Arriving::Stop);
        let mut state = lock(&self.state);
        let is_full = state.arriving.len() >= self.most_messages
            || state.bytes.saturating_add(bytes) > self.most_bytes && state.bytes > 0;
        if is_sample && is_full {
            drop(state);
            counting.queue_full.one();
            return;
        }
        state.bytes += bytes;
        state.is_stopping |= matches!(arriving, Arriving::Stop);
        state.arriving.push_back(arriving);
        let wake = std::mem::take(&mut state.is_waited_for);
        drop(state);
        if wake {
            self.filled.notify_one();
        }
    }

    /// Returns whether nothing waits, and [`Self::wait`] is at work: all that came before is done with.
    pub(crate) fn is_idle(&self) -> bool {
        let state = lock(&self.state);
        state.is_waited_for && state.arriving.is_empty()
    }

    /// Returns whether [`Arriving::Stop`] has come. What waits for the bus then need not wait any longer.
    pub(crate) fn is_stopping(&self) -> bool {
        lock(&self.state).is_stopping
    }

    /// Waits until there is something, or [`Self::wake`] is called, or the time is over.
    pub(crate) fn wait(&self, timeout: Duration) {
        let mut state = lock(&self.state);
        if state.arriving.is_empty() && !state.is_woken && !timeout.is_zero() {
            state.is_waited_for = true;
            let waited = self.filled.wait_timeout(state, timeout);
            state = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
            state.is_waited_for = false;
        }
        state.is_woken = false;
    }

    /// Ends a wait, or the next one.
    pub(crate) fn wake(&self) {
        let mut state = lock(&self.state);
        state.is_woken = true;
        drop(state);
        self.filled.notify_one();
    }

    /// Takes all that there is.
    pub(crate) fn take(&self) -> VecDeque<Arriving> {
        let mut state = lock(&self.state);
        state.bytes = 0;
        std::mem::take(&mut state.arriving)
    }
}

/// Collects the answer of an export. When Zenoh has dropped it, the answer is complete.
pub(crate) struct Collector {
    pub(crate) queue: Arc<Queue>,
    pub(crate) counting: Arc<crate::context::Context>,
    pub(crate) most_bytes: usize,
    pub(crate) bytes: usize,
    pub(crate) joined: Joined,
}

impl Collector {
    pub(crate) fn take(&mut self, sample: Sample) {
        if sample.attachment().is_none() {
            if let Some(beat) = Beat::parse(&sample.payload().to_bytes())
                && beat.numbering == self.joined.numbering
            {
                self.joined.counts = Some(beat);
            } else {
                self.counting.counting.bad_control.one();
            }
            return;
        }
        let overhead = usize::try_from(OVERHEAD).unwrap_or(usize::MAX);
        self.bytes = self.bytes.saturating_add(sample.payload().len()).saturating_add(overhead);
        if self.bytes <= self.most_bytes {
            self.joined.messages.push(sample);
        } else {
            self.counting.counting.queue_full.one();
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let messages = std::mem::take(&mut self.joined.messages);
        let mut counts = self.joined.counts.take();
        if self.bytes > self.most_bytes
            && let Some(counts) = &mut counts
        {
            // The last ones are missing.
            counts.replayed_from = None;
        }
        let Joined { import, serial, numbering, .. } = self.joined;
        let joined = Joined { import, serial, numbering, messages, counts };
        self.queue.push(&self.counting.counting, Arriving::Joined(joined));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn what_comes_before_a_wait_ends_it() {
        let (queue, counting) = (Queue::new(1, 1), Counting::default());
        queue.wake();
        queue.wait(LONG);
        queue.push(&counting, Arriving::Stop);
        queue.wait(LONG);
        assert_eq!(queue.take().len(), 1);
    }

    #[test]
    fn it_is_idle_while_a_thread_waits_for_something() {
        let (queue, counting) = (Queue::new(1, 1), Counting::default());
        assert!(!queue.is_idle(), "the thread may be at work");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| queue.wait(LONG));
            while !queue.is_idle() {
                std::thread::yield_now();
            }
            queue.push(&counting, Arriving::Stop);
            assert!(!queue.is_idle());
            waits.join().expect("it ends");
        });
        assert!(!queue.is_idle());
    }
}
