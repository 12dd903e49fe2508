//! What Toroni's tests and its benchmarks share. This crate knows nothing of the message bus: the library and every test
//! crate can use it.
//!
//! - [`allocations`]: counts allocations, for code that must not allocate.
//! - [`crash`]: kills a process at a step that its code names.
//! - [`directory`]: temporary directories. The next run removes what a killed run left.
//! - [`history`]: checks what the sequencer promises, by what its senders, hosts and logs have recorded.
//! - [`program`]: a child process that is killed with its parent. It panics on each failure, and shows what the child
//!   printed.
//! - [`long`]: whether tests may take longer than usual.
//! - `network`, with the feature of that name: hosts that are network namespaces, and a switch with faults between them.
//! - [`on_drop`]: work for the end of a scope, however it is left.
//! - [`order`]: checks that messages are complete, not doubled and in order.
//! - [`port`]: ports at which nothing listens.
//! - [`random`]: random numbers from a seed, which a failed test prints.
//! - [`reports`]: what subscribers learn, whatever becomes of two hosts and of what connects them.
//! - [`turn`](mod@turn): runs tests one by one that measure, and a few at a time that need much of the machine.
//! - [`wait`]: waits for a condition, up to a limit, and a watchdog for tests that hang.
//!
//! What the programs need too is in `toroni-process`, and can be named here: [`process`], [`lines`], [`units`].
//!
//! # Limits
//!
//! Nothing here waits without a limit. Tests use [`wait::LIMIT`], which is far beyond what they need even on a loaded
//! machine; only a test that hangs reaches it.

pub mod allocations;
pub mod crash;
pub mod directory;
pub mod history;
pub mod long;
#[cfg(feature = "network")]
pub mod network;
pub mod on_drop;
pub mod order;
pub mod port;
pub mod program;
pub mod random;
pub mod reports;
pub mod turn;
pub mod wait;

pub use directory::Directory;
pub use on_drop::OnDrop;
pub use program::Program;
pub use random::Random;
pub use toroni_process::{Process, lines, process, units};
pub use turn::{Place, Places, Turn, turn};
