//! Helpers of the tests that drive real processes: the `toroni` program as its users run it, and workers of our own where
//! the program is not fast or thorough enough.
//!
//! - [`root`]: a directory of buses for one test, removed with its content.
//! - [`program`]: finds the `toroni` program, builds it if necessary, and prepares its commands.
//! - [`info`]: the output of `toroni info --json`, and whether anything leaked.
//! - [`payload`]: messages that show whether they are whole; [`check`]: checks a stream of them.
//! - [`worker`]: starts processes of `src/bin/worker`, which publish and receive as fast as they can;
//!   [`counters`]: numbers that they share with the test.
//! - [`soak`]: all of that for hours, with each message checked.
//! - [`net_soak`]: the same between hosts, with nodes that are killed.
//! - [`sequencer_soak`]: one order over hosts, whatever happens to their nodes.
//! - [`core_dump`]: holds core dumps up.
//! - [`sandbox`]: takes a system call away.
//! - [`options`]: the arguments of the workers.
//! - [`sleepers`]: the words by which subscribers sleep.
//! - [`wake`]: time stamps in messages to sleeping subscribers.
//!
//! Processes, directories, random numbers and checks of order come from `toroni-testkit`.
//!
//! Rules of these tests: they kill each process by its own process id, nothing waits without a limit, and limits are
//! generous ([`LIMIT`]), because the machine may be busy.

#![allow(missing_docs, reason = "this crate is not published")]

pub mod check;
pub mod core_dump;
pub mod counters;
pub mod info;
pub mod net_soak;
pub mod options;
pub mod payload;
pub mod program;
pub mod root;
pub mod sandbox;
pub mod sequencer_soak;
pub(crate) mod shared;
pub mod sleepers;
pub mod soak;
pub mod wake;
pub mod worker;

pub use root::TempRoot;
pub use toroni_testkit::wait::{LIMIT, Watchdog, until as wait_until};
pub use toroni_testkit::{Program, Random};
