//! A server and its clients, and connections between them on which anything may happen.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toroni_fuzz_harness::network::connections::fuzz(bytes));
