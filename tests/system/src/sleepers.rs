//! The words by which subscribers sleep and are woken, as a process with the rights of a subscriber sees them: where they are
//! in the files of a bus, and what the kernel does with them.

use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Offsets in the header of `ring`: see `RawHeader` in the library's `ring/layout.rs`.
const DATA_OFFSET: u64 = 64 + 24;
const MAX_SUBSCRIBERS: u64 = 64 + 36;
const REGIONS: u64 = 208;
/// Kinds of regions: see `shm/regions.rs` there.
const WAKE_WORDS: usize = 3;
const ROWS: usize = 6;
/// Offsets in `readers`: see `ReadersControl` there.
const SLEEPS: usize = 128;
const SLOTS_USED: usize = 128 + 3 * 128;
const ARMING: usize = 4096;

/// The futex words, read-only.
#[derive(Clone, Copy, Debug)]
pub struct WakeWords {
    words: &'static [AtomicU32],
}

impl WakeWords {
    /// # Panics
    /// If there is no such bus.
    #[must_use]
    pub fn of(bus: &Path) -> Self {
        let ring = File::open(bus.join("ring")).expect("the ring");
        let bytes = number::<8>(&ring, DATA_OFFSET);
        let count = number::<4>(&ring, MAX_SUBSCRIBERS);
        let (first, _) = region(&ring, WAKE_WORDS);
        let address = map(&ring, bytes, ProtFlags::READ);
        assert!(first + 4 * count <= bytes, "the words are before the stream");
        // SAFETY: the words are in the mapping, which stays until the process ends. Others access them by atomic operations.
        let words =
            unsafe { std::slice::from_raw_parts((address + first) as *const AtomicU32, count) };
        Self { words }
    }

    /// One for each slot.
    #[must_use]
    pub fn count(&self) -> usize {
        self.words.len()
    }

    /// Sleeps on a word, for this time at most. Returns whether it was woken.
    #[must_use]
    pub fn wait(&self, slot: usize, at_most: Duration) -> bool {
        let word = &self.words[slot];
        let value = word.load(Ordering::Relaxed);
        let limit = libc::timespec {
            tv_sec: i64::try_from(at_most.as_secs()).expect("a short time"),
            tv_nsec: at_most.subsec_nanos().into(),
        };
        // SAFETY: the word stays mapped, and the time outlives the call.
        let answer = unsafe {
            libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const limit)
        };
        answer == 0
    }

    /// Moves all that sleep on a word to another one, without waking any. Returns how many they were.
    #[must_use]
    pub fn requeue(&self, from: usize, to: usize) -> u64 {
        let [from, to] = [from, to].map(|slot| self.words[slot].as_ptr());
        let all = usize::try_from(i32::MAX).expect("a number");
        // SAFETY: both words stay mapped. The kernel does not write to them.
        let answer =
            unsafe { libc::syscall(libc::SYS_futex, from, libc::FUTEX_REQUEUE, 0, all, to, 0) };
        u64::try_from(answer).unwrap_or(0)
    }
}

/// What subscribers say of themselves: the first part of `readers`, which each of them may write.
#[derive(Clone, Copy, Debug)]
pub struct SleepersFile {
    address: usize,
    slots: usize,
    /// Where the rows begin.
    first: usize,
    topics: usize,
}

impl SleepersFile {
    /// # Panics
    /// If there is no such bus.
    #[must_use]
    pub fn of(bus: &Path) -> Self {
        let ring = File::open(bus.join("ring")).expect("the ring");
        let slots = number::<4>(&ring, MAX_SUBSCRIBERS);
        let (first, topics) = region(&ring, ROWS);
        let path = bus.join("readers");
        let readers = File::options().read(true).write(true).open(path).expect("the readers");
        let this = Self { address: 0, slots, first, topics };
        let (first, length) = this.rows();
        Self { address: map(&readers, first + length, ProtFlags::READ | ProtFlags::WRITE), ..this }
    }

    /// Where the rows of all topics begin in the file, and how many bytes they have.
    #[must_use]
    pub fn rows(&self) -> (usize, usize) {
        (self.first, self.topics * self.words() * 8)
    }

    fn words(&self) -> usize {
        self.slots.div_ceil(64)
    }

    /// How often a slot armed its futex.
    #[must_use]
    pub fn armed(&self, slot: usize) -> u32 {
        self.arming(slot).load(Ordering::Acquire)
    }

    /// Acts as if the subscribers of all slots went to sleep.
    pub fn arm_all(&self) {
        let count = u32::try_from(self.slots).expect("a small number");
        // SAFETY: see `word`; the word is as long as its type.
        let used = unsafe { AtomicU32::from_ptr((self.address + SLOTS_USED) as *mut u32) };
        used.store(count, Ordering::Relaxed);
        (0..self.slots).for_each(|slot| _ = self.arming(slot).fetch_add(1, Ordering::Relaxed));
        self.word(SLEEPS).fetch_add(1, Ordering::AcqRel);
    }

    /// Whether a slot says that it wants nothing of a topic.
    #[must_use]
    pub fn is_unwanted(&self, topic: usize, slot: usize) -> bool {
        let word = self.word(self.rows().0 + 8 * (topic * self.words() + slot / 64));
        word.load(Ordering::Acquire) >> (slot % 64) & 1 == 1
    }

    /// Says of all slots that they want nothing of any topic.
    pub fn deafen_all(&self) {
        let (first, length) = self.rows();
        (0..length / 8)
            .for_each(|word| self.word(first + 8 * word).store(u64::MAX, Ordering::Relaxed));
    }

    fn arming(&self, slot: usize) -> &'static AtomicU32 {
        assert!(slot < self.slots);
        // SAFETY: as in `word`. Each slot has two counts.
        unsafe { AtomicU32::from_ptr((self.address + ARMING + 8 * slot) as *mut u32) }
    }

    fn word(&self, offset: usize) -> &'static AtomicU64 {
        let (first, length) = self.rows();
        assert!(offset.is_multiple_of(8) && offset < first + length);
        // SAFETY: the word is aligned and in the mapping, which stays until the process ends. Others access it by atomic
        // operations.
        unsafe { AtomicU64::from_ptr((self.address + offset) as *mut u64) }
    }
}

/// Where a region is in its file, and how many entries it has.
fn region(ring: &File, kind: usize) -> (usize, usize) {
    let mut places = (0..12).map(|place| REGIONS + 32 * place);
    let place = places.find(|place| number::<4>(ring, *place) == kind);
    let place = place.expect("each bus has it");
    (number::<8>(ring, place + 16), number::<4>(ring, place + 8))
}

fn number<const BYTES: usize>(file: &File, offset: u64) -> usize {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes[..BYTES], offset).expect("the header");
    usize::try_from(u64::from_le_bytes(bytes)).expect("a small number")
}

/// Maps the beginning of a file until the process ends.
fn map(file: &File, bytes: usize, rights: ProtFlags) -> usize {
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let address = unsafe { mmap(std::ptr::null_mut(), bytes, rights, MapFlags::SHARED, file, 0) };
    address.expect("a mapping") as usize
}
