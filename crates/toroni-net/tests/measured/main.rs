//! Tests that measure the memory of their process. They run one by one, with nothing beside them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod allocations;
mod hostile;
#[allow(dead_code, reason = "each test program uses a part of it")]
#[path = "../net/support.rs"]
mod support;
