//! The feed: events by number, from members to the buses of hosts.
//!
//! ```text
//!  member: apply ─► Archive (recent events, states to begin from, the log) ══ FETCH over TCP ══► Follower ─► bus `<feed>`
//! ```
//!
//! | file | what it does |
//! |---|---|
//! | `archive.rs` | a member's events by number: from memory, or read again from its log |
//! | `states.rs` | states of the machine on the disk, from which the log is read |

mod archive;
mod states;

#[cfg(test)]
mod tests;

pub(crate) use self::archive::Applying;
pub use self::archive::Archive;
