//! Files of a bus: made, opened, mapped, leased, and removed.
//!
//! This layer knows where each process's bytes come from and who is alive. It does not know what a
//! message is, wakes nobody, and leaves the order of loads and stores to `ring`.
//!
//! | module | what |
//! |---|---|
//! | [`directory`] | the directory of a bus and its files, opened safely |
//! | [`create`] | making a bus, atomically |
//! | [`header`] | the handshake: encoded once, checked at every opening |
//! | [`ring_file`] | `ring` with its header and the lock that says "in use" |
//! | [`segment`], [`participants`] | the mapped files |
//! | [`patterns`] | the patterns of subscribers, for observers |
//! | [`mapping`], [`shareable`], [`guard`] | memory that others write, and may truncate |
//! | [`lock`] | one writer at a time |
//! | [`lease`], [`fork`] | who is alive, and what a child of `fork` is not |
//! | [`dumping`] | who is as good as dead, although its lease is held |
//! | [`description`] | whether a descriptor is still the one that was opened |
//! | [`acl`], [`names`] | who may do what; users and groups by name |
//! | [`list`], [`clean`] | the buses that are there, and what the dead left behind |

pub(crate) mod acl;
pub(crate) mod clean;
pub(crate) mod create;
mod description;
pub(crate) mod directory;
pub(crate) mod dumping;
mod encoding;
pub(crate) mod fork;
pub(crate) mod guard;
pub(crate) mod header;
pub(crate) mod lease;
mod leftovers;
pub(crate) mod list;
pub(crate) mod lock;
pub(crate) mod mapping;
mod names;
mod ofd;
pub(crate) mod participants;
pub(crate) mod patterns;
pub(crate) mod platform;
pub(crate) mod registry;
pub(crate) mod ring_file;
pub(crate) mod segment;
pub(crate) mod shareable;
pub(crate) mod snapshot;
mod staging;
#[cfg(test)]
pub(crate) mod testing;
