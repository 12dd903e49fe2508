//! Creates a bus, completely or not at all, and opens it.
//!
//! A new bus is built in a directory named `.<bus>.<random>` and then renamed. So no process sees a half-built bus,
//! and if several processes create the same bus, exactly one wins.
//!
//! A mount point cannot be renamed over. If the directory exists and is empty, `ring` is built there without a
//! name, and gets its name when it is complete. A process that finds `ring` but not the other files creates them
//! from the header of `ring`.
//!
//! All memory is reserved at creation. If the file system is full, creation fails. Without this, a later
//! store would raise SIGBUS.

use super::acl::{Part, Permissions, apply_by_umask, mode_by_umask};
use super::directory::{
    self, BusDirectory, BusFile, SOCKETS, check_name, failed, open_or_create_root, random_name,
    refused,
};
use super::fork::ParentOnlyFd;
use super::header::{Header, bus_bytes};
use super::leftovers::remove_empty;
use super::lock;
use super::mapping::{Mapping, Protection};
use super::ofd::{self, Kind};
use super::ring_file::RingFile;
use super::staging::{
    StagedBus, StagedFile, available, longest_file, mode_of_new_files, part, remove_files, reserve,
};
use crate::error::{FileError, OpenError};
use crate::hook::{self, CrashPoint};
use crate::ring::layout::{BUS_LOCK_OFFSET, CONTROL_OFFSET, Control, TABLE_OFFSET};
use crate::settings::{LockKind, Settings};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Opens an existing bus. The returned [`RingFile`] holds its header and the lock that keeps `clean` from removing
/// it.
pub(crate) fn open(root: &Path, name: &str) -> Result<(BusDirectory, RingFile), OpenError> {
    let directory = BusDirectory::open(root, name)?;
    bring_up(&directory);
    let ring = RingFile::open(&directory, Protection::Read)?;
    complete(&directory, &ring)?;
    Ok((directory, ring))
}

/// Brings the files of a bus in an overlay (overlayfs) to its upper layer, before this process reads them.
///
/// A bus that is part of an image lies in a lower layer. The kernel copies a file to the upper layer when a process first
/// opens it for writing. A process that has opened it for reading before keeps the file below: a subscriber would
/// receive nothing, and a publisher would see no subscriber. Nothing shows in which layer a file is, so this opens each for
/// writing. A process that may not do that relies on one that did so before it.
fn bring_up(directory: &BusDirectory) {
    if !directory::is_in_overlay(directory.dirfd()) {
        return;
    }
    for file in [BusFile::Ring, BusFile::Publishers, BusFile::Readers] {
        // If it cannot be opened at all, that is reported when it is needed.
        let _ = directory.open_file(file, Protection::Write);
    }
}

/// Opens a bus, or creates it if it does not exist. The result is `true` if this call created it.
pub(crate) fn open_or_create(
    root: &Path,
    name: &str,
    settings: &Settings,
    permissions: &Permissions,
) -> Result<(BusDirectory, RingFile, bool), OpenError> {
    // The loop repeats only if another process creates or removes the bus between the two checks.
    for _ in 0..MOST_ATTEMPTS {
        match open(root, name) {
            Err(OpenError::File(FileError::NotFound { .. })) => {}
            answer => return answer.map(|(directory, ring)| (directory, ring, false)),
        }
        match create(root, name, settings, permissions) {
            Err(OpenError::AlreadyExists { .. }) => {}
            answer => return answer.map(|(directory, ring)| (directory, ring, true)),
        }
        std::thread::yield_now();
    }
    Err(FileError::Busy { path: root.join(name) }.into())
}

/// A creator can lose several times in a row to a process on another core that does nothing but clean.
const MOST_ATTEMPTS: u32 = 1000;

/// Holds the shared bus lock of a bus that was just created, so that `clean` does not remove it before its creator
/// has opened it.
type Held = ParentOnlyFd;

/// Removes a bus that this process has just created, unless another process has opened it meanwhile. A directory that was
/// there before stays, with its rights. It needs no further descriptors: the process may have none left.
pub(crate) fn take_back(directory: &BusDirectory, ring: &RingFile) {
    if remove_unused(directory, ring) && directory.is_new() {
        let _ = remove_empty(directory, directory.name());
    }
}

/// Removes the files of a bus unless a process other than the one that has `held` uses it. Returns whether it did.
fn remove_unused(directory: &BusDirectory, held: impl AsFd) -> bool {
    let is_unused = matches!(ofd::try_lock(held, Kind::Exclusive, BUS_LOCK_OFFSET), Ok(true));
    if is_unused {
        remove_files(directory.dirfd());
    }
    is_unused
}

/// Creates a bus, and opens it. `AlreadyExists` if there is one of this name.
pub(crate) fn create(
    root: &Path,
    name: &str,
    settings: &Settings,
    permissions: &Permissions,
) -> Result<(BusDirectory, RingFile), OpenError> {
    check_name(name)?;
    settings.validate()?;
    let path = std::path::absolute(root).unwrap_or_else(|_| root.to_owned()).join(name);
    let mut vanishes = true;
    for _ in 0..MOST_ATTEMPTS {
        let root_fd = open_or_create_root(root)?;
        let order = Order { settings, permissions, path: &path };
        match rustix::fs::statat(&root_fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => match order.build_and_rename(&root_fd, name) {
                // Another process created or mounted it meanwhile, so check which. Or `clean` found it before it
                // was locked, and removed it.
                Err(OpenError::File(FileError::NotFound { .. })) => {}
                Err(OpenError::AlreadyExists { .. }) => vanishes = false,
                answer => {
                    let (held, fd) = answer?;
                    let directory = BusDirectory::new(root_fd, name.to_owned(), path, fd)?;
                    return opened(directory, held);
                }
            },
            Err(errno) => return Err(refused("inspect", &path, errno).into()),
            Ok(_) => match BusDirectory::open_at(root_fd, name.to_owned(), path.clone()) {
                Err(FileError::NotFound { .. }) => {}
                answer => {
                    let directory = answer?;
                    match order.build_in_place(&directory) {
                        // What looked like an empty mount point was a bus that is being removed.
                        Err(_) if !directory.is_still_named() => vanishes = false,
                        held => return opened(directory, held?),
                    }
                }
            },
        }
        std::thread::yield_now();
    }
    if vanishes {
        // No other process interfered, so the file system cannot create directories.
        return Err(failed("create", &path, Errno::NOENT).into());
    }
    Err(FileError::Busy { path }.into())
}

/// Opens a bus through what its creator holds. That takes no descriptor, so it cannot fail for lack of one.
fn opened(directory: BusDirectory, held: Held) -> Result<(BusDirectory, RingFile), OpenError> {
    let ring = RingFile::of_new(&directory, held)?;
    Ok((directory, ring))
}

/// What to create, and where.
struct Order<'a> {
    settings: &'a Settings,
    permissions: &'a Permissions,
    path: &'a Path,
}

impl Order<'_> {
    fn build_and_rename(&self, root: &OwnedFd, name: &str) -> Result<(Held, OwnedFd), OpenError> {
        self.check_space(root)?;
        let failed = |errno| match errno {
            Errno::ACCESS | Errno::PERM => refused("create", self.path, errno).into(),
            errno => self.failed("create", errno, root),
        };
        let staged = StagedBus::new(root, name).map_err(failed)?;
        let fd = staged.fd().map_err(failed)?;
        hook::point(CrashPoint::CreatorBegan);
        let mode = self.mode_by_umask(fd)?;
        let header = Header::new(self.settings, self.permissions);
        let new_file = |file: BusFile| {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            rustix::fs::openat(fd, file.name(), flags, part(file).first_mode())
        };
        let held = self.hold(root, || new_file(BusFile::Ring))?;
        self.fill(&held, BusFile::Ring, &header, mode)?;
        hook::point(CrashPoint::MidCreation);
        for file in [BusFile::Publishers, BusFile::Readers] {
            self.fill(&new_file(file).map_err(failed)?, file, &header, mode)?;
        }
        self.make_sockets(fd, SOCKETS, mode)?;
        self.set_permissions(fd, Part::Directory, mode)?;
        hook::point(CrashPoint::BeforeRename);

        match staged.rename_to(name) {
            Ok(directory) => Ok((held, directory)),
            Err(Errno::EXIST) => Err(OpenError::AlreadyExists { path: self.path.to_owned() }),
            Err(errno) => Err(failed(errno)),
        }
    }

    fn build_in_place(&self, directory: &BusDirectory) -> Result<Held, OpenError> {
        let path = self.path.to_owned();
        if exists(directory.dirfd(), BusFile::Ring.name()) {
            return Err(OpenError::AlreadyExists { path });
        }
        for name in entries(directory.dirfd()).map_err(|error| failed("list", self.path, error))? {
            match &*name {
                // Another creator linked it just now and completed it.
                "ring" | "publishers" | "readers" | SOCKETS
                    if exists(directory.dirfd(), BusFile::Ring.name()) =>
                {
                    return Err(OpenError::AlreadyExists { path });
                }
                // The root of a disk, or unfinished files of a creator that died.
                "lost+found" => {}
                name if name.starts_with('.') => {}
                name => {
                    let what = format!("it holds {name:?}, but no ring");
                    return Err(FileError::NotABus { path, what }.into());
                }
            }
        }
        self.check_space(directory.dirfd())?;
        let header = Header::new(self.settings, self.permissions);
        let mode = self.mode_by_umask(directory.dirfd())?;
        let staged = StagedFile::new(directory.dirfd(), BusFile::Ring);
        let staged = staged.map_err(|errno| self.failed("create", errno, directory.dirfd()))?;
        hook::point(CrashPoint::CreatorBegan);
        let held = self.hold(directory.dirfd(), || staged.reopen())?;
        self.fill(&held, BusFile::Ring, &header, mode)?;
        hook::point(CrashPoint::MidCreation);
        match staged.link() {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(OpenError::AlreadyExists { path }),
            Err(errno) => return Err(self.failed("create", errno, directory.dirfd())),
        }
        hook::point(CrashPoint::BeforeRename);
        match self.make_missing(directory, &header, mode) {
            Ok(()) => Ok(held),
            Err(error) => {
                // The directory was there before.
                remove_unused(directory, &held);
                Err(error)
            }
        }
    }

    /// Opens the new `ring` with `open` and takes its shared bus lock.
    fn hold(
        &self,
        place: impl AsFd,
        open: impl FnOnce() -> Result<OwnedFd, Errno>,
    ) -> Result<Held, OpenError> {
        let held = ParentOnlyFd::open(open).map_err(|errno| self.failed("create", errno, place))?;
        match ofd::try_lock(&held, Kind::Shared, BUS_LOCK_OFFSET) {
            Ok(true) => Ok(held),
            // `clean` found it before it was locked, and is removing it.
            Ok(false) => Err(FileError::NotFound { path: self.path.to_owned() }.into()),
            Err(error) => Err(failed("lock", self.path, error).into()),
        }
    }

    /// Returns the mode of a new bus in the directory `place`, if no rights were asked for.
    fn mode_by_umask(&self, place: BorrowedFd<'_>) -> Result<Option<u32>, OpenError> {
        if !self.permissions.by_umask() {
            return Ok(None);
        }
        let left = mode_of_new_files(place).map_err(|errno| self.failed("create", errno, place))?;
        Ok(Some(mode_by_umask(left)))
    }

    /// Returns the mode of an existing bus, if no rights were asked for. It is that of `ring`, whatever the umask
    /// of this process.
    fn mode_of(&self, ring: impl AsFd) -> Result<Option<u32>, OpenError> {
        if !self.permissions.by_umask() {
            return Ok(None);
        }
        let stat = rustix::fs::fstat(ring).map_err(|errno| failed("inspect", self.path, errno))?;
        Ok(Some(mode_by_umask(stat.st_mode)))
    }

    /// Creates the files that are missing next to `ring`, with `mode` if the bus has one.
    fn make_missing(
        &self,
        directory: &BusDirectory,
        header: &Header,
        mode: Option<u32>,
    ) -> Result<(), OpenError> {
        let fd = directory.dirfd();
        let failed = |errno| self.failed("complete", errno, fd);
        for file in [BusFile::Publishers, BusFile::Readers] {
            if exists(fd, file.name()) {
                continue;
            }
            let staged = StagedFile::new(fd, file).map_err(failed)?;
            self.fill(&staged.fd, file, header, mode)?;
            match staged.link() {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        if !exists(fd, SOCKETS) {
            let name = format!(".{SOCKETS}.{}", random_name());
            let made = self.make_sockets(fd, &name, mode).and_then(|()| {
                match rustix::fs::renameat_with(fd, &*name, fd, SOCKETS, RenameFlags::NOREPLACE) {
                    Ok(()) => Ok(()),
                    Err(Errno::EXIST) => {
                        rustix::fs::unlinkat(fd, &*name, AtFlags::REMOVEDIR).map_err(failed)
                    }
                    Err(errno) => Err(failed(errno)),
                }
            });
            return made.inspect_err(|_| {
                let _ = rustix::fs::unlinkat(fd, &*name, AtFlags::REMOVEDIR);
            });
        }
        Ok(())
    }

    /// Sets the permissions of a new file, reserves its memory, and writes its content, the header last.
    fn fill(
        &self,
        fd: impl AsFd,
        file: BusFile,
        header: &Header,
        mode: Option<u32>,
    ) -> Result<(), OpenError> {
        let fd = fd.as_fd();
        self.set_permissions(fd, part(file), mode)?;
        reserve(fd, header.file_bytes(file)).map_err(|errno| self.failed("create", errno, fd))?;
        let os = |error: io::Error| failed("create", self.path, error);
        let bytes: &[u8] = if file == BusFile::Ring {
            let mapping = Mapping::file(fd, TABLE_OFFSET, Protection::Write).map_err(os)?;
            if let Some(control) = mapping.at::<Control>(CONTROL_OFFSET) {
                control.reset();
                lock::initialize(header.settings.lock, control).map_err(os)?;
            }
            &header.encode()
        } else {
            &header.encode_file(file)
        };
        hook::point(CrashPoint::MidFill);
        match rustix::io::pwrite(fd, bytes, 0) {
            Ok(length) if length == bytes.len() => Ok(()),
            Ok(_) => Err(os(io::ErrorKind::WriteZero.into()).into()),
            Err(errno) => Err(self.failed("create", errno, fd)),
        }
    }

    fn make_sockets(
        &self,
        directory: BorrowedFd<'_>,
        name: &str,
        mode: Option<u32>,
    ) -> Result<(), OpenError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::mkdirat(directory, name, Part::Sockets.first_mode())
            .and_then(|()| rustix::fs::openat(directory, name, flags, Mode::empty()))
            .map_err(|errno| self.failed("create", errno, directory))
            .inspect(|_| hook::point(CrashPoint::MidSockets))
            .and_then(|sockets| self.set_permissions(sockets.as_fd(), Part::Sockets, mode))
    }

    fn set_permissions(
        &self,
        fd: BorrowedFd<'_>,
        part: Part,
        mode: Option<u32>,
    ) -> Result<(), OpenError> {
        match mode {
            Some(mode) => Ok(apply_by_umask(fd, part, mode, self.path)?),
            None => self.permissions.apply(fd, part, self.path),
        }
    }

    /// Checks that there is enough space. Reserving without this check could fill the file system before it fails,
    /// and harm other programs.
    fn check_space(&self, place: impl AsFd) -> Result<(), OpenError> {
        let place = place.as_fd();
        let (wanted, path) = (bus_bytes(self.settings), self.path.to_owned());
        if self.settings.lock == LockKind::Robust
            && directory::is_on_disk(place).map_err(|error| failed("create", &path, error))?
        {
            return Err(FileError::RobustOnDisk { path }.into());
        }
        match available(place) {
            Some(available) if available < wanted => {
                Err(OpenError::NoSpace { wanted, available, path })
            }
            _ => Ok(()),
        }
    }

    fn failed(&self, action: &'static str, errno: Errno, place: impl AsFd) -> OpenError {
        match errno {
            Errno::NOSPC if has_no_inodes(place.as_fd()) => {
                OpenError::NoInodes { path: self.path.to_owned() }
            }
            Errno::NOSPC | Errno::DQUOT => OpenError::NoSpace {
                wanted: bus_bytes(self.settings),
                available: available(place).unwrap_or(0),
                path: self.path.to_owned(),
            },
            Errno::NOENT => FileError::NotFound { path: self.path.to_owned() }.into(),
            Errno::FBIG => match longest_file() {
                Some(limit) => OpenError::FileTooLong { limit, path: self.path.to_owned() },
                None => failed(action, self.path, errno).into(),
            },
            errno => failed(action, self.path, errno).into(),
        }
    }
}

/// Creates the missing files of a bus whose creator died half-way, in a directory that existed before.
fn complete(directory: &BusDirectory, ring: &RingFile) -> Result<(), OpenError> {
    let missing = || {
        [BusFile::Publishers.name(), BusFile::Readers.name(), SOCKETS]
            .into_iter()
            .find(|name| !exists(directory.dirfd(), name))
    };
    if missing().is_none() {
        return Ok(());
    }
    let header = ring.header();
    let order = Order {
        settings: &header.settings,
        permissions: &header.permissions,
        path: directory.path(),
    };
    match order.mode_of(ring).and_then(|mode| order.make_missing(directory, header, mode)) {
        Err(OpenError::File(FileError::PermissionDenied { .. } | FileError::ReadOnly { .. })) => {}
        answer => return answer,
    }
    // This process may not create them. The creator may be doing so right now.
    for _ in 0..100 {
        if missing().is_none() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let what = format!("it has no {:?}, which only its owner can create", missing().unwrap_or(""));
    Err(FileError::NotABus { path: directory.path().to_owned(), what }.into())
}

/// Returns whether the file system limits its number of files and has reached the limit.
fn has_no_inodes(place: BorrowedFd<'_>) -> bool {
    rustix::fs::fstatvfs(place).is_ok_and(|room| room.f_files > 0 && room.f_favail == 0)
}

fn exists(directory: BorrowedFd<'_>, name: &str) -> bool {
    !matches!(rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT))
}

/// Returns the names in a directory. Bytes that are not UTF-8 become replacement characters.
pub(super) fn entries(directory: BorrowedFd<'_>) -> io::Result<Vec<String>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listed = rustix::fs::openat(directory, ".", flags, Mode::empty())?;
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::new(listed)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests;
