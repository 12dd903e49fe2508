//! Packs messages into datagrams.
//!
//! ```text
//!  messages    │ a │ b │  c (long)              │ d │
//!                │   │    │       │        │      │
//!  datagrams   ┌─▼───▼────▼──┐ ┌──▼──────┐ ┌▼─────▼──┐
//!              │ a   b   c 1 │ │   c 2   │ │ c 3   d │ ◄─ open: more may follow
//!              └─────────────┘ └─────────┘ └─────────┘
//! ```
//!
//! The datagrams are built in the window, where they stay. One of them is open at a time. It is closed
//! when the next message does not fit, when it is long enough, when it has waited long enough, or when
//! the caller says so because it has no more messages.
//!
//! A caller that reads messages from memory which others may overwrite takes a [`Mark`], packs some
//! messages, and then checks whether what it read was intact. If not, it goes back to the mark.

use crate::budget::{Budget, Case, Part};
use crate::config::Config;
use crate::id::{MessageNumber, Number, Sequence};
use crate::time::{Monotonic, Wall};
use crate::window::Window;
use crate::wire::chunk::{CHUNK_HEADER_BYTES, FRAGMENT_BYTES};
use crate::wire::data::CHUNKS_AT;
use crate::wire::{
    Chunk, DataWriter, Header, Keys, LostReason, MAC_BYTES, Start, TableName, TopicNumber,
};

/// The window has no room: what it holds must be sent first. Nothing is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the window is full of datagrams that were not sent yet")]
pub struct Full;

/// The two clocks, read by the caller at the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// For deadlines.
    pub monotonic: Monotonic,
    /// For datagrams.
    pub wall: Wall,
}

/// A state to which a batcher can go back.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    lead: Sequence,
    progress: Progress,
}

/// What changes with each message.
#[derive(Debug, Clone, Copy)]
struct Progress {
    /// The number of the next message that starts.
    message: MessageNumber,
    /// No later message has a number below this one.
    number: Number,
    open: Option<Open>,
    /// How much of the message that is being packed is in datagrams already.
    packed: usize,
    /// How many losses of unknown size are in datagrams that were closed, and in the open one.
    unsure: [u16; 2],
}

/// The datagram that is being built.
#[derive(Debug, Clone, Copy)]
struct Open {
    writer: DataWriter,
    /// When its first chunk was written.
    since: Monotonic,
}

/// Packs the messages of one stream and session.
#[derive(Debug)]
pub struct Batcher {
    /// Of every datagram, but for the sequence.
    header: Header,
    keys: Option<Keys>,
    /// Where chunks must end, so that the MAC fits.
    chunks_end: usize,
    message_max: usize,
    batch_bytes: usize,
    batch_delay_ns: u64,
    progress: Progress,
    batching: Budget,
}

impl Batcher {
    /// Starts a session that takes messages from the number `begins` on. Its datagrams have this
    /// header, but for the sequence.
    #[must_use]
    pub fn new(config: &Config, header: Header, keys: Option<Keys>, begins: Number) -> Self {
        let bytes = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        let mac = if keys.is_some() { MAC_BYTES } else { 0 };
        let open = None;
        Self {
            header,
            keys,
            chunks_end: bytes(config.datagram_bytes).saturating_sub(mac),
            message_max: bytes(config.message_max_bytes),
            batch_bytes: bytes(config.batch_bytes()).saturating_sub(mac),
            batch_delay_ns: config.batch_delay_ns,
            progress: Progress {
                message: MessageNumber::ZERO,
                number: begins,
                open,
                packed: 0,
                unsure: [0; 2],
            },
            batching: Budget::new(Part::Batching),
        }
    }

    /// Returns the number of the next message that starts.
    #[must_use]
    pub fn next_message(&self) -> MessageNumber {
        match &self.progress.open {
            Some(open) => open.writer.next_message(),
            None => self.progress.message,
        }
    }

    /// Returns the number below which all messages of the stream have been packed.
    #[must_use]
    pub const fn next_number(&self) -> Number {
        self.progress.number
    }

    /// Returns the message number and the number that a datagram after all closed ones would state.
    #[must_use]
    pub const fn closed(&self) -> (MessageNumber, Number) {
        match &self.progress.open {
            Some(open) => (self.progress.message, open.writer.number()),
            None => (self.progress.message, self.progress.number),
        }
    }

    /// Returns how many losses of unknown size are in closed datagrams, modulo 2¹⁶.
    #[must_use]
    pub const fn unsure(&self) -> u16 {
        self.progress.unsure[0]
    }

    /// Notes that the stream has no message below this number any more: what lies between is not of
    /// this stream.
    pub fn skip_to(&mut self, number: Number) {
        debug_assert_eq!(self.progress.packed, 0, "a message is packed completely first");
        self.progress.number = self.progress.number.max(number);
    }

    /// Packs a message. One that is longer than the stream allows is reported as lost in its place.
    /// Numbers must grow from message to message.
    ///
    /// # Errors
    ///
    /// If the window is full. Parts of the message may be packed already: the caller must call again
    /// with the same message and nothing else, or go back to a mark.
    #[inline]
    pub fn message(
        &mut self,
        window: &mut Window,
        now: Now,
        start: Start,
        payload: &[u8],
    ) -> Result<(), Full> {
        let continues = self.progress.packed > 0;
        debug_assert!(continues || start.number >= self.progress.number, "numbers grow");
        // Most messages fit into the datagram that is open.
        if !continues && self.try_message(window, now, &start, payload) {
            return Ok(());
        }
        self.message_elsewhere(window, now, &start, payload)
    }

    /// Packs a message that does not fit into the open datagram.
    #[inline(never)]
    fn message_elsewhere(
        &mut self,
        window: &mut Window,
        now: Now,
        start: &Start,
        payload: &[u8],
    ) -> Result<(), Full> {
        if payload.len() > self.message_max {
            return self.lost(window, now, 1, start.number.plus(1), LostReason::TooLong);
        }
        if self.progress.packed == 0 && self.fits_a_datagram(start, payload) {
            self.close(window, now);
            self.open(window, now)?;
            let written = self.try_message(window, now, start, payload);
            assert!(written, "the message fits an empty datagram");
            return Ok(());
        }
        self.parts(window, now, *start, payload)?;
        self.progress.number = start.number.plus(1);
        Ok(())
    }

    /// Returns whether the message fitted into the open datagram.
    #[inline]
    fn try_message(
        &mut self,
        window: &mut Window,
        now: Now,
        start: &Start,
        payload: &[u8],
    ) -> bool {
        let Some(open) = &mut self.progress.open else { return false };
        if payload.len() <= self.message_max
            && let Some(memory) = window.next_datagram()
            && let Some(memory) = memory.get_mut(..self.chunks_end)
            && open.writer.push_message(start, payload, memory).is_ok()
        {
            self.progress.number = start.number.plus(1);
            self.close_if_long(window, now);
            return true;
        }
        false
    }

    /// Declares the name of a topic, which must happen before the first message that uses it.
    ///
    /// # Errors
    ///
    /// If the window is full. Then nothing was packed.
    pub fn topic(
        &mut self,
        window: &mut Window,
        now: Now,
        number: TopicNumber,
        name: TableName<'_>,
    ) -> Result<(), Full> {
        self.chunk(window, now, &Chunk::Topic { number, name })
    }

    /// Reports messages that the source itself missed, at least one. Their numbers are below `until`, and those of
    /// all later messages are not.
    ///
    /// # Errors
    ///
    /// If the window is full. Then nothing was packed.
    pub fn lost(
        &mut self,
        window: &mut Window,
        now: Now,
        count: u64,
        until: Number,
        reason: LostReason,
    ) -> Result<(), Full> {
        debug_assert!(count > 0, "a loss has messages");
        debug_assert!(until >= self.progress.number, "numbers grow");
        self.chunk(window, now, &Chunk::Lost { count, until, reason })?;
        if reason == LostReason::Overtaken {
            // The chunk may have closed its datagram.
            let at = usize::from(self.progress.open.is_some());
            self.progress.unsure[at] = self.progress.unsure[at].wrapping_add(1);
        }
        self.progress.number = until;
        Ok(())
    }

    /// Closes the open datagram, if there is one. A caller without more messages calls this, unless it
    /// wants to wait for [`Self::poll_timeout`].
    pub fn flush(&mut self, window: &mut Window, now: Now) {
        self.close(window, now);
    }

    /// Returns when the open datagram has waited long enough.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Monotonic> {
        let open = self.progress.open.as_ref()?;
        Some(open.since.after(self.batch_delay_ns))
    }

    /// Closes the open datagram if it has waited long enough.
    pub fn handle_timeout(&mut self, window: &mut Window, now: Now) {
        if self.poll_timeout().is_some_and(|deadline| deadline <= now.monotonic) {
            self.close(window, now);
        }
    }

    /// Returns how long the first message of each datagram waited until that was closed.
    #[must_use]
    pub const fn batching(&self) -> &Budget {
        &self.batching
    }

    /// The same, to set its limit and to ask what exceeded it.
    pub(crate) const fn batching_mut(&mut self) -> &mut Budget {
        &mut self.batching
    }

    /// Returns the present state.
    #[must_use]
    pub const fn mark(&self, window: &Window) -> Mark {
        Mark { lead: window.lead(), progress: self.progress }
    }

    /// Goes back to a state. What was packed since then is forgotten.
    ///
    /// # Panics
    ///
    /// If some of it was sent.
    pub fn go_back(&mut self, window: &mut Window, mark: &Mark) {
        window.roll_back(mark.lead);
        self.progress = mark.progress;
    }

    /// Whether one datagram can hold the message. As the first one there, it states no number.
    fn fits_a_datagram(&self, start: &Start, payload: &[u8]) -> bool {
        let chunk = CHUNK_HEADER_BYTES + start.extension_bytes(false) + payload.len();
        CHUNKS_AT + chunk <= self.chunks_end
    }

    /// Packs a message that no datagram can hold, or the rest of it.
    fn parts(
        &mut self,
        window: &mut Window,
        now: Now,
        start: Start,
        payload: &[u8],
    ) -> Result<(), Full> {
        let total = u32::try_from(payload.len()).expect("message_max is a u32");
        if self.progress.packed == 0 {
            let mut room = self.room_for_first(&start);
            if room == 0 {
                self.close(window, now);
                room = self.room_for_first(&start);
            }
            let payload = payload.get(..room).unwrap_or(payload);
            self.chunk(window, now, &Chunk::First { start, total, payload })?;
            self.progress.packed = payload.len();
            // The next datagram, in which perhaps no message starts, states what the next one may have.
            self.progress.number = start.number.plus(1);
        }
        let room = self.chunks_end - CHUNKS_AT - CHUNK_HEADER_BYTES - FRAGMENT_BYTES;
        while let Some(rest) = payload.get(self.progress.packed..)
            && !rest.is_empty()
        {
            // Nothing may follow a part that is not the last.
            self.close(window, now);
            let part = rest.get(..room).unwrap_or(rest);
            let offset = u32::try_from(self.progress.packed).expect("message_max is a u32");
            let last = part.len() == rest.len();
            let chunk = Chunk::Rest { topic: start.topic, offset, last, payload: part };
            self.chunk(window, now, &chunk)?;
            self.progress.packed += part.len();
        }
        self.progress.packed = 0;
        Ok(())
    }

    /// How many bytes of a message the first part can have in the open datagram, or in a new one.
    fn room_for_first(&self, start: &Start) -> usize {
        let (at, states_number) = match &self.progress.open {
            Some(open) => (open.writer.length(), open.writer.states_number(start)),
            None => (CHUNKS_AT, false),
        };
        let before = CHUNK_HEADER_BYTES + start.extension_bytes(states_number) + FRAGMENT_BYTES;
        self.chunks_end.saturating_sub(at + before)
    }

    /// Writes a chunk into the open datagram, or into a new one if it does not fit.
    fn chunk(&mut self, window: &mut Window, now: Now, chunk: &Chunk<'_>) -> Result<(), Full> {
        if self.progress.open.is_some() {
            if self.try_chunk(window, chunk)? {
                self.close_if_long(window, now);
                return Ok(());
            }
            self.close(window, now);
        }
        self.open(window, now)?;
        let written = self.try_chunk(window, chunk)?;
        assert!(written, "a chunk is cut so that it fits an empty datagram");
        self.close_if_long(window, now);
        Ok(())
    }

    fn open(&mut self, window: &mut Window, now: Now) -> Result<(), Full> {
        // Without room for the datagram it is not opened: an open one always has its memory.
        window.next_datagram().ok_or(Full)?;
        let writer = DataWriter::new(self.progress.message, self.progress.number);
        self.progress.open = Some(Open { writer, since: now.monotonic });
        Ok(())
    }

    /// Returns whether the chunk fitted into the open datagram.
    fn try_chunk(&mut self, window: &mut Window, chunk: &Chunk<'_>) -> Result<bool, Full> {
        let Some(open) = &mut self.progress.open else { return Ok(false) };
        let memory = window.next_datagram().ok_or(Full)?;
        let memory = memory.get_mut(..self.chunks_end).unwrap_or_default();
        Ok(open.writer.push(chunk, memory).is_ok())
    }

    /// Closes the open datagram if it has the length at which it is sent, or no chunk fits any more.
    #[inline]
    fn close_if_long(&mut self, window: &mut Window, now: Now) {
        let Some(open) = &self.progress.open else { return };
        let length = open.writer.length();
        if length >= self.batch_bytes || length + CHUNK_HEADER_BYTES > self.chunks_end {
            self.close(window, now);
        }
    }

    #[inline(never)]
    fn close(&mut self, window: &mut Window, now: Now) {
        let Some(open) = self.progress.open.take() else { return };
        let header = Header { sequence: window.lead(), ..self.header };
        let trail = window.trail();
        let keys = self.keys.as_ref();
        // It was asked for when the datagram was opened, so asking again evicts nothing.
        let memory = window.next_datagram().unwrap_or_default();
        let finished =
            open.writer.finish(&header, now.wall, trail, self.progress.unsure[0], keys, memory);
        let length = finished.expect("an open datagram has a chunk and room for its MAC");
        window.append(length, now.monotonic);
        self.batching.record(Case {
            source: header.source,
            stream: header.stream,
            number: header.sequence.get(),
            took_ns: now.monotonic.since(open.since),
        });
        self.progress.message = open.writer.next_message();
        let [closed, open] = self.progress.unsure;
        self.progress.unsure = [closed.wrapping_add(open), 0];
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::time::MILLISECOND;
    use crate::wire::chunk::tests::{start, topic};
    use crate::wire::samples::{self, KEYS, RULES};
    use crate::wire::{Body, Rules, parse};

    const DATAGRAM: usize = 512;

    fn config() -> Config {
        Config { datagram_bytes: 512, message_max_bytes: 5_000, ..Config::default() }
    }

    fn at(ms: u64) -> Now {
        Now {
            monotonic: Monotonic::from_ns(ms * MILLISECOND),
            wall: Wall::from_ns(1_700_000_000_000_000_000 + ms * MILLISECOND),
        }
    }

    struct Bench {
        batcher: Batcher,
        window: Window,
        keys: Option<Keys>,
    }

    fn bench(config: &Config, keys: Option<Keys>) -> Bench {
        let header = samples::header(0);
        Bench {
            batcher: Batcher::new(config, header, keys, Number::new(40).unwrap()),
            window: Window::new(1 << 16, DATAGRAM, samples::sequence(500)),
            keys,
        }
    }

    impl Bench {
        fn message(&mut self, number: u64, payload: &[u8]) -> Result<(), Full> {
            self.batcher.message(&mut self.window, at(0), start(number), payload)
        }

        fn flush(&mut self) {
            self.batcher.flush(&mut self.window, at(0));
        }

        /// Sends all that is closed, and returns it.
        fn sent(&mut self) -> Vec<Vec<u8>> {
            let mut sent = Vec::new();
            while let Some(datagram) = self.window.next_unsent() {
                sent.push(datagram.to_vec());
                self.window.sent();
            }
            sent
        }

        /// What all that is closed says, in one line a datagram.
        fn said(&mut self) -> Vec<String> {
            let keys = self.keys;
            let rules = Rules { keys: keys.as_ref(), ..RULES };
            self.sent().iter().map(|datagram| said(datagram, &rules)).collect()
        }
    }

    /// As in `500@0:40 M40:3 F41:10/900`.
    fn said(datagram: &[u8], rules: &Rules<'_>) -> String {
        let parsed = parse(datagram, rules, |_, _| Ok(())).unwrap();
        let Body::Data(data) = parsed.body else { panic!("{parsed:?}") };
        let chunks: Vec<String> = data
            .chunks()
            .map(|placed| match placed.chunk {
                Chunk::Message { start, payload } => {
                    format!("M{}:{}", start.number, payload.len())
                }
                Chunk::First { start, total, payload } => {
                    format!("F{}:{}/{total}", start.number, payload.len())
                }
                Chunk::Rest { offset, last, payload, .. } => {
                    let end = if last { "." } else { "" };
                    format!("R{offset}:{}{end}", payload.len())
                }
                Chunk::Topic { name, .. } => name.as_str().to_owned(),
                Chunk::Lost { count, until, reason } => format!("L{count}<{until}:{reason:?}"),
            })
            .collect();
        let sequence = parsed.header.sequence;
        format!("{sequence}@{}:{} {}", data.message, data.number, chunks.join(" "))
    }

    #[test]
    fn messages_share_a_datagram_as_long_as_they_fit() {
        let mut bench = bench(&config(), None);
        for number in 40..44 {
            bench.message(number, &[1; 142]).unwrap();
        }
        bench.flush();
        // 64 + 2 × 150 + 148 = 512: the third would fit with 140 bytes.
        assert_eq!(bench.said(), ["500@0:40 M40:142 M41:142", "501@2:42 M42:142 M43:142"]);
    }

    #[test]
    fn a_message_that_fits_to_the_byte_is_not_cut() {
        for keys in [None, Some(KEYS)] {
            let room = DATAGRAM - 64 - 8 - if keys.is_some() { 16 } else { 0 };
            let mut bench = bench(&config(), keys);
            bench.message(40, &vec![1; room]).unwrap();
            bench.message(41, &vec![2; room + 1]).unwrap();
            bench.flush();
            let wanted = [
                format!("500@0:40 M40:{room}"),
                format!("501@1:41 F41:{}/{}", room - 4, room + 1),
                "502@2:42 R".to_owned() + &format!("{}:5.", room - 4),
            ];
            assert_eq!(bench.said(), wanted);
        }
    }

    #[test]
    fn a_long_message_fills_the_rest_and_the_next_message_follows_its_end() {
        let mut bench = bench(&config(), None);
        bench.message(40, &[1; 100]).unwrap();
        bench.message(45, &[2; 1_000]).unwrap();
        bench.message(46, &[3; 7]).unwrap();
        bench.flush();
        assert_eq!(
            bench.said(),
            [
                "500@0:40 M40:100 F45:320/1000", // with its number: 64 + 108 + 8 + 8 + 4 + 320 = 512
                "501@2:46 R320:436",
                "502@2:46 R756:244. M46:7",
            ]
        );
        assert_eq!(bench.batcher.next_message().get(), 3);
        assert_eq!(bench.batcher.next_number().get(), 47);
    }

    #[test]
    fn a_long_message_starts_in_a_new_datagram_if_nothing_of_it_fits() {
        let mut bench = bench(&config(), None);
        bench.message(40, &[1; 428]).unwrap(); // leaves 12 bytes, what a part has before its payload
        bench.message(41, &[2; 600]).unwrap();
        bench.flush();
        assert_eq!(
            bench.said(),
            ["500@0:40 M40:428", "501@1:41 F41:436/600", "502@2:42 R436:164."]
        );
    }

    #[test]
    fn a_message_that_is_too_long_is_lost_in_its_place() {
        let mut bench = bench(&config(), None);
        bench.message(40, &[1; 5]).unwrap();
        bench.message(41, &[2; 5_001]).unwrap();
        bench.message(42, &[3; 5]).unwrap();
        bench.flush();
        assert_eq!(bench.said(), ["500@0:40 M40:5 L1<42:TooLong M42:5"]);
        assert_eq!(bench.batcher.next_message().get(), 3);
    }

    #[test]
    fn names_and_losses_have_their_place_among_the_messages() {
        let mut bench = bench(&config(), None);
        let Bench { batcher, window, .. } = &mut bench;
        let name = TableName::new("plant/boiler").unwrap();
        batcher.topic(window, at(0), topic(3), name).unwrap();
        batcher.message(window, at(0), start(40), b"one").unwrap();
        batcher.lost(window, at(0), 9, start(60).number, LostReason::Overtaken).unwrap();
        batcher.message(window, at(0), start(70), b"two").unwrap();
        bench.flush();
        assert_eq!(bench.said(), ["500@0:40 plant/boiler M40:3 L9<60:Overtaken M70:3"]);
        assert_eq!(bench.batcher.next_message().get(), 11);
    }

    #[test]
    fn an_incomplete_datagram_waits_for_its_delay_and_no_longer() {
        let config = Config { batch_delay_ns: 3 * MILLISECOND, ..config() };
        let mut bench = bench(&config, None);
        assert_eq!(bench.batcher.poll_timeout(), None);
        let Bench { batcher, window, .. } = &mut bench;
        batcher.message(window, at(10), start(40), b"one").unwrap();
        batcher.message(window, at(12), start(41), b"two").unwrap();
        assert_eq!(batcher.poll_timeout(), Some(at(13).monotonic), "the first one counts");
        batcher.handle_timeout(window, at(12));
        assert_eq!(window.next_unsent(), None);
        batcher.handle_timeout(window, at(13));
        assert_eq!(batcher.poll_timeout(), None);
        assert_eq!(bench.said(), ["500@0:40 M40:3 M41:3"]);
    }

    #[test]
    fn a_datagram_that_is_long_enough_does_not_wait() {
        let config = Config { batch_bytes: Some(100), ..config() };
        let mut bench = bench(&config, None);
        bench.message(40, &[1; 27]).unwrap(); // 99 bytes
        assert!(bench.said().is_empty());
        bench.message(41, &[]).unwrap();
        bench.message(42, &[1; 28]).unwrap();
        assert_eq!(bench.said(), ["500@0:40 M40:27 M41:0", "501@2:42 M42:28"]);
    }

    #[test]
    fn a_datagram_without_room_for_another_chunk_does_not_wait() {
        let mut bench = bench(&config(), None);
        bench.message(40, &[1; 433]).unwrap(); // leaves 7 bytes
        assert_eq!(bench.said(), ["500@0:40 M40:433"]);
    }

    #[test]
    fn a_full_window_loses_nothing() {
        let mut bench = bench(&config(), None);
        bench.window = Window::new(2_048, DATAGRAM, samples::sequence(500));
        let long = vec![7; 4_000];
        let mut received = Vec::new();
        let mut turns = 0;
        while bench.message(40, &long) == Err(Full) {
            received.extend(bench.said());
            turns += 1;
        }
        bench.message(41, b"next").unwrap();
        bench.flush();
        received.extend(bench.said());
        assert!(turns > 1, "the window was never full");
        assert_eq!(received.len(), 10, "{received:?}");
        assert_eq!(received[0], "500@0:40 F40:436/4000");
        assert_eq!(received[9], "509@1:41 R3924:76. M41:4");
    }

    #[test]
    fn going_back_forgets_what_was_packed_since() {
        let mut bench = bench(&config(), Some(KEYS));
        bench.message(40, b"kept").unwrap();
        let mark = bench.batcher.mark(&bench.window);
        bench.message(41, &[1; 2_000]).unwrap();
        bench.message(42, b"torn").unwrap();
        bench.batcher.go_back(&mut bench.window, &mark);
        bench.message(50, b"new").unwrap();
        bench.flush();
        assert_eq!(bench.said(), ["500@0:40 M40:4 M50:3"]);
        assert_eq!(bench.batcher.next_message().get(), 2);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Packs the same messages twice, once with some that are taken back. Both give the same
        /// datagrams, and these have all messages in order.
        #[test]
        fn all_messages_are_in_the_datagrams_and_going_back_leaves_no_trace(
            messages in prop::collection::vec(
                (1..5_u64, prop_oneof![9 => 0..300_usize, 1 => 300..5_001_usize], 0..10_u8), 1..60,
            ),
            signed: bool,
        ) {
            let keys = signed.then_some(KEYS);
            let mut twice = bench(&config(), keys);
            let mut once = bench(&config(), keys);
            let mut number = 40;
            let mut wanted: Vec<(u64, Vec<u8>)> = Vec::new();
            let mut datagrams = Vec::new();
            for (index, (step, length, what)) in messages.into_iter().enumerate() {
                number += step;
                let payload = vec![u8::try_from(index).unwrap(); length];
                if what == 0 {
                    let mark = twice.batcher.mark(&twice.window);
                    twice.message(number, &vec![0xff; length * 2]).unwrap();
                    twice.message(number + 1, b"torn").unwrap();
                    twice.batcher.go_back(&mut twice.window, &mark);
                }
                for bench in [&mut once, &mut twice] {
                    bench.message(number, &payload).unwrap();
                    if what == 1 {
                        bench.flush();
                    }
                }
                wanted.push((number, payload));
                if what == 2 {
                    let sent = once.sent();
                    prop_assert_eq!(&sent, &twice.sent());
                    datagrams.extend(sent);
                }
            }
            once.flush();
            twice.flush();
            let sent = once.sent();
            prop_assert_eq!(&sent, &twice.sent());
            datagrams.extend(sent);

            let rules = Rules { keys: keys.as_ref(), ..RULES };
            let mut found: Vec<(u64, Vec<u8>)> = Vec::new();
            for (index, datagram) in datagrams.iter().enumerate() {
                prop_assert!(datagram.len() <= DATAGRAM);
                let parsed = parse(datagram, &rules, |_, _| Ok(())).unwrap();
                prop_assert_eq!(parsed.header.sequence.get(), 500 + index as u64);
                let Body::Data(data) = parsed.body else { panic!() };
                for placed in data.chunks() {
                    match placed.chunk {
                        Chunk::Message { start, payload } => {
                            prop_assert_eq!(placed.message.get(), found.len() as u64);
                            found.push((start.number.get(), payload.to_vec()));
                        }
                        Chunk::First { start, payload, .. } => {
                            prop_assert_eq!(placed.message.get(), found.len() as u64);
                            found.push((start.number.get(), payload.to_vec()));
                        }
                        Chunk::Rest { offset, payload, .. } => {
                            let (_, before) = found.last_mut().unwrap();
                            prop_assert_eq!(before.len(), offset as usize);
                            before.extend(payload);
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
            prop_assert_eq!(found, wanted);
        }
    }
}
