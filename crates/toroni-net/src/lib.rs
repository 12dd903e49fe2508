//! Toroni between hosts: sockets, interfaces, and the settings of a host that decide whether datagrams are lost.
//!
//! `toroni-proto` is the protocol, without sockets. This crate gives it a network:
//!
//! ```text
//!    card: ring ──► kernel: backlog ──► socket: buffer ──► recvmmsg ──► toroni-proto
//!     │                 │                   │                │
//!   host::ethtool    host::counters      socket::buffer     socket::batch
//!   host::interface                      socket::drops                          who can lose a datagram,
//!                                                                               and where that is seen
//! ```
//!
//! One process receives what another one sends to a group on the loopback interface:
//!
//! ```
//! use toroni_net::host::{address, interface};
//! use toroni_net::socket::{Datagram, Options, Outgoing, Receiver, Sender};
//!
//! let lo = interface::named("lo")?;
//! let options = Options { ttl: 0, is_looped: true, ..Options::default() };
//! let group = Datagram::group("239.192.84.79:0".parse()?, &lo, &options)?;
//! let leg = Datagram::leg(lo.source(group.address().ip())?, &lo, &options)?;
//!
//! let to = group.address();
//! let datagrams = [Outgoing { to, bytes: b"one" }, Outgoing { to, bytes: b"two" }];
//! assert_eq!(Sender::new(&leg).send(&leg, &datagrams)?, 2);
//!
//! let mut memory = [[0; 1500]; 8];
//! let mut receiver = Receiver::new();
//! let arrived = receiver.receive(&group, memory.iter_mut().map(|buffer| &mut buffer[..]))?;
//! assert_eq!(arrived.len(), 2);
//! assert_eq!((arrived[0].from, arrived[0].ttl), (leg.address(), Some(0)));
//! assert_eq!(&memory[1][..3], b"two");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to find what
//!
//! | module | contents |
//! |---|---|
//! | [`direct`] | for a program without a bus: sends and receives itself |
//! | [`endpoint`] | the same, opened from a file and with one descriptor, as C and Python use it |
//! | [`node`] | all of it together: the loop of a node, its sockets, its state on disk, what it has counted |
//! | [`node::tcp`] | what a node serves and receives over TCP |
//! | [`probe`] | which hosts hear one another in a group, and how well |
//! | [`latency`] | how long datagrams take to this host, by running streams |
//! | [`nodes`] | which nodes send to a group, and what |
//! | [`membership`] | who a process is in its realm |
//! | [`outlet`] | from a bus to a stream |
//! | [`inlet`] | from streams to a bus |
//! | [`losses`] | what an inlet has reported as lost |
//! | [`socket::datagram`] | the sockets of a node, and their options |
//! | [`socket::batch`] | sends and receives many datagrams with one system call |
//! | [`socket::multicast`] | joins and leaves groups |
//! | [`socket::buffer`] | the receive buffer: what a datagram costs in it, and what the kernel gives |
//! | [`socket::drops`] | how many datagrams a socket had no room for |
//! | [`socket::leak`] | whether datagrams leave the host although they must not |
//! | [`host::address`] | which multicast groups to use, and which to avoid |
//! | [`host::buffers`] | the equations: rate, stall, latency, bytes |
//! | [`host::interface`] | interfaces, their addresses and counters |
//! | [`host::ethtool`] | what a network card says: speed, coalescing, pause frames, ring |
//! | [`host::counters`] | what the kernel counts, and where datagrams were dropped |
//! | [`host::sysctl`] | settings of the kernel, and the commands that change them |
//! | [`host::arp`] | how long the kernel remembers its neighbours |
//! | [`host::clock`] | whether the clock follows a better one |

pub mod direct;
mod drain;
pub mod endpoint;
mod hook;
pub mod host;
pub mod inlet;
pub mod latency;
pub mod losses;
pub mod membership;
pub mod node;
pub mod nodes;
mod now;
pub mod outlet;
pub mod probe;
pub mod socket;
mod times;
