//! Subscribing. Each file uses only those below it:
//!
//! ```text
//! builder, router     make a subscriber; one subscriber with many handlers
//! subscriber          the public handle
//! receive             what a receive does, step by step
//! reading, in_place   where it stands in the stream; messages that stay in the ring
//! progress, hold      how it publishes its position, or that of what it holds, and wakes a publisher that
//!                     waits for free space
//! waiting             how it waits for a message
//! backoff, claim, decision, descriptor, interrupter, message, stream
//! freshness           what it does with old messages; a part of reading
//! ```
//!
//! `subscriber` and `receive` implement one type, [`Subscriber`]: its public methods, and their steps. So do
//! `progress` and `hold`.

pub(super) mod backoff;
mod builder;
mod claim;
mod column;
mod decision;
mod descriptor;
mod freshness;
mod hold;
mod in_place;
mod interrupter;
mod message;
mod passing;
mod progress;
mod reading;
mod receive;
mod retained;
mod router;
#[cfg(feature = "tokio")]
mod stream;
mod subscriber;
#[cfg(test)]
mod tests;
pub(super) mod waiting;

pub use backoff::WaitStrategy;
pub use builder::{Continue, Start, SubscriberBuilder};
pub(super) use claim::Subscribing;
pub use in_place::{Borrowed, InPlace};
pub use interrupter::Interrupter;
pub use message::Message;
pub use progress::SubscriberStats;
#[cfg(feature = "proactor")]
pub(super) use reading::Body;
pub use retained::RetainedMessage;
pub use router::Router;
pub use subscriber::Subscriber;
