//! The C interface of Toroni: what `include/toroni.h` declares and documents. A function here says in one
//! line what it is; what callers owe, units, threads and errors stand in the header.
//!
//! - `status`: every function's answer, the text of the last error, and the edge that no panic passes.
//! - `arguments`: pointers, strings and lengths from outside, checked.
//! - `lists`: what a handle owns that is a list.
//! - `options`, `bus`, `publisher`, `subscriber`, `message`, `router`, `stats`, `topics`, `admin`: the functions,
//!   by handle.
//!
//! A handle is a box that C has a pointer to. What callers owe for each: the pointer is null or one that this
//! library returned and that was not closed; no other thread closes it meanwhile, or uses it, where the
//! header says that it belongs to one thread.

#![expect(clippy::missing_safety_doc, reason = "the header says what callers owe")]
#![expect(non_camel_case_types, reason = "the names of C")]

mod admin;
mod arguments;
mod bus;
mod lists;
mod message;
mod options;
mod publisher;
mod router;
mod stats;
mod status;
mod subscriber;
mod topics;

pub use admin::*;
pub use bus::*;
pub use message::*;
pub use options::*;
pub use publisher::*;
pub use router::*;
pub use stats::*;
pub use status::*;
pub use subscriber::*;
pub use topics::*;
