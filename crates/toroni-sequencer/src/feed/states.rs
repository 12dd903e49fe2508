//! States of the machine on the disk: which commands of the log are events, and of which number, is known only to a machine
//! that has applied all that was before.
//!
//! ```text
//!  <number of the next event>-<index of the last entry>.state      both in hexadecimal
//!  "TNSEQAT" 1 · log 16 · place of the last entry · machine
//! ```
//!
//! A member does not sync them: one that was lost or torn costs a longer way from the one before. An archive syncs those without
//! which its log would be of no use (`keeper.rs`).

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::bytes::Fields;
use crate::entry::Place;
use crate::log::{Log, LogError};
use crate::machine::Machine;

const MAGIC: [u8; 8] = *b"TNSEQAT\x01";

/// Where states are: (number of the next event) → index of the last entry.
#[derive(Debug)]
pub(super) struct States {
    directory: PathBuf,
    log: [u8; 16],
    known: BTreeMap<u64, u64>,
}

impl States {
    /// Finds the states of a log.
    pub(super) fn open(log: &Log) -> io::Result<Self> {
        let directory = log.directory().join("states");
        fs::create_dir_all(&directory)?;
        let mut known = BTreeMap::new();
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).and_then(numbers_of);
            match name {
                Some((next, index)) => drop(known.insert(next, index)),
                // One that was not finished.
                None => fs::remove_file(&path)?,
            }
        }
        Ok(Self { directory, log: log.files(), known })
    }

    fn path(&self, next: u64, index: u64) -> PathBuf {
        self.directory.join(format!("{next:016x}-{index:016x}.state"))
    }

    /// Keeps a state. Returns its length; 0 if there was one.
    pub(super) fn save(&mut self, machine: &Machine, last: Place) -> io::Result<u64> {
        let next = machine.next();
        // Of several with one number, the earliest leads to all that the others lead to.
        if self.known.contains_key(&next) {
            return Ok(0);
        }
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.log);
        last.encode(&mut bytes);
        bytes.extend(machine.snapshot());
        let unfinished = self.directory.join("state.tmp");
        fs::write(&unfinished, &bytes)?;
        fs::rename(&unfinished, self.path(next, last.index))?;
        self.known.insert(next, last.index);
        Ok(bytes.len() as u64)
    }

    /// Removes those that lead to nothing that is in the log: what follows them was purged, or they are of entries that the
    /// log does not have.
    pub(super) fn prune(&mut self, log: &Log) {
        let (purged, last) = log.ends();
        let is_of_use = |index: u64| {
            purged.is_none_or(|purged| index >= purged.index)
                && last.is_some_and(|last| index <= last.index)
        };
        let useless: Vec<_> = self.known.iter().filter(|(_, index)| !is_of_use(**index)).collect();
        for next in useless.into_iter().map(|(next, _)| *next).collect::<Vec<_>>() {
            self.forget(next);
        }
    }

    /// Removes a state.
    pub(super) fn forget(&mut self, next: u64) {
        if let Some(index) = self.known.remove(&next) {
            // If it cannot be removed, the next start finds it again.
            let _ = fs::remove_file(self.path(next, index));
        }
    }

    /// Returns the number of the first event after the oldest state, if everything up to this index was purged.
    pub(super) fn first(&self, purged: u64) -> Option<u64> {
        self.known.iter().find(|(_, index)| **index >= purged).map(|(next, _)| *next)
    }

    /// Returns the last state before the event of this number.
    pub(super) fn before(&self, number: u64) -> Option<Kept> {
        let (next, index) = self.known.range(..=number).next_back()?;
        Some(Kept { next: *next, index: *index, path: self.path(*next, *index) })
    }
}

/// A state that was kept.
pub(super) struct Kept {
    pub(super) next: u64,
    /// The index of the last entry.
    pub(super) index: u64,
    path: PathBuf,
}

impl Kept {
    /// Syncs it, and its name.
    pub(super) fn sync(&self) -> io::Result<()> {
        fs::File::open(&self.path)?.sync_all()?;
        self.path.parent().map_or(Ok(()), |directory| fs::File::open(directory)?.sync_all())
    }

    /// Reads it. None if it cannot be believed.
    pub(super) fn load(&self, log: &Log) -> Result<Option<Machine>, LogError> {
        let Some((machine, last)) = load(&self.path, log.files()) else { return Ok(None) };
        let is_right = machine.next() == self.next && last.index == self.index && log.has(last)?;
        Ok(is_right.then_some(machine))
    }
}

fn numbers_of(name: &str) -> Option<(u64, u64)> {
    let (next, index) = name.strip_suffix(".state")?.split_once('-')?;
    let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
    number(next).zip(number(index))
}

fn load(path: &Path, log: [u8; 16]) -> Option<(Machine, Place)> {
    let bytes = fs::read(path).ok()?;
    let mut fields = Fields::of(&bytes);
    if fields.array().ok()? != MAGIC || fields.array().ok()? != log {
        return None;
    }
    let last = Place::decode(&mut fields).ok()?;
    // It ends in a hash of its own.
    Machine::from_snapshot(fields.rest()).ok().zip(Some(last))
}
