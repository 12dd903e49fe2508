//! Tests with real processes: programs of all kinds on one bus, which are killed, stopped, refused and set limits. None of
//! them changes its own process: those that fork, execute or crash are workers.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod access;
mod containers;
mod dump;
mod environment;
mod exec;
mod fork;
mod groups;
mod kill;
mod net_soak;
mod order;
mod races;
mod security;
mod sequencer_soak;
mod soak;
#[path = "../support/mod.rs"]
mod support;
mod thread;
mod torn;
mod wakeups;
