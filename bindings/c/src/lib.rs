//! The C interface of Toroni, which `include/toroni.h` declares and documents.
//!
//! - `status`: the status that each function returns, the text of the last error, and `catch_panics`.
//! - `arguments`: checks pointers, strings and lengths that come from C.
//! - `lists`: lists that a handle owns.
//! - `options`, `bus`, `publisher`, `exclusive`, `inlet`, `subscriber`, `message`, `values`, `router`, `commands`, `stats`,
//!   `topics`, `admin`: the functions, by handle.
//!
//! A handle is a `Box` whose pointer C holds. For every handle, toroni.h requires of callers: the pointer is null, or
//! the library returned it and it has not been closed; no other thread closes the handle during the call, or uses it
//! if it belongs to one thread.

#![expect(clippy::missing_safety_doc, reason = "toroni.h says what is required of callers")]
#![expect(missing_docs, reason = "toroni.h documents everything that is public here")]
#![expect(non_camel_case_types, reason = "these are the names in C")]

mod admin;
mod arguments;
mod bus;
mod commands;
mod exclusive;
mod inlet;
mod lists;
mod message;
mod options;
mod publisher;
mod router;
mod stats;
mod status;
mod subscriber;
mod topics;
mod values;

pub use admin::*;
pub use bus::*;
pub use commands::*;
pub use exclusive::*;
pub use inlet::*;
pub use message::*;
pub use options::*;
pub use publisher::*;
pub use router::*;
pub use stats::*;
pub use status::*;
pub use subscriber::*;
pub use topics::*;
pub use values::*;
