//! Any bytes as a recording.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toroni_fuzz_harness::recordings::fuzz(bytes));
