//! Toroni between hosts: sockets, interfaces, and the settings of a host that decide whether datagrams are lost.
//!
//! `toroni-proto` is the protocol, without sockets. This crate gives it a network:
//!
//! ```text
//!    datagrams ──► network card ──► kernel ──► socket buffer ──► toroni-proto
//! ```
//!
//! # Where to find what
//!
//! | module | contents |
//! |---|---|
//! | [`host::address`] | which multicast groups to use, and which to avoid |

pub mod host;
