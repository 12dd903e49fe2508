//! Tests of the program that measure. They run one by one, with nothing beside them.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod experiments;
mod sequencer;
mod support;
mod workloads;
