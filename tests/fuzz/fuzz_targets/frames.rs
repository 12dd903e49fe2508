//! Any bytes on a connection of the network protocol.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toroni_fuzz_harness::network::frames::fuzz(bytes));
