//! Any bytes as the journal of a node.
#![no_main]

use std::sync::LazyLock;
use toroni_fuzz_harness::journal::Fixture;

static FIXTURE: LazyLock<Fixture> = LazyLock::new(Fixture::new);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| FIXTURE.fuzz(bytes));
