//! The rig on which Toroni and its peers are measured.
//!
//! A run is a *family*: this process and its children, which are real processes (a program that is
//! started anew, not a fork). One child hosts what the others meet in, some send, some receive.
//!
//! ```text
//!   parent                                  children (each: Child::bind)
//!   process_group::run(launch, setup, work)
//!     place/         a fresh directory      host      makes the bus, keeps it while the others work
//!     gate           a named pipe           sender    prepares, says ready, waits at the gate, sends
//!     finish         a named pipe           receiver  prepares, says ready, receives and checks
//!     stdin/stdout   job; answers           all wait for each other at the finish, then say their
//!                                           result
//! ```
//!
//! - [`transport`]: what a channel must offer to be measured; [`transports`]: adapters, Toroni's first;
//!   [`conformance`](mod@conformance): the tests that each adapter passes; [`idle`]: how all of them poll.
//! - [`workload`]: what is sent, and the report that comes of it, one file each.
//! - [`process_group`] and [`child`]: both ends of a run; [`job`]: what they say to each other.
//! - [`sequence`]: the bytes by which a receiver proves that nothing is lost, doubled or out of order.
//! - [`summary`]: medians, spreads, percentiles. [`report`]: tables, JSON and charts of them.
//! - [`clock`], [`machine`], [`cache_line`], [`run_directory`], [`gate`]: what runs need besides.
//!
//! What it deliberately does not know: the command line, signals (it is told when to stop), and which
//! transport it measures: workloads are generic over it, but for the published experiments, which compare
//! with ways of their own, `scale`, which is about the library, and `sessions`, about the proactor.

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
pub mod process_group;
pub mod report;
pub mod run_directory;
pub mod sequence;
pub mod summary;
pub mod transport;
pub mod transports;
pub mod workload;

pub use failure::Failure;
