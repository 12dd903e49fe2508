//! Any bytes as what members of the sequencer ask and answer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toroni_fuzz_harness::sequencer::messages(bytes));
