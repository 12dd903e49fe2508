//! Tests that measure time or processor time, or that use up a limit of a process. They run one by one, with nothing
//! beside them.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod hostile;
mod idle;
mod limits;
mod slow;
#[path = "../support/mod.rs"]
mod support;
