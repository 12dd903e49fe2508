//! Buses as files: listing them, checking what this process may do with one, and cleaning up after dead
//! processes.

use crate::error::DirectoryError;
#[cfg(doc)]
use crate::error::FileError;
use crate::shm::clean::{self, Scope};
use crate::shm::directory::{self, BusFile};
use crate::shm::list;
use std::fmt;
use std::path::{Path, PathBuf};

/// Returns the directory of buses if none is given: `$TORONI_DIR` if it is set and not empty, else
/// `/dev/shm/toroni`.
#[must_use]
pub fn default_directory() -> PathBuf {
    directory::root(None)
}

/// A bus in a directory of buses.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BusEntry {
    /// The name of the bus.
    pub name: String,
    /// The directory of the bus.
    pub path: PathBuf,
    /// The size of its ring in bytes, if its header can be read.
    pub capacity: Option<u64>,
    /// Whether any process has it open; `None` if this process cannot find out.
    pub in_use: Option<bool>,
    /// Whether [`clean`] keeps it.
    pub persistent: bool,
    /// Why it cannot be opened, if so.
    pub problem: Option<String>,
}

/// Lists the buses below `root` (default: [`default_directory`]) by name. If the directory does not exist,
/// the list is empty.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = std::env::temp_dir().join(format!("toroni-doc-list-{}", std::process::id()));
/// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
/// for entry in toroni::admin::list(Some(&directory))? {
///     println!("{} at {}: {:?}", entry.name, entry.path.display(), entry.problem);
/// }
/// # std::fs::remove_dir_all(directory)?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns an error if `root` cannot be used: [`DirectoryError::InvalidSetting`] if it is empty,
/// [`DirectoryError::UntrustedDirectory`], [`FileError::PermissionDenied`],
/// [`FileError::NotADirectory`], [`FileError::Symlink`], or [`FileError::Os`].
pub fn list(root: Option<&Path>) -> Result<Vec<BusEntry>, DirectoryError> {
    let buses = list::list(&directory::root(root))?;
    Ok(buses
        .into_iter()
        .map(|bus| {
            let settings = bus.header.as_ref().ok().map(|header| header.settings);
            BusEntry {
                name: bus.name,
                path: bus.path,
                capacity: settings.map(|settings| settings.capacity),
                in_use: bus.is_held,
                persistent: settings.is_some_and(|settings| settings.persistent),
                problem: bus.header.err().map(|error| error.to_string()),
            }
        })
        .collect())
}

/// What this process may do with a bus, or why it may not.
#[derive(Debug)]
#[non_exhaustive]
pub struct Rights {
    /// Whether it may publish.
    pub publish: Result<(), DirectoryError>,
    /// Whether it may subscribe.
    pub subscribe: Result<(), DirectoryError>,
}

/// Opens what a publisher and a subscriber of the bus would open, and changes nothing.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = std::env::temp_dir().join(format!("toroni-doc-rights-{}", std::process::id()));
/// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
/// let rights = toroni::admin::rights(Some(&directory), "demo");
/// assert!(rights.publish.is_ok() && rights.subscribe.is_ok());
/// # std::fs::remove_dir_all(directory)?;
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn rights(root: Option<&Path>, name: &str) -> Rights {
    let list::Rights { publish, subscribe } = list::rights(&directory::root(root), name);
    Rights { publish, subscribe }
}

/// What [`clean`] did, or would do.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CleanReport {
    /// The actions, in the order in which they were done.
    pub actions: Vec<CleanAction>,
    /// What was left alone, and why.
    pub skipped: Vec<(PathBuf, String)>,
}

/// One thing that was removed or freed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CleanAction {
    /// Frees a slot whose owner died.
    FreeSlot {
        /// The bus.
        bus: String,
        /// `publishers` or `readers`.
        file: &'static str,
        /// The slot.
        slot: u32,
    },
    /// Removes the socket of a subscriber that died.
    RemoveSocket(PathBuf),
    /// Removes a bus that no process has open.
    RemoveBus(PathBuf),
    /// Removes what is left of a bus whose creator, or cleaner, died half-way.
    RemoveLeftover(PathBuf),
}

impl fmt::Display for CleanAction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FreeSlot { bus, file, slot } => {
                write!(formatter, "free slot {slot} of {file} in bus {bus}: its owner died")
            }
            Self::RemoveSocket(path) => {
                write!(formatter, "remove socket {}: its owner died", path.display())
            }
            Self::RemoveBus(path) => {
                write!(formatter, "remove bus {}: no process has it open", path.display())
            }
            Self::RemoveLeftover(path) => {
                write!(
                    formatter,
                    "remove leftover {}: the process that made it died",
                    path.display()
                )
            }
        }
    }
}

/// Frees slots and removes sockets of dead participants, and removes buses that no process has open,
/// unless they are persistent. With a `name` it cleans that bus, else all below `root` (default:
/// [`default_directory`]). With `dry_run` it only reports. If the header of a bus is damaged, the bus does
/// not say whether it is persistent, and is removed only if it is named.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = std::env::temp_dir().join(format!("toroni-doc-clean-{}", std::process::id()));
/// # let bus = toroni::BusConfig::new().directory(&directory).open("demo")?;
/// # drop(bus);
/// let report = toroni::admin::clean(Some(&directory), Some("demo"), false)?;
/// for action in &report.actions {
///     println!("{action}"); // remove bus …: no process has it open
/// }
/// assert!(toroni::admin::list(Some(&directory))?.is_empty());
/// # std::fs::remove_dir_all(directory)?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns [`DirectoryError::InvalidName`] if `name` cannot be the name of a bus,
/// [`FileError::NotFound`] if there is no such bus, and the errors of [`list`]. What could not be cleaned
/// is no error: [`CleanReport::skipped`] lists it.
pub fn clean(
    root: Option<&Path>,
    name: Option<&str>,
    dry_run: bool,
) -> Result<CleanReport, DirectoryError> {
    run(root, name.map_or(Scope::All, Scope::Named), dry_run)
}

/// Cleans one bus as [`clean`] does, and removes it even if it is persistent, but not if any process has
/// it open.
///
/// # Errors
/// See [`clean`].
pub fn clean_persistent(
    root: Option<&Path>,
    name: &str,
    dry_run: bool,
) -> Result<CleanReport, DirectoryError> {
    run(root, Scope::Persistent(name), dry_run)
}

fn run(
    root: Option<&Path>,
    scope: Scope<'_>,
    dry_run: bool,
) -> Result<CleanReport, DirectoryError> {
    let report = clean::clean(&directory::root(root), scope, dry_run)?;
    let slots = report.freed_slots.into_iter().map(|freed| CleanAction::FreeSlot {
        bus: freed.bus,
        file: BusFile::name(freed.file),
        slot: freed.slot,
    });
    let actions = slots
        .chain(report.removed_sockets.into_iter().map(CleanAction::RemoveSocket))
        .chain(report.removed_buses.into_iter().map(CleanAction::RemoveBus))
        .chain(report.removed_leftovers.into_iter().map(CleanAction::RemoveLeftover))
        .collect();
    let skipped = report.skipped.into_iter().map(|skipped| (skipped.path, skipped.why)).collect();
    Ok(CleanReport { actions, skipped })
}
