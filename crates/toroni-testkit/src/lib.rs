//! What Toroni's tests, its benchmarks and its program share. This crate knows nothing of the message bus: the library
//! and every test crate can use it.
//!
//! - [`allocations`]: counts allocations, for code that must not allocate.
//! - [`crash`]: kills a process at a step that its code names.
//! - [`directory`]: temporary directories. The next run removes what a killed run left.
//! - [`process`]: a child process that is killed with its parent, for code that handles errors.
//! - [`program`]: the same for tests. It panics on each failure, and shows what the child printed.
//! - [`lines`]: reads lines from children without blocking.
//! - [`long`]: whether tests may take longer than usual.
//! - `network`, with the feature of that name: hosts that are network namespaces, and a switch with faults between them.
//! - [`order`]: checks that messages are complete, not doubled and in order.
//! - [`port`]: ports at which nothing listens.
//! - [`random`]: random numbers from a seed, which a failed test prints.
//! - [`turn`](mod@turn): runs tests one by one that measure, and a few at a time that need much of the machine.
//! - [`units`]: sizes and durations on command lines, and large numbers in reports.
//! - [`wait`]: waits for a condition, up to a limit, and a watchdog for tests that hang.
//!
//! # Limits
//!
//! Nothing here waits without a limit. Tests use [`wait::LIMIT`], which is far beyond what they need even on a loaded
//! machine; only a test that hangs reaches it.

pub mod allocations;
pub mod crash;
pub mod directory;
pub mod lines;
pub mod long;
#[cfg(feature = "network")]
pub mod network;
pub mod order;
pub mod port;
pub mod process;
pub mod program;
pub mod random;
pub mod turn;
pub mod units;
pub mod wait;

pub use directory::Directory;
pub use process::Process;
pub use program::Program;
pub use random::Random;
pub use turn::{Place, Places, Turn, turn};
