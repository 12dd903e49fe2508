//! The fuzz entries. Each module has a function `fuzz`, which takes any bytes, makes the library or the program do what
//! the bytes say, and panics if the result is wrong.
//!
//! The fuzz targets in `tests/fuzz/` call these entries from libFuzzer. The tests of this crate call them with the
//! corpora and with all inputs that once failed; they need only a stable compiler.
//!
//! - `topics`: names and patterns.
//! - `command_line`: arguments, input and output of the program.
//! - `recordings`: any bytes as a file that `toroni record` has written.
//! - `hostile`: any bytes in the files of a bus.
//! - `patterns`: any bytes where a subscriber stores its patterns, compared with the oracle.
//! - `retained`: any bytes where a bus keeps the values of retained topics.
//! - `network`: any bytes as a datagram or a frame of the network protocol, and between its sender and receiver, or its
//!   server and clients.
//! - `node_file`: any bytes as the file of a node.
//! - `journal`: any bytes as what a node keeps of the streams that it sends, and of its sessions.
//! - `member_log`: any damage to the files of a member's log.
//! - `sequencer`: any bytes as a batch of commands, or as a snapshot of the sequencer.
//! - `operations`: lists of operations, compared with the oracle.

#![allow(missing_docs, reason = "this crate is not published")]
#![allow(clippy::unwrap_used, reason = "a panic is a finding")]

#[cfg(feature = "program")]
pub mod command_line;
pub mod hostile;
mod input;
#[cfg(feature = "network")]
pub mod journal;
#[cfg(feature = "network")]
pub mod member_log;
#[cfg(feature = "network")]
pub mod network;
#[cfg(feature = "network")]
pub mod node_file;
pub mod operations;
pub mod patterns;
#[cfg(feature = "program")]
pub mod recordings;
pub mod retained;
#[cfg(feature = "network")]
pub mod sequencer;
pub mod topics;

pub use toroni_testkit::Directory;
