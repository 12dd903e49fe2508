//! Looking at a bus from outside, and cleaning up.

pub mod admin;
mod stats;

pub use stats::{BusStats, LockOwner, PublisherStats, SubscriberSlotStats, TopicStats};
