//! Any bytes in the place of what the bridge to Zenoh gets from outside.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toroni_zenoh_fuzz::all(bytes));
