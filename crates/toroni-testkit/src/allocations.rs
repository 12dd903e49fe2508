//! Counts allocations, for tests of code that must not allocate.
//!
//! A test makes [`Counting`] its allocator, which counts for each thread:
//!
//! ```
//! use toroni_testkit::allocations::{Counting, allocations};
//!
//! #[global_allocator]
//! static ALLOCATOR: Counting = Counting;
//!
//! assert_eq!(allocations(|| drop(Box::new(7))).0, 1);
//! assert_eq!(allocations(|| 7), (0, 7));
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! { static COUNT: Cell<usize> = const { Cell::new(0) } }

/// The system's allocator, with a count of the allocations of each thread.
#[derive(Debug)]
pub struct Counting;

// SAFETY: the system's allocator does all of it; the counter neither allocates nor panics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's pointer and layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Returns how often this thread allocates in `work`, and the result. Without [`Counting`] as the allocator, that is 0.
pub fn allocations<R>(work: impl FnOnce() -> R) -> (usize, R) {
    let before = COUNT.get();
    let result = work();
    (COUNT.get() - before, result)
}
