//! Inspects a bus from outside, and cleans up after dead processes.

pub mod admin;
mod stats;

pub use stats::{
    BusStats, LockOwner, PublisherStats, RetainedStats, SubscriberSlotStats, TopicStats, ValueStats,
};
