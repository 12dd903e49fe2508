//! Two processes that share pages: this one, and a partner that runs the same program.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use toroni_testkit::{Directory, Process, directory::IN_MEMORY};

use super::handing_over::{self, Kind};

/// Bytes of the shared file: a page of words, then the area that is copied through.
const FILE_BYTES: usize = 4096 + COPIED_BYTES;
/// Bytes of the area that is copied through; the rings of the comparisons have the same size.
pub(super) const COPIED_BYTES: usize = 4 << 20;

/// Why two processes could not be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PairError {
    #[error("{doing} {path}: {source}; /dev/shm must be writable and have 5 MiB free", path = .path.display())]
    Pages { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("the second process of a floor: {0}")]
    Partner(#[from] io::Error),
    #[error("the second process of a floor ended early ({0})")]
    PartnerEnded(std::process::ExitStatus),
    #[error("there is no floor called {0:?}")]
    NoSuchKind(String),
    #[error("only {0} core may be used: a floor across cores needs two")]
    TooFewCores(usize),
    #[error("cannot stay on core {core}: {source}")]
    Pinning { core: usize, source: io::Error },
}

/// The shared file, mapped. All words are atomics. The area that is copied through is used by the process that owns it at
/// the time; see [`handing_over`].
pub(super) struct SharedPages {
    start: NonNull<u8>,
}

impl SharedPages {
    /// Returns a word on a line of its own. Lines are 128 bytes apart, because x86 fetches two at a time.
    pub(super) fn word(&self, line: usize) -> &AtomicU32 {
        assert!(line < 32, "line {line} lies beyond the words");
        // SAFETY: 32 lines of 128 bytes lie in the first page of the mapping, which lives as long as
        // `self`; the address is aligned for a u32, and all processes use the word as an atomic.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(line * 128).cast()) }
    }

    /// Returns the start of the area of [`COPIED_BYTES`] bytes that is copied through.
    pub(super) fn copied(&self) -> *mut u8 {
        // SAFETY: the mapping has `FILE_BYTES` = 4096 + COPIED_BYTES bytes.
        unsafe { self.start.as_ptr().add(4096) }
    }

    fn create(path: &Path) -> Result<SharedPages, PairError> {
        let file =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(pages("cannot create", path))?;
        file.set_len(FILE_BYTES as u64).map_err(pages("cannot enlarge", path))?;
        SharedPages::map(&file, path)
    }

    fn open(path: &Path) -> Result<SharedPages, PairError> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        SharedPages::map(&file.map_err(pages("cannot open", path))?, path)
    }

    fn map(file: &File, path: &Path) -> Result<SharedPages, PairError> {
        let length = file.metadata().map_err(pages("cannot examine", path))?.len();
        if length != FILE_BYTES as u64 {
            let wrong = io::Error::other(format!("it has {length} bytes, not {FILE_BYTES}"));
            return Err(pages("cannot map", path)(wrong));
        }
        let (rights, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a new mapping at an address that the kernel chooses; it is unmapped only by `drop`.
        let start = unsafe { mmap(std::ptr::null_mut(), FILE_BYTES, rights, flags, file, 0) };
        let start = start.map_err(|source| pages("cannot map", path)(source.into()))?;
        Ok(SharedPages { start: NonNull::new(start.cast()).expect("mmap does not return null") })
    }
}

impl Drop for SharedPages {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length, and nothing borrows from it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), FILE_BYTES) };
    }
}

/// Index of the word that the partner sets when it is ready.
const STATE: usize = 31;
const READY: u32 = 1;

/// A running pair. Dropping it ends the partner, which may wait for a number that will not come, and removes the file.
pub(super) struct Pair {
    pub(super) pages: SharedPages,
    _partner: Process,
    _directory: Directory,
    before: CpuSet,
}

impl Pair {
    /// Starts a partner that does its part of `kind`. With `cores`, this process is pinned to the first and the partner to
    /// the second; otherwise the scheduler chooses.
    pub(super) fn start(kind: Kind, cores: Option<(usize, usize)>) -> Result<Pair, PairError> {
        let directory = Directory::create(Path::new(IN_MEMORY), "toroni-floor-", 0o700)?;
        let path = directory.join("pages");
        let pages = SharedPages::create(&path)?;
        let before = sched_getaffinity(None).map_err(io::Error::from)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["floor-partner", kind.name()]).arg(&path);
        command.args(cores.map(|(_, core)| core.to_string()));
        let mut partner = Process::spawn(&mut command)?;
        while pages.word(STATE).load(Ordering::Acquire) != READY {
            if let Some(status) = partner.ended()? {
                return Err(PairError::PartnerEnded(status));
            }
            std::thread::yield_now();
        }
        let pair = Pair { pages, _partner: partner, _directory: directory, before };
        if let Some((core, _)) = cores {
            stay_on(core)?;
        }
        Ok(pair)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// Returns the first two cores that this process may use.
pub(super) fn two_cores() -> Result<(usize, usize), PairError> {
    let allowed = sched_getaffinity(None).map_err(io::Error::from)?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    match (cores.next(), cores.next()) {
        (Some(first), Some(second)) => Ok((first, second)),
        (first, _) => Err(PairError::TooFewCores(usize::from(first.is_some()))),
    }
}

/// Runs the partner, `floor-partner KIND PATH [CORE]`. The first process ends it.
///
/// # Errors
/// If an argument is wrong, the file cannot be mapped, or the process cannot be pinned.
pub(crate) fn partner_main(kind: &str, path: &Path, core: Option<usize>) -> Result<(), PairError> {
    let kind = Kind::named(kind).ok_or_else(|| PairError::NoSuchKind(kind.to_owned()))?;
    let pages = SharedPages::open(path)?;
    if let Some(core) = core {
        stay_on(core)?;
    }
    pages.word(STATE).store(READY, Ordering::Release);
    handing_over::partner(kind, &pages)
}

fn stay_on(core: usize) -> Result<(), PairError> {
    let mut only = CpuSet::new();
    only.set(core);
    let pinning = |source: rustix::io::Errno| PairError::Pinning { core, source: source.into() };
    sched_setaffinity(None, &only).map_err(pinning)
}

fn pages(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PairError {
    move |source| PairError::Pages { doing, path: path.to_owned(), source }
}
