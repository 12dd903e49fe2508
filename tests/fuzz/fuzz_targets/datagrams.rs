//! Any bytes as a datagram of the network protocol.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toroni_fuzz_harness::network::datagrams::fuzz(bytes));
