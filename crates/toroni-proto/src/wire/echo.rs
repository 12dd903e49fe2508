//! ECHO: the sender repeats what receivers have drawn, to show that it lives.
//!
//! ```text
//!  byte 32                40                48
//!       +-----------------+-----------------+-----
//!       | sent_ns (u64)   | nonce (u64)     | …     one or more nonces
//!       +-----------------+-----------------+-----
//! ```
//!
//! In a realm with a key, a valid MAC says that a member has made a datagram, but not when. Anybody may have recorded it. So
//! a receiver draws a nonce, states it in [STATUS](super::Status), and follows a session only after that session has repeated
//! the nonce. `sent_ns` is of the clock of [SESSION](super::SessionInfo): a SESSION with a greater one was sent later.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::cursor::{NoRoom, Reader};
use super::header::{Header, Kind};
use super::mac::Keys;
use super::reject::Reject;
use crate::time::Wall;

/// The nonces of some receivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echo<'a> {
    /// When this was sent, by the clock of the session.
    pub sent: Wall,
    nonces: &'a [[u8; 8]],
}

impl<'a> Echo<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Reject> {
        let mut reader = Reader::new(bytes);
        let sent = Wall::from_ns(reader.u64()?);
        let (nonces, rest) = reader.rest().as_chunks();
        if nonces.is_empty() || !rest.is_empty() {
            return Err(Reject::Truncated);
        }
        Ok(Self { sent, nonces })
    }

    /// Returns the nonces.
    pub fn nonces(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.nonces.iter().map(|nonce| u64::from_le_bytes(*nonce))
    }

    /// Encodes as many of these nonces as fit, at least one. Returns the length of the datagram and how many are in it.
    ///
    /// # Errors
    ///
    /// If not even one fits, or there is none.
    pub fn encode(
        header: &Header,
        sent: Wall,
        nonces: impl IntoIterator<Item = u64>,
        keys: Option<&Keys>,
        buffer: &mut [u8],
    ) -> Result<(usize, usize), NoRoom> {
        let mut count: usize = 0;
        let length = header.datagram(Kind::Echo, keys, buffer, |writer| {
            writer.u64(sent.ns())?;
            for nonce in nonces {
                if writer.u64(nonce).is_err() {
                    break;
                }
                count = count.saturating_add(1);
            }
            if count == 0 { Err(NoRoom) } else { Ok(()) }
        })?;
        Ok((length, count))
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{self, golden};
    use super::super::{Body, HEADER_BYTES};
    use super::*;

    #[test]
    fn its_bytes_are_as_drawn() {
        golden(
            Kind::Echo,
            &[
                "544e 02 09 00 10 3800 44332211 0700 0000 04030201 08070605 e803000000000000",
                "1817161514131211", // sent_ns
                "efcdab8967452301", // nonce
                "8070605040302010", // nonce
            ],
        );
    }

    #[test]
    fn it_has_whole_nonces_at_least_one() {
        let with = |body: usize| {
            let bytes = &samples::of(Kind::Echo).bytes[..HEADER_BYTES + body];
            let mut bytes = bytes.to_vec();
            bytes[6] = u8::try_from(bytes.len()).unwrap();
            samples::parse(&bytes).map(|_| ())
        };
        assert_eq!(with(8), Err(Reject::Truncated));
        assert_eq!(with(12), Err(Reject::Truncated));
        assert_eq!(with(16), Ok(()));
        assert_eq!(with(7), Err(Reject::Truncated));
    }

    #[test]
    fn a_datagram_takes_the_nonces_that_fit() {
        for (room, wanted) in [(7, Err(NoRoom)), (8, Ok(1)), (23, Ok(2)), (24, Ok(3)), (99, Ok(3))]
        {
            let mut buffer = vec![0; HEADER_BYTES + 8 + room];
            let header = samples::header(5);
            let encoded = Echo::encode(&header, Wall::from_ns(1), [1, 2, 3], None, &mut buffer);
            assert_eq!(encoded.map(|(_, count)| count), wanted);
            if let Ok((length, count)) = encoded {
                let Body::Echo(echo) = samples::parse(&buffer[..length]).unwrap().body else {
                    panic!()
                };
                assert!(echo.nonces().eq((1..).take(count)));
            }
        }
        let nothing = Echo::encode(&samples::header(5), Wall::from_ns(1), [], None, &mut [0; 99]);
        assert_eq!(nothing, Err(NoRoom));
    }
}
