//! Making a bus, all of it or nothing, and opening it.
//!
//! A new bus is built under the name `.<bus>.<random>` and then renamed: nobody meets half of one,
//! and of several creators one wins. In a directory that exists and is empty (a mount point, which
//! cannot be renamed over) `ring` is made first, without a name until it is complete; whoever finds
//! the other files missing makes them from its header.
//!
//! All memory is reserved at creation: a full file system is an error here, and not a SIGBUS in some
//! later store.

use super::acl::{Part, Permissions};
use super::directory::{
    self, BusDirectory, BusFile, SOCKETS, check_name, failed, open_or_create_root, random_name,
};
use super::draft::{Draft, DraftFile, available, part, reserve};
use super::fork::ParentOnlyFd;
use super::header::{Header, bus_bytes};
use super::mapping::{Mapping, Protection};
use super::ofd::{self, Kind};
use super::ring_file::RingFile;
use crate::crash::{self, CrashPoint};
use crate::error::OpenError;
use crate::ring::layout::{BUS_LOCK_OFFSET, CONTROL_OFFSET, Control, PAGE};
use crate::settings::{LockKind, Settings};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Makes a bus that does not exist yet; `AlreadyExists` if it does.
pub(crate) fn create(
    root: &Path,
    name: &str,
    settings: &Settings,
    permissions: &Permissions,
) -> Result<BusDirectory, OpenError> {
    create_held(root, name, settings, permissions).map(|(directory, _)| directory)
}

/// Opens a bus that exists; its header and the lock that keeps it come with it.
pub(crate) fn open(root: &Path, name: &str) -> Result<(BusDirectory, RingFile), OpenError> {
    let directory = BusDirectory::open(root, name)?;
    let ring = RingFile::open(&directory, Protection::Read)?;
    complete(&directory, &ring)?;
    Ok((directory, ring))
}

/// Opens a bus, and makes it if it does not exist. `true` if it was made here.
pub(crate) fn open_or_create(
    root: &Path,
    name: &str,
    settings: &Settings,
    permissions: &Permissions,
) -> Result<(BusDirectory, RingFile, bool), OpenError> {
    // Again only if somebody else creates, or removes, the bus between our two looks.
    for _ in 0..MOST_ATTEMPTS {
        match open(root, name) {
            Err(OpenError::NotFound { .. }) => {}
            answer => return answer.map(|(directory, ring)| (directory, ring, false)),
        }
        match create_held(root, name, settings, permissions) {
            Err(OpenError::AlreadyExists { .. }) => {}
            answer => {
                let (directory, _held) = answer?;
                let ring = RingFile::open(&directory, Protection::Read)?;
                return Ok((directory, ring, true));
            }
        }
    }
    Err(OpenError::Busy { path: root.join(name) })
}

const MOST_ATTEMPTS: u32 = 16;

/// Holds the shared bus lock of a bus that was just made, so that `clean` does not take it away
/// before its maker has opened it.
type Held = ParentOnlyFd;

fn create_held(
    root: &Path,
    name: &str,
    settings: &Settings,
    permissions: &Permissions,
) -> Result<(BusDirectory, Held), OpenError> {
    check_name(name)?;
    settings.validate()?;
    let path = std::path::absolute(root).unwrap_or_else(|_| root.to_owned()).join(name);
    for _ in 0..MOST_ATTEMPTS {
        let root_fd = open_or_create_root(root)?;
        let order = Order { settings, permissions, path: &path };
        match rustix::fs::statat(&root_fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => match order.build_and_rename(&root_fd, name) {
                // Made, or mounted, meanwhile: see which. Or removed by `clean`, which found it
                // before it was locked.
                Err(OpenError::AlreadyExists { .. } | OpenError::NotFound { .. }) => {}
                answer => {
                    let held = answer?;
                    let directory = BusDirectory::open_at(root_fd, name.to_owned(), path)?;
                    return Ok((directory, held));
                }
            },
            Err(errno) => return Err(failed("look at", &path, errno)),
            Ok(_) => match BusDirectory::open_at(root_fd, name.to_owned(), path.clone()) {
                Err(OpenError::NotFound { .. }) => {}
                answer => {
                    let directory = answer?;
                    let held = order.build_in_place(&directory)?;
                    return Ok((directory, held));
                }
            },
        }
    }
    Err(OpenError::Busy { path })
}

/// What is to be made.
struct Order<'a> {
    settings: &'a Settings,
    permissions: &'a Permissions,
    path: &'a Path,
}

impl Order<'_> {
    fn build_and_rename(&self, root: &OwnedFd, name: &str) -> Result<Held, OpenError> {
        self.check_room(root)?;
        let mut draft = Draft { root, name: format!(".{name}.{}", random_name()), fd: None };
        rustix::fs::mkdirat(root, &*draft.name, self.permissions.first_mode(Part::Directory))
            .map_err(|errno| self.failed("create", errno, root))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(root, &*draft.name, flags, Mode::empty())
            .map_err(|errno| self.failed("create", errno, root))?;
        let fd = (*draft.fd.insert(fd)).as_fd();

        let header = Header::new(self.settings, self.permissions);
        let new_file = |file: BusFile| {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let mode = self.permissions.first_mode(part(file));
            rustix::fs::openat(fd, file.name(), flags, mode)
                .map_err(|errno| self.failed("create", errno, root))
        };
        let held = hold(|| new_file(BusFile::Ring), self.path)?;
        self.fill(&held, BusFile::Ring, &header, None)?;
        crash::point(CrashPoint::MidCreation);
        for file in [BusFile::Publishers, BusFile::Readers] {
            self.fill(&new_file(file)?, file, &header, None)?;
        }
        self.make_sockets(fd, SOCKETS, None)?;
        self.permissions.apply(fd, Part::Directory, self.path)?;
        crash::point(CrashPoint::BeforeRename);

        match rustix::fs::renameat_with(root, &*draft.name, root, name, RenameFlags::NOREPLACE) {
            Ok(()) => {
                draft.fd = None;
                Ok(held)
            }
            Err(Errno::EXIST) => Err(OpenError::AlreadyExists { path: self.path.to_owned() }),
            Err(errno) => Err(self.failed("create", errno, root)),
        }
    }

    fn build_in_place(&self, directory: &BusDirectory) -> Result<Held, OpenError> {
        let path = self.path.to_owned();
        if exists(directory.dirfd(), BusFile::Ring.name()) {
            return Err(OpenError::AlreadyExists { path });
        }
        for name in entries(directory.dirfd()).map_err(|error| failed("list", self.path, error))? {
            match &*name {
                // Linked this very moment by another creator, and then completed.
                "ring" | "publishers" | "readers" | SOCKETS
                    if exists(directory.dirfd(), BusFile::Ring.name()) =>
                {
                    return Err(OpenError::AlreadyExists { path });
                }
                // The root of a disk; unfinished files of a creator that died.
                "lost+found" => {}
                name if name.starts_with('.') => {}
                name => {
                    let what = format!("it holds {name:?}, but no ring");
                    return Err(OpenError::NotABus { path, what });
                }
            }
        }
        self.check_room(directory.dirfd())?;
        let header = Header::new(self.settings, self.permissions);
        let draft = DraftFile::new(directory.dirfd(), BusFile::Ring, self.permissions);
        let draft = draft.map_err(|errno| self.failed("create", errno, directory.dirfd()))?;
        let held = hold(|| draft.reopen(), self.path)?;
        self.fill(&held, BusFile::Ring, &header, None)?;
        crash::point(CrashPoint::MidCreation);
        match draft.link() {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(OpenError::AlreadyExists { path }),
            Err(errno) => return Err(self.failed("create", errno, directory.dirfd())),
        }
        crash::point(CrashPoint::BeforeRename);
        self.make_missing(directory, &header, None)?;
        Ok(held)
    }

    /// Makes what `directory` lacks next to `ring`. With `mode`, that of `ring`, the new files get
    /// the same in place of what the umask leaves.
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
            let draft = DraftFile::new(fd, file, self.permissions).map_err(failed)?;
            self.fill(&draft.fd, file, header, mode)?;
            match draft.link() {
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

    /// Gives a new file its permissions, its memory and its content; the header last.
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
            let mapping =
                Mapping::file(fd, CONTROL_OFFSET + PAGE, Protection::Write).map_err(os)?;
            if let Some(control) = mapping.at::<Control>(CONTROL_OFFSET) {
                control.reset();
            }
            &header.encode()
        } else {
            &header.encode_file(file)
        };
        match rustix::io::pwrite(fd, bytes, 0) {
            Ok(length) if length == bytes.len() => Ok(()),
            Ok(_) => Err(os(io::ErrorKind::WriteZero.into())),
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
        rustix::fs::mkdirat(directory, name, self.permissions.first_mode(Part::Sockets))
            .and_then(|()| rustix::fs::openat(directory, name, flags, Mode::empty()))
            .map_err(|errno| self.failed("create", errno, directory))
            .and_then(|sockets| self.set_permissions(sockets.as_fd(), Part::Sockets, mode))
    }

    fn set_permissions(
        &self,
        fd: BorrowedFd<'_>,
        part: Part,
        mode: Option<u32>,
    ) -> Result<(), OpenError> {
        let Some(mode) = mode else { return self.permissions.apply(fd, part, self.path) };
        let enter = if part == Part::Sockets { (mode & 0o444) >> 2 } else { 0 };
        rustix::fs::fchmod(fd, Mode::from_raw_mode(mode | enter))
            .map_err(|errno| failed("set the permissions of", self.path, errno))
    }

    /// Looks before it reserves: to fill the file system first and fail then would hurt others.
    fn check_room(&self, place: impl AsFd) -> Result<(), OpenError> {
        let place = place.as_fd();
        let (wanted, path) = (bus_bytes(self.settings), self.path.to_owned());
        if self.settings.lock == LockKind::Robust
            && directory::is_on_disk(place).map_err(|error| failed("create", &path, error))?
        {
            return Err(OpenError::RobustOnDisk { path });
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
            Errno::NOSPC | Errno::DQUOT => OpenError::NoSpace {
                wanted: bus_bytes(self.settings),
                available: available(place).unwrap_or(0),
                path: self.path.to_owned(),
            },
            Errno::NOENT => OpenError::NotFound { path: self.path.to_owned() },
            errno => failed(action, self.path, errno),
        }
    }
}

/// Makes what a bus lacks whose creator died half-way, in a directory that existed before.
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
    let by_umask = header.permissions == Permissions::default();
    let mode = rustix::fs::fstat(ring).ok().map(|stat| stat.st_mode & 0o666);
    match order.make_missing(directory, header, mode.filter(|_| by_umask)) {
        Err(OpenError::PermissionDenied { .. } | OpenError::ReadOnly { .. }) => {}
        answer => return answer,
    }
    // Not ours to make. The creator may be at it just now.
    for _ in 0..100 {
        if missing().is_none() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let what = format!("it has no {:?}, whose creation needs its owner", missing().unwrap_or(""));
    Err(OpenError::NotABus { path: directory.path().to_owned(), what })
}

/// Opens `ring` and takes the shared bus lock.
fn hold(open: impl FnOnce() -> Result<OwnedFd, OpenError>, path: &Path) -> Result<Held, OpenError> {
    let held = ParentOnlyFd::open(open)?;
    match ofd::try_lock(&held, Kind::Shared, BUS_LOCK_OFFSET) {
        Ok(true) => Ok(held),
        // `clean` found it before it was locked, and takes it away.
        Ok(false) => Err(OpenError::NotFound { path: path.to_owned() }),
        Err(error) => Err(failed("lock", path, error)),
    }
}

fn exists(directory: BorrowedFd<'_>, name: &str) -> bool {
    !matches!(rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT))
}

/// Names in a directory; one that is not UTF-8 with replacement characters.
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
mod tests {
    use super::*;
    use crate::shm::participants::{read_publishers, read_readers};
    #[cfg(feature = "crash-points")]
    use crate::shm::testing::child_task;
    use crate::shm::testing::{
        TempDir, in_fork, in_own_process, mount_tmpfs, names, own_mounts, small,
    };
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    const COMPLETE: [&str; 4] = ["publishers", "readers", "ring", "sockets"];

    fn make(root: &TempDir, settings: &Settings) -> Result<BusDirectory, OpenError> {
        create(root.path(), "bus", settings, &Permissions::default())
    }

    fn open_or_make(root: &TempDir) -> (BusDirectory, RingFile, bool) {
        open_or_create(root.path(), "bus", &small(), &Permissions::default()).unwrap()
    }

    #[test]
    fn a_bus_is_complete_and_paid_for() {
        let root = TempDir::new();
        let bus = make(&root, &small()).unwrap();
        assert_eq!(root.names(), ["bus"]);
        assert_eq!(names(bus.path()), COMPLETE);
        for file in [BusFile::Ring, BusFile::Publishers, BusFile::Readers] {
            let metadata = bus.path().join(file.name()).metadata().unwrap();
            assert!(metadata.blocks() * 512 >= metadata.len(), "{file:?} has holes");
        }
        let (_, ring) = open(root.path(), "bus").unwrap();
        assert_eq!(ring.header().settings, small());
        assert_eq!(read_readers(&bus, ring.header()).unwrap().len(), 4);
        assert_eq!(read_publishers(&bus, ring.header()).unwrap().len(), 4);
    }

    #[test]
    fn the_existing_bus_wins() {
        let root = TempDir::new();
        let (_, first, made) = open_or_make(&root);
        assert!(made);
        assert!(matches!(make(&root, &small()), Err(OpenError::AlreadyExists { .. })));
        let larger = Settings { capacity: 128 << 10, ..small() };
        let (_, second, made) =
            open_or_create(root.path(), "bus", &larger, &Permissions::default()).unwrap();
        assert!(!made);
        assert_eq!(first.header(), second.header());
        assert_eq!(root.names(), ["bus"]);
    }

    #[test]
    fn of_many_creators_one_wins() {
        for in_place in [false, true] {
            let root = TempDir::new();
            if in_place {
                std::fs::create_dir(root.path().join("bus")).unwrap();
            }
            let start = std::sync::Barrier::new(8);
            let makers: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..8)
                    .map(|_| {
                        scope.spawn(|| {
                            start.wait();
                            let (_, ring, made) = open_or_make(&root);
                            (ring.header().bus_id, made)
                        })
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(makers.iter().filter(|(_, made)| *made).count(), 1, "{makers:?}");
            assert!(makers.iter().all(|(id, _)| *id == makers[0].0));
            assert_eq!(root.names(), ["bus"]);
            assert_eq!(names(&root.path().join("bus")), COMPLETE);
        }
    }

    #[test]
    fn a_full_file_system_is_an_error_with_numbers() {
        let root = TempDir::new();
        let settings = Settings { capacity: 1 << 40, ..small() };
        let Err(OpenError::NoSpace { wanted, available, path }) = make(&root, &settings) else {
            panic!("a terabyte in /dev/shm");
        };
        assert!(wanted > 1 << 40 && available > 0 && available < wanted);
        assert_eq!(path, root.path().join("bus"));
        assert!(root.names().is_empty());
    }

    /// The file system fills up between the look and the reservation.
    #[test]
    fn nothing_is_left_behind() {
        let root = TempDir::new();
        let (settings, permissions) = (small(), Permissions::default());
        let path = root.path().join("bus");
        let order = Order { settings: &settings, permissions: &permissions, path: &path };
        let root_fd = directory::open_root(root.path()).unwrap();
        let mut draft = Draft { root: &root_fd, name: ".bus.1".to_owned(), fd: None };
        rustix::fs::mkdirat(&root_fd, ".bus.1", Mode::from_raw_mode(0o700)).unwrap();
        let fd = OwnedFd::from(std::fs::File::open(root.path().join(".bus.1")).unwrap());
        std::fs::write(root.path().join(".bus.1/ring"), b"half").unwrap();
        order.make_sockets(fd.as_fd(), SOCKETS, None).unwrap();
        draft.fd = Some(fd);
        drop(draft);
        assert!(root.names().is_empty());
        let error = order.failed("create", Errno::NOSPC, &root_fd);
        assert!(
            matches!(error, OpenError::NoSpace { wanted, .. } if wanted == bus_bytes(&settings))
        );
    }

    #[test]
    fn file_systems_that_are_full_or_read_only() {
        in_own_process("shm::create::tests::file_systems_that_are_full_or_read_only", || {
            if !own_mounts() {
                return eprintln!("skipped: mounting needs root");
            }
            let root = TempDir::new();
            // Room for a bus is 88 KiB; inodes are for the root, the bus, and one to five of its files.
            for inodes in 2..7 {
                let _mount = mount_tmpfs(root.path(), &format!("size=1m,nr_inodes={inodes}"), 0);
                let answer = make(&root, &small());
                assert!(
                    matches!(answer, Err(OpenError::NoSpace { .. })) == (inodes < 6),
                    "{inodes}"
                );
                assert_eq!(root.names().len(), usize::from(inodes == 6));
            }
            let _mount = mount_tmpfs(root.path(), "size=64k", 0);
            assert!(matches!(
                make(&root, &small()),
                Err(OpenError::NoSpace { available: 65536, .. })
            ));
            assert!(root.names().is_empty());
            std::fs::create_dir(root.path().join("bus")).unwrap();
            assert!(matches!(make(&root, &small()), Err(OpenError::NoSpace { .. })));
            assert!(names(&root.path().join("bus")).is_empty());
            let _mount = mount_tmpfs(root.path(), "", libc::MS_RDONLY);
            assert!(matches!(make(&root, &small()), Err(OpenError::ReadOnly { .. })));
        });
    }

    /// What each role can open, of a bus made for two groups.
    #[test]
    fn strangers_stay_out() {
        in_own_process("shm::create::tests::strangers_stay_out", || {
            if !rustix::process::geteuid().is_root() {
                return eprintln!("skipped: only root can become other users");
            }
            let root = TempDir::new();
            let permissions =
                Permissions { mode: None, writers: Some(61001), readers: Some(61002) };
            create(root.path(), "bus", &small(), &permissions).unwrap();
            use Protection::{Read, Write};
            for (group, can) in [
                (61001, [true, true, true, false]),
                (61002, [true, false, false, true]),
                (61003, [false; 4]),
            ] {
                in_fork(|| {
                    // SAFETY: the rest of this child is another user.
                    unsafe {
                        assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
                        assert_eq!(libc::setgid(group), 0);
                        assert_eq!(libc::setuid(61009), 0);
                    }
                    let bus = BusDirectory::open(root.path(), "bus").unwrap();
                    let could = [
                        (BusFile::Ring, Read),
                        (BusFile::Ring, Write),
                        (BusFile::Publishers, Write),
                        (BusFile::Readers, Write),
                    ]
                    .map(|(file, protection)| {
                        match bus.open_file(file, protection) {
                            Ok(_) => true,
                            Err(OpenError::PermissionDenied { hint, .. }) => {
                                assert!(hint.contains("61009"), "{hint}");
                                false
                            }
                            Err(error) => panic!("{error}"),
                        }
                    });
                    assert_eq!(could, can);
                    let socket = bus.path().join("sockets/1.1");
                    let bound = std::os::unix::net::UnixDatagram::bind(socket);
                    assert_eq!(bound.is_ok(), can[3]);
                    assert!(std::fs::File::create(bus.path().join("x")).is_err());
                });
                let _ = std::fs::remove_file(root.path().join("bus/sockets/1.1"));
            }
        });
    }

    #[test]
    fn an_empty_directory_becomes_a_bus() {
        let root = TempDir::new();
        let path = root.path().join("bus");
        std::fs::create_dir(&path).unwrap();
        assert!(matches!(open(root.path(), "bus"), Err(OpenError::NotFound { .. })));
        let bus = make(&root, &small()).unwrap();
        assert_eq!(names(&path), COMPLETE);
        assert!(matches!(make(&root, &small()), Err(OpenError::AlreadyExists { .. })));
        drop(bus);

        // Its creator died after `ring`.
        let ring = path.join("ring");
        std::fs::set_permissions(&ring, std::fs::Permissions::from_mode(0o640)).unwrap();
        for file in ["publishers", "readers"] {
            std::fs::remove_file(path.join(file)).unwrap();
        }
        std::fs::remove_dir(path.join("sockets")).unwrap();
        let (bus, ring, made) = open_or_make(&root);
        assert!(!made);
        assert_eq!(names(&path), COMPLETE);
        read_readers(&bus, ring.header()).unwrap();
        let mode = |name| path.join(name).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("readers"), mode("sockets")), (0o640, 0o750));
    }

    #[test]
    fn directories_of_others_are_left_alone() {
        let root = TempDir::new();
        let path = root.path().join("bus");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("letter.txt"), b"dear").unwrap();
        assert!(matches!(make(&root, &small()), Err(OpenError::NotABus { .. })));
        assert_eq!(names(&path), ["letter.txt"]);
        std::fs::remove_dir_all(&path).unwrap();
        std::fs::write(&path, b"").unwrap();
        assert!(matches!(make(&root, &small()), Err(OpenError::NotADirectory { .. })));
    }

    #[test]
    fn the_umask_counts_unless_a_mode_is_given() {
        in_own_process("shm::create::tests::the_umask_counts_unless_a_mode_is_given", || {
            rustix::process::umask(Mode::from_raw_mode(0o027));
            let root = TempDir::new();
            let bus = make(&root, &small()).unwrap();
            let permissions = Permissions { mode: Some(0o666), ..Permissions::default() };
            let open = create(root.path(), "open", &small(), &permissions).unwrap();
            let mode = |bus: &BusDirectory, name| {
                bus.path().join(name).metadata().unwrap().permissions().mode() & 0o777
            };
            for (name, by_umask, given) in [
                ("", 0o750, 0o755),
                ("ring", 0o640, 0o666),
                ("publishers", 0o640, 0o666),
                ("readers", 0o640, 0o666),
                ("sockets", 0o750, 0o777),
            ] {
                assert_eq!(mode(&bus, name), by_umask, "{name}");
                assert_eq!(mode(&open, name), given, "{name}");
            }
        });
    }

    #[test]
    #[cfg(feature = "crash-points")]
    fn a_creator_that_dies_leaves_no_bus() {
        let name = "shm::create::tests::a_creator_that_dies_leaves_no_bus";
        if let Some(root) = child_task() {
            let _ = create(root.as_ref(), "bus", &small(), &Permissions::default());
            return;
        }
        for point in [CrashPoint::MidCreation, CrashPoint::BeforeRename] {
            let root = TempDir::new();
            let status = std::process::Command::new(std::env::current_exe().unwrap())
                .args([name, "--exact"])
                .env("TORONI_TEST_CHILD", root.path())
                .env("TORONI_CRASH", point.name())
                .stdout(std::process::Stdio::null())
                .status()
                .unwrap();
            assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
            let left = root.names();
            assert!(left.len() == 1 && left[0].starts_with(".bus."), "{left:?}");
            assert!(open_or_make(&root).2);
        }
    }
}
