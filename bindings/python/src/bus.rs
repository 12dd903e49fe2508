//! The class `Bus`.

use crate::blocking::Detached;
use crate::exclusive::ExclusivePublisher;
use crate::inlet::Inlet;
use crate::publisher::Publisher;
use crate::settings;
use crate::subscriber::Subscriber;
use crate::{errors, message, stats};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use toroni::{BusConfig, OpenError};

/// An opened bus. toroni.Bus("demo") opens the bus, and creates it if it does not exist.
///
/// Bus.create fails if the bus exists, Bus.open_existing if it does not. All three take the same settings. They
/// apply to a new bus; an existing bus keeps its own, and opening it fails if it differs in a setting that
/// require names. Closing a bus, or leaving its with statement, leaves its publishers and subscribers open.
/// Threads may share a bus. In the child of a fork, its methods raise Forked: open the bus again there.
///
/// Raises Invalid, NotFound, AlreadyExists, PermissionDenied, System, Corrupt, or another toroni.Error.
///
/// name: 1 to 64 of A-Z a-z 0-9 . _ -
/// directory: the directory that contains the buses; default default_directory()
/// capacity: bytes of the ring, a power of two from 64 KiB to 1 TiB; default 4 MiB
/// topic_table_bytes: bytes for the names of topics, a multiple of 4096; default 1 MiB
/// max_publishers, max_subscribers: 1 to 1024 at the same time; default 128
/// max_arrivals: for how many streams from elsewhere the bus keeps track of what has arrived, at most 65536; default
///     256; only an Inlet needs them
/// retained_topics: for how many topics the bus keeps the newest message, at most 4096; default 512; with 0, the bus keeps
///     no values
/// retained_bytes: bytes for these messages, a multiple of 4096, at most 4 GiB; default 448 KiB. One message, with 8 to 40
///     bytes more, takes at most a quarter of them, and each topic has room for two of its longest
/// policy: what publishers do about slow subscribers: a Policy, "overwrite", "wait" or "wait:forever"; default
///     "wait", which is Policy.wait(0.1)
/// lock: how publishers exclude one another: "lease" or "robust"; default "lease"
/// notify: how publishers wake sleeping subscribers: "futex", "datagram", "multicast" or "multicast:ADDRESS:PORT";
///     default "futex"
/// persistent: whether toroni.clean keeps the bus although no process has it open
/// huge_pages: whether the ring uses huge pages, if the kernel allows it
/// prefault: whether this handle touches every page of the ring when it is opened
/// lock_memory: whether this handle keeps the ring in memory (mlock)
/// mode: permission bits of the files of a new bus; default as the umask says, where owner, group and others each get
///     permission to read and write, or none
/// writers_group: name or number of the group that may publish on a new bus
/// readers_group: name or number of the group that may only subscribe to a new bus
/// participant_name: the name of this handle in `toroni info`; default the name of the script
/// timestamps: whether messages that this handle publishes carry the time
/// require: names of settings in which an existing bus must agree: "capacity", "policy", "lock", "notify"
/// require_owner: number of the user who must own the bus
#[pyclass(frozen, weakref, module = "toroni")]
pub(crate) struct Bus {
    inner: Mutex<Option<Detached<toroni::Bus>>>,
    name: String,
    path: PathBuf,
    id: String,
    reopened: Option<toroni::Reopened>,
    policy: Mutex<Option<toroni::Policy>>,
}

#[pymethods]
impl Bus {
    #[new]
    #[pyo3(signature = (name="default", **settings))]
    fn new(py: Python<'_>, name: &str, settings: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        Self::open(py, settings, |config| config.open(name))
    }

    /// Creates the bus. Raises AlreadyExists if it exists.
    #[classmethod]
    #[pyo3(signature = (name="default", **settings))]
    fn create(
        class: &Bound<'_, PyType>,
        name: &str,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        Self::open(class.py(), settings, |config| config.create(name))
    }

    /// Opens the bus. Raises NotFound if it does not exist.
    #[classmethod]
    #[pyo3(signature = (name="default", **settings))]
    fn open_existing(
        class: &Bound<'_, PyType>,
        name: &str,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        Self::open(class.py(), settings, |config| config.open_existing(name))
    }

    /// The name of the bus.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The directory that holds the files of the bus.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// The identity of the bus, chosen at random when it was created: 32 hexadecimal digits.
    #[getter]
    fn id(&self) -> &str {
        &self.id
    }

    /// What the bus kept, a toroni.Reopened, if the bus is on a disk and this is its first handle since the machine
    /// booted. Otherwise None.
    #[getter]
    fn reopened<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.reopened.as_ref().map(|reopened| stats::of_reopened(py, reopened)).transpose()
    }

    /// Whether this handle was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.lock().is_none()
    }

    /// Makes a publisher for a topic, which is a path such as plant/boiler/temperature. With to_descendants, its
    /// messages also go to subscribers of everything below the topic. policy is written as for Bus, and can only
    /// wait less than the policy of the bus.
    ///
    /// With retained, the bus keeps the newest message of the topic from now on, whichever publisher sent it. This message is
    /// the value of the topic. A subscriber with retained=True receives the value first, however late it joins, and
    /// Bus.retained returns it. The topic stays retained as long as the bus exists. Raises NoValues if the bus was created
    /// without room for values, TooManyRetained if it can retain no other topic, and Exclusive if it has an exclusive
    /// publisher.
    #[pyo3(signature = (topic, *, to_descendants=false, policy=None, retained=false))]
    fn publisher(
        &self,
        py: Python<'_>,
        topic: &str,
        to_descendants: bool,
        policy: Option<&Bound<'_, PyAny>>,
        retained: bool,
    ) -> PyResult<Publisher> {
        let policy = policy.map(|policy| settings::policy("policy", policy)).transpose()?;
        let bus = self.handle(py)?;
        let made = py.detach(|| bus.publisher(topic));
        let publisher = made.map_err(|error| errors::on_publisher(py, &error))?;
        let publisher = publisher.to_descendants(to_descendants);
        let bus_policy = self.policy(py, &bus)?;
        Publisher::made(py, publisher, bus_policy, policy, retained)
    }

    /// Makes an exclusive publisher: the only publisher of the bus until it is closed. Waits until the publishers that
    /// are publishing have finished their message, and until another exclusive publisher is closed. After timeout
    /// seconds it raises Exclusive, which names the other one, or Timeout if another publisher is publishing. If this
    /// Bus already has an exclusive publisher, it raises Exclusive at once. If the bus has the lock "robust", which
    /// cannot be kept, it raises Error.
    ///
    /// always_fenced: whether each message executes a memory fence, also while no subscriber sleeps. By default it does
    ///     not: then a subscriber that goes to sleep interrupts the processors on which this process runs
    #[pyo3(signature = (timeout=None, *, always_fenced=false))]
    fn exclusive(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        always_fenced: bool,
    ) -> PyResult<ExclusivePublisher> {
        let timeout = settings::timeout(py, timeout)?;
        let bus = self.handle(py)?;
        let policy = self.policy(py, &bus)?;
        ExclusivePublisher::made(py, &bus, policy, timeout, always_fenced)
    }

    /// Makes an inlet, which publishes messages that come from elsewhere: from another host, another bus or a
    /// recording. policy is written as for Bus, and can only wait less than the policy of the bus.
    #[pyo3(signature = (*, policy=None))]
    fn inlet(&self, py: Python<'_>, policy: Option<&Bound<'_, PyAny>>) -> PyResult<Inlet> {
        let policy = policy.map(|policy| settings::policy("policy", policy)).transpose()?;
        let bus = self.handle(py)?;
        let bus_policy = self.policy(py, &bus)?;
        Inlet::made(py, &bus, bus_policy, policy)
    }

    /// Makes a subscriber for the topics that match at least one pattern. In a pattern, * stands for one segment
    /// and ** for any number of segments. Each argument is a pattern or a list of patterns.
    ///
    /// start: "latest" (default), "oldest", the position of a message, or ("sequence", n) for the message with the
    ///     sequence n
    /// gating: whether publishers wait for this subscriber, as the policy of the bus says
    /// name: the name of this subscriber in `toroni info`
    /// wait: how receiving waits: "backoff" (default) polls briefly, then yields, then sleeps; "spin" polls all the
    ///     time and occupies a processor; "yield" polls and lets other threads run in between; "block" sleeps at once
    /// local_only: whether it passes over messages with an origin, and over losses from elsewhere, as a program needs
    ///     that sends the messages of the bus to other places
    /// after_loss: where it continues after Lapped: "oldest" (default), with the oldest message that it can still read,
    ///     or "newest", with the newest one that matches; Lapped counts all that it passes over
    /// max_age: seconds; messages whose timestamp is longer ago when they are received are passed over, and counted as
    ///     stale by stats(). Those without a timestamp are received. None: any age
    /// retained: whether it first receives the values of the topics that match: of each retained topic the newest message
    ///     that was published before the subscriber begins, of any age. They come in the order of the bus, and then the
    ///     stream follows, without a gap and without a duplicate. After Lapped, the values come that changed within the
    ///     loss. Message.is_retained distinguishes values, and Subscriber.is_current says when all were received. The
    ///     subscriber also receives a message that is_cleared when a value is cleared
    #[expect(clippy::too_many_arguments, reason = "they are keyword arguments in Python")]
    #[pyo3(signature = (*patterns, start=None, gating=true, name=None, wait="backoff", local_only=false, after_loss="oldest", max_age=None, retained=false))]
    fn subscribe(
        &self,
        py: Python<'_>,
        patterns: &Bound<'_, PyTuple>,
        start: Option<&Bound<'_, PyAny>>,
        gating: bool,
        name: Option<String>,
        wait: &str,
        local_only: bool,
        after_loss: &str,
        max_age: Option<f64>,
        retained: bool,
    ) -> PyResult<Subscriber> {
        let wait = settings::wait(py, wait)?;
        let mut builder =
            self.handle(py)?.subscriber().gating(gating).wait(wait).local_only(local_only);
        builder = builder.retained(retained);
        for argument in patterns {
            for pattern in settings::strings("a pattern", &argument)? {
                builder = builder.pattern(pattern);
            }
        }
        builder = builder.after_loss(settings::after_loss(py, after_loss)?);
        if let Some(max_age) = max_age {
            builder = builder.max_age(settings::seconds(py, "max_age", max_age)?);
        }
        if let Some(start) = start {
            builder = builder.start(settings::start("start", start)?);
        }
        if let Some(name) = name {
            builder = builder.name(name);
        }
        let made = py.detach(|| builder.build());
        Subscriber::made(py, made.map_err(|error| errors::on_subscriber(py, &error))?)
    }

    /// Makes a router: one subscriber with many handlers. It takes the options of subscribe, except retained.
    #[pyo3(signature = (**options))]
    fn router(slf: &Bound<'_, Self>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Py<PyAny>> {
        static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        let py = slf.py();
        if options.is_some_and(|options| options.contains("retained").unwrap_or(false)) {
            let message = "a router has no patterns when it subscribes, so it cannot begin with values: use Bus.subscribe with retained=True";
            return Err(errors::invalid(py, message.to_owned()));
        }
        let subscriber = slf.call_method("subscribe", (), options)?;
        Ok(CLASS.import(py, "toroni._router", "Router")?.call1((subscriber,))?.unbind())
    }

    /// Returns the value of a topic, a toroni.RetainedMessage. It is the newest message since a publisher declared the topic
    /// with retained=True. Returns None if the topic is not retained, has no value yet, or if that was cleared. Raises
    /// ValueMissing if there is a value but the bus had no room for it, and NoValues if the bus keeps none.
    ///
    /// It reads without subscribing, and waits for no publisher. After this thread has received a message of the topic, it
    /// returns that one or a newer one.
    fn retained<'py>(&self, py: Python<'py>, topic: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        let bus = self.handle(py)?;
        let answer =
            py.detach(|| bus.retained(topic)).map_err(|error| errors::on_retained(py, &error))?;
        answer.map(|message| message::of_retained(py, &message)).transpose()
    }

    /// Returns a list of the values of all topics that match a pattern, in the order of the bus. A value that cannot be read
    /// is an exception in its place, such as a ValueMissing; raise it, or go to the next one. See Bus.retained.
    fn retained_matching<'py>(
        &self,
        py: Python<'py>,
        pattern: &str,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let bus = self.handle(py)?;
        let answer = py.detach(|| bus.retained_matching(pattern));
        let values = answer.map_err(|error| errors::on_retained(py, &error))?;
        let converted = values.iter().map(|value| match value {
            Ok(message) => message::of_retained(py, message),
            Err(error) => {
                Ok(errors::on_retained(py, error).into_value(py).into_bound(py).into_any())
            }
        });
        converted.collect()
    }

    /// Returns a snapshot of the bus, a toroni.BusStats. What this process may not read is None.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let bus = self.handle(py)?;
        let answer = py.detach(|| bus.stats()).map_err(|error| errors::on_file(py, &error))?;
        stats::of_bus(py, &answer)
    }

    /// Returns a list of toroni.TopicStats, sorted by name: what the ring holds of each topic.
    fn topics<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let bus = self.handle(py)?;
        let answer = py.detach(|| bus.topics()).map_err(|error| errors::on_file(py, &error))?;
        answer.iter().map(|topic| stats::of_topic(py, topic)).collect()
    }

    /// Closes this handle. Its publishers and subscribers stay open.
    fn close(&self) {
        let inner = self.lock().take();
        drop(inner);
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyAny>) {
        self.close();
    }

    fn __repr__(&self) -> String {
        let state = if self.closed() { ", closed" } else { "" };
        format!("<toroni.Bus {:?} at {}{state}>", self.name, self.path.display())
    }
}

impl Bus {
    fn open(
        py: Python<'_>,
        settings: Option<&Bound<'_, PyDict>>,
        open: impl Fn(&BusConfig) -> Result<toroni::Bus, OpenError> + Sync,
    ) -> PyResult<Self> {
        let config = configuration(py, "Bus", settings)?;
        let bus = py.detach(|| open(&config)).map_err(|error| errors::on_open(py, &error))?;
        Ok(Self {
            name: bus.name().to_owned(),
            path: bus.path().to_owned(),
            id: bus.id().to_string(),
            reopened: bus.reopened(),
            policy: Mutex::new(None),
            inner: Mutex::new(Some(Detached::new(bus))),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Detached<toroni::Bus>>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bus. It is [`Detached`] because it becomes the last handle if another thread closes this one.
    fn handle(&self, py: Python<'_>) -> PyResult<Detached<toroni::Bus>> {
        // The mutex is unlocked before the exception is made: Python may then run a finalizer, which may use this, too.
        let bus = self.lock().as_deref().cloned();
        bus.map(Detached::new).ok_or_else(|| errors::closed(py, "bus"))
    }

    /// Returns the policy of the bus, which is read once.
    fn policy(&self, py: Python<'_>, bus: &toroni::Bus) -> PyResult<toroni::Policy> {
        let known = || self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(policy) = *known() {
            return Ok(policy);
        }
        let stats = py.detach(|| bus.stats()).map_err(|error| errors::on_file(py, &error))?;
        *known() = Some(stats.policy);
        Ok(stats.policy)
    }
}

/// Converts the keyword arguments of a class.
pub(crate) fn configuration(
    py: Python<'_>,
    class: &str,
    settings: Option<&Bound<'_, PyDict>>,
) -> PyResult<BusConfig> {
    let mut config = BusConfig::new().participant_name(script(py));
    for (name, value) in settings.into_iter().flatten() {
        if value.is_none() {
            continue;
        }
        let name = name.extract::<String>()?;
        config = match name.as_str() {
            "directory" => config.directory(settings::path(&name, &value)?),
            "capacity" => config.capacity(settings::integer(&name, &value)?),
            "topic_table_bytes" => config.topic_table_bytes(settings::integer(&name, &value)?),
            "max_publishers" => config.max_publishers(settings::integer(&name, &value)?),
            "max_subscribers" => config.max_subscribers(settings::integer(&name, &value)?),
            "max_arrivals" => config.max_arrivals(settings::integer(&name, &value)?),
            "retained_topics" => config.retained_topics(settings::integer(&name, &value)?),
            "retained_bytes" => config.retained_bytes(settings::integer(&name, &value)?),
            "policy" => config.policy(settings::policy(&name, &value)?),
            "lock" => config.lock(settings::lock(&name, &value)?),
            "notify" => config.notify(settings::notify(&name, &value)?),
            "persistent" => config.persistent(settings::flag(&name, &value)?),
            "huge_pages" => config.huge_pages(settings::flag(&name, &value)?),
            "prefault" => config.prefault(settings::flag(&name, &value)?),
            "lock_memory" => config.lock_memory(settings::flag(&name, &value)?),
            "mode" => config.mode(settings::mode(&name, &value)?),
            "writers_group" => config.writers_group(settings::string(&name, &value)?),
            "readers_group" => config.readers_group(settings::string(&name, &value)?),
            "participant_name" => config.participant_name(settings::string(&name, &value)?),
            "timestamps" => config.timestamps(settings::flag(&name, &value)?),
            "require_owner" => config.require_owner(settings::integer(&name, &value)?),
            "require" => required(config, &name, &value)?,
            _ => {
                let message = format!("{class}() got an unexpected keyword argument {name:?}");
                return Err(pyo3::exceptions::PyTypeError::new_err(message));
            }
        };
    }
    Ok(config)
}

fn required(config: BusConfig, name: &str, value: &Bound<'_, PyAny>) -> PyResult<BusConfig> {
    settings::strings(name, value)?.into_iter().try_fold(config, |config, setting| {
        Ok(match setting.as_str() {
            "capacity" => config.require_capacity(),
            "policy" => config.require_policy(),
            "lock" => config.require_lock(),
            "notify" => config.require_notify(),
            _ => {
                let known = "capacity, policy, lock, notify";
                let message = format!("{name} names {setting:?}, but may name only {known}");
                return Err(errors::invalid(value.py(), message));
            }
        })
    })
}

/// Returns the name of the script, which is more useful than that of the interpreter.
fn script(py: Python<'_>) -> String {
    let first = || -> PyResult<String> {
        py.import("sys")?.getattr("argv")?.get_item(0)?.extract::<String>()
    };
    let path = PathBuf::from(first().unwrap_or_default());
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    name.filter(|name| !name.is_empty() && name != "-c").unwrap_or_else(|| "python".to_owned())
}
