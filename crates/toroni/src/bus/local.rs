//! The gating subscribers of this process, and which thread reads each: a thread that publishes and
//! waits for a subscriber that only itself can serve would wait for itself. One that was handed to another
//! thread counts as the old thread's until the new one reads.

use crate::sync::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

static READERS: Mutex<Vec<Weak<LocalReader>>> = Mutex::new(Vec::new());

/// A gating subscriber of this process.
pub(super) struct LocalReader {
    bus_id: [u8; 16],
    slot: u32,
    generation: u32,
    /// What it has told publishers. Not its slot's word, which every subscriber of the bus may write.
    position: AtomicU64,
    /// The thread that read last, as [`this_thread`] names it; 0 before the first read.
    thread: AtomicU64,
}

impl LocalReader {
    pub(super) fn register(
        bus_id: [u8; 16],
        slot: u32,
        generation: u32,
        position: u64,
    ) -> Arc<Self> {
        let position = AtomicU64::new(position);
        let reader =
            Arc::new(Self { bus_id, slot, generation, position, thread: AtomicU64::new(0) });
        let mut readers = READERS.lock().unwrap_or_else(PoisonError::into_inner);
        readers.retain(|reader| reader.strong_count() > 0);
        readers.push(Arc::downgrade(&reader));
        reader
    }

    /// Notes that the calling thread reads.
    pub(super) fn note_thread(&self) {
        self.thread.store(this_thread(), Ordering::Relaxed);
    }

    /// Notes how far it has come, before it tells publishers.
    pub(super) fn note_position(&self, position: u64) {
        self.position.store(position, Ordering::Release);
    }
}

/// Slot, generation and position of each gating subscriber that this process has on a bus.
pub(super) fn positions(bus_id: &[u8; 16]) -> Vec<(u32, u32, u64)> {
    let readers = READERS.lock().unwrap_or_else(PoisonError::into_inner);
    let ours = readers.iter().filter_map(Weak::upgrade).filter(|reader| reader.bus_id == *bus_id);
    ours.map(|reader| (reader.slot, reader.generation, reader.position.load(Ordering::Acquire)))
        .collect()
}

/// Whether the subscriber in this slot was last read by the calling thread.
pub(super) fn is_read_here(bus_id: &[u8; 16], slot: u32, generation: u32) -> bool {
    let me = this_thread();
    READERS.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).any(
        |reader| {
            reader.bus_id == *bus_id
                && reader.slot == slot
                && reader.generation == generation
                && reader.thread.load(Ordering::Relaxed) == me
        },
    )
}

/// A number of the calling thread; never 0, never given to another.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}
