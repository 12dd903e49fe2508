//! The byte ring, on memory that the caller provides.
//!
//! The ring does not map memory, notify or read a clock, and it never waits. Writing requires the
//! writer lock, which the caller already holds. It allocates only the buffer to which a reader copies
//! records, which grows to the largest record, and short lists of slots. This is why loom and Miri
//! can run the ring on plain memory. `layout.rs` states the invariants.

pub(crate) mod layout;
pub(crate) mod position;

pub(crate) mod arrivals;
pub(crate) mod bounds;
mod bulk;
pub(crate) mod copy;
pub(crate) mod gate;
pub(crate) mod memory;
pub(crate) mod racy;
pub(crate) mod read_ahead;
pub(crate) mod reader;
pub(crate) mod run;
pub(crate) mod slots;
pub(crate) mod values;
pub(crate) mod wait_budget;
pub(crate) mod waits;
pub(crate) mod writer;

#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
