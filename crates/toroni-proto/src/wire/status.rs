//! STATUS: the state of a receiver, to the sender.
//!
//! ```text
//!  byte 32        36        40        44      46        48
//!       +---------+---------+---------+-------+---------+
//!       | receiver| receiver| window  | flags | name    |
//!       |         | session | u32     | u16   | length  |
//!       +---------+---------+---------+-------+---------+
//!  byte 48                56                64                72        76        80
//!       +-----------------+-----------------+-----------------+---------+---------+
//!       | lost (u64)      | naks (u64)      | echo_ns (u64)   | held_us | dropped |
//!       |                 |                 |                 | u32     | u32     |
//!       +-----------------+-----------------+-----------------+---------+---------+
//!  byte 80                88                96
//!       +-----------------+-----------------+-------+
//!       | count (u64)     | nonce (u64)     | name  |
//!       +-----------------+-----------------+-------+
//!
//!  flags  1 required: the sender waits for this receiver, if its policy is Slowest
//!         2 new: the receiver does not follow the session yet, and asks for ECHO and SESSION
//! ```
//!
//! The header's `sequence` is the first that the receiver still expects. The sender computes the round
//! trip: now − `echo_ns` − `held_us`. `count` grows with each STATUS of a receiver's session to a stream. A `nonce` that is
//! not 0 comes back in an [ECHO](super::Echo).

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::Receiver;
use super::cursor::{NoRoom, Reader};
use super::header::{Header, Kind};
use super::mac::Keys;
use super::name::NodeName;
use super::reject::Reject;
use crate::time::Wall;

const REQUIRED: u16 = 1;
const NEW: u16 = 2;

/// The state of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status<'a> {
    /// Who sends it.
    pub receiver: Receiver,
    /// How many bytes the receiver can take.
    pub window: u32,
    /// Whether the sender should wait for this receiver, if its policy is
    /// [`Policy::Slowest`](super::Policy::Slowest).
    pub required: bool,
    /// Whether the receiver does not follow the session yet, and asks for ECHO and SESSION. Nothing else of it counts then.
    pub new: bool,
    /// How many messages the receiver has lost so far.
    pub lost: u64,
    /// How many NAKs it has sent so far.
    pub naks: u64,
    /// The `sent` of the last SESSION that it received, by the clock of the sender.
    pub echo: Wall,
    /// For how long it has kept that, in microseconds.
    pub held_us: u32,
    /// How many datagrams its kernel has dropped so far.
    pub dropped: u32,
    /// Grows with each STATUS of the receiver's session to this stream.
    pub count: u64,
    /// What an ECHO must repeat, or 0.
    pub nonce: u64,
    /// The name of its node.
    pub name: NodeName<'a>,
}

impl<'a> Status<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Reject> {
        let mut reader = Reader::new(bytes);
        let receiver = Receiver::parse(&mut reader)?;
        let window = reader.u32()?;
        let (flags, length) = (reader.u16()?, reader.u16()?);
        let (lost, naks, echo) = (reader.u64()?, reader.u64()?, Wall::from_ns(reader.u64()?));
        let (held_us, dropped) = (reader.u32()?, reader.u32()?);
        let (count, nonce) = (reader.u64()?, reader.u64()?);
        let name = reader.bytes(usize::from(length))?;
        reader.end()?;
        if flags & !(REQUIRED | NEW) != 0 {
            return Err(Reject::Code);
        }
        Ok(Self {
            receiver,
            window,
            required: flags & REQUIRED != 0,
            new: flags & NEW != 0,
            lost,
            naks,
            echo,
            held_us,
            dropped,
            count,
            nonce,
            name: NodeName::parse(name)?,
        })
    }

    /// Encodes a STATUS.
    ///
    /// # Errors
    ///
    /// If it does not fit.
    pub fn encode(
        &self,
        header: &Header,
        keys: Option<&Keys>,
        buffer: &mut [u8],
    ) -> Result<usize, NoRoom> {
        let required = if self.required { REQUIRED } else { 0 };
        let new = if self.new { NEW } else { 0 };
        header.datagram(Kind::Status, keys, buffer, |writer| {
            self.receiver.write(writer)?;
            writer.u32(self.window)?;
            writer.u16(required | new)?;
            writer.u16(u16::from(self.name.length()))?;
            writer.u64(self.lost)?;
            writer.u64(self.naks)?;
            writer.u64(self.echo.ns())?;
            writer.u32(self.held_us)?;
            writer.u32(self.dropped)?;
            writer.u64(self.count)?;
            writer.u64(self.nonce)?;
            writer.bytes(self.name.as_str().as_bytes())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{self, golden};
    use super::*;

    #[test]
    fn its_bytes_are_as_drawn() {
        golden(
            Kind::Status,
            &[
                "544e 02 05 00 10 6600 44332211 0700 0000 04030201 08070605 e803000000000000",
                "d4c3b2a1",         // receiver
                "0d0c0b0a",         // receiver's session
                "00001000",         // window: 1 MiB
                "0300",             // flags: required, new
                "0600",             // name length
                "0500000000000000", // lost
                "0900000000000000", // naks
                "1817161514131211", // echo_ns
                "2c010000",         // held_us
                "07000000",         // dropped
                "0400000000000000", // count
                "efcdab8967452301", // nonce
                "6c696e652d34",     // line-4
            ],
        );
    }

    #[test]
    fn unknown_flags_and_wrong_names_are_refused() {
        let bytes = samples::of(Kind::Status).bytes;
        for (at, value, wanted) in [
            (44, 4, Reject::Code),
            (45, 1, Reject::Code),
            (46, 5, Reject::Trailing),
            (46, 7, Reject::Truncated),
            (47, 1, Reject::Truncated),
            (96, 0, Reject::Name),
            (96, 0xff, Reject::Name),
        ] {
            let mut wrong = bytes.clone();
            wrong[at] = value;
            assert_eq!(samples::parse(&wrong).map(|_| ()), Err(wanted), "byte {at} = {value}");
        }
    }
}
