//! Arguments, input and output of the program.
#![no_main]

use std::sync::LazyLock;
use toroni_fuzz_harness::Directory;
use toroni_fuzz_harness::command_line::Stage;

static PLACE: LazyLock<(Directory, Stage)> = LazyLock::new(|| {
    let directory = Directory::new();
    let stage = Stage::new(directory.path());
    (directory, stage)
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| PLACE.1.trial(bytes));
