//! What Toroni must do, said in the most obvious way, for tests to compare with.
//!
//! - `operations`: the list of what is done with a bus, from any bytes or from a seed.
//! - `model`: what the ring holds after it, as a list of messages.
//! - `topics`: names, patterns, and which of them meet: the definitions, word by word.
//!
//! It does not know the library: its mistakes are its own. The library's tests do a list to the ring on
//! plain memory (`crates/toroni/src/ring/tests`), and `trials` to a whole bus, both beside this model.

#![allow(missing_docs, reason = "nobody outside of the repository uses this crate")]
#![allow(clippy::unwrap_used, reason = "an oracle that is wrong ends the test")]

mod model;
mod operations;
pub mod topics;

pub use model::{Mark, Message, Model, NoSuchStart, body, record_bytes};
pub use operations::{BYTES, By, Operation, Policy, Scenario, Setup, Size, Start, Work};
