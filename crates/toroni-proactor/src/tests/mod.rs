//! Tests of the crate as a whole that need its private parts.

mod closing;
pub(crate) mod finishing;
pub(crate) mod wakeups;

#[path = "../../tests/common/mod.rs"]
pub(crate) mod common;
