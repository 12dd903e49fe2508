//! The layout of the demo's messages.
//!
//! ```text
//!  0           2               8               16
//!  +-----------+---------------+---------------+---------------------+
//!  | publisher | number (u48)  | time (u64 ns) | the filler, repeated |
//!  +-----------+---------------+---------------+---------------------+
//! ```
//! Numbers are little-endian. The time is CLOCK_MONOTONIC, which all processes of a machine share, or 0. The filler
//! is computed from publisher and number, so a reader notices bytes of another message.

/// Bytes before the filler, and the smallest size of a message.
pub(super) const HEADER_BYTES: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) publisher: u16,
    /// The publisher counts its messages from 0.
    pub(super) number: u64,
    pub(super) time_ns: u64,
}

/// Fills a message of at least [`HEADER_BYTES`].
pub(super) fn write(header: Header, message: &mut [u8]) {
    let number = header.number.to_le_bytes();
    message[..2].copy_from_slice(&header.publisher.to_le_bytes());
    message[2..8].copy_from_slice(&number[..6]);
    message[8..16].copy_from_slice(&header.time_ns.to_le_bytes());
    message[HEADER_BYTES..].fill(filler(header));
}

/// Returns the header, or `None` if the bytes are not one whole message of `size` bytes.
pub(super) fn read(message: &[u8], size: usize) -> Option<Header> {
    if message.len() != size {
        return None;
    }
    let (publisher, rest) = message.split_first_chunk::<2>()?;
    let (number, rest) = rest.split_first_chunk::<6>()?;
    let (time, body) = rest.split_first_chunk::<8>()?;
    let mut wide = [0; 8];
    wide[..6].copy_from_slice(number);
    let header = Header {
        publisher: u16::from_le_bytes(*publisher),
        number: u64::from_le_bytes(wide),
        time_ns: u64::from_le_bytes(*time),
    };
    let filler = filler(header);
    body.iter().all(|byte| *byte == filler).then_some(header)
}

fn filler(header: Header) -> u8 {
    let [low, middle, ..] = header.number.to_le_bytes();
    let [publisher, _] = header.publisher.to_le_bytes();
    low ^ middle.rotate_left(3) ^ publisher.rotate_left(5) ^ 0x5A
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for size in [16, 17, 100] {
            let mut message = vec![0; size];
            let header = Header { publisher: 3, number: 0x1234_5678_9ABC, time_ns: u64::MAX };
            write(header, &mut message);
            assert_eq!(read(&message, size), Some(header));
            assert_eq!(read(&message, size + 1), None);
        }
    }

    #[test]
    fn a_torn_message_shows() {
        let (mut first, mut second) = (vec![0; 64], vec![0; 64]);
        write(Header { publisher: 0, number: 1, time_ns: 0 }, &mut first);
        write(Header { publisher: 0, number: 2, time_ns: 0 }, &mut second);
        first[40..].copy_from_slice(&second[40..]);
        assert_eq!(read(&first, 64), None);
    }
}
