//! The library as its users see it, on real buses.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

#[allow(dead_code, reason = "each test program uses a part of it")]
#[path = "../common/mod.rs"]
mod common;
#[cfg(feature = "proactor")]
#[allow(dead_code, reason = "each test program uses a part of it")]
#[path = "../common/daemon.rs"]
mod daemon;
mod disk;
#[allow(dead_code, reason = "each test program uses a part of it")]
#[path = "../common/example.rs"]
mod example;
mod examples;
mod exclusive;
mod hold;
mod in_place;
mod inlet;
mod interests;
mod interrupt;
mod joining;
mod messages;
#[cfg(feature = "proactor")]
mod proactor;
mod self_wait;
#[cfg(feature = "tokio")]
mod tokio;
