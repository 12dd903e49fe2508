//! Toroni: a message bus for the processes of one Linux machine, without a broker.
//!
//! Publishers and subscribers meet in shared memory. Everyone sees the messages in one total order, a
//! subscriber that missed some is told exactly how many, and the death of any process at any
//! instruction harms nobody else.
//!
//! ```text
//!  publisher ──┐                                               ┌──► subscriber "plant/**"
//!  publisher ──┼─ writer lock ─►  ring in shared memory  ──────┼──► subscriber "alarm/*"
//!  publisher ──┘                  (one total order)            └──► router, many handlers
//! ```
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = std::env::temp_dir().join(format!("toroni-doc-lib-{}", std::process::id()));
//! # // SAFETY: doc tests run in a process of their own, and no thread of it reads the environment.
//! # unsafe { std::env::set_var("TORONI_DIR", &directory) };
//! let bus = toroni::Bus::open("demo")?; // creates it if it is not there
//! let mut subscriber = bus.subscribe("plant/**")?;
//!
//! let publisher = bus.publisher("plant/boiler/temperature")?;
//! publisher.publish(b"351.2")?;
//!
//! let message = subscriber.receive()?;
//! assert_eq!((message.topic(), message.payload()), ("plant/boiler/temperature", &b"351.2"[..]));
//! # drop((subscriber, publisher, bus));
//! # std::fs::remove_dir_all(directory)?;
//! # Ok(())
//! # }
//! ```
//!
//! - [`Bus`]: opened by name; [`BusConfig`] has the options.
//! - [`Publisher`]: one topic; publish, try, time-out, batch, burst, in place.
//! - [`Subscriber`]: patterns; blocking, polling, a descriptor for event loops, in place, one or many at a
//!   time; async with the feature `tokio`, in a proactor with `proactor`.
//! - [`Router`]: one subscriber, many handlers.
//! - [`Policy`]: what happens when a subscriber is slow.
//! - [`admin`]: lists and cleans up.
//!
//! The repository has a guide (`docs/guide.md`) and programs to start from
//! (`crates/toroni/examples/`): the shortest ones, an event loop with `poll(2)`, a router, tokio, and a
//! daemon that publishes what its host does.
//!
//! # Limits
//!
//! A message has at most half of the ring's bytes (4 MiB by default), a bus at most 1024 publishing
//! participants and 1024 subscribers at a time. Handles do not work in the child of a `fork`, which has
//! to open the bus anew. A child made by a raw `clone` system call keeps its parent's leases alive.
//! Code that closes all descriptors (daemonising) must run before the bus is opened. Linux only, 64-bit
//! only.
//!
//! # Features
//!
//! - `tokio`: [`Subscriber::receive_async`](Subscriber#method.receive_async).
//! - `proactor`: subscribers in a proactor, beside sockets, files and timers (`proactor::Subscribe`).
//! - `crash-points`: for tests that kill a process at a named step; adds the module `crash`.

#![cfg_attr(
    loom,
    allow(dead_code, unused_imports, reason = "the models leave out whoever uses these")
)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "a bus is mapped twice in a row and positions are 64 bits wide: 64-bit targets only"
);

/// The programs of the guide are compiled as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide.md")]
struct Guide;

/// So are those of the page on the registry.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(not(loom))]
mod bus;
#[cfg(feature = "crash-points")]
pub mod crash;
#[cfg(not(feature = "crash-points"))]
#[allow(dead_code, unreachable_pub, reason = "the feature makes it public")]
mod crash;
mod error;
mod mutant;
pub(crate) mod notify;
pub(crate) mod ring;
mod settings;
#[cfg(not(loom))]
pub(crate) mod shm;
pub(crate) mod sync;
pub(crate) mod topic;

#[cfg(all(feature = "proactor", not(loom)))]
pub use bus::proactor;
#[cfg(not(loom))]
pub use bus::{
    Borrowed, Bus, BusConfig, BusId, BusStats, InPlace, Interrupter, LockOwner, Message, Publisher,
    PublisherStats, Reopened, Router, Start, Subscriber, SubscriberBuilder, SubscriberSlotStats,
    SubscriberStats, TopicStats, WaitStrategy, admin,
};
pub use error::{BurstError, Corrupt, Forked, OpenError, PublishError, ReceiveError};
pub use ring::racy::{RacyBytes, RacyBytesMut};
pub use settings::{InvalidSetting, LockKind, NotifyKind, Policy};
pub use topic::{Pattern, PatternError, Topic, TopicError};
