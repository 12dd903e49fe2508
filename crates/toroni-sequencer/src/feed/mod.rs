//! The feed: events by number, from members to the buses of hosts.
//!
//! ```text
//!  member: apply ─► Archive (recent events, states to begin from, the log) ══ FETCH over TCP ══► Follower ─► bus `<feed>`
//! ```
//!
//! | file | what it does |
//! |---|---|
//! | `archive.rs` | a member's events by number: from memory, or read again from its log |
//! | `event_bus.rs` | events as messages of a bus |
//! | `follow.rs` | a host's thread that asks members for events |
//! | `rewind.rs` | events once more, into a new bus |
//! | `states.rs` | states of the machine on the disk, from which the log is read |

mod archive;
mod event_bus;
mod follow;
mod rewind;
mod states;

#[cfg(test)]
mod tests;

pub(crate) use self::archive::Applying;
pub use self::archive::Archive;
pub use self::follow::{FeedStart, FollowError, Followed, Follower, FollowerOptions, OnDivergence};
pub use self::rewind::{RewindOptions, Rewound, rewind};
