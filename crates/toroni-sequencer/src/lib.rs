//! Toroni's sequencer: one order over hosts.
//!
//! Nodes send **commands**. The sequencer puts them in one order; a command with its place in the order is an
//! **event**. It does not look into payloads.
//!
//! | module | what it does |
//! |---|---|
//! | [`batch`] | commands as bytes; a batch is one entry of the replicated log |
//! | [`commands`] | a host's side: from its command bus to the leader |
//! | [`entry`] | entries, votes and members as bytes |
//! | [`feed`] | events by number, from members to the buses of hosts |
//! | [`log`] | the replicated log and the vote on a disk |
//! | [`machine`] | the state machine: event numbers, duplicates, the digest; plain computation |
//! | [`raft`] | a member of the group: Raft over log and machine; the only module that knows openraft |
//! | [`rpc`] | messages between members, and from nodes to members, over TCP |

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::print_stderr, clippy::print_stdout, reason = "these panic: `say` does not")
)]

pub mod batch;
mod bytes;
#[cfg(feature = "commands")]
pub mod commands;
pub mod entry;
#[cfg(feature = "member")]
pub mod feed;
mod hook;
pub mod log;
pub mod machine;
#[cfg(feature = "member")]
pub mod raft;
#[cfg(feature = "member")]
pub mod rpc;
mod say;
