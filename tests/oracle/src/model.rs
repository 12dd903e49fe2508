//! The content of the ring, as a list.

/// Bytes of a header, and what records are padded to.
const WORD: u64 = 8;
/// Blocks of a ring.
const BLOCKS: u64 = 64;

/// A place where a message begins, or the stream ends, and the number of the message there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordStart {
    /// In bytes since the bus was created.
    pub position: u64,
    pub sequence: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    pub start: u64,
    /// Extensions and payload, in bytes.
    pub length: u32,
    /// Says whose its bytes are: no other attempt to write has the same.
    pub stamp: u64,
}

/// Every message ever committed, and how far writers have reserved.
#[derive(Clone, Debug)]
pub struct Model {
    capacity: u64,
    messages: Vec<Message>,
    end: u64,
    /// Before this, minus the capacity, all may have been overwritten.
    pub reserved: u64,
    /// Messages that the stored pair of sequence and tail covers. Later ones were committed by a writer that died before
    /// it stored the pair.
    pub stored: usize,
}

/// Bytes that a record of this length takes in the stream.
#[must_use]
pub fn record_bytes(length: u32) -> u64 {
    WORD + u64::from(length).next_multiple_of(WORD)
}

impl Model {
    /// A new bus; its capacity in bytes.
    #[must_use]
    pub fn new(capacity: u64) -> Self {
        Self { capacity, messages: Vec::new(), end: 0, reserved: WORD, stored: 0 }
    }

    /// Bytes of the ring.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.capacity / BLOCKS
    }

    #[must_use]
    pub fn count(&self) -> usize {
        self.messages.len()
    }

    /// The message of this number.
    #[must_use]
    pub fn message(&self, number: u64) -> Option<&Message> {
        self.messages.get(usize::try_from(number).ok()?)
    }

    /// Returns where the message of this number starts, or the end of the stream if it is the next to come.
    #[must_use]
    pub fn start(&self, number: u64) -> u64 {
        self.message(number).map_or(self.end, |message| message.start)
    }

    /// Where the stream ends.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns the end of the stream according to the stored tail.
    #[must_use]
    pub fn stored_end(&self) -> RecordStart {
        self.record_start(self.stored)
    }

    pub fn commit(&mut self, length: u32, stamp: u64) {
        self.messages.push(Message { start: self.end, length, stamp });
        self.end += record_bytes(length);
    }

    /// Returns up to where the stream has to be reserved for `bytes` more bytes; `None` if it already is.
    #[must_use]
    pub fn wanted(&self, bytes: u64) -> Option<u64> {
        let wanted = self.end + bytes + WORD;
        (wanted > self.reserved).then(|| wanted.next_multiple_of(self.block_bytes()))
    }

    /// Reserves the stream for `bytes` more bytes.
    pub fn reserve(&mut self, bytes: u64) {
        if let Some(wanted) = self.wanted(bytes) {
            self.reserved = wanted;
        }
    }

    /// Everything before it may have been overwritten.
    #[must_use]
    pub fn oldest(&self) -> u64 {
        self.reserved.saturating_sub(self.capacity)
    }

    /// Whether what stands there may have been overwritten.
    #[must_use]
    pub fn is_lapped(&self, position: u64) -> bool {
        position < self.oldest()
    }

    /// The first message, or the end, at or after `position`.
    #[must_use]
    pub fn first_from(&self, position: u64) -> RecordStart {
        self.record_start(self.messages.partition_point(|message| message.start < position))
    }

    /// What the blocks index has to say, block by block, oldest first.
    pub fn entries(&self) -> impl Iterator<Item = (u64, RecordStart)> {
        let first = self.oldest().div_ceil(self.block_bytes());
        (first..=self.end / self.block_bytes())
            .map(|block| (block, self.first_from(block * self.block_bytes())))
    }

    /// Returns where a lapped reader continues: at the oldest entry not before the margin, or else at the newest.
    #[must_use]
    pub fn resumption(&self, margin: u64) -> RecordStart {
        let newest = self.stored_end().position;
        let safe = (self.oldest() + margin).min(newest);
        let known =
            || self.entries().map(|(_, start)| start).filter(|start| start.position <= newest);
        known().find(|start| start.position >= safe).or_else(|| known().last()).unwrap()
    }

    /// Where a reader that asks for this position starts, or why it cannot.
    ///
    /// # Errors
    /// See [`NoSuchStart`].
    pub fn start_at(&self, position: u64) -> Result<RecordStart, NoSuchStart> {
        let first = self.first_from(position);
        let oldest = self.first_from(self.oldest()).position;
        if !position.is_multiple_of(WORD) {
            Err(NoSuchStart::NotAPosition)
        } else if position > self.end {
            Err(NoSuchStart::Ahead { end: self.end })
        } else if position < oldest {
            Err(NoSuchStart::Lost { oldest })
        } else if position == first.position {
            Ok(first)
        } else {
            Err(NoSuchStart::NotAPosition)
        }
    }

    /// Where a reader that asks for this sequence starts, or why it cannot. The numbers in the errors are
    /// sequences.
    ///
    /// # Errors
    /// See [`NoSuchStart`].
    pub fn start_at_sequence(&self, sequence: u64) -> Result<RecordStart, NoSuchStart> {
        let (oldest, end) = (self.first_from(self.oldest()).sequence, self.count() as u64);
        if sequence > end {
            Err(NoSuchStart::Ahead { end })
        } else if sequence < oldest {
            Err(NoSuchStart::Lost { oldest })
        } else {
            Ok(RecordStart { position: self.start(sequence), sequence })
        }
    }

    fn record_start(&self, number: usize) -> RecordStart {
        let sequence = number as u64;
        RecordStart { position: self.start(sequence), sequence }
    }
}

/// Why no reader can start at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSuchStart {
    /// No message begins there.
    NotAPosition,
    /// The stream ends before.
    Ahead { end: u64 },
    /// It is no longer in the ring.
    Lost {
        /// Position of the oldest message that is.
        oldest: u64,
    },
}

/// Returns the bytes of the message with this stamp. Every word contains stamp and place, so that a torn message is
/// noticed.
#[must_use]
pub fn body(stamp: u64, length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length + 8);
    let mut word = (stamp + 1) << 16;
    while bytes.len() < length {
        word += 1;
        bytes.extend(word.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
