//! The topics of a bus, and matching patterns.

use crate::arguments::{close, handle, put, put_handle, string};
use crate::bus::{bus, toroni_bus};
use crate::lists::{Strings, one};
use crate::message::nanoseconds;
use crate::status::{Outcome, catch_panics, catch_panics_or};
use std::ffi::{c_char, c_int};
use toroni::{Pattern, PublisherError, SubscriberError, Topic, TopicStats, ValueStats};

pub struct toroni_topics {
    topics: Vec<toroni_topic_info>,
    /// The strings that `topics` points to.
    _names: Strings,
}

#[repr(C)]
pub struct toroni_topic_info {
    pub name: *const c_char,
    pub messages: u64,
    pub bytes: u64,
    pub value: c_int,
    pub value_sequence: u64,
    pub value_bytes: u64,
    pub value_published_ns: u64,
}

const NOT_RETAINED: c_int = 0;
const NO_VALUE: c_int = 1;
const KEPT: c_int = 2;
const MISSING: c_int = 3;

impl toroni_topic_info {
    fn new(topic: TopicStats, names: &mut Strings) -> Self {
        let (value, value_sequence, value_bytes, published) = match topic.value {
            None => (NOT_RETAINED, 0, 0, None),
            Some(ValueStats::None) => (NO_VALUE, 0, 0, None),
            Some(ValueStats::Kept { sequence, bytes, published }) => {
                (KEPT, sequence, bytes, published)
            }
            Some(ValueStats::Missing { sequence, bytes }) => (MISSING, sequence, bytes, None),
            Some(_) => (-1, 0, 0, None),
        };
        Self {
            name: names.keep(topic.name),
            messages: topic.messages,
            bytes: topic.bytes,
            value,
            value_sequence,
            value_bytes,
            value_published_ns: published.map_or(0, nanoseconds),
        }
    }
}

impl From<Vec<TopicStats>> for toroni_topics {
    fn from(topics: Vec<TopicStats>) -> Self {
        let mut names = Strings::default();
        let topics = topics.into_iter().map(|topic| toroni_topic_info::new(topic, &mut names));
        Self { topics: topics.collect(), _names: names }
    }
}

/// # Safety
/// The strings are null or end with 0. `result` is null or writable.
unsafe fn matches(
    pattern: *const c_char,
    topic: *const c_char,
    result: *mut c_int,
    does_match: fn(&Pattern, &str) -> bool,
) -> c_int {
    // SAFETY: the caller guarantees it; zero is a valid number.
    catch_panics(|| unsafe {
        put(result, "the pointer to the result", || {
            let pattern =
                Pattern::new(string(pattern, "the pattern")?).map_err(SubscriberError::from)?;
            let topic = Topic::new(string(topic, "the topic")?).map_err(PublisherError::from)?;
            Ok(does_match(&pattern, topic.as_str()).into())
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_matches(
    pattern: *const c_char,
    topic: *const c_char,
    result: *mut c_int,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    unsafe { matches(pattern, topic, result, Pattern::matches) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_matches_descendants(
    pattern: *const c_char,
    topic: *const c_char,
    result: *mut c_int,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    unsafe { matches(pattern, topic, result, Pattern::matches_descendants) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_bus_take_topics(
    bus: *const toroni_bus,
    result: *mut *mut toroni_topics,
) -> c_int {
    // SAFETY: toroni.h requires it of callers.
    catch_panics(|| unsafe { put_handle(result, || Ok(self::bus(bus)?.bus.topics()?.into())) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_topics_close(topics: *mut toroni_topics) {
    // SAFETY: toroni.h requires it of callers.
    unsafe { close(topics) }
}

/// # Safety
/// As [`handle`].
unsafe fn topics<'a>(pointer: *const toroni_topics) -> Outcome<&'a [toroni_topic_info]> {
    // SAFETY: the caller guarantees it.
    unsafe { handle(pointer, "the topics") }.map(|topics| &topics.topics[..])
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_topics_count(topics: *const toroni_topics) -> usize {
    // SAFETY: toroni.h requires it of callers.
    catch_panics_or(0, || Ok(unsafe { self::topics(topics) }?.len()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn toroni_topics_at(
    topics: *const toroni_topics,
    index: usize,
) -> *const toroni_topic_info {
    // SAFETY: toroni.h requires it of callers.
    catch_panics_or(std::ptr::null(), || one(unsafe { self::topics(topics) }?, index))
}
