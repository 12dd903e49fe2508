//! Names and patterns against their definitions.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toroni_fuzz_harness::topics::fuzz(bytes));
