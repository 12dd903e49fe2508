//! What the harness does when a column or a child fails.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod connections;
mod process_group;
