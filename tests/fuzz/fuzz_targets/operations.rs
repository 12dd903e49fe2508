//! Lists of operations, against the model.
#![no_main]

use std::sync::LazyLock;
use toroni_fuzz_harness::operations::Stage;

static STAGE: LazyLock<Stage> = LazyLock::new(|| Stage::new());

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| STAGE.trial(bytes));
