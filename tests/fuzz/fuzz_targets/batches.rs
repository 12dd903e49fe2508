//! Any bytes as a batch of commands, or as a snapshot of the sequencer's state.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toroni_fuzz_harness::sequencer::fuzz(bytes));
