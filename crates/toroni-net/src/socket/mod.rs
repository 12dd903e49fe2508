//! Sockets for datagrams: opening, joining, reading and writing many at a time, and counting what the kernel drops.

pub mod batch;
pub mod buffer;
mod control;
pub mod datagram;
pub mod drops;
pub mod leak;
pub mod multicast;
pub(crate) mod options;
mod wait;

pub use batch::{Arrival, BATCH, Outgoing, Receiver, Sender};
pub use datagram::{Datagram, Options, SocketError};
pub(crate) use wait::wait;
