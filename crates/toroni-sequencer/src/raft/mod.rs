//! A member of the group. This is the only module that knows openraft.
//!
//! | file | what it does |
//! |---|---|
//! | `types.rs` | openraft's types, and ours beside them |
//! | `storage.rs` | the log as openraft wants it |
//! | `applied.rs` | the state machine as openraft wants it, with its snapshot |
//! | `gate.rs` | the log is not purged before the snapshot is on the disk |
//! | `network.rs` | our messages as openraft wants its network |
//! | `peers.rs` | the connections to the other members, and how they are |
//! | `office.rs` | the time in which this member leads |
//! | `propose.rs` | batches of all callers become entries |
//! | `group.rs` | starts a member, and takes care of its log |
//! | `shared.rs` | what the tasks of a member share, and its status |
//! | `service.rs` | what a member answers |
//! | `sources.rs` | what the order knows of its sources |
//! | `reads.rs` | a majority confirms that this member leads |
//! | `contact.rs` | whether a majority, or the leader, is heard |
//! | `members.rs` | how a group begins, and how its members change |
//! | `timing.rs` | how long members wait before they elect a leader |
//! | `elections.rs` | when a member has itself elected |
//! | `hand_over.rs` | a leader hands over on purpose |
//! | `doubt.rs` | a member that may have lost entries in a reboot |
//! | `recover.rs` | a new group from one log |

#![allow(
    clippy::result_large_err,
    reason = "its size is that of an error of openraft, which is rare"
)]

mod applied;
mod contact;
mod doubt;
mod elections;
mod gate;
mod group;
mod hand_over;
mod members;
mod network;
mod office;
mod peers;
mod propose;
mod reads;
mod recover;
mod service;
mod shared;
mod sources;
mod storage;
mod timing;
mod types;

#[cfg(test)]
mod tests;

pub use self::applied::{Events, Unreadable, machine_of_snapshot};
pub use self::group::{Group, GroupError, GroupOptions, feed_id};
pub use self::recover::{Recovery, recover};
pub use self::timing::Timing;
