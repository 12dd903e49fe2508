//! Any damage to the files of a member's log.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toroni_fuzz_harness::member_log::fuzz(bytes));
