//! A sender and a receiver of the network protocol, between which anything may happen.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toroni_fuzz_harness::network::streams::fuzz(bytes));
