//! Lists the existing buses.

use super::create::entries;
use super::directory::{
    BusDirectory, BusFile, SOCKETS, check_name, failed, failed_at_root, open_root,
};
use super::header::Header;
use super::mapping::Protection;
use super::ofd::{self, Kind};
use super::ring_file::read_header;
use crate::error::{DirectoryError, FileError};
use crate::ring::layout::BUS_LOCK_OFFSET;
use rustix::fs::{Access, AtFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A bus, as `toroni ls` shows it.
#[derive(Debug)]
pub(crate) struct BusEntry {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// The header, or why the bus cannot be opened.
    pub(crate) header: Result<Header, FileError>,
    /// Whether any process has the bus open; `None` if this cannot be determined.
    pub(crate) is_held: Option<bool>,
}

/// Returns the buses below `root`, sorted by name. If the root does not exist, there are none.
pub(crate) fn list(root: &Path) -> Result<Vec<BusEntry>, DirectoryError> {
    let Some((root_fd, mut names)) = open_and_list(root)? else { return Ok(Vec::new()) };
    names.retain(|name| check_name(name).is_ok());
    names.sort();
    let mut buses = Vec::new();
    for name in names {
        let Ok(directory) = open_below(&root_fd, root, &name) else { continue };
        let path = directory.path().to_owned();
        let (header, is_held) = match directory.open_file(BusFile::Ring, Protection::Read) {
            Err(FileError::NotFound { .. }) => continue,
            Err(error) => (Err(error), None),
            Ok(ring) => (
                read_header(ring.as_fd(), &directory),
                ofd::is_refused(&ring, Kind::Exclusive, BUS_LOCK_OFFSET).ok(),
            ),
        };
        buses.push(BusEntry { name, path, header, is_held });
    }
    Ok(buses)
}

pub(crate) struct Rights {
    pub(crate) publish: Result<(), DirectoryError>,
    pub(crate) subscribe: Result<(), DirectoryError>,
}

/// Opens what publishers and subscribers open, as far as that changes nothing.
pub(crate) fn rights(root: &Path, name: &str) -> Rights {
    Rights { publish: try_as_publisher(root, name), subscribe: try_as_subscriber(root, name) }
}

fn try_as_publisher(root: &Path, name: &str) -> Result<(), DirectoryError> {
    let directory = BusDirectory::open(root, name)?;
    let ring = directory.open_file(BusFile::Ring, Protection::Write)?;
    let header = read_header(ring.as_fd(), &directory)?;
    header.check_robust(directory.path())?;
    header.check_network(directory.path())?;
    directory.open_file(BusFile::Publishers, Protection::Write)?;
    directory.open_file(BusFile::Readers, Protection::Read)?;
    Ok(())
}

fn try_as_subscriber(root: &Path, name: &str) -> Result<(), DirectoryError> {
    let directory = BusDirectory::open(root, name)?;
    let ring = directory.open_file(BusFile::Ring, Protection::Read)?;
    read_header(ring.as_fd(), &directory)?.check_network(directory.path())?;
    directory.open_file(BusFile::Readers, Protection::Write)?;
    let (access, flags) = (Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS);
    rustix::fs::accessat(directory.dirfd(), SOCKETS, access, flags)
        .map_err(|errno| failed("make a socket in", &directory.path().join(SOCKETS), errno))?;
    Ok(())
}

/// Returns the root and the names in it, or `None` if the root does not exist.
pub(super) fn open_and_list(root: &Path) -> Result<Option<(OwnedFd, Vec<String>)>, DirectoryError> {
    let Some(fd) = open_root(root)? else { return Ok(None) };
    let names = entries(fd.as_fd()).map_err(|error| failed_at_root("list", root, error))?;
    Ok(Some((fd, names)))
}

/// Opens a directory in the root, whatever its name.
pub(super) fn open_below(
    root: &OwnedFd,
    path: &Path,
    name: &str,
) -> Result<BusDirectory, FileError> {
    let root = root.try_clone().map_err(|error| failed("open", path, error))?;
    BusDirectory::open_at(root, name.to_owned(), path.join(name))
}
