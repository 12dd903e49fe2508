//! The byte ring, over memory that it is given.
//!
//! It does not map memory, notify or read a clock. It waits for nothing: whoever writes through it
//! holds the writer lock already. It allocates only what a reader copies records to, which grows with
//! the largest one. Loom and Miri run it on plain memory. `layout.rs` states its invariants.

pub(crate) mod layout;
pub(crate) mod position;

mod bulk;
pub(crate) mod copy;
pub(crate) mod gate;
pub(crate) mod memory;
pub(crate) mod racy;
pub(crate) mod read_ahead;
pub(crate) mod reader;
pub(crate) mod run;
pub(crate) mod slots;
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
