//! The files below a directory. The kernel makes sure that a path does not lead out of it, neither by `..`
//! nor by a symbolic link.

use crate::response::Status;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, SystemTime};
use toroni_proactor::{File, Proactor, SetupError};

/// A directory, and the proactor that reads its files.
pub(crate) struct Site {
    proactor: Proactor,
    root: OwnedFd,
}

/// A requested file.
pub(crate) struct Found {
    pub(crate) file: File,
    /// Bytes, when it was opened.
    pub(crate) length: u64,
    pub(crate) modified: Option<SystemTime>,
    pub(crate) kind: &'static str,
}

impl Site {
    /// Opens a directory.
    pub(crate) fn open(proactor: &Proactor, root: &Path) -> Result<Self, SetupError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = open(root, flags, Mode::empty()).map_err(|errno| SetupError::System {
            action: "open the directory",
            source: errno.into(),
        })?;
        let site = Self { proactor: proactor.clone(), root };
        // The call exists since Linux 5.6; a container may forbid it.
        match site.descriptor(b".") {
            Err(errno @ (Errno::NOSYS | Errno::PERM)) => Err(SetupError::System {
                action: "open files below the directory with openat2",
                source: io::Error::from(errno),
            }),
            _ => Ok(site),
        }
    }

    /// Opens a file by its path.
    pub(crate) fn find(&self, path: &[u8]) -> Result<Found, Status> {
        let descriptor = self.descriptor(path).map_err(|errno| match errno {
            Errno::ACCESS | Errno::PERM => Status::Forbidden,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Status::Busy,
            Errno::IO | Errno::NOSYS => Status::Error,
            // It does not exist, is not a file, or is not below the directory.
            _ => Status::NotFound,
        })?;
        let stat = fstat(&descriptor).map_err(|_| Status::Error)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Status::NotFound);
        }
        let length = u64::try_from(stat.st_size).unwrap_or(0);
        let seconds = u64::try_from(stat.st_mtime).ok();
        let modified = seconds
            .and_then(|seconds| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds)))
            .filter(|modified| *modified <= SystemTime::now());
        let file = File::new(&self.proactor, descriptor).map_err(|_| Status::Error)?;
        Ok(Found { file, length, modified, kind: kind(path) })
    }

    fn descriptor(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        // Opening a named pipe would wait for a writer.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let mut attempts = 0;
        loop {
            match openat2(&self.root, path, flags, Mode::empty(), resolve) {
                // A directory was moved meanwhile, so the kernel was not sure.
                Err(Errno::AGAIN | Errno::INTR) if attempts < 10 => attempts += 1,
                other => return other,
            }
        }
    }
}

/// Returns the media type for a file name.
fn kind(path: &[u8]) -> &'static str {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let Some(at) = name.iter().rposition(|byte| *byte == b'.') else {
        return "application/octet-stream";
    };
    match &name[at + 1..] {
        b"html" | b"htm" => "text/html; charset=utf-8",
        b"css" => "text/css; charset=utf-8",
        b"js" => "text/javascript; charset=utf-8",
        b"txt" | b"md" => "text/plain; charset=utf-8",
        b"json" => "application/json",
        b"svg" => "image/svg+xml",
        b"png" => "image/png",
        b"jpg" | b"jpeg" => "image/jpeg",
        b"woff2" => "font/woff2",
        b"wasm" => "application/wasm",
        _ => "application/octet-stream",
    }
}
