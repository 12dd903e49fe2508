//! The topics of a bus.

use crate::arguments::{close, handle, put_handle};
use crate::bus::{bus, toroni_bus};
use crate::lists::{Strings, one};
use crate::status::{Outcome, edge, edge_or};
use std::ffi::{c_char, c_int};
use toroni::TopicStats;

/// `toroni_topics` of the header.
pub struct toroni_topics {
    topics: Vec<toroni_topic_info>,
    /// What they point to.
    _names: Strings,
}

/// `toroni_topic_info` of the header.
#[repr(C)]
pub struct toroni_topic_info {
    /// The topic.
    pub name: *const c_char,
    /// Its messages that can still be read.
    pub messages: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
}

impl From<Vec<TopicStats>> for toroni_topics {
    fn from(topics: Vec<TopicStats>) -> Self {
        let mut names = Strings::default();
        let topics = topics.into_iter().map(|topic| toroni_topic_info {
            name: names.keep(topic.name),
            messages: topic.messages,
            bytes: topic.bytes,
        });
        Self { topics: topics.collect(), _names: names }
    }
}

/// Lists the topics.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_bus_take_topics(
    bus: *const toroni_bus,
    result: *mut *mut toroni_topics,
) -> c_int {
    // SAFETY: what callers owe.
    edge(|| unsafe { put_handle(result, || Ok(self::bus(bus)?.bus.topics()?.into())) })
}

/// Gives the list back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_topics_close(topics: *mut toroni_topics) {
    // SAFETY: what callers owe.
    unsafe { close(topics) }
}

/// # Safety
/// As [`handle`].
unsafe fn topics<'a>(pointer: *const toroni_topics) -> Outcome<&'a [toroni_topic_info]> {
    // SAFETY: the caller's promise.
    unsafe { handle(pointer, "the topics") }.map(|topics| &topics.topics[..])
}

/// How many topics.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_topics_count(topics: *const toroni_topics) -> usize {
    // SAFETY: what callers owe.
    edge_or(0, || Ok(unsafe { self::topics(topics) }?.len()))
}

/// One of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_topics_at(
    topics: *const toroni_topics,
    index: usize,
) -> *const toroni_topic_info {
    // SAFETY: what callers owe.
    edge_or(std::ptr::null(), || one(unsafe { self::topics(topics) }?, index))
}
