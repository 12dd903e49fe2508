//! What Toroni must do, in the most obvious way. Tests compare the library with it.
//!
//! - `operations`: a list of operations on a bus, from any bytes or from a seed; `numbers`: those of what inlets bring.
//! - `model`: the content of the ring afterwards, as a list of messages.
//! - `interests`: subscribers that each want a few of several topics, and whom each message is for.
//! - `values`: the newest message of each retained topic.
//! - `arrivals`: how far streams from elsewhere have arrived, and who may bring them.
//! - `topics`: the definitions of names, of patterns, of which patterns match which names, and of which intersect.
//!
//! It does not use the library, so that a mistake of the library cannot be in the oracle too. The library's tests perform
//! a list on the ring in plain memory (`crates/toroni/src/ring/tests`), and the fuzz harness on a whole bus, each
//! beside this model.

#![allow(missing_docs, reason = "this crate is not published")]
#![allow(clippy::unwrap_used, reason = "an oracle that is wrong ends the test")]

mod arrivals;
pub mod interests;
mod model;
mod numbers;
mod operations;
pub mod topics;
mod values;

pub use arrivals::{Arrival, Arrivals, Bringer, NUMBER_LIMIT, Reach, StreamName, Taken};
pub use model::{Message, Model, NoSuchStart, RecordStart, body, record_bytes};
pub use numbers::{First, Numbers, Then};
pub use operations::{
    Attempt, BYTES, By, Cargo, Operation, Policy, Scenario, Setup, Size, Start, Work,
};
pub use values::{Newest, Room, TooMany, Values};
