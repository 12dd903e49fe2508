//! As operations, with deaths: the library has its crash points.
#![no_main]

use std::sync::LazyLock;
use toroni_fuzz_harness::operations::Fixture;

static FIXTURE: LazyLock<Fixture> = LazyLock::new(|| Fixture::new());

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| FIXTURE.fuzz(bytes));
