//! Cases of single engines: what their kernel refuses, signals that are lost or of others, and several processors.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
mod fallback;
mod linux_rt;
mod posix;
mod processors;
mod refusals;
mod starts;
