//! Two processes that share a few pages: this one, and a partner that is this program again.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::handing_over::{self, Kind};

/// Bytes of the shared file: a page of words, then the bytes that are copied through.
const BOARD_BYTES: usize = 4096 + COPIED_BYTES;
/// Bytes of the area that is copied through, as many as the rings of the comparisons have.
pub(super) const COPIED_BYTES: usize = 4 << 20;

/// Why two processes could not be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PairError {
    /// The shared file, or a mapping of it.
    #[error("{doing} {path}: {source}; /dev/shm must be writable and have 5 MiB free", path = .path.display())]
    Board { doing: &'static str, path: PathBuf, source: io::Error },
    /// The partner.
    #[error("the second process of a floor: {0}")]
    Partner(#[from] io::Error),
    /// The partner ended before it was ready.
    #[error("the second process of a floor ended early ({0})")]
    PartnerEnded(std::process::ExitStatus),
    /// The command line of a partner names nothing that is measured.
    #[error("there is no floor called {0:?}")]
    NoSuchKind(String),
    /// A floor across cores needs two.
    #[error("only {0} core may be used: a floor across cores needs two")]
    TooFewCores(usize),
    /// Binding to a core.
    #[error("cannot stay on core {core}: {source}")]
    Pinning { core: usize, source: io::Error },
}

/// The shared file, mapped. All words are atomics; the copied area is read and written by whoever owns
/// it at the time, as [`handing_over`] says.
pub(super) struct Board {
    start: NonNull<u8>,
}

impl Board {
    /// A word on a line of its own: lines are 128 bytes apart, because x86 fetches two at a time.
    pub(super) fn word(&self, line: usize) -> &AtomicU32 {
        assert!(line < 32, "line {line} lies beyond the words");
        // SAFETY: 32 lines of 128 bytes lie in the first page of the mapping, which lives as long as
        // `self`; the address is aligned for a u32, and all processes use the word as an atomic.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(line * 128).cast()) }
    }

    /// The start of the area of [`COPIED_BYTES`] bytes that is copied through.
    pub(super) fn copied(&self) -> *mut u8 {
        // SAFETY: the mapping has `BOARD_BYTES` = 4096 + COPIED_BYTES bytes.
        unsafe { self.start.as_ptr().add(4096) }
    }

    fn create(path: &Path) -> Result<Board, PairError> {
        let file =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(board("cannot create", path))?;
        file.set_len(BOARD_BYTES as u64).map_err(board("cannot enlarge", path))?;
        Board::map(&file, path)
    }

    fn open(path: &Path) -> Result<Board, PairError> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        Board::map(&file.map_err(board("cannot open", path))?, path)
    }

    fn map(file: &File, path: &Path) -> Result<Board, PairError> {
        let length = file.metadata().map_err(board("cannot look at", path))?.len();
        if length != BOARD_BYTES as u64 {
            let wrong = io::Error::other(format!("it has {length} bytes, not {BOARD_BYTES}"));
            return Err(board("cannot map", path)(wrong));
        }
        let (rights, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a new mapping at an address that the kernel chooses; it is unmapped only by `drop`.
        let start = unsafe { mmap(std::ptr::null_mut(), BOARD_BYTES, rights, flags, file, 0) };
        let start = start.map_err(|source| board("cannot map", path)(source.into()))?;
        Ok(Board { start: NonNull::new(start.cast()).expect("mmap does not return null") })
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length, and nothing borrows from it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), BOARD_BYTES) };
    }
}

/// A line that the partner raises when it is ready, and that tells it to stop.
const STATE: usize = 31;
const READY: u32 = 1;

/// A running pair; dropped, it ends the partner and removes the file.
pub(super) struct Pair {
    pub(super) board: Board,
    path: PathBuf,
    partner: Child,
    before: CpuSet,
}

impl Pair {
    /// Starts a partner that does its part of `kind`. With `cores`, pins this process to the first and
    /// the partner to the second; else the scheduler puts both where it likes.
    pub(super) fn start(kind: Kind, cores: Option<(usize, usize)>) -> Result<Pair, PairError> {
        static PAIRS: AtomicU32 = AtomicU32::new(0);
        let number = PAIRS.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(format!("/dev/shm/toroni-floor-{}-{number}", std::process::id()));
        let board = Board::create(&path)?;
        let before = sched_getaffinity(None).map_err(io::Error::from)?;
        let start = || {
            let program = std::env::current_exe()?;
            Command::new(program)
                .args(["floor-partner", kind.name()])
                .arg(&path)
                .args(cores.map(|(_, core)| core.to_string()))
                .spawn()
        };
        let partner = match start() {
            Ok(partner) => partner,
            Err(source) => {
                let _ = fs::remove_file(&path);
                return Err(source.into());
            }
        };
        let mut pair = Pair { board, path, partner, before };
        while pair.board.word(STATE).load(Ordering::Acquire) != READY {
            if let Some(status) = pair.partner.try_wait()? {
                return Err(PairError::PartnerEnded(status));
            }
            std::thread::yield_now();
        }
        if let Some((core, _)) = cores {
            stay_on(core)?;
        }
        Ok(pair)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // It may be asleep, or waiting for a number that will not come: it holds nothing worth a word.
        let _ = self.partner.kill();
        let _ = self.partner.wait();
        let _ = fs::remove_file(&self.path);
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// The first two cores that this process may use.
pub(super) fn two_cores() -> Result<(usize, usize), PairError> {
    let allowed = sched_getaffinity(None).map_err(io::Error::from)?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    match (cores.next(), cores.next()) {
        (Some(first), Some(second)) => Ok((first, second)),
        (first, _) => Err(PairError::TooFewCores(usize::from(first.is_some()))),
    }
}

/// The partner's whole life: `floor-partner KIND PATH [CORE]`. It is ended by the first process.
///
/// # Errors
///
/// An argument is missing or wrong, the file cannot be mapped, or the core cannot be had.
pub(crate) fn partner_main(kind: &str, path: &Path, core: Option<usize>) -> Result<(), PairError> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(io::Error::from)?;
    let kind = Kind::named(kind).ok_or_else(|| PairError::NoSuchKind(kind.to_owned()))?;
    let board = Board::open(path)?;
    if let Some(core) = core {
        stay_on(core)?;
    }
    board.word(STATE).store(READY, Ordering::Release);
    handing_over::partner(kind, &board)
}

fn stay_on(core: usize) -> Result<(), PairError> {
    let mut only = CpuSet::new();
    only.set(core);
    let pinning = |source: rustix::io::Errno| PairError::Pinning { core, source: source.into() };
    sched_setaffinity(None, &only).map_err(pinning)
}

fn board(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PairError {
    move |source| PairError::Board { doing, path: path.to_owned(), source }
}
