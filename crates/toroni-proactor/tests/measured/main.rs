//! Tests that measure, or that use up the descriptors of a process. They run one by one, with nothing beside them.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod allocations;
#[path = "../common/mod.rs"]
mod common;
mod idle;
mod limits;

/// Counts for [`allocations`].
#[global_allocator]
static ALLOCATOR: toroni_testkit::allocations::Counting = toroni_testkit::allocations::Counting;
