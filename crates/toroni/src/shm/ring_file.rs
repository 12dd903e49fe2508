//! The opened file `ring`: its header, and the lock that says "this bus is in use".

use super::directory::{self, BusDirectory, BusFile, failed, identity, random, still_names};
use super::fork::ParentOnlyFd;
use super::header::{HEADER_BYTES, Header, KERNEL_CONTEXT_OFFSET};
use super::mapping::Protection;
use super::ofd::{self, Kind};
use super::platform::KernelContext;
use super::staging::longest_file;
use crate::error::FileError;
use crate::ring::layout::BUS_LOCK_OFFSET;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// The file `ring`, with the shared bus lock. As long as any process has one, `clean` does not remove the bus.
#[derive(Debug)]
pub(crate) struct RingFile {
    file: ParentOnlyFd,
    directory: BusDirectory,
    identity: (u64, u64),
    header: Header,
    on_disk: bool,
}

/// How long to wait for the lock. A process that holds it exclusively removes the bus, or checks it after a reboot.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
const WAIT_SLICE: Duration = Duration::from_millis(5);

impl RingFile {
    /// Opens the file, takes the lock, and reads and checks the header. `NotFound` if there is no such file, or if
    /// the directory has lost its name meanwhile.
    pub(crate) fn open(
        directory: &BusDirectory,
        protection: Protection,
    ) -> Result<Self, FileError> {
        let path = directory.path().join(BusFile::Ring.name());
        let os = |action| {
            let path = &path;
            move |error: io::Error| failed(action, path, error)
        };
        let mut waited = Duration::ZERO;
        let (file, identity) = loop {
            let file = directory.open_for_locks(BusFile::Ring, protection)?;
            let stat = rustix::fs::fstat(&file).map_err(|errno| failed("open", &path, errno))?;
            let locked = ofd::try_lock(&file, Kind::Shared, BUS_LOCK_OFFSET).map_err(os("lock"))?;
            // Check the name only after locking: a process that removes a bus holds the exclusive lock while it
            // removes the name.
            if locked && still_names(directory.dirfd(), BusFile::Ring.name(), identity(&stat)) {
                break (file, identity(&stat));
            }
            if waited >= LONGEST_WAIT {
                return Err(FileError::Busy { path: directory.path().to_owned() });
            }
            if !locked {
                std::thread::sleep(WAIT_SLICE);
            }
            waited += WAIT_SLICE;
        };
        if !directory.is_still_named() {
            return Err(FileError::NotFound { path: directory.path().to_owned() });
        }
        Self::of(directory, file, identity)
    }

    /// Makes the handle of a file that this process has just created, and that it has locked and opened for writing.
    pub(super) fn of_new(directory: &BusDirectory, file: ParentOnlyFd) -> Result<Self, FileError> {
        let stat = rustix::fs::fstat(&file)
            .map_err(|errno| failed("open", &directory.path().join(BusFile::Ring.name()), errno))?;
        Self::of(directory, file, identity(&stat))
    }

    fn of(
        directory: &BusDirectory,
        file: ParentOnlyFd,
        identity: (u64, u64),
    ) -> Result<Self, FileError> {
        let header = read_header(file.as_fd(), directory)?;
        let on_disk = directory::is_on_disk(&file)
            .map_err(|error| failed("open", &directory.path().join(BusFile::Ring.name()), error))?;
        Ok(Self { file, directory: directory.clone(), identity, header, on_disk })
    }

    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    pub(crate) fn directory(&self) -> &BusDirectory {
        &self.directory
    }

    /// Returns whether the file survives a reboot.
    pub(crate) fn is_on_disk(&self) -> bool {
        self.on_disk
    }

    /// Opens the file again, to map it. A mapping keeps the description alive through which it was made, and with
    /// it the lock. If the description with the lock were mapped, a child of `fork` that outlives its parent would
    /// keep the lock as long as it lives.
    pub(crate) fn open_for_mapping(&self, protection: Protection) -> Result<OwnedFd, FileError> {
        let again = self.directory.open_file(BusFile::Ring, protection)?;
        let path = || self.directory.path().join(BusFile::Ring.name());
        let stat = rustix::fs::fstat(&again).map_err(|errno| failed("open", &path(), errno))?;
        if identity(&stat) != self.identity {
            return Err(FileError::Unlinked { path: self.directory.path().to_owned() });
        }
        Ok(again)
    }

    /// Returns whether the bus was removed, by `clean` or in any other way. Takes three system calls.
    pub(crate) fn is_unlinked(&self) -> bool {
        rustix::fs::fstat(&self.file).is_ok_and(|stat| stat.st_nlink == 0)
            || !self.directory.is_still_named()
            || !still_names(self.directory.dirfd(), BusFile::Ring.name(), self.identity)
    }

    /// Makes the shared lock exclusive, if no other handle of the bus is open in any process. Returns whether it
    /// did. The file must have been opened with [`Protection::Write`].
    pub(crate) fn try_exclusive(&self) -> io::Result<bool> {
        ofd::try_lock(&self.file, Kind::Exclusive, BUS_LOCK_OFFSET)
    }

    pub(crate) fn back_to_shared(&self) -> io::Result<()> {
        ofd::try_lock(&self.file, Kind::Shared, BUS_LOCK_OFFSET).map(|_| ())
    }

    /// Writes boot and namespaces of this process into the header, and a new identity if the stream `is_new`. Only
    /// with the exclusive lock, and for a file opened with [`Protection::Write`].
    pub(super) fn adopt(&mut self, is_new: bool) -> io::Result<()> {
        let stream_id = if is_new { random() } else { self.header.stream_id };
        let kernel_context = KernelContext::current();
        let header = Header { kernel_context, stream_id, ..self.header.clone() };
        let bytes = header.encode_changing();
        if longest_file().is_some_and(|limit| (KERNEL_CONTEXT_OFFSET + bytes.len()) as u64 > limit)
        {
            return Err(rustix::io::Errno::FBIG.into());
        }
        if rustix::io::pwrite(&self.file, &bytes, KERNEL_CONTEXT_OFFSET as u64)? != bytes.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        rustix::fs::fsync(&self.file)?;
        self.header = header;
        Ok(())
    }
}

impl AsFd for RingFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Reads and checks the header of `ring` without any lock, which is enough to list a bus.
pub(super) fn read_header(
    file: BorrowedFd<'_>,
    directory: &BusDirectory,
) -> Result<Header, FileError> {
    let path = directory.path().join(BusFile::Ring.name());
    let mut bytes = [0; HEADER_BYTES];
    let length = rustix::io::pread(file, &mut bytes, 0);
    let length = length.map_err(|errno| failed("read", &path, errno))?;
    let stat = rustix::fs::fstat(file).map_err(|errno| failed("read", &path, errno))?;
    Header::decode(&bytes[..length], u64::try_from(stat.st_size).unwrap_or(0), &path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::testing::{TempDir, in_fork, in_own_process};

    fn open(bus: &BusDirectory) -> Result<RingFile, FileError> {
        RingFile::open(bus, Protection::Write)
    }

    #[test]
    fn only_the_last_handle_can_be_exclusive() {
        let root = TempDir::new();
        let bus = root.bus();
        let (first, second) = (open(&bus).unwrap(), open(&bus).unwrap());
        assert!(!first.try_exclusive().unwrap());
        drop(second);
        assert!(first.try_exclusive().unwrap());
        assert!(matches!(open(&bus), Err(FileError::Busy { .. })));
        first.back_to_shared().unwrap();
        open(&bus).unwrap();
    }

    #[test]
    fn a_removed_bus_is_noticed() {
        let root = TempDir::new();
        let bus = root.bus();
        let ring = open(&bus).unwrap();
        assert!(!ring.is_unlinked());
        let elsewhere = root.path().join("elsewhere");
        std::fs::rename(bus.path(), &elsewhere).unwrap();
        assert!(ring.is_unlinked());
        assert!(matches!(open(&bus), Err(FileError::NotFound { .. })));
        std::fs::rename(&elsewhere, bus.path()).unwrap();
        assert!(!ring.is_unlinked());
        std::fs::rename(bus.path().join("ring"), bus.path().join("x")).unwrap();
        std::fs::write(bus.path().join("ring"), b"").unwrap();
        assert!(ring.is_unlinked());
        std::fs::remove_dir_all(root.path()).unwrap();
        assert!(ring.is_unlinked());
    }

    #[test]
    fn a_truncated_ring_is_refused() {
        let root = TempDir::new();
        let bus = root.bus();
        let path = bus.path().join("ring");
        let length = path.metadata().unwrap().len();
        for cut in [length - 1, 100, 0] {
            std::fs::File::options().write(true).open(&path).unwrap().set_len(cut).unwrap();
            let found = open(&bus).unwrap_err();
            assert!(matches!(found, FileError::Truncated { found, .. } if found == cut));
        }
        std::fs::write(&path, b"some text that is no bus").unwrap();
        assert!(matches!(open(&bus), Err(FileError::NotABus { .. })));
    }

    #[test]
    fn a_forked_child_does_not_hold_the_bus() {
        in_own_process("shm::ring_file::tests::a_forked_child_does_not_hold_the_bus", || {
            let root = TempDir::new();
            let bus = root.bus();
            let ring = open(&bus).unwrap();
            in_fork(|| {
                assert!(open(&bus).unwrap().header() == ring.header());
                drop(ring);
            });
            assert!(open(&bus).unwrap().try_exclusive().unwrap());
        });
    }
}
