//! What Toroni's programs share. This crate knows nothing of the message bus.
//!
//! - [`process`]: a child process that is killed with its parent.
//! - [`lines`]: reads lines from children without blocking.
//! - [`units`]: sizes and durations on command lines, and large numbers in reports.
//!
//! It is published because the programs need it. It promises no stability.

pub mod lines;
pub mod process;
pub mod units;

pub use process::Process;
