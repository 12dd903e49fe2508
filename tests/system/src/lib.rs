//! Helpers of the tests that drive real processes: the `toroni` program as its users do, and workers
//! of our own where the program does not go fast or far enough.
//!
//! - [`root`]: a directory of buses for one test, removed with everything in it.
//! - [`program`]: finds the `toroni` program, builds it if need be, and prepares its commands.
//! - [`process`]: a running child that is killed, reaped and explained.
//! - [`info`]: what `toroni info --json` says, and whether anything leaked.
//! - [`payload`]: messages that tell whether they are whole; [`check`]: whether a stream of them is.
//! - [`worker`]: starts processes of `src/bin/worker`, which publish and receive as fast as they can;
//!   [`board`]: numbers that they share with the test.
//! - [`soak`]: hours of all that, each message checked.
//! - [`options`]: what a program of these tests is told.
//! - [`wake`]: stamps of messages for those who sleep.
//! - [`random`], [`watchdog`]: repeatable chance, and an end to tests that hang.
//!
//! Rules of these tests: every process is killed by its pid, nothing waits without a limit, and a
//! limit is generous ([`process::PATIENCE`]), because the machine may be busy.

#![allow(missing_docs, reason = "nobody outside of the repository uses this crate")]

pub mod board;
pub mod check;
pub mod info;
pub mod options;
pub mod payload;
pub mod process;
pub mod program;
pub mod random;
pub mod root;
pub(crate) mod shared;
pub mod soak;
pub mod wake;
pub mod watchdog;
pub mod worker;

pub use process::{Running, wait_until};
pub use random::Random;
pub use root::TempRoot;
pub use watchdog::Watchdog;
