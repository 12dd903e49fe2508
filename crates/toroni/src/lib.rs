//! Toroni: a message bus for the processes of one Linux machine, without a broker.
//!
//! Publishers and subscribers share memory. All subscribers see the messages in one total order. A
//! subscriber that missed messages learns exactly how many. A process may die at any instruction without
//! harm to the others.
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
//! - [`Bus`] is opened by name; [`BusConfig`] has the options.
//! - [`Publisher`] publishes on one topic: single messages, batches, bursts, and messages in place.
//! - [`Exclusive`] is the only publisher of a bus, and publishes on any number of topics in less time.
//! - [`Subscriber`] receives what matches its patterns: blocking, polling, with a descriptor for event loops,
//!   and in place; async with the feature `tokio`, in a proactor with `proactor`.
//! - [`Router`] is one subscriber with many handlers.
//! - [`Policy`] says what happens when a subscriber is slow. [`Limit`] says how long one call waits.
//! - [`admin`] lists buses and cleans up.
//!
//! The repository has a guide (`docs/guide.md`) and example programs (`crates/toroni/examples/`): the
//! shortest publisher and subscriber, an event loop with `poll(2)`, a router, tokio, and a daemon that
//! publishes measurements of its host.
//!
//! # Limits
//!
//! A message has at most half of the ring's bytes (the ring has 4 MiB by default). A bus has at most 1024
//! publishing participants and 1024 subscribers at a time. Handles do not work in the child of a `fork`,
//! which has to open the bus again. A child made by a raw `clone` system call keeps its parent's leases
//! alive. Code that closes all descriptors (to become a daemon) must run before the bus is opened. The
//! library works on 64-bit Linux only.
//!
//! # Features
//!
//! - `tokio`: [`Subscriber::receive_async`](Subscriber#method.receive_async).
//! - `proactor`: subscribers in a proactor, beside sockets, files and timers (`proactor::Subscribe`).
//! - `crash-points`: for tests that kill a process at a named step; adds the module `hook`.

#![cfg_attr(
    loom,
    allow(dead_code, unused_imports, reason = "the models leave out the code that uses these")
)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "a bus is mapped twice in a row and positions are 64 bits wide: 64-bit targets only"
);

/// Compiles the programs of the guide as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide.md")]
struct Guide;

/// Compiles the programs of the page on the registry as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(not(loom))]
mod bus;
mod error;
#[cfg(feature = "crash-points")]
pub mod hook;
#[cfg(not(feature = "crash-points"))]
#[allow(dead_code, unreachable_pub, reason = "the feature makes it public")]
mod hook;
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
    Arrived, Borrowed, Bus, BusConfig, BusId, BusStats, Continue, Entry, Exclusive, ExclusiveTopic,
    InPlace, Inlet, InletTopic, Interrupter, Limit, LockOwner, Message, Publisher, PublisherStats,
    Reopened, RetainedMessage, RetainedStats, Router, Start, Subscriber, SubscriberBuilder,
    SubscriberSlotStats, SubscriberStats, TopicStats, ValueStats, WaitStrategy, admin,
};
pub use error::{
    BurstError, Corrupt, DirectoryError, ExclusiveError, FileError, Forked, HoldError, InvalidName,
    OpenError, PublishError, PublisherError, ReceiveError, RetainError, RetainedError,
    SubscriberError, UntrustedDirectory,
};
pub use ring::arrivals::StreamKey;
pub use ring::racy::{RacyBytes, RacyBytesMut};
pub use settings::{InvalidSetting, LockKind, NotifyKind, Policy};
pub use topic::{Lost, LostBound, LostReason, Origin, Pattern, PatternError, Topic, TopicError};
