//! One end of a connection as a state machine: it learns what has completed, and returns what to start next. All columns
//! run the same one, whatever moves the bytes.

use super::Plan;
use crate::Failure;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The state of an end.
#[derive(Debug)]
pub struct End {
    part: Part,
    block: usize,
    window: u64,
    sent: u64,
    received: u64,
    reading: bool,
    /// The part that is being written; see [`Wanted::write`].
    writing: Option<Range<usize>>,
    operations: Arc<AtomicU64>,
    #[cfg(test)]
    watch: Option<Arc<AtomicU64>>,
}

/// Which end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It connects, and writes blocks.
    Client,
    /// It writes back what it reads.
    Server,
}

/// The operations that an end wants to start. It does not want an operation again while that is under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "an end stands still until what it wants is started"]
pub struct Wanted {
    /// Whether to read, up to a block.
    pub read: bool,
    /// The part to write: a client writes of [`block`], a server of what it has read.
    pub write: Option<Range<usize>>,
}

/// Returns what clients write repeatedly; no byte equals the one before it.
#[must_use]
pub fn block(bytes: usize) -> Vec<u8> {
    let pattern: Vec<u8> = (0..251).collect();
    let mut block = pattern.repeat(bytes.div_ceil(pattern.len()));
    block.truncate(bytes);
    block
}

impl End {
    /// Makes an end that has not begun.
    #[must_use]
    pub fn new(part: Part, plan: &Plan) -> Self {
        Self {
            part,
            block: plan.block_bytes,
            window: plan.window_bytes,
            sent: 0,
            received: 0,
            reading: false,
            writing: None,
            operations: Arc::default(),
            #[cfg(test)]
            watch: None,
        }
    }

    /// Returns a counter of what it has received.
    #[cfg(test)]
    pub(super) fn watched(&mut self) -> Arc<AtomicU64> {
        Arc::clone(self.watch.insert(Arc::default()))
    }

    /// Returns the counter of its completed operations.
    pub(super) fn operations(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.operations)
    }

    /// Returns which end it is.
    #[must_use]
    pub fn part(&self) -> Part {
        self.part
    }

    /// Returns the first operations to start.
    pub fn begin(&mut self) -> Wanted {
        let mut wanted = Wanted::default();
        match self.part {
            Part::Client => {
                self.write_block(&mut wanted);
                if self.window > 0 {
                    self.read_on(&mut wanted);
                }
            }
            Part::Server => self.read_on(&mut wanted),
        }
        wanted
    }

    /// Handles a read that has completed with these bytes.
    ///
    /// # Errors
    /// If they are not those that were sent, or there are none: no end closes before the time is over.
    pub fn read(&mut self, bytes: &[u8]) -> Result<Wanted, Failure> {
        if bytes.is_empty() {
            return Err(Failure::new("a connection was closed before the time was over"));
        }
        self.check(bytes)?;
        self.count();
        self.reading = false;
        self.received += bytes.len() as u64;
        #[cfg(test)]
        if let Some(watch) = &self.watch {
            watch.store(self.received, Ordering::Relaxed);
        }
        let mut wanted = Wanted::default();
        match self.part {
            Part::Server => self.write(0..bytes.len(), &mut wanted),
            Part::Client if self.window > 0 => {
                self.read_on(&mut wanted);
                self.write_if_in_window(&mut wanted);
            }
            Part::Client if self.received < self.sent => self.read_on(&mut wanted),
            Part::Client => self.write_block(&mut wanted),
        }
        Ok(wanted)
    }

    /// Handles a write that has completed with this number of bytes.
    pub fn written(&mut self, bytes: usize) -> Wanted {
        let mut wanted = Wanted::default();
        self.count();
        self.sent += bytes as u64;
        if let Some(rest) = self.writing.take().map(|range| range.start + bytes..range.end)
            && !rest.is_empty()
        {
            self.write(rest, &mut wanted);
            return wanted;
        }
        match self.part {
            Part::Client if self.window > 0 => self.write_if_in_window(&mut wanted),
            Part::Client | Part::Server => self.read_on(&mut wanted),
        }
        wanted
    }

    /// Counts an operation. Only one thread at a time has an end, so this needs no locked instruction.
    fn count(&self) {
        self.operations.store(self.operations.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn write_if_in_window(&mut self, wanted: &mut Wanted) {
        if self.writing.is_none() && self.sent - self.received < self.window {
            self.write_block(wanted);
        }
    }

    fn write_block(&mut self, wanted: &mut Wanted) {
        self.write(0..self.block, wanted);
    }

    fn write(&mut self, range: Range<usize>, wanted: &mut Wanted) {
        self.writing = Some(range.clone());
        wanted.write = Some(range);
    }

    fn read_on(&mut self, wanted: &mut Wanted) {
        wanted.read = !self.reading;
        self.reading = true;
    }

    /// Checks that these bytes are the next in the endless sequence of blocks.
    fn check(&self, mut bytes: &[u8]) -> Result<(), Failure> {
        let block_bytes = self.block as u64;
        let mut at = usize::try_from(self.received % block_bytes).unwrap_or(0);
        while !bytes.is_empty() {
            let length = bytes.len().min(self.block - at);
            let (head, rest) = bytes.split_at(length);
            if !is_part_of_block(head, at) {
                return Err(Failure::new(format!(
                    "the {:?} read other bytes than were sent, at {} to {} of the stream",
                    self.part,
                    self.received,
                    self.received + head.len() as u64
                )));
            }
            (bytes, at) = (rest, 0);
        }
        Ok(())
    }
}

/// Checks the first and the last byte: checking all bytes would be more work than moving them.
fn is_part_of_block(bytes: &[u8], at: usize) -> bool {
    let expected = |index: usize| u8::try_from((at + index) % 251).ok();
    let last = bytes.len() - 1;
    bytes.first().copied() == expected(0) && bytes.last().copied() == expected(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(range: Range<usize>) -> Wanted {
        Wanted { write: Some(range), read: false }
    }

    fn read() -> Wanted {
        Wanted { write: None, read: true }
    }

    #[test]
    fn without_a_window_a_client_writes_reads_and_writes() {
        let mut client = End::new(Part::Client, &Plan::short(1, 1, 8, 0));
        let bytes = block(8);
        assert_eq!(client.begin(), write(0..8));
        assert_eq!(client.written(5), write(5..8));
        assert_eq!(client.written(3), read());
        assert_eq!(client.read(&bytes[..6]).unwrap(), read());
        assert_eq!(client.read(&bytes[6..]).unwrap(), write(0..8));
    }

    #[test]
    fn with_a_window_a_read_is_always_under_way_and_restarts_a_stalled_writer() {
        let mut client = End::new(Part::Client, &Plan::short(1, 1, 8, 16));
        let bytes = block(8);
        assert_eq!(client.begin(), Wanted { read: true, write: Some(0..8) });
        assert_eq!(client.written(8), write(0..8));
        assert_eq!(client.written(8), Wanted::default(), "the window is full");
        assert_eq!(
            client.read(&bytes[..3]).unwrap(),
            Wanted { read: true, write: Some(0..8) },
            "there is room again"
        );
        assert_eq!(client.read(&bytes[3..]).unwrap(), read(), "a write is under way");
    }

    #[test]
    fn a_server_writes_back_what_it_reads() {
        let mut server = End::new(Part::Server, &Plan::short(1, 1, 8, 16));
        let bytes = block(8);
        assert_eq!(server.begin(), read());
        assert_eq!(server.read(&bytes[..5]).unwrap(), write(0..5));
        assert_eq!(server.written(2), write(2..5));
        assert_eq!(server.written(3), read());
        assert_eq!(server.read(&[&bytes[5..], &bytes[..2]].concat()).unwrap(), write(0..5));
    }

    #[test]
    fn other_bytes_and_an_end_are_failures() {
        let mut server = End::new(Part::Server, &Plan::short(1, 1, 8, 0));
        assert!(server.read(&[]).is_err());
        assert!(server.read(&block(8)[1..]).is_err());
        let mut wrong = block(8);
        wrong[7] = 0;
        assert!(server.read(&wrong).is_err());
    }
}
