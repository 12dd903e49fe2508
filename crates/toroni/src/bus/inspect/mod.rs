//! Looking at a bus from outside, and cleaning up.

pub mod admin;
pub(in crate::bus) mod stats;
