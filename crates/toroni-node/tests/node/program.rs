//! The programs under test.

use std::path::Path;

/// The program `toroni`. It finds `toroni-node`, which cargo built for this test, beside itself.
pub(crate) fn program() -> &'static Path {
    let path = system_tests::program::path();
    assert_eq!(path.parent(), Path::new(env!("CARGO_BIN_EXE_toroni-node")).parent());
    path
}
