//! Any bytes as the file of a node.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| toroni_fuzz_harness::node_file::fuzz(bytes));
