//! Errors of the files of a bus.

use super::{Corrupt, Forked};
use std::io;
use std::path::PathBuf;

/// Why this process cannot use the files of a bus.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// There is no such bus.
    #[error(
        "there is no bus at {path}: create it with `toroni create`, or open it in a way that creates it"
    )]
    NotFound {
        /// Its directory.
        path: PathBuf,
    },
    /// The kernel refused access.
    #[error("no permission to {action} {path}: {hint}")]
    PermissionDenied {
        /// What was tried, as a verb: `open for publishing`, …
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What to do about it.
        hint: String,
    },
    /// The file system is read-only.
    #[error("{path} is on a read-only file system: mount it writable, or set TORONI_DIR")]
    ReadOnly {
        /// The file or directory.
        path: PathBuf,
    },
    /// The path is not a directory.
    #[error(
        "{path} is not a directory: choose another bus name, or set TORONI_DIR to another directory"
    )]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// A symbolic link stands where a bus or one of its files must be. It is not followed, because any
    /// user can place one in a directory that all users can write.
    #[error("{path} is a symbolic link, which is not followed: mount or make the directory itself")]
    Symlink {
        /// The link.
        path: PathBuf,
    },
    /// The memory of the ring could not be locked.
    #[error(
        "cannot lock {wanted} bytes of {path} in memory, the limit of this process is {limit}: raise it (ulimit -l, LimitMEMLOCK=), or open the bus without locking its memory"
    )]
    MemoryLock {
        /// Bytes to be locked.
        wanted: u64,
        /// The limit RLIMIT_MEMLOCK, in bytes.
        limit: u64,
        /// The file.
        path: PathBuf,
    },
    /// Another process is removing or checking this bus.
    #[error("another process is removing or checking the bus at {path}: try again")]
    Busy {
        /// Directory of the bus.
        path: PathBuf,
    },
    /// A file in the directory is not part of a bus.
    #[error(
        "{path} is not a part of a Toroni bus ({what}): choose another bus name, or set TORONI_DIR to another directory"
    )]
    NotABus {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        what: String,
    },
    /// The layout has another version.
    #[error(
        "{path} has layout version {found}, and this release of Toroni uses version {supported}: run the same release everywhere; \
         once no program of the other release uses the bus, remove it with `toroni rm NAME` and create it again"
    )]
    VersionMismatch {
        /// The file.
        path: PathBuf,
        /// Version in the header.
        found: u32,
        /// Version of this library.
        supported: u32,
    },
    /// The bus has features of a later release.
    #[error(
        "this release does not know features of {path} (bits {unknown:#x}), so it cannot {action}: run the release that \
         created the bus; or, once no program uses it, remove it with `toroni rm NAME` and create it again"
    )]
    UnknownFeatures {
        /// The file.
        path: PathBuf,
        /// The features that this release does not know, as bits.
        unknown: u32,
        /// What it cannot do.
        action: &'static str,
    },
    /// The bus was created on a machine with the other byte order.
    #[error(
        "{path} was written on a machine of the other byte order: a bus belongs to one kind of machine"
    )]
    EndiannessMismatch {
        /// The file.
        path: PathBuf,
    },
    /// The bus was created for another processor architecture, page size or C library.
    #[error("{path} was made for {property} {found}, this process has {here}: {hint}")]
    PlatformMismatch {
        /// The file.
        path: PathBuf,
        /// `architecture`, `page size`, …
        property: &'static str,
        /// Value in the header.
        found: String,
        /// Value of this process.
        here: String,
        /// What to do about it.
        hint: &'static str,
    },
    /// A file is smaller than its header says.
    #[error(
        "{path} has {found} bytes, its header asks for {wanted}: it was truncated; remove the bus with `toroni rm`"
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Its real size.
        found: u64,
        /// The size it must have.
        wanted: u64,
    },
    /// The checksum of the header, or a value in it, is wrong: no release writes such a header.
    #[error(
        "the header of {path} is damaged ({what}): remove the bus with `toroni rm NAME` and create it again"
    )]
    HeaderDamaged {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        what: String,
    },
    /// The files of the directory come from different buses.
    #[error(
        "{path} belongs to another bus than the file ring beside it: remove the bus with `toroni rm NAME` and create it again"
    )]
    ForeignFile {
        /// The file.
        path: PathBuf,
    },
    /// The lock is a robust mutex, which this process cannot share.
    #[error(
        "the bus at {path} uses the lock kind `robust`, which does not work across {boundary}: share the PID namespace and C library (Kubernetes: shareProcessNamespace: true), or create the bus with the lock kind `lease`"
    )]
    RobustLockRefused {
        /// Directory of the bus.
        path: PathBuf,
        /// `PID namespaces`, `C libraries`, …
        boundary: &'static str,
    },
    /// The bus is on a disk, where a robust mutex could be locked after a reboot.
    #[error(
        "{path} is on a disk, where the lock kind `robust` does not work: create the bus with the lock kind `lease`, or in /dev/shm"
    )]
    RobustOnDisk {
        /// Directory of the bus.
        path: PathBuf,
    },
    /// The multicast notifier cannot reach this process, which is in another network namespace.
    #[error(
        "the bus at {path} wakes its subscribers by UDP multicast, which does not cross network namespaces: share the network namespace, or create the bus with the notifier `futex`"
    )]
    NetworkNamespace {
        /// Directory of the bus.
        path: PathBuf,
    },
    /// Shared memory holds something that no correct process writes.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The bus was removed while this handle was open.
    #[error("the bus at {path} was removed: open it again")]
    Unlinked {
        /// Directory of the bus.
        path: PathBuf,
    },
    /// The handle belongs to the parent process.
    #[error(transparent)]
    Forked(#[from] Forked),
    /// Any other error of the operating system.
    #[error("cannot {action} {path}: {source}")]
    Os {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}
