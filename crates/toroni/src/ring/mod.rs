//! The byte ring, over memory that it is given.
//!
//! It does not map memory, notify, allocate or read a clock; it waits for nothing but the writer
//! lock, which its caller holds for it. Loom and Miri run it on plain memory.

pub(crate) mod layout;
pub(crate) mod position;

pub(crate) mod backpressure;
pub(crate) mod copy;
pub(crate) mod memory;
pub(crate) mod racy;
pub(crate) mod reader;
pub(crate) mod slots;
pub(crate) mod writer;

#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
