//! The facade: opens the segments and joins the layers. Nothing else knows them all, and nothing here
//! is unsafe.
//!
//! - `config`: how a bus is opened or created.
//! - `publisher`, `publishing`: one topic's face, and the participant behind all of them; `room` waits for
//!   slow readers, `claim` is its slot, `held` knows who is inside a closure under the lock.
//! - `subscriber`, `receiving`, `subscribing`, `message`: one subscriber's face, its work, and the role
//!   behind all of them; `backoff` decides how to wait, `descriptor` is for
//!   event loops, `local` finds threads that would wait for themselves.
//! - `interrupter`: ends a subscriber's blocking call from elsewhere.
//! - `router`, `stream`: many handlers behind one subscriber; async.
//! - `proactor`: subscribers in a proactor.
//! - `views`: what the layers need of mapped files.
//! - `disk`: what is left of a bus on a disk after a reboot.
//! - `stats`, `admin`: for people who look, and clean up.

mod clock;
mod inspect;
mod local;
mod open;
mod polling;
#[cfg(feature = "proactor")]
pub mod proactor;
mod publish;
mod subscribe;
mod views;

pub use inspect::admin;
pub use inspect::stats::{BusStats, LockOwner, PublisherStats, SubscriberSlotStats, TopicStats};
pub use open::config::BusConfig;
pub use open::disk::Reopened;
pub use publish::Publisher;
pub use subscribe::{
    Borrowed, InPlace, Interrupter, Message, Router, Start, Subscriber, SubscriberBuilder,
    SubscriberStats, WaitStrategy,
};

use crate::error::OpenError;
use crate::ring::slots::Identity;
use crate::shm::acl::{Permissions, group_number};
use crate::shm::create;
use crate::shm::directory::{self, BusDirectory};
use crate::shm::fork::ForkStamp;
use crate::shm::mapping::MapOptions;
use crate::shm::platform::Home;
use crate::shm::ring_file::RingFile;
use crate::topic::Topic;
use open::disk;
use publish::{Publishing, writes_in_this_thread};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use subscribe::Subscribing;

/// An opened bus.
///
/// Cheap to clone, and shared freely among threads. It costs no thread and no processor time. What it
/// needs for publishing, or for subscribing, it opens when it is first asked for a publisher or a
/// subscriber, so that a process needs only the permissions for what it does.
///
/// See the [crate's documentation](crate) for an example.
#[derive(Clone)]
pub struct Bus(Arc<Opened>);

struct Opened {
    directory: BusDirectory,
    /// Holds the shared lock that tells `clean` that the bus is in use.
    file: RingFile,
    reopened: Option<Reopened>,
    stamp: ForkStamp,
    home: Home,
    options: MapOptions,
    participant_name: String,
    timestamps: bool,
    publishing: Mutex<Option<Arc<Publishing>>>,
    subscribing: Mutex<Option<Arc<Subscribing>>>,
}

/// Identity of a bus: random, new with each creation.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BusId([u8; 16]);

/// Whether a bus may, or must, exist already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Existence {
    Either,
    New,
    Existing,
}

impl Bus {
    /// Opens the bus of that name with the default configuration, and creates it if it is not there.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(name: &str) -> Result<Self, OpenError> {
        BusConfig::new().open(name)
    }

    fn with_config(
        name: &str,
        config: &BusConfig,
        existence: Existence,
    ) -> Result<Self, OpenError> {
        let root = directory::root(config.root.as_deref());
        let group = |name: &Option<String>| name.as_deref().map(group_number).transpose();
        let permissions = Permissions {
            mode: config.mode,
            writers: group(&config.writers)?,
            readers: group(&config.readers)?,
        };
        let settings = &config.settings;
        let (directory, file) = match existence {
            Existence::Existing => create::open(&root, name)?,
            Existence::New => {
                create::create(&root, name, settings, &permissions)?;
                create::open(&root, name)?
            }
            Existence::Either => {
                let (directory, file, _) =
                    create::open_or_create(&root, name, settings, &permissions)?;
                (directory, file)
            }
        };
        // Everything else is opened relative to this directory, and so by the same owner.
        if let Some(owner) = config.require_owner {
            directory.check_owner(owner)?;
        }
        let (file, reopened) = disk::check(&directory, file)?;
        config.check_required(directory.path(), file.header(), &permissions)?;
        let options = MapOptions {
            huge_pages: settings.huge_pages,
            prefault: config.prefault,
            mlock: config.lock_memory,
        };
        Ok(Self(Arc::new(Opened {
            directory,
            file,
            reopened,
            stamp: ForkStamp::now(),
            home: Home::here(),
            options,
            participant_name: config.participant_name.clone().unwrap_or_else(program_name),
            timestamps: config.timestamps,
            publishing: Mutex::new(None),
            subscribing: Mutex::new(None),
        })))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.directory.name()
    }

    /// Its directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.directory.path()
    }

    /// Its identity.
    #[must_use]
    pub fn id(&self) -> BusId {
        BusId(self.0.file.header().bus_id)
    }

    /// What became of a bus on a disk, if this handle is the first since the machine booted; else `None`.
    #[must_use]
    pub fn reopened(&self) -> Option<Reopened> {
        self.0.reopened
    }

    /// A publisher on a topic, which is a path like `plant/boiler/temperature`.
    ///
    /// # Errors
    /// [`OpenError::Topic`], [`OpenError::PermissionDenied`], [`OpenError::TooManyPublishers`],
    /// [`OpenError::RobustLockRefused`]; see [`OpenError`].
    pub fn publisher(&self, topic: &str) -> Result<Publisher, OpenError> {
        let topic = Topic::new(topic)?;
        Publisher::new(self.clone(), self.publishing()?, topic, self.0.timestamps)
    }

    /// A subscriber to the topics that match a pattern: `*` stands for one segment of a topic, `**` for
    /// any number, none included.
    ///
    /// # Errors
    /// See [`SubscriberBuilder::build`].
    pub fn subscribe(&self, pattern: &str) -> Result<Subscriber, OpenError> {
        self.subscriber().pattern(pattern).build()
    }

    /// A subscriber with options. See [`SubscriberBuilder`] for an example.
    pub fn subscriber(&self) -> SubscriberBuilder {
        SubscriberBuilder::new(self.clone())
    }

    /// A router: one subscriber with many handlers. See [`Router`] for an example.
    ///
    /// # Errors
    /// See [`SubscriberBuilder::build`].
    pub fn router(&self) -> Result<Router, OpenError> {
        Ok(Router::new(self.subscriber().build()?))
    }

    /// The publishing participant, opened with the first call.
    fn publishing(&self) -> Result<Arc<Publishing>, OpenError> {
        self.0.stamp.check()?;
        if writes_in_this_thread(&self.0.file.header().bus_id) {
            return Err(OpenError::Reentrant);
        }
        let mut publishing = self.0.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(publishing) = &*publishing {
            return Ok(publishing.clone());
        }
        let opened = &self.0;
        let opened = Publishing::open(&opened.directory, &opened.options, &self.identity())?;
        let opened = Arc::new(opened);
        *publishing = Some(opened.clone());
        Ok(opened)
    }

    /// The subscribing role, opened with the first call.
    fn subscribing(&self) -> Result<Arc<Subscribing>, OpenError> {
        self.0.stamp.check()?;
        let mut subscribing = self.0.subscribing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(subscribing) = &*subscribing {
            return Ok(subscribing.clone());
        }
        let opened = Arc::new(Subscribing::open(&self.0.directory, &self.0.options)?);
        *subscribing = Some(opened.clone());
        Ok(opened)
    }

    fn identity(&self) -> Identity {
        Identity {
            pid: std::process::id(),
            pid_namespace: self.0.home.pid_namespace,
            started_ns: clock::realtime_ns(),
            name: self.0.participant_name.clone(),
        }
    }
}

fn program_name() -> String {
    std::env::current_exe()
        .ok()
        .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .unwrap_or_else(|| "unknown".to_owned())
}

impl fmt::Debug for Bus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Bus").field("path", &self.path()).finish_non_exhaustive()
    }
}

impl fmt::Display for BusId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for BusId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "BusId({self})")
    }
}
