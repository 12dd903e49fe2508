//! What Toroni must do, said in the most obvious way, for tests to compare with.
//!
//! - `topics`: names, patterns, and which of them meet: the definitions, word by word.
//!
//! It does not know the library: its mistakes are its own.

#![allow(clippy::unwrap_used, reason = "an oracle that is wrong ends the test")]

pub mod topics;
