//! What the ring holds, as a list.

use super::super::layout::ALIGNMENT;
use super::super::memory::Mark;
use super::super::position::{Shape, record_bytes, to_index};
use super::super::testing::{body, tag};

/// A committed message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) start: u64,
    pub(super) length: u32,
    pub(super) stamp: u64,
}

impl Message {
    pub(super) fn tag(&self) -> u32 {
        tag(self.stamp)
    }

    pub(super) fn body(&self) -> Vec<u8> {
        body(self.stamp, self.length)
    }
}

/// Every message ever committed, and how far writers have reserved.
pub(super) struct Model {
    shape: Shape,
    messages: Vec<Message>,
    end: u64,
    pub(super) reserved: u64,
    /// Messages that the stored pair of sequence and tail covers; those behind were committed by a
    /// writer that died before it said so.
    pub(super) stored: usize,
}

impl Model {
    pub(super) fn new(shape: Shape) -> Self {
        Self { shape, messages: Vec::new(), end: 0, reserved: ALIGNMENT, stored: 0 }
    }

    pub(super) fn count(&self) -> usize {
        self.messages.len()
    }

    pub(super) fn message(&self, number: u64) -> Option<&Message> {
        self.messages.get(to_index(number))
    }

    /// Where the message of this number starts, or the stream ends if there are just so many.
    pub(super) fn start(&self, number: usize) -> u64 {
        self.messages.get(number).map_or(self.end, |message| message.start)
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn stored_end(&self) -> Mark {
        self.mark(self.stored)
    }

    pub(super) fn commit(&mut self, length: u32, stamp: u64) {
        self.messages.push(Message { start: self.end, length, stamp });
        self.end += record_bytes(length);
    }

    pub(super) fn reserve(&mut self, bytes: u64) {
        let wanted = self.end + bytes + ALIGNMENT;
        if wanted > self.reserved {
            let block = self.shape.block_bytes();
            self.reserved = wanted.div_ceil(block) * block;
        }
    }

    /// Everything before it may have been overwritten.
    pub(super) fn oldest(&self) -> u64 {
        self.reserved.saturating_sub(self.shape.capacity())
    }

    pub(super) fn is_lapped(&self, position: u64) -> bool {
        position < self.oldest()
    }

    /// The first message, or the end, at or after `position`.
    pub(super) fn first_from(&self, position: u64) -> Mark {
        self.mark(self.messages.partition_point(|message| message.start < position))
    }

    /// What the blocks index has to say, block by block, oldest first.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u64, Mark)> {
        let first = self.oldest().div_ceil(self.shape.block_bytes());
        (first..=self.shape.block(self.end))
            .map(|block| (block, self.first_from(block * self.shape.block_bytes())))
    }

    /// Where a reader that was lapped goes on: the oldest entry not before the margin, else the
    /// newest there is.
    pub(super) fn resumption(&self, margin: u64) -> Mark {
        let newest = self.start(self.stored);
        let safe = (self.oldest() + margin).min(newest);
        let known = || self.entries().map(|(_, mark)| mark).filter(|mark| mark.position <= newest);
        known().find(|mark| mark.position >= safe).or_else(|| known().last()).unwrap()
    }

    fn mark(&self, number: usize) -> Mark {
        Mark { position: self.start(number), sequence: number as u64 }
    }
}
