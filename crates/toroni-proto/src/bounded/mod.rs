//! Latency-bounded TCP: for receivers that multicast does not reach. Better never than late.
//!
//! ```text
//!  messages ─► batch of a set ─► frames, made once for all clients with the same patterns
//!                                 │ │ │
//!              ┌──────────────────┘ │ └──────────────────┐
//!        queue of client 1    queue of client 2    queue of client 3      a place in the frames, no copy
//!        ├ age, bytes         ├ age, bytes         ├ age, bytes           too old, too much: left out
//!        ▼                    ▼                    ▼
//!      TCP ═════════════►   TCP ═══════ GAP ══►   TCP ══ (stopped) ══►    a frame that was begun is finished
//! ```
//!
//! A TCP connection never drops anything: if its receiver is slow, everything waits and becomes old. So
//! what waits here waits in front of the connection, where it can be left out. A GAP tells the client how many
//! messages it missed. A client that is slow, or that stopped, costs the others nothing.
//!
//! | module | contents |
//! |---|---|
//! | [`server`] | accepts clients, makes frames, decides what each of them gets next |
//! | [`client`] | connects, hands out messages and losses, connects again where it was |
//!
//! Neither knows a socket. The caller moves bytes, and hands in times and random numbers.

mod batch;
pub mod client;
mod frames;
mod queue;
pub mod server;
