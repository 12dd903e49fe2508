//! Live events: those that come to a follower as they happen, before it asks for them.
//!
//! ```text
//!  member of this host ─► distribute.rs ─► Live ─► Follower
//!  multicast ─► (the program's thread) ─► Live ─► Follower
//!  member that leads ─► distribute.rs ─► Live ─► (the program's thread) ─► multicast
//! ```
//!
//! If a queue is full, events are dropped, and followers ask members for them. A queue for a follower drops those that come: it
//! goes on where it is. One that is sent to other hosts drops those that wait: what is late has been asked for by then.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::rpc::Events;

/// The most bytes that wait for a follower. A single longer run is accepted if the queue is empty.
const FOLLOWER_BYTES: usize = if cfg!(test) { 16 << 10 } else { 8 << 20 };
/// The same before they are sent to other hosts.
const SENDER_BYTES: usize = if cfg!(test) { 16 << 10 } else { 4 << 20 };

/// A queue of live events. Clones are handles of the same.
#[derive(Clone, Default)]
pub struct Live(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    pushed: Condvar,
    /// Of a queue that is sent to other hosts: wakes who sends.
    wake: Option<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
struct Queue {
    events: VecDeque<Events>,
    bytes: usize,
    dropped: u64,
}

impl fmt::Debug for Live {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = self.lock();
        let Queue { bytes, dropped, .. } = &*queue;
        formatter
            .debug_struct("Live")
            .field("bytes", bytes)
            .field("dropped", dropped)
            .finish_non_exhaustive()
    }
}

impl Live {
    /// Makes an empty queue for a follower.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes an empty queue for events that are sent to other hosts. It calls this after each push to an empty queue, for a
    /// sender that also waits on descriptors.
    #[must_use]
    pub fn to_send(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared { wake: Some(Box::new(wake)), ..Shared::default() }))
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn limit(&self) -> usize {
        if self.0.wake.is_some() { SENDER_BYTES } else { FOLLOWER_BYTES }
    }

    /// Appends events. Without room for all, some are dropped and counted.
    pub fn push(&self, events: Events) {
        let mut queue = self.lock();
        if !queue.has_room(events.encoded_bytes(), self.limit()) {
            if self.0.wake.is_none() {
                queue.dropped += events.count();
                return;
            }
            queue.dropped += queue.events.iter().map(Events::count).sum::<u64>();
            queue.events.clear();
            queue.bytes = 0;
        }
        let was_empty = queue.events.is_empty();
        queue.bytes += events.encoded_bytes();
        queue.events.push_back(events);
        drop(queue);
        self.0.pushed.notify_one();
        if let Some(wake) = self.0.wake.as_ref().filter(|_| was_empty) {
            wake();
        }
    }

    /// Takes the next events. Waits for them for at most `timeout`.
    #[must_use]
    pub fn pop(&self, timeout: Duration) -> Option<Events> {
        let mut queue = self.lock();
        if queue.events.is_empty() && !timeout.is_zero() {
            let waited =
                self.0.pushed.wait_timeout_while(queue, timeout, |queue| queue.events.is_empty());
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let events = queue.events.pop_front()?;
        queue.bytes -= events.encoded_bytes();
        Some(events)
    }

    /// Returns whether there is room for events of this encoded length, in bytes.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.lock().has_room(bytes, self.limit())
    }

    /// Returns how many events were dropped because there was no room.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.lock().dropped
    }
}

impl Queue {
    fn has_room(&self, bytes: usize, limit: usize) -> bool {
        self.events.is_empty() || self.bytes + bytes <= limit
    }
}
