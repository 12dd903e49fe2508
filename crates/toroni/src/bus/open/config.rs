//! The options of a bus, and how it is opened or created.

use super::disk;
use crate::bus::Bus;
#[cfg(doc)]
use crate::error::FileError;
use crate::error::OpenError;
use crate::settings::{LockKind, NotifyKind, Policy, Settings};
use crate::shm::acl::{self, Permissions, group_number};
use crate::shm::create;
use crate::shm::directory::{self, BusDirectory};
use crate::shm::header::Header;
use crate::shm::ring_file::RingFile;
use std::path::{Path, PathBuf};

/// Options for opening or creating a bus.
///
/// An existing bus keeps the settings that it was created with, whatever is given here. With a `require_…`
/// option, a different setting is an error. The defaults suit most buses.
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
    pub(in crate::bus) root: Option<PathBuf>,
    pub(in crate::bus) settings: Settings,
    pub(in crate::bus) prefault: bool,
    pub(in crate::bus) lock_memory: bool,
    pub(in crate::bus) mode: Option<u32>,
    pub(in crate::bus) writers: Option<String>,
    pub(in crate::bus) readers: Option<String>,
    pub(in crate::bus) participant_name: Option<String>,
    pub(in crate::bus) timestamps: bool,
    given: Vec<Setting>,
    required: Vec<Setting>,
    require_given: bool,
    pub(in crate::bus) require_owner: Option<u32>,
}

/// Whether a bus may, or must, exist already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Existence {
    Either,
    New,
    Existing,
}

/// A setting in which an existing bus can be compared.
#[derive(Clone, Copy, Debug)]
enum Setting {
    Capacity,
    TopicTable,
    MaxPublishers,
    MaxSubscribers,
    MaxArrivals,
    RetainedTopics,
    RetainedBytes,
    Policy,
    Lock,
    Notify,
    Persistent,
    HugePages,
    Mode,
    Writers,
    Readers,
}

impl BusConfig {
    /// Returns the default options.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the directory in which each bus has its directory. Default: `$TORONI_DIR` if it is set and not
    /// empty, else `/dev/shm/toroni`. Change it for containers that share a mount, or for a bus on a disk.
    #[must_use]
    pub fn directory(mut self, root: impl Into<PathBuf>) -> Self {
        self.root = Some(root.into());
        self
    }

    /// Sets the size of the ring in bytes: a power of two from 64 KiB to 1 TiB. Default: 4 MiB. The
    /// largest message is half of it less 8 bytes. A larger ring lets subscribers lag longer; a smaller
    /// one stays in the processor's caches.
    #[must_use]
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.settings.capacity = bytes;
        self.give(Setting::Capacity)
    }

    /// Sets the size of the topic table in bytes: a multiple of 4096, at most 4 GiB. Default: 1 MiB,
    /// enough for some ten thousand names. When it is full, further names travel with each message.
    #[must_use]
    pub fn topic_table_bytes(mut self, bytes: u64) -> Self {
        self.settings.topic_table_bytes = bytes;
        self.give(Setting::TopicTable)
    }

    /// Sets for how many streams from elsewhere the bus keeps track of what has arrived, at most 65,536. Default: 256. Only
    /// an [`Inlet`](crate::Inlet) needs them.
    #[must_use]
    pub fn max_arrivals(mut self, streams: u32) -> Self {
        self.settings.max_arrivals = streams;
        self.give(Setting::MaxArrivals)
    }

    /// Sets for how many topics the bus keeps the newest message ([`Publisher::retained`](crate::Publisher::retained)), at most
    /// 4,096. Default: 512. With 0, the bus keeps no values.
    #[must_use]
    pub fn retained_topics(mut self, topics: u32) -> Self {
        self.settings.retained_topics = topics;
        self.give(Setting::RetainedTopics)
    }

    /// Sets how many bytes there are for the newest messages of retained topics: a multiple of 4096, at most 4 GiB. Default: 448 KiB.
    /// One message takes a quarter of them at most, and each topic has room for two of its longest.
    #[must_use]
    pub fn retained_bytes(mut self, bytes: u64) -> Self {
        self.settings.retained_bytes = bytes;
        self.give(Setting::RetainedBytes)
    }

    /// Sets how many participants may publish at the same time, from 1 to 1024. Default: 128. An opened
    /// bus that publishes is one participant, whatever the number of its publishers and threads.
    #[must_use]
    pub fn max_publishers(mut self, count: u32) -> Self {
        self.settings.max_publishers = count;
        self.give(Setting::MaxPublishers)
    }

    /// Sets how many subscribers may exist at the same time, from 1 to 1024. Default: 128.
    #[must_use]
    pub fn max_subscribers(mut self, count: u32) -> Self {
        self.settings.max_subscribers = count;
        self.give(Setting::MaxSubscribers)
    }

    /// Sets what publishers do when a subscriber is slow. Default: wait 100 ms at most, then overwrite.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.settings.policy = policy;
        self.give(Setting::Policy)
    }

    /// Sets how publishers exclude one another. Default: [`LockKind::Lease`]. Use `Robust` for publishing
    /// processes of more than a gigabyte: when they die, the kernel takes long to release their memory,
    /// and with it the lease.
    #[must_use]
    pub fn lock(mut self, lock: LockKind) -> Self {
        self.settings.lock = lock;
        self.give(Setting::Lock)
    }

    /// Sets how sleeping subscribers are woken. Default: [`NotifyKind::Futex`].
    #[must_use]
    pub fn notify(mut self, notify: NotifyKind) -> Self {
        self.settings.notify = notify;
        self.give(Setting::Notify)
    }

    /// Sets whether [`admin::clean`](crate::admin::clean) keeps the bus although no process has it open.
    /// Default: no. `toroni create` sets it.
    #[must_use]
    pub fn persistent(mut self, persistent: bool) -> Self {
        self.settings.persistent = persistent;
        self.give(Setting::Persistent)
    }

    /// Sets whether the ring asks for huge pages (2 MiB). Default: no. Use it for rings of many MiB if the
    /// kernel allows it: `/sys/kernel/mm/transparent_hugepage/shmem_enabled` must be `advise`.
    #[must_use]
    pub fn huge_pages(mut self, huge_pages: bool) -> Self {
        self.settings.huge_pages = huge_pages;
        self.give(Setting::HugePages)
    }

    /// Sets whether this handle touches every page of the ring when it opens the ring. Default: no.
    /// Without it, the first access to a page costs 2 to 13 µs.
    #[must_use]
    pub fn prefault(mut self, prefault: bool) -> Self {
        self.prefault = prefault;
        self
    }

    /// Sets whether this handle locks the ring in memory (`mlock(2)`; needs `RLIMIT_MEMLOCK`). Default:
    /// no.
    #[must_use]
    pub fn lock_memory(mut self, lock_memory: bool) -> Self {
        self.lock_memory = lock_memory;
        self
    }

    /// Sets the permission bits of a new bus. Users that may read can subscribe; users that may also write
    /// can publish. Default: 0666 without the umask's bits; a class of users that would keep only one of
    /// the two rights loses both. With the umask 022 that is 0600.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = Some(mode);
        self.give(Setting::Mode)
    }

    /// Sets the group, by name or number, whose members may publish on a new bus (by an access control
    /// list).
    #[must_use]
    pub fn writers_group(mut self, group: impl Into<String>) -> Self {
        self.writers = Some(group.into());
        self.give(Setting::Writers)
    }

    /// Sets the group, by name or number, whose members may subscribe to a new bus but not publish (by an
    /// access control list).
    #[must_use]
    pub fn readers_group(mut self, group: impl Into<String>) -> Self {
        self.readers = Some(group.into());
        self.give(Setting::Readers)
    }

    /// Sets the name of this handle in `toroni info`. At most 40 bytes are kept, or 48 for a subscriber.
    /// Default: the name of the program.
    #[must_use]
    pub fn participant_name(mut self, name: impl Into<String>) -> Self {
        self.participant_name = Some(name.into());
        self
    }

    /// Sets whether messages that this handle publishes carry the time (CLOCK_REALTIME, in ns). It costs 8
    /// bytes and a reading of the clock for each message. Default: no.
    #[must_use]
    pub fn timestamps(mut self, timestamps: bool) -> Self {
        self.timestamps = timestamps;
        self
    }

    /// Requires that an existing bus has this [`capacity`](Self::capacity).
    #[must_use]
    pub fn require_capacity(mut self) -> Self {
        self.required.push(Setting::Capacity);
        self
    }

    /// Requires that an existing bus has this [`policy`](Self::policy).
    #[must_use]
    pub fn require_policy(mut self) -> Self {
        self.required.push(Setting::Policy);
        self
    }

    /// Requires that an existing bus has this [`lock`](Self::lock).
    #[must_use]
    pub fn require_lock(mut self) -> Self {
        self.required.push(Setting::Lock);
        self
    }

    /// Requires that an existing bus has this [`notify`](Self::notify).
    #[must_use]
    pub fn require_notify(mut self) -> Self {
        self.required.push(Setting::Notify);
        self
    }

    /// Requires that an existing bus has every setting that is given here, including the mode and the
    /// groups. Settings that are not given may be anything.
    ///
    /// ```
    /// # fn main() -> Result<(), toroni::OpenError> {
    /// # let directory = std::env::temp_dir().join(format!("toroni-doc-given-{}", std::process::id()));
    /// use toroni::{BusConfig, OpenError};
    ///
    /// let plant = BusConfig::new().directory(&directory).capacity(64 << 10).mode(0o600);
    /// let bus = plant.create("plant")?;
    /// plant.clone().require_given().open("plant")?;
    /// let other = plant.max_publishers(7).require_given().open("plant").unwrap_err();
    /// assert!(matches!(other, OpenError::SettingMismatch { setting: "max_publishers", .. }));
    /// # drop(bus);
    /// # std::fs::remove_dir_all(directory).ok();
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn require_given(mut self) -> Self {
        self.require_given = true;
        self
    }

    /// Requires that the bus belongs to this user (a number), whether it existed before or not, and that
    /// no other user can exchange its files; else opening returns [`OpenError::ForeignOwner`]. Default:
    /// the creator of the bus is trusted. Use it in a directory where other users make buses, too: one of
    /// them may have taken the name before.
    #[must_use]
    pub fn require_owner(mut self, user: u32) -> Self {
        self.require_owner = Some(user);
        self
    }

    /// Opens the bus, and creates it if it does not exist.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(&self, name: &str) -> Result<Bus, OpenError> {
        self.open_as(name, Existence::Either)
    }

    /// Creates the bus.
    ///
    /// # Errors
    /// Returns [`OpenError::AlreadyExists`] if it exists; see [`OpenError`].
    pub fn create(&self, name: &str) -> Result<Bus, OpenError> {
        self.open_as(name, Existence::New)
    }

    /// Opens the bus, which must exist.
    ///
    /// # Errors
    /// Returns [`FileError::NotFound`] if it does not exist; see [`OpenError`].
    pub fn open_existing(&self, name: &str) -> Result<Bus, OpenError> {
        self.open_as(name, Existence::Existing)
    }

    fn open_as(&self, name: &str, existence: Existence) -> Result<Bus, OpenError> {
        let root = directory::root(self.root.as_deref());
        let group = |name: &Option<String>| name.as_deref().map(group_number).transpose();
        let permissions = Permissions {
            mode: self.mode,
            writers: group(&self.writers)?,
            readers: group(&self.readers)?,
        };
        let settings = &self.settings;
        let (directory, file, is_new) = match existence {
            Existence::Existing => {
                let (directory, file) = create::open(&root, name)?;
                (directory, file, false)
            }
            Existence::New => {
                let (directory, file) = create::create(&root, name, settings, &permissions)?;
                (directory, file, true)
            }
            Existence::Either => create::open_or_create(&root, name, settings, &permissions)?,
        };
        if is_new {
            return self.open_new(directory, file);
        }
        self.check_owner(&directory)?;
        let (file, reopened) = disk::check(&directory, file)?;
        self.check_required(directory.path(), file.header(), &permissions)?;
        Ok(Bus::new(directory, file, reopened, self))
    }

    /// Returns a bus that was just created, or removes it: a creation that fails leaves nothing. A process that lacks the
    /// descriptors or the address space to look at the bus could do nothing with it.
    fn open_new(&self, directory: BusDirectory, file: RingFile) -> Result<Bus, OpenError> {
        let owned = self.check_owner(&directory);
        let bus = Bus::new(directory, file, None, self);
        match owned.and_then(|()| Ok(bus.stats()?)) {
            Ok(_) => Ok(bus),
            Err(error) => {
                bus.take_back();
                Err(error)
            }
        }
    }

    /// Checks the owner, if one is required. Everything else is opened relative to this directory, and so by the same owner.
    fn check_owner(&self, directory: &BusDirectory) -> Result<(), OpenError> {
        self.require_owner.map_or(Ok(()), |owner| directory.check_owner(owner))
    }

    /// Compares an existing bus with what is required. `permissions` are those of this configuration.
    fn check_required(
        &self,
        path: &Path,
        found: &Header,
        permissions: &Permissions,
    ) -> Result<(), OpenError> {
        let given = self.given.iter().filter(|_| self.require_given);
        for setting in self.required.iter().chain(given) {
            let (name, wanted) = setting.of(&self.settings, permissions);
            let (_, found) = setting.of(&found.settings, &found.permissions);
            if found != wanted {
                let path = path.to_owned();
                return Err(OpenError::SettingMismatch { path, setting: name, found, wanted });
            }
        }
        Ok(())
    }

    fn give(mut self, setting: Setting) -> Self {
        self.given.push(setting);
        self
    }
}

impl Setting {
    /// Returns its name and its value, for messages. Different values have different texts.
    fn of(self, settings: &Settings, permissions: &Permissions) -> (&'static str, String) {
        let group = |group: Option<u32>| group.map_or_else(|| "none".to_owned(), acl::group);
        match self {
            Self::Capacity => ("capacity", settings.capacity.to_string()),
            Self::TopicTable => ("topic_table_bytes", settings.topic_table_bytes.to_string()),
            Self::MaxPublishers => ("max_publishers", settings.max_publishers.to_string()),
            Self::MaxSubscribers => ("max_subscribers", settings.max_subscribers.to_string()),
            Self::MaxArrivals => ("max_arrivals", settings.max_arrivals.to_string()),
            Self::RetainedTopics => {
                ("retained_topics", format!("{} topics", settings.retained_topics))
            }
            Self::RetainedBytes => ("retained_bytes", format!("{} bytes", settings.retained_bytes)),
            Self::Policy => ("policy", settings.policy.to_string()),
            Self::Lock => ("lock", settings.lock.to_string()),
            Self::Notify => ("notify", settings.notify.to_string()),
            Self::Persistent => ("persistent", settings.persistent.to_string()),
            Self::HugePages => ("huge_pages", settings.huge_pages.to_string()),
            Self::Mode => {
                let octal = |mode: u32| format!("{mode:04o}");
                ("mode", permissions.mode.map_or_else(|| "by the umask".to_owned(), octal))
            }
            Self::Writers => ("writers_group", group(permissions.writers)),
            Self::Readers => ("readers_group", group(permissions.readers)),
        }
    }
}
