//! The feed: events by number, from members to the buses of hosts.
//!
//! ```text
//!  member: apply ─► Archive (recent events, states to begin from, the log) ══ FETCH over TCP ══► Follower ─► bus `<feed>`
//!                      │                                           ══► Keeper: another Archive ══►
//!                      └─► Live ── in the process, or by multicast ─────────────────────────────────▲
//! ```
//!
//! | file | what it does |
//! |---|---|
//! | `archive.rs` | a member's events by number: from memory, or read again from its log |
//! | `distribute.rs` | a member hands its events on as they happen |
//! | `event_bus.rs` | events as messages of a bus |
//! | `follow.rs` | a host's thread that takes live events, and asks members for those that it lacks |
//! | `keeper.rs` | an archive on a host that is no member |
//! | `live.rs` | events as they happen, in a queue |
//! | `recheck.rs` | the last events on a bus, compared with those of the order |
//! | `rewind.rs` | events once more, into a new bus |
//! | `states.rs` | states of the machine on the disk, from which the log is read |
//! | `vouch.rs` | what an archive has, as far as members say that the order has it |

mod archive;
mod distribute;
mod event_bus;
mod follow;
mod keeper;
mod live;
mod recheck;
mod rewind;
mod states;
mod vouch;

#[cfg(test)]
mod tests;

pub(crate) use self::archive::Applying;
pub use self::archive::Archive;
pub(crate) use self::distribute::run as distribute;
pub use self::follow::{
    FeedStart, FollowError, Followed, Follower, FollowerOptions, Note, OnDivergence,
};
pub use self::keeper::{Keeper, KeeperError, KeeperOptions, Kept};
pub use self::live::Live;
pub use self::rewind::{RewindOptions, Rewound, rewind};
