//! What is done with any bytes: each module has a trial that takes some, lets the library, or the program,
//! do what they say, and panics if what comes of it is wrong.
//!
//! The fuzz targets in `tests/fuzz/` are these trials under libFuzzer. The tests of this crate run them on
//! the corpora and on whatever once failed, with nothing but a stable compiler.
//!
//! - `topics`: names and patterns.
//! - `command_line`: arguments, input and output of the program.
//! - `hostile`: whatever bytes in the files of a bus.
//! - `patterns`: any bytes in the place of a subscriber's patterns, against the oracle.
//! - `operations`: lists of operations, against the oracle.

#![allow(missing_docs, reason = "nobody outside of the repository uses this crate")]
#![allow(clippy::unwrap_used, reason = "a panic is a finding")]

#[cfg(feature = "program")]
pub mod command_line;
pub mod hostile;
mod input;
pub mod operations;
pub mod patterns;
pub mod topics;

pub use toroni_testkit::Directory;
