//! The program as its users meet it: every command as a real process, on buses of its own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(feature = "bench")]
mod bench;
mod completion;
mod copy;
mod demo;
mod errors;
mod exits;
#[cfg(feature = "bench")]
mod experiments;
mod formats;
mod help;
mod inspect;
mod lifetime;
mod losses;
mod publish;
mod selection;
mod stopping;
mod support;
