//! Tests of the program: each command runs as a process, on buses in a temporary directory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod completion;
mod copy;
mod documents;
mod errors;
mod exclusive;
mod exits;
mod external;
mod formats;
mod help;
mod inspect;
mod lifetime;
mod losses;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "metrics")]
mod openmetrics;
#[cfg(feature = "metrics")]
mod prometheus;
mod publish;
#[cfg(feature = "record")]
mod record;
#[cfg(feature = "record")]
mod record_clock;
#[cfg(feature = "record")]
mod record_control;
#[cfg(feature = "record")]
mod record_damage;
#[cfg(feature = "record")]
mod record_faults;
#[cfg(feature = "record")]
mod record_options;
#[cfg(feature = "record")]
mod record_space;
#[cfg(feature = "record")]
mod record_values;
#[cfg(feature = "record")]
mod replay;
#[cfg(feature = "record")]
mod replay_terminal;
mod retained;
mod selection;
mod stopping;
#[allow(dead_code, reason = "some of it is used only with some features")]
mod support;
#[cfg(feature = "top")]
mod terminal;
#[cfg(feature = "top")]
mod top;
mod words;

use std::path::Path;

/// The program under test.
fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_toroni"))
}
