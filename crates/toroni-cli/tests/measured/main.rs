//! Tests of the program that measure, or that keep the processors busy. They run one by one, with nothing beside them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod demo;
#[allow(dead_code, unused_imports, reason = "each test program uses a part of it")]
#[path = "../cli/support.rs"]
mod support;
#[cfg(feature = "top")]
#[allow(dead_code, reason = "each test program uses a part of it")]
#[path = "../cli/terminal.rs"]
mod terminal;
#[cfg(feature = "top")]
mod top;

use std::path::Path;

/// The program under test.
fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_toroni"))
}
