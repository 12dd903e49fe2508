//! Receive buffers of a fixed number and size.

use crate::time::Monotonic;

/// One buffer of a [`Pool`]. Its owner may use it, and must give it back.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
#[must_use = "a buffer that is not given back is lost for the pool"]
pub struct Buffer(u32);

/// Memory for datagrams that were received. All of it is allocated at the start.
#[derive(Debug)]
pub struct Pool {
    memory: Box<[u8]>,
    buffer_bytes: usize,
    /// When the datagram in each buffer was received.
    arrivals: Box<[Monotonic]>,
    /// The buffers that are not in use. It never grows beyond the number of buffers.
    free: Vec<u32>,
}

impl Pool {
    /// Allocates this many buffers of this many bytes.
    #[must_use]
    pub fn new(buffers: u32, buffer_bytes: usize) -> Self {
        Self {
            memory: vec![0; buffers as usize * buffer_bytes].into(),
            buffer_bytes,
            arrivals: vec![Monotonic::default(); buffers as usize].into(),
            free: (0..buffers).rev().collect(),
        }
    }

    /// Takes a buffer, if one is free.
    pub fn take(&mut self) -> Option<Buffer> {
        self.free.pop().map(Buffer)
    }

    /// Gives a buffer back.
    pub fn give(&mut self, buffer: Buffer) {
        debug_assert!(!self.get(&buffer).is_empty(), "a buffer of another pool");
        self.free.push(buffer.0);
    }

    /// Notes when the datagram in a buffer was received.
    pub fn arrived(&mut self, buffer: &Buffer, now: Monotonic) {
        if let Some(arrival) = self.arrivals.get_mut(buffer.0 as usize) {
            *arrival = now;
        }
    }

    /// Returns when the datagram in a buffer was received.
    #[must_use]
    pub fn arrival(&self, buffer: &Buffer) -> Monotonic {
        self.arrivals.get(buffer.0 as usize).copied().unwrap_or_default()
    }

    /// Returns how many buffers are free.
    #[must_use]
    pub const fn free(&self) -> usize {
        self.free.len()
    }

    /// Returns the memory of a buffer.
    #[must_use]
    pub fn get(&self, buffer: &Buffer) -> &[u8] {
        let from = buffer.0 as usize * self.buffer_bytes;
        self.memory.get(from..from + self.buffer_bytes).unwrap_or_default()
    }

    /// Returns the memory of a buffer, to receive into it.
    pub fn get_mut(&mut self, buffer: &Buffer) -> &mut [u8] {
        let from = buffer.0 as usize * self.buffer_bytes;
        self.memory.get_mut(from..from + self.buffer_bytes).unwrap_or_default()
    }

    /// Returns the memory of several buffers, to receive into all of them with one system call. The buffers must be
    /// sorted; those after the first that is not are left out.
    pub fn slices_mut<'a>(
        &'a mut self,
        buffers: &'a [Buffer],
    ) -> impl Iterator<Item = &'a mut [u8]> {
        let size = self.buffer_bytes;
        let (mut rest, mut passed) = (&mut self.memory[..], 0);
        buffers.iter().map_while(move |buffer| {
            let skipped = (buffer.0 as usize * size).checked_sub(passed)?;
            let (_, from) = std::mem::take(&mut rest).split_at_mut_checked(skipped)?;
            let (memory, behind) = from.split_at_mut_checked(size)?;
            rest = behind;
            passed += skipped + size;
            Some(memory)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_buffer_has_memory_of_its_own_and_is_given_out_once() {
        let mut pool = Pool::new(3, 10);
        let mut buffers: Vec<Buffer> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!((buffers.len(), pool.free()), (3, 0));
        for (value, buffer) in (0..).zip(&buffers) {
            pool.get_mut(buffer).fill(value);
        }
        for (value, buffer) in (0..).zip(&buffers) {
            assert_eq!(pool.get(buffer), [value; 10]);
        }
        let last = buffers.pop().unwrap();
        pool.give(last);
        assert_eq!(pool.free(), 1);
        assert!(pool.take().is_some());
    }

    #[test]
    fn several_buffers_are_lent_at_once() {
        let mut pool = Pool::new(5, 4);
        let all: Vec<Buffer> = std::iter::from_fn(|| pool.take()).collect();
        let some = [Buffer(1), Buffer(2), Buffer(4)];
        for (value, memory) in (7..).zip(pool.slices_mut(&some)) {
            memory.fill(value);
        }
        let found: Vec<&[u8]> = all.iter().map(|buffer| pool.get(buffer)).collect();
        assert_eq!(found, [[0; 4], [7; 4], [8; 4], [0; 4], [9; 4]]);
        // Neither twice, nor in another order, nor one of another pool.
        for buffers in [[Buffer(1), Buffer(1)], [Buffer(1), Buffer(0)], [Buffer(1), Buffer(5)]] {
            assert_eq!(pool.slices_mut(&buffers).count(), 1);
        }
    }
}
