//! `toroni_message`.

use std::ffi::{c_char, c_void};
use std::time::{SystemTime, UNIX_EPOCH};
use toroni::{Borrowed, Message};

#[repr(C)]
#[derive(Clone, Copy)]
pub struct toroni_message {
    pub payload: *const c_void,
    pub payload_length: usize,
    pub topic: *const c_char,
    pub topic_length: usize,
    pub sequence: u64,
    pub position: u64,
    pub next_position: u64,
    pub timestamp_ns: u64,
    pub flags: u32,
    pub reserved: u32,
}

const TO_DESCENDANTS: u32 = 1;
const HAS_TIMESTAMP: u32 = 2;

/// Converts a copied message or one in place, whose methods have the same names.
macro_rules! to_c {
    ($message:expr) => {{
        let (payload, topic) = ($message.payload(), $message.topic());
        let (flags, timestamp_ns) = flags($message.to_descendants(), $message.timestamp());
        toroni_message {
            payload: payload.as_ptr().cast(),
            payload_length: payload.len(),
            topic: topic.as_ptr().cast(),
            topic_length: topic.len(),
            sequence: $message.sequence(),
            position: $message.position(),
            next_position: $message.next_position(),
            timestamp_ns,
            flags,
            reserved: 0,
        }
    }};
}

impl toroni_message {
    #[inline]
    pub(crate) fn copied(message: &Message<'_>) -> Self {
        to_c!(message)
    }

    #[inline]
    pub(crate) fn in_place(message: &Borrowed<'_>) -> Self {
        to_c!(message)
    }
}

#[inline]
fn flags(to_descendants: bool, timestamp: Option<SystemTime>) -> (u32, u64) {
    let flags = if to_descendants { TO_DESCENDANTS } else { 0 };
    timestamp.map_or((flags, 0), |time| (flags | HAS_TIMESTAMP, nanoseconds(time)))
}

/// Returns nanoseconds since 1970.
pub(crate) fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
