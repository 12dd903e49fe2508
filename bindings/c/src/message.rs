//! A message, as C sees it.

use std::ffi::{c_char, c_void};
use std::time::{SystemTime, UNIX_EPOCH};
use toroni::{Borrowed, Message};

/// `toroni_message` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct toroni_message {
    /// Its bytes.
    pub payload: *const c_void,
    /// Number of them.
    pub payload_length: usize,
    /// Its topic, UTF-8 without an end mark.
    pub topic: *const c_char,
    /// Bytes of that.
    pub topic_length: usize,
    /// Its number in the bus.
    pub sequence: u64,
    /// Where it starts in the stream, in bytes.
    pub position: u64,
    /// Where the one behind it starts.
    pub next_position: u64,
    /// When it was published, in ns since 1970, if the flag says so.
    pub timestamp_ns: u64,
    /// `TORONI_MESSAGE_…`, combined.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
}

const TO_DESCENDANTS: u32 = 1;
const HAS_TIMESTAMP: u32 = 2;

/// Of a message of either kind: their methods have the same names.
macro_rules! of {
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
        of!(message)
    }

    #[inline]
    pub(crate) fn in_place(message: &Borrowed<'_>) -> Self {
        of!(message)
    }
}

#[inline]
fn flags(to_descendants: bool, timestamp: Option<SystemTime>) -> (u32, u64) {
    let flags = if to_descendants { TO_DESCENDANTS } else { 0 };
    timestamp.map_or((flags, 0), |time| (flags | HAS_TIMESTAMP, nanoseconds(time)))
}

/// Since 1970.
pub(crate) fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
