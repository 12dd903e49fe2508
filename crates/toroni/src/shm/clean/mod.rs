//! Frees and removes what dead processes left behind.
//!
//! Nothing here trusts names, because any user may be able to write the root. No symbolic link is followed. Files
//! with more than one hard link, and directories that contain files of no bus, are left alone. Every removal is
//! relative to a directory that was opened and checked before.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::create::entries;
use super::directory::{BusDirectory, BusFile, SOCKETS, check_name, failed, random_name};
use super::fork::ParentOnlyFd;
use super::header::Header;
use super::lease::{Lease, LeaseTester};
use super::leftovers::{
    bus_of_leftover, explain, remove_content, remove_empty, remove_socket, socket_name, stranger_in,
};
use super::list::{open_and_list, open_below};
use super::mapping::{Mapping, Protection};
use super::ofd::{self, Kind};
use super::participants::{check, state_of};
use super::ring_file::{RingFile, read_header};
use crate::error::{DirectoryError, FileError};
use crate::hook::{self, CrashPoint};
use crate::ring::layout::{BUS_LOCK_OFFSET, SLOT_FREE};
use crate::ring::position::to_index;
use crate::sync::Ordering;
use rustix::fs::RenameFlags;
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// What [`clean`] did, or would do.
#[derive(Debug, Default)]
pub(crate) struct CleanReport {
    pub(crate) freed_slots: Vec<FreedSlot>,
    pub(crate) removed_sockets: Vec<PathBuf>,
    pub(crate) removed_buses: Vec<PathBuf>,
    /// Buses that were half-built or half-removed when their creator or remover died.
    pub(crate) removed_leftovers: Vec<PathBuf>,
    pub(crate) skipped: Vec<Skipped>,
}

/// A slot whose owner died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FreedSlot {
    pub(crate) bus: String,
    pub(crate) file: BusFile,
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// Something that may be a leftover and was left alone.
#[derive(Debug)]
pub(crate) struct Skipped {
    pub(crate) path: PathBuf,
    pub(crate) why: String,
}

#[derive(Clone, Copy)]
pub(crate) enum Scope<'a> {
    /// All buses of the directory, except persistent ones and those with an unreadable header.
    All,
    /// This bus, unless it is persistent. If its header cannot be read, whether it is persistent is unknown; it is
    /// removed, because it was named.
    Named(&'a str),
    /// This bus, persistent or not.
    Persistent(&'a str),
}

/// Frees the slots and sockets of dead participants, and removes what no process uses within `scope`: buses without
/// any handle, and leftovers. With `dry_run` it only reports.
pub(crate) fn clean(
    root: &Path,
    scope: Scope<'_>,
    dry_run: bool,
) -> Result<CleanReport, DirectoryError> {
    let name = match scope {
        Scope::All => None,
        Scope::Named(name) | Scope::Persistent(name) => Some(name),
    };
    if let Some(name) = name {
        check_name(name)?;
    }
    let mut cleaner = Cleaner {
        dry_run,
        is_named: name.is_some(),
        takes_persistent: matches!(scope, Scope::Persistent(_)),
        report: CleanReport::default(),
    };
    let no_such_bus = || name.map(|name| FileError::NotFound { path: root.join(name) }.into());
    let Some((root_fd, mut names)) = open_and_list(root)? else {
        return no_such_bus().map_or(Ok(cleaner.report), Err);
    };
    names.sort();
    let mut found = false;
    for entry in names {
        let leftover_of = bus_of_leftover(&entry);
        let bus = leftover_of.unwrap_or(&entry);
        if check_name(bus).is_err() || name.is_some_and(|name| name != bus) {
            continue;
        }
        match open_below(&root_fd, root, &entry) {
            Ok(directory) if leftover_of.is_some() => cleaner.leftover(&directory),
            Ok(directory) => cleaner.bus(&directory),
            Err(FileError::NotFound { .. }) => continue,
            // A file or a link, so not part of a bus.
            Err(error) => cleaner.skip_if_named(&root.join(&entry), error.to_string()),
        }
        found = true;
    }
    match no_such_bus() {
        Some(error) if !found => Err(error),
        _ => Ok(cleaner.report),
    }
}

struct Cleaner {
    dry_run: bool,
    is_named: bool,
    takes_persistent: bool,
    report: CleanReport,
}

/// Whether a bus is in use.
enum Use {
    /// No process has it open, and none can open it until this descriptor is closed.
    Free(ParentOnlyFd),
    Busy,
}

impl Cleaner {
    fn bus(&mut self, directory: &BusDirectory) {
        match self.try_remove(directory) {
            Ok(true) => return,
            Ok(false) => {}
            Err(why) => return self.skip(directory.path(), why),
        }
        // It stays, because it is in use or persistent.
        match RingFile::open(directory, Protection::Read) {
            Ok(ring) => {
                for file in [BusFile::Publishers, BusFile::Readers] {
                    if let Err(error) = self.free_slots(directory, ring.header(), file) {
                        self.skip(&directory.path().join(file.name()), error.to_string());
                    }
                }
                if let Err(error) = self.remove_sockets(directory, ring.header()) {
                    self.skip(&directory.path().join(SOCKETS), error.to_string());
                }
            }
            Err(FileError::NotFound { .. }) => {}
            Err(error) => self.skip(directory.path(), error.to_string()),
        }
    }

    /// Removes the bus if no process uses it. Returns `true` if it was removed, or would be without `dry_run`, and
    /// `false` if it stays. An error means that it cannot be removed, and that its slots and sockets should not be
    /// cleaned either.
    fn try_remove(&mut self, directory: &BusDirectory) -> Result<bool, String> {
        let ring = match self.check_use(directory) {
            Ok(Use::Free(ring)) => ring,
            Ok(Use::Busy) => {
                self.skip_if_named(directory.path(), "it is in use".to_owned());
                return Ok(false);
            }
            // There is no bus, or it is gone by now.
            Err(FileError::NotFound { .. }) => return Ok(true),
            Err(error) => return Err(error.to_string()),
        };
        match read_header(ring.as_fd(), directory) {
            Ok(header) if header.settings.persistent && !self.takes_persistent => {
                let name = directory.name();
                self.skip_if_named(
                    directory.path(),
                    format!("it is persistent (`toroni rm {name}` removes it)"),
                );
                return Ok(false);
            }
            Ok(_) => {}
            Err(error @ FileError::NotABus { .. }) => return Err(error.to_string()),
            // It may be persistent, or of another release.
            Err(error) if !self.is_named => {
                return Err(format!("{error} (`toroni rm {}` removes it)", directory.name()));
            }
            Err(_) => {}
        }
        if let Some(stranger) = stranger_in(directory)? {
            return Err(format!("it holds {stranger:?}, which is not part of a bus"));
        }
        if !self.dry_run {
            self.take_name_and_remove(directory)?;
        }
        self.report.removed_buses.push(directory.path().to_owned());
        Ok(true)
    }

    fn check_use(&self, directory: &BusDirectory) -> Result<Use, FileError> {
        let protection = if self.dry_run { Protection::Read } else { Protection::Write };
        let ring = directory.open_for_locks(BusFile::Ring, protection)?;
        let answer = if self.dry_run {
            ofd::is_refused(&ring, Kind::Exclusive, BUS_LOCK_OFFSET).map(|refused| !refused)
        } else {
            ofd::try_lock(&ring, Kind::Exclusive, BUS_LOCK_OFFSET)
        };
        match answer {
            Ok(true) => Ok(Use::Free(ring)),
            Ok(false) => Ok(Use::Busy),
            Err(error) => Err(failed("lock", &directory.path().join("ring"), error)),
        }
    }

    /// Removes the name first, so that a process that comes now creates a new bus and does not see half of this
    /// one.
    fn take_name_and_remove(&self, directory: &BusDirectory) -> Result<(), String> {
        let root = directory.root();
        let leftover = format!(".{}.{}", directory.name(), random_name());
        if !directory.is_still_named() {
            return Ok(());
        }
        hook::point(CrashPoint::CleanerHasBus);
        match rustix::fs::renameat_with(
            root,
            directory.name(),
            root,
            &*leftover,
            RenameFlags::NOREPLACE,
        ) {
            Ok(()) => {
                hook::point(CrashPoint::MidClean);
                remove_content(directory).map_err(|errno| explain("remove", errno))?;
                remove_empty(directory, &leftover)
            }
            // A mount point cannot be removed. `ring` goes first, and with it the bus.
            Err(Errno::BUSY) => remove_content(directory),
            Err(errno) => Err(errno),
        }
        .map_err(|errno| explain("remove", errno))
    }

    fn leftover(&mut self, directory: &BusDirectory) {
        let path = directory.path().to_owned();
        match self.check_use(directory) {
            // Its creator or its remover is still working on it.
            Ok(Use::Busy) => return,
            Ok(Use::Free(_)) => {}
            // There is no `ring`. A creator makes and locks `ring` first, so an empty directory may belong to a
            // creator that has just begun. It starts again if the directory vanishes, but must not lose a file that
            // it is making; therefore the directory is removed only while it is empty. A directory with other files
            // and no `ring` was left by a remover, which removes `ring` first.
            Err(FileError::NotFound { .. }) => match entries(directory.dirfd()) {
                Ok(names) if names.iter().any(|name| *name == BusFile::Ring.name()) => return,
                Ok(names) if names.is_empty() => {
                    if self.dry_run || remove_empty(directory, directory.name()).is_ok() {
                        self.report.removed_leftovers.push(path);
                    }
                    return;
                }
                _ => {}
            },
            Err(error) => return self.skip(&path, error.to_string()),
        }
        match stranger_in(directory) {
            Ok(None) => {}
            Ok(Some(stranger)) => {
                return self
                    .skip(&path, format!("it holds {stranger:?}, which is not part of a bus"));
            }
            Err(why) => return self.skip(&path, why),
        }
        if !self.dry_run {
            let removed =
                remove_content(directory).and_then(|()| remove_empty(directory, directory.name()));
            if let Err(errno) = removed {
                return self.skip(&path, explain("remove", errno));
            }
        }
        self.report.removed_leftovers.push(path);
    }

    fn free_slots(
        &mut self,
        directory: &BusDirectory,
        header: &Header,
        file: BusFile,
    ) -> Result<(), FileError> {
        let protection = if self.dry_run { Protection::Read } else { Protection::Write };
        let fd = directory.open_file(file, protection)?;
        check(&fd, header, file, directory)?;
        let length = to_index(header.file_bytes(file));
        let os = |error| failed("clean", &directory.path().join(file.name()), error);
        let mapping = Mapping::file(&fd, length, protection).map_err(os)?;
        let tester = LeaseTester::open(directory, file)?;
        for slot in 0..header.slots(file) {
            let Some((state, generation)) = state_of(&mapping, header, file, slot) else { break };
            if state.load(Ordering::Acquire) == SLOT_FREE || tester.is_held(slot).map_err(os)? {
                continue;
            }
            if !self.dry_run {
                let Some(lease) = Lease::try_claim(directory, file, slot)? else { continue };
                hook::point(CrashPoint::MidFreeSlot);
                // Only the owner of the lease writes the state. That is this process now, so check again.
                if state.load(Ordering::Acquire) == SLOT_FREE {
                    continue;
                }
                state.store(SLOT_FREE, Ordering::Release);
                drop(lease);
            }
            let generation = generation.load(Ordering::Relaxed);
            let bus = directory.name().to_owned();
            self.report.freed_slots.push(FreedSlot { bus, file, slot, generation });
        }
        Ok(())
    }

    fn remove_sockets(
        &mut self,
        directory: &BusDirectory,
        header: &Header,
    ) -> Result<(), FileError> {
        let sockets = directory.open_sockets()?;
        let path = directory.path().join(SOCKETS);
        let os = |error| failed("clean", &path, error);
        // Read the names before the generations. If a living subscriber has bound a socket by now, its generation
        // is the one that is read later.
        let names = entries(sockets.as_fd()).map_err(os)?;
        if names.is_empty() {
            return Ok(());
        }
        let fd = directory.open_file(BusFile::Readers, Protection::Read)?;
        check(&fd, header, BusFile::Readers, directory)?;
        let length = to_index(header.file_bytes(BusFile::Readers));
        let readers = Mapping::file(&fd, length, Protection::Read).map_err(os)?;
        let tester = LeaseTester::open(directory, BusFile::Readers)?;
        for name in names {
            let Some((slot, generation)) = socket_name(&name) else {
                self.skip(&path.join(&name), "it is not a subscriber's socket".to_owned());
                continue;
            };
            let is_alive = slot < header.settings.max_subscribers
                && state_of(&readers, header, BusFile::Readers, slot)
                    .is_some_and(|(_, now)| now.load(Ordering::Acquire) == generation)
                && tester.is_held(slot).map_err(os)?;
            if is_alive {
                continue;
            }
            if !self.dry_run
                && let Err(errno) = remove_socket(&sockets, &name)
            {
                self.skip(&path.join(&name), explain("remove", errno));
                continue;
            }
            self.report.removed_sockets.push(path.join(&name));
        }
        Ok(())
    }

    fn skip(&mut self, path: &Path, why: String) {
        self.report.skipped.push(Skipped { path: path.to_owned(), why });
    }

    fn skip_if_named(&mut self, path: &Path, why: String) {
        if self.is_named {
            self.skip(path, why);
        }
    }
}

#[cfg(test)]
mod tests;
