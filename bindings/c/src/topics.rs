//! The topics of a bus, and what matches them.

use crate::arguments::{close, handle, put, put_handle, string};
use crate::bus::{bus, toroni_bus};
use crate::lists::{Strings, one};
use crate::status::{Outcome, catch_panics, catch_panics_or};
use std::ffi::{c_char, c_int};
use toroni::{OpenError, Pattern, Topic, TopicStats};

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

/// # Safety
/// The strings are null, or end with 0; `result` is null, or may be written.
unsafe fn ask(
    pattern: *const c_char,
    topic: *const c_char,
    result: *mut c_int,
    does_match: fn(&Pattern, &str) -> bool,
) -> c_int {
    // SAFETY: the caller's promise.
    catch_panics(|| unsafe {
        let pattern = Pattern::new(string(pattern, "the pattern")?).map_err(OpenError::from)?;
        let topic = Topic::new(string(topic, "the topic")?).map_err(OpenError::from)?;
        put(result, "the place for the answer", does_match(&pattern, topic.as_str()).into())
    })
}

/// Whether a pattern asks for a topic.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_matches(
    pattern: *const c_char,
    topic: *const c_char,
    result: *mut c_int,
) -> c_int {
    // SAFETY: what callers owe.
    unsafe { ask(pattern, topic, result, Pattern::matches) }
}

/// Whether a pattern asks for a topic, or for anything below it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_matches_descendants(
    pattern: *const c_char,
    topic: *const c_char,
    result: *mut c_int,
) -> c_int {
    // SAFETY: what callers owe.
    unsafe { ask(pattern, topic, result, Pattern::matches_descendants) }
}

/// Lists the topics.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_bus_take_topics(
    bus: *const toroni_bus,
    result: *mut *mut toroni_topics,
) -> c_int {
    // SAFETY: what callers owe.
    catch_panics(|| unsafe { put_handle(result, || Ok(self::bus(bus)?.bus.topics()?.into())) })
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
    catch_panics_or(0, || Ok(unsafe { self::topics(topics) }?.len()))
}

/// One of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_topics_at(
    topics: *const toroni_topics,
    index: usize,
) -> *const toroni_topic_info {
    // SAFETY: what callers owe.
    catch_panics_or(std::ptr::null(), || one(unsafe { self::topics(topics) }?, index))
}
