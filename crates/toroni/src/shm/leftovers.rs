//! Recognises what belongs to a bus, and removes it.
//!
//! A name is believed only after a check of what it names. Removals are relative to a directory that was opened
//! before.

use super::create::entries;
use super::directory::{BusDirectory, BusFile, SOCKETS, identity, still_names};
use crate::hook::{self, CrashPoint};
use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Returns `bus` for `.bus.0123456789abcdef`.
pub(super) fn bus_of_leftover(name: &str) -> Option<&str> {
    let (bus, random) = name.strip_prefix('.')?.rsplit_once('.')?;
    is_random(random).then_some(bus)
}

pub(super) fn is_random(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns slot and generation for `3.17`.
pub(super) fn socket_name(name: &str) -> Option<(u32, u32)> {
    let (slot, generation) = name.split_once('.')?;
    let (slot, generation) = (slot.parse().ok()?, generation.parse().ok()?);
    // Only in the form that subscribers write: no signs, no leading zeros.
    (format!("{slot}.{generation}") == name).then_some((slot, generation))
}

/// Returns the name of a file in the directory that does not belong to a bus, if there is one.
pub(super) fn stranger_in(directory: &BusDirectory) -> Result<Option<String>, String> {
    let describe = |error: std::io::Error| format!("it cannot be listed: {error}");
    let fd = directory.dirfd();
    for name in entries(fd).map_err(describe)? {
        let Ok(stat) = rustix::fs::statat(fd, &*name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let kind = FileType::from_raw_mode(stat.st_mode);
        let base = staged_name(&name).unwrap_or(&name);
        let fits = match base {
            "ring" | "publishers" | "readers" => {
                kind == FileType::RegularFile && stat.st_nlink == 1
            }
            SOCKETS | "lost+found" => kind == FileType::Directory,
            _ => false,
        };
        if !fits {
            return Ok(Some(name));
        }
    }
    let Ok(sockets) = directory.open_sockets() else { return Ok(None) };
    let strange =
        |name: &String| socket_name(name).is_none() || !is_socket(&sockets, name).unwrap_or(true);
    let found = entries(sockets.as_fd()).map_err(describe)?.into_iter().find(strange);
    Ok(found.map(|name| format!("{SOCKETS}/{name}")))
}

/// Returns `ring` for `.ring.0123456789abcdef`.
pub(super) fn staged_name(name: &str) -> Option<&str> {
    bus_of_leftover(name).filter(|base| *base != "lost+found")
}

/// Removes what [`stranger_in`] checked. It is no error if a file is already gone.
pub(super) fn remove_content(directory: &BusDirectory) -> Result<(), Errno> {
    let fd = directory.dirfd();
    if let Ok(sockets) = directory.open_sockets() {
        for name in entries(sockets.as_fd()).map_err(|_| Errno::ACCESS)? {
            if socket_name(&name).is_some() {
                remove_socket(&sockets, &name)?;
            }
        }
    }
    unlink(fd, BusFile::Ring.name(), AtFlags::empty())?;
    hook::point(CrashPoint::MidRemoval);
    for name in entries(fd).map_err(|_| Errno::ACCESS)? {
        match staged_name(&name).unwrap_or(&name) {
            "ring" | "publishers" | "readers" => unlink(fd, &name, AtFlags::empty())?,
            SOCKETS => unlink(fd, &name, AtFlags::REMOVEDIR)?,
            _ => {}
        }
    }
    Ok(())
}

pub(super) fn remove_empty(directory: &BusDirectory, name: &str) -> Result<(), Errno> {
    let stat = rustix::fs::fstat(directory.dirfd())?;
    if still_names(directory.root(), name, identity(&stat)) {
        unlink(directory.root(), name, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

pub(super) fn remove_socket(sockets: &OwnedFd, name: &str) -> Result<(), Errno> {
    match is_socket(sockets, name) {
        Ok(true) => unlink(sockets.as_fd(), name, AtFlags::empty()),
        Ok(false) => Err(Errno::NOTSOCK),
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

pub(super) fn is_socket(sockets: &OwnedFd, name: &str) -> Result<bool, Errno> {
    let stat = rustix::fs::statat(sockets, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Socket)
}

pub(super) fn unlink(directory: BorrowedFd<'_>, name: &str, flags: AtFlags) -> Result<(), Errno> {
    match rustix::fs::unlinkat(directory, name, flags) {
        Err(Errno::NOENT) => Ok(()),
        answer => answer,
    }
}

pub(super) fn explain(action: &str, errno: Errno) -> String {
    format!("cannot {action} it: {}", std::io::Error::from(errno))
}
