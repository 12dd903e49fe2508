//! The files of a bus: creating, opening, mapping, leasing and removing them.
//!
//! This layer knows where the bytes of each process come from, and which participants are alive. It does not know
//! what a message is, it wakes no process, and it leaves the order of loads and stores to `ring`.
//!
//! | module | what |
//! |---|---|
//! | [`directory`] | the directory of a bus, and how its files are opened safely |
//! | [`create`] | creates a bus, atomically |
//! | [`header`] | the handshake: written once, checked at every opening |
//! | [`ring_file`] | `ring` with its header and the lock that says "in use" |
//! | [`segment`], [`participants`] | the mapped files |
//! | [`patterns`] | the patterns of subscribers, for observers |
//! | [`mapping`], [`shareable`], [`guard`] | memory that other processes write and may truncate |
//! | [`lock`] | one writer at a time |
//! | [`lease`], [`fork`] | which participants are alive, and what a child of `fork` must not do |
//! | [`dumping`] | which processes are as good as dead although their lease is held |
//! | [`description`] | whether a descriptor still stands for what was opened |
//! | [`acl`], [`names`] | who may do what; users and groups by name |
//! | [`list`], [`clean`] | the existing buses, and what dead processes left |

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
pub(crate) mod regions;
pub(crate) mod registry;
pub(crate) mod ring_file;
pub(crate) mod segment;
pub(crate) mod shareable;
pub(crate) mod snapshot;
mod staging;
#[cfg(test)]
pub(crate) mod testing;
