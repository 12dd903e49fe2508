//! Tests that measure processor time. They run one by one, with nothing beside them.

#![cfg(feature = "proactor")]
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

#[allow(dead_code, reason = "each test program uses a part of it")]
#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "each test program uses a part of it")]
#[path = "../common/daemon.rs"]
mod daemon;
mod daemon_in_a_proactor;
#[allow(dead_code, reason = "each test program uses a part of it")]
#[path = "../common/example.rs"]
mod example;
