//! Numbers of one worker, in a file that outlives it.

use super::stalls::{BUCKETS, bucket};
use super::verifier::Delivery;
use crate::shared::words_of;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many of its last messages a record keeps.
const RECENT: usize = 4096;
const WORDS_OF_MESSAGE: usize = 4;
const TIMES: usize = 16;
const RECENT_START: usize = TIMES + BUCKETS;
const WORDS: usize = RECENT_START + RECENT * WORDS_OF_MESSAGE;

/// What a worker counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Messages that the bus confirmed to it, or that it received.
    Messages,
    /// How often it has left the bus and joined it again.
    Rejoins,
    /// How often the bus reported a loss, and how many messages that was.
    Lapses,
    Lost,
    /// Its longest stall, in nanoseconds.
    LongestStall,
    /// Raised by the supervisor before it stops the worker, and when the worker continues: what it measured
    /// meanwhile is no stall.
    Disturbed,
    /// Not 0: the worker shall end in order.
    Leave,
    /// Messages that were noted among the recent ones.
    Noted,
    /// How often it became the exclusive publisher.
    Reigns,
    /// Calls that an exclusive publisher kept out.
    KeptOut,
    /// Values of retained topics that it compared with what it had received.
    Values,
}

/// A worker's view of its record.
pub struct ProgressRecord(&'static [AtomicU64]);

/// What a supervisor reads of a record, also of a dead worker's.
#[derive(Debug)]
pub struct ProgressFile(File);

impl ProgressRecord {
    /// Opens the record in this file; makes it if it is not there.
    #[must_use]
    pub fn open(path: &Path) -> Self {
        Self(words_of(path, WORDS))
    }

    #[must_use]
    pub fn get(&self, count: Count) -> u64 {
        self.0[count as usize].load(Ordering::Acquire)
    }

    pub fn set(&self, count: Count, value: u64) {
        self.0[count as usize].store(value, Ordering::Release);
    }

    /// Adds to a count.
    pub fn add(&self, count: Count, more: u64) {
        self.set(count, self.get(count) + more);
    }

    /// Counts a time, in nanoseconds.
    pub fn add_time(&self, ns: u64) {
        let word = &self.0[TIMES + bucket(ns)];
        word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if ns > self.get(Count::LongestStall) {
            self.set(Count::LongestStall, ns);
        }
    }

    /// Remembers a message, for a post-mortem: sequence, position, length, and its first bytes.
    pub fn note(&self, delivery: &Delivery<'_>) {
        let number = self.get(Count::Noted);
        let index = usize::try_from(number % RECENT as u64).unwrap_or(0);
        let words = &self.0[RECENT_START + index * WORDS_OF_MESSAGE..][..WORDS_OF_MESSAGE];
        let mut head = [0; 8];
        let length = delivery.payload.len().min(8);
        head[..length].copy_from_slice(&delivery.payload[..length]);
        let values = [
            delivery.sequence,
            delivery.position,
            delivery.payload.len() as u64,
            u64::from_le_bytes(head),
        ];
        for (word, value) in words.iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
        self.set(Count::Noted, number + 1);
    }
}

impl ProgressFile {
    /// Makes the record of a new worker.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn create(path: &Path) -> std::io::Result<Self> {
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(path)?;
        file.set_len(WORDS as u64 * 8)?;
        Ok(Self(file))
    }

    /// A count.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn get(&self, count: Count) -> std::io::Result<u64> {
        Ok(self.words(count as usize, 1)?[0])
    }

    /// Tells the worker that it is about to be stopped, or continues.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn disturb(&self) -> std::io::Result<()> {
        self.set(Count::Disturbed, self.get(Count::Disturbed)? + 1)
    }

    /// Tells the worker to end in order.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn ask_to_leave(&self) -> std::io::Result<()> {
        self.set(Count::Leave, 1)
    }

    /// The counts of times, in the order of [`bucket`].
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn times(&self) -> std::io::Result<Vec<u64>> {
        self.words(TIMES, BUCKETS)
    }

    fn set(&self, count: Count, value: u64) -> std::io::Result<()> {
        self.0.write_all_at(&value.to_ne_bytes(), count as u64 * 8)
    }

    fn words(&self, start: usize, count: usize) -> std::io::Result<Vec<u64>> {
        let mut bytes = vec![0; count * 8];
        self.0.read_exact_at(&mut bytes, start as u64 * 8)?;
        let (words, _) = bytes.as_chunks::<8>();
        Ok(words.iter().map(|word| u64::from_ne_bytes(*word)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TempRoot;

    #[test]
    fn the_supervisor_reads_what_the_worker_counted() {
        let root = TempRoot::new();
        let path = root.file("record");
        let file = ProgressFile::create(&path).unwrap();
        let record = ProgressRecord::open(&path);
        record.set(Count::Messages, 7);
        record.add(Count::Messages, 2);
        record.add_time(1000);
        record.add_time(10);
        file.disturb().unwrap();
        assert_eq!(record.get(Count::Disturbed), 1);
        assert_eq!(file.get(Count::Messages).unwrap(), 9);
        assert_eq!(file.get(Count::LongestStall).unwrap(), 1000);
        let times = file.times().unwrap();
        assert_eq!((times[bucket(1000)], times[bucket(10)]), (1, 1));
        let delivery =
            Delivery { sequence: 1, position: 2, next_position: None, topic: "", payload: b"abc" };
        for _ in 0..2 * RECENT {
            record.note(&delivery);
        }
        assert_eq!(record.get(Count::Noted), 2 * RECENT as u64);
    }
}
