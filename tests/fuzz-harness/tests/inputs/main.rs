//! Inputs without a fuzzer: those that fuzzers have collected, and random ones with a seed.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod corpora;
mod network;
