//! What Toroni must do, in the most obvious way. Tests compare the library with it.
//!
//! - `operations`: a list of operations on a bus, from any bytes or from a seed.
//! - `model`: the content of the ring afterwards, as a list of messages.
//! - `topics`: the definitions of names, of patterns, and of which patterns match which names.
//!
//! It does not use the library, so that a mistake of the library cannot be in the oracle too. The library's tests perform
//! a list on the ring in plain memory (`crates/toroni/src/ring/tests`), and the fuzz harness on a whole bus, each
//! beside this model.

#![allow(missing_docs, reason = "nobody outside of the repository uses this crate")]
#![allow(clippy::unwrap_used, reason = "an oracle that is wrong ends the test")]

mod model;
mod operations;
pub mod topics;

pub use model::{Message, Model, NoSuchStart, RecordStart, body, record_bytes};
pub use operations::{Attempt, BYTES, By, Operation, Policy, Scenario, Setup, Size, Start, Work};
