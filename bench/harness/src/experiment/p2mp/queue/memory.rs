//! The queue's shared memory: a mutex, counters, and packets. All `unsafe` of the queue is here.
//!
//! ```text
//!      0  mutex     pthread_mutex_t, process-shared; guards the counters
//!    128  written   u64: packets written since the queue was made
//!    136  taken     u64 for each receiver: packets that it has taken
//!    256  claimed   u32 for each receiver: 1 since one has opened it
//!   4096  packets   `packets` times `packet_bytes`; packet n is at n modulo `packets`
//! ```
//!
//! # Why the slices are sound
//!
//! Packet `n` is written by the one sender while every receiver's `taken` is above `n - packets`, and
//! before `written` becomes `n + 1`. A receiver reads it after `written` is above `n` and before its
//! own `taken` becomes `n + 1`. Both counters change under the mutex only, so writing and reading a
//! packet never overlap, and the reader sees what was written. [`Writing`] and [`Reading`] keep these rules for their
//! callers. There is only one writing end, because creating the file makes it and the file must not exist before. There
//! is only one reading end for each number, because opening it claims the number.

use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::cell::UnsafeCell;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The largest number of receivers of a queue.
pub(crate) const MOST_RECEIVERS: usize = 15;

const WRITTEN_OFFSET: usize = 128;
const CLAIMED_OFFSET: usize = 256;
const PACKETS_OFFSET: usize = 4096;

/// Sizes of a queue, the same in all of its processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Number of packets.
    pub(crate) packets: usize,
    /// Bytes of a packet, including its header.
    pub(crate) packet_bytes: usize,
    pub(crate) receivers: usize,
    /// Whether the mutex spins before it sleeps (`PTHREAD_MUTEX_ADAPTIVE_NP`).
    pub(crate) adaptive: bool,
}

impl Shape {
    fn bytes(self) -> io::Result<usize> {
        let is_valid = self.packets > 0
            && self.packet_bytes > 0
            && (1..=MOST_RECEIVERS).contains(&self.receivers);
        let packets = self.packets.checked_mul(self.packet_bytes).filter(|_| is_valid);
        packets
            .and_then(|bytes| bytes.checked_add(PACKETS_OFFSET))
            .ok_or_else(|| invalid(format!("a queue cannot have the shape {self:?}")))
    }
}

/// The sender's end: writes packets in their order.
pub(super) struct Writing {
    memory: Memory,
    written: u64,
    /// Packets that the slowest receiver had taken when the counters were last read.
    slowest: u64,
}

impl Writing {
    /// Creates the queue in a new file, and touches all of its pages.
    pub(super) fn create(path: &Path, shape: Shape) -> io::Result<Self> {
        let memory = Memory::create(path, shape)?;
        Ok(Self { memory, written: 0, slowest: 0 })
    }

    /// Returns whether `count` more packets fit, according to the counters as they were last read.
    pub(super) fn has_space(&self, count: usize) -> bool {
        self.written + count as u64 - self.slowest <= self.memory.shape.packets as u64
    }

    /// Reads the counters of the receivers.
    pub(super) fn refresh(&mut self) -> io::Result<()> {
        let counters = self.memory.lock()?;
        let taken = counters.taken.iter().take(self.memory.shape.receivers);
        let slowest = taken.map(|taken| taken.load(Ordering::Relaxed)).min().unwrap_or(0);
        drop(counters);
        // A broken receiver must not make the sender see space that does not exist.
        if !(self.slowest..=self.written).contains(&slowest) {
            return Err(invalid(format!(
                "a receiver has taken {slowest} of {} packets, and had {}",
                self.written, self.slowest
            )));
        }
        self.slowest = slowest;
        Ok(())
    }

    /// Lets `fill` write `count` packets in place, the bytes of one at a time, then makes them visible
    /// together.
    ///
    /// # Panics
    /// If there is no space for them.
    pub(super) fn write(
        &mut self,
        count: usize,
        mut fill: impl FnMut(&mut [u8]),
    ) -> io::Result<()> {
        assert!(self.has_space(count), "no space for {count} packets");
        for number in self.written..self.written + count as u64 {
            let range = self.memory.range_of(number);
            // SAFETY: the range lies in the mapping. This is the only writer, no receiver reads the
            // packet now (`has_space`; see the head of this file), and `&mut self` excludes a second
            // slice from here.
            let packet = unsafe {
                let first = self.memory.base.as_ptr().add(range.start);
                core::slice::from_raw_parts_mut(first, range.len())
            };
            fill(packet);
        }
        let counters = self.memory.lock()?;
        counters.written.store(self.written + count as u64, Ordering::Relaxed);
        drop(counters);
        self.written += count as u64;
        Ok(())
    }
}

/// A receiver's end: reads packets in their order.
pub(super) struct Reading {
    memory: Memory,
    number: usize,
    /// Packets that had been written when the counter was last read.
    written: u64,
    taken: u64,
}

impl Reading {
    /// Opens an existing queue as the receiver with this number. Each number can be opened once.
    pub(super) fn open(path: &Path, shape: Shape, number: usize) -> io::Result<Self> {
        let memory = Memory::open(path, shape)?;
        let claimed = memory.claimed().get(number).filter(|_| number < shape.receivers);
        let claimed = claimed.ok_or_else(|| {
            invalid(format!("receiver {number} of a queue for {}", shape.receivers))
        })?;
        if claimed.swap(1, Ordering::Relaxed) != 0 {
            return Err(invalid(format!("the queue has a receiver {number} already")));
        }
        Ok(Self { memory, number, written: 0, taken: 0 })
    }

    /// Returns the number of packets that can be taken, according to the counter as it was last read.
    pub(super) fn available(&self) -> usize {
        // At most the number of packets, which is a usize: `note` checks it.
        usize::try_from(self.written - self.taken).unwrap_or(usize::MAX)
    }

    /// Reads the counter of the sender.
    pub(super) fn refresh(&mut self) -> io::Result<()> {
        let counters = self.memory.lock()?;
        let written = counters.written.load(Ordering::Relaxed);
        drop(counters);
        self.note(written)
    }

    /// Lets `each` read `count` packets in place, the bytes of one at a time, then gives them back
    /// together and reads the counter of the sender.
    ///
    /// # Panics
    /// If fewer packets are available.
    pub(super) fn take(&mut self, count: usize, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        assert!(count <= self.available(), "there are fewer than {count} packets");
        for number in self.taken..self.taken + count as u64 {
            let range = self.memory.range_of(number);
            // SAFETY: the range lies in the mapping. The packet is written and not yet given back, so
            // that the sender leaves it alone while the slice lives; see the head of this file.
            let packet = unsafe {
                let first = self.memory.base.as_ptr().add(range.start);
                core::slice::from_raw_parts(first, range.len())
            };
            each(packet);
        }
        self.taken += count as u64;
        let counters = self.memory.lock()?;
        counters.taken[self.number].store(self.taken, Ordering::Relaxed);
        let written = counters.written.load(Ordering::Relaxed);
        drop(counters);
        self.note(written)
    }

    fn note(&mut self, written: u64) -> io::Result<()> {
        let most = self.taken.saturating_add(self.memory.shape.packets as u64);
        if !(self.written.max(self.taken)..=most).contains(&written) {
            return Err(invalid(format!(
                "{written} packets are written, {} are taken, and there were {}",
                self.taken, self.written
            )));
        }
        self.written = written;
        Ok(())
    }
}

/// What the mutex guards. Atomics only because other processes write them; the mutex orders them.
#[repr(C)]
struct Counters {
    written: AtomicU64,
    taken: [AtomicU64; MOST_RECEIVERS],
}

/// The counters, while the mutex is held.
struct Locked<'a> {
    counters: &'a Counters,
    mutex: &'a UnsafeCell<libc::pthread_mutex_t>,
}

impl std::ops::Deref for Locked<'_> {
    type Target = Counters;

    fn deref(&self) -> &Counters {
        self.counters
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // SAFETY: an initialised mutex of a live mapping, which this thread holds: `Memory::lock` is
        // the only function that makes a `Locked`, and it borrows the mapping.
        unsafe { libc::pthread_mutex_unlock(self.mutex.get()) };
    }
}

struct Memory {
    base: NonNull<u8>,
    bytes: usize,
    shape: Shape,
}

// SAFETY: the mapping belongs to the process, not to a thread; what lies in it is accessed as the head of
// this file says. A `Locked`, which belongs to its thread, borrows the memory and is not `Send`.
unsafe impl Send for Memory {}

impl Memory {
    fn create(path: &Path, shape: Shape) -> io::Result<Self> {
        let bytes = shape.bytes()?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
        // Not `ftruncate`: a full /dev/shm is to be an error here, not a SIGBUS later.
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes as u64)?;
        let memory = Self::map(&file, bytes, shape)?;
        memory.initialise_mutex()?;
        Ok(memory)
    }

    fn open(path: &Path, shape: Shape) -> io::Result<Self> {
        let bytes = shape.bytes()?;
        let file = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let found = rustix::fs::fstat(&file)?.st_size;
        if usize::try_from(found) != Ok(bytes) {
            return Err(invalid(format!("the queue has {found} bytes, and {shape:?} has {bytes}")));
        }
        Self::map(&file, bytes, shape)
    }

    fn map(file: impl std::os::fd::AsFd, bytes: usize, shape: Shape) -> io::Result<Self> {
        // Populated: a first touch of a page costs microseconds, which are not the queue's.
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address that the kernel chooses; nothing else is there.
        let base = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap(core::ptr::null_mut(), bytes, access, flags, file, 0)?
        };
        let base = NonNull::new(base.cast()).ok_or_else(|| invalid("mapped at 0".to_owned()))?;
        Ok(Self { base, bytes, shape })
    }

    fn initialise_mutex(&self) -> io::Result<()> {
        let kind = if self.shape.adaptive {
            libc::PTHREAD_MUTEX_ADAPTIVE_NP
        } else {
            libc::PTHREAD_MUTEX_NORMAL
        };
        let mut attributes = core::mem::MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let attributes = attributes.as_mut_ptr();
        // SAFETY: `init` comes before the others, which get what it initialised; the mutex lies in the
        // mapping, aligned, and no other process has opened the file that this process is creating, or uses
        // the mutex before the sender's socket exists.
        unsafe {
            check(libc::pthread_mutexattr_init(attributes))?;
            check(libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED))?;
            check(libc::pthread_mutexattr_settype(attributes, kind))?;
            check(libc::pthread_mutex_init(self.mutex().get(), attributes))?;
            check(libc::pthread_mutexattr_destroy(attributes))
        }
    }

    /// Fails only if the mutex is not a mutex.
    fn lock(&self) -> io::Result<Locked<'_>> {
        let mutex = self.mutex();
        // SAFETY: the creator of the memory initialises the mutex before others can open the queue.
        check(unsafe { libc::pthread_mutex_lock(mutex.get()) })?;
        // SAFETY: in the mapping (see the assertions below), aligned to 8, and any bytes are valid.
        let counters = unsafe { self.base.add(WRITTEN_OFFSET).cast::<Counters>().as_ref() };
        Ok(Locked { counters, mutex })
    }

    fn mutex(&self) -> &UnsafeCell<libc::pthread_mutex_t> {
        // SAFETY: the mapping is page-aligned, and holds its header (see the assertions below). Only the
        // functions of the C library look into it.
        unsafe { self.base.cast().as_ref() }
    }

    fn claimed(&self) -> &[AtomicU32; MOST_RECEIVERS] {
        // SAFETY: in the mapping (see the assertions below), aligned to 4, and any bytes are valid.
        unsafe { self.base.add(CLAIMED_OFFSET).cast().as_ref() }
    }

    /// Returns where in the mapping a packet is.
    fn range_of(&self, number: u64) -> Range<usize> {
        // Below `packets`, which is a usize.
        let index = usize::try_from(number % self.shape.packets as u64).unwrap_or(0);
        let start = PACKETS_OFFSET + index * self.shape.packet_bytes;
        start..start + self.shape.packet_bytes
    }
}

const _: () = {
    assert!(size_of::<libc::pthread_mutex_t>() <= WRITTEN_OFFSET);
    assert!(WRITTEN_OFFSET + size_of::<Counters>() <= CLAIMED_OFFSET);
    assert!(CLAIMED_OFFSET + size_of::<[AtomicU32; MOST_RECEIVERS]>() <= PACKETS_OFFSET);
};

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the whole mapping that `map` made; all slices and guards borrowed `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Turns what a pthread function returns into a result.
fn check(code: i32) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}
