//! Nodes, and programs without a bus, over real sockets: on the loopback interface, and between hosts that are network
//! namespaces.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod direct;
mod fetch;
mod hosts;
mod nodes;
mod sockets;
mod support;
mod tcp;
mod two_buses;
