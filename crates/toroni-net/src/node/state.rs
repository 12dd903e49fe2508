//! State: what a node keeps on disk, so that a restart loses and doubles nothing.
//!
//! ```text
//!   lock       held by the node that runs, with its process id as text
//!   session    the last session, as text
//!   bus        what the bus was like then, as text: see `lineage.rs`
//!   stream-N   the journal of a stream: 65 places of 32 bytes
//!
//!   place 0    magic (u64)     bus (u64)       patterns (u64)     checksum (u64)
//!   place 1…64 sequence (u64)  time in ns (u64)  serial (u64)     checksum (u64)      a checkpoint
//! ```
//!
//! A checkpoint says that all messages of the bus before a sequence were given to the kernel. It says nothing else: which
//! of them have arrived, receivers know. Numbers are little-endian. `time` is `CLOCK_MONOTONIC`: only differences within a
//! journal matter. Checkpoints take turns over the places, so a write that was torn by a crash leaves those before it.
//!
//! A node that restarts sends again what its window could still have repaired when it died, and receivers drop what they
//! have. That is what was sent in the generation interval before the newest checkpoint. It was sent after the last
//! checkpoint before that interval, which may be much older: an idle node writes few. A node that goes back begins with a
//! checkpoint that says so, because it sends old messages again.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::hook::mutant;
use rustix::fs::{FlockOperation, flock};
use thiserror::Error;
use toroni_proto::id::{Session, Stream};
use toroni_proto::time::{MILLISECOND, Monotonic, Wall};

/// Checkpoints of a journal.
const CHECKPOINTS: u64 = 64;
const PLACE_BYTES: u64 = 32;
/// No journal has written this many checkpoints: a greater serial number is damage.
const MOST_CHECKPOINTS: u64 = 1 << 60;
/// More than a file of text has.
const TEXT_BYTES: u64 = 1_024;
/// `TORONI-J` as the bytes of the file.
const MAGIC: u64 = u64::from_le_bytes(*b"TORONI-J");
/// Checkpoints of a stream are at least so far apart,
const INTERVAL_NS: u64 = 16 * MILLISECOND;
/// and at least this part of the generation interval, so that all of them reach back twice as far.
const INTERVALS: u64 = 32;

/// Why a node cannot keep its state.
#[derive(Debug, Error)]
pub enum StateError {
    /// Another node uses the directory.
    #[error(
        "another node (process {pid}) uses the state in {path}: there is one node for each realm and bus; give this one a \
         directory of its own if it has another realm or bus",
        path = path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// What the other node wrote about itself.
        pid: String,
    },
    /// A file cannot be used.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    File {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The clock says that it is after 2156, or the last session is the greatest there is.
    #[error(
        "there is no session after {last} in {path}: set the clock, and remove the file if the clock was wrong before",
        path = path.display()
    )]
    NoSession {
        /// The last session.
        last: u32,
        /// The file that has it.
        path: PathBuf,
    },
}

/// The directory of a node. While it exists, no other node can use it.
#[derive(Debug)]
pub struct State {
    path: PathBuf,
    lock: File,
}

impl Drop for State {
    fn drop(&mut self) {
        // Closing is not enough: a child that another thread is just starting has the same open file.
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

impl State {
    /// Makes the directory, if it does not exist, and takes it for this process.
    ///
    /// # Errors
    /// [`StateError::InUse`], or an error of the files.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let failed = |action, path: &Path| {
            let path = path.to_owned();
            move |source| StateError::File { action, path, source }
        };
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        // The directory may exist, so this error says only that the path is something else.
        let made = made.map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => ErrorKind::NotADirectory.into(),
            _ => error,
        });
        made.map_err(failed("make", path))?;
        let lock = path.join("lock");
        let file = open_file(&lock).map_err(failed("open", &lock))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let pid = read_text(&lock).unwrap_or_default();
                let pid = pid.trim().chars().filter(char::is_ascii_digit).take(10).collect();
                return Err(StateError::InUse { path: path.to_owned(), pid });
            }
            Err(error) => return Err(failed("lock", &lock)(error.into())),
        }
        let pid = format!("{}\n", std::process::id());
        file.set_len(0)
            .and_then(|()| file.write_all_at(pid.as_bytes(), 0))
            .map_err(failed("write", &lock))?;
        Ok(Self { path: path.to_owned(), lock: file })
    }

    /// Returns the session that was begun last, if this directory has seen one.
    ///
    /// # Errors
    /// An error of the file, or it contains no session.
    pub fn last_session(&self) -> Result<Option<Session>, StateError> {
        let Some(text) = self.read("session")? else { return Ok(None) };
        text.trim().parse().map(|session| Some(Session(session))).map_err(|_| {
            let wrong = format!("{:?} is no session", text.chars().take(20).collect::<String>());
            let source = io::Error::new(ErrorKind::InvalidData, wrong);
            StateError::File { action: "understand", path: self.path.join("session"), source }
        })
    }

    /// Begins a session: later than all that this directory has seen, whatever the clock says.
    ///
    /// # Errors
    /// [`StateError::NoSession`], or an error of the files.
    pub fn begin_session(&self, now: Wall) -> Result<Session, StateError> {
        let last = self.last_session()?;
        let session = Session::begin(now, last).ok_or_else(|| StateError::NoSession {
            last: last.map_or(0, |last| last.0),
            path: self.path.join("session"),
        })?;
        self.write("session", &format!("{}\n", session.0))?;
        Ok(session)
    }

    /// Reads a file of text, if there is one.
    pub(super) fn read(&self, name: &str) -> Result<Option<String>, StateError> {
        let path = self.path.join(name);
        match read_text(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StateError::File { action: "read", path, source }),
        }
    }

    /// Replaces a file of text as a whole: a crash leaves the old one or the new one.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), StateError> {
        let (path, new) = (self.path.join(name), self.path.join(format!("{name}.new")));
        let written = File::create(&new).and_then(|file| {
            file.write_all_at(text.as_bytes(), 0)?;
            file.sync_all()
        });
        let written = written.and_then(|()| std::fs::rename(&new, &path));
        written.map_err(|source| StateError::File { action: "write", path, source })
    }

    /// Opens the journal of a stream with this generation interval. `bus` and `patterns` are hashes of what its numbers
    /// mean: if they have changed, the journal starts over.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn journal(
        &self,
        stream: Stream,
        bus: u64,
        patterns: u64,
        generation_ns: u64,
    ) -> Result<Journal, StateError> {
        let path = self.path.join(format!("stream-{}", stream.0));
        Journal::open(&path, bus, patterns, generation_ns).map_err(|source| StateError::File {
            action: "use the journal",
            path,
            source,
        })
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// A place in a stream's past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Checkpoint {
    sequence: u64,
    at: Monotonic,
    /// Counts the checkpoints of the journal.
    serial: u64,
}

/// How far a stream was sent.
#[derive(Debug)]
pub struct Journal {
    file: File,
    checkpoints: Vec<Checkpoint>,
    serial: u64,
    written: Option<Monotonic>,
    generation_ns: u64,
}

impl Journal {
    fn open(path: &Path, bus: u64, patterns: u64, generation_ns: u64) -> io::Result<Self> {
        let file = open_file(path)?;
        let head = seal([MAGIC, bus, patterns]);
        let mut checkpoints = Vec::new();
        let found = read_place(&file, 0)?;
        if found == Some([MAGIC, bus, patterns])
            || found.is_some() && mutant("journal_of_another_bus")
        {
            for place in 1..=CHECKPOINTS {
                if let Some([sequence, at, serial]) = read_place(&file, place)?
                    && serial < MOST_CHECKPOINTS
                    && place_of(serial) == place
                {
                    checkpoints.push(Checkpoint { sequence, at: Monotonic::from_ns(at), serial });
                }
            }
        } else {
            file.set_len(0)?;
            file.write_all_at(&head, 0)?;
        }
        let serial = checkpoints.iter().map(|it| it.serial).max().unwrap_or_default();
        Ok(Self { file, checkpoints, serial, written: None, generation_ns })
    }

    /// Returns the sequence with which the stream continues, if this journal knows.
    #[must_use]
    pub fn resume(&self) -> Option<u64> {
        let newest = self.checkpoints.iter().max_by_key(|it| it.serial)?;
        // Of an earlier boot, or damaged: a checkpoint that contradicts the newest one.
        let is_sound = |it: &&Checkpoint| {
            it.at <= newest.at && it.sequence <= newest.sequence
                || mutant("checkpoint_of_another_boot")
        };
        let reach = if mutant("resume_at_the_end") { 0 } else { self.generation_ns };
        let is_young = |it: &&Checkpoint| newest.at.since(it.at) < reach;
        let (young, old): (Vec<&Checkpoint>, Vec<&Checkpoint>) =
            self.checkpoints.iter().filter(is_sound).partition(is_young);
        let before = old.into_iter().max_by_key(|it| it.serial);
        let before = before.filter(|_| !mutant("resume_within_the_interval"));
        young.into_iter().chain(before).map(|it| it.sequence).min()
    }

    /// Returns the greatest sequence of its checkpoints, or 0.
    pub(super) fn greatest(&self) -> u64 {
        self.checkpoints.iter().map(|it| it.sequence).max().unwrap_or(0)
    }

    /// Returns whether it is time for another checkpoint.
    #[must_use]
    pub fn is_due(&self, now: Monotonic) -> bool {
        let interval = INTERVAL_NS.max(self.generation_ns / INTERVALS);
        self.written.is_none_or(|written| now.since(written) >= interval)
    }

    /// Writes a checkpoint: all messages before this sequence were given to the kernel.
    ///
    /// # Errors
    /// If the file cannot be written. The stream goes on; a restart begins at an earlier checkpoint.
    pub fn note(&mut self, now: Monotonic, sequence: u64) -> io::Result<()> {
        self.serial = self.serial.saturating_add(1);
        self.written = Some(now);
        let bytes = seal([sequence, now.ns(), self.serial]);
        self.file.write_all_at(&bytes, place_of(self.serial).saturating_mul(PLACE_BYTES))
    }
}

/// Returns the place of a checkpoint.
const fn place_of(serial: u64) -> u64 {
    (serial % CHECKPOINTS).saturating_add(1)
}

/// Reads a short file of text. Refuses a longer one, and does not read all of it.
fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(TEXT_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > TEXT_BYTES {
        return Err(io::Error::new(ErrorKind::InvalidData, "it is too long"));
    }
    Ok(text)
}

/// Reads a place. Returns `None` if nothing valid stands there.
fn read_place(file: &File, place: u64) -> io::Result<Option<[u64; 3]>> {
    let mut bytes = [0; 32];
    match file.read_exact_at(&mut bytes, place.saturating_mul(PLACE_BYTES)) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let (words, _) = bytes.as_chunks::<8>();
    let words = [0, 1, 2].map(|at: usize| u64::from_le_bytes(words[at]));
    Ok((seal(words) == bytes || mutant("torn_checkpoint_believed")).then_some(words))
}

/// Returns a place with its checksum: FNV-1a, 64 bits. It recognises torn writes and flipped bytes, not forgery: who can
/// write the directory can stop the node as well.
fn seal(words: [u64; 3]) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let checksum = hash(&bytes[..24]);
    bytes[24..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// FNV-1a, 64 bits.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroni_proto::time::SECOND;
    use toroni_testkit::Directory;

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_ns(ms * MILLISECOND)
    }

    #[test]
    fn one_node_at_a_time_uses_a_directory() {
        let directory = Directory::new();
        let path = directory.path().join("deep/state");
        let first = State::open(&path).unwrap();
        let error = State::open(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        // What a child has between fork and exec.
        let _inherited = first.lock.try_clone().unwrap();
        drop(first);
        State::open(&path).unwrap();
    }

    #[test]
    fn a_file_is_no_directory_for_the_state() {
        let directory = Directory::new();
        let path = directory.path().join("file");
        std::fs::write(&path, "").unwrap();
        let error = State::open(&path).unwrap_err().to_string();
        assert_eq!(error, format!("cannot make {}: not a directory", path.display()));
    }

    #[test]
    fn sessions_grow_although_the_clock_goes_back() {
        let directory = Directory::new();
        let state = State::open(directory.path()).unwrap();
        let now = Wall::from_ns(1_800_000_000 * SECOND);
        let before = Wall::from_ns(1_700_000_000 * SECOND);
        assert_eq!(state.last_session().unwrap(), None);
        let first = state.begin_session(now).unwrap();
        assert_eq!(state.last_session().unwrap(), Some(first));
        let second = state.begin_session(before).unwrap();
        assert_eq!(second.0, first.0 + 1);
        assert_eq!(state.begin_session(before).unwrap().0, first.0 + 2);
        std::fs::write(directory.path().join("session"), "soon").unwrap();
        let error = state.begin_session(now).unwrap_err().to_string();
        assert!(error.contains("\"soon\" is no session"), "{error}");
        std::fs::write(directory.path().join("session"), u32::MAX.to_string()).unwrap();
        assert!(matches!(state.begin_session(now), Err(StateError::NoSession { .. })));
    }

    #[test]
    fn a_stream_continues_a_generation_before_its_end() {
        let directory = Directory::new();
        let state = State::open(directory.path()).unwrap();
        let open =
            |generation_ms| state.journal(Stream(1), 7, 8, generation_ms * MILLISECOND).unwrap();
        let mut journal = open(500);
        assert_eq!(journal.resume(), None);
        for number in 0..1_000 {
            assert!(journal.is_due(at(number * 20)));
            journal.note(at(number * 20), number * 5).unwrap();
            assert!(!journal.is_due(at(number * 20 + 15)));
        }
        // The last is 999; 25 steps of 20 ms are half a second.
        assert_eq!(open(500).resume(), Some((999 - 25) * 5));
        // There are no more than 64 of them,
        assert_eq!(open(100_000).resume(), Some((999 - 63) * 5));
        // so they are further apart if they must reach back further.
        let mut journal = open(100_000);
        journal.note(at(20_000), 5_000).unwrap();
        assert!(!journal.is_due(at(23_000)) && journal.is_due(at(23_200)));
        for (bus, patterns) in [(9, 8), (7, 9)] {
            let other = state.journal(Stream(1), bus, patterns, SECOND).unwrap();
            assert_eq!(other.resume(), None);
        }
        assert_eq!(open(1_000).resume(), None, "another bus has started it over");
    }

    #[test]
    fn what_follows_a_silence_is_sent_again() {
        let directory = Directory::new();
        let state = State::open(directory.path()).unwrap();
        let open = || state.journal(Stream(1), 7, 8, SECOND).unwrap();
        let mut journal = open();
        journal.note(at(0), 100).unwrap();
        // Nothing is sent for a minute, and then 300 messages within 50 ms.
        journal.note(at(60_050), 400).unwrap();
        assert_eq!(open().resume(), Some(100));
        // The next life sends all of them again, long after the one before.
        let mut journal = open();
        journal.note(at(90_000), 100).unwrap();
        journal.note(at(90_050), 400).unwrap();
        assert_eq!(open().resume(), Some(100));
        journal.note(at(91_050), 400).unwrap();
        assert_eq!(open().resume(), Some(400));
    }

    #[test]
    fn a_torn_or_damaged_place_costs_only_itself() {
        let directory = Directory::new();
        let state = State::open(directory.path()).unwrap();
        let mut journal = state.journal(Stream(1), 7, 8, SECOND).unwrap();
        for number in 0..10 {
            journal.note(at(number * 20), 100 + number).unwrap();
        }
        let path = directory.path().join("stream-1");
        let whole = std::fs::read(&path).unwrap();
        let resume = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            state.journal(Stream(1), 7, 8, SECOND).unwrap().resume()
        };
        assert_eq!(resume(&whole), Some(100));
        // The newest is place 11: any byte of it wrong, and the others stand.
        for byte in 11 * 32..12 * 32 {
            let mut damaged = whole.clone();
            damaged[byte] ^= 1;
            assert_eq!(resume(&damaged), Some(100), "byte {byte}");
        }
        for length in 0..whole.len() {
            let wanted = if length < 3 * 32 { None } else { Some(100) };
            assert_eq!(resume(&whole[..length]), wanted, "{length} bytes");
        }
        let mut damaged = whole;
        damaged[0] ^= 1;
        assert_eq!(resume(&damaged), None);
    }

    #[test]
    fn checkpoints_of_an_earlier_boot_are_left_out() {
        let directory = Directory::new();
        let state = State::open(directory.path()).unwrap();
        let mut journal = state.journal(Stream(1), 7, 8, SECOND).unwrap();
        journal.note(at(1_000_000), 100).unwrap();
        journal.note(at(20), 101).unwrap();
        assert_eq!(state.journal(Stream(1), 7, 8, SECOND).unwrap().resume(), Some(101));
    }
}
