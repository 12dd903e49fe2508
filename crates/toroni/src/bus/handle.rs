//! The handle of an opened bus.

use super::clock;
use super::open::{BusConfig, Reopened};
use super::publish::{Exclusive, Inlet, Publisher, Publishing, writes_in_this_thread};
use super::subscribe::{Router, Subscriber, SubscriberBuilder, Subscribing};
use crate::error::{ExclusiveError, FileError, OpenError, PublisherError, SubscriberError};
use crate::ring::slots::Identity;
use crate::shm::create;
use crate::shm::directory::BusDirectory;
use crate::shm::fork::ForkStamp;
use crate::shm::lock::LockAttempt;
use crate::shm::mapping::MapOptions;
use crate::shm::platform::KernelContext;
use crate::shm::ring_file::RingFile;
use crate::topic::Topic;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// An opened bus.
///
/// A `Bus` is cheap to clone and can be shared among threads. It runs no thread of its own. It opens the
/// files for publishing when it first makes a publisher, and those for subscribing when it first makes a
/// subscriber. So a process needs only the permissions for what it does.
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
    kernel_context: KernelContext,
    options: MapOptions,
    participant_name: String,
    timestamps: bool,
    publishing: Mutex<Option<Arc<Publishing>>>,
    subscribing: Mutex<Option<Arc<Subscribing>>>,
}

/// The identity of a bus: 16 random bytes, new with each creation, and when a bus on a disk starts empty after a reboot
/// ([`Reopened::Emptied`]). Positions and sequences are only meaningful together with it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BusId([u8; 16]);

impl Bus {
    /// Opens the bus of this name with the default configuration, and creates it if it does not exist.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(name: &str) -> Result<Self, OpenError> {
        BusConfig::new().open(name)
    }

    /// Makes the handle of a bus whose files are open.
    pub(super) fn new(
        directory: BusDirectory,
        file: RingFile,
        reopened: Option<Reopened>,
        config: &BusConfig,
    ) -> Self {
        let options = MapOptions {
            huge_pages: config.settings.huge_pages,
            prefault: config.prefault,
            mlock: config.lock_memory,
        };
        Self(Arc::new(Opened {
            directory,
            file,
            reopened,
            stamp: ForkStamp::now(),
            kernel_context: KernelContext::current(),
            options,
            participant_name: config.participant_name.clone().unwrap_or_else(program_name),
            timestamps: config.timestamps,
            publishing: Mutex::new(None),
            subscribing: Mutex::new(None),
        }))
    }

    /// Removes a bus that this process has just created, unless another process has opened it meanwhile.
    pub(super) fn take_back(&self) {
        create::take_back(&self.0.directory, &self.0.file);
    }

    /// Returns the directory of an open bus, for a snapshot. Refuses a handle of the parent process.
    pub(super) fn directory(&self) -> Result<&BusDirectory, FileError> {
        self.0.stamp.check()?;
        Ok(&self.0.directory)
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.directory.name()
    }

    /// Returns the directory of the bus.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.directory.path()
    }

    /// Returns the identity of the bus.
    #[must_use]
    pub fn id(&self) -> BusId {
        BusId(self.0.file.header().stream_id)
    }

    /// Returns what happened to a bus on a disk, if this handle is the first one since the machine booted;
    /// else `None`.
    #[must_use]
    pub fn reopened(&self) -> Option<Reopened> {
        self.0.reopened
    }

    /// Makes a publisher on a topic, which is a path such as `plant/boiler/temperature`.
    ///
    /// # Errors
    /// [`PublisherError::Topic`], [`PublisherError::TooManyPublishers`], [`FileError::PermissionDenied`],
    /// [`FileError::RobustLockRefused`]; see [`PublisherError`].
    pub fn publisher(&self, topic: &str) -> Result<Publisher, PublisherError> {
        let topic = Topic::new(topic)?;
        Publisher::shared(self.clone(), self.publishing()?, topic)
    }

    /// Makes an exclusive publisher: the only one of the bus, for as long as it exists. It waits until the publishers
    /// that are publishing have finished their message, and until another exclusive publisher is dropped.
    ///
    /// # Errors
    /// Returns [`ExclusiveError::Taken`] at once if this `Bus`, or a clone of it, has an exclusive publisher;
    /// see [`ExclusiveError`].
    pub fn exclusive(&self) -> Result<Exclusive, ExclusiveError> {
        Exclusive::new(self.clone(), self.publishing()?, LockAttempt::Until(None))
    }

    /// Makes an exclusive publisher, as [`Self::exclusive`] does, without waiting.
    ///
    /// # Errors
    /// Returns [`ExclusiveError::Taken`] if there is another exclusive publisher, and [`ExclusiveError::Busy`] if
    /// another publisher is publishing; see [`ExclusiveError`].
    pub fn try_exclusive(&self) -> Result<Exclusive, ExclusiveError> {
        Exclusive::new(self.clone(), self.publishing()?, LockAttempt::Try)
    }

    /// Makes an exclusive publisher, as [`Self::exclusive`] does, and waits no longer than `timeout`.
    ///
    /// # Errors
    /// Returns [`ExclusiveError::Taken`] after that time if there is still another exclusive publisher, and at once if
    /// this `Bus`, or a clone of it, has one; [`ExclusiveError::Timeout`] if another publisher is publishing all that
    /// time; see [`ExclusiveError`].
    pub fn exclusive_timeout(&self, timeout: Duration) -> Result<Exclusive, ExclusiveError> {
        let deadline = Instant::now().checked_add(timeout);
        Exclusive::new(self.clone(), self.publishing()?, LockAttempt::Until(deadline))
    }

    /// Makes an inlet, which publishes what comes from elsewhere. Each inlet is a publishing participant of its own.
    ///
    /// # Errors
    /// Returns [`PublisherError::TooManyPublishers`] if all slots are taken; see [`PublisherError`].
    pub fn inlet(&self) -> Result<Inlet, PublisherError> {
        self.check_publishing()?;
        Ok(Inlet::new(self.clone(), self.open_publishing()?))
    }

    pub(super) fn has_timestamps(&self) -> bool {
        self.0.timestamps
    }

    /// Makes a subscriber to the topics that match a pattern. In the pattern `*` stands for one segment of
    /// a topic, `**` for any number of segments, including none.
    ///
    /// # Errors
    /// See [`SubscriberBuilder::build`].
    pub fn subscribe(&self, pattern: &str) -> Result<Subscriber, SubscriberError> {
        self.subscriber().pattern(pattern).build()
    }

    /// Returns a builder for a subscriber with options. See [`SubscriberBuilder`] for an example.
    pub fn subscriber(&self) -> SubscriberBuilder {
        SubscriberBuilder::new(self.clone())
    }

    /// Makes a router: one subscriber with many handlers. See [`Router`] for an example.
    ///
    /// # Errors
    /// See [`SubscriberBuilder::build`].
    pub fn router(&self) -> Result<Router, SubscriberError> {
        Ok(Router::new(self.subscriber().build()?))
    }

    /// Returns what publishers share; the first call opens it.
    pub(super) fn publishing(&self) -> Result<Arc<Publishing>, PublisherError> {
        self.check_publishing()?;
        let mut publishing = self.0.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(publishing) = &*publishing {
            return Ok(publishing.clone());
        }
        let opened = Arc::new(self.open_publishing()?);
        *publishing = Some(opened.clone());
        Ok(opened)
    }

    /// Checks whether a publishing participant can be made here: it takes the writer lock.
    fn check_publishing(&self) -> Result<(), PublisherError> {
        self.0.stamp.check().map_err(FileError::from)?;
        if writes_in_this_thread(&self.0.file.header().bus_id) {
            return Err(PublisherError::Reentrant);
        }
        Ok(())
    }

    fn open_publishing(&self) -> Result<Publishing, PublisherError> {
        Publishing::open(&self.0.directory, &self.0.options, &self.identity())
    }

    /// Returns what subscribers share; the first call opens it.
    pub(super) fn subscribing(&self) -> Result<Arc<Subscribing>, FileError> {
        self.0.stamp.check()?;
        let mut subscribing = self.0.subscribing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(subscribing) = &*subscribing {
            return Ok(subscribing.clone());
        }
        let opened = Arc::new(Subscribing::open(&self.0.directory, &self.0.options)?);
        *subscribing = Some(opened.clone());
        Ok(opened)
    }

    pub(super) fn identity(&self) -> Identity {
        Identity {
            pid: std::process::id(),
            pid_namespace: self.0.kernel_context.pid_namespace,
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
