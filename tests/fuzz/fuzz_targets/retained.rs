//! Any bytes where a bus keeps the values of retained topics.
#![no_main]

use std::sync::LazyLock;
use toroni_fuzz_harness::Directory;
use toroni_fuzz_harness::retained::Fixture;

static FIXTURE: LazyLock<(Directory, Fixture)> = LazyLock::new(|| {
    let directory = Directory::new();
    let fixture = Fixture::new(directory.path());
    (directory, fixture)
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| FIXTURE.1.fuzz(bytes));
