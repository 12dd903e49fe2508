//! Tests of the commands between hosts that measure, or that keep the processors busy. They run one by one, with nothing beside them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod node;
#[allow(dead_code, reason = "each test program uses a part of it")]
#[path = "../node/nodes.rs"]
mod nodes;
#[allow(dead_code, unused_imports, reason = "each test program uses a part of it")]
#[path = "../../../toroni-cli/tests/cli/support.rs"]
mod support;

use std::path::Path;

/// The program `toroni`. It finds `toroni-node`, which cargo built for this test, beside itself.
fn program() -> &'static Path {
    let path = system_tests::program::path();
    assert_eq!(path.parent(), Path::new(env!("CARGO_BIN_EXE_toroni-node")).parent());
    path
}
