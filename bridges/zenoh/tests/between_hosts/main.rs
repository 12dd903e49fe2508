//! Bridges between hosts: each host is a network namespace that the test makes, with a bus of its own, and all are
//! joined by a bridge of the kernel. The programs are the real ones: `toroni`, `toroni-zenoh`, and Zenoh's Python module.
//!
//! | module | contents |
//! |---|---|
//! | `hosts` | hosts of `toroni_testkit::network` with a bus each; starts programs on a host |
//! | `account` | compares what was published with what arrived and what was reported as lost; knows no Zenoh |
//! | `two_hosts` | order, losses, history, posts to descendants, the commands of the guide |
//! | `three_hosts` | three buses that all export and import: no loops, nothing doubled |
//! | `foreign` | Zenoh's Python module as a peer, with and without attachments, and as a router; Zenoh's own router |
//! | `failures` | bridges that are killed or stopped, links that are cut |
//! | `tls` | mutual TLS between two sites, as in the example |
//!
//! Needs root, and the program `ip` (Debian's package `iproute2`). Elsewhere
//! the tests are skipped and say so; with `TORONI_NETNS=required`, as in CI, they fail.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod account;
mod failures;
mod foreign;
mod hosts;
mod three_hosts;
mod tls;
mod two_hosts;
