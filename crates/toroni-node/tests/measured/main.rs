//! Tests of the commands between hosts that measure, or that keep the processors busy. They run one by one, with nothing beside them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod node;
#[allow(dead_code, reason = "each test program uses a part of it")]
#[path = "../node/nodes.rs"]
mod nodes;
#[path = "../node/program.rs"]
mod program;
#[allow(dead_code, unused_imports, reason = "each test program uses a part of it")]
#[path = "../../../toroni-cli/tests/cli/support.rs"]
mod support;

use program::program;
