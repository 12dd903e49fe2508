//! Tests of subscribers in a proactor: in this process, and in the example `daemon`.

#![cfg(feature = "proactor")]
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

#[allow(dead_code, reason = "each test program uses a part of it")]
#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "each test program uses a part of it")]
#[path = "../common/daemon.rs"]
mod daemon;
mod daemon_in_a_proactor;
#[path = "../../../toroni-proactor/tests/common/mod.rs"]
mod engine;
#[allow(dead_code, reason = "each test program uses a part of it")]
#[path = "../common/example.rs"]
mod example;
mod subscribers_in_a_proactor;
