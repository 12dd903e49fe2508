//! The window: the datagrams that a sender can send again, in fixed memory.
//!
//! ```text
//!  bytes   ┌──────────┬──────┬────────┬─────────────┬───┬─────────────────┐
//!          │ (free)   │  97  │   98   │     99      │   │ ← 96 (evicted)  │  a datagram never wraps
//!          └──────────┴──▲───┴───▲────┴──────▲──────┴───┴─────────────────┘
//!                        │       │           │
//!  index   …   sequence 97      98          99       each: position, length, when it was sent again
//!
//!               trail = 97   sent = 99   lead = 100
//! ```
//!
//! Datagrams stand in a ring of bytes, one after another, so that small ones do not cost whole slots.
//! A datagram is built where it stays. When the ring or the index is full, a new datagram evicts the
//! oldest ones; nothing leaves by age. Only what was sent can be evicted, so a caller that builds
//! datagrams faster than it sends them finds the window full.

use crate::id::Sequence;
use crate::time::Monotonic;
use crate::wire::{Keys, data};

/// For this many bytes of the window, there is one entry in the index. The smallest datagrams are
/// shorter, but on the wire they take more, so the index covers at least the time that the bytes
/// do.
const BYTES_PER_ENTRY: usize = 128;

/// Where a datagram is.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// Its first byte, counted over all laps of the ring.
    position: u64,
    /// Until it is sent: when it was closed. Then: when it was sent again last, in nanoseconds plus 1; 0 if never.
    time: u64,
    length: u16,
}

/// The datagrams of one stream and session that can be sent again, and those that are still to be
/// sent.
#[derive(Debug)]
pub struct Window {
    bytes: Box<[u8]>,
    index: Box<[Entry]>,
    datagram_max: usize,
    /// The oldest datagram in the window.
    trail: Sequence,
    /// The first one that was not sent yet.
    unsent: Sequence,
    /// The next one that will be built.
    lead: Sequence,
    /// The end of the newest datagram, counted over all laps of the ring.
    head: u64,
    /// The place of the next datagram, if room was made for it.
    ready: Option<usize>,
}

impl Window {
    /// Allocates a window of this many bytes, or of 4 of the longest datagrams if that is more. The
    /// first datagram has the sequence `first`.
    #[must_use]
    pub fn new(bytes: usize, datagram_max: usize, first: Sequence) -> Self {
        let bytes = bytes.max(datagram_max.saturating_mul(4));
        Self {
            bytes: vec![0; bytes].into(),
            index: vec![Entry::default(); (bytes / BYTES_PER_ENTRY).max(4)].into(),
            datagram_max,
            trail: first,
            unsent: first,
            lead: first,
            head: 0,
            ready: None,
        }
    }

    /// Returns the first sequence that can be sent again.
    #[must_use]
    pub const fn trail(&self) -> Sequence {
        self.trail
    }

    /// Returns the first sequence that was not sent yet. If all were, that is [`Self::lead`].
    #[must_use]
    pub const fn unsent(&self) -> Sequence {
        self.unsent
    }

    /// Returns the sequence of the datagram that is built next.
    #[must_use]
    pub const fn lead(&self) -> Sequence {
        self.lead
    }

    /// Returns the memory in which the next datagram is built: as long as the longest one. Evicts the
    /// oldest datagrams for it. Until [`Self::append`] is called, the memory is the same and keeps
    /// its contents.
    ///
    /// Returns `None` if all that could be evicted must still be sent.
    #[inline]
    pub fn next_datagram(&mut self) -> Option<&mut [u8]> {
        let from = match self.ready {
            Some(from) => from,
            None => self.make_room()?,
        };
        self.bytes.get_mut(from..from + self.datagram_max)
    }

    /// Evicts datagrams until the longest one has room, and returns its place.
    #[inline(never)]
    fn make_room(&mut self) -> Option<usize> {
        let start = self.start();
        let end = start + self.datagram_max as u64;
        while !self.has_room_until(end) {
            if self.trail >= self.unsent {
                return None;
            }
            self.trail = self.trail.plus(1);
        }
        self.ready = Some(self.place(start));
        self.ready
    }

    /// Keeps what was built in the memory of [`Self::next_datagram`] and closed now, and returns its sequence.
    ///
    /// # Panics
    ///
    /// If the memory was not asked for, or is shorter than `length`.
    pub fn append(&mut self, length: usize, now: Monotonic) -> Sequence {
        let start = self.start();
        assert!(length <= self.datagram_max, "a datagram of {length} bytes is too long");
        assert!(self.ready.take().is_some(), "the memory was not asked for");
        let length = u16::try_from(length).expect("a datagram's length is a u16");
        let sequence = self.lead;
        *self.entry_mut(sequence) = Entry { position: start, time: now.ns(), length };
        self.head = start + u64::from(length);
        self.lead = sequence.plus(1);
        sequence
    }

    /// Forgets the datagrams from `lead` on, none of which was sent. The memory of the first of them
    /// is that of the next datagram again, and still has its contents.
    ///
    /// # Panics
    ///
    /// If one of them was sent.
    pub fn roll_back(&mut self, lead: Sequence) {
        assert!(lead >= self.unsent, "what was sent cannot be taken back");
        if lead < self.lead {
            self.ready = None;
            self.head = self.entry(lead).position;
            self.lead = lead;
        }
    }

    /// Returns the next datagram that is to be sent for the first time.
    #[must_use]
    pub fn next_unsent(&self) -> Option<&[u8]> {
        (self.unsent < self.lead).then(|| self.datagram(self.unsent))
    }

    /// Notes that [`Self::next_unsent`] was sent. It can be evicted now. Returns when it was closed, if there was one.
    pub fn sent(&mut self) -> Option<Monotonic> {
        if self.unsent >= self.lead {
            return None;
        }
        let closed = core::mem::take(&mut self.entry_mut(self.unsent).time);
        self.unsent = self.unsent.plus(1);
        Some(Monotonic::from_ns(closed))
    }

    /// Returns the length of the next datagram that is to be sent for the first time, in bytes.
    #[must_use]
    pub fn unsent_bytes(&self) -> Option<u64> {
        (self.unsent < self.lead).then(|| u64::from(self.entry(self.unsent).length))
    }

    /// Returns the length of all datagrams that wait to be sent for the first time, in bytes.
    #[must_use]
    pub fn unsent_total(&self) -> u64 {
        if self.unsent >= self.lead {
            return 0;
        }
        let end = self.entry(self.lead.minus(1));
        end.position + u64::from(end.length) - self.entry(self.unsent).position
    }

    /// Returns whether at most half of the window, in bytes and in datagrams, waits to be sent for the first time.
    #[must_use]
    pub fn is_half_free(&self) -> bool {
        let datagrams = self.lead.since(self.unsent);
        self.unsent_total() <= self.bytes.len() as u64 / 2
            && datagrams <= self.index.len() as u64 / 2
    }

    /// Returns a datagram that was sent and is still in the window.
    #[must_use]
    pub fn get(&self, sequence: Sequence) -> Option<&[u8]> {
        self.was_sent(sequence).then(|| self.datagram(sequence))
    }

    /// Returns when the datagram was sent again last, if it ever was and is still in the window.
    #[must_use]
    pub fn repaired(&self, sequence: Sequence) -> Option<Monotonic> {
        if !self.was_sent(sequence) {
            return None;
        }
        self.entry(sequence).time.checked_sub(1).map(Monotonic::from_ns)
    }

    /// Makes a datagram ready to be sent again and notes the time: it gets the flag RETRANSMISSION,
    /// the present trail, and a new signature.
    ///
    /// Returns `None` if it is not in the window any more, or was never sent.
    pub fn repair(
        &mut self,
        sequence: Sequence,
        now: Monotonic,
        keys: Option<&Keys>,
    ) -> Option<&[u8]> {
        if !self.was_sent(sequence) {
            return None;
        }
        self.entry_mut(sequence).time = now.ns().saturating_add(1);
        let trail = self.trail;
        let Entry { position, length, .. } = self.entry(sequence);
        let from = self.place(position);
        let datagram = self.bytes.get_mut(from..from + usize::from(length))?;
        data::retransmit(datagram, sequence, trail, keys);
        Some(datagram)
    }

    fn was_sent(&self, sequence: Sequence) -> bool {
        sequence >= self.trail && sequence < self.unsent
    }

    fn datagram(&self, sequence: Sequence) -> &[u8] {
        let Entry { position, length, .. } = self.entry(sequence);
        let from = self.place(position);
        self.bytes.get(from..from + usize::from(length)).unwrap_or_default()
    }

    /// The position of the next datagram: the next one from which the longest datagram does not
    /// wrap.
    fn start(&self) -> u64 {
        let at = self.place(self.head);
        let left = self.bytes.len() - at;
        if left < self.datagram_max { self.head + left as u64 } else { self.head }
    }

    /// Whether all datagrams of the window, and a new one that ends at `end`, have room in the ring
    /// and in the index.
    fn has_room_until(&self, end: u64) -> bool {
        if self.trail == self.lead {
            return true;
        }
        let oldest = self.entry(self.trail).position;
        end - oldest <= self.bytes.len() as u64
            && self.lead.since(self.trail) < self.index.len() as u64
    }

    fn place(&self, position: u64) -> usize {
        remainder(position, self.bytes.len())
    }

    fn entry(&self, sequence: Sequence) -> Entry {
        self.index[remainder(sequence.get(), self.index.len())]
    }

    fn entry_mut(&mut self, sequence: Sequence) -> &mut Entry {
        let at = remainder(sequence.get(), self.index.len());
        &mut self.index[at]
    }
}

fn remainder(value: u64, length: usize) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "it is below a length of memory")]
    let remainder = (value % length as u64) as usize;
    remainder
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::wire::samples::{self, KEYS, RULES};
    use crate::wire::{Body, Flags, Kind, Rules, parse};

    const MAX: usize = 100;
    const NOW: Monotonic = Monotonic::from_ns(1_000);
    /// Long enough that bytes run out before entries do.
    const LONG: usize = 300;

    fn sequence(value: u64) -> Sequence {
        Sequence::new(value).unwrap()
    }

    /// A window of 1,000 bytes and 7 entries.
    fn window() -> Window {
        Window::new(1_000, MAX, sequence(50))
    }

    fn fill(window: &mut Window, length: usize) {
        let value = window.lead().get().to_le_bytes()[0];
        window.next_datagram().unwrap()[..length].fill(value);
        window.append(length, NOW);
    }

    #[test]
    fn a_window_starts_empty_at_its_first_sequence() {
        let window = window();
        assert_eq!((window.trail(), window.lead()), (sequence(50), sequence(50)));
        assert_eq!(window.get(sequence(50)), None);
        assert_eq!(window.next_unsent(), None);
    }

    #[test]
    fn what_is_sent_says_when_it_was_closed_and_was_never_sent_again() {
        let mut window = window();
        assert_eq!(window.sent(), None);
        for at in [5, 7] {
            window.next_datagram().unwrap();
            window.append(MAX, Monotonic::from_ns(at));
        }
        assert_eq!(window.sent(), Some(Monotonic::from_ns(5)));
        assert_eq!(window.repaired(sequence(50)), None);
        assert_eq!(window.sent(), Some(Monotonic::from_ns(7)));
        assert_eq!(window.sent(), None);
    }

    #[test]
    fn what_was_sent_stays_until_new_datagrams_need_its_place() {
        let mut window = window();
        for _ in 0..30 {
            fill(&mut window, MAX);
            window.sent();
        }
        assert_eq!(window.lead(), sequence(80));
        let kept: Vec<u64> = (50..90).filter(|at| window.get(sequence(*at)).is_some()).collect();
        assert_eq!(kept, (window.trail().get()..80).collect::<Vec<_>>());
        assert_eq!(kept.len(), 7, "the index has 7 entries");
        for at in kept {
            let value = at.to_le_bytes()[0];
            assert_eq!(window.get(sequence(at)), Some(&[value; MAX][..]));
        }
    }

    #[test]
    fn small_datagrams_take_only_their_own_bytes() {
        let mut window = Window::new(1 << 16, 1_024, sequence(0));
        for _ in 0..1_000 {
            fill(&mut window, 128);
            window.sent();
        }
        // All but the room for the next datagram, and what is left at the end of the ring.
        let kept = window.lead().since(window.trail()) * 128;
        assert!(kept >= (1 << 16) - 2 * 1_024, "{kept} bytes are kept");
    }

    #[test]
    fn a_new_datagram_evicts_one_of_which_it_needs_a_single_byte() {
        let mut window = Window::new(1_200, 300, sequence(0));
        for length in [299, 300, 300, 300] {
            fill(&mut window, length);
            window.sent();
        }
        // One byte is left at the end of the ring, so the next one begins at its start. Of its 300
        // bytes, 299 are those of the first, and one is that of the second.
        fill(&mut window, 300);
        assert_eq!(window.trail(), sequence(2));
    }

    #[test]
    fn what_was_not_sent_is_never_evicted() {
        let mut window = window();
        let built = (0..100).take_while(|_| {
            let room = window.next_datagram().is_some();
            if room {
                window.append(MAX, NOW);
            }
            room
        });
        assert_eq!(built.count(), 7);
        assert!(window.next_datagram().is_none());
        assert_eq!(window.trail(), sequence(50));
        window.sent();
        assert!(window.next_datagram().is_some());
        assert_eq!(window.trail(), sequence(51));
    }

    #[test]
    fn memory_keeps_its_contents_until_the_datagram_is_complete() {
        let mut window = window();
        for round in 0..40 {
            window.next_datagram().unwrap()[..3].fill(round);
            assert_eq!(window.next_datagram().unwrap()[..3], [round; 3]);
            window.append(90, NOW);
            window.sent();
        }
    }

    #[test]
    fn datagrams_that_were_not_sent_can_be_taken_back() {
        let mut window = window();
        fill(&mut window, 90);
        window.sent();
        fill(&mut window, 80);
        let mark = window.lead();
        window.next_datagram().unwrap()[..4].copy_from_slice(b"kept");
        window.append(70, NOW);
        fill(&mut window, 60);
        window.roll_back(mark);
        assert_eq!(window.lead(), mark);
        assert_eq!(&window.next_datagram().unwrap()[..4], b"kept");
        assert_eq!(window.next_unsent().map(<[u8]>::len), Some(80));
        window.roll_back(window.unsent());
        assert_eq!(window.next_unsent(), None);
    }

    #[test]
    #[should_panic(expected = "what was sent cannot be taken back")]
    fn what_was_sent_cannot_be_taken_back() {
        let mut window = window();
        fill(&mut window, 90);
        window.sent();
        window.roll_back(sequence(50));
    }

    #[test]
    fn a_repair_is_marked_dated_and_signed() {
        let keys = Some(&KEYS);
        let mut window = Window::new(100_000, 2_000, sequence(1_000));
        let original = samples::of(Kind::Data).encode(keys);
        window.next_datagram().unwrap()[..original.len()].copy_from_slice(&original);
        window.append(original.len(), NOW);
        let now = Monotonic::from_ns(0);
        assert_eq!(window.repair(sequence(1_000), now, keys), None, "it was never sent");
        window.sent();
        assert_eq!(window.repaired(sequence(1_000)), None);
        let again = window.repair(sequence(1_000), now, keys).unwrap().to_vec();
        assert_eq!(window.repaired(sequence(1_000)), Some(now));
        let parsed = parse(&again, &Rules { keys, ..RULES }, |_, _| Ok(())).unwrap();
        assert!(parsed.header.flags.has(Flags::RETRANSMISSION));
        let Body::Data(data) = parsed.body else { panic!() };
        assert_eq!(data.trail, sequence(1_000), "the trail of the window");
        assert_eq!(window.repair(sequence(999), now, keys), None);
        assert_eq!(window.repair(sequence(1_001), now, keys), None);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Build(usize),
        Send,
        RollBack(u64),
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Compares the window with a list that never forgets.
        #[test]
        fn whatever_is_in_the_window_is_what_was_built(
            steps in prop::collection::vec(
                prop_oneof![
                    3 => (1..=LONG).prop_map(Step::Build),
                    3 => (LONG - 2..=LONG).prop_map(Step::Build),
                    4 => Just(Step::Send),
                    1 => (1..4_u64).prop_map(Step::RollBack),
                ],
                1..150,
            ),
            bytes in 1_000..4_000_usize,
        ) {
            let first = Sequence::MAX.minus(1_000_000);
            let mut window = Window::new(bytes, LONG, first);
            let mut all: VecDeque<Vec<u8>> = VecDeque::new();
            let mut unsent = 0;
            let mut value = 0_u8;
            for step in steps {
                match step {
                    Step::Build(length) => {
                        value = value.wrapping_add(1);
                        if let Some(memory) = window.next_datagram() {
                            memory[..length].fill(value);
                            window.append(length, NOW);
                            all.push_back(vec![value; length]);
                        } else {
                            // Only datagrams that must still be sent can be in the way.
                            prop_assert_eq!(window.trail(), window.unsent());
                            prop_assert!(window.lead().since(window.trail()) >= 2);
                        }
                    }
                    Step::Send => {
                        if let Some(next) = window.next_unsent() {
                            prop_assert_eq!(next, &all[unsent][..]);
                            window.sent();
                            unsent += 1;
                        }
                    }
                    Step::RollBack(count) => {
                        let lead = window.lead().minus(count).max(window.unsent());
                        window.roll_back(lead);
                        all.truncate(usize::try_from(lead.since(first)).unwrap());
                    }
                }
                prop_assert_eq!(window.lead().since(first), all.len() as u64);
                prop_assert_eq!(window.unsent().since(first), unsent as u64);
                for (at, datagram) in all.iter().enumerate() {
                    let sequence = first.plus(at as u64);
                    let kept = sequence >= window.trail() && at < unsent;
                    prop_assert_eq!(window.get(sequence), kept.then_some(&datagram[..]));
                }
            }
        }
    }
}
