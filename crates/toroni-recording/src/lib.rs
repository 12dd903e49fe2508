//! Recordings: MCAP files with the messages and losses of a bus.
//!
//! | modules | contents |
//! |---|---|
//! | [`file`](mod@file) | a file that is being written |
//! | `new_file` | a file that gets its name when it is good |
//! | [`export`] | recordings of messages that are not on a bus |
//! | [`repair`] | completes a file whose recorder was killed |
//! | [`format`](mod@format) | what Toroni adds to MCAP: names of channels, losses, origins, metadata |
//! | `wire` | the records of MCAP, checked before anything in them is used |
//! | `chunk` | messages in memory: a decompressed chunk, or a part of a file without chunks |
//! | [`reader`] | a file from front to back, and its index |
//!
//! It is published because the programs need it. It promises no stability.

mod chunk;
pub mod export;
pub mod file;
pub mod format;
mod new_file;
pub mod reader;
pub mod repair;
mod wire;

#[cfg(test)]
mod tests;
