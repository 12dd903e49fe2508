//! The program as a user runs it: what it measures, and what it refuses. `measured` has the tests that must run alone.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod floors;
mod machines;
mod net;
mod plot;
