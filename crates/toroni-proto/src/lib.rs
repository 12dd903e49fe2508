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
//! The parts can be used by themselves. Here a sender packs three messages, the datagram with the second
//! is lost, and the receiver asks for it:
//!
//! ```
//! use toroni_proto::batcher::{Batcher, Now};
//! use toroni_proto::config::Config;
//! use toroni_proto::gaps::Gaps;
//! use toroni_proto::id::{Number, Realm, Sequence, Session, Source, Stream};
//! use toroni_proto::random::Random;
//! use toroni_proto::reassembly::{Deliver, InOrder, Loss, Message, Pool};
//! use toroni_proto::time::{MILLISECOND, Monotonic, Wall};
//! use toroni_proto::window::Window;
//! use toroni_proto::wire::{self, Flags, Header, MAX_RANGES, Range, Rules, Start, TableName, TopicNumber};
//!
//! struct Print(Vec<String>);
//!
//! impl Deliver for Print {
//!     fn message(&mut self, message: Message<'_>) {
//!         let bytes: Vec<u8> = message.parts.flatten().copied().collect();
//!         self.0.push(String::from_utf8_lossy(&bytes).into_owned());
//!     }
//!     fn topic(&mut self, _: TopicNumber, _: TableName<'_>) {}
//!     fn loss(&mut self, loss: Loss) {
//!         self.0.push(format!("{} lost", loss.count));
//!     }
//! }
//!
//! let (first, realm) = (Sequence::ZERO, Realm::of("plant"));
//! let header = Header {
//!     flags: Flags::NONE,
//!     ttl: 16,
//!     realm,
//!     stream: Stream(1),
//!     source: Source::of_node("machine", "plant", "line-3"),
//!     session: Session(1),
//!     sequence: first,
//! };
//! let config = Config::with_rate(200_000_000);
//! let now = Now { monotonic: Monotonic::from_ns(0), wall: Wall::from_ns(0) };
//!
//! // The sender. Each message gets a datagram of its own here, because each is flushed.
//! let mut window = Window::new(1 << 20, 1_408, first);
//! let mut batcher = Batcher::new(&config, header, None, Number::ZERO);
//! for (number, text) in (0..).zip(["one", "two", "three"]) {
//!     let start = Start {
//!         topic: TopicNumber::new(0).unwrap(),
//!         number: Number::new(number).unwrap(),
//!         to_descendants: false,
//!         published: None,
//!         origin: None,
//!     };
//!     batcher.message(&mut window, now, start, text.as_bytes()).unwrap();
//!     batcher.flush(&mut window, now);
//!     window.sent();
//! }
//!
//! // The receiver.
//! let rules = Rules { realm, keys: None, message_max: 1 << 20 };
//! let mut pool = Pool::new(100, 1_408);
//! let mut gaps = Gaps::new(&config, Random::new(7));
//! let mut reassembly = InOrder::new(first, None, 50);
//! let mut out = Print(Vec::new());
//! let mut receive = |datagram: &[u8]| {
//!     let sequence = wire::parse(datagram, &rules, |_, _| Ok(())).unwrap().header.sequence;
//!     let buffer = pool.take().unwrap();
//!     pool.get_mut(&buffer)[..datagram.len()].copy_from_slice(datagram);
//!     let length = datagram.len().try_into().unwrap();
//!     reassembly.datagram(&mut pool, sequence, buffer, length, &mut out).unwrap();
//! };
//! receive(window.get(first).unwrap());
//! receive(window.get(first.plus(2)).unwrap());
//!
//! // It asks for what it misses at most 2 ms later, and the sender sends that again.
//! gaps.open(now.monotonic, Range::new(first.plus(1), 1).unwrap());
//! let later = now.monotonic.after(2 * MILLISECOND);
//! let mut ranges = [Range::new(first, 1).unwrap(); MAX_RANGES];
//! assert_eq!(gaps.nak(later, &mut ranges).map(|asked| asked.ranges), Some(1));
//! receive(window.repair(ranges[0].first(), later, None).unwrap());
//! gaps.arrived(ranges[0].first());
//! assert!(gaps.is_empty());
//! assert_eq!(out.0, ["one", "two", "three"]);
//! ```
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
//! | [`legs`] | the interfaces over which a stream is heard, and the ways back |
//! | [`gaps`] | what a receiver misses, and when it asks for it |
//! | [`reassembly`] | messages from datagrams, in the order of the source or of arrival |
//! | [`repair`] | which datagrams a sender sends again, fairly, and what it says about the others |
//! | [`audience`] | the receivers that a sender knows, and which of them hold it |
//! | [`topics`] | names and numbers of topics, at both ends |
//! | [`sender`] | one stream of one session: joins the parts above |
//! | [`receiver`] | one stream of one session, at the other end |
//! | [`arrivals`] | all streams that a node hears, and which sessions it believes |
//! | [`budget`] | how long each part of the way takes, and whether that is too long |
//! | [`histogram`] | counts of times, for percentiles |
//! | [`bounded`] | the same streams over TCP, for receivers that multicast does not reach |
//!
//! `docs/protocol.md` in the repository describes the protocol for implementers of other languages.

#![forbid(unsafe_code)]

pub mod arrivals;
pub mod audience;
pub mod batcher;
pub mod bounded;
pub mod budget;
pub mod config;
pub mod gaps;
pub mod histogram;
pub mod id;
pub mod legs;
pub mod limiter;
pub mod past;
pub mod random;
pub mod reassembly;
pub mod receiver;
pub mod repair;
pub mod sender;
pub mod time;
pub mod topics;
pub mod window;
pub mod wire;

mod echoes;
mod hook;

#[cfg(test)]
#[path = "../tests/dissector/mod.rs"]
mod dissector;
#[cfg(test)]
mod documents;
// As a test of the library, it is compiled with the mutants in it.
#[cfg(test)]
#[path = "../tests/simulator/mod.rs"]
mod simulator;
#[cfg(test)]
#[path = "../tests/bounded/mod.rs"]
mod tcp_runs;
