//! The harness on which Toroni and its peers are measured.
//!
//! A run is a *process group*: this process and its children. Children are programs that are started, not forks of this
//! process. One child hosts what the others need, such as the bus; some send, some receive.
//!
//! ```text
//!   parent                                   children (each: Child::bind)
//!   process_group::run(launch, setup, work)
//!     run directory   new for each run       host      creates the bus, keeps it while the others work
//!     gate            a named pipe           sender    prepares, reports ready, waits at the gate, sends
//!     finish          a named pipe           receiver  prepares, reports ready, receives and checks
//!     stdin, stdout   job; answers           all wait for each other at the finish, then report their result
//! ```
//!
//! - [`registry`]: the workloads, one line each; [`options`]: the options that they share.
//! - [`workload`]: workloads that are generic over the transport; [`experiment`]: published experiments, with channels of
//!   their own.
//! - [`transport`]: what a channel must offer to be measured; [`transports`]: adapters, Toroni's first;
//!   [`conformance`](mod@conformance): the tests that each adapter passes; [`idle`]: how all of them poll.
//! - [`topics`]: what a channel with topics must offer to be measured while other subscribers sleep. [`values`]: what one that
//!   keeps the newest message of each topic must offer.
//!   [`server`]: starts what some of them need.
//! - [`process_group`] and [`child`]: both ends of a run; [`job`]: the messages between them.
//! - [`sequence`]: the bytes by which a receiver proves that no message is lost, doubled or out of order.
//! - [`summary`]: medians, spreads, percentiles. [`report`]: tables, JSON and charts of them.
//! - [`clock`], [`machine`], [`cache_line`], [`run_directory`], [`gate`]: what runs need besides.
//!
//! The harness deliberately does not know signals (its observer tells it to stop), how reports are printed, and which
//! transport it measures.

pub mod cache_line;
pub mod child;
pub mod clock;
pub mod conformance;
pub mod experiment;
pub mod failure;
pub mod gate;
pub mod idle;
pub mod job;
pub mod machine;
pub mod options;
pub mod process_group;
pub mod registry;
pub mod report;
pub mod run_directory;
pub mod sequence;
pub mod server;
pub mod summary;
pub mod topics;
pub mod transport;
pub mod transports;
pub mod values;
pub mod workload;

pub use failure::Failure;
