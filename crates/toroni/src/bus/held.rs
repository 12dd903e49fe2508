//! Which buses this thread holds the writer lock of, while a closure of the user runs under it.
//!
//! Only `publish_with` runs user code under the lock. A closure that publishes on the same bus, even
//! through another handle, would wait for itself.

use std::cell::RefCell;

thread_local! {
    static HELD: RefCell<Vec<[u8; 16]>> = const { RefCell::new(Vec::new()) };
}

/// Marks the bus until dropped, also when the closure unwinds.
pub(super) fn mark(bus_id: [u8; 16]) -> Mark {
    HELD.with_borrow_mut(|held| held.push(bus_id));
    Mark
}

pub(super) struct Mark;

impl Drop for Mark {
    fn drop(&mut self) {
        // Closures nest, so the last mark is this one.
        HELD.with_borrow_mut(Vec::pop);
    }
}

/// Whether the caller runs inside a closure under the lock of this bus.
pub(super) fn by_this_thread(bus_id: &[u8; 16]) -> bool {
    HELD.with_borrow(|held| held.contains(bus_id))
}
