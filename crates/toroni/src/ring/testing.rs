//! Rings on plain memory, for tests and loom models, and messages whose bytes identify them.

use super::layout::{ALIGNMENT, BLOCKS, BlockEntry, Control, Line, NO_ENTRY, ValueEntry};
use super::memory::Ring;
use super::position::{Shape, record_bytes, to_index};
use super::values::{UNIT_WORDS, Values};
use super::writer::header;
use crate::sync::{AtomicU32, AtomicU64};

/// The memory that a bus maps: the control words, and the stream's words once.
pub(super) struct Memory {
    pub(super) control: Control,
    pub(super) words: Vec<AtomicU64>,
    shape: Shape,
    index: Vec<AtomicU32>,
    entries: Vec<ValueEntry>,
    area: Vec<AtomicU64>,
}

impl Memory {
    /// Returns its values, if it has any.
    pub(super) fn values(&self) -> Option<Values<'_>> {
        let Self { index, entries, area, .. } = self;
        (!entries.is_empty()).then_some(Values { index, entries, area })
    }

    /// Adds values: of as many topics, in as many units.
    pub(super) fn with_values(mut self, topics: usize, units: usize) -> Self {
        self.index = (0..topics).map(|_| AtomicU32::new(0)).collect();
        self.entries = (0..topics).map(|_| ValueEntry::default()).collect();
        self.area = (0..units * UNIT_WORDS).map(|_| AtomicU64::new(0)).collect();
        self
    }

    /// Returns the memory of a new bus. `capacity` is in bytes.
    pub(super) fn new(capacity: u64) -> Self {
        let shape = Shape::new(capacity).unwrap();
        let words = (0..capacity / 8).map(|_| AtomicU64::new(0)).collect();
        Self::of(Control::default(), words, shape)
    }

    /// Returns a stream that begins at `start` and holds one message for each length, with the
    /// stamps 0, 1, 2, …, as a correct writer leaves it. It is built without the code under test
    /// and without atomic stores, so that a model starts with the step that it is about.
    pub(super) fn laid(capacity: u64, start: u64, lengths: &[u32]) -> Self {
        let shape = Shape::new(capacity).unwrap();
        let index = |position: u64| to_index(position % capacity / 8);
        let mut words = vec![0; to_index(capacity / 8)];
        let mut starts = vec![start];
        let mut position = start;
        for (stamp, length) in (0..).zip(lengths) {
            words[index(position)] = header(*length, tag(stamp));
            for (at, word) in (1..).zip(body(stamp, *length).chunks(8)) {
                let mut padded = [0; 8];
                padded[..word.len()].copy_from_slice(word);
                words[index(position + at * 8)] = u64::from_ne_bytes(padded);
            }
            position += record_bytes(*length);
            starts.push(position);
        }
        words[index(position)] = 0;

        let mut control = Control::default();
        control.commit.0.tail = AtomicU64::new(position);
        control.commit.0.next = AtomicU64::new(position);
        control.commit.0.sequence = AtomicU64::new(lengths.len() as u64);
        control.reserved = Line(AtomicU64::new(shape.round_up_to_block(position + ALIGNMENT)));
        control.index = core::array::from_fn(|_| entry(NO_ENTRY, 0));
        for block in shape.block(start)..=shape.block(position) {
            let first = starts.iter().position(|start| *start >= block * shape.block_bytes());
            let first = first.unwrap();
            control.index[to_index(block % BLOCKS)] = entry(starts[first], first as u64);
        }
        Self::of(control, words.into_iter().map(AtomicU64::new).collect(), shape)
    }

    fn of(control: Control, words: Vec<AtomicU64>, shape: Shape) -> Self {
        let (index, entries, area) = (Vec::new(), Vec::new(), Vec::new());
        Self { control, words, shape, index, entries, area }
    }

    pub(super) fn ring(&self) -> Ring<'_> {
        Ring::new(&self.control, &self.words, self.shape).unwrap()
    }

    pub(super) fn shape(&self) -> Shape {
        self.shape
    }
}

fn entry(position: u64, sequence: u64) -> BlockEntry {
    BlockEntry { position: AtomicU64::new(position), sequence: AtomicU64::new(sequence) }
}

/// Returns the tag of the message with this stamp. No other attempt to write has the same tag, not
/// even an aborted one.
pub(super) fn tag(stamp: u64) -> u32 {
    0x0100_0000 | u32::try_from(stamp & 0xFF_FFFF).unwrap()
}

/// Returns the extensions and payload of the message with this stamp. Every word contains the stamp
/// and its own number, so that any torn bytes are noticed.
pub(super) fn body(stamp: u64, length: u32) -> Vec<u8> {
    let words = (1..).map(|number: u64| (stamp + 1) << 16 | number);
    words.flat_map(u64::to_ne_bytes).take(to_index(length.into())).collect()
}
