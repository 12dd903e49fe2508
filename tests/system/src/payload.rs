//! Messages that tell who published them, as which, and whether they are whole.
//!
//! ```text
//!  0           8          12         16          24
//!  +-----------+----------+----------+-----------+------------------+
//!  | checksum  | worker   | length   | counter   | body, pseudo-    |
//!  | (u64)     | (u32)    | (u32)    | (u64)     | random bytes …   |
//!  +-----------+----------+----------+-----------+------------------+
//! ```
//!
//! The checksum covers all that follows it. The body differs from message to message, so that one
//! that is torn, half of one message and half of another, does not pass.

/// Bytes before the body: the shortest message.
pub const HEAD: usize = 24;

/// What a whole message says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    pub worker: u32,
    /// Its number among those of that worker, from 0.
    pub counter: u64,
}

/// Writes the message into `bytes`, of which it then is the whole content. Messages shorter than
/// [`HEAD`] become as long as that.
pub fn encode(payload: Payload, length: usize, bytes: &mut Vec<u8>) {
    let length = length.max(HEAD);
    let stated = u32::try_from(length).expect("a length of 32 bits");
    bytes.clear();
    bytes.extend(0_u64.to_le_bytes());
    bytes.extend(payload.worker.to_le_bytes());
    bytes.extend(stated.to_le_bytes());
    bytes.extend(payload.counter.to_le_bytes());
    let mut word = u64::from(payload.worker) << 40 ^ payload.counter;
    while bytes.len() < length {
        word = word.wrapping_mul(0xD134_2543_DE82_EF95).wrapping_add(1);
        let rest = (length - bytes.len()).min(8);
        bytes.extend(&word.to_be_bytes()[..rest]);
    }
    let checksum = checksum(&bytes[8..]);
    bytes[..8].copy_from_slice(&checksum.to_le_bytes());
}

/// Reads a message; an error says what is wrong with it.
///
/// # Errors
/// If it is not, to the bit, what [`encode`] wrote.
pub fn decode(bytes: &[u8]) -> Result<Payload, String> {
    let head: &[u8; HEAD] = bytes
        .first_chunk()
        .ok_or_else(|| format!("{} bytes are no message of these tests", bytes.len()))?;
    let number = |at: usize, length: usize| {
        head[at..at + length].iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte))
    };
    let (worker, length, counter) = (number(8, 4), number(12, 4), number(16, 8));
    if length != bytes.len() as u64 {
        return Err(format!("torn: {} bytes of worker {worker}, who wrote {length}", bytes.len()));
    }
    if number(0, 8) != checksum(&bytes[8..]) {
        return Err(format!("torn: message {counter} of worker {worker}, {length} bytes"));
    }
    let worker = u32::try_from(worker).map_err(|error| error.to_string())?;
    Ok(Payload { worker, counter })
}

/// Order-dependent sum of all bytes.
fn checksum(bytes: &[u8]) -> u64 {
    let mix = |sum: u64, word: u64| (sum.rotate_left(5) ^ word).wrapping_mul(0x517C_C1B7_2722_0A95);
    let (words, rest) = bytes.as_chunks::<8>();
    let mut sum = 0x6A09_E667_F3BC_C908;
    for word in words {
        sum = mix(sum, u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(mix(sum, u64::from_le_bytes(last)), bytes.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written_and_no_bit_may_change() {
        let mut bytes = Vec::new();
        for length in [0, 24, 25, 31, 32, 100] {
            let payload = Payload { worker: 7, counter: 1 << 40 | 5 };
            encode(payload, length, &mut bytes);
            assert_eq!(bytes.len(), length.max(HEAD));
            assert_eq!(decode(&bytes), Ok(payload));
            for bit in 0..bytes.len() * 8 {
                let mut broken = bytes.clone();
                broken[bit / 8] ^= 1 << (bit % 8);
                assert!(decode(&broken).is_err(), "bit {bit} of {length} bytes");
            }
            assert!(decode(&bytes[..bytes.len() - 1]).is_err());
        }
    }

    #[test]
    fn two_messages_differ_in_every_word_of_the_body() {
        let of = |counter| {
            let mut bytes = Vec::new();
            encode(Payload { worker: 1, counter }, 4096, &mut bytes);
            bytes
        };
        let (one, two) = (of(1), of(2));
        for (left, right) in one[HEAD..].chunks(8).zip(two[HEAD..].chunks(8)) {
            assert_ne!(left, right);
        }
    }
}
