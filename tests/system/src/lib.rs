//! Helpers of the tests that drive real processes: the `toroni` program as its users do, and workers
//! of our own where the program does not go fast or far enough.
//!
//! - [`root`]: a directory of buses for one test, removed with everything in it.
//! - [`program`]: finds the `toroni` program, builds it if need be, and prepares its commands.
//! - [`info`]: what `toroni info --json` says, and whether anything leaked.
//! - [`payload`]: messages that tell whether they are whole; [`check`]: whether a stream of them is.
//! - [`worker`]: starts processes of `src/bin/worker`, which publish and receive as fast as they can;
//!   [`counters`]: numbers that they share with the test.
//! - [`soak`]: hours of all that, each message checked.
//! - [`options`]: what a program of these tests is told.
//! - [`wake`]: stamps of messages for those who sleep.
//!
//! Children, directories, random numbers and checks of order come from `toroni-testkit`.
//!
//! Rules of these tests: every process is killed by its pid, nothing waits without a limit, and a
//! limit is generous ([`LIMIT`]), because the machine may be busy.

#![allow(missing_docs, reason = "nobody outside of the repository uses this crate")]

pub mod check;
pub mod counters;
pub mod info;
pub mod options;
pub mod payload;
pub mod program;
pub mod root;
pub(crate) mod shared;
pub mod soak;
pub mod wake;
pub mod worker;

pub use root::TempRoot;
pub use toroni_testkit::wait::{LIMIT, Watchdog, until as wait_until};
pub use toroni_testkit::{Program, Random};
