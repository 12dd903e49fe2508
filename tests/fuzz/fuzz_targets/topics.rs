//! Names and patterns against their definitions.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toroni_trials::topics::trial(bytes));
