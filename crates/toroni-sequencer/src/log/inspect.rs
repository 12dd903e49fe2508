//! Reads a log and changes nothing, also while its member runs. Each record is checked: its CRC, that it follows the one
//! before, and that its entry has the next index.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::LogError;
use super::open::{Tail, numbers};
use super::segment::{HEADER_BYTES, MAGIC, Segment, Walk};
use super::{snapshot, state};
use crate::entry::{Entry, Place, Vote};

/// A member that runs may be writing what is read. It is read again so often, with this pause.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// What a log says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// Its random id.
    pub log: [u8; 16],
    /// The last vote of its member.
    pub vote: Option<Vote>,
    /// The last entry that was given up.
    pub purged: Option<Place>,
    /// Whether its member closed it. If not, the member runs, or was killed.
    pub closed: bool,
}

/// An entry, and where it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The entry.
    pub entry: Entry,
    /// The file.
    pub path: PathBuf,
    /// The byte at which its record begins.
    pub offset: u64,
}

/// A log that is being read.
#[derive(Debug)]
pub struct Inspection {
    directory: Option<PathBuf>,
    about: Option<About>,
    log: [u8; 16],
    /// Segments that were not opened yet.
    paths: VecDeque<PathBuf>,
    segment: Segment,
    at: u64,
    crc: u32,
    last: Option<Place>,
}

impl Inspection {
    /// Opens a log: its directory, or one of its segments.
    ///
    /// # Errors
    ///
    /// If there is none, or its first bytes are wrong.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        if !path.is_dir() {
            let (segment, log) = open_segment(path)?;
            return Ok(Self::of(segment, log, None, VecDeque::new()));
        }
        for _ in 1..ATTEMPTS {
            match Self::open_directory(path) {
                // Its member purged the segment meanwhile.
                Err(LogError::Io { source, .. })
                    if source.kind() == ErrorKind::NotFound && path.join("state").exists() =>
                {
                    std::thread::sleep(PAUSE);
                }
                other => return other,
            }
        }
        Self::open_directory(path)
    }

    fn open_directory(path: &Path) -> Result<Self, LogError> {
        if !path.join("state").exists() {
            let why = "no log of a sequencer: it has no file `state`";
            return Err(LogError::Foreign { path: path.to_owned(), why });
        }
        let state = state::read(path)?;
        let mut paths: VecDeque<_> =
            numbers(path)?.into_iter().map(|number| path.join(Segment::name(number))).collect();
        let first = paths.pop_front().ok_or_else(|| {
            let why = "the log has no segment: its member never started completely";
            LogError::Foreign { path: path.to_owned(), why }
        })?;
        let (segment, log) = open_segment(&first)?;
        if log != state.files {
            return Err(LogError::Foreign { path: first, why: "a segment of another log" });
        }
        let about =
            About { log, vote: state.vote, purged: state.purged, closed: state.closed.is_some() };
        Ok(Self::of(segment, log, Some((path.to_owned(), about)), paths))
    }

    fn of(
        segment: Segment,
        log: [u8; 16],
        of: Option<(PathBuf, About)>,
        paths: VecDeque<PathBuf>,
    ) -> Self {
        let (directory, about) = of.unzip();
        let (crc, last) = (segment.crc, segment.before);
        Self { directory, about, log, paths, segment, at: HEADER_BYTES, crc, last }
    }

    /// Returns what the log says about itself. None if only a segment was opened.
    #[must_use]
    pub fn about(&self) -> Option<About> {
        self.about
    }

    /// Returns the random id of the log.
    #[must_use]
    pub fn log(&self) -> [u8; 16] {
        self.log
    }

    /// Returns the place before the first entry, if there is one.
    #[must_use]
    pub fn before(&self) -> Option<Place> {
        self.segment.before
    }

    /// Returns the snapshot beside the log, if there is one.
    ///
    /// # Errors
    ///
    /// If it has changed.
    pub fn snapshot(&self) -> Result<Option<Vec<u8>>, LogError> {
        self.directory.as_ref().map_or(Ok(None), |directory| snapshot::load(directory, self.log))
    }

    /// Returns the next entry, if there is one.
    ///
    /// # Errors
    ///
    /// If bytes that had been synced have changed, or a segment is missing.
    #[expect(clippy::should_implement_trait, reason = "it is an iterator that may fail")]
    pub fn next(&mut self) -> Result<Option<Found>, LogError> {
        for attempt in 0.. {
            if let Some(found) = self.read()? {
                return Ok(Some(found));
            }
            if self.roll()? {
                continue;
            }
            let rotten = LogError::Rotten { path: self.segment.path.clone(), offset: self.at };
            if !self.paths.is_empty() {
                return Err(rotten);
            }
            if !Tail::is_marked(&self.segment, self.at)? {
                return Ok(None);
            }
            // Written after the look at the end, or rotten: a second look tells.
            if attempt == ATTEMPTS {
                return Err(rotten);
            }
            std::thread::sleep(PAUSE);
        }
        Ok(None)
    }

    /// Reads the record at the place that was reached.
    fn read(&mut self) -> Result<Option<Found>, LogError> {
        let mut walk = Walk::new(&self.segment, self.at, self.segment.capacity);
        let Some((header, bytes)) = walk.next()? else { return Ok(None) };
        // A record of before a cut does not follow its predecessor.
        if header.previous != self.crc {
            return Ok(None);
        }
        let index = self.last.map_or(0, |last| last.index + 1);
        let Some(entry) = Entry::decode(bytes).ok().filter(|entry| entry.place.index == index)
        else {
            return Err(LogError::Rotten { path: self.segment.path.clone(), offset: self.at });
        };
        let found = Found { path: self.segment.path.clone(), offset: self.at, entry };
        (self.at, self.crc, self.last) = (walk.at(), header.crc, Some(found.entry.place));
        Ok(Some(found))
    }

    /// Goes on to the next segment, if this one is complete. Returns whether it is.
    fn roll(&mut self) -> Result<bool, LogError> {
        let path = match self.paths.front() {
            Some(path) => path.clone(),
            None => match &self.directory {
                // Its member may have begun it since.
                Some(directory) => directory.join(Segment::name(self.segment.number + 1)),
                None => return Ok(false),
            },
        };
        if !path.exists() && self.paths.is_empty() {
            return Ok(false);
        }
        let (segment, log) = open_segment(&path)?;
        if log != self.log || segment.number != self.segment.number + 1 {
            return Err(LogError::Foreign { path, why: "the segment before it is missing" });
        }
        let next = self.last.map_or(0, |last| last.index + 1);
        if segment.first() != next || segment.before.is_some_and(|before| Some(before) != self.last)
        {
            return Ok(false);
        }
        self.paths.pop_front();
        (self.at, self.crc, self.segment) = (HEADER_BYTES, segment.crc, segment);
        Ok(true)
    }
}

fn open_segment(path: &Path) -> Result<(Segment, [u8; 16]), LogError> {
    let mut file = File::open(path).map_err(LogError::io("open", path))?;
    let mut magic = [0; MAGIC.len()];
    let is_read = file.read_exact(&mut magic).is_ok();
    if !is_read || magic != MAGIC {
        let why = "this is no segment of a sequencer's log";
        return Err(LogError::Foreign { path: path.to_owned(), why });
    }
    Segment::read(file, path.to_owned())
}
