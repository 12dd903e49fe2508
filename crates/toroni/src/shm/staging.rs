//! Files and directories that are being built, and are removed if they are never completed.

use super::acl::Part;
use super::directory::{BusFile, SOCKETS, random_name};
use crate::hook::mutant;
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The directory `.<bus>.<random>` of a bus that is being built. Dropping it removes it, unless it was renamed.
pub(super) struct StagedBus<'a> {
    root: &'a OwnedFd,
    name: Option<String>,
    fd: Result<OwnedFd, Errno>,
}

impl<'a> StagedBus<'a> {
    pub(super) fn new(root: &'a OwnedFd, bus: &str) -> Result<Self, Errno> {
        let name = if mutant("bus_named_before_complete") {
            bus.to_owned()
        } else {
            format!(".{bus}.{}", random_name())
        };
        rustix::fs::mkdirat(root, &*name, Part::Directory.first_mode())?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(root, &*name, flags, Mode::empty());
        Ok(Self { root, name: Some(name), fd })
    }

    pub(super) fn fd(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.fd.as_ref().map(AsFd::as_fd).map_err(|errno| *errno)
    }

    /// Gives the directory its name, if that is free, and returns its descriptor.
    pub(super) fn rename_to(mut self, bus: &str) -> Result<OwnedFd, Errno> {
        if let Some(name) = &self.name {
            let root = self.root;
            rustix::fs::renameat_with(root, &**name, root, bus, RenameFlags::NOREPLACE)?;
        }
        self.name = None;
        std::mem::replace(&mut self.fd, Err(Errno::BADF))
    }
}

impl Drop for StagedBus<'_> {
    fn drop(&mut self) {
        let Some(name) = &self.name else { return };
        if let Ok(fd) = &self.fd {
            remove_files(fd.as_fd());
        }
        let _ = rustix::fs::unlinkat(self.root, &**name, AtFlags::REMOVEDIR);
    }
}

/// Removes what a creator has made in a directory, `ring` first.
pub(super) fn remove_files(fd: BorrowedFd<'_>) {
    for file in [BusFile::Ring, BusFile::Publishers, BusFile::Readers] {
        let _ = rustix::fs::unlinkat(fd, file.name(), AtFlags::empty());
    }
    let _ = rustix::fs::unlinkat(fd, SOCKETS, AtFlags::REMOVEDIR);
}

/// A file that gets its name when it is complete.
pub(super) struct StagedFile<'a> {
    directory: BorrowedFd<'a>,
    file: BusFile,
    pub(super) fd: OwnedFd,
    /// The name until then, if the file system has no files without names.
    temporary: Option<String>,
}

impl<'a> StagedFile<'a> {
    pub(super) fn new(directory: BorrowedFd<'a>, file: BusFile) -> Result<Self, Errno> {
        let mode = part(file).first_mode();
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let staged = match rustix::fs::openat(directory, ".", flags | OFlags::TMPFILE, mode) {
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                let name = format!(".{}.{}", file.name(), random_name());
                let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
                let fd = rustix::fs::openat(directory, &*name, flags, mode)?;
                Self { directory, file, fd, temporary: Some(name) }
            }
            answer => Self { directory, file, fd: answer?, temporary: None },
        };
        if mutant("file_named_before_complete") {
            staged.link()?;
        }
        Ok(staged)
    }

    /// Opens another description of the same file.
    pub(super) fn reopen(&self) -> Result<OwnedFd, Errno> {
        rustix::fs::open(self.own_path(), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
    }

    /// Gives the file its name, if that is free.
    pub(super) fn link(&self) -> Result<(), Errno> {
        let name = self.file.name();
        if let Some(temporary) = &self.temporary {
            let (from, to) = (self.directory, self.directory);
            return rustix::fs::renameat_with(from, &**temporary, to, name, RenameFlags::NOREPLACE);
        }
        let cwd = rustix::fs::CWD;
        let follow = AtFlags::SYMLINK_FOLLOW;
        rustix::fs::linkat(cwd, self.own_path(), self.directory, name, follow)
    }

    fn own_path(&self) -> String {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }
}

impl Drop for StagedFile<'_> {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = rustix::fs::unlinkat(self.directory, &**temporary, AtFlags::empty());
        }
    }
}

/// Returns the mode of a file that is created in `directory` for everybody: `0666` less the umask, or what an
/// inherited access control list leaves.
///
/// To find it, this creates an empty directory. A file without a name would not do, because a file system may apply
/// no umask to it. A file with a name could be opened by other users before its permissions are set. The umask
/// itself cannot be read without changing it for all threads of the process, and `/proc` may be missing.
pub(super) fn mode_of_new_files(directory: BorrowedFd<'_>) -> Result<u32, Errno> {
    let name = format!(".{SOCKETS}.{}", random_name());
    // No user can create anything in it, even if the umask leaves everything.
    rustix::fs::mkdirat(directory, &*name, Mode::from_raw_mode(0o666))?;
    let stat = rustix::fs::statat(directory, &*name, AtFlags::SYMLINK_NOFOLLOW);
    let removed = rustix::fs::unlinkat(directory, &*name, AtFlags::REMOVEDIR);
    let mode = stat?.st_mode;
    removed?;
    Ok(mode & 0o666)
}

/// Gives a file its full size, with memory or disk space for every byte.
pub(super) fn reserve(fd: BorrowedFd<'_>, bytes: u64) -> Result<(), Errno> {
    if longest_file().is_some_and(|limit| bytes > limit) {
        return Err(Errno::FBIG);
    }
    match rustix::fs::fallocate(fd, FallocateFlags::empty(), 0, bytes) {
        Err(Errno::OPNOTSUPP) => {}
        answer => return answer,
    }
    // Not every file system can reserve. Writing works on all.
    let zeros = vec![0; 1 << 20];
    let mut written = 0;
    while written < bytes {
        let rest = usize::try_from(bytes - written).unwrap_or(usize::MAX).min(zeros.len());
        match rustix::io::pwrite(fd, &zeros[..rest], written)? {
            0 => return Err(Errno::NOSPC),
            length => written += length as u64,
        }
    }
    Ok(())
}

/// Returns the length of the longest file that this process may write, if there is a limit (RLIMIT_FSIZE). Beyond
/// it a process gets no error, but a signal that ends it (SIGXFSZ).
pub(super) fn longest_file() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current
}

/// Returns the number of free bytes, if the file system has a limit.
pub(super) fn available(place: impl AsFd) -> Option<u64> {
    let room = rustix::fs::fstatvfs(place).ok()?;
    (room.f_blocks > 0).then(|| room.f_bavail.saturating_mul(room.f_frsize))
}

pub(super) fn part(file: BusFile) -> Part {
    match file {
        BusFile::Ring => Part::Ring,
        BusFile::Publishers => Part::Publishers,
        BusFile::Readers => Part::Readers,
    }
}
