//! A member of the group. This is the only module that knows openraft.
//!
//! | file | what it does |
//! |---|---|
//! | `types.rs` | openraft's types, and ours beside them |
//! | `storage.rs` | the log as openraft wants it |
//! | `applied.rs` | the state machine as openraft wants it, with its snapshot |
//! | `network.rs` | our messages as openraft wants its network |
//! | `propose.rs` | batches of all callers become entries |
//! | `group.rs` | a running member |

#![allow(
    clippy::result_large_err,
    reason = "its size is that of an error of openraft, which is rare"
)]

mod applied;
mod group;
mod network;
mod propose;
mod storage;
mod types;

#[cfg(test)]
mod tests;

pub use self::applied::{Events, Unreadable, machine_of_snapshot};
pub use self::group::{Group, GroupError, GroupOptions, Timing, feed_id};
