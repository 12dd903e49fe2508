//! `toroni_message` and `toroni_origin`.

use crate::options::unknown;
use crate::status::Outcome;
use std::ffi::{c_char, c_void};
use std::time::{SystemTime, UNIX_EPOCH};
use toroni::{Borrowed, Message, Origin};

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
    pub number: u64,
    pub origin: toroni_origin,
    pub flags: u32,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct toroni_origin {
    pub number: u64,
    pub source: u32,
    pub series: u32,
    pub stream: u16,
    pub reserved: [u16; 3],
}

impl From<Origin> for toroni_origin {
    #[inline]
    fn from(origin: Origin) -> Self {
        let Origin { source, series, stream, number } = origin;
        Self { number, source, series, stream, reserved: [0; 3] }
    }
}

impl toroni_origin {
    /// Returns the origin that a caller has given. The library checks its number.
    pub(crate) fn checked(self) -> Outcome<Origin> {
        let Self { number, source, series, stream, reserved } = self;
        match reserved.iter().find(|one| **one != 0) {
            None => Ok(Origin { source, series, stream, number }),
            Some(set) => Err(unknown("reserved", set)),
        }
    }
}

const TO_DESCENDANTS: u32 = 1;
const HAS_TIMESTAMP: u32 = 2;
const HAS_ORIGIN: u32 = 4;
const HAS_NUMBER: u32 = 8;
const RETAINED: u32 = 16;
const CLEARED: u32 = 32;

/// Converts a copied message or one in place, whose methods have the same names.
macro_rules! to_c {
    ($message:expr) => {{
        let (payload, topic) = ($message.payload(), $message.topic());
        let Carried { mut flags, timestamp_ns, number, origin } = carried(
            $message.to_descendants(),
            $message.timestamp(),
            $message.origin(),
            $message.number(),
        );
        flags |= if $message.is_retained() { RETAINED } else { 0 };
        flags |= if $message.is_cleared() { CLEARED } else { 0 };
        toroni_message {
            payload: payload.as_ptr().cast(),
            payload_length: payload.len(),
            topic: topic.as_ptr().cast(),
            topic_length: topic.len(),
            sequence: $message.sequence(),
            position: $message.position(),
            next_position: $message.next_position(),
            timestamp_ns,
            number,
            origin,
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

/// What a message carries besides its topic and payload. The flags say what it has of that.
pub(crate) struct Carried {
    pub(crate) flags: u32,
    pub(crate) timestamp_ns: u64,
    pub(crate) number: u64,
    pub(crate) origin: toroni_origin,
}

#[inline]
pub(crate) fn carried(
    to_descendants: bool,
    timestamp: Option<SystemTime>,
    origin: Option<Origin>,
    number: Option<u64>,
) -> Carried {
    let flag = |is_there, flag| if is_there { flag } else { 0 };
    Carried {
        flags: flag(to_descendants, TO_DESCENDANTS)
            | flag(timestamp.is_some(), HAS_TIMESTAMP)
            | flag(origin.is_some(), HAS_ORIGIN)
            | flag(number.is_some(), HAS_NUMBER),
        timestamp_ns: timestamp.map_or(0, nanoseconds),
        number: number.unwrap_or(0),
        origin: origin.map(toroni_origin::from).unwrap_or_default(),
    }
}

/// Returns nanoseconds since 1970.
pub(crate) fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
