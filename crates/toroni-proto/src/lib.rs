//! Toroni's reliable multicast protocol, as plain computation.
//!
//! A sender numbers its datagrams and keeps the latest of them. A receiver that misses some asks for
//! them (a **NAK**, negative acknowledgement), and the sender sends them again to all. What cannot be
//! repaired in time is reported as lost, with an exact count.
//!
//! ```text
//!    sender                                                      receivers
//!
//!    messages ──► chunks ──► datagrams ══ DATA, SESSION ══════►  ┌─ order, gaps ──► messages, losses
//!                               │                 multicast      │
//!                            window  ◄──────── NAK, STATUS ──────┘
//!                               │                  unicast
//!                               └════════ DATA again, NCF ═══►   to all
//! ```
//!
//! This crate knows no socket, clock, thread or file. Its caller hands in datagrams, times and random
//! numbers, so a simulator can run many senders and receivers in one thread and repeat a run exactly.
//! A machine does not allocate after it was made, and depends on no order of a hash map.
//!
//! # Where to find what
//!
//! | module | contents |
//! |---|---|
//! | [`config`] | every parameter of a stream: unit, default, limits, relations |
//! | [`id`] | realm, source, session, stream, sequence, message number, origin |
//! | [`time`] | times of the two clocks, which are handed in |
//! | [`random`] | the generator of random numbers, which is handed in |
//! | [`wire`] | the format of every datagram: encoding, checking, signing |
//! | [`batcher`] | packs messages into datagrams |
//! | [`limiter`] | how much may be sent in an interval |
//! | [`window`] | what a sender can send again |
//! | [`gaps`] | what a receiver misses, and when it asks for it |
//! | [`reassembly`] | messages from datagrams, in the order of the source |
//!
//! The protocol is under construction: sender and receiver are still missing. `docs/protocol.md` in
//! the repository describes the wire format for implementers of other languages.

#![forbid(unsafe_code)]

pub mod batcher;
pub mod config;
pub mod gaps;
pub mod id;
pub mod limiter;
pub mod random;
pub mod reassembly;
pub mod time;
pub mod window;
pub mod wire;

#[cfg(test)]
mod documents;
