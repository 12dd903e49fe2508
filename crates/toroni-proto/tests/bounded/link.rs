//! A connection in virtual time: the buffer of the sending kernel, a rate, a delay, and pieces of any length.

use std::collections::VecDeque;

use crate::random::Random;
use crate::time::SECOND;

/// One direction of a connection.
#[derive(Debug)]
pub(super) struct Pipe {
    /// What the kernel has taken, and not sent yet.
    buffer: VecDeque<u8>,
    /// Of the frame that was written last, a part is missing.
    pub(super) is_within_a_frame: bool,
    pub(super) capacity: usize,
    /// Bytes in a second.
    pub(super) rate: u64,
    credit: u64,
    delay: u64,
    /// What is on its way, with its time of arrival.
    flight: VecDeque<(u64, u8)>,
    arrived: VecDeque<u8>,
}

impl Pipe {
    pub(super) fn new(capacity: usize, rate: u64, delay: u64) -> Self {
        Self {
            buffer: VecDeque::new(),
            is_within_a_frame: false,
            capacity,
            rate,
            credit: 0,
            delay,
            flight: VecDeque::new(),
            arrived: VecDeque::new(),
        }
    }

    /// Takes as many of the bytes as there is room for: a frame, or the rest of one.
    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        let length = bytes.len().min(self.capacity - self.buffer.len());
        self.buffer.extend(&bytes[..length]);
        self.is_within_a_frame = length < bytes.len() && (self.is_within_a_frame || length > 0);
        length
    }

    pub(super) fn is_writable(&self) -> bool {
        self.buffer.len() < self.capacity
    }

    /// Whether all bytes were read.
    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.flight.is_empty() && self.arrived.is_empty()
    }

    /// Moves bytes, unless the link stands still. The receiver's kernel takes what it has room for.
    pub(super) fn advance(&mut self, now: u64, by_ns: u64, stopped: bool) {
        if !stopped {
            self.credit += self.rate * by_ns;
            let room = self.capacity.saturating_sub(self.arrived.len() + self.flight.len());
            let bytes = usize::try_from(self.credit / SECOND).unwrap();
            let bytes = bytes.min(self.buffer.len()).min(room.max(1));
            self.credit -= bytes as u64 * SECOND;
            // An idle link saves nothing up.
            self.credit = self.credit.min(self.rate * by_ns + SECOND);
            let at = now + self.delay;
            self.flight.extend(self.buffer.drain(..bytes).map(|byte| (at, byte)));
        }
        while let Some((at, byte)) = self.flight.front()
            && *at <= now
        {
            self.arrived.push_back(*byte);
            self.flight.pop_front();
        }
    }

    /// Reads a piece of any length.
    pub(super) fn read(&mut self, room: &mut [u8], random: &mut Random) -> usize {
        let most = self.arrived.len().min(room.len());
        let most = match random.below(4) {
            0 => most.min(usize::try_from(random.between(1, 20)).unwrap()),
            _ => most,
        };
        for (place, byte) in room.iter_mut().zip(self.arrived.drain(..most)) {
            *place = byte;
        }
        most
    }

    /// Changes one byte on its way.
    pub(super) fn corrupt(&mut self, random: &mut Random) {
        let length = self.flight.len() as u64;
        if length > 0 {
            let at = usize::try_from(random.below(length)).unwrap();
            self.flight[at].1 ^= 1 << random.below(8);
        }
    }
}
