//! Errors of finding a bus in a directory of buses.

use super::FileError;
use crate::settings::InvalidSetting;
use std::path::PathBuf;

/// A name that cannot be the name of a bus.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the bus name {name:?} is not usable: take 1 to 64 of the characters A-Z a-z 0-9 . _ - and do not start with a dot"
)]
pub struct InvalidName {
    /// The name that was given.
    pub name: String,
}

/// The default directory of buses is under the control of another user. Any user may have made it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} is not safe to use ({what}): {hint}")]
pub struct UntrustedDirectory {
    /// The directory of buses.
    pub path: PathBuf,
    /// Which user could do what.
    pub what: String,
    /// What to do about it.
    pub hint: String,
}

/// Why a directory of buses, or a bus in it, cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// The name cannot be the name of a bus.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),
    /// The path of the directory is empty.
    #[error(transparent)]
    InvalidSetting(#[from] InvalidSetting),
    /// The default directory of buses is under the control of another user.
    #[error(transparent)]
    UntrustedDirectory(#[from] UntrustedDirectory),
    /// The directory, or the files of the bus, cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}
