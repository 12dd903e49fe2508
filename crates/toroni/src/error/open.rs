//! Errors of opening a bus, and of making its publishers and subscribers.

use super::{Corrupt, Forked};
use crate::settings::InvalidSetting;
use crate::topic::{PatternError, TopicError};
use std::io;
use std::path::PathBuf;

/// Why a bus could not be opened or created, or a publisher or subscriber could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The name cannot be the name of a bus.
    #[error(
        "the bus name {name:?} is not usable: take 1 to 64 of the characters A-Z a-z 0-9 . _ - and do not start with a dot"
    )]
    InvalidName {
        /// The name that was given.
        name: String,
    },
    /// A setting is outside its range.
    #[error(transparent)]
    InvalidSetting(#[from] InvalidSetting),
    /// The topic is malformed.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// The pattern is malformed.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// There is no such bus, and the call does not create one.
    #[error(
        "there is no bus at {path}: create it with `toroni create`, or open it in a way that creates it"
    )]
    NotFound {
        /// Its directory.
        path: PathBuf,
    },
    /// The bus exists already, and the call creates a new one.
    #[error("there is already a bus at {path}: open it, or remove it with `toroni rm`")]
    AlreadyExists {
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
    /// The file system has too little space for the bus.
    #[error(
        "no room in {path}: the bus needs {wanted} bytes, {available} are available: choose a smaller capacity, or enlarge the file system (Docker: --shm-size)"
    )]
    NoSpace {
        /// Bytes the bus needs.
        wanted: u64,
        /// Bytes the file system has left.
        available: u64,
        /// Directory of the bus.
        path: PathBuf,
    },
    /// The file system has no inode for another file.
    #[error(
        "no room for more files in {path}: its file system has no inodes left: mount it with more of them (nr_inodes=), or set TORONI_DIR to another directory"
    )]
    NoInodes {
        /// Directory of the bus.
        path: PathBuf,
    },
    /// A file of the bus is longer than the files that this process may write.
    #[error(
        "{path} needs a file longer than the {limit} bytes that this process may write: raise the limit (ulimit -f), or choose a smaller capacity"
    )]
    FileTooLong {
        /// Bytes, RLIMIT_FSIZE.
        limit: u64,
        /// Directory of the bus.
        path: PathBuf,
    },
    /// The file system is read-only.
    #[error("{path} is on a read-only file system: mount it writable, or set TORONI_DIR")]
    ReadOnly {
        /// The file or directory.
        path: PathBuf,
    },
    /// A directory that must exist does not.
    #[error("there is no directory {path}: create it, or set TORONI_DIR to one that exists")]
    MissingDirectory {
        /// The directory.
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
    /// The default directory of buses is under the control of another user. Any user may have made it.
    #[error("{path} is not safe to use ({what}): {hint}")]
    UntrustedDirectory {
        /// The directory of buses.
        path: PathBuf,
        /// Which user could do what.
        what: String,
        /// What to do about it.
        hint: String,
    },
    /// The bus does not belong to the required user.
    #[error(
        "the bus at {path} belongs to {found}, but {wanted} is required: another user has made it: choose another name, or set TORONI_DIR to another directory"
    )]
    ForeignOwner {
        /// Directory of the bus.
        path: PathBuf,
        /// The user that controls it.
        found: String,
        /// The required user.
        wanted: String,
    },
    /// The file system does not support access control lists, which permissions by group need.
    #[error(
        "the file system of {path} has no POSIX access control lists, which permissions by group need: mount it with them, or set permissions by mode"
    )]
    AclsUnsupported {
        /// The file.
        path: PathBuf,
    },
    /// There is no such group on this machine.
    #[error(
        "there is no group {name:?} on this machine: give the name or number of an existing one"
    )]
    UnknownGroup {
        /// The name that was given.
        name: String,
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
    /// The bus exists with another value of a required setting.
    #[error(
        "the bus at {path} has {setting} {found}, but {wanted} is required: adapt the requirement, or create the bus again"
    )]
    SettingMismatch {
        /// Directory of the bus.
        path: PathBuf,
        /// Name of the setting.
        setting: &'static str,
        /// What the bus has.
        found: String,
        /// What was required.
        wanted: String,
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
    /// The bus is on a disk and was used before a reboot, and no process that may write it has checked it
    /// since.
    #[error(
        "the bus at {path} was last used before this machine booted: open it once for publishing, which checks what is left of it"
    )]
    NotCheckedSinceBoot {
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
    /// All slots for publishing participants are taken.
    #[error(
        "all {limit} publishing participants of the bus are taken: close some, or create the bus for more of them"
    )]
    TooManyPublishers {
        /// Slots of the bus.
        limit: u32,
    },
    /// All slots for subscribers are taken.
    #[error(
        "all {limit} subscribers of the bus are taken: close some, or create the bus for more of them"
    )]
    TooManySubscribers {
        /// Slots of the bus.
        limit: u32,
    },
    /// A start position that no record starts at.
    #[error(
        "no message starts at position {position}: take positions only from messages of this bus"
    )]
    NotAPosition {
        /// The position that was given.
        position: u64,
    },
    /// A start position beyond the end of the stream.
    #[error(
        "position {position} is beyond the end of the stream at {end}: it may be from an earlier bus of this name"
    )]
    PositionAhead {
        /// The position that was given.
        position: u64,
        /// Where the stream ends.
        end: u64,
    },
    /// A start position whose message is no longer in the ring.
    #[error(
        "position {position} is no longer in the ring, whose oldest message is at {oldest}: start at the oldest"
    )]
    PositionLost {
        /// The position that was given.
        position: u64,
        /// Position of the oldest message.
        oldest: u64,
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
    /// The caller is inside `publish_with` of the same bus.
    #[error(
        "this thread is in a function that writes a message in place, and holds the writer lock: do not use the bus in that function"
    )]
    Reentrant,
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
