//! What a bridge tells another one about a message: 32 bytes beside the payload.
//!
//! ```text
//!  byte 0        4        8        10           16           22      24          28      29     30     32
//!       +--------+--------+--------+------------+------------+-------+-----------+-------+------+------+
//!       | source | series | stream | number     | count      | "TZ"  | numbering | flags | hops | 0    |
//!       | u32    | u32    | u16    | u48        | u48        |       | u32       | u8    | u8   | u16  |
//!       +--------+--------+--------+------------+------------+-------+-----------+-------+------+------+
//!       |<---------- origin of the message ---->|<- place on its topic, as its sender counts ->|
//! ```
//!
//! Integers are little-endian. `count` is how many messages the sender has sent on this topic before, in the numbering
//! that `numbering` names. `hops` is how many bridges relayed the message before its sender.

use toroni::Origin;

/// The length of an attachment.
pub const BYTES: usize = 32;
const MAGIC: [u8; 2] = *b"TZ";
const TO_DESCENDANTS: u8 = 1;
const REPLAYED: u8 = 2;
const STAMPED: u8 = 4;

/// What a bridge tells another one about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Where the message was first published.
    pub origin: Origin,
    /// How many messages its sender has sent on its topic before. Means nothing if `replayed` is set.
    pub count: u64,
    /// The numbering that `count` belongs to.
    pub numbering: u32,
    /// Whether it is also for the subscribers of everything below its topic.
    pub to_descendants: bool,
    /// Whether it answers a query.
    pub replayed: bool,
    /// Whether the timestamp of the sample is when the message was first published.
    pub stamped: bool,
    /// How many bridges relayed it before its sender.
    pub hops: u8,
}

/// Why bytes are not an attachment of a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotAnAttachment {
    /// Another program made it.
    #[error("the attachment is not that of a bridge")]
    Foreign,
    /// It has the mark of a bridge, and a value that no bridge of this version writes.
    #[error("the attachment has an unknown flag, or bytes that should be 0")]
    Invalid,
}

impl Attachment {
    /// Returns its bytes. Numbers are cut to 48 bits.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let Origin { source, series, stream, number } = self.origin;
        bytes[..4].copy_from_slice(&source.to_le_bytes());
        bytes[4..8].copy_from_slice(&series.to_le_bytes());
        bytes[8..10].copy_from_slice(&stream.to_le_bytes());
        bytes[10..16].copy_from_slice(&number.to_le_bytes()[..6]);
        bytes[16..22].copy_from_slice(&self.count.to_le_bytes()[..6]);
        bytes[22..24].copy_from_slice(&MAGIC);
        bytes[24..28].copy_from_slice(&self.numbering.to_le_bytes());
        bytes[28] = if self.to_descendants { TO_DESCENDANTS } else { 0 }
            | if self.replayed { REPLAYED } else { 0 }
            | if self.stamped { STAMPED } else { 0 };
        bytes[29] = self.hops;
        bytes
    }

    /// Reads an attachment.
    ///
    /// # Errors
    /// Returns why the bytes are not an attachment of a bridge. The message is then one of another program.
    pub fn parse(bytes: &[u8]) -> Result<Self, NotAnAttachment> {
        let bytes: &[u8; BYTES] = bytes.try_into().map_err(|_| NotAnAttachment::Foreign)?;
        if bytes[22..24] != MAGIC {
            return Err(NotAnAttachment::Foreign);
        }
        let flags = bytes[28];
        if flags & !(TO_DESCENDANTS | REPLAYED | STAMPED) != 0 || bytes[30..] != [0, 0] {
            return Err(NotAnAttachment::Invalid);
        }
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let u48_at = |at: usize| {
            u64::from_le_bytes(std::array::from_fn(
                |byte| if byte < 6 { bytes[at + byte] } else { 0 },
            ))
        };
        Ok(Self {
            origin: Origin {
                source: u32_at(0),
                series: u32_at(4),
                stream: u16::from_le_bytes([bytes[8], bytes[9]]),
                number: u48_at(10),
            },
            count: u48_at(16),
            numbering: u32_at(24),
            to_descendants: flags & TO_DESCENDANTS != 0,
            replayed: flags & REPLAYED != 0,
            stamped: flags & STAMPED != 0,
            hops: bytes[29],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_attachment_has_the_documented_bytes() {
        let attachment = Attachment {
            origin: Origin {
                source: 0x0403_0201,
                series: 0x0807_0605,
                stream: 0x0A09,
                number: 0x100F_0E0D_0C0B,
            },
            count: 0x1615_1413_1211,
            numbering: 0x1C1B_1A19,
            to_descendants: true,
            replayed: false,
            stamped: true,
            hops: 3,
        };
        let mut expected: [u8; 32] =
            std::array::from_fn(|at| u8::try_from(at + 1).expect("at most 32"));
        expected[22..24].copy_from_slice(b"TZ");
        expected[28..].copy_from_slice(&[5, 3, 0, 0]);
        assert_eq!(attachment.to_bytes(), expected);
    }

    #[test]
    fn says_why_bytes_are_none() {
        let whole = [0; 22].iter().chain(b"TZ").chain(&[0; 8]).copied().collect::<Vec<u8>>();
        assert!(Attachment::parse(&whole).is_ok());
        assert_eq!(Attachment::parse(&whole[..31]), Err(NotAnAttachment::Foreign));
        assert_eq!(Attachment::parse(&[&whole[..], &[0]].concat()), Err(NotAnAttachment::Foreign));
        assert_eq!(Attachment::parse(&[]), Err(NotAnAttachment::Foreign));
        for (at, value, expected) in [
            (22, 0, NotAnAttachment::Foreign),
            (28, 8, NotAnAttachment::Invalid),
            (30, 1, NotAnAttachment::Invalid),
            (31, 1, NotAnAttachment::Invalid),
        ] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            assert_eq!(Attachment::parse(&bytes), Err(expected));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_written_again(mut bytes in proptest::collection::vec(any::<u8>(), 0..40), plausible: bool) {
            if plausible {
                bytes.resize(BYTES, 7);
                bytes[22..24].copy_from_slice(&MAGIC);
                bytes[28] &= 7;
                bytes[30..].fill(0);
                prop_assert!(Attachment::parse(&bytes).is_ok());
            }
            if let Ok(attachment) = Attachment::parse(&bytes) {
                prop_assert_eq!(&attachment.to_bytes()[..], &bytes[..]);
            }
        }
    }
}
