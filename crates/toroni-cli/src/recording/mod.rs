//! Recordings: MCAP files with the messages and losses of a bus.
//!
//! | modules | contents |
//! |---|---|
//! | `format` | what Toroni adds to MCAP: names of channels, losses, origins, metadata |
//! | `wire` | the records of MCAP, checked before anything in them is used |
//! | `chunk` | messages in memory: a decompressed chunk, or a part of a file without chunks |
//! | `reader` | a file from front to back, and its index |
//!
//! `commands/record/file.rs` writes them, with the crate `mcap`.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

pub(crate) mod chunk;
pub(crate) mod format;
pub(crate) mod reader;
pub(crate) mod wire;

#[cfg(test)]
mod tests;
