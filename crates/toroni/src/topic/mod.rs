//! Topics, patterns, and the layout of a record.
//!
//! ```text
//!   publisher                         ring file                        subscriber
//!   Topic ── TopicCache::append ──►  topic table  ── TopicCache::sync ──►  names by id
//!     │                                                                      │
//!     └── Tag + Extensions ────────►    record     ──── decode ──────────►  Interest::answer
//! ```
//!
//! - `name`: a topic, parsed once.
//! - `pattern`: the topics that a subscriber asks for.
//! - `frame`: the layout of a record.
//! - `origin`: where a message that came from elsewhere was first published.
//! - `loss`: the record that tells subscribers of a loss on the way here.
//! - `table`: the topic names in the ring, which let a record carry a 3-byte id instead of a name.
//! - `interest`: a subscriber's patterns, with the answer for each topic id cached.
//!
//! Nothing here maps memory, waits or reads a clock. The caller passes the memory and the time.

pub(crate) mod frame;
pub(crate) mod interest;
pub(crate) mod loss;
mod name;
pub(crate) mod origin;
mod pattern;
pub(crate) mod table;

pub use loss::{Lost, LostBound, LostReason};
pub use name::{Topic, TopicError};
pub use origin::Origin;
pub(crate) use pattern::PatternSet;
pub use pattern::{Pattern, PatternError};
