//! A member of the group. This is the only module that knows openraft.
//!
//! | file | what it does |
//! |---|---|
//! | `types.rs` | openraft's types, and ours beside them |
//! | `storage.rs` | the log as openraft wants it |
//! | `applied.rs` | the state machine as openraft wants it, with its snapshot |

mod applied;
mod storage;
mod types;

#[cfg(test)]
mod tests;

pub use self::applied::Events;
