//! Topics: what a message is about, and who asked for it.
//!
//! ```text
//!   publisher                       ring segment                        subscriber
//!   Topic ── TopicCache::append ──►  topic table  ── TopicCache::sync ──►  names by id
//!     │                                                                 │
//!     └── Tag + Extensions ───►    record     ──── decode ──►  Interest::answer
//! ```
//!
//! - `name`: a topic, parsed once.
//! - `pattern`: what a subscriber asks for.
//! - `frame`: the layout of a record, drawn.
//! - `table`: the interned names, so that a record carries three bytes in place of a name.
//! - `interest`: a subscriber's patterns with their answers cached per topic id.
//!
//! Nothing here maps memory, waits or reads a clock: the memory is handed in, and so is the time.

pub(crate) mod frame;
pub(crate) mod interest;
mod name;
mod pattern;
pub(crate) mod table;

pub use name::{Topic, TopicError};
pub(crate) use pattern::PatternSet;
pub use pattern::{Pattern, PatternError};
