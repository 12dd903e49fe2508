//! Hostile participants that use the rights that they have. A subscriber writes `readers` and locks
//! any byte of it. A publisher does so with every file. `docs/security.md` says what they can and
//! cannot do, and these tests are its evidence.
//!
//! - `subscriber`: what one subscriber can do to publishers and to other subscribers.
//! - `publisher`: what one publisher can do to subscribers and to other publishers.
//! - `prepared`: directories and files that another user has prepared.
//! - `descriptors`: what a child process of a participant inherits.
//!
//! The attackers are threads that write into the files, as a process with the same rights could.
//! The test `hostile` covers files with arbitrary bytes.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

#[path = "../common/mod.rs"]
mod common;
mod descriptors;
mod prepared;
mod publisher;
mod subscriber;

use common::Fixture;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use toroni::{BusConfig, Policy};

/// The capacity of the ring: the smallest that is allowed.
pub(crate) const CAPACITY: u64 = 64 << 10;
/// The time that a call with a limit may take on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Offsets of `crates/toroni/src/ring/layout.rs`.
pub(crate) mod at {
    /// Where the header says where the stream starts.
    pub(crate) const DATA_OFFSET: u64 = 64 + 24;
    pub(crate) const LOCK: u64 = 4096;
    pub(crate) const TAIL: u64 = LOCK + 8;
    pub(crate) const RESERVED: u64 = 4096 + 128;
    /// The position of the first entry of the blocks index; its sequence follows, and then the next entry.
    pub(crate) const INDEX: u64 = 4096 + 1024;
    pub(crate) const SLEEPS: u64 = 128;
    pub(crate) const JOINS: u64 = 128 + 2 * 128;
    pub(crate) const SLOTS_USED: u64 = 128 + 3 * 128;
    pub(crate) const LEASES: u64 = 1 << 40;
    /// How many topics have a row.
    const ROWS: u64 = 4096;

    /// Returns the offset in `readers` of the two counts of a slot: how often its futex was armed, and its descriptor.
    pub(crate) const fn arming(number: u64) -> u64 {
        4096 + number * 8
    }
    /// Returns the offset of the row of a topic, in a file of at most 64 slots.
    pub(crate) const fn row(slots: u64, topic: u64) -> u64 {
        arming(slots).next_multiple_of(128) + topic * 8
    }
    /// Returns the offset of the first slot of a subscriber.
    pub(crate) const fn slots(slots: u64) -> u64 {
        let rows = arming(slots).next_multiple_of(128);
        (rows + ROWS * slots.div_ceil(64) * 8).next_multiple_of(4096)
    }
    /// Returns the offset of the slot of a subscriber, in a file of at most 64. Generation, state, position and flags
    /// follow at the offsets below.
    pub(crate) const fn slot(number: u64) -> u64 {
        slots(64) + number * 128
    }
    /// Returns the offset of the slot of a publisher.
    pub(crate) const fn publisher_slot(number: u64) -> u64 {
        4096 + number * 128
    }
    /// Returns the offset in `ring` of the futex word of a slot, if the table of arrivals has this many entries.
    pub(crate) const fn wake_word(arrivals: u64, slot: u64) -> u64 {
        // The header, the control words with the bounds, and the topic table come first.
        let arrivals_end = 4096 + 9 * 4096 + 4096 + 64 + arrivals * 64;
        arrivals_end.next_multiple_of(128) + slot * 4
    }
    /// Returns the offset of a slot's patterns, which follow the four slots. Their text is at
    /// `TEXT`.
    pub(crate) const fn patterns(number: u64) -> u64 {
        slot(4) + number * 512
    }
    pub(crate) const TEXT: u64 = 16;
    pub(crate) const STATE: u64 = 4;
    pub(crate) const POSITION: u64 = 8;
    pub(crate) const FLAGS: u64 = 20;
}

/// A small bus.
pub(crate) fn config(fixture: &Fixture, policy: Policy) -> BusConfig {
    fixture
        .config()
        .capacity(CAPACITY)
        .topic_table_bytes(4096)
        .max_publishers(4)
        .max_subscribers(4)
        .policy(policy)
}

/// A file of the bus, opened by the attacker.
pub(crate) struct Raw(File);

impl Raw {
    pub(crate) fn open(fixture: &Fixture, name: &str) -> Self {
        let path = fixture.path().join("b").join(name);
        Self(File::options().read(true).write(true).open(path).unwrap())
    }

    pub(crate) fn file(&self) -> &File {
        &self.0
    }

    pub(crate) fn get(&self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, offset).unwrap();
        u64::from_ne_bytes(bytes)
    }

    pub(crate) fn put(&self, offset: u64, value: u64) {
        self.0.write_all_at(&value.to_ne_bytes(), offset).unwrap();
    }

    pub(crate) fn put_u32(&self, offset: u64, value: u32) {
        self.0.write_all_at(&value.to_ne_bytes(), offset).unwrap();
    }

    /// Locks `count` bytes from `byte` on, as for a lease, until the file is closed.
    pub(crate) fn lock(&self, byte: u64, count: u64) {
        // SAFETY: `flock` consists of numbers only, so all zeros are valid.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = i16::try_from(libc::F_WRLCK).unwrap();
        lock.l_start = i64::try_from(byte).unwrap();
        lock.l_len = i64::try_from(count).unwrap();
        // SAFETY: an open descriptor and a flock.
        let answer = unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
        assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
    }

    /// Locks many single bytes, to make the kernel's list of locks on the file long.
    pub(crate) fn lock_many(&self, count: u64) {
        // Starts at the end, because the kernel searches the locks of one owner in order.
        (0..count).rev().for_each(|number| self.lock(2 * number, 1));
    }

    /// Maps the first `bytes` of the file as a participant does.
    pub(crate) fn map(&self, bytes: usize) -> Mapped {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: creates a new mapping of an open file, at any address.
        let address = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, rights, libc::MAP_SHARED, self.0.as_raw_fd(), 0)
        };
        assert_ne!(address, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Mapped { address: address as usize, bytes }
    }

    /// Frees the memory of the file but keeps its size.
    pub(crate) fn punch(&self) {
        // Up to the end of its last page, which would otherwise only be filled with zeros.
        let length = self.0.metadata().unwrap().len().next_multiple_of(64 << 10);
        let length = i64::try_from(length).unwrap();
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: an open descriptor.
        let answer = unsafe { libc::fallocate(self.0.as_raw_fd(), mode, 0, length) };
        assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
    }
}

/// A file of the bus, mapped by the attacker. No system call is between it and the publishers.
pub(crate) struct Mapped {
    address: usize,
    bytes: usize,
}

impl Mapped {
    pub(crate) fn word(&self, offset: u64) -> &AtomicU32 {
        let offset = usize::try_from(offset).unwrap();
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.bytes);
        // SAFETY: the word is in the mapping, aligned, and as long mapped as this is borrowed.
        unsafe { AtomicU32::from_ptr((self.address + offset) as *mut u32) }
    }

    pub(crate) fn put(&self, offset: u64, value: u64) {
        let offset = usize::try_from(offset).unwrap();
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.bytes);
        // SAFETY: the word is in the mapping and aligned. Other processes access it with atomic
        // operations.
        unsafe { AtomicU64::from_ptr((self.address + offset) as *mut u64) }
            .store(value, Ordering::Relaxed);
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: `map` made the mapping, and no borrow of it exists.
        let answer = unsafe { libc::munmap(self.address as *mut libc::c_void, self.bytes) };
        assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
    }
}

/// Runs `work` while another thread repeats `attack`.
pub(crate) fn under<T>(attack: impl Fn() + Sync, work: impl FnOnce() -> T) -> T {
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let end = AtomicBool::new(false);
    attack();
    std::thread::scope(|scope| {
        let _end = End(&end);
        scope.spawn(|| {
            while !end.load(Ordering::Relaxed) {
                attack();
            }
        });
        work()
    })
}

/// Returns true in a child process in which only the test `name` (its path within the program)
/// runs, with all descriptors to itself. Otherwise runs the test in such a process, checks that it
/// passes, and returns false.
pub(crate) fn is_alone(name: &str) -> bool {
    const CHILD: &str = "TORONI_TEST_ALONE";
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--test-threads=1", "--nocapture"]).env(CHILD, "1");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
    false
}

/// Runs `work`, and ends the whole program if that takes too long, because a thread that hangs
/// cannot be ended.
pub(crate) fn in_time<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let (done, waits) = std::sync::mpsc::channel::<()>();
    let what = what.to_owned();
    let watch = std::thread::spawn(move || {
        if waits.recv_timeout(LONG) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{what} takes longer than {LONG:?}");
            std::process::exit(101);
        }
    });
    let result = work();
    drop(done);
    watch.join().unwrap();
    result
}
