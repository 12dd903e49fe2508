//! DATA: messages, from the sender to all receivers.
//!
//! ```text
//!  byte 32                40                48                56        60       62      64
//!       +-----------------+-----------------+-----------------+---------+--------+-------+--------+
//!       | sent_ns (u64)   | message (u64)   | number (u64)    | behind  | chunks | unsure| chunks |
//!       |                 |                 |                 | u32     | u16 ≥ 1| u16   |        |
//!       +-----------------+-----------------+-----------------+---------+--------+-------+--------+
//!
//!  sent_ns  CLOCK_REALTIME of the first sending; a retransmission keeps it
//!  message  how many messages of this session started in earlier datagrams, lost ones included:
//!           the message number of the first that starts here, or else of the next
//!  number   the number of the first message that starts here; if none does, or LOST comes before it,
//!           what comes has this number or a greater one
//!  behind   the sequence of this datagram less the trail, the first that can be sent again;
//!           2³² − 1 if it is more
//!  unsure   how many LOST with the reason Overtaken, whose count is an upper bound, stand in earlier datagrams of this
//!           session, modulo 2¹⁶: if that is the same before and after a gap, the gap is counted exactly
//! ```
//!
//! Chunks fill the datagram in order. A message that does not fit the rest of a datagram begins in the
//! next one, unless no datagram can hold it. Then it fills the rest, and its further parts are the
//! first chunks of the following datagrams. So only the first chunk of a datagram can continue a
//! message, and that has the number `message` − 1.

use super::chunk::{self, Chunk, Place, Start};
use super::cursor::{NoRoom, Reader, Writer};
use super::header::{self, Flags, HEADER_BYTES, Header, Kind};
use super::mac::Keys;
use super::reject::Reject;
use crate::id::{MessageNumber, Number, Sequence, Source, Stream};
use crate::time::Wall;

/// The place of the first chunk in a datagram, in bytes.
pub const CHUNKS_AT: usize = 64;

const BEHIND_AT: usize = 56;

/// The messages of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Data<'a> {
    /// When the datagram was sent first.
    pub sent: Wall,
    /// The number of the first message that starts here, or else of the next.
    pub message: MessageNumber,
    /// The number in the series of the first message that starts here; if none does, or the source has missed
    /// messages before it, a number that is not above theirs and that of the next.
    pub number: Number,
    /// The first sequence that the sender can still send again.
    pub trail: Sequence,
    /// The greatest topic of a message that starts here, plus 1; [`u32::MAX`] if it was not computed.
    pub topics_end: u32,
    /// How many losses of unknown size the sender has reported in the datagrams before, modulo 2¹⁶.
    pub unsure: u16,
    count: u16,
    feed: bool,
    bytes: &'a [u8],
}

impl<'a> Data<'a> {
    #[inline]
    pub(super) fn parse(
        bytes: &'a [u8],
        header: &Header,
        message_max: u32,
    ) -> Result<Self, Reject> {
        let data = Self::fields(bytes, header.flags.has(Flags::FEED), header.sequence)?;
        let topics_end = data.run().check(message_max)?;
        Ok(Self { topics_end, ..data })
    }

    /// Views a datagram, without its MAC, that was checked when it arrived. Returns `None` if it never
    /// was a DATA datagram.
    pub(crate) fn reopen(datagram: &'a [u8]) -> Option<Self> {
        let (feed, sequence, body) = header::reopen(datagram)?;
        Self::fields(body, feed, sequence).ok()
    }

    #[inline]
    fn fields(bytes: &'a [u8], feed: bool, sequence: Sequence) -> Result<Self, Reject> {
        let mut reader = Reader::new(bytes);
        let sent = Wall::from_ns(reader.u64()?);
        let (message, number) = (reader.u64()?, reader.u64()?);
        let behind = u64::from(reader.u32()?);
        let (count, unsure) = (reader.u16()?, reader.u16()?);
        if behind > sequence.get() {
            return Err(Reject::Sequence);
        }
        let trail = sequence.minus(behind);
        let message = MessageNumber::new(message).ok_or(Reject::Number)?;
        let number = Number::new(number).ok_or(Reject::Number)?;
        if count == 0 {
            return Err(Reject::Count);
        }
        let (bytes, topics_end) = (reader.rest(), u32::MAX);
        Ok(Self { sent, message, number, trail, topics_end, unsure, count, feed, bytes })
    }

    #[inline]
    const fn run(&self) -> Run<'a> {
        let Self { message, number, count, feed, bytes, .. } = *self;
        Run { message, number, count, feed, bytes }
    }

    /// Returns the chunks in order, each with the number of its message.
    #[inline]
    pub fn chunks(&self) -> Chunks<'a> {
        self.run().chunks()
    }

    /// Returns how many chunks there are.
    #[must_use]
    pub const fn chunk_count(&self) -> u16 {
        self.count
    }
}

/// What a DATA datagram says about its sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstSent {
    /// Who sent it.
    pub source: Source,
    /// Of which stream.
    pub stream: Stream,
    /// Its sequence.
    pub sequence: Sequence,
    /// When.
    pub sent: Wall,
}

impl FirstSent {
    /// Reads it from a DATA datagram that was checked. Returns `None` for others, and for those that were sent again:
    /// they state when they were sent first.
    #[must_use]
    pub fn of(datagram: &[u8]) -> Option<Self> {
        let (source, stream) = header::claimed_stream(datagram)?;
        let (_, sequence, body) = header::reopen(datagram)?;
        let is_again = header::flags(datagram)?.has(Flags::RETRANSMISSION);
        if Kind::of(datagram) != Some(Kind::Data) || is_again {
            return None;
        }
        let sent = Wall::from_ns(u64::from_le_bytes(*body.first_chunk()?));
        Some(Self { source, stream, sequence, sent })
    }
}

/// Chunks that follow one another, in a datagram or in a frame of TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run<'a> {
    pub(super) message: MessageNumber,
    pub(super) number: Number,
    pub(super) count: u16,
    pub(super) feed: bool,
    pub(super) bytes: &'a [u8],
}

impl<'a> Run<'a> {
    /// Checks all chunks, so that [`Self::chunks`] need not.
    /// Returns the greatest topic plus 1.
    #[inline]
    pub(super) fn check(&self, message_max: u32) -> Result<u32, Reject> {
        let mut topics_end = 0;
        let mut cursor = Cursor::new(self, message_max);
        for index in 0..self.count {
            if let Some(message) = cursor.message() {
                let (_, start, _) = message?;
                topics_end = topics_end.max(start.topic.get() + 1);
                continue;
            }
            let placed = cursor.other()?;
            let is_last = index + 1 == self.count;
            match placed.chunk {
                Chunk::Rest { last, .. } => {
                    let continues = self.message > MessageNumber::ZERO;
                    if index != 0 || !continues || (!last && !is_last) {
                        return Err(Reject::Fragment);
                    }
                }
                Chunk::First { .. } if !is_last => return Err(Reject::Fragment),
                Chunk::Message { start, .. } | Chunk::First { start, .. } => {
                    topics_end = topics_end.max(start.topic.get() + 1);
                }
                _ => {}
            }
        }
        cursor.reader.end()?;
        Ok(topics_end)
    }

    #[inline]
    pub(super) fn chunks(&self) -> Chunks<'a> {
        // `check` has compared all lengths with the limit.
        Chunks { cursor: Cursor::new(self, u32::MAX), left: self.count }
    }
}

/// A chunk, and where it belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed<'a> {
    /// The message that starts or continues here. For [`Chunk::Lost`], the first that is missing;
    /// for [`Chunk::Topic`], the next.
    pub message: MessageNumber,
    /// The chunk.
    pub chunk: Chunk<'a>,
}

/// A message, with its number among those of the session and its payload.
type MessageAt<'a> = (MessageNumber, Start, &'a [u8]);

/// The chunks of a datagram that was checked.
#[derive(Debug, Clone)]
pub struct Chunks<'a> {
    cursor: Cursor<'a>,
    left: u16,
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Placed<'a>;

    fn next(&mut self) -> Option<Placed<'a>> {
        if let Some((message, start, payload)) = self.message() {
            return Some(Placed { message, chunk: Chunk::Message { start, payload } });
        }
        self.left = self.left.checked_sub(1)?;
        self.cursor.other().ok()
    }
}

impl<'a> Chunks<'a> {
    /// Returns the next chunk if it is a [`Chunk::Message`], as nearly all are. Otherwise the iterator goes on with
    /// what it is.
    #[inline(always)]
    pub(crate) fn message(&mut self) -> Option<MessageAt<'a>> {
        let left = self.left.checked_sub(1)?;
        let message = self.cursor.message()?.ok()?;
        self.left = left;
        Some(message)
    }
}

/// Walks through chunks and counts messages.
#[derive(Debug, Clone)]
struct Cursor<'a> {
    reader: Reader<'a>,
    message: MessageNumber,
    place: Place,
}

impl<'a> Cursor<'a> {
    #[inline]
    fn new(run: &Run<'a>, message_max: u32) -> Self {
        Self {
            reader: Reader::new(run.bytes),
            message: run.message,
            place: Place {
                implied: run.number.get(),
                may_state_number: false,
                feed: run.feed,
                message_max,
            },
        }
    }

    /// Takes the next chunk if it is a message.
    #[inline(always)]
    fn message(&mut self) -> Option<Result<MessageAt<'a>, Reject>> {
        let parsed = Chunk::parse_message(&mut self.reader, &self.place)?;
        Some(parsed.and_then(|(start, payload)| {
            let message = self.message;
            self.message = MessageNumber::new(message.get() + 1).ok_or(Reject::Number)?;
            self.starts(&start);
            Ok((message, start, payload))
        }))
    }

    /// The number of the next message follows that of one that starts here.
    #[inline(always)]
    fn starts(&mut self, start: &Start) {
        self.place.implied = start.number.get() + 1;
        self.place.may_state_number = true;
    }

    /// Takes the next chunk, which is no message.
    #[inline(never)]
    fn other(&mut self) -> Result<Placed<'a>, Reject> {
        let chunk = Chunk::parse(&mut self.reader, &self.place)?;
        let mut message = self.message;
        let count = match chunk {
            Chunk::Message { start, .. } | Chunk::First { start, .. } => {
                self.starts(&start);
                1
            }
            Chunk::Rest { .. } => {
                message = message.minus(1);
                0
            }
            Chunk::Topic { .. } => 0,
            Chunk::Lost { count, until, .. } => {
                self.place.implied = until.get();
                self.place.may_state_number = true;
                count
            }
        };
        // Both are below 2⁶⁴, and the sum may be above.
        let after = self.message.get().checked_add(count).and_then(MessageNumber::new);
        self.message = after.ok_or(Reject::Number)?;
        Ok(Placed { message, chunk })
    }
}

/// Builds a DATA datagram in a buffer, chunk by chunk.
///
/// The buffer is given to each call, so that it can be part of the window.
#[derive(Debug, Clone, Copy)]
pub struct DataWriter {
    end: usize,
    count: u16,
    message: MessageNumber,
    started: u64,
    number: Number,
    implied: u64,
    has_start: bool,
}

impl DataWriter {
    /// Begins a datagram. `message` is the number of the next message that starts. No later message
    /// has a number below `number`.
    #[must_use]
    pub const fn new(message: MessageNumber, number: Number) -> Self {
        Self::after(CHUNKS_AT, message, number)
    }

    /// Begins with what stands in a buffer after `end` bytes.
    pub(super) const fn after(end: usize, message: MessageNumber, number: Number) -> Self {
        Self { end, count: 0, message, started: 0, number, implied: number.get(), has_start: false }
    }

    /// Adds a chunk.
    ///
    /// A [`Chunk::Rest`] must come first, and a [`Chunk::First`] last. Numbers must grow.
    ///
    /// # Errors
    ///
    /// If the chunk does not fit before the end of `buffer`, from which the caller has cut off what
    /// the MAC needs. Then the datagram is as before.
    #[inline]
    pub fn push(&mut self, chunk: &Chunk<'_>, buffer: &mut [u8]) -> Result<(), NoRoom> {
        let start = match chunk {
            Chunk::Message { start, payload } => return self.push_message(start, payload, buffer),
            Chunk::First { start, .. } => Some(start),
            _ => None,
        };
        let mut writer = Writer::new(buffer.get_mut(self.end..).ok_or(NoRoom)?);
        chunk.write(start.map_or(self.implied, |start| self.implied(start)), &mut writer)?;
        self.end += writer.written();
        self.count += 1;
        if let Some(start) = start {
            self.starts(start);
        } else if let Chunk::Lost { count, until, .. } = chunk {
            debug_assert!(until.get() >= self.implied, "numbers grow");
            self.implied = until.get();
            // The datagram's number must not be above those of what was missed, so it stays.
            self.has_start = true;
            self.started = self.started.saturating_add(*count);
        }
        Ok(())
    }

    /// Adds a [`Chunk::Message`], as [`Self::push`] does. Nearly all chunks are messages, so this path takes no detour
    /// through the memory of a chunk.
    ///
    /// # Errors
    ///
    /// As [`Self::push`].
    #[inline]
    pub(crate) fn push_message(
        &mut self,
        start: &Start,
        payload: &[u8],
        buffer: &mut [u8],
    ) -> Result<(), NoRoom> {
        let mut writer = Writer::new(buffer.get_mut(self.end..).ok_or(NoRoom)?);
        chunk::write_message(start, self.implied(start), payload, &mut writer)?;
        self.end += writer.written();
        // A datagram is too short for 2¹⁶ chunks.
        self.count += 1;
        self.starts(start);
        Ok(())
    }

    /// The number that a message has without stating it.
    #[inline]
    fn implied(&self, start: &Start) -> u64 {
        // The number of the first message that starts stands in the datagram's own field.
        if self.has_start { self.implied } else { start.number.get() }
    }

    /// Notes that a message starts in the chunk that was written last.
    #[inline]
    fn starts(&mut self, start: &Start) {
        debug_assert!(start.number.get() >= self.implied, "numbers grow");
        if !self.has_start {
            self.number = start.number;
            self.has_start = true;
        }
        self.implied = start.number.get() + 1;
        self.started += 1;
    }

    /// Returns whether there is no chunk yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number that the datagram states.
    #[must_use]
    pub const fn number(&self) -> Number {
        self.number
    }

    /// Returns how many chunks there are, and the number of the first message that starts.
    pub(super) const fn counts(&self) -> (u16, MessageNumber) {
        (self.count, self.message)
    }

    /// Returns the length of the datagram so far, without a MAC.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.end
    }

    /// Returns the number of the next message that starts.
    #[must_use]
    pub const fn next_message(&self) -> MessageNumber {
        self.message.plus(self.started)
    }

    /// Returns whether a message would have to state its number, if it came next.
    pub(crate) fn states_number(&self, start: &Start) -> bool {
        self.has_start && start.number.get() != self.implied
    }

    /// Completes the datagram, whose chunks are in `buffer`, and returns its length.
    ///
    /// # Errors
    ///
    /// If the buffer has no room for the MAC, or there is no chunk.
    pub fn finish(
        &self,
        header: &Header,
        sent: Wall,
        trail: Sequence,
        unsure: u16,
        keys: Option<&Keys>,
        buffer: &mut [u8],
    ) -> Result<usize, NoRoom> {
        if self.is_empty() {
            return Err(NoRoom);
        }
        let mut fields = [0; CHUNKS_AT - HEADER_BYTES];
        fields[..8].copy_from_slice(&sent.ns().to_le_bytes());
        fields[8..16].copy_from_slice(&self.message.get().to_le_bytes());
        fields[16..24].copy_from_slice(&self.number.get().to_le_bytes());
        fields[24..28].copy_from_slice(&behind(header.sequence, trail).to_le_bytes());
        fields[28..30].copy_from_slice(&self.count.to_le_bytes());
        fields[30..].copy_from_slice(&unsure.to_le_bytes());
        let mut writer = Writer::new(buffer);
        writer.bytes(&header.to_bytes(Kind::Data))?;
        writer.bytes(&fields)?;
        header::seal(buffer, self.end, keys)
    }
}

/// The distance to the trail as it is sent.
pub(super) fn behind(sequence: Sequence, trail: Sequence) -> u32 {
    u32::try_from(sequence.since(trail)).unwrap_or(u32::MAX)
}

/// Makes a DATA datagram, which [`DataWriter::finish`] completed, ready to be sent again: sets the
/// flag RETRANSMISSION, states the present trail, and signs it again.
///
/// # Panics
///
/// If it is too short to be such a datagram.
pub fn retransmit(datagram: &mut [u8], sequence: Sequence, trail: Sequence, keys: Option<&Keys>) {
    header::set_flags(datagram, Flags::RETRANSMISSION);
    let behind = behind(sequence, trail).to_le_bytes();
    datagram[BEHIND_AT..BEHIND_AT + 4].copy_from_slice(&behind);
    let end = datagram.len() - header::mac_bytes(keys);
    let sealed = header::seal(datagram, end, keys);
    debug_assert_eq!(sealed, Ok(datagram.len()), "it had this length before");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::chunk::LostReason;
    use super::super::chunk::tests::{start, starts, topic};
    use super::super::samples::{self, RULES, golden};
    use super::super::{Body, Rules, TableName, parse};
    use super::*;

    fn data(bytes: &[u8]) -> Result<Data<'_>, Reject> {
        match samples::parse(bytes)?.body {
            Body::Data(data) => Ok(data),
            other => panic!("{other:?}"),
        }
    }

    /// A datagram with these chunks whose first message would be 10.
    fn with(chunks: &[Chunk<'_>]) -> Vec<u8> {
        built(chunks, 10)
    }

    fn built(chunks: &[Chunk<'_>], message: u64) -> Vec<u8> {
        let mut buffer = vec![0; 4_000];
        let mut writer =
            DataWriter::new(MessageNumber::new(message).unwrap(), Number::new(50).unwrap());
        for chunk in chunks {
            writer.push(chunk, &mut buffer).unwrap();
        }
        let header = samples::header(1_000);
        let sent = Wall::from_ns(7);
        let length =
            writer.finish(&header, sent, samples::sequence(900), 0, None, &mut buffer).unwrap();
        buffer.truncate(length);
        buffer
    }

    const MESSAGE: fn(u64) -> Chunk<'static> =
        |number| Chunk::Message { start: start(number), payload: b"abc" };

    fn part(last: bool) -> Chunk<'static> {
        Chunk::Rest { topic: topic(3), offset: 9, last, payload: b"abc" }
    }

    fn first(number: u64) -> Chunk<'static> {
        Chunk::First { start: start(number), total: 100, payload: b"abc" }
    }

    fn name() -> Chunk<'static> {
        Chunk::Topic { number: topic(3), name: TableName::new("a/b").unwrap() }
    }

    fn lost(count: u64) -> Chunk<'static> {
        Chunk::Lost { count, until: start(70).number, reason: LostReason::TooLong }
    }

    #[test]
    fn its_bytes_are_as_drawn() {
        golden(
            Kind::Data,
            &[
                "544e 02 01 00 10 7000 44332211 0700 0000 04030201 08070605 e803000000000000",
                "1817161514131211",                                      // sent_ns
                "0a00000000000000",                                      // message
                "6400000000000000",                                      // number
                "64000000",                                              // behind: the trail is 900
                "0300",                                                  // chunks
                "0300",                                                  // unsure
                "0300 03 00 02000000 612f62",                            // TOPIC 2: a/b
                "0500 01 04 02000000 68656c6c6f", // MESSAGE, to descendants: hello
                "1000 01 48 02000000 6900000000000000 2827262524232221", // number 105, timestamp
            ],
        );
    }

    #[test]
    fn each_chunk_knows_its_message() {
        let bytes = with(&[part(true), name(), MESSAGE(60), lost(5), MESSAGE(80), first(81)]);
        let data = data(&bytes).unwrap();
        assert_eq!((data.message.get(), data.number.get(), data.trail.get()), (10, 60, 900));
        let numbers: Vec<u64> = data.chunks().map(|placed| placed.message.get()).collect();
        assert_eq!(numbers, [9, 10, 10, 11, 16, 17]);
        let chunks: Vec<Chunk<'_>> = data.chunks().map(|placed| placed.chunk).collect();
        assert_eq!(chunks, [part(true), name(), MESSAGE(60), lost(5), MESSAGE(80), first(81)]);
        assert_eq!(data.chunk_count(), 6);
    }

    #[test]
    fn a_datagram_says_when_it_was_sent_unless_it_was_sent_again() {
        let mut bytes = with(&[MESSAGE(60)]);
        let header = samples::header(1_000);
        let first = FirstSent {
            source: header.source,
            stream: header.stream,
            sequence: header.sequence,
            sent: Wall::from_ns(7),
        };
        assert_eq!(FirstSent::of(&bytes), Some(first));
        retransmit(&mut bytes, header.sequence, header.sequence, None);
        assert_eq!(FirstSent::of(&bytes), None);
        assert_eq!(FirstSent::of(&bytes[..HEADER_BYTES]), None);
        assert_eq!(FirstSent::of(&samples::of(Kind::Session).bytes), None);
    }

    #[test]
    fn a_datagram_in_which_no_message_starts_states_what_the_next_may_have() {
        let bytes = with(&[part(true)]);
        let data = data(&bytes).unwrap();
        assert_eq!((data.message.get(), data.number.get()), (10, 50));
    }

    #[test]
    fn parts_stand_only_at_the_edges_of_a_datagram() {
        let result = |chunks: &[Chunk<'_>]| data(&with(chunks)).map(|_| ());
        assert_eq!(result(&[part(false)]), Ok(()));
        assert_eq!(result(&[part(true), MESSAGE(60), first(61)]), Ok(()));
        for wrong in [
            &[part(false), MESSAGE(60)][..],
            &[MESSAGE(60), part(true)],
            &[name(), part(true)],
            &[part(true), part(true)],
            &[first(60), MESSAGE(61)],
            &[first(60), part(true)],
        ] {
            assert_eq!(result(wrong), Err(Reject::Fragment), "{wrong:?}");
        }
        // Nothing can be continued before the first message.
        assert_eq!(data(&built(&[part(true)], 0)).map(|_| ()), Err(Reject::Fragment));
    }

    #[test]
    fn counts_of_messages_cannot_overflow() {
        let most = MessageNumber::MAX.get();
        let result = |chunks: &[Chunk<'_>], message| data(&built(chunks, message)).map(|_| ());
        assert_eq!(result(&[lost(1)], most - 1), Ok(()));
        assert_eq!(result(&[lost(2)], most - 1), Err(Reject::Number));
        assert_eq!(result(&[MESSAGE(60)], most), Err(Reject::Number));
        assert_eq!(result(&[lost(u64::MAX)], 0), Err(Reject::Number));
        assert_eq!(result(&[lost(most), lost(most), lost(most)], 0), Err(Reject::Number));
    }

    #[test]
    fn a_message_after_a_loss_has_no_number_below_it() {
        let bytes = with(&[lost(5), MESSAGE(75)]);
        assert_eq!(data(&bytes).map(|data| data.number.get()), Ok(50), "what was lost may have it");
        let until = |value| {
            let mut other = bytes.clone();
            other[80] = value;
            data(&other).map(|_| ())
        };
        assert_eq!([until(49), until(76)], [Err(Reject::Number); 2]);
        assert_eq!([until(50), until(75)], [Ok(()); 2]);
        // The message that comes next has the number of the loss, and does not state it.
        let length = |last| with(&[MESSAGE(60), lost(5), MESSAGE(last)]).len();
        assert_eq!(length(71) - length(70), 8);
        assert_eq!(data(&with(&[lost(1), lost(1)])).map(|_| ()), Ok(()));
    }

    #[test]
    fn numbers_beyond_their_limits_are_refused_before_anything_is_computed() {
        let bytes = samples::of(Kind::Data).bytes;
        let set = |at: usize, value: u64| {
            let mut wrong = bytes.clone();
            wrong[at..at + 8].copy_from_slice(&value.to_le_bytes());
            samples::parse(&wrong).map(|_| ())
        };
        assert_eq!(set(24, u64::MAX), Err(Reject::Sequence));
        assert_eq!(set(24, 99), Err(Reject::Sequence), "the trail would be below 0");
        assert_eq!(set(24, 100), Ok(()));
        assert_eq!(set(40, 1 << 63), Err(Reject::Number));
        assert_eq!(set(48, 1 << 48), Err(Reject::Number));
        assert_eq!(set(48, (1 << 48) - 1), Err(Reject::Number), "the second one would be 2⁴⁸");
    }

    #[test]
    fn chunks_and_their_count_agree() {
        let bytes = samples::of(Kind::Data).bytes;
        for (count, wanted) in [(0, Reject::Count), (2, Reject::Trailing), (4, Reject::Truncated)] {
            let mut wrong = bytes.clone();
            wrong[60] = count;
            assert_eq!(samples::parse(&wrong).map(|_| ()), Err(wanted), "{count} chunks");
        }
    }

    #[test]
    fn a_message_longer_than_the_receiver_accepts_is_refused() {
        let bytes = with(&[first(60)]);
        let rules = Rules { message_max: 99, ..RULES };
        assert_eq!(parse(&bytes, &rules, |_, _| Ok(())), Err(Reject::TooLong));
    }

    #[test]
    fn a_retransmission_differs_in_flag_trail_and_signature_only() {
        for keys in [None, Some(&samples::KEYS)] {
            let original = samples::of(Kind::Data).encode(keys);
            let mut again = original.clone();
            retransmit(&mut again, samples::sequence(1_000), samples::sequence(950), keys);
            let mac = header::mac_bytes(keys);
            let differing: Vec<usize> =
                (0..original.len() - mac).filter(|at| original[*at] != again[*at]).collect();
            assert_eq!(differing, [4, 56]);
            let rules = Rules { keys, ..RULES };
            let parsed = parse(&again, &rules, |_, _| Ok(())).unwrap();
            assert!(parsed.header.flags.has(Flags::RETRANSMISSION));
            let Body::Data(data) = parsed.body else { panic!("{parsed:?}") };
            assert_eq!(data.trail, samples::sequence(950));
        }
    }

    #[test]
    fn a_chunk_that_does_not_fit_leaves_the_datagram_as_it_was() {
        let mut buffer = [0; CHUNKS_AT + 30];
        let mut writer = DataWriter::new(MessageNumber::ZERO, Number::ZERO);
        writer.push(&MESSAGE(5), &mut buffer).unwrap();
        let before = writer;
        let long = Chunk::Message { start: start(6), payload: &[0; 40] };
        assert_eq!(writer.push(&long, &mut buffer), Err(NoRoom));
        assert_eq!(format!("{writer:?}"), format!("{before:?}"));
        writer.push(&MESSAGE(6), &mut buffer).unwrap();
        assert_eq!(writer.next_message().get(), 2);
    }

    #[test]
    fn a_datagram_without_chunks_is_never_finished() {
        let writer = DataWriter::new(MessageNumber::ZERO, Number::ZERO);
        let header = samples::header(0);
        let finished =
            writer.finish(&header, Wall::default(), Sequence::ZERO, 0, None, &mut [0; 200]);
        assert_eq!(finished, Err(NoRoom));
    }

    proptest! {
        #[test]
        fn messages_come_out_as_they_went_in(
            mut starts in prop::collection::vec(starts(), 1..20),
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 20),
            message in 0..1_u64 << 62,
        ) {
            starts.sort_by_key(|start| start.number);
            starts.dedup_by_key(|start| start.number);
            let chunks: Vec<Chunk<'_>> = starts
                .iter()
                .zip(&payloads)
                .map(|(start, payload)| Chunk::Message { start: *start, payload })
                .collect();
            let mut buffer = vec![0; 8_000];
            let mut writer = DataWriter::new(MessageNumber::new(message).unwrap(), Number::ZERO);
            for chunk in &chunks {
                writer.push(chunk, &mut buffer).unwrap();
            }
            let header = Header { flags: Flags::FEED, ..samples::header(1 << 62) };
            let length = writer
                .finish(&header, Wall::from_ns(1), samples::sequence(9), 0, None, &mut buffer)
                .unwrap();
            let parsed = parse(&buffer[..length], &RULES, |_, _| Ok(()));
            let Ok(parsed) = parsed else { panic!("{parsed:?}") };
            prop_assert_eq!(parsed.header, header);
            let Body::Data(data) = parsed.body else { panic!() };
            let read: Vec<Chunk<'_>> = data.chunks().map(|placed| placed.chunk).collect();
            prop_assert_eq!(read, chunks);
            prop_assert_eq!(data.trail.get(), (1 << 62) - u64::from(u32::MAX));
        }
    }
}
