//! Which buses this thread holds the writer lock of, while a closure of the user runs under it.
//!
//! Only `publish_with` runs user code under the lock. A closure that publishes on the same bus, even
//! through another handle, would wait for itself.

use std::cell::RefCell;

/// Closures that may run within one another, each under the lock of another bus.
const MOST: usize = 16;

/// Needs no destructor, and so is there also in the destructors of a thread's other variables, where a
/// program may publish its last words.
struct Nested {
    count: usize,
    buses: [[u8; 16]; MOST],
}

thread_local! {
    static HELD: RefCell<Nested> =
        const { RefCell::new(Nested { count: 0, buses: [[0; 16]; MOST] }) };
}

/// Marks the bus until dropped, also when the closure unwinds. `None` if closures nest too deep.
pub(super) fn mark(bus_id: [u8; 16]) -> Option<Mark> {
    HELD.with_borrow_mut(|held| {
        *held.buses.get_mut(held.count)? = bus_id;
        held.count += 1;
        Some(Mark)
    })
}

pub(super) struct Mark;

impl Drop for Mark {
    fn drop(&mut self) {
        // Closures nest, so the last mark is this one.
        HELD.with_borrow_mut(|held| held.count -= 1);
    }
}

/// Whether the caller runs inside a closure under the lock of this bus.
pub(super) fn by_this_thread(bus_id: &[u8; 16]) -> bool {
    HELD.with_borrow(|held| held.buses[..held.count].contains(bus_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_nest_to_their_bound() {
        assert!(!std::mem::needs_drop::<Nested>(), "it would vanish before others do");
        let mut marks: Vec<Mark> = (0..16).map(|bus| mark([bus; 16]).unwrap()).collect();
        assert!(mark([16; 16]).is_none());
        assert!(by_this_thread(&[15; 16]) && !by_this_thread(&[16; 16]));
        marks.pop();
        assert!(!by_this_thread(&[15; 16]) && by_this_thread(&[14; 16]));
        drop(marks);
        assert!(!by_this_thread(&[0; 16]));
    }
}
