//! What a word of the ring holds: one byte of the model stands for eight of the ring.
//!
//! ```text
//!  bit 7          6 5              4 … 0
//!   +------------+----------------+--------------------------+
//!   | 1 in a     | words of       | number of the message    |
//!   | header     | payload        | in the lists of the setup|
//!   +------------+----------------+--------------------------+
//! ```
//!
//! 0 is the end of the stream. The payload is of the worst kind: its first word looks like a header
//! of an empty record, its second is 0, its third looks like a header of a long record. A reader that takes
//! one for the other must find out by `reserved`, and by nothing else.

/// The header of message `stamp` with `length` words of payload.
#[must_use]
pub fn header(stamp: u8, length: u8) -> u8 {
    0x80 | length << 5 | stamp
}

/// Word `index` of the payload of message `stamp`.
#[must_use]
pub fn payload(stamp: u8, index: u8) -> u8 {
    match index {
        0 => header(stamp, 0),
        1 => 0,
        _ => header(stamp, 3),
    }
}

/// Words of payload that a header states, whatever the word is.
#[must_use]
pub fn length_of(word: u8) -> u8 {
    word >> 5 & 3
}

/// Words of the ring that a record takes.
#[must_use]
pub fn record_words(word: u8) -> u8 {
    1 + length_of(word)
}

/// Whether the word can be a header.
#[must_use]
pub fn is_header(word: u8) -> bool {
    word & 0x80 != 0
}
