//! How a bus is opened or created.

use super::Bus;
use crate::error::OpenError;
use crate::settings::{LockKind, NotifyKind, Policy, Settings};
use std::path::PathBuf;

/// Options for opening or creating a bus; a builder by value.
///
/// A bus that exists keeps the settings it was created with, whatever stands here; the `require_…`
/// options make a difference an error. The defaults suit most buses.
///
/// ```
/// # fn main() -> Result<(), toroni::OpenError> {
/// # let directory = std::env::temp_dir().join(format!("toroni-doc-config-{}", std::process::id()));
/// use std::time::Duration;
/// use toroni::{BusConfig, Policy};
///
/// let bus = BusConfig::new()
///     .directory(&directory)
///     .capacity(16 << 20)
///     .policy(Policy::Wait { limit: Some(Duration::from_millis(20)) })
///     .open("plant")?;
/// assert_eq!(bus.name(), "plant");
/// # drop(bus);
/// # std::fs::remove_dir_all(directory).ok();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct BusConfig {
    pub(super) root: Option<PathBuf>,
    pub(super) settings: Settings,
    pub(super) prefault: bool,
    pub(super) lock_memory: bool,
    pub(super) mode: Option<u32>,
    pub(super) writers: Option<String>,
    pub(super) readers: Option<String>,
    pub(super) participant_name: Option<String>,
    pub(super) timestamps: bool,
    pub(super) require_capacity: bool,
    pub(super) require_policy: bool,
    pub(super) require_lock: bool,
    pub(super) require_notify: bool,
    pub(super) require_owner: Option<u32>,
}

impl BusConfig {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Directory in which buses are directories. Default: `$TORONI_DIR` if it is set and not empty, or else
    /// `/dev/shm/toroni`.
    /// Change it for containers that share a mount, or for a bus on a disk.
    #[must_use]
    pub fn directory(mut self, root: impl Into<PathBuf>) -> Self {
        self.root = Some(root.into());
        self
    }

    /// Bytes of the ring: a power of two from 64 KiB to 1 TiB. Default: 4 MiB. The largest message is
    /// half of it less 8 bytes; a larger ring lets subscribers lag longer, a smaller one stays in the processor's
    /// caches.
    #[must_use]
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.settings.capacity = bytes;
        self
    }

    /// Bytes for the names of topics: a multiple of 4096. Default: 1 MiB, some ten thousand names.
    /// When it is full, further names travel with each message.
    #[must_use]
    pub fn topic_table_bytes(mut self, bytes: u64) -> Self {
        self.settings.topic_table_bytes = bytes;
        self
    }

    /// Participants that may publish at the same time, from 1 to 1024. Default: 128. An opened bus
    /// that publishes is one, whatever the number of its publishers and threads.
    #[must_use]
    pub fn max_publishers(mut self, count: u32) -> Self {
        self.settings.max_publishers = count;
        self
    }

    /// Subscribers at the same time, from 1 to 1024. Default: 128.
    #[must_use]
    pub fn max_subscribers(mut self, count: u32) -> Self {
        self.settings.max_subscribers = count;
        self
    }

    /// What publishers do about slow subscribers. Default: wait at most 100 ms, then overwrite.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.settings.policy = policy;
        self
    }

    /// How writers exclude one another. Default: [`LockKind::Lease`]. Take `Robust` for publishers of
    /// more than a gigabyte, whose memory takes the kernel long to tear down when they die.
    #[must_use]
    pub fn lock(mut self, lock: LockKind) -> Self {
        self.settings.lock = lock;
        self
    }

    /// How sleeping subscribers are woken. Default: [`NotifyKind::Futex`].
    #[must_use]
    pub fn notify(mut self, notify: NotifyKind) -> Self {
        self.settings.notify = notify;
        self
    }

    /// Whether the bus outlives a clean-up of buses that nobody holds. Default: no.
    #[must_use]
    pub fn persistent(mut self, persistent: bool) -> Self {
        self.settings.persistent = persistent;
        self
    }

    /// Whether the ring asks for huge pages (2 MiB). Default: no. For rings of many MiB, where the
    /// kernel allows it: `/sys/kernel/mm/transparent_hugepage/shmem_enabled` at `advise`.
    #[must_use]
    pub fn huge_pages(mut self, huge_pages: bool) -> Self {
        self.settings.huge_pages = huge_pages;
        self
    }

    /// Whether this handle touches every page of the ring when it opens it. Default: no. A first
    /// touch later costs 2 to 13 µs a page.
    #[must_use]
    pub fn prefault(mut self, prefault: bool) -> Self {
        self.prefault = prefault;
        self
    }

    /// Whether this handle keeps the ring in memory (`mlock(2)`; needs `RLIMIT_MEMLOCK`). Default: no.
    #[must_use]
    pub fn lock_memory(mut self, lock_memory: bool) -> Self {
        self.lock_memory = lock_memory;
        self
    }

    /// Permission bits of the files of a new bus: a class of users that may read can subscribe, and one that
    /// may also write can publish. Default: 0666 without the umask's bits, and without the rights of a class
    /// that would keep only one of the two: 0600 with the umask 022.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Group, by name or number, whose members may publish on a new bus (access control list).
    #[must_use]
    pub fn writers_group(mut self, group: impl Into<String>) -> Self {
        self.writers = Some(group.into());
        self
    }

    /// Group, by name or number, whose members may subscribe to a new bus, and not publish.
    #[must_use]
    pub fn readers_group(mut self, group: impl Into<String>) -> Self {
        self.readers = Some(group.into());
        self
    }

    /// How this handle appears in `toroni info`; at most 40 bytes are kept
    /// (48 for a subscriber). Default: the name of the
    /// program.
    #[must_use]
    pub fn participant_name(mut self, name: impl Into<String>) -> Self {
        self.participant_name = Some(name.into());
        self
    }

    /// Whether messages published by this handle carry the time (CLOCK_REALTIME, ns; 8 bytes and a
    /// look at the clock each). Default: no.
    #[must_use]
    pub fn timestamps(mut self, timestamps: bool) -> Self {
        self.timestamps = timestamps;
        self
    }

    /// An existing bus must have this [`capacity`](Self::capacity).
    #[must_use]
    pub fn require_capacity(mut self) -> Self {
        self.require_capacity = true;
        self
    }

    /// An existing bus must have this [`policy`](Self::policy).
    #[must_use]
    pub fn require_policy(mut self) -> Self {
        self.require_policy = true;
        self
    }

    /// An existing bus must have this [`lock`](Self::lock).
    #[must_use]
    pub fn require_lock(mut self) -> Self {
        self.require_lock = true;
        self
    }

    /// An existing bus must have this [`notify`](Self::notify).
    #[must_use]
    pub fn require_notify(mut self) -> Self {
        self.require_notify = true;
        self
    }

    /// The bus must belong to this user (a number), whether it was there before or not, and nobody else
    /// may be able to exchange its files: [`OpenError::ForeignOwner`]. Default: whoever made the bus is
    /// trusted. In a directory where others make buses, too, somebody may have taken the name before.
    #[must_use]
    pub fn require_owner(mut self, user: u32) -> Self {
        self.require_owner = Some(user);
        self
    }

    /// Opens the bus, and creates it if it is not there.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(&self, name: &str) -> Result<Bus, OpenError> {
        Bus::with_config(name, self, super::Existence::Either)
    }

    /// Creates the bus.
    ///
    /// # Errors
    /// [`OpenError::AlreadyExists`] if it is there already; see [`OpenError`].
    pub fn create(&self, name: &str) -> Result<Bus, OpenError> {
        Bus::with_config(name, self, super::Existence::New)
    }

    /// Opens the bus if it is there.
    ///
    /// # Errors
    /// [`OpenError::NotFound`] if it is not; see [`OpenError`].
    pub fn open_existing(&self, name: &str) -> Result<Bus, OpenError> {
        Bus::with_config(name, self, super::Existence::Existing)
    }

    /// Compares an existing bus with what is required.
    pub(super) fn check_required(
        &self,
        path: &std::path::Path,
        found: &Settings,
    ) -> Result<(), OpenError> {
        let wanted = &self.settings;
        let differences = [
            (
                self.require_capacity && found.capacity != wanted.capacity,
                "capacity",
                found.capacity.to_string(),
                wanted.capacity.to_string(),
            ),
            (
                self.require_policy && found.policy != wanted.policy,
                "policy",
                found.policy.to_string(),
                wanted.policy.to_string(),
            ),
            (
                self.require_lock && found.lock != wanted.lock,
                "lock",
                found.lock.to_string(),
                wanted.lock.to_string(),
            ),
            (
                self.require_notify && found.notify != wanted.notify,
                "notify",
                found.notify.to_string(),
                wanted.notify.to_string(),
            ),
        ];
        match differences.into_iter().find(|(differs, ..)| *differs) {
            None => Ok(()),
            Some((_, setting, found, wanted)) => {
                Err(OpenError::SettingMismatch { path: path.to_owned(), setting, found, wanted })
            }
        }
    }
}
