//! The directory of a bus, and how its files are opened.
//!
//! In `/dev/shm` any user may create anything under any name. Therefore no symbolic link is followed below the
//! root, only regular files are opened (a FIFO would block the opener), and every operation on a file of a bus is
//! relative to a descriptor of its directory.

use super::acl;
use super::fork::ParentOnlyFd;
use super::mapping::Protection;
use crate::error::{DirectoryError, FileError, InvalidName, OpenError, UntrustedDirectory};
use crate::settings::InvalidSetting;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The directory of buses if none is given.
pub(crate) const DEFAULT_ROOT: &str = "/dev/shm/toroni";
const DEFAULT_PARENT: &str = "/dev/shm";
const LONGEST_NAME: usize = 64;

/// Returns the directory of all buses: `explicit`, else `$TORONI_DIR`, else [`DEFAULT_ROOT`]. An empty variable
/// counts as unset. A program that has more rights than the user who starts it ignores the environment, because
/// that user controls it.
pub(crate) fn root(explicit: Option<&Path>) -> PathBuf {
    let from_environment = || {
        let dir = std::env::var_os("TORONI_DIR").filter(|dir| !dir.is_empty());
        dir.filter(|_| !has_foreign_environment())
    };
    explicit.map_or_else(
        || from_environment().map_or_else(|| PathBuf::from(DEFAULT_ROOT), PathBuf::from),
        Path::to_owned,
    )
}

/// Checks that `name` can name a bus: 1 to 64 of `A-Z a-z 0-9 . _ -`, not starting with a dot.
pub(crate) fn check_name(name: &str) -> Result<(), InvalidName> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if (1..=LONGEST_NAME).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(fits)
    {
        return Ok(());
    }
    Err(InvalidName { name: name.to_owned() })
}

/// A file of a bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BusFile {
    /// Header, control words, topic table and stream.
    Ring,
    /// Leases and slots of publishers.
    Publishers,
    /// Leases and slots of subscribers.
    Readers,
}

impl BusFile {
    pub(crate) const ALL: [Self; 3] = [Self::Ring, Self::Publishers, Self::Readers];

    /// Returns the name of the file in the directory.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Publishers => "publishers",
            Self::Readers => "readers",
        }
    }
}

pub(crate) const SOCKETS: &str = "sockets";

/// An opened directory of a bus. Clones share the descriptor.
#[derive(Clone)]
pub(crate) struct BusDirectory(Arc<Inner>);

struct Inner {
    root: OwnedFd,
    name: String,
    path: PathBuf,
    fd: OwnedFd,
    identity: (u64, u64),
    /// Whether this process has made the directory.
    is_new: bool,
}

impl BusDirectory {
    /// Opens the existing directory `root/name`.
    pub(crate) fn open(root: &Path, name: &str) -> Result<Self, DirectoryError> {
        check_name(name)?;
        let path = absolute(root).join(name);
        match open_root(root)? {
            Some(root) => Ok(Self::open_at(root, name.to_owned(), path)?),
            None => Err(FileError::NotFound { path }.into()),
        }
    }

    /// Opens as [`open`](Self::open) does, below a root that is already open, and under any name.
    pub(super) fn open_at(root: OwnedFd, name: String, path: PathBuf) -> Result<Self, FileError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&root, &*name, flags, Mode::empty()).map_err(|errno| {
            if errno == Errno::NOENT {
                return FileError::NotFound { path: path.clone() };
            }
            let is_link = rustix::fs::statat(&root, &*name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink);
            refused("open", &path, if is_link { Errno::LOOP } else { errno })
        })?;
        Self::of(root, name, path, fd, false)
    }

    /// Makes the handle of a directory that this process has just made.
    pub(super) fn new(
        root: OwnedFd,
        name: String,
        path: PathBuf,
        fd: OwnedFd,
    ) -> Result<Self, FileError> {
        Self::of(root, name, path, fd, true)
    }

    fn of(
        root: OwnedFd,
        name: String,
        path: PathBuf,
        fd: OwnedFd,
        is_new: bool,
    ) -> Result<Self, FileError> {
        let stat = rustix::fs::fstat(&fd).map_err(|errno| failed("open", &path, errno))?;
        Ok(Self(Arc::new(Inner { root, name, path, fd, identity: identity(&stat), is_new })))
    }

    /// Returns whether this process has made the directory. Otherwise it was there, and is not this process's to remove.
    pub(super) fn is_new(&self) -> bool {
        self.0.is_new
    }

    /// Returns the absolute path, for messages and for `toroni info`. Not for opening files.
    pub(crate) fn path(&self) -> &Path {
        &self.0.path
    }

    pub(crate) fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns a descriptor of the directory, which may be an O_PATH.
    pub(crate) fn dirfd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }

    /// Returns the same as [`dirfd`](Self::dirfd), or `EBADF` if the number now stands for another directory. That
    /// happens after code that knows nothing of this library called `close_range`; without this check, files of
    /// another bus would be opened.
    fn intact_dirfd(&self) -> Result<BorrowedFd<'_>, Errno> {
        let stat = rustix::fs::fstat(self.dirfd())?;
        if identity(&stat) == self.0.identity { Ok(self.dirfd()) } else { Err(Errno::BADF) }
    }

    /// Returns a descriptor (O_PATH) of the directory that contains this one.
    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.0.root.as_fd()
    }

    /// Opens a file with a new description.
    pub(crate) fn open_file(
        &self,
        file: BusFile,
        protection: Protection,
    ) -> Result<OwnedFd, FileError> {
        self.intact_dirfd()
            .and_then(|directory| open_regular(directory, file.name(), protection))
            .map_err(|errno| self.refused(file, protection, errno))
    }

    /// Opens a file with a new description that is to carry locks.
    pub(super) fn open_for_locks(
        &self,
        file: BusFile,
        protection: Protection,
    ) -> Result<ParentOnlyFd, FileError> {
        ParentOnlyFd::open(|| open_regular(self.intact_dirfd()?, file.name(), protection))
            .map_err(|errno| self.refused(file, protection, errno))
    }

    /// Opens the directory of sockets (O_PATH).
    pub(crate) fn open_sockets(&self) -> Result<OwnedFd, FileError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.intact_dirfd()
            .and_then(|directory| rustix::fs::openat(directory, SOCKETS, flags, Mode::empty()))
            .map_err(|errno| failed("open", &self.0.path.join(SOCKETS), errno))
    }

    /// Checks that the user `wanted` created the directory, and so every file in it: the user owns it, and only the
    /// owner may create files there.
    pub(crate) fn check_owner(&self, wanted: u32) -> Result<(), OpenError> {
        let stat = rustix::fs::fstat(self.dirfd())
            .map_err(|errno| failed("inspect", self.path(), errno))?;
        let wanted_name = || acl::user(wanted);
        let foreign = |found: String| OpenError::ForeignOwner {
            path: self.path().to_owned(),
            found,
            wanted: wanted_name(),
        };
        if stat.st_uid != wanted {
            return Err(foreign(acl::user(stat.st_uid)));
        }
        if Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH) {
            let mode = stat.st_mode & 0o7777;
            return Err(foreign(format!("all users who may write it (mode {mode:04o})")));
        }
        Ok(())
    }

    /// Returns whether the directory's path still leads to it. `clean` removes the name first.
    pub(super) fn is_still_named(&self) -> bool {
        still_names(self.root(), &self.0.name, self.0.identity)
    }

    fn refused(&self, file: BusFile, protection: Protection, errno: Errno) -> FileError {
        let path = self.0.path.join(file.name());
        match errno {
            Errno::NOENT => FileError::NotFound { path: self.0.path.clone() },
            Errno::ACCESS | Errno::PERM => self.denied(file, protection, path),
            Errno::NODEV | Errno::NXIO | Errno::ISDIR => {
                FileError::NotABus { path, what: "it is not a regular file".to_owned() }
            }
            Errno::MLINK => {
                let what = "it has a second hard link, and may belong to another bus".to_owned();
                FileError::NotABus { path, what }
            }
            errno => failed("open", &path, errno),
        }
    }

    fn denied(&self, file: BusFile, protection: Protection, path: PathBuf) -> FileError {
        let (action, role) = match (file, protection) {
            (BusFile::Ring, Protection::Read) => ("open", "every process of a bus"),
            (BusFile::Readers, Protection::Write) => {
                ("open for receiving", "a subscriber, in the group of readers,")
            }
            _ => ("open for publishing", "a publisher, in the group of writers,"),
        };
        let hint = acl::who_may(&path, role, protection);
        FileError::PermissionDenied { action, path, hint }
    }
}

impl fmt::Debug for BusDirectory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("BusDirectory").field(&self.0.path).finish()
    }
}

/// Opens the root (O_PATH), or returns `None` if it does not exist. A root that was chosen explicitly may be a symbolic link and may belong to any user.
/// The default root may not, because any user could create it.
pub(super) fn open_root(root: &Path) -> Result<Option<OwnedFd>, DirectoryError> {
    if root.as_os_str().is_empty() {
        // The caller named it. Falling back to the default would lead to other buses, and `clean` would remove some
        // of them.
        let rule = format!("a path; leave it out to use $TORONI_DIR or {DEFAULT_ROOT}");
        let value = "empty".to_owned();
        return Err(InvalidSetting { setting: "directory", value, rule }.into());
    }
    let mut flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut path = root;
    if root == Path::new(DEFAULT_ROOT) {
        flags |= OFlags::NOFOLLOW;
        // A path with a slash at the end compares equal, but with it a link would be followed.
        path = Path::new(DEFAULT_ROOT);
    }
    let fd = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::NOTDIR) if path == Path::new(DEFAULT_ROOT) && path.is_symlink() => {
            return Err(failed("open", root, Errno::LOOP).into());
        }
        Err(errno) => return Err(failed_at_root("open", root, errno).into()),
    };
    if root == Path::new(DEFAULT_ROOT) {
        let stat = rustix::fs::fstat(&fd).map_err(|errno| failed("open", root, errno))?;
        let parent =
            rustix::fs::stat(DEFAULT_PARENT).map_err(|errno| failed("open", root, errno))?;
        let us = rustix::process::geteuid().as_raw();
        if let Some(what) = objection(&stat, &parent, us) {
            let hint = sharing_hint();
            return Err(UntrustedDirectory { path: root.to_owned(), what, hint }.into());
        }
    }
    Ok(Some(fd))
}

/// Returns why user `us` must not use a root that any user may have created in `parent`. The root's owner can
/// replace every bus in it, and if it is writable for all and not sticky, any user can. A mounted root is accepted:
/// only a user who may mount can have made it.
fn objection(root: &Stat, parent: &Stat, us: u32) -> Option<String> {
    if root.st_dev != parent.st_dev {
        return None;
    }
    if root.st_uid != 0 && root.st_uid != us {
        let owner = acl::user(root.st_uid);
        return Some(format!("it belongs to {owner}, who could exchange every bus in it"));
    }
    let mode = Mode::from_raw_mode(root.st_mode);
    if mode.contains(Mode::WOTH) && !mode.contains(Mode::SVTX) {
        let mode = root.st_mode & 0o7777;
        return Some(format!("with its mode {mode:04o} everybody could exchange every bus in it"));
    }
    None
}

/// Opens the root as [`open_root`] does, and creates it if it is missing: the default root with mode 1777, for all
/// users; another one with the mode that the umask leaves.
pub(super) fn open_or_create_root(root: &Path) -> Result<OwnedFd, OpenError> {
    if let Some(fd) = open_root(root)? {
        return Ok(fd);
    }
    let missing = |path: &Path| OpenError::MissingDirectory { path: path.to_owned() };
    let answer = if root == Path::new(DEFAULT_ROOT) {
        create_for_all(root)
    } else {
        rustix::fs::mkdir(root, Mode::from_raw_mode(0o777))
    };
    match answer {
        // Another process may have removed it again.
        Ok(()) | Err(Errno::EXIST) => open_root(root)?.ok_or_else(|| missing(root)),
        Err(Errno::NOENT) => Err(missing(root.parent().unwrap_or(root))),
        Err(errno) => Err(failed_at_root("create", root, errno).into()),
    }
}

/// Returns a hint for messages: how to make the default directory usable for all users of the machine, and what a
/// user who is not root can do instead.
pub(super) fn sharing_hint() -> String {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let own = match runtime.filter(|directory| directory.is_absolute() && directory.is_dir()) {
        Some(directory) => directory.join("toroni").display().to_string(),
        None => format!("{DEFAULT_ROOT}-{}", rustix::process::geteuid().as_raw()),
    };
    format!(
        "to share it among all users, root runs `install -d -o root -g root -m 1777 {DEFAULT_ROOT}`, and writes the line `d {DEFAULT_ROOT} 1777 root root` to /etc/tmpfiles.d/toroni.conf for the next boot; without root, use a directory of your own (mkdir -m 700 {own}), which --dir or TORONI_DIR={own} names"
    )
}

/// Returns whether `path` is in the default directory and only some users may create buses there.
pub(super) fn is_default_and_not_for_all(path: &Path) -> bool {
    let is_for_all = |root: &Stat| root.st_mode & 0o1002 == 0o1002;
    path.starts_with(DEFAULT_ROOT) && !rustix::fs::stat(DEFAULT_ROOT).as_ref().is_ok_and(is_for_all)
}

/// Creates the directory under another name first, so that no process sees it before every user may write it.
fn create_for_all(root: &Path) -> Result<(), Errno> {
    let temporary = root.with_file_name(format!(".toroni.{}", random_name()));
    rustix::fs::mkdir(&temporary, Mode::from_raw_mode(0o700))?;
    let finish = || {
        // Not by its name: if the parent is not sticky, the name may lead elsewhere by now.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::open(&temporary, flags, Mode::empty())?;
        rustix::fs::fchmod(&made, Mode::from_raw_mode(0o1777))?;
        let cwd = rustix::fs::CWD;
        rustix::fs::renameat_with(cwd, &temporary, cwd, root, RenameFlags::NOREPLACE)
    };
    finish().inspect_err(|_| {
        let _ = rustix::fs::rmdir(&temporary);
    })
}

/// Opens a regular file below `directory`, and refuses anything else.
pub(super) fn open_regular(
    directory: BorrowedFd<'_>,
    name: &str,
    protection: Protection,
) -> Result<OwnedFd, Errno> {
    let access = match protection {
        Protection::Read => OFlags::RDONLY,
        Protection::Write => OFlags::RDWR,
    };
    // NONBLOCK: a FIFO under the file's name must not block the opener.
    let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = rustix::fs::openat(directory, name, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&fd)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::NODEV);
    }
    // A second hard link: this may be a file of another bus. The owner of this directory may not be allowed to
    // write that file, and could make other processes write it.
    if stat.st_nlink > 1 { Err(Errno::MLINK) } else { Ok(fd) }
}

/// Returns what distinguishes a file from all others that exist at the same time.
pub(super) fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Returns whether `name` in `directory` is the file with this identity. If permissions have changed so that this
/// cannot be checked, the answer is true.
pub(super) fn still_names(directory: BorrowedFd<'_>, name: &str, wanted: (u64, u64)) -> bool {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => identity(&stat) == wanted,
        Err(errno) => !matches!(errno, Errno::NOENT | Errno::NOTDIR),
    }
}

/// Returns whether the file system keeps its files over a reboot.
pub(super) fn is_on_disk(file: impl AsFd) -> io::Result<bool> {
    // From linux/magic.h: tmpfs, ramfs, hugetlbfs.
    const IN_MEMORY: [i64; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];
    let kind = rustix::fs::fstatfs(file)?.f_type;
    Ok(!IN_MEMORY.iter().any(|memory| i128::from(*memory) == i128::from(kind)))
}

/// Returns whether a file or directory is in an overlay of several directories.
pub(super) fn is_in_overlay(file: impl AsFd) -> bool {
    // From linux/magic.h.
    const OVERLAYFS: i64 = 0x794c_7630;
    rustix::fs::fstatfs(file).is_ok_and(|system| i128::from(system.f_type) == i128::from(OVERLAYFS))
}

/// Returns the error for a failed system call, if no better one is known.
pub(super) fn failed(action: &'static str, path: &Path, error: impl Into<io::Error>) -> FileError {
    let source = error.into();
    let path = path.to_owned();
    match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            FileError::PermissionDenied { hint: acl::who_is(&path), action, path }
        }
        Some(libc::EROFS) => FileError::ReadOnly { path },
        Some(libc::ELOOP) => FileError::Symlink { path },
        Some(libc::ENOTDIR) => FileError::NotADirectory { path },
        _ => FileError::Os { action, path, source },
    }
}

/// Returns the error as [`failed`] does, if the system call was about the directory of buses.
pub(super) fn failed_at_root(
    action: &'static str,
    root: &Path,
    error: impl Into<io::Error>,
) -> FileError {
    with_hint_of(root, failed(action, root, error))
}

/// Returns the error as [`failed`] does, if the directory of buses may have refused a call for the bus at `path`.
pub(super) fn refused(action: &'static str, path: &Path, error: impl Into<io::Error>) -> FileError {
    with_hint_of(path.parent().unwrap_or(path), failed(action, path, error))
}

fn with_hint_of(root: &Path, error: FileError) -> FileError {
    match error {
        FileError::PermissionDenied { action, path, .. } => {
            FileError::PermissionDenied { hint: acl::who_may_use(root, &path), action, path }
        }
        other => other,
    }
}

/// Returns 64 random bits as part of a file name.
pub(super) fn random_name() -> String {
    format!("{:016x}", u64::from_ne_bytes(random()))
}

pub(super) fn random<const LENGTH: usize>() -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    // SAFETY: the array has LENGTH bytes.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), LENGTH, 0) };
    // Requests of up to 256 bytes are never cut short once the machine's pool is filled (random(7)).
    assert_eq!(usize::try_from(got).ok(), Some(LENGTH), "getrandom works");
    bytes
}

/// Returns whether this program has rights that the process that started it does not have (setuid, setgid, file
/// capabilities).
fn has_foreign_environment() -> bool {
    // SAFETY: reads a number that the kernel passed to this process at its start.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::testing::{TempDir, in_own_process};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn names_are_those_of_plain_files() {
        for name in ["a", "demo", "Plant_7.b-2", &"x".repeat(64)] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", ".", "..", ".hidden", "a/b", "a b", "ä", "a\0", &"x".repeat(65)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn each_obstacle_has_its_error() {
        let root = TempDir::new();
        let open = |name| match BusDirectory::open(root.path(), name).unwrap_err() {
            DirectoryError::File(error) => error,
            other => panic!("{other}"),
        };
        assert!(matches!(open("none"), FileError::NotFound { .. }));
        std::fs::write(root.path().join("file"), b"").unwrap();
        assert!(matches!(open("file"), FileError::NotADirectory { .. }));
        std::fs::create_dir(root.path().join("real")).unwrap();
        symlink("real", root.path().join("link")).unwrap();
        assert!(matches!(open("link"), FileError::Symlink { .. }));
        let empty = Path::new("");
        for error in [open_root(empty).err(), BusDirectory::open(empty, "bus").err()] {
            assert!(matches!(error, Some(DirectoryError::InvalidSetting(_))));
        }
        let missing = root.path().join("no/where");
        assert!(matches!(
            open_or_create_root(&missing).unwrap_err(),
            OpenError::MissingDirectory { path } if path == root.path().join("no")
        ));
        assert!(matches!(
            BusDirectory::open(&missing, "bus").unwrap_err(),
            DirectoryError::File(FileError::NotFound { .. })
        ));
        assert!(matches!(
            BusDirectory::open(&root.path().join("file"), "bus").unwrap_err(),
            DirectoryError::File(FileError::NotADirectory { .. })
        ));
    }

    #[test]
    fn only_regular_files_are_opened() {
        let root = TempDir::new();
        let bus = root.bus();
        for file in [BusFile::Ring, BusFile::Publishers, BusFile::Readers] {
            bus.open_file(file, Protection::Write).unwrap();
            std::fs::remove_file(bus.path().join(file.name())).unwrap();
        }
        symlink("/dev/zero", bus.path().join("ring")).unwrap();
        let fifo = bus.path().join("readers");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o666), 0)
            .unwrap();
        std::fs::create_dir(bus.path().join("publishers")).unwrap();
        let open = |file| bus.open_file(file, Protection::Read).unwrap_err();
        assert!(matches!(open(BusFile::Ring), FileError::Symlink { .. }));
        assert!(matches!(open(BusFile::Readers), FileError::NotABus { .. }));
        assert!(matches!(open(BusFile::Publishers), FileError::NotABus { .. }));
    }

    #[test]
    fn the_root_for_all_is_sticky() {
        let directory = TempDir::new();
        let root = directory.path().join("root");
        create_for_all(&root).unwrap();
        assert_eq!(root.metadata().unwrap().permissions().mode() & 0o7777, 0o1777);
        assert_eq!(create_for_all(&root), Err(Errno::EXIST));
        assert_eq!(directory.names(), ["root"]);
    }

    #[test]
    fn a_root_of_somebody_else_is_refused() {
        let stat = |owner, mode: u32, device| {
            // A `Stat` has only numbers, and the kernel fills in all of them first.
            let mut stat = rustix::fs::stat("/").unwrap();
            (stat.st_uid, stat.st_mode, stat.st_dev) = (owner, 0o040_000 | mode, device);
            stat
        };
        let parent = stat(0, 0o1777, 5);
        let refused = |root: Stat| objection(&root, &parent, 1000);
        assert_eq!(refused(stat(0, 0o1777, 5)), None);
        assert_eq!(refused(stat(1000, 0o1777, 5)), None);
        assert_eq!(refused(stat(1000, 0o700, 5)), None);
        assert!(refused(stat(1001, 0o1777, 5)).unwrap().contains("1001"));
        assert!(refused(stat(1001, 0o755, 5)).is_some());
        assert!(refused(stat(0, 0o777, 5)).unwrap().contains("0777"));
        // This is how Kubernetes mounts an emptyDir.
        assert_eq!(refused(stat(0, 0o777, 6)), None);
    }

    #[test]
    fn files_with_further_hard_links_are_refused() {
        let root = TempDir::new();
        let bus = root.bus();
        let link = root.path().join("link");
        for file in [BusFile::Ring, BusFile::Publishers, BusFile::Readers] {
            std::fs::hard_link(bus.path().join(file.name()), &link).unwrap();
            let refused = bus.open_file(file, Protection::Read).unwrap_err();
            assert!(matches!(&refused, FileError::NotABus { what, .. } if what.contains("link")));
            assert!(bus.open_for_locks(file, Protection::Write).is_err());
            std::fs::remove_file(&link).unwrap();
            bus.open_file(file, Protection::Write).unwrap();
        }
    }

    #[test]
    fn a_directory_is_not_taken_for_another_with_its_number() {
        let name = "shm::directory::tests::a_directory_is_not_taken_for_another_with_its_number";
        in_own_process(name, || {
            let (root, other) = (TempDir::new(), TempDir::new());
            let (bus, other) = (root.bus(), other.bus());
            // SAFETY: both numbers are open in this process, which runs this test alone.
            unsafe {
                libc::dup3(other.dirfd().as_raw_fd(), bus.dirfd().as_raw_fd(), libc::O_CLOEXEC)
            };
            assert!(bus.open_file(BusFile::Readers, Protection::Read).is_err());
            assert!(bus.open_for_locks(BusFile::Readers, Protection::Write).is_err());
            assert!(bus.open_sockets().is_err());
            other.open_file(BusFile::Readers, Protection::Read).unwrap();
        });
    }

    #[test]
    fn an_owner_can_be_required() {
        let root = TempDir::new();
        let bus = root.bus();
        let us = rustix::process::geteuid().as_raw();
        bus.check_owner(us).unwrap();
        let other = bus.check_owner(us + 1).unwrap_err();
        assert!(matches!(&other, OpenError::ForeignOwner { .. }), "{other}");
        for mode in [0o775, 0o757] {
            std::fs::set_permissions(bus.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(bus.check_owner(us).is_err(), "{mode:o}");
        }
    }

    #[test]
    fn a_taken_name_is_seen() {
        let root = TempDir::new();
        let bus = root.bus();
        assert!(bus.is_still_named());
        std::fs::rename(bus.path(), root.path().join("other")).unwrap();
        assert!(!bus.is_still_named());
        std::fs::create_dir(bus.path()).unwrap();
        assert!(!bus.is_still_named());
    }

    #[test]
    fn tmpfs_is_no_disk() {
        let root = TempDir::new();
        assert!(!is_on_disk(std::fs::File::open(root.path()).unwrap()).unwrap());
        assert!(is_on_disk(std::fs::File::open("/").unwrap()).unwrap());
    }
}
